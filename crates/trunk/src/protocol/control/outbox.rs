//! Frames that wait for the stream to take them.

use std::fmt;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::bundle::{Frame, is_name};

use super::frame::{FRAME_BYTES_MAX, HEADER_BYTES, Reason, Welcome, kind};
use crate::protocol::lane::NoteTold;

/// Takes bytes off the beginning, and leaves no copy of them: records of sessions have keys.
pub(in crate::protocol) fn take_off(bytes: &mut Vec<u8>, count: usize) {
    bytes.copy_within(count.., 0);
    let left = bytes.len() - count;
    bytes[left..].fill(0);
    bytes.truncate(left);
}

/// More than this never waits.
const BYTES_MAX: usize = 4 << 20;

/// The other side reads too slowly: the trunk ends, because nothing here may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverFull;

impl fmt::Display for OverFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side of the trunk reads too slowly")
    }
}

impl std::error::Error for OverFull {}

/// What is to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Carry for Outbox {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { bytes, sent } = self;
        bytes[*sent..].to_vec().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let bytes = Vec::<u8>::read(from)?;
        let fits = bytes.len() <= BYTES_MAX;
        fits.then_some(Self { bytes, sent: 0 }).ok_or(Broken::Invalid("outbox"))
    }
}

impl Outbox {
    /// From the agent: the first frame.
    pub fn hello(&mut self, versions: (u16, u16), name: &str) -> Result<(), OverFull> {
        debug_assert!(is_name(name), "the config was checked");
        let (low, high) = (versions.0.to_le_bytes(), versions.1.to_le_bytes());
        self.push(kind::HELLO, 0, &[&low, &high, name.as_bytes()])
    }

    /// From the gateway: the first frame.
    pub fn welcome(&mut self, welcome: &Welcome) -> Result<(), OverFull> {
        let Welcome { version, lanes, trunk, incarnation } = *welcome;
        let (version, trunk) = (version.to_le_bytes(), trunk.to_le_bytes());
        let parts: [&[u8]; 4] = [&version, &[lanes], &trunk, &incarnation.to_le_bytes()];
        self.push(kind::WELCOME, 0, &parts)
    }

    /// From the gateway: the only frame.
    pub fn refused(&mut self, why: Reason) -> Result<(), OverFull> {
        self.push(kind::REFUSED, 0, &[&[why as u8]])
    }

    /// A record that must arrive. The lane is told, so that no payload overtakes it.
    pub fn record(
        &mut self,
        (lane, number): (&mut impl NoteTold, u8),
        link: u16,
        frame: Frame<'_>,
    ) -> Result<(), OverFull> {
        lane.note_told();
        self.push(kind::RECORD, number, &[&link.to_le_bytes(), frame.bytes()])
    }

    /// A link is over.
    pub fn ended(
        &mut self,
        (lane, number): (&mut impl NoteTold, u8),
        link: u16,
    ) -> Result<(), OverFull> {
        lane.note_told();
        self.push(kind::ENDED, number, &[&link.to_le_bytes()])
    }

    /// What a gateway of a cluster says to another one.
    pub fn message(&mut self, message: &[u8]) -> Result<(), OverFull> {
        self.push(kind::MESSAGE, 0, &[message])
    }

    /// Says that this side lives.
    pub fn beat(&mut self) -> Result<(), OverFull> {
        self.push(kind::BEAT, 0, &[])
    }

    /// The last frame.
    pub fn goodbye(&mut self, why: Reason) -> Result<(), OverFull> {
        self.push(kind::GOODBYE, 0, &[&[why as u8]])
    }

    /// What waits.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The stream has taken so many of those.
    pub fn handle_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        debug_assert!(self.sent <= self.bytes.len(), "no more than there was");
        if self.sent >= self.bytes.len() / 2 {
            take_off(&mut self.bytes, self.sent);
            self.sent = 0;
        }
    }

    fn push(&mut self, kind: u8, lane: u8, parts: &[&[u8]]) -> Result<(), OverFull> {
        let bytes = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
        debug_assert!(bytes <= FRAME_BYTES_MAX, "no frame is longer");
        if self.bytes().len() + bytes > BYTES_MAX {
            return Err(OverFull);
        }
        self.bytes.extend_from_slice(&(bytes as u16).to_le_bytes());
        self.bytes.extend_from_slice(&[kind, lane]);
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }
}
