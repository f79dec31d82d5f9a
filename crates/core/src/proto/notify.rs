//! Packets that acknowledge each other: one end of a numbered, lossy connection, which learns of
//! each packet that it has sent whether it arrived, exactly once and in order.
//!
//! Every packet has a number of 14 bits, the number of the newest packet that has arrived from the
//! other end, and a history: a bit for each packet before that one. The history goes back as far as
//! the other end is not known to have heard, and no further than 256 packets; what falls off it
//! counts as lost. Nothing is ever sent again: whoever wants to repeat what a lost packet said puts
//! it into another one.
//!
//! A packet is taken if it is newer than all before it and acknowledges no less than they did, and
//! nothing that was not sent. So what comes late is lost, and is reported as lost to its sender.
//!
//! How the header lies in a packet is not known here: games of Unreal Engine have it as bits behind
//! a prefix ([`unreal::notify`](super::unreal::notify)), the delivery layer as words
//! ([`delivery`](super::delivery)).

use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;
use crate::proto::seq::Seq;

/// The number of a packet, in both directions.
pub type PacketSeq = Seq<14>;

/// The longest history, in words of 32 packets.
pub const HISTORY_WORDS_MAX: usize = 8;

/// How many packets the longest history covers, and so how many may be in flight.
pub const HISTORY_PACKETS_MAX: usize = HISTORY_WORDS_MAX * WORD_BITS;

/// What the header of a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's number.
    pub sequence: PacketSeq,
    /// The newest packet of the other side that has arrived.
    pub acked: PacketSeq,
    /// Bit `i` of word `w` is about packet `acked - (32 w + i)`: 1 where it arrived. Words that
    /// were not sent are zero.
    pub history: [u32; HISTORY_WORDS_MAX],
}

impl Header {
    /// Whether the packet `age` numbers before [`acked`](Self::acked) has arrived, as the sender
    /// says.
    #[inline]
    pub fn has_arrived(&self, age: usize) -> bool {
        self.history.get(age / WORD_BITS).is_some_and(|word| word >> (age % WORD_BITS) & 1 == 1)
    }

    /// What became of every packet after `known` up to [`acked`](Self::acked), oldest first. Empty
    /// where the header acknowledges nothing new.
    pub fn news_since(&self, known: PacketSeq) -> impl Iterator<Item = (PacketSeq, bool)> + '_ {
        let count = usize::try_from(self.acked.distance_from(known)).unwrap_or(0);
        let status = |age| (self.acked.wrapping_sub(age as u64), self.has_arrived(age));
        (0..count).rev().map(status)
    }
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Notify {
    /// The number of the next packet that leaves.
    next: PacketSeq,
    /// The newest of our packets that the other end has acknowledged, arrived or not.
    acked: PacketSeq,
    /// The newest packet that arrived.
    latest: PacketSeq,
    /// The newest packet that the other end knows us to have acknowledged: older ones need not be
    /// told again.
    latest_known: PacketSeq,
    /// Which packets arrived: bit `i` of word `w` is about `latest - (32 w + i)`.
    history: [u32; HISTORY_WORDS_MAX],
    /// What `latest` was when each of our unacknowledged packets left, by its number modulo the
    /// length.
    latest_at: [u16; HISTORY_PACKETS_MAX],
}

impl Notify {
    /// An end whose first packet has the number `own`, and whose peer's first one has `other`.
    pub const fn starting_at(own: PacketSeq, other: PacketSeq) -> Self {
        let before = other.wrapping_sub(1);
        Self {
            next: own,
            acked: own.wrapping_sub(1),
            latest: before,
            latest_known: before,
            history: [0; HISTORY_WORDS_MAX],
            latest_at: [before.value() as u16; HISTORY_PACKETS_MAX],
        }
    }

    /// The number of the next packet that leaves.
    #[inline]
    pub const fn next(&self) -> PacketSeq {
        self.next
    }

    /// The newest packet that arrived: what the next packet acknowledges.
    #[inline]
    pub const fn latest(&self) -> PacketSeq {
        self.latest
    }

    /// Whether a packet of the other end has arrived, as far as the history goes back.
    pub fn has_arrived(&self, number: PacketSeq) -> bool {
        usize::try_from(self.latest.distance_from(number)).is_ok_and(|age| {
            self.history.get(age / WORD_BITS).is_some_and(|word| word >> (age % WORD_BITS) & 1 == 1)
        })
    }

    /// The history that the next packet has: one word at least, and everything that the other end
    /// is not known to have heard, as far as there is room.
    pub fn history(&self) -> &[u32] {
        let untold = self.latest.distance_from(self.latest_known).max(0) as usize;
        &self.history[..untold.div_ceil(WORD_BITS).clamp(1, HISTORY_WORDS_MAX)]
    }

    /// How many packets have left that nothing is known about.
    #[inline]
    pub const fn in_flight(&self) -> usize {
        self.next.distance_from(self.acked) as usize - 1
    }

    /// Whether another packet may leave: no more are in flight than a history can answer for.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.in_flight() < HISTORY_PACKETS_MAX
    }

    /// A packet has left with [`next`](Self::next), [`latest`](Self::latest) and
    /// [`history`](Self::history). Invariant: [`has_room`](Self::has_room) was true.
    #[inline]
    pub fn handle_sent(&mut self) {
        debug_assert!(self.has_room(), "a packet that no history can answer for");
        self.latest_at[place(self.next)] = self.latest.value() as u16;
        self.next = self.next.wrapping_add(1);
    }

    /// How many packets after the newest one this is; nothing positive where it is late.
    #[inline]
    pub const fn steps_to(&self, header: &Header) -> i64 {
        header.sequence.distance_from(self.latest)
    }

    /// Whether [`handle_header`](Self::handle_header) would take the packet.
    #[inline]
    pub const fn check(&self, header: &Header) -> Result<(), DropReason> {
        if self.steps_to(header) <= 0 {
            return Err(DropReason::ReplayTooOld);
        }
        let is_known = header.acked.distance_from(self.acked) >= 0;
        if is_known && self.next.is_newer_than(header.acked) {
            Ok(())
        } else {
            Err(DropReason::AckImplausible)
        }
    }

    /// Takes a packet in and tells `on_news` what became of each of our packets that it is the
    /// first to speak of.
    ///
    /// `is_delivered` says whether its content could be used; otherwise it is reported as lost to
    /// its sender.
    #[inline]
    pub fn handle_header(
        &mut self,
        header: &Header,
        is_delivered: bool,
        mut on_news: impl FnMut(PacketSeq, bool),
    ) -> Result<(), DropReason> {
        self.check(header)?;
        if header.acked != self.acked {
            let news = header.news_since(self.acked);
            news.for_each(|(sequence, arrived)| on_news(sequence, arrived));
            self.acked = header.acked;
            self.latest_known = PacketSeq::new(self.latest_at[place(header.acked)].into());
        }
        self.record(self.steps_to(header) as usize, is_delivered);
        self.latest = header.sequence;
        Ok(())
    }

    /// Makes the history begin `steps` packets later; those between count as lost.
    fn record(&mut self, steps: usize, is_delivered: bool) {
        let (words, bits) = (steps / WORD_BITS, steps % WORD_BITS);
        let old = self.history;
        let word_at = |index: usize| index.checked_sub(words).map_or(0, |index| old[index]);
        for (index, word) in self.history.iter_mut().enumerate() {
            let carried = index.checked_sub(1).map_or(0, word_at);
            let shifted = u64::from(word_at(index)) << WORD_BITS | u64::from(carried);
            *word = (shifted >> (WORD_BITS - bits)) as u32;
        }
        self.history[0] |= u32::from(is_delivered);
    }
}

impl Carry for Notify {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { next, acked, latest, latest_known, history, latest_at } = self;
        next.write(out);
        acked.write(out);
        latest.write(out);
        latest_known.write(out);
        history.write(out);
        for age in 1..=self.in_flight() as u64 {
            latest_at[place(self.acked.wrapping_add(age))].write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (next, acked) = (PacketSeq::read(from)?, PacketSeq::read(from)?);
        let mut end = Self::starting_at(next, PacketSeq::read(from)?.wrapping_add(1));
        end.latest_known = PacketSeq::read(from)?;
        end.history = Carry::read(from)?;
        end.acked = acked;
        if !(1..=HISTORY_PACKETS_MAX as i64 + 1).contains(&next.distance_from(acked)) {
            return Err(Broken::Invalid("number of packets in flight"));
        }
        for age in 1..=end.in_flight() as u64 {
            end.latest_at[place(acked.wrapping_add(age))] = u16::read(from)?;
        }
        Ok(end)
    }
}

/// Where the record of one of our packets lies.
const fn place(sequence: PacketSeq) -> usize {
    sequence.value() as usize % HISTORY_PACKETS_MAX
}

const WORD_BITS: usize = u32::BITS as usize;

// Numbers wrap at a multiple of the table, so that neighbours never share a place.
const _: () = assert!((PacketSeq::MAX.value() as usize + 1).is_multiple_of(HISTORY_PACKETS_MAX));

#[cfg(test)]
mod tests;
