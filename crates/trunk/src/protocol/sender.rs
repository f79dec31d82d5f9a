//! One direction of a lane, at its sender: records become datagrams, as few as the way allows.
//!
//! Records are written once, into the datagrams that leave, and all of them are sealed side by side
//! and in place. There is room for one batch: who finds none sends first, and what still does not
//! fit is for the caller to drop by name.

use std::mem;

use arrayvec::ArrayVec;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::crypto::{Aead, Job};
use ringgate_link::bundle::{BUNDLE_BYTES_MAX, Frame, Run};

use crate::protocol::beat::Beat;
use crate::protocol::datagram::{HEADER_BYTES, Header, PATH_BYTES_MAX, PATH_BYTES_MIN, TAG_BYTES};
use crate::protocol::keys::SendKeys;
use crate::protocol::sections::{MARK_BYTES, PIECE_BYTES, RECORDS_BYTES, SECTION_BYTES, kind};

/// Datagrams of a batch.
pub(crate) const SLOTS: usize = 64;

/// Distance of two datagrams in memory: an odd number of cache lines.
const SLOT_BYTES: usize = 141 * 64;

/// Bytes before the first section.
const BODY_AT: usize = HEADER_BYTES + MARK_BYTES;

/// A datagram that lacks at most this part of its length is filled up, where another follows: equal
/// lengths let the kernel segment one long send.
const FILL_SHARE: usize = 8;

const _: () = assert!(SLOT_BYTES >= PATH_BYTES_MAX);

/// Bytes of a question's section.
const QUESTION_SECTION_BYTES: u16 = SECTION_BYTES as u16 + 8;

/// And of its datagram.
pub const QUESTION_BYTES: usize = BODY_AT + QUESTION_SECTION_BYTES as usize + TAG_BYTES;

/// There is no room: send what there is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams, and their bytes.
    pub datagrams: u64,
    /// All bytes of those.
    pub bytes: u64,
    /// Payloads that were taken.
    pub payloads: u64,
    /// Records that did not fit one datagram.
    pub split: u64,
}

ringgate_core::carried!(Sent { datagrams, bytes, payloads, split });

#[derive(Debug)]
pub(crate) struct Sender {
    lane: u8,
    trunk: u32,
    keys: SendKeys,
    sequence: u64,
    memory: Box<[u8]>,
    /// How long the datagrams are, those that have begun; without the tag until they are sealed.
    lens: ArrayVec<usize, SLOTS>,
    /// Of the last one: where its open section of records begins, and whose records those are.
    section: Option<(usize, u16)>,
    /// Nothing is added to the last one.
    is_closed: bool,
    /// How many were sent, once they are sealed.
    sent: Option<usize>,
    path_bytes: usize,
    piece_number: u16,
    mark: u32,
    pub(crate) counts: Sent,
}

impl Sender {
    pub(crate) fn new(trunk: u32, lane: u8, keys: SendKeys) -> Self {
        Self {
            lane,
            trunk,
            keys,
            sequence: 0,
            memory: vec![0; SLOTS * SLOT_BYTES].into_boxed_slice(),
            lens: ArrayVec::new(),
            section: None,
            is_closed: false,
            sent: None,
            path_bytes: PATH_BYTES_MIN,
            piece_number: 0,
            mark: 0,
            counts: Sent::default(),
        }
    }

    /// Whether it is the one of that lane.
    pub(crate) fn is_of(&self, which: (u32, u8)) -> bool {
        (self.trunk, self.lane) == which
    }

    /// Another process may have used the next numbers: goes on far behind them. The receiver
    /// knows such a gap from a loss by its size.
    pub(crate) const fn jump(&mut self) {
        self.sequence += JUMP;
    }

    /// How long datagrams may be that begin from now on.
    pub(crate) fn set_path(&mut self, bytes: usize) {
        if mem::replace(&mut self.path_bytes, bytes) != bytes {
            self.is_closed = true;
        }
    }

    /// An ordered record leaves by the stream, before everything that is pushed from now on.
    pub(crate) const fn advance_mark(&mut self) {
        self.mark = self.mark.wrapping_add(1);
    }

    /// How many of them the stream was given.
    pub(crate) const fn mark(&self) -> u32 {
        self.mark
    }

    /// So many, by others.
    pub(crate) const fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.keys.epoch()
    }

    /// Appends a record.
    #[inline]
    pub(crate) fn push(&mut self, link: u16, frame: Frame<'_>) -> Result<(), Full> {
        let bytes = frame.bytes();
        let payloads = frame.payloads();
        if self.sent.is_some() {
            return Err(Full);
        }
        let pushed = if let Some((at, of)) = self.section
            && of == link
            && bytes.len() <= self.room()
        {
            self.append(at, bytes);
            Ok(())
        } else if RECORDS_BYTES + bytes.len() <= self.room() {
            self.begin_section(link, bytes);
            Ok(())
        } else if RECORDS_BYTES + bytes.len() <= self.empty_room() {
            self.begin().map(|()| self.begin_section(link, bytes))
        } else {
            self.split(link, bytes)
        };
        if pushed.is_ok() {
            self.counts.payloads += payloads;
        }
        pushed
    }

    /// Appends records, as many as there is room for, and takes them off.
    #[inline]
    pub(crate) fn push_run(&mut self, link: u16, run: &mut Run<'_>) -> Result<(), Full> {
        while !run.is_empty() {
            if let Some((at, _)) = self.section.filter(|(_, of)| *of == link && self.sent.is_none())
            {
                let part = run.take(self.room());
                if !part.is_empty() {
                    self.append(at, part.bytes());
                    self.counts.payloads += part.payloads();
                    continue;
                }
            }
            // The first of a section, or of a datagram.
            let mut rest = *run;
            let Some(first) = rest.take_first() else { break };
            self.push(link, first)?;
            *run = rest;
        }
        Ok(())
    }

    /// Appends a beat, in a datagram of its own: one that every way carries.
    pub(crate) fn push_beat(&mut self, beat: Beat) -> Result<(), Full> {
        self.begin()?;
        self.write(kind::BEAT, &[&beat.to_bytes()]);
        self.is_closed = true;
        Ok(())
    }

    /// Appends a datagram of exactly this length, which asks whether it arrives.
    pub(crate) fn push_probe(&mut self, bytes: usize) -> Result<(), Full> {
        debug_assert!((PATH_BYTES_MIN..=PATH_BYTES_MAX).contains(&bytes), "{bytes}");
        self.begin()?;
        self.write(kind::PROBE, &[&(bytes as u16).to_le_bytes()]);
        let last = self.lens.len() - 1;
        self.fill(last, bytes - TAG_BYTES);
        self.is_closed = true;
        Ok(())
    }

    /// Appends the answer to a probe.
    pub(crate) fn push_probed(&mut self, bytes: u16) -> Result<(), Full> {
        if self.sent.is_some() || self.room() < SECTION_BYTES + 2 {
            self.begin()?;
        }
        self.write(kind::PROBED, &[&bytes.to_le_bytes()]);
        Ok(())
    }

    /// Appends the answer to one.
    pub(crate) fn push_answer(&mut self, question: u64) -> Result<(), Full> {
        if self.sent.is_some() || self.room() < SECTION_BYTES + 8 {
            self.begin()?;
        }
        self.write(kind::ANSWER, &[&question.to_le_bytes()]);
        Ok(())
    }

    /// Seals everything that was appended, unless something that is sealed still waits.
    pub(crate) fn seal(&mut self, now_ns: u64, aead: &mut Aead) {
        if self.lens.is_empty() || self.sent.is_some() {
            return;
        }
        self.fill_up();
        let (key, epoch) = self.keys.key_for(self.lens.len() as u64, now_ns);
        let mut jobs: ArrayVec<Job<'_>, SLOTS> = ArrayVec::new();
        for (slot, len) in self.memory.chunks_exact_mut(SLOT_BYTES).zip(&mut self.lens) {
            let header =
                Header { lane: self.lane, epoch, trunk: self.trunk, sequence: self.sequence };
            self.sequence += 1;
            *len += TAG_BYTES;
            let (place, rest) = slot[..*len].split_at_mut(HEADER_BYTES);
            place.copy_from_slice(&header.to_bytes());
            rest[..MARK_BYTES].copy_from_slice(&self.mark.to_le_bytes());
            jobs.push(Job::new(key, nonce(header.sequence), place, rest));
        }
        aead.seal(&mut jobs);
        self.counts.datagrams += jobs.len() as u64;
        self.counts.bytes += self.lens.iter().map(|len| *len as u64).sum::<u64>();
        self.sent = Some(0);
        self.section = None;
    }

    /// A question, sealed in a datagram of its own beside all that waits: it is for one address.
    pub(crate) fn question(
        &mut self,
        question: u64,
        now_ns: u64,
        aead: &mut Aead,
    ) -> [u8; QUESTION_BYTES] {
        let mut datagram = [0; QUESTION_BYTES];
        let (key, epoch) = self.keys.key_for(1, now_ns);
        let header = Header { lane: self.lane, epoch, trunk: self.trunk, sequence: self.sequence };
        self.sequence += 1;
        let (place, rest) = datagram.split_at_mut(HEADER_BYTES);
        place.copy_from_slice(&header.to_bytes());
        let (mark, section) = rest.split_at_mut(MARK_BYTES);
        mark.copy_from_slice(&self.mark.to_le_bytes());
        section[..2].copy_from_slice(&QUESTION_SECTION_BYTES.to_le_bytes());
        section[2] = kind::QUESTION;
        section[SECTION_BYTES..][..8].copy_from_slice(&question.to_le_bytes());
        aead.seal(&mut [Job::new(key, nonce(header.sequence), place, rest)]);
        self.counts.datagrams += 1;
        self.counts.bytes += QUESTION_BYTES as u64;
        datagram
    }

    /// What is sealed and was not sent.
    pub(crate) fn pending(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let sealed = if self.sent.is_some() { self.lens.as_slice() } else { &[] };
        let datagrams = self.memory.chunks_exact(SLOT_BYTES).zip(sealed);
        datagrams.map(|(slot, len)| &slot[..*len]).skip(self.sent.unwrap_or(0))
    }

    /// So many of those were sent, or given up.
    pub(crate) fn handle_sent(&mut self, count: usize) {
        let Some(sent) = &mut self.sent else { return };
        *sent = sent.saturating_add(count);
        if *sent >= self.lens.len() {
            self.sent = None;
            self.lens.clear();
            self.section = None;
            self.is_closed = false;
        }
    }

    /// Whether nothing was appended since the last time that all was sent.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// How much more the last datagram takes.
    #[inline]
    fn room(&self) -> usize {
        match self.lens.last() {
            Some(len) if !self.is_closed => (self.path_bytes - TAG_BYTES).saturating_sub(*len),
            _ => 0,
        }
    }

    /// How much the next one takes.
    const fn empty_room(&self) -> usize {
        self.path_bytes - BODY_AT - TAG_BYTES
    }

    fn begin(&mut self) -> Result<(), Full> {
        if self.sent.is_some() {
            return Err(Full);
        }
        self.lens.try_push(BODY_AT).map_err(|_| Full)?;
        self.section = None;
        self.is_closed = false;
        Ok(())
    }

    fn begin_section(&mut self, link: u16, record: &[u8]) {
        let at = self.lens.last().copied().unwrap_or_default();
        self.write(kind::RECORDS, &[&link.to_le_bytes(), record]);
        self.section = Some((at, link));
    }

    /// Appends a record to the open section.
    #[inline]
    fn append(&mut self, at: usize, record: &[u8]) {
        let last = self.lens.len() - 1;
        let (slot, len) = (&mut self.memory[last * SLOT_BYTES..], &mut self.lens[last]);
        slot[*len..][..record.len()].copy_from_slice(record);
        *len += record.len();
        let section_bytes = (*len - at) as u16;
        slot[at..at + 2].copy_from_slice(&section_bytes.to_le_bytes());
    }

    /// Appends a section to the last datagram, which has room for it.
    fn write(&mut self, kind: u8, parts: &[&[u8]]) {
        let last = self.lens.len() - 1;
        let (slot, len) = (&mut self.memory[last * SLOT_BYTES..], &mut self.lens[last]);
        let bytes = SECTION_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        slot[*len..][..2].copy_from_slice(&(bytes as u16).to_le_bytes());
        slot[*len + 2..][..2].copy_from_slice(&[kind, 0]);
        *len += SECTION_BYTES;
        for part in parts {
            slot[*len..][..part.len()].copy_from_slice(part);
            *len += part.len();
        }
        self.section = None;
    }

    /// Appends a record in pieces, all or none.
    fn split(&mut self, link: u16, record: &[u8]) -> Result<(), Full> {
        debug_assert!(record.len() <= BUNDLE_BYTES_MAX, "no record is longer");
        let piece_bytes = self.empty_room() - (PIECE_BYTES);
        if self.lens.remaining_capacity() < record.len().div_ceil(piece_bytes) {
            return Err(Full);
        }
        let (number, total) = (self.piece_number, record.len() as u16);
        for (index, piece) in record.chunks(piece_bytes).enumerate() {
            self.begin()?;
            let offset = (index * piece_bytes) as u16;
            let fields = [link, number, offset, total].map(u16::to_le_bytes);
            self.write(kind::PIECE, &[fields.as_flattened(), piece]);
        }
        self.piece_number = number.wrapping_add(1);
        self.counts.split += 1;
        Ok(())
    }

    /// Makes datagrams before the last as long as the way allows, where that costs little.
    fn fill_up(&mut self) {
        let full = self.path_bytes - TAG_BYTES;
        for index in 0..self.lens.len() - 1 {
            let len = self.lens[index];
            if len < full && full - len <= full / FILL_SHARE {
                self.fill(index, full);
            }
        }
    }

    fn fill(&mut self, index: usize, bytes: usize) {
        let len = mem::replace(&mut self.lens[index], bytes);
        self.memory[index * SLOT_BYTES..][len..bytes].fill(0);
    }
}

/// What is sealed and was not sent goes along; what is not sealed does not.
impl Carry for Sender {
    fn write(&self, out: &mut Writer<'_>) {
        let pending = self.pending();
        let Self { lane, trunk, keys, sequence, path_bytes, piece_number, mark, counts, .. } = self;
        // Of the rest it is said above what becomes of it.
        let Self { memory: _, lens: _, section: _, is_closed: _, sent: _, .. } = self;
        (*lane, *trunk).write(out);
        keys.write(out);
        (*sequence, *path_bytes).write(out);
        (*piece_number, *mark).write(out);
        counts.write(out);
        (pending.len() as u32).write(out);
        for datagram in pending {
            (datagram.len() as u16).write(out);
            out.bytes(datagram);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (lane, trunk) = Carry::read(from)?;
        let mut sender = Self::new(trunk, lane, Carry::read(from)?);
        (sender.sequence, sender.path_bytes) = Carry::read(from)?;
        (sender.piece_number, sender.mark) = Carry::read(from)?;
        sender.counts = Carry::read(from)?;
        let is_path = (PATH_BYTES_MIN..=PATH_BYTES_MAX).contains(&sender.path_bytes);
        if !is_path || sender.sequence > SEQUENCE_MAX {
            return Err(Broken::Invalid("sender of a lane"));
        }
        for slot in 0..u32::read(from)? as usize {
            let len = usize::from(u16::read(from)?);
            if len > PATH_BYTES_MAX || sender.lens.try_push(len).is_err() {
                return Err(Broken::Invalid("datagram"));
            }
            sender.memory[slot * SLOT_BYTES..][..len].copy_from_slice(from.bytes(len)?);
            sender.sent = Some(0);
        }
        Ok(sender)
    }
}

/// What a sender leaves out that does not know which numbers were used.
const JUMP: u64 = 1 << 32;

/// A gap of so many numbers and more is no loss: so many datagrams are not lost before a lane
/// counts as silent.
pub(crate) const JUMPED: u64 = 1 << 31;

/// More than any lane seals.
const SEQUENCE_MAX: u64 = 1 << 62;

/// The sequence, which is never used twice under a key.
pub(crate) fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}
