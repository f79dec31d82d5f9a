//! Farewells: what an end says last, and whether the other end takes that.
//!
//! Ends of earlier releases refuse a frame that they do not know. So an end that takes farewells
//! says so in what all of them read: two pings, one behind the other, in every packet from the
//! first on, until one of those is acknowledged. An end that has not said it in its first packet is
//! told nothing. A farewell leaves at once, before what is queued, and again whenever its packet is
//! lost.

use super::outgoing::Filling;
use super::types::Fault;
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::delivery::{FAREWELL_BYTES_MAX, Frame};
use crate::proto::notify::PacketSeq;

/// What one end knows of both.
#[derive(Debug)]
pub(super) struct Farewells {
    /// Whether the other end takes them; `None` before its first packet.
    peer_takes: Option<bool>,
    mark: Mark,
    said: Option<Said>,
    heard: Option<Words>,
}

/// That this end takes farewells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// It does not.
    Absent,
    /// It has to be said.
    Owed,
    /// This packet says so, and those after it.
    UnderWay(PacketSeq),
    Known,
}

/// What this end says last.
#[derive(Debug)]
struct Said {
    words: Words,
    leaves: Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// It has to.
    Next,
    /// It has, in this packet.
    In(PacketSeq),
    Arrived,
}

#[derive(Debug)]
struct Words {
    reason: u8,
    text: Box<[u8]>,
}

impl Farewells {
    pub(super) const fn new(takes: bool) -> Self {
        let mark = if takes { Mark::Owed } else { Mark::Absent };
        Self { peer_takes: None, mark, said: None, heard: None }
    }

    /// Whether a packet has to leave.
    pub(super) fn is_due(&self) -> bool {
        self.mark == Mark::Owed || self.next().is_some()
    }

    /// Whether this end has said what it says last.
    pub(super) const fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Whether the other end has heard it.
    pub(super) fn has_arrived(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.leaves == Leaves::Arrived)
    }

    /// Whether nothing is to come of it any more: it has arrived, or the other end takes none.
    pub(super) fn is_settled(&self) -> bool {
        self.said.is_none() || self.peer_takes == Some(false) || self.has_arrived()
    }

    /// Says it, unless something was said before. The text fits into a packet.
    pub(super) fn say(&mut self, reason: u8, text: &[u8]) {
        self.said.get_or_insert_with(|| Said {
            words: Words { reason, text: text.into() },
            leaves: Leaves::Next,
        });
    }

    /// What the other end has said.
    pub(super) fn heard(&self) -> Option<(u8, &[u8])> {
        self.heard.as_ref().map(|words| (words.reason, &*words.text))
    }

    /// Writes what goes before all else.
    pub(super) fn begin(&mut self, packet: &mut Filling<'_>) {
        let Some(Said { words, .. }) = self.next() else { return };
        let frame = Frame::Farewell { reason: words.reason, text: &words.text };
        if frame.wire_bytes() > packet.room() {
            return;
        }
        packet.write(&frame);
        if let Some(said) = &mut self.said {
            said.leaves = Leaves::In(packet.number);
        }
    }

    /// Writes the mark, where there is room.
    pub(super) fn end(&mut self, packet: &mut Filling<'_>) {
        if matches!(self.mark, Mark::Absent | Mark::Known) || packet.room() < MARK_BYTES {
            return;
        }
        packet.write(&Frame::Ping);
        packet.write(&Frame::Ping);
        if self.mark == Mark::Owed {
            self.mark = Mark::UnderWay(packet.number);
        }
    }

    /// What became of a packet.
    pub(super) fn handle_report(&mut self, number: PacketSeq, arrived: bool) {
        if self.mark == Mark::UnderWay(number) {
            self.mark = if arrived { Mark::Known } else { Mark::Owed };
        }
        if let Some(said) = &mut self.said
            && said.leaves == Leaves::In(number)
        {
            said.leaves = if arrived { Leaves::Arrived } else { Leaves::Next };
        }
    }

    /// A packet was taken.
    pub(super) fn handle_packet(&mut self, is_marked: bool) {
        if is_marked || self.peer_takes.is_none() {
            self.peer_takes = Some(is_marked);
        }
    }

    /// The other end says its farewell.
    pub(super) fn hear(&mut self, reason: u8, text: &[u8]) -> Result<(), Fault> {
        if self.mark == Mark::Absent {
            return Err(Fault::Malformed);
        }
        self.heard.get_or_insert_with(|| Words { reason, text: text.into() });
        Ok(())
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let said = self.said.as_ref().map_or(0, |said| said.words.text.len());
        said + self.heard.as_ref().map_or(0, |words| words.text.len())
    }

    fn next(&self) -> Option<&Said> {
        let said = self.said.as_ref().filter(|_| self.peer_takes == Some(true))?;
        (said.leaves == Leaves::Next).then_some(said)
    }

    /// Writes what is known at a gateway, whose end takes none.
    pub(super) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { peer_takes, mark: _, said, heard: _ } = self;
        peer_takes.write(out);
        let said = said.as_ref().map(|Said { words, leaves }| {
            // One that is under way is said again where its packet is not reported here.
            let has_arrived = *leaves == Leaves::Arrived;
            ((words.reason, has_arrived), words.text.to_vec())
        });
        said.write(out);
    }

    /// Goes on with it.
    pub(super) fn take_over(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let peer_takes = Option::<bool>::read(from)?;
        let said = Option::<((u8, bool), Vec<u8>)>::read(from)?;
        if said.as_ref().is_some_and(|(_, text)| text.len() > FAREWELL_BYTES_MAX) {
            return Err(Broken::Invalid("length of a farewell"));
        }
        let said = said.map(|((reason, has_arrived), text)| Said {
            words: Words { reason, text: text.into() },
            leaves: if has_arrived { Leaves::Arrived } else { Leaves::Next },
        });
        Ok(Self { peer_takes, mark: Mark::Absent, said, heard: None })
    }
}

/// Two pings.
const MARK_BYTES: usize = 2;
