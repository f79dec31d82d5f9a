//! The pacer alone, and with the swarm that it paces, on a clock of the tests' own.

use std::sync::Arc;
use std::time::Duration;

use ringgate_batch::{Endpoint, SocketId, TxBatch};
use ringgate_core::crypto::Aead;

use super::*;
use crate::measure::tally::{Count, Stage};
use crate::players::arrivals::Arrivals;
use crate::players::impair::Impairments;
use crate::players::scenario::Scenario;
use crate::players::traffic::{Shape, Traffic};
use crate::players::{Addresses, Now, Plain, Protocol, Setup, Stamp, Swarm, TICK_NS, TX_SLOTS};

const MS: u64 = 1_000_000;

/// A generator's thread without the thread: what its loop does, with a price in time for each step.
struct Thread {
    swarm: Swarm,
    pacer: Option<Pacer>,
    tx: TxBatch,
    now_ns: u64,
    /// What has left: when, and with how many in one flush.
    sent: Vec<(u64, usize, Stamp)>,
    listened: u32,
    rested_ns: u64,
}

/// What a send and a look at the sockets take.
const SEND_NS: u64 = 1500;
const LISTEN_NS: u64 = 2500;

impl Thread {
    /// So many players without sessions who send so often.
    fn new(arrivals: Arrivals, players: u32, hz: f64) -> Self {
        let traffic = Traffic { hz, ..Traffic::default() };
        let (ramp, hold) = (Duration::from_millis(100), Duration::from_millis(900));
        let scenario = Scenario::of_shape(Shape::Fixed, traffic, players, ramp, hold);
        let setup = Setup {
            run: 7,
            thread: 0,
            protocol: Protocol::Plain(Plain::bare(Endpoint::v4([127, 0, 0, 1], 9))),
            protocol_id: 0,
            arrivals,
            impair: Arc::new(Impairments::default()),
            linger_ns: MS,
            keep_alive_ns: 100 * MS,
        };
        let addresses = Addresses::loopback(vec![SocketId(1)], 0);
        Self {
            swarm: Swarm::new(setup, scenario.plan(0, 1), addresses, Aead::detect()),
            pacer: arrivals.is_exact().then(Pacer::default),
            tx: TxBatch::new(TX_SLOTS, 0),
            now_ns: 0,
            sent: Vec::new(),
            listened: 0,
            rested_ns: 0,
        }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.now_ns, unix_ns: 1_700_000_000_000_000_000 + self.now_ns }
    }

    fn turn(&mut self) {
        let due_ns = self.swarm.poll_timeout();
        match self.pacer {
            Some(pacer) => match pacer.step(self.now_ns, due_ns) {
                Step::Send => {}
                Step::SpinUntil(until_ns) => {
                    assert!(until_ns > self.now_ns, "time goes on");
                    self.now_ns = until_ns;
                    return;
                }
                Step::Rest(ns) => {
                    assert!(self.now_ns + ns < due_ns);
                    self.now_ns += ns;
                    self.rested_ns += ns;
                    self.listen();
                }
                Step::Listen => self.listen(),
            },
            None => self.now_ns = self.now_ns.max(due_ns),
        }
        self.swarm.advance(self.now());
        self.swarm.transmit(self.now(), &mut self.tx);
        let payloads = self.tx.entries().iter().map(|entry| self.tx.bytes(entry));
        let payloads: Vec<_> = payloads.filter_map(Stamp::read).collect();
        let count = payloads.len();
        self.sent.extend(payloads.into_iter().map(|stamp| (self.now_ns, count, stamp)));
        self.tx.end_flush();
        self.swarm.sent(&self.tx);
        self.pacer.iter_mut().for_each(|pacer| pacer.sent(count));
        self.now_ns += SEND_NS * count as u64;
    }

    fn listen(&mut self) {
        self.now_ns += LISTEN_NS;
        self.listened += 1;
        let now_ns = self.now_ns;
        self.pacer.iter_mut().for_each(|pacer| pacer.note(now_ns, 1));
    }

    fn run_to_ms(&mut self, ms: u64) {
        while self.now_ns < ms * MS {
            self.turn();
        }
    }

    fn run(mut self) -> Self {
        self.run_to_ms(1200);
        assert!(self.swarm.is_finished());
        self
    }
}

#[test]
fn payloads_of_their_own_moments_leave_one_by_one_at_exactly_those() {
    for arrivals in [Arrivals::Spread, Arrivals::Poisson] {
        let thread = Thread::new(arrivals, 100, 200.0).run();
        assert!((17_500..20_500).contains(&thread.sent.len()), "{arrivals:?}");
        for (at_ns, count, stamp) in &thread.sent {
            assert_eq!((*count, stamp.intended_ns + u64::from(stamp.late_ns)), (1, *at_ns));
        }
        let late = thread.swarm.tally_of(Stage::SendLate);
        assert!(late.max() <= 3 * (LISTEN_NS + SEND_NS), "{arrivals:?}: {}", late.max());
        assert!(late.value_at_percentile(50.0) <= 1, "half of them met no other");
        // The moments are those of the schedule, each once and none left out.
        for session in [1, 50, 100] {
            let own = thread.sent.iter().map(|(.., stamp)| stamp);
            let own: Vec<_> = own.filter(|stamp| stamp.session == session).collect();
            let mut expected_ns = arrivals.first_ns(session, u64::from(session) * MS, 5 * MS);
            for (counter, stamp) in own.iter().enumerate() {
                assert_eq!((stamp.counter, stamp.intended_ns), (counter as u32, expected_ns));
                expected_ns = arrivals.next_ns(session, stamp.counter, expected_ns, 5 * MS);
            }
            assert!(expected_ns >= 1000 * MS, "to the end of the plan");
        }
        assert!(thread.listened > 10_000, "{}", thread.listened);
    }
}

#[test]
fn ticks_send_together_what_is_due_within_a_tick() {
    let thread = Thread::new(Arrivals::Ticks, 100, 200.0).run();
    assert!((17_500..20_500).contains(&thread.sent.len()));
    assert!(thread.sent.iter().all(|(.., stamp)| stamp.intended_ns % TICK_NS == 0));
    let alone = thread.sent.iter().filter(|(_, count, _)| *count == 1).count();
    assert!(alone * 5 < thread.sent.len(), "{alone} of {}", thread.sent.len());
}

#[test]
fn who_has_fallen_behind_catches_up_in_batches_and_is_separate_again() {
    let mut thread = Thread::new(Arrivals::Spread, 100, 200.0);
    thread.run_to_ms(500);
    thread.now_ns += 20 * MS;
    let before = thread.sent.len();
    let thread = thread.run();
    let late = thread.sent[before..].iter().filter(|(.., stamp)| stamp.late_ns > 100_000).count();
    assert!((380..=440).contains(&late), "20 ms of 20,000 payloads a second: {late}");
    let together = |sent: &&(u64, usize, Stamp)| sent.1 > 1;
    assert!(thread.sent[before..].iter().filter(together).count() > 300);
    assert!(thread.sent.iter().all(|(at_ns, count, _)| *count == 1 || *at_ns < 525 * MS));
    assert_eq!(thread.swarm.counted(Count::PayloadsLate), late as u64 - late_by_less(&thread));
}

/// Payloads that were late by more than the pacer bears, and by less than counts as late.
fn late_by_less(thread: &Thread) -> u64 {
    let less = |stamp: &Stamp| (100_001..=1_000_000).contains(&stamp.late_ns);
    thread.sent.iter().filter(|(.., stamp)| less(stamp)).count() as u64
}

#[test]
fn few_players_leave_the_core_to_others_and_are_no_later_for_it() {
    let thread = Thread::new(Arrivals::Poisson, 10, 20.0).run();
    assert!(thread.rested_ns > 800 * MS, "{}", thread.rested_ns);
    let late = thread.swarm.tally_of(Stage::SendLate);
    assert!(late.max() <= LISTEN_NS + SEND_NS, "{}", late.max());
}

fn listened(at_ns: u64) -> Pacer {
    Pacer { listened_ns: at_ns, ..Pacer::default() }
}

#[test]
fn what_is_due_is_sent_and_the_moment_before_is_spun_through() {
    let pacer = listened(1_000_000);
    assert_eq!(pacer.step(1_010_000, 1_010_000), Step::Send);
    assert_eq!(pacer.step(1_010_000, 1_000_000), Step::Send);
    assert_eq!(pacer.step(1_010_000, 1_010_001), Step::SpinUntil(1_010_001));
    assert_eq!(pacer.step(1_010_000, 1_012_999), Step::SpinUntil(1_012_999));
}

#[test]
fn it_listens_in_gaps_from_time_to_time_and_on_while_more_is_there() {
    let mut pacer = listened(1_000_000);
    assert_eq!(pacer.step(1_010_000, 1_030_000), Step::SpinUntil(1_030_000));
    assert_eq!(pacer.step(1_010_000, 1_500_000), Step::SpinUntil(1_050_000));
    assert_eq!(pacer.step(1_050_000, 1_500_000), Step::Listen);
    pacer.note(1_060_000, usize::from(HEARD_AT_ONCE));
    assert_eq!(pacer.step(1_060_000, 1_500_000), Step::Listen);
    assert_eq!(pacer.step(1_060_000, 1_062_000), Step::SpinUntil(1_062_000));
    pacer.note(1_070_000, 3);
    assert_eq!(pacer.step(1_070_000, 1_500_000), Step::SpinUntil(1_120_000));
}

#[test]
fn a_thread_that_is_always_late_listens_all_the_same() {
    let pacer = listened(1_000_000);
    assert_eq!(pacer.step(1_499_999, 0), Step::Send);
    assert_eq!(pacer.step(1_500_000, 0), Step::Listen);
}

#[test]
fn a_thread_without_any_time_listens_for_as_much_as_it_sends() {
    let mut pacer = listened(1_000_000);
    pacer.sent(100);
    let full = usize::from(HEARD_AT_ONCE);
    for (waiting, expected) in [(full, Step::Listen), (full, Step::Listen), (full, Step::Send)] {
        pacer.note(1_001_000, waiting);
        assert_eq!(pacer.step(1_001_000, 0), expected);
    }
    pacer.sent(200);
    pacer.note(1_002_000, 5);
    assert_eq!(pacer.step(1_002_000, 0), Step::Send, "nothing was left");
}

#[test]
fn it_sleeps_only_where_waking_late_does_no_harm() {
    let pacer = listened(1_000_000);
    assert_eq!(pacer.step(1_000_000, 2_000_000), Step::SpinUntil(1_050_000));
    assert_eq!(pacer.step(1_000_000, 9_000_000), Step::Rest(7_700_000));
}
