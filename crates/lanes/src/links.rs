//! Which of a worker's links are bound to lanes, found by socket and by number.

use ringgate_batch::SocketId;

/// A bound link.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: SocketId,
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
}

/// All of a worker's.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: Vec<Option<Bound>>,
    /// By the socket's index: a place, counted from 1.
    by_socket: Vec<u32>,
    /// Such as have something waiting.
    pub(crate) stuck: Vec<SocketId>,
}

/// The links of one lane, by number: a place, counted from 1.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<u32>);

impl Links {
    pub(crate) fn bind(
        &mut self,
        (seat, numbers): (usize, &mut Numbers),
        (number, serial): (u16, u32),
        socket: SocketId,
    ) {
        let free = self.all.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[place] =
            Some(Bound { socket, seat, number, serial, is_held: false, waiting: Vec::new() });
        let at = socket.index();
        if self.by_socket.len() <= at {
            self.by_socket.resize(at + 1, 0);
        }
        self.by_socket[at] = place as u32 + 1;
        numbers.set(number, place as u32 + 1);
    }

    /// Takes a link out. Its number is for its seat to forget.
    pub(crate) fn unbind(&mut self, socket: SocketId) -> Option<Bound> {
        let place = self.place_of(socket)?;
        self.by_socket[socket.index()] = 0;
        self.all[place].take()
    }

    /// Takes all links of a lane out.
    pub(crate) fn unbind_all(&mut self, seat: usize) {
        let is_its = |bound: &mut Bound| bound.seat == seat;
        for bound in self.all.iter_mut().filter_map(|place| place.take_if(is_its)) {
            self.by_socket[bound.socket.index()] = 0;
        }
    }

    #[inline]
    fn place_of(&self, socket: SocketId) -> Option<usize> {
        let place = self.by_socket.get(socket.index())?.checked_sub(1)? as usize;
        self.all[place].as_ref().is_some_and(|bound| bound.socket == socket).then_some(place)
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
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = place;
    }

    pub(crate) fn forget(&mut self, number: u16) {
        if let Some(place) = self.0.get_mut(usize::from(number)) {
            *place = 0;
        }
    }

    #[inline]
    fn get(&self, number: u16) -> Option<usize> {
        self.0.get(usize::from(number))?.checked_sub(1).map(|place| place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_found_by_its_socket_and_by_its_number_until_it_is_taken_out() {
        let (mut links, mut numbers) = (Links::default(), [Numbers::default(), Numbers::default()]);
        let [first, second, third] = [SocketId(7), SocketId(9), SocketId(7 | 1 << 16)];
        links.bind((0, &mut numbers[0]), (300, 1), first);
        links.bind((1, &mut numbers[1]), (300, 2), second);
        let find = |links: &mut Links, numbers: &Numbers, number| {
            links.by_number(numbers, number).map(|bound| bound.socket)
        };
        assert_eq!(find(&mut links, &numbers[0], 300), Some(first));
        assert_eq!(find(&mut links, &numbers[1], 300), Some(second));
        assert_eq!(find(&mut links, &numbers[1], 301), None);
        assert!(links.by_socket(third).is_none(), "another socket has had this index");
        let gone = links.unbind(first).expect("it was there");
        numbers[gone.seat].forget(gone.number);
        assert!(find(&mut links, &numbers[0], 300).is_none() && links.by_socket(first).is_none());
        links.bind((0, &mut numbers[0]), (1, 3), third);
        assert_eq!(find(&mut links, &numbers[0], 1), Some(third));
        links.unbind_all(0);
        assert!(links.by_socket(third).is_none() && links.by_socket(second).is_some());
        links.unbind_all(1);
        assert!(links.all.iter().all(Option::is_none));
    }
}
