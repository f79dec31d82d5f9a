//! A trunk's stream over a TCP socket that does not wait.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::control::{Control, Inbox, Malformed, Outbox};
use crate::protocol::datagram::PATH_BYTES_MIN;
use crate::protocol::tls::{Failure, Received, Stream};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::socket::carried::{adopt, read_address, write_address};

/// One connection.
#[derive(Debug)]
pub struct Line {
    socket: TcpStream,
    peer: SocketAddr,
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    /// The kernel had no room for what waits.
    is_blocked: bool,
}

impl Line {
    /// Begins to connect. Whether that succeeds shows when it is read or written.
    pub fn connect(to: SocketAddr, stream: Stream) -> io::Result<Self> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(to), kind, None)?;
        keep_segments_short(socket.as_fd());
        match socket.connect(&SockAddr::from(to)) {
            Err(why) if why.raw_os_error() != Some(libc::EINPROGRESS) => return Err(why),
            _ => {}
        }
        Self::new(socket.into(), to, stream)
    }

    /// A connection that was accepted.
    pub fn accepted(socket: TcpStream, peer: SocketAddr, stream: Stream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::new(socket, peer, stream)
    }

    fn new(socket: TcpStream, peer: SocketAddr, stream: Stream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        // The trunk's own beats say sooner that the other side is gone. This ends a connection that
        // waits for the kernel to give up sending.
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
        Ok(Self {
            socket,
            peer,
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            is_blocked: false,
        })
    }

    /// Who is at the other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address at which it was reached.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What is proven of the other side.
    pub const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What is to be sent.
    pub const fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Reads what there is, as far as there is room. Take everything out with [`next`](Self::next)
    /// before it is asked again; it is over where it says [`Received::Nothing`].
    pub fn receive(&mut self) -> Result<Received, Failure> {
        let Self { socket, stream, inbox, .. } = self;
        stream.receive(socket, inbox)
    }

    /// The next whole frame.
    #[expect(clippy::should_implement_trait, reason = "it lends what it holds")]
    pub fn next(&mut self) -> Option<Result<Control<'_>, Malformed>> {
        self.inbox.next()
    }

    /// Writes what waits, as far as the kernel has room. A connection that is not made yet has
    /// none.
    pub fn flush(&mut self) -> io::Result<()> {
        let Self { socket, stream, outbox, .. } = self;
        let flushed = match stream.transmit(socket, outbox) {
            Err(why) if why.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        };
        self.is_blocked = self.stream.wants_to_write();
        flushed
    }

    /// Whether it is to be flushed as soon as the kernel has room.
    pub const fn wants_room(&self) -> bool {
        self.is_blocked
    }

    /// Has it be something that another process can go on with: see [`Stream::make_portable`].
    pub fn make_portable(&mut self) -> Result<(), Failure> {
        self.stream.make_portable()
    }

    /// Writes all of it but the descriptor.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        // Whether there is room shows when it is written to.
        let Self { socket: _, peer, stream, inbox, outbox, is_blocked: _ } = self;
        write_address(*peer, out);
        stream.write(out);
        inbox.write(out);
        outbox.write(out);
    }

    /// What another process had over this descriptor.
    pub(crate) fn read(from: &mut Reader<'_>, fd: OwnedFd) -> Result<Self, Broken> {
        let socket = adopt(fd, Type::STREAM)?.into();
        let (peer, stream) = (read_address(from)?, Carry::read(from)?);
        let (inbox, outbox) = (Carry::read(from)?, Carry::read(from)?);
        Ok(Self { socket, peer, stream, inbox, outbox, is_blocked: false })
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        self.stream.close();
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has a connection's segments, both ways, fit where the shortest datagram of a lane does. A way
/// that carries less than its ends know, and does not say so, loses longer ones each time.
pub(super) fn keep_segments_short(socket: BorrowedFd<'_>) {
    let _ = SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES);
}

/// The header of TCP is 12 bytes longer than that of UDP.
pub(super) const SEGMENT_BYTES: u32 = PATH_BYTES_MIN as u32 - 12;

const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(10);
