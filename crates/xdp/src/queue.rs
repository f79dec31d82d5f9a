//! One queue of an interface: its AF_XDP socket, its rings, and the frames that go round.
//!
//! ```text
//!           give_back                        receive
//!   ours ─────────────▶ fill ring ─▶ kernel ─────────▶ ours     for receiving
//!   ours ─────────────▶ transmit ring ─▶ kernel ─────▶ ours     for sending
//!             send                            blank
//! ```
//!
//! A [`Frame`] stands for the memory of one frame: whoever has it may read and write there, and
//! nobody else, the kernel included. There is one of it for each place in the memory, it cannot be
//! copied, and it is given up when the memory goes to the kernel.
#![allow(unsafe_code, reason = "frames of memory that the kernel writes to cannot be slices")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::memory;
use super::ring::{Reader, Writer};
pub use super::socket::{Mode, Notes, Statistics};
use super::socket::{NOTE_BYTES, Socket, Which};
use ringgate_batch::Arena;
use ringgate_os::patience::while_busy;

/// One queue.
#[derive(Debug)]
pub struct Queue {
    /// First, so that it is closed before its memory goes.
    socket: Socket,
    fill: Writer<u64>,
    completion: Reader<u64>,
    received: Reader<libc::xdp_desc>,
    transmit: Writer<libc::xdp_desc>,
    memory: Memory,
    /// Frames to send that nobody has.
    blank: Vec<Frame>,
    /// Frames to receive into that found no room on the fill ring.
    waiting: Vec<Frame>,
    mode: Mode,
    takes_notes: bool,
    /// System calls made.
    syscalls: u64,
}

/// Which queue, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The interface, by its index.
    pub interface: u32,
    /// The queue, by its number.
    pub queue: u32,
    /// How frames come and go; the best that there is where nothing is said.
    pub mode: Option<Mode>,
    /// Frames to receive into, a power of two: what has arrived and was not looked at yet.
    pub receive: u32,
    /// Frames to send, a power of two: what was sent and has not left yet.
    pub send: u32,
    /// Bytes of a frame: 2048 or 4096.
    pub frame_bytes: u32,
    /// Who is to be left a note with a frame, where the kernel knows of such.
    pub notes: Option<Notes>,
}

impl QueueOptions {
    /// Bytes of all frames.
    pub const fn bytes(&self) -> usize {
        (self.receive + self.send) as usize * self.frame_bytes as usize
    }
}

/// One frame's memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    number: u32,
    /// Of which queue.
    of: u32,
}

/// The checksum of a frame to send that somebody else is to write: who that is is said by
/// [`Notes`]. What stands in its place is added to all that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftSum {
    /// Where in the frame it begins.
    pub from: u16,
    /// Where behind that it stands.
    pub at: u16,
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct Received {
    /// Where it lies.
    pub frame: Frame,
    /// Where in the frame's memory it begins.
    pub at: u32,
    /// How long it is.
    pub len: u32,
}

/// The memory of all frames.
#[derive(Debug)]
struct Memory {
    arena: Arc<Arena>,
    /// Where in the arena the first frame lies.
    base: usize,
    frame_bytes: u32,
    /// Frames to send come first.
    send: u32,
    frames: u32,
    /// Tells the frames of this queue from those of others.
    id: u32,
}

impl Queue {
    /// Opens a queue over memory of its own.
    ///
    /// # Errors
    /// Where the kernel refuses: `EBUSY` says that somebody else has the queue.
    pub fn with_own_memory(options: &QueueOptions) -> io::Result<Self> {
        let (arena, _) = memory::shared(options.bytes())?;
        // SAFETY: the arena was made for it, and nobody else has it.
        unsafe { Self::open(options, Arc::new(arena), 0) }
    }

    /// Opens a queue over memory that begins at `base` of an arena, a multiple of a page. Its
    /// frames are the kernel's to write to from now on.
    ///
    /// # Errors
    /// As [`with_own_memory`](Self::with_own_memory).
    ///
    /// # Safety
    /// Nobody else may read or write the [`bytes`](QueueOptions::bytes) from `base` on, by this
    /// arena or otherwise, but with the [`Frame`] that stands for them.
    pub unsafe fn open(options: &QueueOptions, arena: Arc<Arena>, base: usize) -> io::Result<Self> {
        let QueueOptions { interface, queue, mode, receive, send, frame_bytes, notes } = *options;
        let start = arena.pointer(base, options.bytes());
        let socket = Socket::new()?;
        let register = |notes| {
            // SAFETY: it is in the arena and nobody's, as the caller has promised.
            unsafe { socket.register(start, options.bytes(), frame_bytes, notes) }
        };
        let taken = match register(notes) {
            // A kernel that knows of no notes (before 6.11) does not take the memory with them.
            Err(why) if notes.is_some() && why.raw_os_error() == Some(libc::EINVAL) => {
                register(None).map(|()| false)
            }
            registered => registered.map(|()| notes.is_some()),
        };
        let takes_notes = taken?;
        let sizes = [
            (Which::Fill, receive),
            (Which::Completion, send),
            (Which::Receive, receive),
            (Which::Transmit, send),
        ];
        for (which, size) in sizes {
            socket.make_ring(which, size)?;
        }
        let mut opened = Self::over(socket, options, arena, base)?;
        let all = |number| Frame { number, of: opened.memory.id };
        (opened.blank, opened.waiting) =
            ((0..send).map(all).collect(), (send..send + receive).map(all).collect());
        // A card takes memory as soon as it is bound.
        opened.top_up();
        while_busy(|| opened.socket.bind(interface, queue, mode))?;
        opened.mode = opened.socket.mode()?;
        opened.takes_notes = takes_notes;
        Ok(opened)
    }

    /// A queue that another process has opened, and goes on with until that has
    /// [told](Self::settle) which frames it has: [`resume`](Self::resume) takes those over. `base`
    /// is where its frames lie in an arena of ours. It takes notes where the options have them.
    ///
    /// # Errors
    /// Where it is no such socket.
    ///
    /// # Safety
    /// As [`open`](Self::open); the other process is to be trusted with the same.
    pub unsafe fn adopt(
        options: &QueueOptions,
        arena: Arc<Arena>,
        base: usize,
        socket: OwnedFd,
    ) -> io::Result<Self> {
        let mut adopted = Self::over(Socket::adopt(socket), options, arena, base)?;
        adopted.mode = adopted.socket.mode()?;
        adopted.takes_notes = options.notes.is_some();
        Ok(adopted)
    }

    /// The rings of a socket, and no frames.
    fn over(
        socket: Socket,
        options: &QueueOptions,
        arena: Arc<Arena>,
        base: usize,
    ) -> io::Result<Self> {
        static QUEUES: AtomicU32 = AtomicU32::new(0);
        let QueueOptions { receive, send, frame_bytes, .. } = *options;
        let offsets = socket.ring_offsets()?;
        let (mapping, fill) = socket.map_ring::<u64>(Which::Fill, &offsets, receive)?;
        let fill = Writer::new(mapping, &fill, receive);
        let (mapping, completion) = socket.map_ring::<u64>(Which::Completion, &offsets, send)?;
        let completion = Reader::new(mapping, &completion, send);
        let (mapping, received) =
            socket.map_ring::<libc::xdp_desc>(Which::Receive, &offsets, receive)?;
        let received = Reader::new(mapping, &received, receive);
        let (mapping, transmit) =
            socket.map_ring::<libc::xdp_desc>(Which::Transmit, &offsets, send)?;
        let transmit = Writer::new(mapping, &transmit, send);
        let id = QUEUES.fetch_add(1, Ordering::Relaxed);
        let memory = Memory { arena, base, frame_bytes, send, frames: send + receive, id };
        Ok(Self {
            socket,
            fill,
            completion,
            received,
            transmit,
            memory,
            blank: Vec::with_capacity(send as usize),
            waiting: Vec::with_capacity(receive as usize),
            mode: Mode::Copy,
            takes_notes: false,
            syscalls: 0,
        })
    }

    /// Before another process goes on: the kernel knows everything. Returns the frames that nobody
    /// has; all others are the kernel's, or are in the caller's hands.
    pub fn settle(&mut self) -> Vec<u32> {
        self.reap();
        self.top_up();
        // What an interface that is down or gone does not send is the kernel's all the same.
        let _ = self.kick();
        self.blank.iter().chain(&self.waiting).map(|frame| frame.number).collect()
    }

    /// The number of a frame, for the process that goes on.
    pub const fn number(&self, frame: &Frame) -> u32 {
        frame.number
    }

    /// Goes on where another process has stopped, with the frames that it had.
    ///
    /// # Errors
    /// Where these cannot be frames of this queue, or one is named twice.
    pub fn resume(&mut self, frames: &[u32]) -> io::Result<()> {
        let mut is_known = vec![false; self.memory.frames as usize];
        for number in frames {
            let known = is_known.get_mut(*number as usize).ok_or(io::ErrorKind::InvalidData)?;
            if std::mem::replace(known, true) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        self.fill.resume();
        self.completion.resume();
        self.received.resume();
        self.transmit.resume();
        (self.blank, self.waiting) = (Vec::new(), Vec::new());
        for number in frames {
            self.give_back(Frame { number: *number, of: self.memory.id });
        }
        Ok(())
    }

    /// How frames come and go.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether frames can be sent whose checksum is [left](Self::send_unfinished) to others.
    pub const fn takes_notes(&self) -> bool {
        self.takes_notes
    }

    /// Its socket, to be given to a program, or to be waited for.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the kernel has counted.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.socket.statistics()
    }

    /// System calls made to receive and send.
    pub const fn syscalls(&self) -> u64 {
        self.syscalls
    }

    /// Where in the arena a frame lies.
    #[inline]
    pub fn offset(&self, frame: &Frame) -> usize {
        self.memory.offset(frame)
    }

    /// A frame's memory.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let (start, len) = self.memory.place(frame);
        // SAFETY: it lies in the arena, whose bytes are all initialised. Whoever has the frame has
        // its bytes: the kernel does not, and nobody writes, because that takes `&mut Frame`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// A frame's memory, to be written to.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let (start, len) = self.memory.place(frame);
        // SAFETY: as in `bytes`, and `&mut Frame` excludes every other slice of it.
        unsafe { std::slice::from_raw_parts_mut(start.cast_mut(), len) }
    }

    /// The next frame that has arrived.
    #[inline]
    pub fn receive(&mut self) -> Option<Received> {
        let descriptor = self.received.pop()?;
        let offset = descriptor.addr as u32;
        let frame = self.memory.frame_at(offset)?;
        let at = offset & (self.memory.frame_bytes - 1);
        let len = descriptor.len.min(self.memory.frame_bytes - at);
        Some(Received { frame, at, len })
    }

    /// A frame that was received, or never sent, can be used again.
    #[inline]
    pub fn give_back(&mut self, frame: Frame) {
        self.memory.check(&frame);
        if frame.number < self.memory.send {
            self.blank.push(frame);
        } else {
            self.waiting.push(frame);
        }
    }

    /// Tells the kernel what was taken off the receive ring, and gives it memory for more. To be
    /// called before new work is done, so that there is room for what comes meanwhile.
    pub fn top_up(&mut self) {
        self.received.release();
        let Self { waiting, fill, memory, .. } = self;
        let mut is_new = false;
        while let Some(frame) = waiting.last() {
            if !fill.push(memory.address(frame)) {
                break;
            }
            waiting.pop();
            is_new = true;
        }
        if is_new {
            fill.publish();
        }
        if self.fill.wants_wake_up() && self.mode == Mode::ZeroCopy {
            self.syscalls += 1;
            // Whatever is wrong will be with the next as well, and is seen there.
            let _ = self.socket.wake();
        }
    }

    /// A frame to be written and sent; `None` where all are under way.
    #[inline]
    pub fn blank(&mut self) -> Option<Frame> {
        self.blank.pop()
    }

    /// Takes back frames that have left.
    pub fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            self.blank.extend(self.memory.frame_at(address as u32));
        }
        self.completion.release();
    }

    /// Puts `len` bytes of a frame from `at` on onto the transmit ring; a frame for which there is
    /// no room comes back. It leaves with the next [`kick`](Self::kick).
    ///
    /// # Panics
    /// Where they do not lie in the frame, or where it is a frame to receive into.
    #[inline]
    pub fn send(&mut self, frame: Frame, at: u32, len: u32) -> Result<(), Frame> {
        self.put(frame, (at, len), 0)
    }

    /// The same with a checksum that others write. What lies in front of the frame is written over.
    ///
    /// # Panics
    /// As `send`, and where [`NOTE_ROOM`] bytes do not lie in front of it, or nobody takes notes.
    #[inline]
    pub fn send_unfinished(
        &mut self,
        mut frame: Frame,
        at: u32,
        len: u32,
        sum: LeftSum,
    ) -> Result<(), Frame> {
        assert!(self.takes_notes, "a note that nobody reads leaves a wrong checksum");
        let place = at as usize - NOTE_ROOM..at as usize;
        let note = &mut self.bytes_mut(&mut frame)[place];
        note.fill(0);
        note[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
        note[8..10].copy_from_slice(&sum.from.to_ne_bytes());
        note[10..12].copy_from_slice(&sum.at.to_ne_bytes());
        self.put(frame, (at, len), libc::XDP_TX_METADATA)
    }

    fn put(&mut self, frame: Frame, (at, len): (u32, u32), options: u32) -> Result<(), Frame> {
        let memory = &self.memory;
        let is_inside = at <= memory.frame_bytes && len <= memory.frame_bytes - at;
        assert!(is_inside && frame.number < memory.send, "it is a frame to send");
        let addr = memory.address(&frame) + u64::from(at);
        if self.transmit.push(libc::xdp_desc { addr, len, options }) { Ok(()) } else { Err(frame) }
    }

    /// Has the kernel send what is on the transmit ring. What it could not send stays there, and
    /// goes with the next.
    pub fn kick(&mut self) -> io::Result<()> {
        self.transmit.publish();
        // In copy mode it sends some and stops.
        for _ in 0..KICKS_MAX {
            if self.transmit.is_read() || !self.transmit.wants_wake_up() {
                return Ok(());
            }
            self.syscalls += 1;
            match self.socket.kick() {
                Ok(()) => {}
                Err(why) => match why.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => {}
                    // It has no room now.
                    Some(libc::EBUSY | libc::ENOBUFS) => return Ok(()),
                    _ => return Err(why),
                },
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Panics where a frame is another queue's.
    fn check(&self, frame: &Frame) {
        assert_eq!(frame.of, self.id, "a frame belongs to the queue that it came from");
    }

    /// How the kernel names a frame.
    fn address(&self, frame: &Frame) -> u64 {
        self.check(frame);
        u64::from(frame.number * self.frame_bytes)
    }

    fn offset(&self, frame: &Frame) -> usize {
        self.base + self.address(frame) as usize
    }

    fn place(&self, frame: &Frame) -> (*const u8, usize) {
        let len = self.frame_bytes as usize;
        (self.arena.pointer(self.offset(frame), len).as_ptr(), len)
    }

    /// The frame that the kernel has just given back, by an address in it. `None` where there is
    /// none: that would be the kernel's mistake.
    fn frame_at(&self, address: u32) -> Option<Frame> {
        let number = address / self.frame_bytes;
        (number < self.frames).then_some(Frame { number, of: self.id })
    }
}

/// Bytes in front of what is sent that a note takes.
pub const NOTE_ROOM: usize = NOTE_BYTES as usize;

/// A full ring at 32 frames each time, and some that were in vain.
const KICKS_MAX: usize = 256;
