//! A lane's UDP socket: connected to the other side's, so that it has a receive queue of its own,
//! and the kernel takes and gives many datagrams at once.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::lane::Lane;
use arrayvec::ArrayVec;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::crypto::Aead;
use ringgate_link::bundle::Run;
use ringgate_os::message::{self, Beside, MESSAGES_MAX, Outgoing, Receiver};
use ringgate_os::segments::{self, Cut, MESSAGE_BYTES_MAX, SEGMENTS_MAX};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::socket::carried::{adopt, read_address, write_address};

/// Memory that datagrams are received into: a few messages of the longest kind. Several ports of a
/// thread share it.
#[derive(Debug)]
pub struct Buffers {
    receiver: Receiver,
    bytes: Vec<Box<[u8]>>,
}

impl Buffers {
    /// The most that one receive brings.
    pub const BYTES: usize = BUFFERS * BUFFER_BYTES;
}

impl Default for Buffers {
    fn default() -> Self {
        let bytes = (0..BUFFERS).map(|_| vec![0; BUFFER_BYTES].into_boxed_slice()).collect();
        Self { receiver: Receiver::new(Beside::NameAndControl), bytes }
    }
}

/// One lane's socket.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    peer: SocketAddr,
    /// Datagrams of others, which came before it was connected, may wait in it.
    may_have_strays: bool,
    /// Datagrams to be sent alone: the kernel did not take them together.
    alone: usize,
    /// Messages that the kernel has cut, and such that it refused to.
    cut: [u64; 2],
}

impl Port {
    /// A socket that sends to and hears `peer` alone. Bound to a port that others have too, it
    /// takes from now on what comes from `peer`.
    pub fn open(local: SocketAddr, peer: SocketAddr) -> io::Result<Self> {
        let is_shared = local.port() != 0;
        let socket = udp(local, is_shared)?;
        socket.connect(&SockAddr::from(peer))?;
        // Joined datagrams (Linux 5.0) are only cheaper.
        let _ = segments::receive_joined(socket.as_fd());
        let socket = UdpSocket::from(socket);
        Ok(Self { socket, peer, may_have_strays: is_shared, alone: 0, cut: [0; 2] })
    }

    /// Writes all of it but the descriptor.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let Self { socket: _, peer, may_have_strays, alone, cut } = self;
        write_address(*peer, out);
        may_have_strays.write(out);
        alone.write(out);
        cut.write(out);
    }

    /// What another process had over this descriptor.
    pub(crate) fn read(from: &mut Reader<'_>, fd: OwnedFd) -> Result<Self, Broken> {
        let socket = adopt(fd, Type::DGRAM)?.into();
        let (peer, may_have_strays) = (read_address(from)?, Carry::read(from)?);
        let (alone, cut) = (Carry::read(from)?, Carry::read(from)?);
        Ok(Self { socket, peer, may_have_strays, alone, cut })
    }

    /// Whom it sends to.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Messages that the kernel has cut into datagrams, and such that it refused to.
    pub const fn cut(&self) -> [u64; 2] {
        self.cut
    }

    /// Takes in what the socket has, up to a burst. `deliver` gets what is for local links, `stray`
    /// what came from others before the socket was connected. Returns whether there may be more,
    /// and whether anything was authentic.
    pub fn receive(
        &mut self,
        buffers: &mut Buffers,
        (lane, aead): (&mut Lane, &mut Aead),
        now_ns: u64,
        mut deliver: impl FnMut(u16, Run<'_>),
        mut stray: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<(bool, bool)> {
        let Buffers { receiver, bytes } = buffers;
        let count = match receiver.receive_into(self.socket.as_fd(), bytes) {
            Ok(count) => count,
            Err(why) => return is_passing(&why).then_some((false, false)).ok_or(why),
        };
        let mut is_authentic = false;
        let mut datagrams: ArrayVec<&mut [u8], MESSAGES_MAX> = ArrayVec::new();
        for (index, buffer) in bytes.iter_mut().take(count).enumerate() {
            let message = receiver.message(index);
            let bytes = &mut buffer[..message.len];
            let each = segments::joined_bytes(message.control).unwrap_or(BUFFER_BYTES);
            if self.may_have_strays
                && let Some(from) = message.peer().filter(|from| !is_same(*from, self.peer))
            {
                bytes.chunks(each).for_each(|datagram| stray(from, datagram));
                continue;
            }
            for datagram in bytes.chunks_mut(each) {
                if datagrams.is_full() {
                    is_authentic |= lane.receive_runs(now_ns, aead, &mut datagrams, &mut deliver);
                    datagrams.clear();
                }
                datagrams.push(datagram);
            }
        }
        is_authentic |= lane.receive_runs(now_ns, aead, &mut datagrams, &mut deliver);
        let has_more = count == BUFFERS;
        self.may_have_strays &= has_more;
        Ok((has_more, is_authentic))
    }

    /// Sends what is sealed. `false` where the kernel has no room for all of it.
    pub fn send(&mut self, lane: &mut Lane, now_ns: u64) -> io::Result<bool> {
        let (mut failures, mut was_too_long) = (0, false);
        while lane.pending().len() > 0 {
            let sent = Burst::of(lane, self.alone).send(self.socket.as_fd());
            match sent {
                Ok((datagrams, cut)) => {
                    was_too_long = false;
                    lane.handle_sent(datagrams);
                    self.alone = self.alone.saturating_sub(datagrams);
                    self.cut[0] += cut;
                }
                Err(Trouble::NoRoom) => return Ok(false),
                // Of an earlier datagram, most likely: of this one it is said again.
                Err(Trouble::TooLong { .. }) if !std::mem::replace(&mut was_too_long, true) => {}
                Err(Trouble::TooLong { bytes }) => {
                    was_too_long = false;
                    lane.handle_too_long(bytes, now_ns);
                    lane.handle_sent(1);
                    self.alone = self.alone.saturating_sub(1);
                }
                Err(Trouble::Together { datagrams }) => {
                    self.alone = datagrams;
                    self.cut[1] += 1;
                }
                // Of an earlier datagram, most likely: the other side is not there yet, or no more.
                // Its silence says so.
                Err(Trouble::Other(why)) => {
                    failures += 1;
                    if failures > TRIES_MAX {
                        lane.handle_sent(usize::MAX);
                        return if is_passing(&why) { Ok(true) } else { Err(why) };
                    }
                }
            }
        }
        Ok(true)
    }

    /// Sends one datagram beside those of the lane, or gives it up.
    pub(crate) fn send_alone(&self, datagram: &[u8]) {
        for _ in 0..=TRIES_MAX {
            match self.socket.send(datagram) {
                // Of an earlier datagram, as in `send`.
                Err(why) if why.kind() != io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A UDP socket as lanes want it, bound.
pub(crate) fn udp(local: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(local), kind, None)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if is_shared {
        socket.set_reuse_port(true)?;
    }
    segments::choose_fragments(socket.as_fd(), local.is_ipv6(), false)?;
    segments::ask_for_buffers(socket.as_fd(), SOCKET_BYTES, SOCKET_BYTES);
    socket.bind(&SockAddr::from(local))?;
    Ok(socket)
}

/// The same address and port; what else an address has (a scope, a flow) depends on who names it.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// Whether an error says something of an earlier datagram or of the way, as any ICMP message does
/// that comes in, a forged one too: the other side's silence tells whether it is true. What else
/// there is says that the socket is none.
fn is_passing(why: &io::Error) -> bool {
    use libc::{EBADF, EFAULT, EINVAL, ENOTCONN, ENOTSOCK};
    !matches!(why.raw_os_error(), Some(EBADF | EFAULT | EINVAL | ENOTCONN | ENOTSOCK))
}

/// Why nothing of a burst was sent.
enum Trouble {
    NoRoom,
    /// The first datagram, which was alone.
    TooLong {
        bytes: usize,
    },
    /// The first message, which was to be cut into so many.
    Together {
        datagrams: usize,
    },
    Other(io::Error),
}

/// Datagrams for one system call, those of one length in one message.
struct Burst<'a> {
    parts: ArrayVec<IoSlice<'a>, MESSAGES_MAX>,
    messages: ArrayVec<Message, MESSAGES_MAX>,
}

/// One message: datagrams, and their length but for the last.
#[derive(Clone, Copy)]
struct Message {
    datagrams: usize,
    each: usize,
    bytes: usize,
    is_closed: bool,
    control: Option<Cut>,
}

impl Message {
    const fn of(bytes: usize, is_alone: bool) -> Self {
        Self { datagrams: 1, each: bytes, bytes, is_closed: is_alone, control: None }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let fits = !self.is_closed
            && bytes <= self.each
            && self.datagrams < SEGMENTS_MAX
            && self.bytes + bytes <= MESSAGE_BYTES_MAX;
        if fits {
            self.datagrams += 1;
            self.bytes += bytes;
            self.is_closed = bytes < self.each;
            self.control.get_or_insert_with(|| Cut::new(self.each as u16));
        }
        fits
    }
}

impl<'a> Burst<'a> {
    /// Of what a lane has sealed. The first so many go alone.
    fn of(lane: &'a Lane, alone: usize) -> Self {
        let (mut parts, mut messages) = (ArrayVec::new(), ArrayVec::<Message, MESSAGES_MAX>::new());
        for (index, datagram) in lane.pending().take(MESSAGES_MAX).enumerate() {
            parts.push(IoSlice::new(datagram));
            let is_taken = messages.last_mut().is_some_and(|last| last.take(datagram.len()));
            if !is_taken {
                messages.push(Message::of(datagram.len(), index < alone));
            }
        }
        Self { parts, messages }
    }

    /// How many datagrams have left, and how many messages were cut.
    fn send(&self, socket: BorrowedFd<'_>) -> Result<(usize, u64), Trouble> {
        let mut parts = self.parts.as_slice();
        let mut outgoing: ArrayVec<Outgoing<'_>, MESSAGES_MAX> = ArrayVec::new();
        for message in &self.messages {
            let (mine, rest) = parts.split_at(message.datagrams);
            parts = rest;
            let control = message.control.as_ref().map_or(&[][..], Cut::as_bytes);
            outgoing.push(Outgoing::new(&[], control, mine));
        }
        let first = &self.messages[0];
        let sent = message::send(socket, &mut outgoing).map_err(|why| first.trouble(why))?;
        let sent = &self.messages[..sent];
        let cut = sent.iter().filter(|message| message.control.is_some()).count();
        Ok((sent.iter().map(|message| message.datagrams).sum(), cut as u64))
    }
}

impl Message {
    fn trouble(&self, why: io::Error) -> Trouble {
        match why.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Trouble::NoRoom,
            // A length that the device does not take, or a device that cannot be asked to cut.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::EIO) if self.datagrams > 1 => {
                Trouble::Together { datagrams: self.datagrams }
            }
            Some(libc::EMSGSIZE) => Trouble::TooLong { bytes: self.bytes },
            _ => Trouble::Other(why),
        }
    }
}

/// Messages of one receive: half a megabyte at once.
const BUFFERS: usize = 8;

const BUFFER_BYTES: usize = 1 << 16;

/// Several milliseconds at full speed.
const SOCKET_BYTES: i32 = 8 << 20;

/// How often a send is tried that reports what happened to an earlier datagram.
const TRIES_MAX: u32 = 3;
