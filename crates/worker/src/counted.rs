//! What a worker's driver and loop have counted, on its way to the next process: counters go on, so
//! that nobody who watches them sees a gateway start.

use ringgate_gate::body::Gathers;
use ringgate_io::{CardCounts, IoStats};

/// Counts of the processes before this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) io: IoStats,
    pub(super) turns: u64,
    pub(super) gathers: Gathers,
    /// Datagrams that the kernel has dropped at players' sockets which have closed.
    pub(super) dropped: u64,
    /// Of frames past the kernel's sockets.
    pub(super) card: CardCounts,
}

impl Counted {
    /// With what this process has counted.
    pub(super) fn and(&self, io: IoStats, turns: u64, gathers: Gathers) -> Self {
        // Those sockets are counted with the others.
        let now = Self { io, turns, gathers, dropped: 0, card: CardCounts::default() };
        let (before, now) = (self.numbers(), now.numbers());
        let sum: [u64; COUNT] = std::array::from_fn(|at| before[at] + now[at]);
        let sum = Self::of(&sum);
        // No counts: what is so now.
        let Gathers { delay_ns, sleep_cost_ns, .. } = gathers;
        Self { gathers: Gathers { delay_ns, sleep_cost_ns, ..sum.gathers }, ..sum }
    }

    /// In an order that does not change: new ones come last.
    pub(super) fn numbers(&self) -> [u64; COUNT] {
        let IoStats {
            waits,
            syscalls,
            rx_datagrams,
            rx_bytes,
            tx_datagrams,
            tx_bytes,
            tx_gso_sends,
            tx_failures,
            rx_arms,
            rx_restarts,
            rx_no_buffers,
            cq_overflows,
            kernel_drops,
            rx_errors,
            // Of this process: what a sleep costs is measured anew.
            sleeps_measured: _,
            sleeps_cpu_ns: _,
        } = self.io;
        let Gathers { delay_ns: _, count, waited_ns, sleep_cost_ns: _ } = self.gathers;
        let first = [
            waits,
            syscalls,
            rx_datagrams,
            rx_bytes,
            tx_datagrams,
            tx_bytes,
            tx_gso_sends,
            tx_failures,
            rx_arms,
            rx_restarts,
            rx_no_buffers,
            cq_overflows,
            kernel_drops,
            rx_errors,
            self.turns,
            count,
            waited_ns,
            self.dropped,
        ];
        let card = self.card.numbers();
        std::array::from_fn(|at| if at < FIRST { first[at] } else { card[at - FIRST] })
    }

    /// From numbers of this release or another: what is missing is 0.
    pub(super) fn of(numbers: &[u64]) -> Self {
        let mut numbers = numbers.iter().copied();
        let mut next = || numbers.next().unwrap_or_default();
        let io = IoStats {
            waits: next(),
            syscalls: next(),
            rx_datagrams: next(),
            rx_bytes: next(),
            tx_datagrams: next(),
            tx_bytes: next(),
            tx_gso_sends: next(),
            tx_failures: next(),
            rx_arms: next(),
            rx_restarts: next(),
            rx_no_buffers: next(),
            cq_overflows: next(),
            kernel_drops: next(),
            rx_errors: next(),
            ..IoStats::default()
        };
        let turns = next();
        let gathers = Gathers { count: next(), waited_ns: next(), ..Gathers::default() };
        let dropped = next();
        let card = CardCounts::of(std::array::from_fn(|_| next()));
        Self { io, turns, gathers, dropped, card }
    }
}

const FIRST: usize = 18;
const COUNT: usize = FIRST + CardCounts::COUNT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_and_come_back_as_they_went() {
        let numbers: Vec<u64> = (1..=COUNT as u64).collect();
        let counted = Counted::of(&numbers);
        assert_eq!(counted.numbers().to_vec(), numbers);
        let gathers = Gathers { delay_ns: 9, count: 1, waited_ns: 2, sleep_cost_ns: 8 };
        let sum = counted.and(counted.io, 3, gathers);
        assert_eq!((sum.io.waits, sum.io.rx_errors, sum.turns, sum.dropped), (2, 28, 18, 18));
        assert_eq!(sum.gathers, Gathers { count: 17, waited_ns: 19, ..gathers });
        let older = Counted::of(&numbers[..3]);
        assert_eq!((older.io.rx_datagrams, older.io.rx_bytes, older.turns), (3, 0, 0));
    }
}
