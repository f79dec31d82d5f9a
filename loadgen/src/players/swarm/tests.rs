//! The swarm on an injected clock, against a gateway of a few lines. No time passes but the tests'
//! own.

#[path = "../../../tests/all/fake_gateway.rs"]
mod fake_gateway;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ringgate_batch::{LocalIp, RxMeta, SocketId, TxTarget};
use ringgate_core::delivery::{self, Channel, End};
use ringgate_core::netcode::ServerAddresses;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::secret::Key;

use super::*;
use crate::measure::tally::Stage;
use crate::players::arrivals::Arrivals;
use crate::players::levels::{LEVELS, Told};
use crate::players::player::Wire;
use crate::players::push::{Ack, PUSH_BYTES, Push};
use crate::players::scenario::Scenario;
use crate::players::tokens::Mint;
use crate::players::tokens::service::tests::silent;
use crate::players::traffic::Shape;
use crate::players::{Delivery, Stamp, TX_SLOTS};
use fake_gateway::{FakeGateway, PROTOCOL_ID};

const MS: u64 = 1_000_000;
const GATEWAY: Endpoint = Endpoint::v4([127, 0, 0, 1], 5000);
/// One that answers nobody.
const DEAF: Endpoint = Endpoint::v4([127, 0, 0, 1], 4999);

/// Swarm, gateway, and a network between them that takes a fixed time.
struct Rig {
    swarm: Swarm,
    gateway: FakeGateway,
    tx: TxBatch,
    now_ns: u64,
    /// One way.
    lag_ns: u64,
    on_the_way: VecDeque<(u64, TxTarget, Vec<u8>)>,
    back: VecDeque<(u64, TxTarget, Vec<u8>)>,
    /// The gateway does nothing until then.
    stalled_until_ns: u64,
    sources: Vec<TxTarget>,
}

impl Rig {
    fn new(scenario: &Scenario) -> Self {
        Self::with_servers(scenario, &[5000])
    }

    /// Players who send messages.
    fn of_messages(scenario: &Scenario, delivery: Delivery) -> Self {
        let mut rig = Self::with_servers(scenario, &[5000, 5001]);
        if let Protocol::Netcode(tokens) = &rig.swarm.setup.protocol {
            rig.swarm.setup.protocol = Protocol::Messages(tokens.clone(), delivery);
        }
        rig
    }

    /// Players whose tokens name gateways at these ports of this host.
    fn with_servers(scenario: &Scenario, ports: &[u16]) -> Self {
        let servers: Vec<_> = ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let key = Key::from_bytes([3; 32]);
        let mint = Mint {
            key: key.clone(),
            protocol_id: PROTOCOL_ID,
            servers: ServerAddresses::new(&servers).expect("one or more"),
            timeout_seconds: 5,
            user_data: [0; 256],
        };
        let setup = Setup {
            run: 77,
            thread: 0,
            protocol: Protocol::Netcode(Tokens::Mint(Arc::new(mint))),
            protocol_id: PROTOCOL_ID,
            arrivals: Arrivals::Ticks,
            impair: Arc::new(scenario.impair.clone()),
            linger_ns: 500 * MS,
            keep_alive_ns: 100 * MS,
        };
        let addresses = Addresses::loopback(vec![SocketId(1), SocketId(2)], 0);
        Self {
            swarm: Swarm::new(setup, scenario.plan(0, 1), addresses, Aead::detect()),
            gateway: FakeGateway::new(key),
            tx: TxBatch::new(TX_SLOTS, 0),
            now_ns: 0,
            lag_ns: MS,
            on_the_way: VecDeque::new(),
            back: VecDeque::new(),
            stalled_until_ns: 0,
            sources: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.now_ns, unix_ns: 1_700_000_000_000_000_000 + self.now_ns }
    }

    /// Half a millisecond passes.
    fn tick(&mut self) {
        self.now_ns += MS / 2;
        self.swarm.advance(self.now());
        while {
            let more = self.swarm.transmit(self.now(), &mut self.tx);
            for entry in self.tx.entries() {
                let bytes = self.tx.bytes(entry).to_vec();
                self.sources.push(entry.target);
                self.on_the_way.push_back((self.now_ns + self.lag_ns, entry.target, bytes));
            }
            self.tx.end_flush();
            self.swarm.sent(&self.tx);
            more
        } {}
        self.let_gateway_work();
        while self.back.front().is_some_and(|(due_ns, ..)| *due_ns <= self.now_ns) {
            let (_, target, mut bytes) = self.back.pop_front().expect("just seen");
            self.hand_to_player(target, &mut bytes);
        }
    }

    fn let_gateway_work(&mut self) {
        if self.now_ns < self.stalled_until_ns {
            return;
        }
        while self.on_the_way.front().is_some_and(|(due_ns, ..)| *due_ns <= self.now_ns) {
            let (_, target, mut bytes) = self.on_the_way.pop_front().expect("just seen");
            if target.peer == Some(DEAF) {
                continue;
            }
            if let Some(answer) = self.gateway.handle(source(target), &mut bytes) {
                self.back.push_back((self.now_ns + self.lag_ns, target, answer));
            }
        }
    }

    fn hand_to_player(&mut self, target: TxTarget, bytes: &mut [u8]) {
        let from = target.peer.unwrap_or(GATEWAY);
        let mut meta = RxMeta::new(target.socket, from, 0, 0, bytes.len() as u32);
        meta.local = target.source;
        let now = self.now();
        self.swarm.receive(now, std::iter::once((&meta, bytes)));
    }

    /// The gateway says goodbye to the player who has sent last.
    fn say_goodbye(&mut self) {
        let player = *self.sources.last().expect("it sends");
        let goodbye = self.gateway.answer(source(player), PacketKind::Disconnect, &[]);
        self.gateway.forget(source(player));
        self.hand_to_player(player, &mut goodbye.expect("it is in"));
    }

    /// A game server that has known that player since then, and has heard one payload, speaks to it
    /// for the first time.
    fn push(&mut self, since: u32) {
        let player = *self.sources.last().expect("it sends");
        let (session, mut bytes) = (self.swarm.players[0].session, [0; PUSH_BYTES]);
        let ack = Ack { heard: 1, ..Ack::default() };
        Push { run: 77, session, counter: 0, sent_unix_ns: 0, since, ack }.write(&mut bytes);
        let packet = self.gateway.answer(source(player), PacketKind::Payload, &bytes);
        self.hand_to_player(player, &mut packet.expect("it is in"));
    }

    fn run_ms(&mut self, ms: u64) {
        (0..2 * ms).for_each(|_| self.tick());
    }

    /// To the end of the plan, and at most so much further.
    fn finish(&mut self) -> Tally {
        for _ in 0..200_000 {
            if self.swarm.is_finished() {
                self.run_ms(1 + 2 * self.lag_ns / MS);
                return self.swarm.take_tally(Tally::new());
            }
            self.tick();
        }
        panic!("not finished: {:?}", self.swarm.gauges());
    }
}

fn source(target: TxTarget) -> Endpoint {
    // The two sockets have two ports.
    Endpoint::v6(*target.source.ip_bytes(), 0, 40_000 + target.socket.0 as u16)
}

fn scenario(shape: Shape, sessions: u32, seconds: u64) -> Scenario {
    let (ramp, hold) = (Duration::from_secs(1), Duration::from_secs(seconds));
    Scenario::of_shape(shape, shape.traffic(), sessions, ramp, hold)
}

fn impaired(text: &str, sessions: u32, seconds: u64) -> Scenario {
    let impair = crate::players::impair::Impairments::parse(text).expect(text);
    Scenario { impair, ..scenario(Shape::Fixed, sessions, seconds) }
}

#[track_caller]
fn assert_nothing_wrong(tally: &Tally) {
    let c = |count| tally.counters.of(count);
    let wrong = [Count::ConnectFailed, Count::SessionsLost, Count::Corrupt, Count::Misdelivered];
    let none = [Count::Duplicates, Count::Stale, Count::Strangers, Count::Placeless];
    for count in wrong.into_iter().chain(none) {
        assert_eq!(c(count), 0, "{}", count.name());
    }
    assert_eq!(tally.counters.missing(), 0, "{:?}", tally.counters);
    assert_eq!(c(Count::Joins), c(Count::Connected));
    assert_eq!(c(Count::Joins), c(Count::Left));
}

#[test]
fn everyone_comes_plays_and_goes_and_every_payload_returns() {
    for shape in [Shape::Fixed, Shape::Game, Shape::Burst, Shape::Idle] {
        let mut rig = Rig::new(&scenario(shape, 50, 3));
        rig.run_ms(2000);
        assert_eq!(rig.swarm.gauges(), Gauges { playing: 50, ..Gauges::default() }, "{shape:?}");
        let tally = rig.finish();
        assert_nothing_wrong(&tally);
        assert_eq!(tally.counters.of(Count::Connected), 50);
        assert_eq!(tally.counters.of(Count::PayloadsDue), rig.gateway.payloads);
        assert_eq!((rig.gateway.goodbyes, rig.gateway.session_count()), (50, 0));
        let expected = shape.traffic().rate_hz() * 50.0 * 3.0;
        let due = tally.counters.of(Count::PayloadsDue) as f64;
        assert!(due >= expected && due <= expected * 1.4, "{shape:?}: {due} for {expected}");
        let (due, echoed) =
            rig.swarm.seconds().iter().fold((0, 0), |(d, e), s| (d + s.due, e + s.echoed));
        assert_eq!((u64::from(due), due), (rig.gateway.payloads, echoed));
    }
}

#[test]
fn the_round_trip_is_what_the_network_takes() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 20, 2));
    rig.lag_ns = 7 * MS;
    let tally = rig.finish();
    let p50 = tally.percentile_ns(Stage::RoundTrip, 50.0);
    assert!((14 * MS..16 * MS).contains(&p50), "{p50}");
    // Request, challenge, response, keep-alive: two round trips.
    let handshake = tally.percentile_ns(Stage::Handshake, 50.0);
    assert!((28 * MS..31 * MS).contains(&handshake), "{handshake}");
}

#[test]
fn a_gateway_that_stalls_shows_in_the_percentiles_as_long_as_it_stalled() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 100, 9));
    rig.run_ms(3000);
    rig.stalled_until_ns = rig.now_ns + 1000 * MS;
    let tally = rig.finish();
    assert_nothing_wrong(&tally);
    // A tenth of the run's payloads met a stall of a second, so a twentieth waited for half of it
    // or longer.
    let at = |percentile| tally.percentile_ns(Stage::RoundTrip, percentile) / MS;
    assert!(at(50.0) < 5, "{}", at(50.0));
    assert!((400..700).contains(&at(95.0)), "{}", at(95.0));
    assert!((850..1010).contains(&at(99.0)), "{}", at(99.0));
    assert!(at(100.0) >= 990, "{}", at(100.0));
    assert_eq!(tally.counters.of(Count::PayloadsLate), 0, "the generator kept its schedule");
}

#[test]
fn a_stall_is_silence_in_its_phase_and_in_no_other() {
    let mut scenario = scenario(Shape::Fixed, 100, 3);
    let hold = scenario.phases[1].clone();
    scenario.phases.extend([hold.clone(), hold]);
    let mut rig = Rig::new(&scenario);
    rig.run_ms(5000);
    rig.stalled_until_ns = rig.now_ns + 1000 * MS;
    rig.finish();
    let silences = rig.swarm.silences();
    let at = |phase: usize, percent| silences[phase].at_ms(percent);
    assert!(silences[1..].iter().all(|it| it.players() == 100), "{silences:?}");
    assert!((90..=105).contains(&at(1, 50.0)) && at(1, 100.0) <= 105, "{:?}", silences[1]);
    assert!(at(2, 0.1) >= 990 && at(2, 100.0) <= 1105, "{:?}", silences[2]);
    assert!(at(3, 100.0) <= 105, "{:?}", silences[3]);
}

#[test]
fn a_generator_that_stalls_confesses_and_skips_nothing() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 100, 9));
    rig.run_ms(3000);
    rig.now_ns += 1000 * MS;
    let tally = rig.finish();
    assert_nothing_wrong(&tally);
    assert!(tally.counters.of(Count::PayloadsDue) >= 100 * 10 * 9);
    assert!((950..1050).contains(&tally.counters.of(Count::PayloadsLate)));
    let at = |stage, percentile| tally.percentile_ns(stage, percentile) / MS;
    assert!(at(Stage::RoundTrip, 99.0) >= 850 && at(Stage::SendLate, 99.0) >= 850);
    // What left late came back quickly, but for the few payloads that were under way when the clock
    // jumped.
    assert!(at(Stage::Service, 99.0) < 10, "{}", at(Stage::Service, 99.0));
}

#[test]
fn loss_duplicates_disorder_corruption_and_misdelivery_are_told_apart() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 2, 4));
    rig.run_ms(2000);
    rig.lag_ns = 0;
    let players: Vec<_> = (0..2).map(|i| rig.swarm.addresses.target(i, 0, GATEWAY)).collect();
    let payload = |rig: &Rig, player: usize, counter| {
        let session = rig.swarm.players[player].session;
        let mut bytes = vec![0; 60];
        Stamp { run: 77, session, counter, intended_ns: 0, late_ns: 0 }.write(&mut bytes);
        bytes
    };
    let send = |rig: &mut Rig, player: usize, body: &[u8]| {
        let to = source(players[player]);
        let mut packet = rig.gateway.answer(to, PacketKind::Payload, body).expect("in");
        rig.hand_to_player(players[player], &mut packet);
    };
    let count = |rig: &Rig, count| rig.swarm.tally.counters.of(count);
    let echoed = count(&rig, Count::Echoed);

    let next = rig.swarm.players[0].next_counter + 10;
    for counter in [next, next + 2, next + 1] {
        let body = payload(&rig, 0, counter);
        send(&mut rig, 0, &body);
    }
    assert_eq!((count(&rig, Count::Echoed) - echoed, count(&rig, Count::Reordered)), (3, 1));
    let body = payload(&rig, 0, next + 1);
    send(&mut rig, 0, &body);
    assert_eq!(count(&rig, Count::Duplicates), 1);
    let body = payload(&rig, 0, next - 1);
    send(&mut rig, 1, &body);
    assert_eq!(count(&rig, Count::Misdelivered), 1);
    let mut body = payload(&rig, 1, next + 5);
    body[40] ^= 1;
    send(&mut rig, 1, &body);
    assert_eq!(count(&rig, Count::Corrupt), 1);
    assert_eq!(rig.swarm.tally.drops.total(), 0);
    // A forged datagram never becomes a payload.
    let mut packet =
        rig.gateway.answer(source(players[0]), PacketKind::Payload, &body).expect("in");
    packet[30] ^= 1;
    rig.hand_to_player(players[0], &mut packet);
    assert_eq!(rig.swarm.tally.drops.of(ringgate_core::drops::DropReason::PacketForged), 1);
}

#[test]
fn a_payload_that_never_returns_is_missing_and_stands_in_its_second() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 10, 4));
    rig.run_ms(2000);
    rig.on_the_way.clear();
    let before = rig.swarm.tally.counters.of(Count::PayloadsDue);
    while rig.swarm.tally.counters.of(Count::PayloadsDue) < before + 5 {
        rig.tick();
        rig.on_the_way.clear();
    }
    let tally = rig.finish();
    assert!((5..=15).contains(&tally.counters.missing()), "{}", tally.counters.missing());
    let lost_by_second: Vec<_> = rig.swarm.seconds().iter().map(|s| s.due - s.echoed).collect();
    assert_eq!(u64::from(lost_by_second.iter().sum::<u32>()), tally.counters.missing());
    assert_eq!(lost_by_second[0], 0);
}

#[test]
fn the_end_waits_for_those_who_are_not_in_and_for_what_has_not_come_back_and_no_longer() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 10, 1));
    rig.swarm.setup.linger_ns = 60_000 * MS;
    rig.run_ms(500);
    rig.stalled_until_ns = 4000 * MS;
    let tally = rig.finish();
    let c = |count| tally.counters.of(count);
    assert_eq!((c(Count::Joins), c(Count::Connected), c(Count::Unfinished)), (10, 10, 0));
    assert_eq!(tally.counters.missing(), 0);
    assert!((4000 * MS..6000 * MS).contains(&rig.now_ns), "{}", rig.now_ns);
}

#[test]
fn whoever_is_let_in_by_another_gateway_of_its_token_is_told_from_the_others() {
    let plan = scenario(Shape::Fixed, 10, 10);
    for (ports, elsewhere) in [(&[4999, 5000][..], 10), (&[5000, 4999], 0)] {
        let mut rig = Rig::with_servers(&plan, ports);
        let tally = rig.finish();
        let c = |count| tally.counters.of(count);
        assert_eq!((c(Count::Joins), c(Count::Connected)), (10, 10), "{ports:?}");
        assert_eq!((c(Count::ConnectFailed), c(Count::SessionsLost)), (0, 0), "{ports:?}");
        assert_eq!(c(Count::ConnectedElsewhere), elsewhere, "{ports:?}");
        assert_nothing_wrong(&tally);
    }
}

#[test]
fn whoever_is_told_goodbye_goes_on_to_the_next_gateway_and_is_in_the_books_twice() {
    let mut rig = Rig::with_servers(&scenario(Shape::Fixed, 1, 6), &[5000, 5001]);
    rig.run_ms(3000);
    assert_eq!(rig.swarm.gauges().playing, 1);
    rig.push(5);
    rig.say_goodbye();
    assert_eq!((rig.swarm.gauges().playing, rig.swarm.gauges().connecting), (0, 1));
    rig.run_ms(1000);
    assert_eq!(rig.swarm.gauges().playing, 1);
    rig.push(9);
    let tally = rig.finish();
    let c = |count| tally.counters.of(count);
    assert_eq!((c(Count::Joins), c(Count::Connected), c(Count::SessionsLost)), (2, 2, 1));
    assert_eq!((c(Count::ConnectedElsewhere), c(Count::PayloadsStifled)), (1, 0));
    assert_eq!((c(Count::Misdelivered), c(Count::Corrupt)), (0, 0));
    let pushes = [Count::PushesDue, Count::PushedDown, Count::Heard, Count::ServerChanges];
    assert_eq!(pushes.map(c), [2, 2, 2, 0], "the next game server is another, not one that ended");
}

#[test]
fn levels_begin_anew_at_the_next_gateway() {
    let mut rig = Rig::of_messages(&scenario(Shape::Fixed, 1, 9), Delivery::Levels);
    while rig.swarm.gauges().playing == 0 {
        rig.tick();
    }
    let mut level: Vec<_> = (0..20 * 1024).map(|at| (at * 31) as u8).collect();
    level[..4].fill(0);
    let hear = |rig: &mut Rig| {
        let Wire::Messages(talker) = &mut rig.swarm.players[0].wire else { unreachable!() };
        talker.levels.as_mut().expect("it hears levels").hear(LEVELS, &level)
    };
    assert_eq!(hear(&mut rig), Told::FirstLevel);
    rig.say_goodbye();
    assert_eq!(rig.swarm.gauges().connecting, 1);
    assert_eq!(hear(&mut rig), Told::FirstLevel);
}

#[test]
fn who_goes_on_to_the_next_gateway_has_been_silent_since_it_last_heard_something() {
    let mut rig = Rig::with_servers(&scenario(Shape::Fixed, 1, 12), &[5000, 5001]);
    rig.run_ms(3000);
    rig.stalled_until_ns = 9000 * MS;
    rig.run_ms(4000);
    rig.say_goodbye();
    let tally = rig.finish();
    assert_eq!(tally.counters.of(Count::Connected), 2);
    let silence = &rig.swarm.silences()[1];
    assert_eq!(silence.players(), 1);
    assert!((5900..6200).contains(&silence.at_ms(100.0)), "{silence:?}");
}

#[test]
fn a_pause_ends_with_the_hold_or_with_the_last_session() {
    for (hold_s, stalled_until_ns, pause_ms) in [(5, 7000 * MS, 2000), (12, u64::MAX, 5000)] {
        let mut rig = Rig::new(&scenario(Shape::Fixed, 10, hold_s));
        rig.run_ms(4000);
        rig.stalled_until_ns = stalled_until_ns;
        rig.finish();
        let pause = rig.swarm.longest_pause();
        assert!((pause_ms - 10..pause_ms + 110).contains(&(pause.ns / MS)), "{pause:?}");
    }
}

#[test]
fn a_spike_goes_back_to_what_was_before_at_its_end() {
    let phases = [("hold", 10), ("spike", 30), ("hold", 10), ("spike", 4), ("hold", 10)];
    let text = |(kind, sessions): &(&str, u32)| match (*kind, *sessions) {
        ("hold", _) => "[[phase]]\nseconds = 2\n".to_owned(),
        _ => format!("[[phase]]\nkind = \"{kind}\"\nseconds = 2\nsessions = {sessions}\n"),
    };
    let mut text: String = phases.iter().map(text).collect();
    text.insert_str("[[phase]]\n".len(), "sessions = 10\n");
    text.push_str("[[phase]]\nkind = \"drain\"\nseconds = 2\n");
    let mut rig = Rig::new(&Scenario::parse(&text).expect("valid"));
    rig.run_ms(1500);
    for (kind, sessions) in phases {
        assert_eq!(rig.swarm.gauges().playing, sessions, "{kind}");
        rig.run_ms(2000);
    }
    assert_nothing_wrong(&rig.finish());
}

#[test]
fn players_come_and_go_without_losing_what_is_on_its_way() {
    for shape in [Shape::Churn, Shape::ReconnectStorm] {
        let mut churn = scenario(shape, 60, 6);
        churn.phases[1].churn_per_second = if shape == Shape::Churn { 10.0 } else { 0.0 };
        let mut rig = Rig::new(&churn);
        rig.lag_ns = 50 * MS;
        let tally = rig.finish();
        assert_nothing_wrong(&tally);
        let joins = tally.counters.of(Count::Joins);
        assert!((118..=121).contains(&joins), "{shape:?}: {joins}");
        assert_eq!(rig.gateway.goodbyes, joins);
    }
}

#[test]
fn who_has_lost_its_session_does_not_come_back_with_a_storm() {
    let mut rig = Rig::new(&scenario(Shape::ReconnectStorm, 5, 6));
    rig.run_ms(2000);
    rig.say_goodbye();
    let tally = rig.finish();
    let counted = [Count::SessionsLost, Count::Joins, Count::Left];
    assert_eq!(counted.map(|count| tally.counters.of(count)), [1, 9, 8]);
}

#[test]
fn impairments_happen_to_packets_as_often_as_they_should_and_the_books_balance() {
    let mut rig = Rig::new(&impaired("PktLoss=5 PktIncomingLoss=3", 200, 9));
    let tally = rig.finish();
    let c = |count| tally.counters.of(count) as f64;
    assert_eq!(tally.counters.missing(), 0, "each lost payload is accounted for");
    let (due, up) = (c(Count::PayloadsDue), c(Count::PayloadsImpairedUp));
    assert!((0.04..0.06).contains(&(up / due)), "{up} of {due}");
    let down = c(Count::PayloadsImpairedDown) / (due - up);
    assert!((0.023..0.037).contains(&down), "{down}");
    assert!(
        (tally.counters.loss_share() - (up + c(Count::PayloadsImpairedDown)) / due).abs() < 1e-9
    );
}

#[test]
fn lag_in_both_directions_adds_up_in_the_round_trip() {
    let mut rig = Rig::new(&impaired("PktLag=40 PktIncomingLagMin=20 PktIncomingLagMax=20", 20, 3));
    let tally = rig.finish();
    assert_nothing_wrong(&tally);
    let p50 = tally.percentile_ns(Stage::RoundTrip, 50.0) / MS;
    assert!((61..66).contains(&p50), "{p50}");
}

#[test]
fn a_doubled_packet_reaches_the_gateway_twice_and_a_held_one_is_overtaken() {
    let mut rig = Rig::new(&impaired("PktDup=100", 10, 3));
    let tally = rig.finish();
    let due = tally.counters.of(Count::PayloadsDue);
    assert_eq!(rig.gateway.payloads, 2 * due, "this gateway has no replay window");
    assert_eq!(tally.counters.of(Count::Duplicates), due);

    let mut rig = Rig::new(&impaired("PktOrder=1", 50, 9));
    let tally = rig.finish();
    let (due, overtaken) =
        (tally.counters.of(Count::PayloadsDue), tally.counters.of(Count::Reordered));
    assert!(overtaken * 100 > due * 15 && overtaken * 100 < due * 40, "{overtaken} of {due}");
}

#[test]
fn a_nat_gives_players_another_port_again_and_again() {
    let mut rig = Rig::new(&impaired("NatSwitchSeconds=1", 4, 3));
    rig.run_ms(3500);
    assert!(rig.swarm.tally.counters.of(Count::PortSwitches) >= 4 * 2);
    let ports = |player: u32| {
        let target = rig.swarm.addresses.target(player, 0, GATEWAY);
        let own = rig.sources.iter().filter(move |t| t.source == target.source);
        own.map(|t| t.socket).collect::<std::collections::HashSet<_>>()
    };
    assert!((0..4).all(|player| ports(player).len() == 2));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut rig = Rig::new(&impaired(
            &format!("PktLoss=20 PktLag=5 PktLagVariance=4 Seed={seed}"),
            20,
            3,
        ));
        rig.finish().counters
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_session_that_falls_silent_is_lost_and_said_so() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 5, 9));
    rig.run_ms(2000);
    rig.stalled_until_ns = u64::MAX;
    let tally = rig.finish();
    assert_eq!(tally.counters.of(Count::SessionsLost), 5);
    let silence = &rig.swarm.silences()[1];
    assert!(silence.players() == 5 && silence.at_ms(1.0) >= 4900, "{silence:?}");
    assert!(tally.counters.missing() > 5 * 10 * 4);
}

#[test]
fn nobody_gets_in_where_nobody_answers() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 5, 9));
    rig.stalled_until_ns = u64::MAX;
    let tally = rig.finish();
    assert_eq!(tally.counters.of(Count::ConnectFailed), 5);
    assert_eq!(tally.counters.of(Count::PayloadsDue), 0);
}

/// Visits for nothing take the time of those who have something to do, and of logins first.
#[test]
fn a_player_is_visited_when_there_is_something_to_do() {
    let plan = scenario(Shape::Idle, 1, 9);
    for mut rig in [Rig::new(&plan), Rig::of_messages(&plan, Delivery::Reliable)] {
        rig.run_ms(1500);
        assert_eq!(rig.swarm.gauges().playing, 1);
        let is_due = |rig: &mut Rig| {
            rig.tick();
            rig.swarm.poll_timeout() <= rig.now_ns + MS / 2
        };
        let visits = (0..2000).filter(|_| is_due(&mut rig)).count();
        assert!(visits <= 50, "{visits} in a second");
    }
}

/// Two messages of a server in two packets, the second first.
#[test]
fn a_packet_that_was_overtaken_is_heard_as_games_hear_it() {
    let mut rig = Rig::of_messages(&scenario(Shape::Fixed, 1, 9), Delivery::Unreliable);
    while rig.swarm.gauges().playing == 0 {
        rig.tick();
    }
    rig.stalled_until_ns = u64::MAX;
    let target = rig.swarm.addresses.target(0, 0, GATEWAY);
    let mut end = End::new(&delivery::Options::default(), rig.now_ns);
    let mut next = 0;
    let mut packets = |rig: &mut Rig| {
        [0, 1].map(|_| {
            next += 1;
            let (mut message, mut packet) = ([0; 60], [0; 1200]);
            let session = rig.swarm.players[0].session;
            let stamp = Stamp { run: 77, session, counter: next, intended_ns: 0, late_ns: 0 };
            stamp.write(&mut message);
            end.send(Channel::Unreliable(0), &message, None).expect("room");
            let len = end.poll_transmit(rig.now_ns, &mut packet).expect("it is due");
            let body = &packet[..len];
            rig.gateway.answer(source(target), PacketKind::Payload, body).expect("it is in")
        })
    };
    let echoed = |rig: &Rig| rig.swarm.tally.counters.of(Count::Echoed);
    // Where no packet has come late before, a gap is a loss; then it is not.
    for heard in [1, 3] {
        let [mut first, mut second] = packets(&mut rig);
        rig.hand_to_player(target, &mut second);
        rig.hand_to_player(target, &mut first);
        assert_eq!(echoed(&rig), heard);
    }
    let [_, mut second] = packets(&mut rig);
    rig.hand_to_player(target, &mut second);
    assert_eq!(echoed(&rig), 3);
    rig.run_ms(21);
    assert_eq!(echoed(&rig), 4, "it waits for 20 ms");
}

/// Who leaves is here for half a second more, and its address with it.
#[test]
fn who_would_have_had_the_address_of_who_leaves_at_the_end_is_not_missed() {
    for (sessions, placeless) in [(20, 0), (21, 1)] {
        let mut churn = scenario(Shape::Churn, sessions, 6);
        churn.phases[1].churn_per_second = if placeless == 0 { 2.0 } else { 0.0 };
        let mut rig = Rig::new(&churn);
        let sockets = (1..=20).map(SocketId).collect();
        rig.swarm.addresses = Addresses::sockets(sockets, 1);
        let tally = rig.finish();
        let c = |count| tally.counters.of(count);
        assert_eq!((c(Count::Placeless), c(Count::Joins)), (placeless, c(Count::Left)));
        assert_eq!((c(Count::Connected), tally.counters.missing()), (c(Count::Joins), 0));
        let (fewest, most) = if placeless == 0 { (30, 32) } else { (20, 20) };
        assert!((fewest..=most).contains(&c(Count::Joins)), "{}", c(Count::Joins));
    }
}

#[test]
fn who_waits_for_a_token_at_the_end_is_not_said_to_lack_an_address() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 3, 1));
    rig.swarm.setup.protocol = Protocol::Netcode(Tokens::Service(Arc::new(silent())));
    let tally = rig.finish();
    let c = |count| tally.counters.of(count);
    let kept_out = [Count::Tokenless, Count::Placeless, Count::Joins].map(c);
    assert_eq!(kept_out, [3, 0, 0]);
}

#[test]
fn a_player_costs_little_memory() {
    assert!(size_of::<Player>() + 24 <= 600);
    let address = LocalIp::v4([127, 16, 0, 0], 0);
    assert_eq!(Addresses::loopback(vec![SocketId(0)], 0).target(0, 0, GATEWAY).source, address);
}

#[test]
fn what_comes_after_the_goodbye_is_for_nobody() {
    let mut rig = Rig::new(&scenario(Shape::Fixed, 1, 1));
    rig.run_ms(1800);
    let target = rig.swarm.addresses.target(0, 0, GATEWAY);
    let mut late = rig.gateway.answer(source(target), PacketKind::KeepAlive, &[0; 8]).expect("in");
    let before = rig.finish();
    assert_nothing_wrong(&before);
    rig.hand_to_player(target, &mut late);
    assert_eq!(rig.swarm.tally.counters.of(Count::Strangers), 1);
    assert_eq!(rig.swarm.tally.counters.of(Count::Corrupt), 0);
}
