//! Links that are there before their lane is lent: their workers are told which they are, and read
//! themselves what they have said, until they have caught up.

use crate::socket::{CalledLink, Local};
use ringgate_link::bundle::Frames;
use ringgate_os::notify::{Epoll, Ready};

use super::{Link, Links, State, TOKEN};

impl Links {
    /// What a worker has to know of the links of a lane that it is about to be lent. `None` where
    /// that cannot be said: the lane stays here.
    pub(crate) fn lend(&mut self, lane: u8, epoll: &Epoll) -> Option<Vec<CalledLink>> {
        let mut all = Vec::new();
        for place in 0..self.places.len() {
            let Some(Link { number, serial, state: State::Up(local), .. }) =
                self.places[place].as_mut().filter(|link| link.lane == lane)
            else {
                continue;
            };
            let known = local.lend((*number, *serial), (epoll, TOKEN + place as u64));
            self.note_dirty(place);
            match known {
                Ok(known) => all.push(known),
                Err(why) => {
                    tracing::warn!(event = "agent_lane_kept", "worker {lane} goes without: {why}");
                    self.take_back(lane, epoll);
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Calls links again that their workers have not come across.
    pub(crate) fn call_again(&mut self) {
        for place in 0..self.places.len() {
            if let Some(Link { state: State::Up(local), .. }) = &mut self.places[place]
                && local.call_again()
            {
                self.note_dirty(place);
            }
        }
    }

    /// A worker has caught up with a link, by its serial number: it is read here again.
    pub(crate) fn handle_caught(&mut self, serial: u32, epoll: &Epoll) {
        if let Some(&place) = self.by_serial.get(&serial) {
            self.read_again(place, epoll);
        }
    }

    /// All links of a lane that was not lent after all, or is back, are read here.
    pub(crate) fn take_back(&mut self, lane: u8, epoll: &Epoll) {
        for place in 0..self.places.len() {
            if self.places[place].as_ref().is_some_and(|link| link.lane == lane) {
                self.read_again(place, epoll);
            }
        }
    }

    fn read_again(&mut self, place: usize, epoll: &Epoll) {
        if let Some(Link { state: State::Up(local), .. }) = &self.places[place] {
            local.take_back(epoll, TOKEN + place as u64);
            self.note_dirty(place);
        }
    }

    /// Hands on what a worker has not, of a link that was not caught up with.
    pub(crate) fn handle_left(&mut self, serial: u32, records: &[u8]) {
        let place = self.by_serial.get(&serial).copied();
        for frame in Frames::new(records).map_while(Result::ok) {
            // It may end in between.
            match place.filter(|place| self.places[*place].is_some()) {
                Some(place) => self.pass_on(place, frame),
                None => self.counts.link_gone += frame.payloads().max(1),
            }
        }
    }

    /// Something about a link that a worker reads: it has hung up, or has room.
    pub(super) fn handle_lent_ready(&mut self, place: usize, ready: Ready, epoll: &Epoll) {
        if let Some(Link { state: State::Up(local), .. }) = &self.places[place]
            && ready.has_hung_up()
        {
            local.leave(epoll);
        }
        self.note_dirty(place);
    }

    /// Closes a link. A worker that reads it has it for a moment longer.
    pub(super) fn close(&mut self, local: Local) {
        if local.is_lent() {
            self.leaving.push(local);
        }
    }
}
