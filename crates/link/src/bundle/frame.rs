//! Records before their bodies are looked at: where each begins and ends, and what kind it is.
//!
//! Code that moves records and does not read their content (a gateway that must send again what a
//! full link refused) needs only this much.

use super::{HEADER_BYTES, LONG_PAYLOAD_BYTES_MAX, RecordError, SessionId, flags, kind, message};

/// One record as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Invariant: as long as its header says, so at least as long as a header.
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes the first record off a datagram; the second part is what follows it.
    #[inline]
    fn split(datagram: &'a [u8]) -> Result<(Self, &'a [u8]), RecordError> {
        let Some(header) = datagram.first_chunk::<HEADER_BYTES>() else {
            return Err(RecordError::HeaderTruncated);
        };
        let record_bytes = usize::from(u16::from_le_bytes([header[0], header[1]]));
        if record_bytes < HEADER_BYTES {
            return Err(RecordError::RecordLength);
        }
        let Some((bytes, rest)) = datagram.split_at_checked(record_bytes) else {
            return Err(RecordError::RecordLength);
        };
        let frame = Self { bytes };
        if header[3] != 0 && header[3] & !frame.flags_known() != 0 {
            return Err(RecordError::FlagsUnknown);
        }
        Ok((frame, rest))
    }

    /// The flags that the record may have.
    #[inline]
    fn flags_known(self) -> u8 {
        match self.kind() {
            kind::OPENED => flags::DELIVERS | flags::MOVED_IN,
            kind::FIRST_SKIPPABLE.. => u8::MAX,
            _ => 0,
        }
    }

    /// The whole record, header and body.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn kind(self) -> u8 {
        self.bytes[2]
    }

    #[inline]
    pub(super) fn flags(self) -> u8 {
        self.bytes[3]
    }

    #[inline]
    pub(super) fn body(self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Whether a reader that does not know the record's kind passes over it: the kind's number says
    /// so. Only a reader that knows the kind looks at the record's flags and body.
    #[inline]
    pub fn may_be_skipped(self) -> bool {
        self.kind() >= kind::FIRST_SKIPPABLE
    }

    /// Whether the record is of no use when it comes too late, so that a full link may drop it:
    /// payloads, what gateways forward, messages on channels that are not reliable, and what
    /// measures. Everything else has to arrive as long as the link lives.
    #[inline]
    pub fn may_be_lost(self) -> bool {
        match self.kind() {
            kind::PAYLOAD
            | kind::MULTICAST
            | kind::PING
            | kind::PONG
            | kind::QUALITY
            | kind::FORWARDED
            | kind::NUMBERED => true,
            kind::MESSAGE => self.body().get(8) != Some(&message::RELIABLE),
            _ => false,
        }
    }

    /// Whether the record is a message or the last part of one, as far as it goes.
    #[inline]
    pub fn ends_message(self) -> bool {
        let marks = self.body().get(10).filter(|_| self.kind() == kind::MESSAGE);
        marks.is_some_and(|marks| marks & message::LAST != 0)
    }

    /// Whether the record is a message, or a part of one.
    #[inline]
    pub fn is_message(self) -> bool {
        self.kind() == kind::MESSAGE
    }

    /// The session that a payload or a message is from or for, as far as the record goes: its other
    /// fields may be wrong.
    #[inline]
    pub fn payload_session(self) -> Option<SessionId> {
        let is_ones = matches!(self.kind(), kind::PAYLOAD | kind::MESSAGE | kind::NUMBERED);
        let id = self.body().first_chunk().filter(|_| is_ones)?;
        SessionId::from_u64(u64::from_le_bytes(*id))
    }

    /// Whose payload the record is, and its bytes, if it is one and as it should be. Nearly all
    /// records of a bundle are payloads, and for these it costs less than to decode one of any
    /// kind. What is wrong with any other, only that says.
    #[inline]
    pub fn as_payload(self) -> Option<(SessionId, &'a [u8])> {
        let (id, bytes) =
            self.body().split_first_chunk().filter(|_| self.kind() == kind::PAYLOAD)?;
        let is_long = bytes.len() > LONG_PAYLOAD_BYTES_MAX;
        let session = SessionId::from_u64(u64::from_le_bytes(*id))?;
        (!bytes.is_empty() && !is_long).then_some((session, bytes))
    }

    /// The record that a gateway of a cluster sends another one for a player's datagram. `record`
    /// has room for the header before what the two say of it.
    pub fn forwarded(record: &'a mut [u8]) -> Option<Self> {
        let bytes = u16::try_from(record.len()).ok()?;
        let [low, high] = bytes.to_le_bytes();
        *record.first_chunk_mut()? = [low, high, kind::FORWARDED, 0];
        Some(Self { bytes: record })
    }

    /// What a gateway of a cluster has forwarded, if the record is that.
    pub fn as_forwarded(self) -> Option<&'a [u8]> {
        (self.kind() == kind::FORWARDED).then(|| self.body())
    }

    /// How many players the record has a payload for: what a drop of it counts as.
    #[inline]
    pub fn payloads(self) -> u64 {
        match (self.kind(), self.body()) {
            (kind::PAYLOAD | kind::FORWARDED | kind::NUMBERED, _) => 1,
            (kind::MULTICAST, &[low, high, ..]) => u64::from(u16::from_le_bytes([low, high])),
            _ => 0,
        }
    }
}

/// The records of a datagram, in order. An error is the last item: where one record is broken,
/// the start of the next one is unknown.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Walks a datagram, or any other run of whole records.
    #[inline]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    /// Takes off all that may be lost, up to the first record that may not be, or is broken.
    #[inline]
    pub fn take_run(&mut self) -> Run<'a> {
        let (all, mut payloads) = (self.rest, 0);
        while let Ok((frame, rest)) = Frame::split(self.rest)
            && frame.may_be_lost()
        {
            payloads += frame.payloads();
            self.rest = rest;
        }
        Run { bytes: &all[..all.len() - self.rest.len()], payloads }
    }

    /// Ends the walk.
    #[inline]
    pub(super) fn stop(&mut self) {
        self.rest = &[];
    }
}

/// Whole records, one behind the other: what is done for all of them at once costs less than what
/// is done for each.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Invariant: records that were split before.
    bytes: &'a [u8],
    payloads: u64,
}

impl<'a> Run<'a> {
    /// All of them, back to back.
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// How many players they have payloads for, as [`Frame::payloads`].
    #[inline]
    pub const fn payloads(self) -> u64 {
        self.payloads
    }

    /// One by one.
    #[inline]
    pub fn frames(self) -> impl Iterator<Item = Frame<'a>> {
        Frames::new(self.bytes).map_while(Result::ok)
    }

    /// Takes off as many as are no longer than this.
    #[inline]
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> Self {
        let (all, mut rest, mut payloads) = (self.bytes, self.bytes, 0);
        while let Ok((frame, behind)) = Frame::split(rest)
            && all.len() - behind.len() <= bytes
        {
            payloads += frame.payloads();
            rest = behind;
        }
        *self = Self { bytes: rest, payloads: self.payloads - payloads };
        Self { bytes: &all[..all.len() - rest.len()], payloads }
    }

    /// Takes off the first.
    #[inline]
    pub fn take_first(&mut self) -> Option<Frame<'a>> {
        let (frame, rest) = Frame::split(self.bytes).ok()?;
        *self = Self { bytes: rest, payloads: self.payloads - frame.payloads() };
        Some(frame)
    }
}

impl<'a> From<Frame<'a>> for Run<'a> {
    #[inline]
    fn from(frame: Frame<'a>) -> Self {
        Self { bytes: frame.bytes(), payloads: frame.payloads() }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match Frame::split(self.rest) {
            Ok((frame, rest)) => {
                self.rest = rest;
                Some(Ok(frame))
            }
            Err(error) => {
                self.stop();
                Some(Err(error))
            }
        }
    }
}
