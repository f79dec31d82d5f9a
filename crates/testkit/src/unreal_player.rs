//! A simulated player of an Unreal game: comes, talks, is moved by its NAT, leaves with or without
//! a word, and comes again.
//!
//! Its own clock runs [`HASTE`] times as fast as the world's, so that the seconds after which an
//! engine repeats itself, and the ten for which it follows no request to restart, fit into lives as
//! short as these. Nobody else goes by that clock.

use std::collections::HashSet;
use std::ops::Range;

use super::network::Faults;
use super::note::Note;
use super::plan::Habits;
use super::random::Random;
use ringgate_batch::Endpoint;
use ringgate_bots::unreal::bunch::{self, first_reliable_bunch};
use ringgate_bots::unreal::peer::Peer;
use ringgate_core::limits::{PAYLOAD_BYTES_MAX, UNREAL_BYTES_MAX};
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::bunch::{Bunch, behind_packet_info};
use ringgate_core::proto::unreal::client::{Client, Event, Profile, State};
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::Framing;

/// A player of an Unreal game.
pub struct UnrealPlayer {
    /// Its address; ports come and go.
    pub ip: Endpoint,
    /// The way between it and the gateway.
    pub path: Faults,
    /// The match it plays, or when the next one begins.
    pub game: Result<Box<UnrealMatch>, u64>,
    /// How many it has played.
    pub matches: u8,
    /// Where it was last.
    pub home: Endpoint,
}

/// One connection of a player, from the first request to the end.
pub struct UnrealMatch {
    /// Its number in [`UnrealJudge`](super::UnrealJudge).
    pub number: u64,
    /// Where the player is.
    pub home: Endpoint,
    /// When it began.
    pub since_ns: u64,
    /// Whether the player got in.
    pub was_in: bool,
    /// Whether it was moved.
    pub moved: bool,
    /// Notes sent.
    pub said: u64,
    /// Notes that came back.
    pub heard: HashSet<u64>,
    client: Client,
    peer: Option<Box<Peer>>,
    framing: Framing,
    /// When anything was last heard, and after how much silence the player gives up.
    heard_ns: u64,
    patience_ns: u64,
    leaves_ns: u64,
    leaves_silently: bool,
    talks_ns: u64,
    keeps_alive_ns: u64,
    moves_ns: u64,
}

/// What a player does next.
#[derive(Debug, PartialEq, Eq)]
pub enum UnrealMove {
    /// It is over.
    End,
    /// A NAT gives it another port.
    Port,
    /// This leaves.
    Send(Vec<u8>),
}

impl UnrealMatch {
    /// A match that begins now.
    pub fn begin(
        number: u64,
        profile: &Profile,
        home: Endpoint,
        now_ns: u64,
        patience_ns: u64,
        habits: &Habits,
        random: &mut Random,
    ) -> Self {
        let stay_ns = random.within(habits.stay_ns.clone());
        let moves = random.chance(habits.move_per_mille);
        Self {
            number,
            home,
            since_ns: now_ns,
            was_in: false,
            moved: false,
            said: 0,
            heard: HashSet::new(),
            client: Client::new(profile, HASTE * now_ns),
            peer: None,
            framing: profile.framing,
            heard_ns: now_ns,
            patience_ns,
            leaves_ns: now_ns + stay_ns,
            leaves_silently: random.chance(habits.silent_per_mille),
            talks_ns: now_ns,
            keeps_alive_ns: now_ns,
            moves_ns: if moves { now_ns + random.within(0..stay_ns) } else { u64::MAX },
        }
    }

    /// What is due now, if anything is. To be asked until it is not.
    pub fn next_move(
        &mut self,
        now_ns: u64,
        habits: &Habits,
        random: &mut Random,
    ) -> Option<UnrealMove> {
        let is_lost = now_ns >= self.heard_ns + self.patience_ns;
        if is_lost || self.client.state() == State::WrongVersion {
            return Some(UnrealMove::End);
        }
        if now_ns >= self.leaves_ns {
            return Some(self.leave());
        }
        if now_ns >= self.moves_ns {
            self.moves_ns = now_ns + random.within(habits.stay_ns.clone());
            self.moved = true;
            return Some(UnrealMove::Port);
        }
        let mut packet = [0; UNREAL_BYTES_MAX];
        let tail = Tail::draw(&random.bytes::<{ TAIL_BYTES_MAX + 1 }>());
        if let Some(len) = self.client.poll_transmit(HASTE * now_ns, &tail, &mut packet) {
            return Some(UnrealMove::Send(packet[..len].to_vec()));
        }
        if self.was_in && now_ns >= self.talks_ns {
            self.talks_ns = now_ns + random.within(habits.talk_ns.clone());
            return self.talk(now_ns, random.within(0..400) as usize);
        }
        if self.was_in && now_ns >= self.keeps_alive_ns {
            self.keeps_alive_ns = now_ns + KEEP_ALIVE_NS;
            return self.write(|_| ()).map(UnrealMove::Send);
        }
        None
    }

    /// Stays until then and says nothing more.
    pub const fn fall_silent(&mut self, until_ns: u64) {
        self.talks_ns = u64::MAX;
        self.moves_ns = u64::MAX;
        self.leaves_ns = until_ns;
    }

    /// Takes a datagram; returns what the game hears.
    pub fn take(&mut self, now_ns: u64, datagram: &[u8]) -> Option<Vec<u8>> {
        let event = self.client.handle_datagram(HASTE * now_ns, datagram).ok()?;
        self.heard_ns = now_ns;
        match event {
            Event::Connected(cookie) => {
                self.was_in = true;
                self.talks_ns = self.talks_ns.max(now_ns);
                self.peer = Some(Box::new(Peer::new(Sender::Client, &cookie)));
                None
            }
            Event::Game => {
                let (_, reader) = self.framing.read(datagram).ok()?;
                let header = Header::read(reader).ok()?;
                self.peer.as_mut()?.handle_header(&header, true, |_, _| ()).ok()?;
                said_in(header.payload())
            }
            _ => None,
        }
    }

    fn talk(&mut self, now_ns: u64, len: usize) -> Option<UnrealMove> {
        self.said += 1;
        let note = Note { life: self.number, number: self.said, client_id: self.number };
        let mut payload = [0; PAYLOAD_BYTES_MAX];
        let payload = note.write(&mut payload, len);
        self.keeps_alive_ns = now_ns + KEEP_ALIVE_NS;
        let packet = self.write(|bunches| bunch::write_data(payload, bunches));
        if packet.is_none() {
            // Too many are in flight to give this one a number.
            self.said -= 1;
        }
        packet.map(UnrealMove::Send)
    }

    /// Closes the control channel, or is just not there any more.
    fn leave(&mut self) -> UnrealMove {
        let cookie = self.client.cookie().filter(|_| !self.leaves_silently).copied();
        self.leaves_silently = true;
        let sequence = cookie.map(|cookie| first_reliable_bunch(cookie.client_sequence()));
        let goodbye =
            sequence.and_then(|sequence| self.write(|out| bunch::write_close(sequence, out)));
        goodbye.map_or(UnrealMove::End, UnrealMove::Send)
    }

    fn write(&mut self, bunches: impl FnOnce(&mut BitWriter<'_>)) -> Option<Vec<u8>> {
        let mut packet = [0; UNREAL_BYTES_MAX];
        let ids = self.client.ids();
        let len = self.peer.as_mut()?.write_bunches(&self.framing, ids, bunches, &mut packet)?;
        Some(packet[..len].to_vec())
    }
}

/// What the bits behind a packet's header say, where they say something.
pub(super) fn said_in(payload: BitReader<'_>) -> Option<Vec<u8>> {
    match Bunch::read(behind_packet_info(payload)?)? {
        Bunch::Data(mut data) => Some(std::iter::from_fn(|| data.byte()).collect()),
        Bunch::Close => None,
    }
}

/// How long a player's connection attempt may take at most in a good world: until a server has been
/// asked who it is, and some round trips.
pub(super) const GET_IN_NS: u64 = 2_000_000_000;

/// How much faster than the world's its players' clocks run.
const HASTE: u64 = 8;

const KEEP_ALIVE_NS: u64 = 200_000_000;

/// Ports that homes have.
pub(super) const PORTS: Range<u64> = 1024..65536;
