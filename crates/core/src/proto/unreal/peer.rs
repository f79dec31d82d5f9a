//! One end of a connection's packet header, as an engine keeps it: numbers what it sends, remembers
//! what arrived, learns what the other end has received. For test players and test servers; a
//! gateway only passes these packets on.
//!
//! A packet is taken if it is newer than all before and acknowledges no less than they did, and
//! nothing that was not sent. Everything else is dropped whole. So numbers that are skipped once
//! never arrive: reordering is loss here.

use super::PacketSeq;
use super::bits::{BitReader, BitWriter};
use super::cookie::Cookie;
use super::notify::{Fields, HISTORY_PACKETS_MAX, HISTORY_WORDS_MAX, Header, Sender};
use super::prefix::{Framing, Ids};
use crate::drops::DropReason;
use crate::limits::UNREAL_BYTES_MAX;

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
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
    latest_at: [PacketSeq; HISTORY_PACKETS_MAX],
}

impl Peer {
    /// That end of a connection whose handshake ended with this cookie.
    pub const fn new(side: Sender, cookie: &Cookie) -> Self {
        let (client, server) = (cookie.client_sequence(), cookie.server_sequence());
        let (own, other) = match side {
            Sender::Client => (client, server),
            Sender::Server => (server, client),
        };
        let before = other.wrapping_sub(1);
        Self {
            next: own,
            acked: own.wrapping_sub(1),
            latest: before,
            latest_known: before,
            history: [0; HISTORY_WORDS_MAX],
            latest_at: [before; HISTORY_PACKETS_MAX],
        }
    }

    /// The number of the next packet that leaves.
    pub const fn next(&self) -> PacketSeq {
        self.next
    }

    /// The newest packet that arrived.
    pub const fn latest(&self) -> PacketSeq {
        self.latest
    }

    /// How many packets have left that nothing is known about.
    pub const fn in_flight(&self) -> usize {
        self.next.distance_from(self.acked) as usize - 1
    }

    /// Writes a packet with these bits behind the header, and returns its length. `None` where as
    /// many packets are in flight as a history can answer for.
    ///
    /// # Panics
    /// Where the buffer is too short.
    pub fn write(
        &mut self,
        framing: &Framing,
        ids: Ids,
        payload: BitReader<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        if self.in_flight() >= HISTORY_PACKETS_MAX {
            return None;
        }
        let mut out = BitWriter::new(out);
        let history = &self.history[..self.history_words()];
        let fields = Fields { sequence: self.next, acked: self.latest, history };
        fields.write(framing, ids, &mut out);
        out.copy(payload);
        self.latest_at[place(self.next)] = self.latest;
        self.next = self.next.wrapping_add(1);
        Some(out.finish(TERMINATORS))
    }

    /// Writes a packet without packet info whose bunches `bunches` writes; otherwise as
    /// [`write`](Self::write).
    pub fn write_bunches(
        &mut self,
        framing: &Framing,
        ids: Ids,
        bunches: impl FnOnce(&mut BitWriter<'_>),
        out: &mut [u8],
    ) -> Option<usize> {
        let mut bytes = [0; UNREAL_BYTES_MAX];
        let mut writer = BitWriter::new(&mut bytes);
        let has_packet_info = false;
        writer.flag(has_packet_info);
        bunches(&mut writer);
        let bits = writer.position();
        let payload = BitReader::new(&bytes).take(bits)?;
        self.write(framing, ids, payload, out)
    }

    /// Takes a packet in and tells `on_news` what became of each of our packets that it is the
    /// first to speak of.
    ///
    /// `is_delivered` says whether its content could be used; otherwise it is reported as lost to
    /// its sender.
    pub fn handle_header(
        &mut self,
        header: &Header<'_>,
        is_delivered: bool,
        mut on_news: impl FnMut(PacketSeq, bool),
    ) -> Result<(), DropReason> {
        let steps = header.sequence.distance_from(self.latest);
        if steps <= 0 {
            return Err(DropReason::ReplayTooOld);
        }
        let is_known = header.acked.distance_from(self.acked) >= 0;
        if !is_known || !self.next.is_newer_than(header.acked) {
            return Err(DropReason::AckImplausible);
        }
        if header.acked != self.acked {
            header
                .news_since(self.acked)
                .for_each(|(sequence, arrived)| on_news(sequence, arrived));
            self.acked = header.acked;
            self.latest_known = self.latest_at[place(header.acked)];
        }
        self.record(steps as usize, is_delivered);
        self.latest = header.sequence;
        Ok(())
    }

    /// One word at least; everything that the other end is not known to have heard, as far as there
    /// is room.
    fn history_words(&self) -> usize {
        let untold = self.latest.distance_from(self.latest_known).max(0) as usize;
        untold.div_ceil(u32::BITS as usize).clamp(1, HISTORY_WORDS_MAX)
    }

    /// Makes the history begin `steps` packets later; those between count as lost.
    fn record(&mut self, steps: usize, is_delivered: bool) {
        for _ in 0..steps.min(HISTORY_PACKETS_MAX) {
            let mut carry = 0;
            for word in &mut self.history {
                (*word, carry) = (*word << 1 | carry, *word >> 31);
            }
        }
        self.history[0] |= u32::from(is_delivered);
    }
}

/// Where the record of one of our packets lies.
const fn place(sequence: PacketSeq) -> usize {
    sequence.value() as usize % HISTORY_PACKETS_MAX
}

/// A game packet ends twice: for the connection, and for the layer below it.
const TERMINATORS: usize = 2;

// Numbers wrap at a multiple of the table, so that neighbours never share a place.
const _: () = assert!((PacketSeq::MAX.value() as usize + 1).is_multiple_of(HISTORY_PACKETS_MAX));

#[cfg(test)]
mod tests;
