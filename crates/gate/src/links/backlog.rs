//! What a game process has said and the gate has not looked at yet: whole bundles, in order.

use std::collections::VecDeque;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{Frame, Frames, ToGateway};

/// Bundles of one link that wait. Bounded by the slots that a driver has for bundles: the socket is
/// not read while there are any.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The bundles, back to back.
    pub(crate) bytes: Vec<u8>,
    /// Where each of them ends.
    pub(crate) ends: VecDeque<usize>,
    /// How far the first of them has been dealt with.
    pub(crate) reached: Reached,
}

/// How far a bundle has been dealt with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached {
    /// Where the next record begins.
    pub(crate) at: usize,
    /// How many sessions of it are done, where it is a multicast.
    pub(crate) sessions: usize,
    /// Which multicast that is.
    pub(crate) serial: u32,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Keeps a bundle, which is dealt with up to `reached` if it is the only one.
    pub(crate) fn push(&mut self, bundle: &[u8], reached: Reached) {
        if self.ends.is_empty() {
            self.reached = reached;
        }
        self.bytes.extend_from_slice(bundle);
        self.ends.push_back(self.bytes.len());
    }

    /// Forgets everything, and gives memory back that is needed in a flood only.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.ends.clear();
        self.reached = Reached::default();
    }

    /// Payloads that were not looked at: those of the records that are whole.
    pub(crate) fn payloads(&self) -> u64 {
        let (mut start, mut reached, mut payloads) = (0, self.reached, 0);
        for &end in &self.ends {
            let bundle = &self.bytes[start..end];
            let frames = Frames::new(&bundle[reached.at..]).map_while(Result::ok);
            let valid = frames.take_while(|frame| ToGateway::decode(*frame).is_ok());
            let all = valid.map(Frame::payloads).sum::<u64>();
            payloads += all.saturating_sub(reached.sessions as u64);
            (start, reached) = (end, Reached::default());
        }
        payloads
    }
}

impl Carry for Reached {
    fn write(&self, out: &mut Writer<'_>) {
        // A multicast has another number in each process; who it has reached goes with the link.
        let Self { at, sessions, serial: _ } = *self;
        (at, sessions).write(out);
        0_u32.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (at, sessions) = <(usize, usize)>::read(from)?;
        Ok(Self { at, sessions, serial: u32::read(from)? })
    }
}

ringgate_core::carried!(
    Backlog { bytes, ends, reached }
    if |Self { bytes, ends, reached }| {
        let is_ordered = ends.iter().is_sorted() && ends.back().copied() == bytes.len().into();
        (ends.is_empty() || is_ordered)
            && reached.at <= ends.front().copied().unwrap_or(0)
            && ends.is_empty() == bytes.is_empty()
    }, "backlog"
);

/// How far a turn has come with what a link says.
pub(crate) struct Progress {
    pub(crate) reached: Reached,
    /// What the link may still ask for.
    pub(crate) left: u32,
}

/// Memory that a link keeps after a burst.
const KEPT_BYTES: usize = 4 * BUNDLE_BYTES_MAX;
