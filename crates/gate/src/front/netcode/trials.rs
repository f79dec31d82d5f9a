//! Packets from new ports on their way through one turn: each with the sessions that it is tried
//! against, and a copy for each of them, so that all are opened in the turn's one batch.
//!
//! Everything is reserved at the start. What does not fit waits for its player's next packet.

use std::ops::Range;

use crate::arrivals::Origin;
use crate::front::netcode::session::Session;
use crate::store::entry::Entry;
use ringgate_core::proto::netcode::packet::Header;

pub(crate) struct Trials {
    movers: Vec<Mover>,
    /// The sessions that packets are tried against.
    candidates: Vec<Entry<Session>>,
    /// What came by mail, and copies for each candidate.
    bytes: Vec<u8>,
}

/// A packet from a new port.
#[derive(Clone, Copy)]
pub(crate) struct Mover {
    pub(crate) header: Header,
    /// Where it came from, if it was by mail.
    pub(crate) origin: Option<Origin>,
    /// How long it is.
    len: usize,
    /// Where its copies begin; behind the packet itself, if that came by mail.
    copies_at: usize,
    /// Its first candidate, and how many it has.
    first: usize,
    count: usize,
    /// Whether other workers have sessions of its address too.
    pub(crate) is_others: bool,
}

impl Trials {
    pub(crate) fn new() -> Self {
        Self {
            movers: Vec::with_capacity(MOVERS_MAX),
            candidates: Vec::with_capacity(CANDIDATES_MAX),
            bytes: Vec::with_capacity(BYTES_MAX),
        }
    }

    /// How many more copies of a packet there is room for, next to the packet itself.
    pub(crate) fn room_for(&self, len: usize) -> usize {
        if self.movers.len() >= MOVERS_MAX {
            return 0;
        }
        let copies = (BYTES_MAX - self.bytes.len()) / len.max(1);
        copies.saturating_sub(1).min(CANDIDATES_MAX - self.candidates.len())
    }

    /// Takes a packet in, with its candidates; there must be room. Returns its number.
    pub(crate) fn push(
        &mut self,
        header: Header,
        origin: Option<Origin>,
        packet: &[u8],
        candidates: &[Entry<Session>],
        is_others: bool,
    ) -> u32 {
        if origin.is_some() {
            self.bytes.extend_from_slice(packet);
        }
        let (copies_at, first) = (self.bytes.len(), self.candidates.len());
        for _ in candidates {
            self.bytes.extend_from_slice(packet);
        }
        self.candidates.extend_from_slice(candidates);
        let (len, count) = (packet.len(), candidates.len());
        self.movers.push(Mover { header, origin, len, copies_at, first, count, is_others });
        self.movers.len() as u32 - 1
    }

    /// How many packets there are.
    pub(crate) fn len(&self) -> usize {
        self.movers.len()
    }

    pub(crate) fn mover(&self, number: u32) -> Mover {
        self.movers[number as usize]
    }

    /// How many copies there are to be opened.
    pub(crate) fn candidate_count(&self) -> usize {
        self.candidates.len()
    }

    /// The candidates of a packet: the number of each copy, and the session that it is for.
    pub(crate) fn candidates_of(
        &self,
        mover: &Mover,
    ) -> impl Iterator<Item = (usize, Entry<Session>)> + '_ {
        let range = mover.first..mover.first + mover.count;
        range.clone().zip(self.candidates[range].iter().copied())
    }

    /// Every copy, with its number, the session that it is for, and its header.
    pub(crate) fn copies(
        &mut self,
    ) -> impl Iterator<Item = (usize, Entry<Session>, Header, &mut [u8])> {
        let mut rest = &mut self.bytes[..];
        let mut taken = 0;
        let candidates = &self.candidates;
        let each = self.movers.iter().flat_map(|mover| {
            (0..mover.count)
                .map(move |nth| (mover, mover.first + nth, mover.copies_at + nth * mover.len))
        });
        each.map(move |(mover, number, at)| {
            let (_, here) = std::mem::take(&mut rest).split_at_mut(at - taken);
            let (copy, behind) = here.split_at_mut(mover.len);
            (taken, rest) = (at + mover.len, behind);
            (number, candidates[number], mover.header, copy)
        })
    }

    /// Lends out the memory of all packets, which [`give_back`](Self::give_back) takes again.
    pub(crate) fn lend(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Forgets all packets.
    pub(crate) fn clear(&mut self) {
        self.movers.clear();
        self.candidates.clear();
        self.bytes.clear();
    }
}

impl Mover {
    pub(crate) const fn has_candidates(&self) -> bool {
        self.count > 0
    }

    /// Where the copy lies that has this number.
    pub(crate) fn copy(&self, number: usize) -> Range<usize> {
        let at = self.copies_at + (number - self.first) * self.len;
        at..at + self.len
    }

    /// Where the packet itself lies, if it came by mail.
    pub(crate) fn packet(&self) -> Range<usize> {
        self.copies_at - self.len..self.copies_at
    }
}

/// Packets from new ports in one turn.
const MOVERS_MAX: usize = 1024;

/// Copies to be opened in one turn: 0.5 ms.
const CANDIDATES_MAX: usize = 4096;

/// Copies of a hundred bytes each, or correspondingly fewer.
const BYTES_MAX: usize = 400 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::proto::netcode::packet::PacketKind;

    #[test]
    fn every_candidate_has_a_copy_of_its_own() {
        let mut trials = Trials::new();
        let header = Header::new(PacketKind::Payload, 7);
        trials.push(header, None, b"abc", &[5, 6].map(Entry::numbered), false);
        trials.push(header, None, b"none", &[], true);
        trials.push(header, None, b"defgh", &[Entry::numbered(9)], false);
        let copies: Vec<_> =
            trials.copies().map(|(n, index, _, it)| (n, index.number(), it.to_vec())).collect();
        let expected =
            [(0, 5, b"abc".to_vec()), (1, 6, b"abc".to_vec()), (2, 9, b"defgh".to_vec())];
        assert_eq!(copies, expected);
        let last = trials.mover(2);
        assert_eq!(trials.candidates_of(&last).collect::<Vec<_>>(), [(2, Entry::numbered(9))]);
        let bytes = trials.lend();
        assert_eq!(bytes[last.copy(2)], *b"defgh");
        trials.give_back(bytes);
        trials.clear();
        assert_eq!(trials.len(), 0);
    }

    #[test]
    fn what_has_no_room_is_not_taken() {
        let mut trials = Trials::new();
        let header = Header::new(PacketKind::Payload, 7);
        let capacity = trials.bytes.capacity();
        while trials.room_for(1300) > 0 {
            let count = trials.room_for(1300).min(64);
            trials.push(header, None, &[0; 1300], &vec![Entry::numbered(1); count], false);
        }
        assert_eq!(trials.bytes.capacity(), capacity);
        trials.clear();
        for _ in 0..MOVERS_MAX {
            trials.push(header, None, b"x", &[], false);
        }
        assert_eq!(trials.room_for(1), 0);
    }
}
