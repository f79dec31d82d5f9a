//! The sockets of a driver, by id.
//!
//! An id is an index and a generation. The index of a closed socket is used again, the id is not
//! (for 65,536 rounds), so a late completion or a transmit entry that still names the old socket
//! finds nothing instead of somebody else's.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::interface::SocketKind;
use super::sockaddr::Family;
use super::socket;
use ringgate_batch::SocketId;

/// A registered socket, with whatever else (`S`) the driver keeps about each.
#[derive(Debug)]
pub(super) struct Registered<S> {
    pub(super) fd: OwnedFd,
    pub(super) kind: SocketKind,
    pub(super) family: Family,
    /// The kernel's drop counter as last seen.
    pub(super) drops: u32,
    pub(super) state: S,
}

#[derive(Debug)]
pub(super) struct Table<S> {
    places: Vec<Place<S>>,
    free: VecDeque<u16>,
}

#[derive(Debug)]
struct Place<S> {
    generation: u16,
    socket: Option<Registered<S>>,
}

impl<S> Table<S> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: VecDeque::new() }
    }

    /// Counts what the kernel drops from now on.
    pub(super) fn forget_drops(&mut self) {
        for socket in self.places.iter_mut().filter_map(|place| place.socket.as_mut()) {
            socket.drops = dropped_so_far(&socket.fd, socket.kind);
        }
    }

    pub(super) fn insert(
        &mut self,
        fd: OwnedFd,
        kind: SocketKind,
        state: S,
    ) -> io::Result<SocketId> {
        let family = socket::family(fd.as_fd())?;
        // Another process may have had it before us, and counted those.
        let drops = dropped_so_far(&fd, kind);
        let socket = Registered { fd, kind, family, drops, state };
        let index = self.free_place()?;
        let place = &mut self.places[usize::from(index)];
        place.socket = Some(socket);
        Ok(id_of(index, place.generation))
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Registered<S>> {
        let index = index_of(id);
        self.get(id)?;
        let place = &mut self.places[index];
        place.generation = place.generation.wrapping_add(1);
        self.free.push_back(index as u16);
        place.socket.take()
    }

    #[inline]
    pub(super) fn get(&self, id: SocketId) -> Option<&Registered<S>> {
        let place = self.places.get(index_of(id))?;
        place.socket.as_ref().filter(|_| place.generation == generation_of(id))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Registered<S>> {
        let place = self.places.get_mut(index_of(id))?;
        let current = place.generation == generation_of(id);
        place.socket.as_mut().filter(|_| current)
    }

    /// All of them, in the order of their places.
    pub(super) fn all(&self) -> impl Iterator<Item = (SocketId, &Registered<S>)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let socket = place.socket.as_ref()?;
            Some((id_of(index as u16, place.generation), socket))
        })
    }

    pub(super) fn fd(&self, id: SocketId) -> Option<BorrowedFd<'_>> {
        self.get(id).map(|socket| socket.fd.as_fd())
    }

    /// The least recently freed place, or a new one.
    fn free_place(&mut self) -> io::Result<u16> {
        if let Some(index) = self.free.pop_front() {
            return Ok(index);
        }
        let index = u16::try_from(self.places.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::EMFILE))?;
        self.places.push(Place { generation: 0, socket: None });
        Ok(index)
    }
}

#[inline]
pub(super) const fn index_of(id: SocketId) -> usize {
    (id.0 & 0xffff) as usize
}

#[inline]
const fn generation_of(id: SocketId) -> u16 {
    (id.0 >> 16) as u16
}

const fn id_of(index: u16, generation: u16) -> SocketId {
    SocketId((generation as u32) << 16 | index as u32)
}

fn dropped_so_far(socket: &OwnedFd, kind: SocketKind) -> u32 {
    match kind {
        SocketKind::Datagram | SocketKind::ConnectedDatagram => {
            socket::socket_drops(socket.as_fd()).unwrap_or_default()
        }
        SocketKind::LinkListener | SocketKind::Link => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn udp() -> OwnedFd {
        UdpSocket::bind("127.0.0.1:0").expect("loopback").into()
    }

    #[test]
    fn the_id_of_a_closed_socket_names_nothing() {
        let mut table = Table::new();
        let first = table.insert(udp(), SocketKind::Datagram, 1).expect("room");
        assert!(table.remove(first).is_some());
        let second = table.insert(udp(), SocketKind::Datagram, 2).expect("room");
        assert_eq!(index_of(first), index_of(second));
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!(table.get(second).map(|s| s.state), Some(2));
    }
}
