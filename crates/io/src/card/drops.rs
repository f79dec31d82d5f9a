//! What became of every frame that the program has taken for ours, by name: what was received, and
//! why the rest was not.

ringgate_core::numbered! {
    /// Everything that is counted about one worker's frames.
    pub struct CardCounts;
    /// Frames that the program has given to the queue's AF_XDP socket.
    taken,
    /// Frames that it has given to the kernel, because the queue has no AF_XDP socket.
    unserved,
    /// Datagrams that have come in frames.
    received,
    /// Datagrams that have left in frames.
    sent,
    /// Datagrams for players that have left by their sockets: the card could not take them.
    left_by_socket,
    /// Frames that were no datagram for one of our sockets, or not as the program lets them
    /// pass.
    refused_shape,
    /// Frames from an address that is our own, or no host's.
    refused_source,
    /// Frames whose checksum was wrong.
    refused_checksum,
    /// Times the kernel would not send.
    kicks_failed,
    /// Frames for which the receive ring had no room, as the kernel says.
    receive_full,
    /// Frames for which the fill ring had no memory.
    fill_empty,
    /// Frames that were too long, or that could not be taken for another reason.
    dropped,
    /// Memory that we gave and the kernel did not take: a mistake of ours.
    invalid,
}

ringgate_core::named! {
    /// Why a frame that the program had taken for ours went no further.
    pub enum CardDrop;
    /// No datagram for one of our sockets, or not as the program lets them pass.
    Malformed = "frame_malformed",
    /// From an address that is our own, or that no host can have.
    Source = "frame_source",
    /// The header's checksum or the datagram's was wrong.
    Checksum = "frame_checksum",
    /// The worker was behind: the receive ring had no room.
    RingFull = "frame_ring_full",
    /// The worker was behind: there was no memory to receive into.
    NoMemory = "frame_no_memory",
    /// Longer than a frame, or not taken by the kernel for another reason.
    Unfit = "frame_unfit",
}

impl CardCounts {
    /// How many frames went no further for a reason.
    pub const fn dropped(&self, why: CardDrop) -> u64 {
        match why {
            CardDrop::Malformed => self.refused_shape,
            CardDrop::Source => self.refused_source,
            CardDrop::Checksum => self.refused_checksum,
            CardDrop::RingFull => self.receive_full,
            CardDrop::NoMemory => self.fill_empty,
            // In copy mode the kernel counts frames without memory here as well; a card with
            // zero-copy loses those before anybody sees them, and counts them itself.
            CardDrop::Unfit => self.dropped.saturating_sub(self.fill_empty),
        }
    }

    /// Frames that the program has taken and that are not accounted for: those that wait on the
    /// ring, in copy mode.
    pub fn waiting(&self) -> u64 {
        let dropped: u64 = CardDrop::ALL.iter().map(|why| self.dropped(*why)).sum();
        self.taken.saturating_sub(self.received + dropped)
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
    pub fn without_driver(self) -> Self {
        let Self { taken, unserved, receive_full, fill_empty, dropped, invalid, .. } = self;
        Self { taken, unserved, receive_full, fill_empty, dropped, invalid, ..Self::default() }
    }
}

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
        let counts = CardCounts {
            taken: 100,
            received: 80,
            refused_checksum: 4,
            receive_full: 6,
            // Five without memory, two too long.
            fill_empty: 5,
            dropped: 7,
            ..CardCounts::default()
        };
        assert_eq!(counts.dropped(CardDrop::Unfit), 2);
        assert_eq!(counts.waiting(), 3);
        let names: std::collections::HashSet<_> =
            CardDrop::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), CardDrop::ALL.len());
    }
}
