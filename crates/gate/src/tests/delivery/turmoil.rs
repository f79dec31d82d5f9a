//! Players behind networks that lose, repeat and delay, a game process that does not always read,
//! and gates that are handed over: every reliable message once, in order and as it was, in both
//! directions, and every report right, also of those whose sessions the game process closes after
//! delivery in the middle of it.
//!
//! `RINGGATE_DELIVERY_SEEDS=500` runs more seeds, `RINGGATE_DELIVERY_SEED=17` only that one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::env;

use super::player::{delivering, long_message};
use crate::tests::clients::{Library, Player as Raw};
use crate::tests::games::{Game, Heard};
use crate::tests::rig::{Rig, home};
use ringgate_batch::SendFailure;
use ringgate_core::delivery::{Channel, End, Options};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::Client;
use ringgate_link::bundle::{self, CloseAfter, CloseReason, LINGER_MS_MAX, SessionId};

/// How many seeds there are by default.
const SEEDS: u64 = 6;

const PLAYERS: u16 = 3;
const MS: u64 = 1_000_000;

#[test]
fn no_turmoil_breaks_a_promise() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("RINGGATE_DELIVERY_SEED") {
        Some(one) => one..one + 1,
        None => 0..number("RINGGATE_DELIVERY_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        World::new(seed).run();
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A player, what is on its way to it and from it, and what it waits for.
struct Gamer {
    raw: Raw<Client>,
    end: End,
    session: SessionId,
    /// By when they arrive; to the gate, and from it.
    up: BTreeMap<(u64, u64), Vec<u8>>,
    down: BTreeMap<(u64, u64), Vec<u8>>,
    /// Reliable messages that have not arrived yet, by channel, in order.
    to_game: HashMap<u8, VecDeque<Vec<u8>>>,
    to_player: HashMap<u8, VecDeque<Vec<u8>>>,
    /// Messages of the game process that are not reported yet: reliable ones, and of the others
    /// whether they have arrived.
    reliable: HashSet<u64>,
    unreported: HashMap<u64, bool>,
    is_full: bool,
    /// What had not arrived of what was sent before it was closed, and whether it was told why.
    lingered: Option<(u32, bool)>,
    /// Its library takes a farewell.
    takes: bool,
    is_over: bool,
}

struct World {
    rig: Rig,
    game: Game,
    gamers: Vec<Gamer>,
    random: Random,
    loss_percent: u64,
    lag_ms: u64,
    next_token: u64,
    serial: u64,
    is_closing: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut rig = Rig::new(delivering());
        let game = Game::join(&mut rig, "arena");
        let gamer = |n| {
            let raw = Raw::connected(&mut rig, home(n), n.into());
            let options = Options { takes_farewell: n > 1, ..Options::default() };
            let end = End::new(&options, rig.now.mono_ns);
            let session = rig.session_at(home(n));
            Gamer {
                raw,
                end,
                session,
                up: BTreeMap::new(),
                down: BTreeMap::new(),
                to_game: HashMap::new(),
                to_player: HashMap::new(),
                reliable: HashSet::new(),
                unreported: HashMap::new(),
                is_full: false,
                lingered: None,
                takes: n > 1,
                is_over: false,
            }
        };
        let gamers = (1..=PLAYERS).map(gamer).collect();
        game.hear(&mut rig);
        let loss_percent = [0, 5, 20, 40][random.below(4) as usize];
        let lag_ms = 1 + random.below(80);
        Self {
            rig,
            game,
            gamers,
            random,
            loss_percent,
            lag_ms,
            next_token: 1,
            serial: 0,
            is_closing: false,
        }
    }

    fn run(mut self) {
        for _ in 0..300 {
            if self.random.percent(10) {
                self.say_something();
            }
            if self.random.percent(3) {
                let is_full = self.rig.obstacles.is_empty();
                self.rig.obstacles.clear();
                if is_full {
                    self.rig.obstacles.push((self.game.link, SendFailure::Full));
                }
            }
            if self.random.percent(10) {
                self.rig.hand_over();
            }
            self.step();
        }
        self.rig.obstacles.clear();
        if self.random.percent(50) {
            self.close_all();
        }
        for _ in 0..20_000 {
            if self.is_settled() {
                return self.check();
            }
            self.step();
        }
        let left =
            |gamer: &Gamer| (gamer.to_game.len(), gamer.end.quality(), gamer.unreported.len());
        panic!("it stalls: {:?}", self.gamers.iter().map(left).collect::<Vec<_>>());
    }

    fn is_settled(&self) -> bool {
        let is_empty =
            |messages: &HashMap<u8, VecDeque<_>>| messages.values().all(VecDeque::is_empty);
        if self.is_closing {
            return self.gamers.iter().all(|gamer| gamer.is_over);
        }
        self.gamers.iter().all(|gamer| {
            is_empty(&gamer.to_game)
                && is_empty(&gamer.to_player)
                && gamer.reliable.is_empty()
                && gamer.unreported.is_empty()
        })
    }

    fn check(&self) {
        let drops = &self.rig.counters().drops;
        let sessions = self.gamers.iter().filter(|gamer| !gamer.is_over).count();
        assert_eq!((self.rig.sessions(), drops.of(DropReason::MessageUnknown)), (sessions, 0));
        assert_eq!(drops.of(DropReason::DeliveryFault), 0);
    }

    /// Everybody is closed after delivery, and the gate is handed over.
    fn close_all(&mut self) {
        self.is_closing = true;
        for gamer in &self.gamers {
            let (session, reason, text) = (gamer.session, CloseReason::Finished, &b"over"[..]);
            let close = CloseAfter { session, reason, linger_ms: LINGER_MS_MAX, text };
            self.game.say(&mut self.rig, |writer| writer.close_after(&close));
        }
        self.rig.hand_over();
    }

    /// Somebody sends a message.
    fn say_something(&mut self) {
        let (at, number) = (self.random.below(PLAYERS.into()) as usize, self.random.below(3) as u8);
        let len = [20, 900, 3000, 40_000][self.random.below(4) as usize];
        self.serial += 1;
        let (message, gamer) = (long_message(len, self.serial as u8), &mut self.gamers[at]);
        if self.random.percent(50) {
            if gamer.end.send(Channel::Reliable(number), &message, None).is_ok() {
                gamer.to_game.entry(number).or_default().push_back(message);
            }
            return;
        }
        let token = self.next_token;
        self.next_token += 1;
        if len < 1000 && self.random.percent(50) {
            gamer.unreported.insert(token, false);
            let message = [&token.to_le_bytes()[..], &message].concat();
            let channel = bundle::Channel::Unreliable(number);
            self.game.send(&mut self.rig, (gamer.session, channel), &message, token);
        } else if !gamer.is_full {
            gamer.reliable.insert(token);
            gamer.to_player.entry(number).or_default().push_back(message.clone());
            let channel = bundle::Channel::Reliable(number);
            self.game.send(&mut self.rig, (gamer.session, channel), &message, token);
        }
    }

    /// Three milliseconds pass.
    fn step(&mut self) {
        self.rig.jump(3);
        let now_ns = self.rig.now.mono_ns;
        for at in 0..self.gamers.len() {
            self.send_up(at);
            let gamer = &mut self.gamers[at];
            while let Some(first) = gamer.up.first_entry().filter(|it| it.key().0 <= now_ns) {
                self.rig.push(gamer.raw.home, &first.remove());
            }
        }
        self.rig.turn();
        for at in 0..self.gamers.len() {
            for datagram in self.rig.take_for(self.gamers[at].raw.home) {
                self.delay(at, &datagram, false);
            }
            self.take_down(at);
        }
        for heard in self.game.hear(&mut self.rig) {
            self.hear(heard);
        }
    }

    fn send_up(&mut self, at: usize) {
        let (now_ns, mut packet) = (self.rig.now.mono_ns, [0; 1200]);
        let gamer = &mut self.gamers[at];
        let mut datagrams = gamer.raw.library.poll(now_ns);
        while !gamer.raw.library.is_over()
            && let Some(len) = gamer.end.poll_transmit(now_ns, &mut packet)
        {
            datagrams.push(gamer.raw.library.payload(now_ns, &packet[..len]));
        }
        for datagram in datagrams {
            self.delay(at, &datagram, true);
        }
    }

    /// A datagram goes on its way, perhaps twice, or is lost.
    fn delay(&mut self, at: usize, datagram: &[u8], is_up: bool) {
        let copies = u64::from(!self.random.percent(self.loss_percent));
        for _ in 0..copies + u64::from(copies > 0 && self.random.percent(5)) {
            self.serial += 1;
            let at_ns = self.rig.now.mono_ns + self.random.below(self.lag_ms) * MS;
            let gamer = &mut self.gamers[at];
            let way = if is_up { &mut gamer.up } else { &mut gamer.down };
            way.insert((at_ns, self.serial), datagram.to_vec());
        }
    }

    fn take_down(&mut self, at: usize) {
        let now_ns = self.rig.now.mono_ns;
        let Gamer { raw, end, down, to_player, unreported, .. } = &mut self.gamers[at];
        while let Some(first) = down.first_entry().filter(|it| it.key().0 <= now_ns) {
            let Some(payload) = raw.library.take(now_ns, &first.remove()) else { continue };
            let taken = end.handle_packet(now_ns, &payload, |channel, message| match channel {
                Channel::Reliable(number) => {
                    let expected = to_player.get_mut(&number).and_then(VecDeque::pop_front);
                    assert!(expected.as_deref() == Some(message), "reliable {number} down");
                }
                _ => {
                    let token = u64::from_le_bytes(*message.first_chunk().expect("a token"));
                    let before = unreported.insert(token, true);
                    assert_eq!(before, Some(false), "{token} comes twice, or after its report");
                }
            });
            assert!(!matches!(taken, Err(ringgate_core::delivery::Refusal::Fault(_))), "{taken:?}");
        }
    }

    fn hear(&mut self, heard: Heard) {
        let of = |session| move |gamer: &&mut Gamer| gamer.session == session;
        match heard {
            Heard::Message(session, bundle::Channel::Reliable(number), bytes) => {
                let gamer = self.gamers.iter_mut().find(of(session)).expect("a player");
                let expected = gamer.to_game.get_mut(&number).and_then(VecDeque::pop_front);
                assert!(expected == Some(bytes), "reliable {number} up");
            }
            Heard::Report(session, token, is_delivered) => {
                let gamer = self.gamers.iter_mut().find(of(session)).expect("a player");
                let is_right = if gamer.reliable.remove(&token) {
                    is_delivered
                } else {
                    gamer.unreported.remove(&token) == Some(is_delivered)
                };
                assert!(is_right, "{token}: a wrong report, or a second one");
            }
            Heard::Room(session, is_full) => {
                self.gamers.iter_mut().find(of(session)).expect("a player").is_full = is_full;
            }
            Heard::Lingered(session, undelivered_bytes, is_told) => {
                let gamer = self.gamers.iter_mut().find(of(session)).expect("a player");
                gamer.lingered = Some((undelivered_bytes, is_told));
            }
            Heard::Closed(session, reason) => {
                let gamer = self.gamers.iter_mut().find(of(session)).expect("a player");
                let (undelivered_bytes, is_told) = gamer.lingered.expect("it was said before");
                assert_eq!((reason, undelivered_bytes), (CloseReason::Finished, 0));
                assert_eq!((is_told, gamer.end.farewell().is_some()), (gamer.takes, gamer.takes));
                assert!(gamer.to_player.values().all(VecDeque::is_empty), "something was lost");
                assert!(gamer.reliable.is_empty() && gamer.unreported.is_empty());
                gamer.is_over = true;
            }
            heard => panic!("{heard:?}"),
        }
    }
}
