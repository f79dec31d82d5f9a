//! A lane that a trunk has lent to who has its payloads anyway: what the two tell each other.
//!
//! The trunk's thread keeps the stream. What links say for it comes by one pipe for all of a
//! lane's, because their order is the stream's. How far that is has to stand in each datagram (its
//! mark), and the trunk has something to say by itself, too: so each counts its own, and the mark
//! is the sum. Before the trunk says something, it counts that and empties the pipe. So what was
//! written with the smaller mark comes before it, and what comes behind it has the larger.

use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use ringgate_link::bundle::BUNDLE_BYTES_MAX;
use ringgate_os::{notify, segments};
use socket2::{Domain, Socket, Type};

use super::way::LaneStats;

/// How far the stream is for one lane. All of it wraps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// Frames that the stream was given, or is about to be given by the trunk itself.
    pub(super) told: u32,
    /// Frames that have come by the pipe. The stream was given all of them, but for those of links
    /// that are over.
    pub(super) read: u32,
    /// Frames that have come by the stream.
    pub(super) heard: u32,
    /// Of the first, those that the trunk is about to give it.
    pub(super) reserved: u32,
}

/// What both look at.
#[derive(Debug)]
struct Shared {
    /// What the mark is more than what was written to the pipe.
    offset: AtomicU32,
    heard: AtomicU32,
    /// As who has the lane has said last, who waits for nobody: what cannot be written now is
    /// written a moment later.
    stats: Mutex<LaneStats>,
}

/// The end of who has the lane.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    words: SyncSender<LaneReport>,
    pipe: Socket,
    bell: OwnedFd,
    own: SocketAddr,
}

/// The trunk's end.
#[derive(Debug)]
pub(super) struct Lender {
    shared: Arc<Shared>,
    words: Receiver<LaneReport>,
    pipe: Socket,
    /// The pipe is not read at the moment.
    pub(super) is_held: bool,
}

/// What who has a lane says of it.
#[derive(Debug)]
pub enum LaneReport {
    /// A datagram for somebody else has come to its socket.
    Stray(SocketAddr, Box<[u8]>),
    /// The other side was not heard for too long.
    Silent,
    /// Its socket has failed.
    Failed(io::Error),
    /// Its datagrams have come from an address at which the other end is not.
    Unproven(SocketAddr),
    /// Of these links, by their serial numbers, it has read what was said before, or they are over.
    Caught(Vec<u32>),
}

/// Both ends for a lane whose stream is so far, and that answers from `own`. `bell` rings the
/// trunk's thread.
pub(super) fn lend(
    position: &Position,
    stats: &LaneStats,
    (own, bell): (SocketAddr, OwnedFd),
) -> io::Result<(Lender, Lease)> {
    let (offset, heard) = (AtomicU32::new(position.offset()), AtomicU32::new(position.heard));
    let stats = Mutex::new(*stats);
    let shared = Arc::new(Shared { offset, heard, stats });
    let (sender, words) = sync_channel(WORDS_MAX);
    let kind = Type::SEQPACKET.nonblocking().cloexec();
    let (ours, theirs) = Socket::pair_raw(Domain::UNIX, kind, None)?;
    segments::ask_for_buffers(theirs.as_fd(), PIPE_BYTES, PIPE_BYTES);
    let (pipe, is_held) = (ours, false);
    let lender = Lender { shared: Arc::clone(&shared), words, pipe, is_held };
    Ok((lender, Lease { shared, words: sender, pipe: theirs, bell, own }))
}

impl Position {
    const fn offset(&self) -> u32 {
        self.told.wrapping_sub(self.read)
    }
}

impl Lender {
    /// Tells who has the lane how far the stream is. To be called before the stream has a frame, so
    /// that no mark is smaller than what is on its way.
    pub(super) fn show(&self, position: &Position) {
        self.shared.offset.store(position.offset(), Ordering::Release);
        self.shared.heard.store(position.heard, Ordering::Release);
    }

    /// How the lane was when that was last said.
    pub(super) fn stats(&self) -> LaneStats {
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable while links have something for the stream.
    pub(super) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The next records of a link, and which link that is by its serial number.
    pub(super) fn read<'b>(&self, bytes: &'b mut [u8]) -> Option<(u32, &'b [u8])> {
        let len = (&self.pipe).read(bytes).ok()?;
        let (serial, records) = bytes[..len].split_first_chunk()?;
        Some((u32::from_le_bytes(*serial), records))
    }

    /// What was said. Who has gone with the lane has failed, whatever else is asked.
    pub(super) fn next(&self) -> Option<LaneReport> {
        match self.words.try_recv() {
            Ok(word) => Some(word),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(LaneReport::Failed(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }
}

impl Lease {
    /// Gives the stream records of a link, whole ones that must arrive. The link has this serial
    /// number at the trunk. Nothing was written where that fails.
    pub fn tell(&self, serial: u32, records: &[u8]) -> io::Result<()> {
        debug_assert!(records.len() <= BUNDLE_BYTES_MAX, "a bundle");
        let serial = serial.to_le_bytes();
        let parts = [IoSlice::new(&serial), IoSlice::new(records)];
        self.pipe.send_vectored_with_flags(&parts, libc::MSG_NOSIGNAL).map(drop)
    }

    /// How far the stream is: the mark, where so many frames were written for it, and what has come
    /// by it. To be asked after they were.
    #[inline]
    pub fn stream(&self, written: u32) -> [u32; 2] {
        let offset = self.shared.offset.load(Ordering::Acquire);
        [offset.wrapping_add(written), self.shared.heard.load(Ordering::Acquire)]
    }

    /// The address that the lane answers from.
    pub const fn own(&self) -> SocketAddr {
        self.own
    }

    /// Says how the lane is. Whether that could be said: not while it is being read.
    pub fn show(&self, stats: &LaneStats) -> bool {
        self.shared.stats.try_lock().map(|mut shown| *shown = *stats).is_ok()
    }

    /// Says something. Gives it back where too much was said that nobody has listened to.
    pub fn say(&self, word: LaneReport) -> Result<(), LaneReport> {
        match self.words.try_send(word) {
            Ok(()) => {
                notify::event_add(self.bell.as_fd());
                Ok(())
            }
            Err(TrySendError::Full(word)) => Err(word),
            // The trunk is over.
            Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }
}

/// A bundle, and whose it is.
pub(super) const PIECE_BYTES: usize = 4 + BUNDLE_BYTES_MAX;

/// As much as a link of its own would have.
const PIPE_BYTES: i32 = 1 << 20;

/// And no more pieces than this: the kernel doubles what it is asked for, and each piece takes more
/// than 256 bytes of it.
pub(super) const PIPE_PIECES_MAX: usize = 2 * PIPE_BYTES as usize / 256;

/// What waits for a trunk's thread at most: strangers' datagrams are among it.
pub(super) const WORDS_MAX: usize = 64;
