//! Unreal players against a stand-in server on an injected clock: everything that a real run
//! counts, without sockets.

use std::sync::Arc;

use ringgate_batch::{LocalIp, RxMeta, SocketId, TxBatch, TxTarget};
use ringgate_bots::unreal::{StandIn, Tally as Seen};
use ringgate_core::crypto::Aead;
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::proto::unreal::handshake::Base;
use ringgate_core::proto::unreal::prefix::Magic;
use ringgate_core::secret::CookieSecret;

use super::*;
use crate::measure::tally::{Count, Tally};
use crate::players::scenario::Scenario;
use crate::players::{Addresses, Now, Protocol, Setup, Swarm, TX_SLOTS};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const SERVER: Endpoint = Endpoint::v4([127, 0, 0, 1], 7777);

fn profile() -> Profile {
    let magic = Magic::from_text("1011").expect("binary");
    let base = Base { version_min: 3, version: 4, network_version: 9, ..Base::default() };
    Profile { framing: Framing { magic, ..Framing::default() }, client_id: 0, base }
}

/// Swarm and server, with nothing between them but what the swarm's own impairments do.
struct Rig {
    swarm: Swarm,
    server: StandIn,
    tx: TxBatch,
    now_ns: u64,
    /// Every datagram up arrives so often.
    copies: usize,
    bit_flipped_down: bool,
}

impl Rig {
    fn new(scenario: &str) -> Self {
        let scenario = Scenario::parse(scenario).expect("valid");
        let unreal = Unreal { server: SERVER, profile: profile(), timeout_ns: 20 * S };
        let setup = Setup {
            run: 77,
            thread: 0,
            protocol: Protocol::Unreal(unreal),
            protocol_id: 0,
            arrivals: crate::players::arrivals::Arrivals::Ticks,
            impair: Arc::new(scenario.impair.clone()),
            linger_ns: S + 2 * scenario.impair.lag_ns_max(),
            keep_alive_ns: 200 * MS,
        };
        let addresses = Addresses::loopback((1..5).map(SocketId).collect(), 0);
        let secrets = [1, 2].map(|byte| CookieSecret::from_bytes([byte; 64]));
        Self {
            swarm: Swarm::new(setup, scenario.plan(0, 1), addresses, Aead::detect()),
            server: StandIn::new(&profile(), 2, 1000, CookieMac::tag_once, secrets, S),
            tx: TxBatch::new(TX_SLOTS, 0),
            now_ns: 0,
            copies: 1,
            bit_flipped_down: false,
        }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.now_ns, unix_ns: self.now_ns }
    }

    fn tick(&mut self) {
        self.now_ns += MS;
        self.swarm.advance(self.now());
        let mut way_up = Vec::new();
        while {
            let has_more = self.swarm.transmit(self.now(), &mut self.tx);
            let entries = self.tx.entries().iter();
            way_up.extend(entries.map(|entry| (entry.target, self.tx.bytes(entry).to_vec())));
            self.tx.end_flush();
            self.swarm.sent(&self.tx);
            has_more
        } {}
        for (target, bytes) in way_up {
            for _ in 0..self.copies {
                self.serve(target, &bytes);
            }
        }
        let mut out = [0; 1500];
        while let Some((to, len)) = self.server.poll_keep_alive(S + self.now_ns, &mut out) {
            self.deliver(to, &mut out[..len]);
        }
    }

    fn serve(&mut self, target: TxTarget, datagram: &[u8]) {
        let from = Endpoint::v6(*target.source.ip_bytes(), 0, 40_000 + target.socket.0 as u16);
        let mut out = [0; 1500];
        let tail = Tail::draw(&[9; 17]);
        let len = self.server.handle_datagram(S + self.now_ns, from, datagram, &tail, &mut out);
        match len.unwrap_or(0) {
            0 => {}
            len => self.deliver(from, &mut out[..len]),
        }
    }

    fn deliver(&mut self, to: Endpoint, datagram: &mut [u8]) {
        if self.bit_flipped_down && datagram.len() > 60 {
            datagram[50] ^= 4;
        }
        let socket = SocketId(u32::from(to.port() - 40_000));
        let mut meta = RxMeta::new(socket, SERVER, 0, 0, datagram.len() as u32);
        meta.local = LocalIp::v6(*to.ip_bytes(), 0);
        let now = self.now();
        self.swarm.receive(now, std::iter::once((&meta, datagram)));
    }

    fn finish(mut self) -> (Tally, Seen) {
        for _ in 0..200_000 {
            if self.swarm.is_finished() {
                self.swarm.give_up_delayed();
                return (self.swarm.take_tally(Tally::new()), self.server.tally);
            }
            self.tick();
        }
        panic!("not finished: {:?}", self.swarm.gauges());
    }
}

/// Every datagram that came is counted in exactly one place.
#[track_caller]
fn assert_books_balance(tally: &Tally) {
    let c = |count| tally.counters.of(count);
    let refused: u64 = tally.drops.iter().map(|(_, count)| count).sum();
    let judged = [Count::Echoed, Count::Stale, Count::Duplicates, Count::Corrupt];
    let payloads: u64 = judged.map(c).iter().sum::<u64>() + c(Count::Misdelivered);
    let rest = c(Count::ControlIn) + c(Count::Strangers) + c(Count::ImpairedDown) + refused;
    assert_eq!(c(Count::DatagramsIn), payloads + rest, "{:?}", tally.counters);
}

const PLAY: &str = "[[phase]]\nkind = \"ramp\"\nseconds = 1\nsessions = 30\n\
                    traffic = { hz = 20, bytes_min = 28, bytes_max = 1200 }\n\
                    [[phase]]\nseconds = 3\ntraffic = { hz = 20, bytes_min = 28, bytes_max = 1200 }\n";

#[test]
fn everyone_comes_plays_and_goes_and_every_payload_returns() {
    let (tally, seen) = Rig::new(PLAY).finish();
    let c = |count| tally.counters.of(count);
    assert_eq!((c(Count::Joins), c(Count::Connected), c(Count::Left)), (30, 30, 30));
    assert!(c(Count::PayloadsDue) > 30 * 3 * 20);
    assert_eq!((c(Count::Echoed), tally.counters.missing()), (c(Count::PayloadsDue), 0));
    assert_eq!((seen.connections, seen.goodbyes, seen.echoes), (30, 30, c(Count::Echoed)));
    assert_eq!((seen.duplicates, seen.late, seen.implausible), (0, 0, 0));
    assert_books_balance(&tally);
}

#[test]
fn idle_players_stay_in_by_keep_alives_alone() {
    let scenario = "[[phase]]\nseconds = 40\nsessions = 5\ntraffic = { hz = 0 }";
    let (tally, seen) = Rig::new(scenario).finish();
    assert_eq!((seen.goodbyes, tally.counters.of(Count::SessionsLost)), (5, 0));
    assert!(seen.packets >= 5 * 40 * 4 && seen.implausible == 0, "{seen:?}");
    assert_books_balance(&tally);
}

#[test]
fn a_bad_network_is_counted_on_both_sides_and_nothing_is_left_over() {
    let scenario = format!(
        "{PLAY}[impair]\nPktLag = 40\nPktLagVariance = 30\nLagReorders = 1\nPktLoss = 3\nPktIncomingLoss = 2\n"
    );
    let (tally, seen) = Rig::new(&scenario).finish();
    let c = |count| tally.counters.of(count);
    assert_eq!((c(Count::Connected), c(Count::SessionsLost)), (30, 0));
    assert!(c(Count::PayloadsImpairedUp) > 0 && c(Count::PayloadsImpairedDown) > 0);
    // What overtakes another packet makes an engine's server drop that one; nothing else is lost on
    // the way up.
    assert!(seen.late > 0);
    assert!(tally.counters.missing() <= seen.late, "{} {seen:?}", tally.counters.missing());
    assert_eq!((seen.duplicates, seen.implausible), (0, 0));
    assert_books_balance(&tally);
}

#[test]
fn a_network_that_repeats_is_found_out_by_the_server() {
    let mut rig = Rig::new(PLAY);
    rig.copies = 2;
    let (tally, seen) = rig.finish();
    // The second copy of a goodbye finds nobody.
    assert_eq!((seen.duplicates, seen.goodbyes), (seen.packets - 30, 30));
    assert_eq!((tally.counters.of(Count::Duplicates), tally.counters.missing()), (0, 0));
}

#[test]
fn a_wrong_bit_is_corruption() {
    let mut rig = Rig::new(PLAY);
    (0..2000).for_each(|_| rig.tick());
    rig.bit_flipped_down = true;
    let (tally, _) = rig.finish();
    assert!(tally.counters.of(Count::Corrupt) > 1000);
    assert_books_balance(&tally);
}

#[test]
fn a_port_that_changes_is_followed_after_ten_seconds_and_costs_what_was_sent_meanwhile() {
    let scenario = "[[phase]]\nseconds = 25\nsessions = 20\ntraffic = { hz = 10 }\n\
                    [impair]\nNatSwitchSeconds = 12\n";
    let (tally, seen) = Rig::new(scenario).finish();
    let c = |count| tally.counters.of(count);
    assert_eq!((c(Count::PortSwitches), c(Count::SessionsLost)), (40, 0));
    assert_eq!((c(Count::Restarted), seen.restarts), (40, 40));
    // The packet that told the server nothing is the only one lost for each switch.
    assert!(tally.counters.missing() <= 80, "{}", tally.counters.missing());
    assert_eq!((seen.duplicates, seen.implausible), (0, 0));
    assert_books_balance(&tally);

    // Earlier than that, the player is asked again and again and goes on as if nothing were wrong,
    // into the void.
    let early = scenario.replace("= 12", "= 8").replace("seconds = 25", "seconds = 15");
    let (tally, seen) = Rig::new(&early).finish();
    assert_eq!((tally.counters.of(Count::Restarted), seen.restarts), (20, 20));
    assert!(tally.counters.missing() > 20 * 10, "{}", tally.counters.missing());
    assert!(seen.restart_requests > 20 * 10);
}

#[test]
fn without_a_server_players_give_up_and_with_full_windows_they_say_so() {
    let mut rig = Rig::new("[[phase]]\nseconds = 30\nsessions = 3\ntraffic = { hz = 30 }");
    rig.copies = 0;
    let (tally, _) = rig.finish();
    assert_eq!(tally.counters.of(Count::ConnectFailed), 3);

    let mut rig = Rig::new("[[phase]]\nseconds = 30\nsessions = 3\ntraffic = { hz = 30 }");
    (0..2000).for_each(|_| rig.tick());
    rig.copies = 0;
    (0..15_000).for_each(|_| rig.tick());
    rig.copies = 1;
    let (tally, seen) = rig.finish();
    // Packets in flight end at 256; what is due beyond has no number to be sent with. Keep-alives
    // need numbers too.
    assert!(tally.counters.of(Count::PayloadsStifled) > 3 * (15 * 30 - 300), "{seen:?}");
    assert_eq!(tally.counters.of(Count::SessionsLost), 0);
}
