//! `sendmmsg`, `recvmmsg` and the error queue: many datagrams per system call.
//!
//! The kernel's `mmsghdr` is a web of pointers. Here it borrows what it points to ([`Outgoing`]),
//! or lies in one boxed place together with it ([`Receiver`]). Callers see slices.
#![allow(unsafe_code, reason = "message headers are made of raw pointers")]

use std::fmt;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Messages per system call, where the caller has the choice. From 32 to 256 per call the cost is
/// the same (docs/BENCHMARKS.md, the wire), and 64 headers with their names and control data stay
/// in the first-level cache.
pub const MESSAGES_MAX: usize = 64;

/// Room for the longest address a receive may name (`sockaddr_in6`).
pub const NAME_BYTES: usize = 32;

/// Room for the control data of one received message: address (40 bytes), time (32), drops (24).
pub const CONTROL_BYTES: usize = 96;

/// One message to send: a `mmsghdr` that borrows what it points to.
#[repr(transparent)]
pub struct Outgoing<'a> {
    header: libc::mmsghdr,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// A message of these parts, in order. `name` is the destination, as a `sockaddr`; it and the
    /// control data may be empty.
    #[inline]
    pub fn new(name: &'a [u8], control: &'a [u8], parts: &'a [IoSlice<'a>]) -> Self {
        let mut header = EMPTY_HEADER;
        header.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_iovlen = parts.len() as _;
        if !name.is_empty() {
            header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = name.len() as u32;
        }
        if !control.is_empty() {
            header.msg_hdr.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_controllen = control.len() as _;
        }
        Self { header, borrowed: PhantomData }
    }
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}

/// Sends messages without blocking. Returns how many left, which may be fewer than all; the error,
/// if any, is that of the first.
pub fn send(socket: BorrowedFd<'_>, messages: &mut [Outgoing<'_>]) -> io::Result<usize> {
    // SAFETY: `Outgoing` is a transparent wrapper of `mmsghdr`, made of slices that it borrows and
    // that are therefore alive. `sendmmsg` reads through their pointers and writes nothing but
    // `msg_len`.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            messages.len() as u32,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// What a receive asks for beside the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Who sent each message, and control data.
    NameAndControl,
    /// Nothing. A descriptor that a local process sends along (`SCM_RIGHTS`) is then closed by the
    /// kernel, and never ours: with room for control data every received one would stay open in
    /// this process.
    Nothing,
}

/// Headers for receiving; the bytes go wherever the caller says.
pub struct Receiver {
    headers: Box<[libc::mmsghdr]>,
    /// Pointed to by `headers`, like the two below. Boxed slices do not move when their owner does.
    parts: Box<[libc::iovec]>,
    names: Box<[[u8; NAME_BYTES]]>,
    controls: Box<[Aligned]>,
    /// Room in each header for a name and for control data.
    name_bytes: usize,
    control_bytes: usize,
    /// Headers that a call has written to and that the next call must put back in order.
    used: usize,
}

// SAFETY: the pointers in `headers` lead to boxes of the same struct, which move along with it.
// Those in `parts` are given anew before each call and never followed otherwise.
unsafe impl Send for Receiver {}

#[derive(Clone, Copy)]
#[repr(align(8))]
struct Aligned([u8; CONTROL_BYTES]);

impl Receiver {
    /// Headers for [`MESSAGES_MAX`] messages.
    pub fn new(beside: Beside) -> Self {
        let (name_bytes, control_bytes) = match beside {
            Beside::NameAndControl => (NAME_BYTES, CONTROL_BYTES),
            Beside::Nothing => (0, 0),
        };
        let mut receiver = Self {
            headers: vec![EMPTY_HEADER; MESSAGES_MAX].into_boxed_slice(),
            parts: vec![EMPTY_PART; MESSAGES_MAX].into_boxed_slice(),
            names: vec![[0; NAME_BYTES]; MESSAGES_MAX].into_boxed_slice(),
            controls: vec![Aligned([0; CONTROL_BYTES]); MESSAGES_MAX].into_boxed_slice(),
            name_bytes,
            control_bytes,
            used: MESSAGES_MAX,
        };
        let parts = receiver.parts.as_mut_ptr();
        let names = receiver.names.as_mut_ptr();
        let controls = receiver.controls.as_mut_ptr();
        for (index, header) in receiver.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_iov = parts.wrapping_add(index);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = names.wrapping_add(index).cast();
            header.msg_hdr.msg_control = controls.wrapping_add(index).cast();
        }
        receiver
    }

    /// Receives without blocking, message *i* into the *i*-th of `slots` (at most [`MESSAGES_MAX`]
    /// of them). Returns how many arrived.
    ///
    /// # Safety
    /// Each slot's bytes are writable, and nobody else reads or writes them during the call.
    pub unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: impl Iterator<Item = (NonNull<u8>, usize)>,
    ) -> io::Result<usize> {
        self.restore();
        let mut count = 0;
        for (part, (slot, len)) in self.parts.iter_mut().zip(slots) {
            *part = libc::iovec { iov_base: slot.as_ptr().cast(), iov_len: len };
            count += 1;
        }
        // SAFETY: the first `count` headers point to live parts, names and control buffers of
        // `self`, and their parts to slots that the caller vouches for.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.used = received;
        Ok(received)
    }

    /// The same with buffers of the caller's.
    pub fn receive_into(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut [Box<[u8]>],
    ) -> io::Result<usize> {
        let slots = buffers.iter_mut().map(|buffer| {
            let len = buffer.len();
            (NonNull::from(buffer.as_mut()).cast(), len)
        });
        // SAFETY: the buffers are borrowed for the call, so nobody else has them meanwhile.
        unsafe { self.receive(socket, slots) }
    }

    /// What is known about message `index` of the last call.
    pub fn message(&self, index: usize) -> Incoming<'_> {
        assert!(index < self.used, "only received messages can be read");
        let header = &self.headers[index];
        // The kernel tells the length that a name would have, whatever room there was.
        let name_len = (header.msg_hdr.msg_namelen as usize).min(self.name_bytes);
        let control_len = control_bytes(&header.msg_hdr).min(self.control_bytes);
        Incoming {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            name: &self.names[index][..name_len],
            control: &self.controls[index].0[..control_len],
        }
    }

    fn restore(&mut self) {
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen = self.name_bytes as u32;
            header.msg_hdr.msg_controllen = self.control_bytes as _;
            header.msg_hdr.msg_flags = 0;
        }
        self.used = 0;
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("used", &self.used).finish_non_exhaustive()
    }
}

/// A received message, apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Bytes in its slot.
    pub len: usize,
    /// It was longer than its slot.
    pub truncated: bool,
    /// Who sent it, as a `sockaddr`; empty where there is nobody to name.
    pub name: &'a [u8],
    /// Control messages.
    pub control: &'a [u8],
}

impl Incoming<'_> {
    /// Who sent it; `None` where that is nobody with an address of the internet.
    pub fn peer(&self) -> Option<SocketAddr> {
        let at = |from: usize| self.name.get(from..);
        let family = i32::from(u16::from_ne_bytes(*self.name.first_chunk()?));
        let port = u16::from_be_bytes(*at(2)?.first_chunk()?);
        match family {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(*at(4)?.first_chunk::<4>()?);
                Some(SocketAddrV4::new(ip, port).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(*at(8)?.first_chunk::<16>()?);
                let scope = u32::from_ne_bytes(*at(24)?.first_chunk()?);
                Some(SocketAddrV6::new(ip, port, 0, scope).into())
            }
            _ => None,
        }
    }
}

/// Takes one entry off a socket's error queue and shows `read` the address that the failed datagram
/// was sent to and the control data. `None` where the queue is empty.
pub fn receive_error<T>(
    socket: BorrowedFd<'_>,
    read: impl FnOnce(&[u8], &[u8]) -> T,
) -> io::Result<Option<T>> {
    let mut name = [0_u8; NAME_BYTES];
    let mut control = Aligned([0; CONTROL_BYTES]);
    let mut header = EMPTY_HEADER.msg_hdr;
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = NAME_BYTES as u32;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: `header` points to two live local buffers with their true lengths, and to no data
    // buffer at all.
    let received = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if received < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let name = &name[..(header.msg_namelen as usize).min(NAME_BYTES)];
    Ok(Some(read(name, &control.0[..control_bytes(&header).min(CONTROL_BYTES)])))
}

const EMPTY_PART: libc::iovec = libc::iovec { iov_base: null_mut(), iov_len: 0 };

/// How much control data a header tells of. C libraries have other types for it.
pub(crate) const fn control_bytes(header: &libc::msghdr) -> usize {
    header.msg_controllen as u64 as usize
}

// SAFETY: the structure consists of integers and of pointers that may be null. It is not written
// out, because musl's has fields that nobody can name.
pub(crate) const EMPTY_HEADER: libc::mmsghdr = unsafe { std::mem::zeroed() };
