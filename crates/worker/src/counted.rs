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
    /// Datagrams that the kernel has dropped at players' sockets, but for what those say that are
    /// open.
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
        let Gathers { count, waited_ns, .. } = self.gathers;
        let of_loop = [self.turns, count, waited_ns, self.dropped];
        let all = self.io.numbers().into_iter().take(OF_DRIVER).chain(of_loop);
        let mut all = all.chain(self.card.numbers());
        std::array::from_fn(|_| all.next().unwrap_or_default())
    }

    /// From numbers of this release or another: what is missing is 0.
    pub(super) fn of(numbers: &[u64]) -> Self {
        let mut numbers = numbers.iter().copied();
        let mut next = || numbers.next().unwrap_or_default();
        let io = IoStats::of(std::array::from_fn(|at| if at < OF_DRIVER { next() } else { 0 }));
        let turns = next();
        let gathers = Gathers { count: next(), waited_ns: next(), ..Gathers::default() };
        let dropped = next();
        let card = CardCounts::of(std::array::from_fn(|_| next()));
        Self { io, turns, gathers, dropped, card }
    }
}

/// What a sleep costs is measured anew by each process: the last two of a driver's.
const OF_DRIVER: usize = IoStats::COUNT - 2;
const COUNT: usize = OF_DRIVER + 4 + CardCounts::COUNT;

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
