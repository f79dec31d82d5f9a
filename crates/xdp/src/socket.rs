//! The system calls of an AF_XDP socket: its memory is registered, its rings are made and mapped,
//! and it is bound to a queue.
#![allow(unsafe_code, reason = "options of a socket that no crate wraps")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null, null_mut};

use super::ring::{Entry, Offsets};
use ringgate_os::mapping::Mapping;

/// How frames come and go between the card and the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The card reads and writes the process's memory itself.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// Who follows the notes in front of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    /// Who sends the frame: with zero-copy the card, else the kernel, which leaves to the card what
    /// that can do.
    Sender,
    /// The kernel, whatever the card can do: for tests, because a card that is a wire's end in the
    /// kernel leaves everything undone.
    Kernel,
}

/// What the kernel has counted at a socket since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames for which the receive ring had no room.
    pub receive_full: u64,
    /// Frames for which the fill ring had no memory.
    pub fill_empty: u64,
    /// Frames that were too long, or that could not be taken for another reason.
    pub dropped: u64,
    /// Memory that we gave and the kernel did not take: a mistake of ours.
    pub invalid: u64,
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
}

/// Where its rings lie.
pub(crate) struct RingOffsets(libc::xdp_mmap_offsets);

/// Which of its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Fill,
    Completion,
    Receive,
    Transmit,
}

impl Socket {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers only.
        let raw = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let socket = Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } };
        // What waits to leave is booked by this, and must not stand in the way of a full ring.
        let room: i32 = SEND_BUFFER_BYTES;
        let forced = socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room);
        forced.or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &room))?;
        Ok(socket)
    }

    /// One that another process has made.
    pub(crate) const fn adopt(fd: OwnedFd) -> Self {
        Self { fd }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Registers memory, to be cut into frames of one size, a power of two, with or without room
    /// for notes in front of what is sent.
    ///
    /// # Safety
    /// The memory must be mapped and be nobody's: the kernel reads and writes every frame that is
    /// on one of the rings, for as long as the socket lives.
    pub(crate) unsafe fn register(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        frame_bytes: u32,
        notes: Option<Notes>,
    ) -> io::Result<()> {
        let (flags, tx_metadata_len) = match notes {
            None => (0, 0),
            Some(Notes::Sender) => (libc::XDP_UMEM_TX_METADATA_LEN, NOTE_BYTES),
            Some(Notes::Kernel) => {
                (libc::XDP_UMEM_TX_METADATA_LEN | libc::XDP_UMEM_TX_SW_CSUM, NOTE_BYTES)
            }
        };
        let memory = libc::xdp_umem_reg {
            addr: start.as_ptr() as u64,
            len: bytes as u64,
            chunk_size: frame_bytes,
            headroom: 0,
            flags,
            tx_metadata_len,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)
    }

    /// Makes a ring of so many entries.
    pub(crate) fn make_ring(&self, which: Which, entries: u32) -> io::Result<()> {
        let option = match which {
            Which::Fill => libc::XDP_UMEM_FILL_RING,
            Which::Completion => libc::XDP_UMEM_COMPLETION_RING,
            Which::Receive => libc::XDP_RX_RING,
            Which::Transmit => libc::XDP_TX_RING,
        };
        self.set(libc::SOL_XDP, option, &entries)
    }

    /// Where the rings lie that were made.
    pub(crate) fn ring_offsets(&self) -> io::Result<RingOffsets> {
        const NONE: Offsets = Offsets { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let mut offsets = libc::xdp_mmap_offsets { rx: NONE, tx: NONE, fr: NONE, cr: NONE };
        self.get(libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        Ok(RingOffsets(offsets))
    }

    /// Maps a ring of so many entries.
    pub(crate) fn map_ring<T: Entry>(
        &self,
        which: Which,
        offsets: &RingOffsets,
        entries: u32,
    ) -> io::Result<(Mapping, Offsets)> {
        let (at, offsets) = match which {
            Which::Fill => (libc::XDP_UMEM_PGOFF_FILL_RING, offsets.0.fr),
            Which::Completion => (libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.0.cr),
            Which::Receive => (libc::XDP_PGOFF_RX_RING as u64, offsets.0.rx),
            Which::Transmit => (libc::XDP_PGOFF_TX_RING as u64, offsets.0.tx),
        };
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        Ok((Mapping::new(self.as_fd(), at, bytes)?, offsets))
    }

    /// Binds it to a queue, in this mode or in the best that there is.
    pub(crate) fn bind(&self, interface: u32, queue: u32, mode: Option<Mode>) -> io::Result<()> {
        let mode = match mode {
            None => 0,
            Some(Mode::ZeroCopy) => libc::XDP_ZEROCOPY,
            Some(Mode::Copy) => libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&address) as u32;
        // SAFETY: the address is passed with its size, and outlives the call.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The mode that it is bound in.
    pub(crate) fn mode(&self) -> io::Result<Mode> {
        let mut options = libc::xdp_options { flags: 0 };
        self.get(libc::XDP_OPTIONS, &mut options)?;
        let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(if is_zero_copy { Mode::ZeroCopy } else { Mode::Copy })
    }

    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let mut counted = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        self.get(libc::XDP_STATISTICS, &mut counted)?;
        Ok(Statistics {
            receive_full: counted.rx_ring_full,
            fill_empty: counted.rx_fill_ring_empty_descs,
            dropped: counted.rx_dropped,
            invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
        })
    }

    /// Has the kernel send what is on the transmit ring. It may stop before it is through.
    pub(crate) fn kick(&self) -> io::Result<()> {
        // SAFETY: no bytes and no address: nothing is read.
        let result =
            unsafe { libc::sendto(self.fd.as_raw_fd(), null(), 0, libc::MSG_DONTWAIT, null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the kernel look at the fill ring.
    pub(crate) fn wake(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no bytes and no address: nothing is written.
        let result = unsafe {
            libc::recvfrom(fd, null_mut(), 0, libc::MSG_DONTWAIT, null_mut(), null_mut())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let value: *const T = value;
        // SAFETY: the value is passed with its size, and outlives the call, which only reads it.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                value.cast(),
                size_of::<T>() as u32,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reads an option into a structure of numbers. An error where this kernel knows a shorter one.
    fn get<T>(&self, option: i32, value: &mut T) -> io::Result<()> {
        let mut len = size_of::<T>() as u32;
        let value: *mut T = value;
        // SAFETY: the value has room for `len` bytes and outlives the call; callers pass structures
        // of numbers, for which any bits are valid.
        let result = unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), libc::SOL_XDP, option, value.cast(), &raw mut len)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let is_whole = len as usize == size_of::<T>();
        if is_whole { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
    }
}

/// `struct xsk_tx_metadata`: what is asked for, where a checksum begins and where in that it
/// stands, and a time that we do not use.
pub(crate) const NOTE_BYTES: u32 = 24;

/// A full transmit ring of the longest frames, as the kernel books them.
const SEND_BUFFER_BYTES: i32 = 16 << 20;
