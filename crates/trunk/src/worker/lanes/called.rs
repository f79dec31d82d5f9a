//! Links that a worker had before it was lent their lane: their signs lie among what it reads, and
//! what it has said on them goes by the lane before anything that it says from then on.

use std::mem;

use crate::socket::{LaneReport, Next};
use ringgate_batch::{RxBatch, SocketId};
use ringgate_link::bundle::Frames;

use super::{Lanes, Left, Seat, compact};

/// How far a link is that was called.
enum State {
    /// Nothing is left of what was said on it.
    CaughtUp,
    /// There may be more.
    Behind,
    /// It has hung up.
    Over,
}

impl Lanes {
    /// Sends what was said on links that are called, and binds those whose signs have come.
    pub(super) fn catch_up(&mut self, rx: &RxBatch) {
        if !self.links.is_calling() {
            return;
        }
        self.look_for_signs(rx);
        let mut index = 0;
        while let Some(place) = self.links.called(index) {
            let found = self.found(place);
            match (self.read_said(place), found) {
                (State::Over, _) => self.lose(place),
                (State::CaughtUp, Some(socket)) => {
                    self.note_caught(place);
                    let is_held = self.held.contains(&socket);
                    self.links.answer(place, socket, is_held);
                }
                (State::CaughtUp | State::Behind, _) => index += 1,
            }
        }
        self.tell_caught();
    }

    /// Tells trunks' threads; those that listen too little are told again.
    pub(super) fn tell_caught(&mut self) {
        for Seat { caught, lease, .. } in self.seats.iter_mut().flatten() {
            if !caught.is_empty()
                && let Err(LaneReport::Caught(again)) =
                    lease.say(LaneReport::Caught(mem::take(caught)))
            {
                *caught = again;
            }
        }
    }

    fn found(&mut self, place: usize) -> Option<SocketId> {
        self.links.at(place)?.called.as_ref()?.found
    }

    fn look_for_signs(&mut self, rx: &RxBatch) {
        for (index, meta) in rx.metas().iter().enumerate() {
            let records = Frames::new(rx.bytes(index)).map_while(Result::ok);
            for record in records.filter(|record| record.may_be_skipped()) {
                let mut at = 0;
                while let Some(place) = self.links.called(at) {
                    let called = self.links.at(place).and_then(|bound| bound.called.as_mut());
                    if let Some(called) = called.filter(|called| called.sign.is(record)) {
                        called.found = Some(meta.socket);
                    }
                    at += 1;
                }
            }
        }
    }

    /// Gives the lane what was said on a link, and its stream what must arrive.
    fn read_said(&mut self, place: usize) -> State {
        let Self { seats, links, tools, now_ns, .. } = self;
        let Some(bound) = links.at(place) else { return State::Over };
        let (Some(called), Some(tools)) = (bound.called.as_mut(), tools) else {
            return State::Over;
        };
        let Some(Some(seat)) = seats.get_mut(bound.seat) else { return State::Over };
        let mut bundle = mem::take(&mut tools.bundle);
        let state = loop {
            if !called.unsaid.is_empty() {
                if !seat.tell_again(bound.serial, &called.unsaid) {
                    break State::Behind;
                }
                called.unsaid.clear();
            }
            match called.said.next(&mut bundle) {
                Next::Nothing => break State::CaughtUp,
                Next::Over => break State::Over,
                Next::Bundle(len) => {
                    let bundle = &mut bundle[..len];
                    let is_sifted = seat.sift(bound.number, bundle, tools, *now_ns);
                    debug_assert!(is_sifted, "no link of a lane is called that is not here");
                    let left = compact(bundle, &tools.kept);
                    if seat.tell(bound.serial, &bundle[..left]).is_err() {
                        called.unsaid.extend_from_slice(&bundle[..left]);
                    }
                }
            }
        };
        tools.bundle = bundle;
        state
    }

    /// The trunk's thread reads a link again: it hears that it is over, or nothing any more.
    fn note_caught(&mut self, place: usize) {
        let Some(bound) = self.links.at(place) else { return };
        let (seat, serial) = (bound.seat, bound.serial);
        if let Some(Some(seat)) = self.seats.get_mut(seat) {
            seat.caught.push(serial);
        }
    }

    fn lose(&mut self, place: usize) {
        self.note_caught(place);
        if let Some(bound) = self.links.take(place) {
            self.end_link(&bound);
        }
    }

    /// What there is of links of a lane that leaves before they have answered.
    pub(super) fn leave_called(&mut self, seat: usize) -> Vec<Left> {
        let (mut left, mut index) = (Vec::new(), 0);
        while let Some(place) = self.links.called(index) {
            if self.links.at(place).is_none_or(|bound| bound.seat != seat) {
                index += 1;
                continue;
            }
            let Some(bound) = self.links.take(place) else { continue };
            if let Some(Some(seat)) = self.seats.get_mut(seat) {
                seat.numbers.forget(&bound);
            }
            let said = bound.called.map(|called| called.unsaid).unwrap_or_default();
            left.push(Left { serial: bound.serial, heard: bound.waiting, said });
        }
        left
    }
}

impl Seat {
    /// Gives the stream what it had no room for before. Whether it has.
    fn tell_again(&mut self, serial: u32, records: &[u8]) -> bool {
        self.written = self.written.wrapping_add(Frames::new(records).count() as u32);
        self.tell(serial, records).is_ok()
    }
}
