//! What game processes have said and the gate has not looked at yet.
//!
//! One bundle can ask for two thousand answers, and a process writes bundles faster than answers
//! are sealed; meanwhile every other player of the worker waits. So each link has an allowance in
//! every turn. What goes beyond it is kept here, in order, and as long as something is, the link's
//! socket is not read: what the process says next stays in the kernel until its buffer is full, and
//! then the process waits. Nothing is lost on the way, and nobody waits for another's turn to end.
//!
//! The links that have something here are served in turn, beginning with another one each time.

use std::collections::VecDeque;

use crate::links::state::Link;
use crate::turn::Turn;
use crate::{Gate, Request};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{Frame, Frames, RecordError, SessionId, Sessions, ToGateway};

/// Bundles of one link that wait. Bounded by the slots that a driver has for bundles: the socket is
/// not read while there are any.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The bundles, back to back.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: VecDeque<usize>,
    /// How far the first of them has been dealt with.
    reached: Reached,
}

/// How far a bundle has been dealt with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reached {
    /// Where the next record begins.
    at: usize,
    /// How many sessions of it are done, where it is a multicast.
    sessions: usize,
    /// Which multicast that is.
    serial: u32,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Keeps a bundle, which is dealt with up to `reached` if it is the only one.
    fn push(&mut self, bundle: &[u8], reached: Reached) {
        if self.ends.is_empty() {
            self.reached = reached;
        }
        self.bytes.extend_from_slice(bundle);
        self.ends.push_back(self.bytes.len());
    }

    /// Forgets everything, and gives memory back that only a flood needs.
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.ends.clear();
        self.reached = Reached::default();
    }

    /// Payloads that nobody has looked at: those of the records that are whole.
    fn payloads(&self) -> u64 {
        let (mut start, mut reached, mut payloads) = (0, self.reached, 0);
        for &end in &self.ends {
            let bundle = &self.bytes[start..end];
            let frames = Frames::new(&bundle[reached.at..]).map_while(Result::ok);
            let valid = frames.take_while(|frame| ToGateway::decode(*frame).is_ok());
            payloads += valid.map(Frame::payloads).sum::<u64>() - reached.sessions as u64;
            (start, reached) = (end, Reached::default());
        }
        payloads
    }
}

impl Gate {
    /// A bundle of a link: dealt with as far as the link's allowance goes, and kept from there on.
    pub(crate) fn handle_bundle(
        &mut self,
        turn: &mut Turn<'_>,
        link: u16,
        truncated: bool,
        bytes: &[u8],
    ) {
        if truncated {
            return self.refuse_record(turn, link, RecordError::DatagramTooLong);
        }
        let Some(known) = self.link_mut(link) else { return };
        let is_next = known.backlog.is_empty();
        let mut reached = Reached::default();
        if is_next {
            reached = self.take_records(turn, link, bytes, reached);
        }
        if reached.at < bytes.len()
            && let Some(link) = self.link_mut(link)
        {
            link.backlog.push(bytes, reached);
        }
        self.settle_hold(link);
    }

    /// Goes on with what waits, a part of each link's.
    pub(crate) fn serve_backlogs(&mut self, turn: &mut Turn<'_>) {
        if self.links_held == 0 {
            return;
        }
        let count = self.links.len();
        self.first_backlog = (self.first_backlog + 1) % count;
        for step in 0..count {
            let at = ((self.first_backlog + step) % count) as u16;
            if self.link_mut(at).is_some_and(|link| !link.backlog.is_empty()) {
                self.serve_backlog(turn, at);
                self.settle_hold(at);
            }
            if self.link_mut(at).is_some_and(|link| link.hung_up && link.backlog.is_empty()) {
                self.lose_link(turn.now, at);
            }
        }
    }

    fn serve_backlog(&mut self, turn: &mut Turn<'_>, at: u16) {
        let Some(link) = self.link_mut(at) else { return };
        let mut backlog = std::mem::take(&mut link.backlog);
        let mut start = 0;
        while let Some(&end) = backlog.ends.front() {
            let bundle = &backlog.bytes[start..end];
            backlog.reached = self.take_records(turn, at, bundle, backlog.reached);
            if backlog.reached.at < bundle.len() {
                break;
            }
            start = end;
            backlog.ends.pop_front();
            backlog.reached = Reached::default();
        }
        if backlog.is_empty() {
            backlog.clear();
        } else {
            backlog.bytes.drain(..start);
            backlog.ends.iter_mut().for_each(|end| *end -= start);
        }
        match self.link_mut(at) {
            Some(link) => link.backlog = backlog,
            None => self.count_unread(&backlog),
        }
    }

    /// Deals with records until the bundle ends, the link does, or its allowance is used up.
    /// Returns how far it came.
    fn take_records(
        &mut self,
        turn: &mut Turn<'_>,
        link: u16,
        bytes: &[u8],
        from: Reached,
    ) -> Reached {
        self.fetch_named(&bytes[from.at..]);
        let mut progress = Progress { reached: from, left: self.allowance(link) };
        for frame in Frames::new(&bytes[from.at..]) {
            if progress.left == 0 {
                break;
            }
            progress.left -= 1;
            let record = frame.and_then(|frame| ToGateway::decode(frame).map(|it| (frame, it)));
            match record {
                Ok((frame, record)) => {
                    if self.handle_record(turn, link, record, &mut progress) {
                        let at = progress.reached.at + frame.bytes().len();
                        progress.reached = Reached { at, ..Reached::default() };
                    }
                }
                Err(error) => self.refuse_record(turn, link, error),
            }
            if self.link_mut(link).is_none() {
                return Reached { at: bytes.len(), ..Reached::default() };
            }
        }
        if let Some(link) = self.link_mut(link) {
            link.allowance = progress.left;
        }
        progress.reached
    }

    /// What a link may still ask for in this turn.
    fn allowance(&mut self, link: u16) -> u32 {
        let (turn, share) = (self.turn_number, self.share);
        let Some(link) = self.link_mut(link) else { return 0 };
        if std::mem::replace(&mut link.allowed_in, turn) != turn {
            link.allowance = share;
        }
        link.allowance
    }

    /// Gives every link its allowance for a new turn: less where many have more to say than that,
    /// so that the turn stays short.
    pub(crate) fn renew_allowances(&mut self) {
        self.turn_number += 1;
        self.share = match self.links_held {
            0 | 1 => SHARE_MAX,
            held => (ANSWERS_PER_TURN / held).clamp(SHARE_MIN, SHARE_MAX),
        };
    }

    /// Sends a multicast's payload to one player after the other. Returns whether all are done.
    pub(crate) fn take_multicast(
        &mut self,
        turn: &mut Turn<'_>,
        backend: u16,
        (sessions, payload): (Sessions<'_>, &[u8]),
        progress: &mut Progress,
    ) -> bool {
        if progress.reached.sessions == 0 {
            progress.reached.serial = self.next_multicast();
        }
        for session in sessions.iter().skip(progress.reached.sessions) {
            if progress.left == 0 {
                return false;
            }
            progress.left -= 1;
            progress.reached.sessions += 1;
            if self.is_repeated(backend, session, progress.reached.serial) {
                self.count_from_link(DropReason::MulticastDuplicate);
            } else {
                self.send_for_backend(turn, backend, session, payload);
            }
        }
        true
    }

    /// A number that no multicast of late has had.
    fn next_multicast(&mut self) -> u32 {
        self.multicast_serial = self.multicast_serial.wrapping_add(1);
        if self.multicast_serial == 0 {
            self.multicast_seen.fill(0);
            self.multicast_serial = 1;
        }
        self.multicast_serial
    }

    /// Whether a multicast has named a session before, which is noted.
    #[inline]
    fn is_repeated(&mut self, backend: u16, session: SessionId, serial: u32) -> bool {
        let index = self.session_for_backend(backend, session);
        let seen = index.and_then(|index| self.multicast_seen.get_mut(index as usize));
        seen.is_some_and(|seen| std::mem::replace(seen, serial) == serial)
    }

    /// Has a link's socket read, or not, as there is room for what it brings.
    fn settle_hold(&mut self, at: u16) {
        let Some(link) = self.link_mut(at) else { return };
        let (socket, is_held) = (link.socket, !link.backlog.is_empty());
        if std::mem::replace(&mut link.is_held, is_held) == is_held {
            return;
        }
        if is_held {
            self.links_held += 1;
        } else {
            self.links_held -= 1;
        }
        self.requests.push_back(Request::HoldLink { socket, is_held });
    }

    /// What a link leaves when it ends.
    pub(crate) fn release_backlog(&mut self, lost: &Link) {
        self.links_held -= u32::from(lost.is_held);
        self.count_unread(&lost.backlog);
    }

    /// The gateway stops, and hears nobody out.
    pub(crate) fn drop_backlogs(&mut self) {
        for at in 0..self.links.len() as u16 {
            let Some(link) = self.link_mut(at) else { continue };
            let backlog = std::mem::take(&mut link.backlog);
            self.count_unread(&backlog);
            self.settle_hold(at);
        }
    }

    fn count_unread(&mut self, backlog: &Backlog) {
        let payloads = backlog.payloads();
        self.counters.payloads_from_links += payloads;
        self.counters.drops.add(DropReason::LinkEnded, payloads);
    }
}

/// How far a turn has come with what a link says.
pub(crate) struct Progress {
    reached: Reached,
    /// What the link may still ask for.
    left: u32,
}

/// Answers that all links with more to say than their share get together in a turn: they are sealed
/// and sent in less than a millisecond.
const ANSWERS_PER_TURN: u32 = 1024;

/// Answers that one link gets in a turn at the most. A tick of 250 players fits.
const SHARE_MAX: u32 = 256;

/// And at the least, however many links there are: more than a bundle costs by itself.
const SHARE_MIN: u32 = 16;

/// Memory that a link keeps after a burst.
const KEPT_BYTES: usize = 4 * BUNDLE_BYTES_MAX;
