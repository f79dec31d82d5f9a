//! A player's socket, connected to one server, so that the host tells what the network says of it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::super::Failure;
use ringgate_os::clock::Clock;

/// A socket and its clock.
pub(super) struct Line {
    socket: UdpSocket,
    clock: Clock,
}

/// What host and network can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// This host does not let it out.
    Blocked,
    /// That host says that nobody listens.
    Refused,
    /// Somebody says that there is no way.
    Unreachable,
}

impl Line {
    pub(super) fn open(server: SocketAddr) -> Result<Self, Failure> {
        let any = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let open = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            socket.set_read_timeout(Some(LOOK_EVERY))?;
            Ok(socket)
        };
        let socket = open().map_err(|why: io::Error| {
            Failure::failed(format_args!("{server} cannot be reached from here: {why}"))
        })?;
        Ok(Self { socket, clock: Clock::start() })
    }

    /// Where the player is, as this host sees it.
    pub(super) fn local(&self) -> Result<SocketAddr, Failure> {
        self.socket.local_addr().map_err(Failure::failed)
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(super) fn send(&self, datagram: &[u8]) -> Result<Result<(), Trouble>, Failure> {
        // What is said of an earlier datagram is said at the next call.
        sort(self.socket.send(datagram)).map(|sent| sent.map(drop))
    }

    /// A datagram of the server's, if one comes soon.
    pub(super) fn receive(
        &self,
        into: &mut [u8],
    ) -> Result<Result<Option<usize>, Trouble>, Failure> {
        match self.socket.recv(into) {
            Err(why) if is_nothing(&why) => Ok(Ok(None)),
            received => sort(received).map(|received| received.map(Some)),
        }
    }
}

fn is_nothing(why: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(why.kind(), K::WouldBlock | K::TimedOut | K::Interrupted)
}

fn sort(done: io::Result<usize>) -> Result<Result<usize, Trouble>, Failure> {
    let why = match done {
        Ok(len) => return Ok(Ok(len)),
        Err(why) => why,
    };
    match why.kind() {
        io::ErrorKind::ConnectionRefused => Ok(Err(Trouble::Refused)),
        io::ErrorKind::PermissionDenied => Ok(Err(Trouble::Blocked)),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Ok(Err(Trouble::Unreachable))
        }
        _ => Err(Failure::failed(format_args!("the socket failed: {why}"))),
    }
}

/// Often enough for what a client sends by itself.
const LOOK_EVERY: Duration = Duration::from_millis(5);
