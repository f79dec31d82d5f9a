//! A bundle link to a process on this host, whichever side of it this is: what is to go over it
//! waits in a queue with a bound.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::backend::Queue;
use ringgate_link::bundle::{BUNDLE_BYTES_MAX, Frame, Frames};
use ringgate_os::message::{Beside, Receiver};
use ringgate_os::notify::Epoll;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::socket::carried::adopt;
use crate::socket::known::{CalledLink, Said, Sign};

/// One link.
#[derive(Debug)]
pub struct Local {
    socket: Socket,
    queue: Queue,
    is_broken: bool,
    /// For bundles, and for room.
    watched: Cell<[bool; 2]>,
    is_held: Cell<bool>,
    /// Somebody else reads what comes on it, once this sign was come across.
    lent: Cell<Option<Sign>>,
}

/// What reading from a link says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There may be more.
    Part,
    /// Nothing more, for now.
    Everything,
    /// The other side has hung up.
    HungUp,
}

/// Memory that bundles are read into. All links of a thread share it.
#[derive(Debug)]
pub struct Bundles {
    receiver: Receiver,
    buffers: Vec<Box<[u8]>>,
}

impl Default for Bundles {
    fn default() -> Self {
        let buffers = (0..BUNDLES).map(|_| vec![0; BUNDLE_BYTES_MAX].into_boxed_slice());
        Self { receiver: Receiver::new(Beside::Nothing), buffers: buffers.collect() }
    }
}

impl Local {
    /// Connects to who listens at a path: at once or not at all.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let kind = Type::SEQPACKET.nonblocking().cloexec();
        let socket = Socket::new_raw(Domain::UNIX, kind, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Self::new(socket))
    }

    /// A link, and what is to be its other side.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let kind = Type::SEQPACKET.nonblocking().cloexec();
        let (ours, theirs) = Socket::pair_raw(Domain::UNIX, kind, None)?;
        Ok((Self::new(ours), theirs.into()))
    }

    fn new(socket: Socket) -> Self {
        ringgate_os::segments::ask_for_buffers(socket.as_fd(), BUFFER_BYTES, BUFFER_BYTES);
        let queue = Queue::new(QUEUE_BUNDLES);
        let (watched, is_held, lent) = (Cell::default(), Cell::new(false), Cell::new(None));
        Self { socket, queue, is_broken: false, watched, is_held, lent }
    }

    /// Writes all of it but the descriptor: what waits to be sent.
    pub fn write(&self, out: &mut Writer<'_>) {
        // Of whom to read and when, its thread has a word to say.
        let Self { socket: _, queue, is_broken, watched: _, is_held: _, lent: _ } = self;
        is_broken.write(out);
        let bytes: usize = queue.waiting().map(<[u8]>::len).sum();
        bytes.write(out);
        queue.waiting().for_each(|bundle| out.bytes(bundle));
    }

    /// What another process had over this descriptor.
    pub fn read(from: &mut Reader<'_>, fd: OwnedFd) -> Result<Self, Broken> {
        let mut local = Self::new(adopt(fd, Type::SEQPACKET)?);
        local.is_broken = Carry::read(from)?;
        let bytes = usize::read(from)?;
        for frame in Frames::new(from.bytes(bytes)?) {
            let is_taken = frame.is_ok_and(|frame| local.queue.push_late_frame(frame));
            is_taken.then_some(()).ok_or(Broken::Invalid("record"))?;
        }
        Ok(local)
    }

    /// Watches it for bundles.
    pub fn watch(&self, epoll: &Epoll, token: u64) -> io::Result<()> {
        epoll.add(self.as_fd(), token)?;
        self.watched.set([true, false]);
        Ok(())
    }

    /// Appends a record that may be lost. `false` where there is no room: it is the caller's to
    /// count.
    #[inline]
    pub fn push(&mut self, frame: Frame<'_>) -> bool {
        self.queue.push_frame(frame) || {
            self.flush();
            self.queue.push_frame(frame)
        }
    }

    /// Appends a record that must arrive. `false` where too much waits already: the link has to
    /// end, because nothing of this may be dropped.
    #[must_use]
    pub fn push_late(&mut self, frame: Frame<'_>) -> bool {
        self.queue.push_late_frame(frame)
    }

    /// Whether nothing waits that must arrive, and there is room for more, and for much more.
    pub fn has_room(&self) -> [bool; 2] {
        [1, QUEUE_BUNDLES / 2].map(|records| self.queue.has_room_for(records))
    }

    /// Sends what waits, as far as the kernel has room.
    pub fn flush(&mut self) {
        self.is_broken = self.is_broken || !self.queue.send(&self.socket, |_| ());
    }

    /// Has the set say nothing of bundles that wait: who listens to this link has no room for what
    /// it says. Nor does it say that there is room, until that is over and the link was flushed.
    pub fn hold(&self, epoll: &Epoll, token: u64, is_held: bool) {
        self.is_held.set(is_held);
        self.arm(epoll, token, false);
    }

    /// Has somebody else read what the process has said and says from now on, until it is
    /// [taken back](Self::take_back).
    ///
    /// Who reads it now may not know which link it is, and finds a sign on it.
    pub fn lend(
        &mut self,
        (number, serial): (u16, u32),
        set: (&Epoll, u64),
    ) -> io::Result<CalledLink> {
        let (sign, said) = (Sign::new()?, Said(self.socket.try_clone()?));
        if !self.push_late(sign.frame()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.lent.set(Some(sign));
        self.arm(set.0, set.1, false);
        Ok(CalledLink { number, serial, sign, said })
    }

    /// Whether somebody else reads it.
    pub const fn is_lent(&self) -> bool {
        self.lent.get().is_some()
    }

    /// Puts the sign on it once more, where nobody has come across it: it may have been read by who
    /// did not look for it. Whether it was put.
    pub fn call_again(&mut self) -> bool {
        let sign = self.lent.get().filter(|_| self.queue.is_empty());
        sign.is_some_and(|sign| self.push_late(sign.frame()))
    }

    /// Reads it from now on.
    pub fn take_back(&self, epoll: &Epoll, token: u64) {
        if self.lent.take().is_some() {
            // It is not in the set where it has hung up meanwhile; otherwise this fails.
            if epoll.add(self.as_fd(), token).is_ok() {
                self.watched.set([true, false]);
            }
            self.arm(epoll, token, false);
        }
    }

    /// It has hung up while somebody else reads it, who sees that: the set is not to say so again
    /// and again.
    pub fn leave(&self, epoll: &Epoll) {
        let _ = epoll.remove(self.as_fd());
    }

    /// Ends it although somebody else has a descriptor of it.
    pub fn close(self, epoll: &Epoll) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        // The set knows it as long as any descriptor of it is open.
        self.leave(epoll);
    }

    fn arm(&self, epoll: &Epoll, token: u64, wants_room: bool) {
        let is_held = self.is_held.get();
        let wanted = [!is_held && !self.is_lent(), wants_room && !is_held];
        if self.watched.replace(wanted) != wanted {
            // To change a member of the set needs no memory.
            let _ = if is_held && !self.is_lent() {
                epoll.watch_for_end(self.as_fd(), token)
            } else {
                epoll.watch_for(self.as_fd(), token, wanted)
            };
        }
    }

    /// Has the set say when there is room for what a flush has left.
    pub fn watch_for_room(&mut self, epoll: &Epoll, token: u64) {
        self.arm(epoll, token, !self.queue.is_empty() && !self.is_broken);
    }

    /// Throws away what waits. Returns how many payloads that were.
    pub fn clear(&mut self) -> u64 {
        self.queue.clear()
    }

    /// Reads what there is, up to a burst, and hands each bundle on.
    pub fn receive(
        &self,
        bundles: &mut Bundles,
        mut handle: impl FnMut(&[u8]),
    ) -> io::Result<Received> {
        let Bundles { receiver, buffers } = bundles;
        let count = match receiver.receive_into(self.socket.as_fd(), buffers) {
            Ok(count) => count,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                    return Ok(Received::Everything);
                }
                // The peer has closed with our data unread. What it had sent follows.
                io::ErrorKind::ConnectionReset => return Ok(Received::Part),
                _ => return Err(error),
            },
        };
        for (index, buffer) in buffers.iter().take(count).enumerate() {
            let message = receiver.message(index);
            if message.len == 0 {
                return Ok(Received::HungUp);
            }
            if message.truncated {
                return Err(io::Error::other("a bundle is longer than any may be"));
            }
            handle(&buffer[..message.len]);
        }
        Ok(if count == BUNDLES { Received::Part } else { Received::Everything })
    }
}

impl From<OwnedFd> for Local {
    /// One that was accepted; it does not wait.
    fn from(socket: OwnedFd) -> Self {
        let socket = Socket::from(socket);
        let _ = socket.set_nonblocking(true);
        Self::new(socket)
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// As much as a worker's own end has.
const BUFFER_BYTES: i32 = 1 << 20;

/// Bundles that are read at once.
const BUNDLES: usize = 16;

/// 1 MiB for each link: what a trunk brings at once finds room although the process sleeps.
const QUEUE_BUNDLES: usize = 64;
