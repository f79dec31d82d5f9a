//! What game processes have said and the gate has not looked at yet.
//!
//! One bundle can ask for two thousand answers, and a process writes bundles faster than answers
//! are sealed; meanwhile every other player of the worker waits. So each link has an allowance in
//! every turn. What goes beyond it is kept here, in order, and as long as something is, the link's
//! socket is not read: what the process says next stays in the kernel until its buffer is full, and
//! then the process waits. Nothing is lost on the way, and no link waits for another one's.
//!
//! The links that have something here are served in turn, beginning with another one each time.

use crate::common::Common;
use crate::ids::{BackendId, LinkId};
use crate::links::backlog::{Backlog, Progress, Reached};
use crate::links::players::{PlayerOf, Players};
use crate::links::state::Link;
use crate::mail::Request;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Frames, RecordError, Sessions, ToGateway};

impl Turn<'_> {
    /// A bundle of a link: dealt with as far as the link's allowance goes, and kept from there on.
    pub(crate) fn handle_bundle(
        &mut self,
        players: &mut impl Players,
        link: LinkId,
        truncated: bool,
        bytes: &[u8],
    ) {
        if truncated {
            return self.refuse_record(link, RecordError::DatagramTooLong);
        }
        let Some(known) = self.common.links.get_mut(link) else { return };
        let is_next = known.backlog.is_empty();
        let mut reached = Reached::default();
        if is_next {
            reached = self.take_records(players, link, bytes, reached);
        }
        if reached.at < bytes.len()
            && let Some(link) = self.common.links.get_mut(link)
        {
            link.backlog.push(bytes, reached);
        }
        self.common.settle_hold(link);
    }

    /// Goes on with what waits, a part of each link's.
    pub(crate) fn serve_backlogs(&mut self, players: &mut impl Players) {
        if self.common.links.held_count == 0 {
            return;
        }
        let count = self.common.links.all.len();
        self.common.links.first_backlog = (self.common.links.first_backlog + 1) % count;
        for step in 0..count {
            let at = LinkId::at((self.common.links.first_backlog + step) % count);
            if self.common.links.get_mut(at).is_some_and(|link| !link.backlog.is_empty()) {
                self.serve_backlog(players, at);
                self.common.settle_hold(at);
            }
            if self
                .common
                .links
                .get_mut(at)
                .is_some_and(|link| link.has_ended && link.backlog.is_empty())
            {
                self.common.lose_link(self.now, at);
            }
        }
    }

    fn serve_backlog(&mut self, players: &mut impl Players, at: LinkId) {
        let Some(link) = self.common.links.get_mut(at) else { return };
        let (backend, mut start) = (link.backend, 0);
        let mut backlog = std::mem::take(&mut link.backlog);
        while let Some(&end) = backlog.ends.front() {
            let bundle = &backlog.bytes[start..end];
            backlog.reached = self.take_records(players, at, bundle, backlog.reached);
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
        match self.common.links.get_mut(at) {
            Some(link) => link.backlog = backlog,
            None => self.common.count_unread(backend, &backlog),
        }
    }

    /// Deals with records until the bundle ends, the link does, or its allowance is used up.
    /// Returns how far it came.
    fn take_records(
        &mut self,
        players: &mut impl Players,
        link: LinkId,
        bytes: &[u8],
        from: Reached,
    ) -> Reached {
        fetch_named(players, &bytes[from.at..]);
        let mut progress = Progress { reached: from, left: self.common.allowance(link) };
        for frame in Frames::new(&bytes[from.at..]) {
            if progress.left == 0 {
                break;
            }
            progress.left -= 1;
            let taken =
                frame.and_then(|frame| self.take_record(players, link, frame, &mut progress));
            if let Err(error) = taken {
                self.refuse_record(link, error);
            }
            if self.common.links.get_mut(link).is_none() {
                return Reached { at: bytes.len(), ..Reached::default() };
            }
        }
        if let Some(link) = self.common.links.get_mut(link) {
            link.allowance = progress.left;
        }
        progress.reached
    }

    /// Sends a multicast's payload to one player after the other. Returns whether all are done.
    pub(crate) fn take_multicast(
        &mut self,
        players: &mut impl Players,
        backend: BackendId,
        (sessions, payload): (Sessions<'_>, &[u8]),
        progress: &mut Progress,
    ) -> bool {
        if progress.reached.sessions == 0 {
            progress.reached.serial = self.common.links.multicasts.begin();
        }
        for session in sessions.iter().skip(progress.reached.sessions) {
            if progress.left == 0 {
                return false;
            }
            progress.left -= 1;
            progress.reached.sessions += 1;
            let player = PlayerOf { backend, session };
            let index = players.find(self, player);
            let serial = progress.reached.serial;
            if index.is_some_and(|index| self.common.links.multicasts.names_again(serial, index)) {
                self.common.count_from_link(backend, DropReason::MulticastDuplicate);
            } else {
                players.send(self, player, payload);
            }
        }
        true
    }
}

impl Common {
    /// The gateway stops, and does not read what is left.
    pub(crate) fn drop_backlogs(&mut self) {
        for at in self.links.all.ids() {
            let Some(link) = self.links.get_mut(at) else { continue };
            let (backend, backlog) = (link.backend, std::mem::take(&mut link.backlog));
            self.count_unread(backend, &backlog);
            self.settle_hold(at);
        }
    }

    /// What a link may still ask for in this turn.
    fn allowance(&mut self, link: LinkId) -> u32 {
        let (turn, share) = (self.links.turn_number, self.links.share);
        let Some(link) = self.links.get_mut(link) else { return 0 };
        if std::mem::replace(&mut link.allowed_in, turn) != turn {
            link.allowance = share;
        }
        link.allowance
    }

    /// Gives every link its allowance for a new turn: less where many have more to say than that,
    /// so that the turn stays short.
    pub(crate) fn renew_allowances(&mut self) {
        self.links.turn_number += 1;
        self.links.share = match self.links.held_count {
            0 | 1 => SHARE_MAX,
            held => (ANSWERS_PER_TURN / held).clamp(SHARE_MIN, SHARE_MAX),
        };
    }

    /// Has a link's socket read, or not, as there is room for what it brings.
    fn settle_hold(&mut self, at: LinkId) {
        let Some(link) = self.links.get_mut(at) else { return };
        let (socket, is_held) = (link.socket, !link.backlog.is_empty());
        if std::mem::replace(&mut link.is_held, is_held) == is_held {
            return;
        }
        if is_held {
            self.links.held_count += 1;
        } else {
            self.links.held_count -= 1;
        }
        self.requests.push_back(Request::HoldLink { socket, is_held });
    }

    /// What a link leaves when it ends.
    pub(crate) fn release_backlog(&mut self, lost: &Link) {
        self.links.held_count -= u32::from(lost.is_held);
        self.count_unread(lost.backend, &lost.backlog);
    }

    fn count_unread(&mut self, backend: Option<BackendId>, backlog: &Backlog) {
        let payloads = backlog.payloads();
        if let Some(backend) = backend {
            self.links.backends[backend].traffic.drops += payloads;
        }
        self.counters.payloads_from_links += payloads;
        self.counters.drops.add(DropReason::LinkEnded, payloads);
    }
}

/// Has the sessions fetched that a bundle is for.
fn fetch_named(players: &impl Players, bundle: &[u8]) {
    for frame in Frames::new(bundle).map_while(Result::ok) {
        if let Some(session) = frame.payload_session() {
            players.fetch(session);
        } else if let Ok(ToGateway::Multicast { sessions, .. }) = ToGateway::decode(frame) {
            sessions.iter().for_each(|session| players.fetch(session));
        }
    }
}

/// Answers that all links with more to say than their share get together in a turn: they are sealed
/// and sent in less than a millisecond.
const ANSWERS_PER_TURN: u32 = 1024;

/// Answers that one link gets in a turn at the most. A tick of 250 players fits.
const SHARE_MAX: u32 = 256;

/// And at the least, however many links there are: more than a bundle costs by itself.
const SHARE_MIN: u32 = 16;
