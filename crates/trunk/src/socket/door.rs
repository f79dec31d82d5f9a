//! Where agents come to a gateway: one number for connections and for the first datagrams of their
//! lanes.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::fchown;

use crate::protocol::datagram::PATH_BYTES_MAX;
use ringgate_os::message::{Beside, MESSAGES_MAX, Receiver};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::socket::line::keep_segments_short;
use crate::socket::port;

/// Both sockets, and room for what comes to the second.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    datagrams: UdpSocket,
    receiver: Receiver,
    buffers: Vec<Box<[u8]>>,
}

impl Door {
    /// Binds both. A port of 0 is one that the kernel chooses: it does so for connections, and is
    /// asked again where another socket has that number for datagrams.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let tries = if address.port() == 0 { CHOICES_MAX } else { 1 };
        let mut bound = Self::bind_once(address);
        for _ in 1..tries {
            match bound {
                Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
                    bound = Self::bind_once(address);
                }
                _ => break,
            }
        }
        bound
    }

    fn bind_once(address: SocketAddr) -> io::Result<Self> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let listener = Socket::new(Domain::for_address(address), kind, None)?;
        if address.is_ipv6() {
            listener.set_only_v6(true)?;
        }
        // Connections that have ended are not in the way.
        listener.set_reuse_address(true)?;
        listener.bind(&SockAddr::from(address))?;
        listener.listen(BACKLOG)?;
        let listener = TcpListener::from(listener);
        let datagrams = port::udp(listener.local_addr()?, true)?;
        Ok(Self::new(listener, datagrams.into()))
    }

    /// Of sockets that were bound before.
    pub fn new(listener: TcpListener, datagrams: UdpSocket) -> Self {
        // What it accepts has this of it.
        keep_segments_short(listener.as_fd());
        let buffers = (0..MESSAGES_MAX).map(|_| vec![0; BUFFER_BYTES].into_boxed_slice());
        let (receiver, buffers) = (Receiver::new(Beside::NameAndControl), buffers.collect());
        Self { listener, datagrams, receiver, buffers }
    }

    /// The address of both.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Both sockets: for connections, for datagrams.
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.listener.as_fd(), self.datagrams.as_fd()]
    }

    /// Gives both to the user that the process is about to become: the sockets of lanes share their
    /// port, which only sockets of one user may.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.sockets().into_iter().try_for_each(|socket| fchown(socket, Some(uid), Some(gid)))
    }

    /// The next connection, if there is one.
    pub fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        match self.listener.accept() {
            Ok(guest) => Ok(Some(guest)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // What has become of one connection meanwhile says nothing about the next.
            Err(why) if is_of_one_connection(why.kind()) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// A burst of datagrams. Returns whether there may be more.
    pub fn receive(&mut self, mut handle: impl FnMut(SocketAddr, &mut [u8])) -> bool {
        let Self { datagrams, receiver, buffers, .. } = self;
        // What an unconnected socket reports is of no use here.
        let count = receiver.receive_into(datagrams.as_fd(), buffers).unwrap_or(0);
        for (index, buffer) in buffers.iter_mut().take(count).enumerate() {
            let message = receiver.message(index);
            if let Some(from) = message.peer() {
                handle(from, &mut buffer[..message.len]);
            }
        }
        count == MESSAGES_MAX
    }
}

/// As accept(2) lists them: what the network had reported of a connection that is accepted now.
fn is_of_one_connection(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::HostUnreachable
            | Kind::TimedOut
    )
}

const BACKLOG: i32 = 64;

/// That all of these are taken hardly happens where ports are left.
const CHOICES_MAX: u32 = 64;

/// What is longer is cut off, and opens under no key.
const BUFFER_BYTES: usize = PATH_BYTES_MAX + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::line::SEGMENT_BYTES;

    #[test]
    fn segments_to_and_from_a_door_are_short_whoever_comes() {
        let door = Door::bind(([127, 33, 0, 2], 0).into()).expect("loopback");
        let came = TcpStream::connect(door.address().expect("bound")).expect("loopback");
        let (here, _) = std::iter::from_fn(|| door.accept().transpose())
            .next()
            .expect("it is connected")
            .expect("it listens");
        for socket in [&came, &here] {
            let mss = socket2::SockRef::from(socket).tcp_mss().expect("it is TCP");
            assert!(mss <= SEGMENT_BYTES, "{mss}");
        }
    }

    /// Among so many sockets some door of these meets a number that is taken.
    #[test]
    fn a_number_that_the_kernel_chose_and_that_is_taken_for_datagrams_is_chosen_anew() {
        let ip = [127, 33, 0, 1];
        let taken: Vec<_> = (0..300)
            .map(|_| UdpSocket::bind(SocketAddr::from((ip, 0))).expect("loopback"))
            .collect();
        for _ in 0..600 {
            let door = Door::bind(SocketAddr::from((ip, 0))).expect("a number is found");
            let address = door.address().expect("bound");
            assert!(taken.iter().all(|it| it.local_addr().is_ok_and(|taken| taken != address)));
        }
        let held = taken[0].local_addr().expect("bound");
        assert_eq!(
            Door::bind(held).expect_err("it was asked for").kind(),
            io::ErrorKind::AddrInUse
        );
    }
}
