//! Two ends with a network between them, over virtual time: it loses, repeats and delays packets,
//! and has a narrow place with a queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::handed::handed_over;
use super::random::Random;
use crate::delivery::{Channel, End, Options, Refusal, Report};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MS;

/// One direction of a network.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) loss_percent: u64,
    pub(super) duplicate_percent: u64,
    /// A wide range reorders.
    pub(super) delay_ns: Range<u64>,
    /// Bytes a second of the narrow place; 0 where there is none.
    pub(super) rate: u64,
    /// What its queue holds.
    pub(super) queue_bytes: u64,
}

impl Path {
    /// Everything arrives after so long, once and in order.
    pub(super) const fn good(delay_ns: u64) -> Self {
        let delay_ns = delay_ns..delay_ns + 1;
        Self { loss_percent: 0, duplicate_percent: 0, delay_ns, rate: 0, queue_bytes: 0 }
    }
}

/// What an end has said to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Message(Channel, Vec<u8>),
    Report(Report),
}

type UnderWay = (u64, u64, usize, Vec<u8>);

/// Both ends, by index, and the two ways between them, by the index of the end that sends.
pub(super) struct World {
    pub(super) now_ns: u64,
    pub(super) ends: [End; 2],
    options: [Options; 2],
    pub(super) paths: [Path; 2],
    pub(super) random: Random,
    /// Packets that were sent, and bytes of them.
    pub(super) sent: [(u64, u64); 2],
    /// Packets that a full queue had no room for.
    pub(super) overflowed: u64,
    /// When the narrow place has sent what is in its queue.
    free_ns: [u64; 2],
    /// When each arrives, its number, where, and the packet: the first to arrive comes first.
    under_way: BinaryHeap<Reverse<UnderWay>>,
}

impl World {
    pub(super) fn new(options: [Options; 2], paths: [Path; 2], seed: u64) -> Self {
        let now_ns = 1_000_000_000_000;
        Self {
            now_ns,
            ends: options.map(|options| End::new(&options, now_ns)),
            options,
            paths,
            random: Random::new(seed),
            sent: [(0, 0); 2],
            overflowed: 0,
            free_ns: [now_ns; 2],
            under_way: BinaryHeap::new(),
        }
    }

    /// Two ends that behave as they do by default.
    pub(super) fn of(path: &Path, seed: u64) -> Self {
        Self::new([Options::default(); 2], [path.clone(), path.clone()], seed)
    }

    /// How long packets of that end wait in the queue of the narrow place.
    pub(super) fn queued_ns(&self, from: usize) -> u64 {
        self.free_ns[from].saturating_sub(self.now_ns)
    }

    /// Another process goes on with an end.
    pub(super) fn hand_over(&mut self, at: usize) {
        self.ends[at] = handed_over(&self.ends[at], &self.options[at]);
    }

    /// Lets everything happen up to that moment. `on_event` gets what happens at each end.
    pub(super) fn run_until(&mut self, end_ns: u64, mut on_event: impl FnMut(usize, Event)) {
        loop {
            self.send_all(&mut on_event);
            let next_ns = self.next_ns();
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = next_ns.max(self.now_ns);
            self.receive_all(&mut on_event);
        }
    }

    /// Lets everything happen until no message is on its way. Whether that was within the time.
    pub(super) fn settle(
        &mut self,
        within_ns: u64,
        mut on_event: impl FnMut(usize, Event),
    ) -> bool {
        let end_ns = self.now_ns + within_ns;
        while !self.is_settled() {
            if self.now_ns >= end_ns {
                return false;
            }
            self.run_until(self.now_ns + 10 * MS, &mut on_event);
        }
        true
    }

    pub(super) fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| !end.waits_for_answer() && !end.has_data())
    }

    fn next_ns(&self) -> u64 {
        let arrival_ns = self.under_way.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let timeouts = self.ends.iter().filter_map(End::poll_timeout);
        arrival_ns.into_iter().chain(timeouts).min().unwrap_or(u64::MAX)
    }

    fn send_all(&mut self, on_event: &mut impl FnMut(usize, Event)) {
        for from in 0..2 {
            let taken = self.ends[from].handle_held(self.now_ns, |channel, message| {
                on_event(from, Event::Message(channel, message.to_vec()));
            });
            assert_eq!(taken, Ok(()));
            let mut out = [0; 1200];
            while let Some(len) = self.ends[from].poll_transmit(self.now_ns, &mut out) {
                self.put(from, &out[..len]);
            }
            let due_ns = self.ends[from].poll_timeout();
            assert!(due_ns.is_none_or(|due_ns| due_ns > self.now_ns), "it would turn for ever");
            while let Some(report) = self.ends[from].poll_report() {
                on_event(from, Event::Report(report));
            }
        }
    }

    fn receive_all(&mut self, on_event: &mut impl FnMut(usize, Event)) {
        while let Some(Reverse((at_ns, ..))) = self.under_way.peek()
            && *at_ns <= self.now_ns
        {
            let Some(Reverse((_, _, to, packet))) = self.under_way.pop() else { return };
            let taken = self.ends[to].handle_packet(self.now_ns, &packet, |channel, message| {
                on_event(to, Event::Message(channel, message.to_vec()));
            });
            assert!(!matches!(taken, Err(Refusal::Fault(_))), "{taken:?}");
        }
    }

    /// Puts a packet on its way.
    pub(super) fn put(&mut self, from: usize, packet: &[u8]) {
        self.sent[from] = (self.sent[from].0 + 1, self.sent[from].1 + packet.len() as u64);
        let path = self.paths[from].clone();
        let Some(leaves_ns) = self.pass_narrow_place(from, packet.len() as u64) else { return };
        if self.random.percent(path.loss_percent) {
            return;
        }
        let copies = 1 + u64::from(self.random.percent(path.duplicate_percent));
        for _ in 0..copies {
            let at_ns = leaves_ns + self.random.within(path.delay_ns.clone());
            let number = self.random.word() >> 60 | self.sent[from].0 << 4;
            self.under_way.push(Reverse((at_ns, number, 1 - from, packet.to_vec())));
        }
    }

    fn pass_narrow_place(&mut self, from: usize, bytes: u64) -> Option<u64> {
        let path = &self.paths[from];
        if path.rate == 0 {
            return Some(self.now_ns);
        }
        let waiting_bytes = self.queued_ns(from) * path.rate / SECOND;
        if waiting_bytes + bytes > path.queue_bytes {
            self.overflowed += 1;
            return None;
        }
        self.free_ns[from] = self.free_ns[from].max(self.now_ns) + bytes * SECOND / path.rate;
        Some(self.free_ns[from])
    }
}
