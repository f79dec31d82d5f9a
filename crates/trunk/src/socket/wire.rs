//! What a lane's way asks of its sockets: the seam at which tests put a network that has neither
//! descriptors nor a clock.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::protocol::lane::Lane;
use ringgate_core::crypto::Aead;
use ringgate_link::bundle::Run;
use ringgate_os::notify::Epoll;

use crate::socket::port::{Buffers, Port};

/// A socket that sends to one address, and hears no other.
pub trait Wire: Sized {
    /// Where its owner waits for what comes.
    type Set;

    /// One between these addresses, which is watched by that number from now on.
    fn open(at: (SocketAddr, SocketAddr), set: (&Self::Set, u64)) -> io::Result<Self>;

    /// Whom it sends to.
    fn peer(&self) -> SocketAddr;

    /// Takes in what has come: see [`Port::receive`].
    fn receive(
        &mut self,
        buffers: &mut Buffers,
        lane: (&mut Lane, &mut Aead),
        now_ns: u64,
        deliver: impl FnMut(u16, Run<'_>),
        stray: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<(bool, bool)>;

    /// Sends what is sealed. `false` where there is no room for all of it.
    fn send(&mut self, lane: &mut Lane, now_ns: u64) -> io::Result<bool>;

    /// Sends one datagram, or gives it up.
    fn send_alone(&self, datagram: &[u8]);

    /// Has the set say when there is room.
    fn watch_for_room(&self, set: (&Self::Set, u64), is_watched: bool) -> io::Result<()>;

    /// Messages that were cut into datagrams on their way, and such that were refused.
    fn cut(&self) -> [u64; 2];
}

impl Wire for Port {
    type Set = Epoll;

    fn open((own, peer): (SocketAddr, SocketAddr), set: (&Epoll, u64)) -> io::Result<Self> {
        let port = Self::open(own, peer)?;
        set.0.add(port.as_fd(), set.1)?;
        Ok(port)
    }

    fn peer(&self) -> SocketAddr {
        self.peer()
    }

    fn receive(
        &mut self,
        buffers: &mut Buffers,
        lane: (&mut Lane, &mut Aead),
        now_ns: u64,
        deliver: impl FnMut(u16, Run<'_>),
        stray: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<(bool, bool)> {
        self.receive(buffers, lane, now_ns, deliver, stray)
    }

    fn send(&mut self, lane: &mut Lane, now_ns: u64) -> io::Result<bool> {
        self.send(lane, now_ns)
    }

    fn send_alone(&self, datagram: &[u8]) {
        self.send_alone(datagram);
    }

    fn watch_for_room(&self, (epoll, token): (&Epoll, u64), is_watched: bool) -> io::Result<()> {
        epoll.watch_for_room(self.as_fd(), token, is_watched)
    }

    fn cut(&self) -> [u64; 2] {
        self.cut()
    }
}
