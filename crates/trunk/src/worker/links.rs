//! Which of a worker's links are bound to lanes, found by socket and by number.

use crate::socket::{Said, Sign};
use ringgate_batch::SocketId;

/// A bound link.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Once that is known.
    pub(crate) socket: Option<SocketId>,
    /// Which lane.
    pub(crate) seat: usize,
    /// What the link is called on it.
    pub(crate) number: u16,
    /// What it is called at the trunk.
    pub(crate) serial: u32,
    /// The gate reads nothing of it at the moment.
    pub(crate) is_held: bool,
    /// Records that have come since.
    pub(crate) waiting: Vec<u8>,
    /// Until its worker has come across it and has caught up.
    pub(crate) called: Option<Box<Called>>,
}

/// A link that its worker has, without knowing yet which of its sockets that is.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) sign: Sign,
    /// Where the sign was.
    pub(crate) found: Option<SocketId>,
    /// What the worker says meanwhile.
    pub(crate) said: Said,
    /// Of that, what must arrive and has found no room.
    pub(crate) unsaid: Vec<u8>,
}

impl Bound {
    /// A link whose socket is known, or is yet to be come across.
    pub(crate) const fn new(
        seat: usize,
        (number, serial): (u16, u32),
        socket: Option<SocketId>,
        called: Option<Box<Called>>,
    ) -> Self {
        let waiting = Vec::new();
        Self { socket, seat, number, serial, is_held: false, waiting, called }
    }

    /// Where what comes for it can go now.
    #[inline]
    pub(crate) fn way_in(&self) -> Option<SocketId> {
        let is_free = !self.is_held && self.waiting.is_empty();
        self.socket.filter(|_| is_free)
    }
}

/// All of a worker's.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: Vec<Option<Bound>>,
    /// By the socket's index: a place, counted from 1.
    by_socket: Vec<u32>,
    /// Such as have something waiting.
    pub(crate) stuck: Vec<SocketId>,
    /// Places of those that are called.
    called: Vec<usize>,
}

/// The links of one lane.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// By number: a place, counted from 1.
    places: Vec<u32>,
    /// Bytes that wait for all of them.
    pub(crate) waiting: usize,
}

impl Links {
    pub(crate) fn bind(&mut self, bound: Bound, numbers: &mut Numbers) {
        let free = self.all.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        numbers.set(bound.number, place as u32 + 1);
        if bound.called.is_some() {
            self.called.push(place);
        }
        let socket = bound.socket;
        self.all[place] = Some(bound);
        self.note_socket(place, socket);
    }

    fn note_socket(&mut self, place: usize, socket: Option<SocketId>) {
        let Some(at) = socket.map(SocketId::index) else { return };
        if self.by_socket.len() <= at {
            self.by_socket.resize(at + 1, 0);
        }
        self.by_socket[at] = place as u32 + 1;
    }

    /// Links that are called are this one from now on.
    pub(crate) fn is_calling(&self) -> bool {
        !self.called.is_empty()
    }

    /// The place of one of those that are called, after so many others.
    pub(crate) fn called(&self, index: usize) -> Option<usize> {
        self.called.get(index).copied()
    }

    pub(crate) fn at(&mut self, place: usize) -> Option<&mut Bound> {
        self.all.get_mut(place)?.as_mut()
    }

    /// A link that was called is this socket.
    pub(crate) fn answer(&mut self, place: usize, socket: SocketId, is_held: bool) {
        self.called.retain(|called| *called != place);
        let Some(bound) = self.at(place) else { return };
        (bound.socket, bound.is_held, bound.called) = (Some(socket), is_held, None);
        if !bound.waiting.is_empty() {
            self.stuck.push(socket);
        }
        self.note_socket(place, Some(socket));
    }

    /// Takes a link out. Its number is for its seat to forget.
    pub(crate) fn unbind(&mut self, socket: SocketId) -> Option<Bound> {
        let place = self.place_of(socket)?;
        self.take(place)
    }

    /// The same, by its place.
    pub(crate) fn take(&mut self, place: usize) -> Option<Bound> {
        let bound = self.all.get_mut(place)?.take()?;
        self.called.retain(|called| *called != place);
        if let Some(socket) = bound.socket {
            self.by_socket[socket.index()] = 0;
        }
        Some(bound)
    }

    /// Takes the link of a lane out that has this number.
    pub(crate) fn take_number(&mut self, numbers: &Numbers, number: u16) -> Option<Bound> {
        self.take(numbers.get(number)?)
    }

    /// Takes all links of a lane out.
    pub(crate) fn take_all(&mut self, seat: usize) -> Vec<Bound> {
        let is_its = |place: &usize| self.all[*place].as_ref().is_some_and(|it| it.seat == seat);
        let its: Vec<_> = (0..self.all.len()).filter(is_its).collect();
        its.into_iter().filter_map(|place| self.take(place)).collect()
    }

    #[inline]
    fn place_of(&self, socket: SocketId) -> Option<usize> {
        let place = self.by_socket.get(socket.index())?.checked_sub(1)? as usize;
        let is_its = |bound: &Bound| bound.socket == Some(socket);
        self.all[place].as_ref().is_some_and(is_its).then_some(place)
    }

    /// The link that a socket is for.
    #[inline]
    pub(crate) fn by_socket(&mut self, socket: SocketId) -> Option<&mut Bound> {
        let place = self.place_of(socket)?;
        self.all[place].as_mut()
    }

    /// The link of a lane that has this number.
    #[inline]
    pub(crate) fn by_number(&mut self, numbers: &Numbers, number: u16) -> Option<&mut Bound> {
        let place = numbers.get(number)?;
        self.all[place].as_mut()
    }
}

impl Numbers {
    fn set(&mut self, number: u16, place: u32) {
        let at = usize::from(number);
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        self.places[at] = place;
    }

    pub(crate) fn forget(&mut self, bound: &Bound) {
        if let Some(place) = self.places.get_mut(usize::from(bound.number)) {
            *place = 0;
        }
        self.waiting -= bound.waiting.len();
    }

    #[inline]
    fn get(&self, number: u16) -> Option<usize> {
        self.places.get(usize::from(number))?.checked_sub(1).map(|place| place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_found_by_its_socket_and_by_its_number_until_it_is_taken_out() {
        let (mut links, mut numbers) = (Links::default(), [Numbers::default(), Numbers::default()]);
        let [first, second, third] = [SocketId(7), SocketId(9), SocketId(7 | 1 << 16)];
        let bound = |seat, numbers, socket| Bound::new(seat, numbers, Some(socket), None);
        links.bind(bound(0, (300, 1), first), &mut numbers[0]);
        links.bind(bound(1, (300, 2), second), &mut numbers[1]);
        let find = |links: &mut Links, numbers: &Numbers, number| {
            links.by_number(numbers, number).and_then(|bound| bound.way_in())
        };
        assert_eq!(find(&mut links, &numbers[0], 300), Some(first));
        assert_eq!(find(&mut links, &numbers[1], 300), Some(second));
        assert_eq!(find(&mut links, &numbers[1], 301), None);
        assert!(links.by_socket(third).is_none(), "another socket has had this index");
        let gone = links.unbind(first).expect("it was there");
        numbers[gone.seat].forget(&gone);
        assert!(find(&mut links, &numbers[0], 300).is_none() && links.by_socket(first).is_none());
        links.bind(bound(0, (1, 3), third), &mut numbers[0]);
        assert_eq!(find(&mut links, &numbers[0], 1), Some(third));
        assert_eq!(links.take_all(0).len(), 1);
        assert!(links.by_socket(third).is_none() && links.by_socket(second).is_some());
        assert_eq!(links.take_all(1).len(), 1);
        assert!(links.all.iter().all(Option::is_none));
    }
}
