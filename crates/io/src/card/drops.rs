//! What became of every frame that the program has taken for ours, by name: what was received, and
//! why the rest was not.

use super::CardStats;
use ringgate_xdp::program::Counts;
use ringgate_xdp::queue::Statistics;

/// Everything that is counted about one worker's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounts {
    /// The program's.
    pub program: Counts,
    /// The driver's.
    pub driver: CardStats,
    /// The kernel's, at the queue's socket.
    pub kernel: Statistics,
}

/// Why a frame that the program had taken for ours went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardDrop {
    /// No datagram for one of our sockets, or not as the program lets them pass.
    Malformed,
    /// From an address that is our own, or that no host can have.
    Source,
    /// The header's checksum or the datagram's was wrong.
    Checksum,
    /// The worker was behind: the receive ring had no room.
    RingFull,
    /// The worker was behind: there was no memory to receive into.
    NoMemory,
    /// Longer than a frame, or not taken by the kernel for another reason.
    Unfit,
}

impl CardDrop {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Malformed,
        Self::Source,
        Self::Checksum,
        Self::RingFull,
        Self::NoMemory,
        Self::Unfit,
    ];

    /// The name used in metrics and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "frame_malformed",
            Self::Source => "frame_source",
            Self::Checksum => "frame_checksum",
            Self::RingFull => "frame_ring_full",
            Self::NoMemory => "frame_no_memory",
            Self::Unfit => "frame_unfit",
        }
    }
}

impl CardCounts {
    /// How many frames went no further for a reason.
    pub const fn dropped(&self, why: CardDrop) -> u64 {
        let Self { driver, kernel, .. } = self;
        match why {
            CardDrop::Malformed => driver.refused_shape,
            CardDrop::Source => driver.refused_source,
            CardDrop::Checksum => driver.refused_checksum,
            CardDrop::RingFull => kernel.receive_full,
            CardDrop::NoMemory => kernel.fill_empty,
            // In copy mode the kernel counts frames without memory here as well; a card with
            // zero-copy loses those before anybody sees them, and counts them itself.
            CardDrop::Unfit => kernel.dropped.saturating_sub(kernel.fill_empty),
        }
    }

    /// Frames that the program has taken and that are not accounted for: those that wait on the
    /// ring, in copy mode.
    pub fn waiting(&self) -> u64 {
        let dropped: u64 = CardDrop::ALL.iter().map(|why| self.dropped(*why)).sum();
        self.program.taken.saturating_sub(self.driver.received + dropped)
    }

    /// With what another process has counted before this one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mine, theirs) = (self.numbers(), other.numbers());
        Self::of(std::array::from_fn(|at| mine[at] + theirs[at]))
    }

    /// Without what was counted up to a moment before.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let (mine, theirs) = (self.numbers(), before.numbers());
        Self::of(std::array::from_fn(|at| mine[at].saturating_sub(theirs[at])))
    }

    /// From numbers of this release or another: what is missing is 0.
    pub fn of_given(numbers: &[u64]) -> Self {
        Self::of(std::array::from_fn(|at| numbers.get(at).copied().unwrap_or_default()))
    }

    /// Without the driver's, which begin anew with each process.
    #[must_use]
    pub const fn without_driver(self) -> Self {
        Self { driver: EMPTY, ..self }
    }

    /// In an order that does not change: new ones come last.
    pub const fn numbers(&self) -> [u64; Self::COUNT] {
        let Self { program, driver, kernel } = self;
        [
            program.taken,
            program.unserved,
            driver.received,
            driver.sent,
            driver.left_by_socket,
            driver.refused_shape,
            driver.refused_source,
            driver.refused_checksum,
            driver.kicks_failed,
            kernel.receive_full,
            kernel.fill_empty,
            kernel.dropped,
            kernel.invalid,
        ]
    }

    /// Those numbers again.
    pub const fn of(numbers: [u64; Self::COUNT]) -> Self {
        let [
            taken,
            unserved,
            received,
            sent,
            left_by_socket,
            refused_shape,
            refused_source,
            refused_checksum,
            kicks_failed,
            receive_full,
            fill_empty,
            dropped,
            invalid,
        ] = numbers;
        Self {
            program: Counts { taken, unserved },
            driver: CardStats {
                received,
                sent,
                left_by_socket,
                refused_shape,
                refused_source,
                refused_checksum,
                kicks_failed,
            },
            kernel: Statistics { receive_full, fill_empty, dropped, invalid },
        }
    }

    /// How many numbers there are.
    pub const COUNT: usize = 13;
}

const EMPTY: CardStats = CardCounts::of([0; CardCounts::COUNT]).driver;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_went_and_add_up() {
        let numbers = std::array::from_fn(|at| at as u64 + 1);
        let counts = CardCounts::of(numbers);
        assert_eq!(counts.numbers(), numbers);
        assert_eq!(counts.and(&counts).numbers(), numbers.map(|it| 2 * it));
        assert_eq!(CardCounts::default().and(&counts), counts);
    }

    #[test]
    fn every_frame_is_accounted_for_once() {
        let mut counts = CardCounts::default();
        counts.program.taken = 100;
        counts.driver.received = 80;
        counts.driver.refused_checksum = 4;
        counts.kernel.receive_full = 6;
        // Five without memory, two too long.
        (counts.kernel.fill_empty, counts.kernel.dropped) = (5, 7);
        assert_eq!(counts.dropped(CardDrop::Unfit), 2);
        assert_eq!(counts.waiting(), 3);
        let names: std::collections::HashSet<_> =
            CardDrop::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), CardDrop::ALL.len());
    }
}
