//! UDP sockets of the standard library: one for the address family of the present server.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Where datagrams leave and arrive.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    socket: Option<Open>,
}

#[derive(Debug)]
struct Open {
    socket: UdpSocket,
    is_v4: bool,
    /// How long receiving waits; sending does not.
    waits: Duration,
}

impl Sockets {
    /// Opens a socket for that server, if there is none that can reach it.
    pub(crate) fn open_for(&mut self, server: SocketAddr) -> io::Result<()> {
        let is_v4 = server.is_ipv4();
        if self.socket.as_ref().is_some_and(|open| open.is_v4 == is_v4) {
            return Ok(());
        }
        let any: SocketAddr = if is_v4 {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        // What arrives at the socket of another family is of no use any more.
        self.socket = Some(Open { socket, is_v4, waits: Duration::ZERO });
        Ok(())
    }

    /// Opens a socket of whatever family this host has: what can be waited at, even if the first
    /// server cannot be reached.
    pub(crate) fn open_any(&mut self) -> io::Result<()> {
        let v4: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
        let v6: SocketAddr = (Ipv6Addr::LOCALHOST, 1).into();
        self.open_for(v4).or_else(|_| self.open_for(v6))
    }

    /// Where datagrams leave from.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.as_ref()?.socket.local_addr().ok()
    }

    /// Sends a datagram. Whether the system took it.
    pub(crate) fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        // A family that this host does not have is a server that cannot be reached.
        if self.open_for(to).is_err() {
            return false;
        }
        let Some(open) = &mut self.socket else { return false };
        // What finds no room is lost, as on the way.
        open.wait_for(Duration::ZERO).is_ok() && open.socket.send_to(datagram, to).is_ok()
    }

    /// Receives a datagram, and waits for it at most so long. `None` where none came.
    pub(crate) fn receive(
        &mut self,
        wait: Duration,
        buffer: &mut [u8],
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        let Some(open) = &mut self.socket else { return Ok(None) };
        open.wait_for(wait)?;
        for _ in 0..COMPLAINTS_MAX {
            match open.socket.recv_from(buffer) {
                Ok(received) => return Ok(Some(received)),
                Err(why) => match why.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                        return Ok(None);
                    }
                    // What a router or Windows says about a datagram of ours, or of a stranger that
                    // is longer than the buffer.
                    _ if is_about_a_datagram(&why) => {}
                    _ => return Err(why),
                },
            }
        }
        Ok(None)
    }
}

impl Open {
    fn wait_for(&mut self, wait: Duration) -> io::Result<()> {
        if wait == self.waits {
            return Ok(());
        }
        self.socket.set_nonblocking(wait.is_zero())?;
        if !wait.is_zero() {
            self.socket.set_read_timeout(Some(wait))?;
        }
        self.waits = wait;
        Ok(())
    }
}

fn is_about_a_datagram(why: &io::Error) -> bool {
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
    ];
    kinds.contains(&why.kind()) || why.raw_os_error().is_some_and(|it| OF_WINDOWS.contains(&it))
}

/// So many complaints in a row, and the caller has its turn.
const COMPLAINTS_MAX: u32 = 64;

/// `WSAEMSGSIZE`, and `WSAENETRESET` of a datagram whose time to live was over: no kind stands for
/// them. No system has other errors with these numbers.
const OF_WINDOWS: [i32; 2] = [10_040, 10_052];

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_socket_that_has_waited_does_not_wait_for_room() {
        let mut sockets = Sockets::default();
        sockets.open_any().expect("a socket");
        let port = sockets.local_addr().expect("it is open").port();
        let is_v4 = sockets.socket.as_ref().is_some_and(|open| open.is_v4);
        let ip: IpAddr =
            if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let to = (ip, port).into();
        for _ in 0..2 {
            assert!(sockets.send(to, b"hi"));
            let waits = sockets.socket.as_ref().map(|open| open.waits);
            assert_eq!(waits, Some(Duration::ZERO));
            let received = sockets.receive(Duration::from_mins(1), &mut [0; 8]);
            assert!(received.expect("it works").is_some());
        }
    }
}
