//! A player and a game process who speak in messages, with the player's other end at the agent:
//! gateways die, give the session away and take it, the agent goes on in another process, and each
//! reliable message arrives once and in order, both ways.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringgate_core::carry::{Maps, Reader, Writer as Carrier};
use ringgate_core::delivery::{self, End, Options};
use ringgate_link::bundle::{
    AgentDelivery, ArbiterReply, ClusterClaim, Clustered, FromArbiter, Standing,
};

use super::*;
use crate::protocol::arbitration::Arbitration;
use crate::protocol::tests::Random;

const ID: [u8; 16] = [7; 16];
const MS: u64 = 1_000_000;
const BEGINS: AgentDelivery = AgentDelivery { keep_alive_ms: 100, begins: true };
const GOES_ON: AgentDelivery = AgentDelivery { keep_alive_ms: 100, begins: false };

/// What the agent has done, and to whom.
enum Done {
    Game(Vec<u8>),
    HungUp(usize),
    Gateway(usize, Vec<u8>),
}

enum Parcel {
    ForGame(Game, u8, Vec<u8>),
    FromGame(u16, Vec<u8>),
    HomeLost(u16),
    Fenced(u16, Option<SessionId>, Vec<u8>),
}

impl Parcel {
    fn of(passed: Passed<'_>) -> Self {
        match passed {
            Passed::ForGame(game, turn, it) => Self::ForGame(game, turn, it.bytes().to_vec()),
            Passed::FromGame(link, it) => Self::FromGame(link, it.bytes().to_vec()),
            Passed::HomeLost(link) => Self::HomeLost(link),
            Passed::Fenced(link, of, it) => Self::Fenced(link, of, it.bytes().to_vec()),
        }
    }

    fn passed(&self) -> Passed<'_> {
        match self {
            Self::ForGame(game, turn, it) => Passed::ForGame(*game, *turn, frame(it)),
            Self::FromGame(link, it) => Passed::FromGame(*link, frame(it)),
            Self::HomeLost(link) => Passed::HomeLost(*link),
            Self::Fenced(link, of, it) => Passed::Fenced(*link, *of, frame(it)),
        }
    }
}

/// Two gateways, an agent with a local worker for each, a game process and a player.
struct World {
    now_ns: u64,
    arbitration: Arc<Arbitration>,
    relays: [Relay; 2],
    games: [Game; 2],
    links: [u16; 2],
    is_up: [bool; 2],
    /// Which gateway has the session, and the tenure by which one has it or has had it.
    owner: Option<usize>,
    held: u32,
    term: u32,
    /// What its gateway calls it.
    calls: u64,
    number: u64,
    player: End,
    /// When something arrives: at a gateway with a number, or at the player.
    up: Vec<(u64, u64, Vec<u8>)>,
    down: Vec<(u64, Vec<u8>)>,
    heard: BTreeMap<u8, Vec<Vec<u8>>>,
    /// What has come half to the game process.
    assembly: Assembly,
    /// What is to come of a message of another player, whose messages the first gateway delivers.
    parts_left: usize,
    got: BTreeMap<u8, Vec<Vec<u8>>>,
    reports: Vec<(u64, bool)>,
    others: Vec<String>,
    random: Random,
    lost_percent: u64,
    is_deaf: bool,
    is_full: bool,
}

fn names() -> Vec<String> {
    vec!["arena-1".to_owned(), "arena-2".to_owned()]
}

/// By which the game process knows it.
fn home() -> SessionId {
    SessionId::from_u64(1 << 56 | 1).expect("it is not 0")
}

impl World {
    fn new(seed: u64, lost_percent: u64) -> Self {
        let arbitration = Arc::<Arbitration>::default();
        let mut relays = [1, 2].map(|worker| Relay::new(worker, 3, 77, names()));
        let both = relays.each_mut().map(|relay| {
            relay.arbitrate_with(Arc::clone(&arbitration));
            let_in(relay)
        });
        let mut world = Self {
            now_ns: 0,
            arbitration,
            relays,
            games: both.map(|it| it.0),
            links: both.map(|it| it.1),
            is_up: [true; 2],
            owner: None,
            held: 0,
            term: 1,
            calls: 0,
            number: 0,
            player: End::new(&Options { takes_farewell: true, ..Options::default() }, 0),
            up: Vec::new(),
            down: Vec::new(),
            heard: BTreeMap::new(),
            assembly: Assembly::new(),
            parts_left: 0,
            got: BTreeMap::new(),
            reports: Vec::new(),
            others: Vec::new(),
            random: Random(seed),
            lost_percent,
            is_deaf: false,
            is_full: false,
        };
        world.announce(0, BEGINS);
        world
    }

    fn there(&self) -> SessionId {
        SessionId::from_u64((THERE as u64) << 56 | self.calls).expect("it is not 0")
    }

    fn tenure(&self, at: usize) -> u32 {
        self.term << 16 | (11 + at as u32)
    }

    fn with(&mut self, at: usize, with: impl FnOnce(&mut Relay, &mut dyn FnMut(Action<'_>))) {
        let (mut done, mut passed) = (Vec::new(), VecDeque::new());
        let mut note = |at: usize, act: Action<'_>, passed: &mut VecDeque<(usize, Parcel)>| {
            done.push(match act {
                Action::Pass(worker, it) => return passed.push_back((worker - 1, Parcel::of(it))),
                Action::Deliver(_, it) | Action::Forget(_, it) => Done::Game(it.bytes().to_vec()),
                Action::HangUp(_) => Done::HungUp(at),
                Action::Tell(_, it) | Action::Push(_, it) => Done::Gateway(at, it.bytes().to_vec()),
                Action::End(_) | Action::NotHeld(_) => return,
            });
        };
        self.relays[at].set_now(self.now_ns);
        with(&mut self.relays[at], &mut |act| note(at, act, &mut passed));
        while let Some((at, parcel)) = passed.pop_front() {
            let mut more = VecDeque::new();
            self.relays[at].set_now(self.now_ns);
            self.relays[at].handle_passed(&parcel.passed(), &mut |act| note(at, act, &mut more));
            passed.extend(more);
        }
        for it in done {
            match it {
                Done::Game(record) => self.game_hears(&record),
                Done::Gateway(at, record) => self.gateway_hears(at, &record),
                Done::HungUp(at) => self.is_up[at] = false,
            }
        }
    }

    fn game_hears(&mut self, record: &[u8]) {
        match ToGame::decode(frame(record)).expect("readable") {
            ToGame::Message(part) => {
                let assembly = &mut self.assembly;
                let is_passed_by = assembly.is_passed_by(&part);
                if !is_passed_by && !assembly.take(&part).expect("no other comes in between") {
                    return;
                }
                let whole = if is_passed_by { part.bytes } else { assembly.message() };
                match part.channel {
                    Channel::Reliable(channel) if part.session == home() => {
                        self.heard.entry(channel).or_default().push(whole.to_vec());
                    }
                    channel => self.others.push(format!("{channel:?}")),
                }
            }
            ToGame::Report { token, is_delivered, .. } => self.reports.push((token, is_delivered)),
            ToGame::Closed { session, reason } => {
                self.assembly.forget(session);
                self.others.push(format!("closed: {reason}"));
            }
            ToGame::Lingered { undelivered_bytes, is_told, .. } => {
                self.others.push(format!("lingered: {undelivered_bytes}, {is_told}"));
            }
            ToGame::Room { is_full, .. } => self.is_full = is_full,
            ToGame::Quality { quality, .. } => {
                self.others.push(format!("waits: {}", quality.waiting_bytes > 0));
            }
            ToGame::Payload { .. } => panic!("it gets messages"),
            _ => {}
        }
    }

    fn gateway_hears(&mut self, at: usize, record: &[u8]) {
        let record = frame(record);
        if let Some(FromArbiter::Standing(Standing { reply, .. })) = FromArbiter::decode(record) {
            match reply {
                ArbiterReply::Granted(_) => self.others.push("granted".to_owned()),
                ArbiterReply::Ended => self.others.push("ended".to_owned()),
                _ => {}
            }
            return;
        }
        let is_owner = self.owner == Some(at) && self.is_up[at];
        match ToGateway::decode(record) {
            Ok(ToGateway::Payload { session, bytes }) if is_owner => {
                assert_eq!(session, self.there());
                if !self.random.chance(self.lost_percent) {
                    let at_ns = self.now_ns + MS * (5 + self.random.below(15));
                    self.down.push((at_ns, bytes.to_vec()));
                }
            }
            Ok(ToGateway::Close { session, reason }) if is_owner => {
                assert_eq!(session, self.there());
                self.others.push(format!("asked to close: {reason}"));
            }
            _ => {}
        }
    }

    fn says(&mut self, at: usize, write: impl Fn(&mut Writer<'_>) -> bool) {
        let (bundle, link) = (bundle(write), self.links[at]);
        self.with(at, |relay, act| {
            for frame in Frames::new(&bundle).map(|it| it.expect("own")) {
                relay.handle_record(link, frame, &mut *act).expect("it is no break");
            }
        });
    }

    /// The first gateway says the next of five parts of a message of another player.
    fn says_part(&mut self) {
        let opened = SessionId::new(THERE, 99_999);
        let left = self.parts_left;
        if left == 0 {
            self.says(0, |writer| writer.opened(&with_token(opened, &[0; USER_DATA_BYTES])));
        }
        self.parts_left = if left == 0 { 4 } else { left - 1 };
        let part = MessagePart {
            session: opened,
            channel: Channel::Reliable(0),
            is_first: left == 0,
            is_last: left == 1,
            token: 0,
            bytes: &[7; 9000],
        };
        self.says(0, |writer| writer.message(&part));
    }

    fn plays(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) {
        let (bundle, game) = (bundle(write), self.games[0]);
        self.with(0, |relay, act| relay.handle_bundle(game, &bundle, act));
    }

    /// The gateway has the session.
    fn announce(&mut self, at: usize, delivery: AgentDelivery) {
        self.calls += 1;
        (self.owner, self.held) = (Some(at), self.tenure(at));
        let it = Clustered {
            session: self.there(),
            id: ID,
            tenure: self.tenure(at),
            token_until_s: 1000,
            timeout_ms: 10_000,
            delivery: Some(delivery),
        };
        let (user_data, session) = ([0; USER_DATA_BYTES], self.there());
        self.says(at, |writer| {
            writer.clustered(&it) && writer.opened(&with_token(session, &user_data))
        });
    }

    /// The gateway of the session dies: what is on its way by it is lost.
    fn die(&mut self) {
        let Some(at) = self.owner.take() else { return };
        self.is_up[at] = false;
        self.parts_left *= at;
        self.with(at, |relay, act| relay.handle_lane_lost(act));
        self.up.retain(|_| false);
    }

    /// A gateway is there again.
    fn rise(&mut self, at: usize) {
        if !self.relays[at].has(self.games[at]) {
            self.games[at] = self.relays[at].connect().expect("there is room");
            let (hello, game) = (bundle(hello("arena-1")), self.games[at]);
            self.with(at, |relay, act| relay.handle_bundle(game, &hello, act));
        }
        self.with(at, |relay, act| relay.handle_lane(LANE, act));
        let taken = self.relays[at].places[self.games[at].place()].taken.as_ref();
        self.links[at] = taken.and_then(|taken| taken.link).expect("it was introduced");
        self.is_up[at] = true;
    }

    fn rise_all(&mut self) {
        for at in [0, 1] {
            if !self.is_up[at] {
                self.rise(at);
            }
        }
    }

    /// A gateway goes on with the session, which its owner has lost or gives away.
    fn take_over(&mut self, at: usize, is_offered: bool) {
        let (giver, over) = (self.owner, self.held);
        self.term += 1;
        let claim =
            ClusterClaim { id: ID, tenure: self.tenure(at), over, timeout_ms: 10_000, is_offered };
        self.says(at, |writer| writer.claim(&claim));
        assert_eq!(self.others.pop().as_deref(), Some("granted"));
        if let Some(giver) = giver.filter(|_| is_offered) {
            self.says(giver, |writer| writer.given(&ID, over));
        }
        self.announce(at, GOES_ON);
    }

    /// The agent goes on in another process.
    fn upgrade(&mut self) {
        let arbitration = written(|out| self.arbitration.write(out));
        let relays = self.relays.each_ref().map(|relay| {
            written(|out| {
                relay.write(out);
                relay.write_clusters(out);
                relay.write_ends(out);
            })
        });
        let maps = Maps::default();
        let mut from = Reader::new(&arbitration, &maps);
        self.arbitration = Arc::new(Arbitration::read(&mut from).expect("own"));
        self.relays = relays.map(|bytes| {
            let mut from = Reader::new(&bytes, &maps);
            let mut relay = Relay::read(&mut from, names()).expect("own");
            relay.read_clusters(&mut from).expect("own");
            relay.read_ends(&mut from).expect("own");
            from.end().expect("all of it was read");
            relay.arbitrate_with(Arc::clone(&self.arbitration));
            relay
        });
    }

    /// A millisecond passes.
    fn step(&mut self) {
        self.now_ns += MS;
        let (now_ns, mut packet) = (self.now_ns, [0; 1200]);
        while let Some(len) = self.player.poll_transmit(now_ns, &mut packet) {
            self.number += 1;
            for _ in 0..=u8::from(self.random.chance(5)) {
                if !self.random.chance(self.lost_percent) {
                    let at_ns = now_ns + MS * (5 + self.random.below(15));
                    self.up.push((at_ns, self.number, packet[..len].to_vec()));
                }
            }
        }
        for (_, number, packet) in take_due(&mut self.up, |it| it.0 <= now_ns) {
            if let Some(at) = self.owner {
                let there = self.there();
                self.says(at, |writer| writer.numbered(there, number, &packet));
            }
        }
        for at in 0..2 {
            self.with(at, |relay, act| {
                if relay.ends_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                    relay.touch_due_ends();
                    while relay.look_after_next(&mut *act).is_some() {}
                }
            });
        }
        for (_, packet) in take_due(&mut self.down, |it| it.0 <= now_ns) {
            let got = &mut self.got;
            let taken = self.player.handle_packet(now_ns, &packet, |channel, message| {
                if let delivery::Channel::Reliable(channel) = channel {
                    got.entry(channel).or_default().push(message.to_vec());
                }
            });
            assert!(!matches!(taken, Err(delivery::Refusal::Fault(_))), "{taken:?}");
        }
    }

    fn pass(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    fn send(&mut self, channel: u8, token: u64, message: &[u8]) {
        let channel = Channel::Reliable(channel);
        for part in MessagePart::of(home(), channel, token, message) {
            self.plays(|writer| writer.message(&part));
        }
    }

    /// That no end has been closed for a fault.
    fn has_no_fault(&self) {
        let delivered = self.relays.each_ref().map(Relay::delivered);
        assert!(delivered.iter().all(|it| it.ended().all(|(_, count)| count == 0)));
        assert_eq!(self.player.fault(), None);
    }
}

fn written(write: impl FnOnce(&mut Carrier<'_>)) -> Vec<u8> {
    let mut memory = vec![0; 8 << 20];
    let mut out = Carrier::new(&mut memory);
    write(&mut out);
    let len = out.len();
    memory.truncate(len);
    memory
}

fn take_due<T>(of: &mut Vec<T>, is_due: impl Fn(&T) -> bool) -> Vec<T> {
    of.extract_if(.., |it| is_due(it)).collect()
}

fn message(random: &mut Random, serial: u64) -> Vec<u8> {
    let len = match random.below(20) {
        0 => 40_000,
        1..4 => 3000,
        _ => 8 + random.below(300),
    };
    let mut bytes = serial.to_le_bytes().to_vec();
    bytes.resize(len as usize, serial as u8);
    bytes
}

/// Plays one seed: what was said on each channel, both ways, is heard once and in order.
fn play(seed: u64) {
    let lost_percent = [0, 2, 10, 25][seed as usize % 4];
    let mut world = World::new(seed, lost_percent);
    let [mut said, mut told]: [BTreeMap<u8, Vec<Vec<u8>>>; 2] = Default::default();
    let (mut silent_ms, mut serial) = (0, 0);
    for _ in 0..6000 {
        world.step();
        let mut random = world.random.clone();
        if random.chance(4) && world.player.waiting_bytes() < 100_000 {
            serial += 1;
            let (channel, message) = (random.below(3) as u8, message(&mut random, serial));
            let sent = world.player.send(delivery::Channel::Reliable(channel), &message, None);
            assert_eq!(sent, Ok(()));
            said.entry(channel).or_default().push(message);
        }
        if random.chance(4) && !world.is_full {
            serial += 1;
            let (channel, message) = (random.below(3) as u8, message(&mut random, serial));
            world.send(channel, serial, &message);
            told.entry(channel).or_default().push(message);
        }
        match (world.owner, random.below(1000)) {
            (Some(at), 0..2) => {
                world.die();
                silent_ms = random.below(900);
                assert!(!world.is_up[at]);
            }
            (Some(at), 2..5) if world.is_up[1 - at] => world.take_over(1 - at, true),
            (Some(at), 5..8) if world.is_up[1 - at] => world.take_over(1 - at, false),
            (_, 8..12) => world.upgrade(),
            (_, 60..120) if world.is_up[0] => world.says_part(),
            (_, 12..16) if !world.is_deaf => {
                world.is_deaf = true;
                let game = world.games[0];
                world.relays[0].set_room(game, [false; 2]);
            }
            (_, 16..60) if world.is_deaf => {
                world.is_deaf = false;
                let game = world.games[0];
                world.relays[0].set_room(game, [true; 2]);
            }
            (None, _) if silent_ms > 0 => silent_ms -= 1,
            (None, _) => {
                world.rise_all();
                world.take_over(random.below(2) as usize, false);
            }
            _ => {}
        }
        world.random = random;
    }
    if world.owner.is_none() {
        world.rise_all();
        world.take_over(0, false);
    }
    while world.parts_left > 0 {
        world.says_part();
    }
    let game = world.games[0];
    world.relays[0].set_room(game, [true; 2]);
    world.lost_percent = 0;
    for _ in 0..40 {
        if world.heard == said && world.got == told {
            break;
        }
        world.pass(500);
    }
    world.has_no_fault();
    assert!(world.heard == said, "seed {seed}: what the player has said");
    assert!(world.got == told, "seed {seed}: what it was told");
    world.pass(2000);
    let tokens: usize = told.values().map(Vec::len).sum();
    world.reports.sort_unstable();
    world.reports.dedup();
    assert_eq!(world.reports.len(), tokens, "seed {seed}");
    assert!(world.reports.iter().all(|(_, is_delivered)| *is_delivered));
}

#[test]
fn what_is_said_in_messages_arrives_once_and_in_order_whatever_gateways_do() {
    let wished = std::env::var("RINGGATE_DELIVERY_SEEDS").ok().and_then(|it| it.parse().ok());
    (0..wished.unwrap_or(24)).for_each(play);
}

/// A session in which the player has been heard.
fn talking() -> World {
    let mut world = World::new(1, 0);
    world.says(0, |writer| writer.there(SessionId::from_u64(1).expect("it is not 0")));
    world
}

#[test]
fn nothing_is_sent_to_a_player_before_it_is_there() {
    let mut world = World::new(1, 100);
    world.send(0, 5, b"map");
    world.pass(300);
    world.lost_percent = 0;
    assert!(world.got.is_empty() && world.down.is_empty());
    let there = world.there();
    world.says(0, |writer| writer.there(there));
    world.pass(100);
    assert_eq!((world.got[&0].len(), &world.reports[..]), (1, &[(5, true)][..]));
    // It says that it is there for as long as its gateway does nothing else.
    let before = world.relays[0].delivered().traffic.packets_sent;
    world.pass(1000);
    let sent = world.relays[0].delivered().traffic.packets_sent - before;
    assert!((9..=13).contains(&sent), "{sent}");
    // One whose first word is a payload needs no other.
    let mut other = World::new(1, 0);
    other.send(0, 0, b"map");
    assert_eq!(other.player.send(delivery::Channel::Reliable(9), b"hi", None), Ok(()));
    other.pass(100);
    assert_eq!((other.got[&0].len(), other.heard[&9].len()), (1, 1));
}

#[test]
fn a_session_that_has_begun_elsewhere_is_not_gone_on_with_where_nothing_is_known_of_it() {
    let mut world = World::new(1, 0);
    // The game process comes anew.
    let game = world.games[0];
    world.with(0, |relay, act| relay.disconnect(game, act));
    assert!(!world.relays[0].has_ends());
    assert_eq!(world.others, ["ended"], "its gateway hears so at once");
    world.rise(0);
    world.announce(0, GOES_ON);
    assert_eq!(world.others, ["ended"; 2]);
    assert!(!world.relays[0].has_ends() && world.arbitration.counts()[0] == 0);
}

#[test]
fn a_session_is_closed_when_everything_has_arrived() {
    let mut world = talking();
    world.send(0, 0, &vec![1; 30_000]);
    let close = CloseAfter {
        session: home(),
        reason: CloseReason::Finished,
        linger_ms: 5000,
        text: b"bye",
    };
    world.plays(|writer| writer.close_after(&close));
    world.die();
    world.pass(400);
    world.rise_all();
    world.take_over(1, false);
    world.pass(3000);
    assert_eq!(world.got[&0], [vec![1; 30_000]]);
    assert_eq!(world.player.farewell(), Some((128, &b"bye"[..])));
    assert_eq!(world.others.first().map(String::as_str), Some("asked to close: the game is over"));
    let there = world.there();
    world.says(1, |writer| writer.closed(there, CloseReason::Finished));
    let ended = ["lingered: 0, true", "closed: the game is over"];
    assert_eq!(world.others[world.others.len() - 2..], ended);
    assert!(!world.relays[0].has_ends());
    world.has_no_fault();
}

/// What can be known of it, where its gateway is gone.
#[test]
fn a_session_that_nobody_goes_on_with_ends_with_reports() {
    let mut world = talking();
    world.die();
    world.send(0, 5, b"map");
    let close =
        CloseAfter { session: home(), reason: CloseReason::Kicked, linger_ms: 100, text: b"" };
    world.plays(|writer| writer.close_after(&close));
    world.pass(200);
    assert_eq!(world.reports, [(5, false)]);
    assert_eq!(world.others, ["lingered: 3, false", "closed: kicked"]);
    let expired = world.relays[0].delivered().linger_expired;
    assert!(expired == 1 && !world.relays[0].has_ends());
}

#[test]
fn an_end_that_was_not_passed_on_is_made_up_for() {
    // While its gateway is at another worker, which has passed it on in vain.
    let ended = || {
        let mut world = talking();
        world.take_over(1, false);
        world.arbitration.end(ID);
        world
    };
    let mut world = ended();
    world.pass(900);
    assert_eq!(world.others, ["ended"], "its gateway hears so");
    world.pass(300);
    assert_eq!(world.others, ["ended", "closed: the player timed out"]);
    // While the agent went on in another process.
    let mut world = ended();
    world.upgrade();
    world.with(0, |relay, act| relay.catch_up(act));
    assert_eq!(world.others, ["closed: the player timed out"]);
    assert!(!world.relays[0].has_homes() && !world.relays[0].has_ends());
    // It is said once.
    let (game, turn) = (world.games[0], world.relays[0].places[0].turn);
    let closed = bundle(|writer| writer.closed(home(), CloseReason::PlayerLeft));
    let passed = Passed::ForGame(game, turn, frame(&closed));
    world.with(0, |relay, act| relay.handle_passed(&passed, act));
    assert_eq!(world.others.len(), 1);
}

#[test]
fn a_player_who_breaks_a_rule_of_the_layer_is_closed_for_that() {
    let mut world = talking();
    let there = world.there();
    world.says(0, |writer| writer.numbered(there, 1, b"no packet at all"));
    world.pass(1);
    assert_eq!(world.others, ["asked to close: refused by the game"]);
    world.pass(1100);
    assert_eq!(world.others.len(), 2, "and again, while it is not said to be over");
    world.says(0, |writer| writer.closed(there, CloseReason::Refused));
    assert_eq!(world.others[2], "closed: the player broke the delivery layer");
    let ended = world.relays[0].delivered();
    assert_eq!(ended.ended().map(|(_, count)| count).sum::<u64>(), 1);
}

#[test]
fn a_player_for_whom_too_much_waits_is_closed_for_that() {
    let mut world = World::new(1, 0);
    for _ in 0..3 {
        world.send(0, 0, &vec![1; 60_000]);
    }
    world.pass(1);
    assert!(world.is_full);
    for _ in 0..2 {
        world.send(0, 0, &vec![1; 60_000]);
    }
    assert_eq!(world.others, ["asked to close: refused by the game"]);
    world.plays(|writer| writer.payload(home(), b"state") && writer.ask_quality(home()));
    assert_eq!(world.others[1], "waits: true");
    let there = world.there();
    world.says(0, |writer| writer.closed(there, CloseReason::Refused));
    assert_eq!(world.others[2], "closed: more was sent than the player takes");
    assert_eq!(world.relays[0].delivered().overflow, 1);
}

#[test]
fn a_multicast_reaches_those_too_whose_messages_are_delivered_here() {
    let mut world = talking();
    world.plays(|writer| writer.multicast(&[home()], b"state"));
    let packets = world.down.len();
    world.pass(1);
    assert!(world.down.len() > packets);
    world.plays(|writer| writer.payload(home(), &[1; 1200]));
    assert_eq!(world.relays[0].delivered().too_long, 1);
}

#[test]
fn a_game_process_says_nothing_for_another_ones_players() {
    let mut world = talking();
    let other = world.relays[0].connect().expect("there is room");
    let close =
        CloseAfter { session: home(), reason: CloseReason::Kicked, linger_ms: 0, text: b"" };
    let part = MessagePart::of(home(), Channel::Reliable(0), 5, b"map").next().expect("one");
    let said = bundle(|writer| {
        writer.hello(&Hello::new(9, "arena-2"))
            && writer.close_after(&close)
            && writer.close(home(), CloseReason::Kicked)
            && writer.ask_quality(home())
            && writer.message(&part)
            && writer.payload(home(), b"state")
            && writer.multicast(&[home()], b"state")
    });
    world.with(0, |relay, act| relay.handle_bundle(other, &said, act));
    world.pass(100);
    // Nor for one whose gateway is another one by now, or is gone.
    world.take_over(1, false);
    let closes = bundle(|writer| writer.close(home(), CloseReason::Kicked));
    world.with(0, |relay, act| relay.handle_bundle(other, &closes, act));
    world.die();
    world.with(0, |relay, act| relay.handle_bundle(other, &closes, act));
    assert!(world.others.is_empty() && world.got.is_empty() && world.reports.is_empty());
    assert_eq!(world.relays[0].dropped().session_unknown, 3);
    assert_eq!(world.arbitration.counts()[0], 1);
    // It is still its own process's.
    world.rise_all();
    world.take_over(0, false);
    world.send(0, 6, b"map");
    world.pass(100);
    assert_eq!((world.got[&0].len(), &world.reports[..]), (1, &[(6, true)][..]));
}

/// As a game process may that closes its players, and ends.
#[test]
fn what_was_sent_arrives_though_the_game_process_has_gone() {
    let mut world = talking();
    world.send(0, 0, &vec![1; 30_000]);
    let (session, reason, linger_ms) = (home(), CloseReason::GameShutdown, 5000);
    let close = CloseAfter { session, reason, linger_ms, text: b"bye" };
    world.plays(|writer| writer.close_after(&close));
    let game = world.games[0];
    // That it did not read at the end is of no matter.
    world.relays[0].set_room(game, [false; 2]);
    world.with(0, |relay, act| relay.disconnect(game, act));
    assert!(world.relays[0].has(game) && world.relays[0].welcome().next().is_none());
    assert!(world.relays[0].gone().eq([("arena-1", 1)]), "somebody plays still");
    // The next process of that name is welcome, and its gateway hears of it once it knows no other.
    let next = world.relays[0].connect().expect("there is room");
    let hello = bundle(hello("arena-1"));
    world.with(0, |relay, act| relay.handle_bundle(next, &hello, act));
    let link = |world: &World| {
        let taken = world.relays[0].places[next.place()].taken.as_ref();
        taken.expect("it is welcome").link
    };
    assert_eq!(link(&world), None);
    world.pass(3000);
    assert_eq!(link(&world), None);
    assert_eq!(world.got[&0], [vec![1; 30_000]]);
    assert_eq!(world.player.farewell(), Some((131, &b"bye"[..])));
    let there = world.there();
    world.says(0, |writer| writer.closed(there, reason));
    assert!(!world.relays[0].has(game) && !world.relays[0].has_ends());
    assert!(link(&world).is_some());
    // One that has closed nobody so leaves nobody.
    let mut other = talking();
    let game = other.games[0];
    other.with(0, |relay, act| relay.disconnect(game, act));
    assert!(!other.relays[0].has(game) && !other.relays[0].has_ends());
    // So ends one that another gateway has by now.
    let mut moved = talking();
    moved.take_over(1, false);
    moved.plays(|writer| writer.close_after(&close));
    let game = moved.games[0];
    moved.with(0, |relay, act| relay.disconnect(game, act));
    assert_eq!((&moved.others[..], moved.relays[0].has(game)), (&["ended".to_owned()][..], false));
    // Nor does one whose gateway is gone.
    let mut lost = talking();
    lost.plays(|writer| writer.close_after(&close));
    let game = lost.games[0];
    lost.with(0, |relay, act| relay.disconnect(game, act));
    lost.die();
    assert!(!lost.relays[0].has(game) && !lost.relays[0].has_ends());
}

/// A player of a listener with `moves` may play at the same process, for example.
#[test]
fn no_message_comes_between_parts_of_one_that_the_gateway_delivers() {
    let mut world = talking();
    world.says_part();
    for _ in 0..3 {
        world.says_part();
        let sent = world.player.send(delivery::Channel::Reliable(1), b"hi", None);
        assert_eq!(sent, Ok(()));
        world.pass(300);
        world.upgrade();
    }
    assert!(world.heard.is_empty() && world.relays[0].delivered().deferred > 0);
    world.says_part();
    assert_eq!(world.others, ["Reliable(0)"]);
    world.pass(2000);
    assert_eq!(world.heard[&1].len(), 3);
    world.has_no_fault();
    // Nothing comes behind it where its gateway goes.
    world.says_part();
    world.die();
    world.rise_all();
    world.take_over(1, false);
    assert_eq!(world.player.send(delivery::Channel::Reliable(1), b"hi", None), Ok(()));
    world.pass(2000);
    assert_eq!(world.heard[&1].len(), 4);
    assert!(
        world.relays[0].has(world.games[0])
            && world.others[1..] == ["closed: the player timed out"]
    );
}

#[test]
fn players_of_messages_that_the_gateway_delivers_are_none_who_wait_for_another_process() {
    for (delivers, stays) in [(true, true), (false, false)] {
        let mut world = talking();
        let other = SessionId::new(THERE, 99_999);
        let user_data = [0; USER_DATA_BYTES];
        let opened = Opened { delivers, ..with_token(other, &user_data) };
        world.says(0, |writer| writer.opened(&opened));
        let (session, reason, linger_ms) = (home(), CloseReason::GameShutdown, 5000);
        let close = CloseAfter { session, reason, linger_ms, text: b"bye" };
        world.plays(|writer| writer.close_after(&close));
        let game = world.games[0];
        let mut closed = Vec::new();
        world.relays[0].disconnect(game, &mut |act| {
            if let Action::Tell(_, it) = act
                && let Ok(ToGateway::Close { session, .. }) = ToGateway::decode(it)
            {
                closed.push(session);
            }
        });
        assert_eq!(world.relays[0].has(game), stays);
        assert_eq!(closed, if stays { vec![other] } else { vec![] }, "it was not closed");
    }
}

#[test]
fn a_gateway_of_an_earlier_release_leaves_no_mark_on_a_link_that_outlives_it() {
    let mut world = talking();
    let welcome = Welcome { version: VERSION_FAREWELL, worker: 0, workers: 1, incarnation: 5 };
    world.says(0, |writer| writer.welcome(&welcome));
    world.upgrade();
    world.die();
    let mut offered = None;
    world.relays[0].handle_lane(LANE, &mut |act| {
        if let Action::Tell(_, it) = act
            && let Ok(ToGateway::Hello(hello)) = ToGateway::decode(it)
        {
            offered = Some(hello.version_max);
        }
    });
    assert_eq!(offered.map(u16::from), Some(VERSION_MAX));
}

/// It would take the next message for one that cuts in.
#[test]
fn an_earlier_library_is_hung_up_on_where_the_rest_of_a_message_is_lost() {
    for (version, stays) in [(VERSION_MAX, true), (VERSION_FAREWELL, false)] {
        let mut world = talking();
        let game = world.games[0];
        let taken = world.relays[0].places[game.place()].taken.as_mut().expect("it is there");
        taken.version = version;
        world.says_part();
        world.die();
        assert_eq!([world.relays[0].has(game), world.relays[0].has_ends()], [stays; 2]);
    }
}

#[test]
fn an_end_that_was_waited_for_is_not_taken_for_a_silent_one() {
    let mut world = talking();
    world.lost_percent = 100;
    world.send(0, 5, b"map");
    world.pass(100);
    world.die();
    world.pass(35_000);
    world.rise_all();
    world.take_over(1, false);
    world.lost_percent = 0;
    world.pass(5000);
    world.has_no_fault();
    assert_eq!(world.reports, [(5, true)]);
}

#[test]
fn a_successor_does_not_wait_long_for_who_acknowledges_nothing() {
    let mut world = talking();
    world.lost_percent = 100;
    world.send(0, 0, b"map");
    let (session, reason, linger_ms) = (home(), CloseReason::GameShutdown, 30_000);
    let close = CloseAfter { session, reason, linger_ms, text: b"bye" };
    world.plays(|writer| writer.close_after(&close));
    let game = world.games[0];
    world.with(0, |relay, act| relay.disconnect(game, act));
    world.pass(10_000);
    assert!(world.others.is_empty());
    let next = world.relays[0].connect().expect("there is room");
    let hello = bundle(hello("arena-1"));
    world.with(0, |relay, act| relay.handle_bundle(next, &hello, act));
    world.pass(1000);
    assert!(world.others.is_empty(), "it may still arrive");
    world.pass(2100);
    assert_eq!(world.others, ["asked to close: the game shuts down"]);
    let there = world.there();
    world.says(0, |writer| writer.closed(there, reason));
    let taken = world.relays[0].places[next.place()].taken.as_ref();
    assert!(taken.is_some_and(|taken| taken.link.is_some()));
}

/// Messages that gateways deliver wait at the agent where they cannot wait at the gateway.
#[test]
fn a_gateway_is_told_for_whom_too_much_waits() {
    let mut world = talking();
    let told = |world: &mut World| {
        let mut told = Vec::new();
        world.relays[0].tell_rooms(&mut |act| {
            if let Action::Tell(_, it) = act
                && let Some(FromArbiter::Crowded(is_crowded)) = FromArbiter::decode(it)
            {
                told.push(is_crowded);
            }
        });
        told
    };
    let game = world.games[0];
    assert_eq!(told(&mut world), [], "it takes it to have room at first");
    for (room, says) in [
        ([true; 2], vec![]),
        ([false; 2], vec![true]),
        ([false; 2], vec![]),
        ([true, false], vec![]),
        ([true; 2], vec![false]),
        ([false; 2], vec![true]),
    ] {
        world.relays[0].set_room(game, room);
        assert_eq!(told(&mut world), says);
    }
    // Neither the next process of the gateway knows, nor that of the agent what was told.
    world.says(0, |writer| writer.taken_over(2));
    assert_eq!(told(&mut world), [true]);
    world.upgrade();
    assert_eq!(told(&mut world), [false]);
    // Nor the next gateway.
    world.relays[0].set_room(game, [false; 2]);
    world.die();
    assert_eq!(told(&mut world), []);
    world.rise(0);
    assert_eq!(told(&mut world), [true]);
}
