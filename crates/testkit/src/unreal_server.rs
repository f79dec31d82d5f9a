//! Simulated servers of an Unreal game, and the checks on what is said and heard there.
//!
//! The servers are the stand-ins that know nothing of the gateway; what they count as a duplicate
//! or as impossible is a violation. [`UnrealJudge`] checks what the players say: each note is heard
//! at most once, on one connection, and comes from the player who sent it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::judge::Judge;
use super::note::Note;
use super::random::Random;
use super::unreal_player::said_in;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_bots::unreal::StandIn;
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::notify::Header;
use ringgate_core::secret::CookieSecret;

/// A game server.
pub struct UnrealServer {
    profile: Profile,
    stand_in: StandIn,
    /// Until when it is dead.
    pub dead_until_ns: u64,
    /// What has come: from which worker, from which of its loopback addresses.
    pub mail: VecDeque<(usize, LocalIp, Vec<u8>)>,
    timeout_ns: u64,
}

/// Something that a server sends to a worker's loopback address.
pub type UnrealAnswer = (usize, LocalIp, Vec<u8>);

impl UnrealServer {
    /// A server that has just been started.
    pub fn new(profile: Profile, timeout_ns: u64, now_ns: u64, random: &mut Random) -> Self {
        let stand_in = start(&profile, now_ns, random);
        Self { profile, stand_in, dead_until_ns: 0, mail: VecDeque::new(), timeout_ns }
    }

    /// Whether it runs.
    pub const fn is_alive(&self, now_ns: u64) -> bool {
        now_ns >= self.dead_until_ns
    }

    /// Dies, and comes back later knowing nothing.
    pub fn die(&mut self, now_ns: u64, until_ns: u64, random: &mut Random) {
        self.dead_until_ns = until_ns;
        self.mail.clear();
        self.stand_in = start(&self.profile, now_ns, random);
    }

    /// Reads everything that has come, and answers.
    pub fn read(
        &mut self,
        now_ns: u64,
        unreal_judge: &mut UnrealJudge,
        judge: &mut Judge,
        random: &mut Random,
    ) -> Vec<UnrealAnswer> {
        let mut answers = Vec::new();
        let mut out = [0; UNREAL_BYTES_MAX];
        while let Some((worker, source, datagram)) = self.mail.pop_front() {
            let from = guest_address(worker, &source);
            let tail = Tail::draw(&random.bytes::<{ TAIL_BYTES_MAX + 1 }>());
            let before = self.stand_in.tally.packets;
            let answer =
                self.stand_in.handle_datagram(clock_ns(now_ns), from, &datagram, &tail, &mut out);
            if self.stand_in.tally.packets > before
                && let Some(bytes) = self.said(&datagram)
            {
                let cookie = self.cookie_at(from);
                unreal_judge.hear_up(cookie, &bytes, judge);
            }
            if let Ok(len @ 1..) = answer {
                answers.push((worker, source, out[..len].to_vec()));
            }
        }
        while let Some((to, len)) = self.stand_in.poll_keep_alive(clock_ns(now_ns), &mut out) {
            let (worker, source) = guest_of(to);
            answers.push((worker, source, out[..len].to_vec()));
        }
        let fresh = CookieSecret::from_bytes(random.bytes());
        self.stand_in.handle_timeout(clock_ns(now_ns), fresh, random.word() as u8);
        self.stand_in.close_idle(clock_ns(now_ns), self.timeout_ns);
        let tally = self.stand_in.tally;
        judge.require(tally.duplicates == 0, || format!("a server got a packet twice: {tally:?}"));
        judge.require(tally.implausible == 0, || format!("impossible packets: {tally:?}"));
        judge.require(tally.restarts == 0, || format!("a server noticed a move: {tally:?}"));
        answers
    }

    fn said(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (_, reader) = self.profile.framing.read(datagram).ok()?;
        said_in(Header::read(reader).ok()?.payload())
    }

    fn cookie_at(&self, address: Endpoint) -> Option<Cookie> {
        let mut players = self.stand_in.connections().iter();
        players.find(|player| player.address == address).map(|player| player.cookie)
    }
}

/// Sees what is said in the Unreal game.
#[derive(Default)]
pub struct UnrealJudge {
    /// Matches begin at 1.
    heard: Vec<HashSet<u64>>,
    matches: HashMap<Cookie, u64>,
    /// Bytes that came from and went to addresses at which nobody plays.
    strangers: HashMap<Endpoint, (u64, u64)>,
    /// Addresses at which a player is or was.
    homes: HashSet<Endpoint>,
}

impl UnrealJudge {
    /// A match begins; returns its number.
    pub fn add_match(&mut self) -> u64 {
        self.heard.push(HashSet::new());
        self.heard.len() as u64
    }

    /// Notes of a match that a server has heard.
    pub fn heard(&self, number: u64) -> u64 {
        self.heard[number as usize - 1].len() as u64
    }

    /// Notes that servers have heard in all matches.
    pub fn heard_in_all(&self) -> u64 {
        self.heard.iter().map(|notes| notes.len() as u64).sum()
    }

    /// A player is at this address from now on.
    pub fn move_in(&mut self, home: Endpoint) {
        self.homes.insert(home);
    }

    /// A server has taken a note.
    fn hear_up(&mut self, cookie: Option<Cookie>, bytes: &[u8], judge: &mut Judge) {
        let (Some(note), Some(cookie)) = (Note::read(bytes), cookie) else {
            return judge.require(false, || "a server heard what nobody has said".to_owned());
        };
        let Some(notes) = self.heard.get_mut(note.life as usize - 1) else {
            return judge.require(false, || format!("{note:?} is from nobody"));
        };
        let is_first = notes.insert(note.number);
        judge.require(is_first, || format!("{note:?} reached a server twice"));
        let owner = *self.matches.entry(cookie).or_insert(note.life);
        judge
            .require(owner == note.life, || format!("{note:?} came on match {owner}'s connection"));
    }

    /// The gateway has received a datagram from an address.
    pub fn came(&mut self, from: Endpoint, bytes: usize) {
        if !self.homes.contains(&from) {
            self.strangers.entry(from).or_default().0 += bytes as u64;
        }
    }

    /// The gateway sends a datagram to an address: where nobody plays, no byte more than came from
    /// there.
    pub fn went(&mut self, to: Endpoint, bytes: usize, judge: &mut Judge) {
        if !self.homes.contains(&to) {
            let (came, went) = self.strangers.entry(to).or_default();
            *went += bytes as u64;
            judge.require(*went <= *came, || format!("{to:?} got {went} bytes for {came}"));
        }
    }
}

fn start(profile: &Profile, now_ns: u64, random: &mut Random) -> StandIn {
    let secrets = [(); 2].map(|()| CookieSecret::from_bytes(random.bytes()));
    let session = random.word() as u8;
    StandIn::new(profile, session, CONNECTIONS_MAX, CookieMac::tag_once, secrets, clock_ns(now_ns))
}

/// A server sees each worker's socket by its port.
fn guest_address(worker: usize, source: &LocalIp) -> Endpoint {
    Endpoint::v6(*source.ip_bytes(), 0, FIRST_LINK_PORT + worker as u16)
}

fn guest_of(address: Endpoint) -> (usize, LocalIp) {
    (usize::from(address.port() - FIRST_LINK_PORT), LocalIp::v6(*address.ip_bytes(), 0))
}

/// A server's clock is no gateway's.
const fn clock_ns(now_ns: u64) -> u64 {
    now_ns + 3_600_000_000_000
}

const CONNECTIONS_MAX: usize = 2000;
const FIRST_LINK_PORT: u16 = 6000;
