//! The system call `bpf`: maps, programs, and links that hold a program to an interface.
//!
//! What the kernel makes is a descriptor, and ends with its last copy: a process that dies leaves
//! nothing behind. The attributes of a call are plain structures of numbers; the kernel takes those
//! that it does not find for zero.
#![allow(unsafe_code, reason = "a system call without a wrapper elsewhere")]

pub mod asm;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::mapping::Mapping;
use asm::Instruction;

/// What a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Keys that are there or not.
    Hash {
        /// Bytes of a key.
        key_bytes: u32,
    },
    /// AF_XDP sockets, by number.
    Sockets,
    /// UDP sockets of groups that share a port, by number.
    PortSockets,
    /// Numbers of 64 bits, which the process reads and writes without asking.
    Words,
}

/// A table that a program looks things up in. All values are four bytes, but for words.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
}

impl Map {
    /// Has the kernel make one.
    pub fn new(kind: MapKind, entries: u32) -> io::Result<Self> {
        let (kind, key_bytes, value_bytes, flags) = match kind {
            MapKind::Hash { key_bytes } => (MAP_HASH, key_bytes, 4, 0),
            MapKind::Sockets => (MAP_SOCKETS, 4, 4, 0),
            MapKind::PortSockets => (MAP_PORT_SOCKETS, 4, 4, 0),
            MapKind::Words => (MAP_ARRAY, 4, 8, FLAG_MAPPABLE),
        };
        let mut make = MakeMap { kind, key_bytes, value_bytes, entries, flags };
        // SAFETY: the attributes are numbers only.
        let fd = unsafe { call_for_descriptor(MAKE_MAP, &mut make) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize })
    }

    /// One that another process has made.
    pub const fn adopt(fd: OwnedFd, key_bytes: usize) -> Self {
        Self { fd, key_bytes }
    }

    /// Everything that is found in it.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; self.key_bytes];
            let last = keys.last().map_or(std::ptr::null(), Vec::as_ptr);
            let map = self.fd.as_raw_fd().cast_unsigned();
            let value = next.as_mut_ptr() as u64;
            let mut access = AccessMap { map, unused: 0, key: last as u64, value, flags: 0 };
            // SAFETY: both keys are as long as the map's; the first is only read, the second is
            // ours to be written to, and both outlive the call.
            match unsafe { call(NEXT_IN_MAP, &mut access) } {
                Ok(_) => keys.push(next),
                Err(why) if why.raw_os_error() == Some(libc::ENOENT) => return Ok(keys),
                Err(why) => return Err(why),
            }
        }
    }

    /// It, to be mapped or given on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sets what is found at a key.
    pub fn set(&self, key: &[u8], value: u32) -> io::Result<()> {
        let mut access = self.access(key, &raw const value);
        // SAFETY: the key is as long as the map's keys (`access`), the value as its values, and
        // both outlive the call, which only reads them.
        unsafe { call(SET_IN_MAP, &mut access) }.map(drop)
    }

    /// Nothing is found at a key from now on.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut access = self.access(key, std::ptr::null());
        // SAFETY: as in `set`; no value is looked at.
        unsafe { call(REMOVE_FROM_MAP, &mut access) }.map(drop)
    }

    fn access(&self, key: &[u8], value: *const u32) -> AccessMap {
        assert_eq!(key.len(), self.key_bytes, "a key is as long as the map says");
        let map = self.fd.as_raw_fd().cast_unsigned();
        AccessMap { map, unused: 0, key: key.as_ptr() as u64, value: value as u64, flags: 0 }
    }
}

/// The numbers of a map of words.
#[derive(Debug)]
pub struct Words {
    mapping: Mapping,
    count: usize,
}

impl Words {
    /// Those of a map with so many.
    pub fn of(map: &Map, entries: u32) -> io::Result<Self> {
        let count = entries as usize;
        let mapping = Mapping::new(map.as_fd(), 0, count * size_of::<u64>())?;
        Ok(Self { mapping, count })
    }
}

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        let start = self.mapping.start().cast::<AtomicU64>();
        // SAFETY: so many words were mapped, at the beginning of a page, and stay so for as long as
        // `self` is there; any bits are a number. Programs and other processes change them in
        // single steps only, so every reader may take them for atomics.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.count) }
    }
}

/// What a program decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Frames of an interface.
    Frames,
    /// Which socket of those that share a port gets a datagram.
    PortSockets,
}

/// A program that the kernel has checked.
#[derive(Debug)]
pub struct Loaded {
    fd: OwnedFd,
}

impl Loaded {
    /// One that another process has loaded.
    pub const fn adopt(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// It, to be attached or given on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Has the kernel check it. An error says what the kernel has found, where it has found
    /// something.
    pub fn new(kind: ProgramKind, code: &[Instruction]) -> io::Result<Self> {
        let (kind, attached_as) = match kind {
            ProgramKind::Frames => (PROGRAM_XDP, ATTACH_XDP),
            ProgramKind::PortSockets => (PROGRAM_PORT_SOCKETS, 0),
        };
        let license = c"Apache-2.0";
        let mut log = vec![0_u8; LOG_BYTES];
        let mut load = LoadProgram {
            kind,
            count: code.len() as u32,
            code: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            attached_as,
            name: *b"ringgate\0\0\0\0\0\0\0\0",
            ..LoadProgram::default()
        };
        // SAFETY: code and licence outlive the call, which only reads them, with the code's true
        // length.
        let why = match unsafe { call_for_descriptor(LOAD_PROGRAM, &mut load) } {
            Ok(fd) => return Ok(Self { fd }),
            Err(why) => why,
        };
        (load.log_level, load.log_bytes) = (1, LOG_BYTES as u32);
        load.log = log.as_mut_ptr() as u64;
        // SAFETY: as before; the log has room for as many bytes as the kernel may write.
        if unsafe { call_for_descriptor(LOAD_PROGRAM, &mut load) }.is_ok() {
            // A matter of memory, which there is now; nothing has been found.
            return Err(why);
        }
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        match String::from_utf8_lossy(&log[..end]).trim() {
            "" => Err(why),
            said => Err(io::Error::new(why.kind(), format!("{why}: {said}"))),
        }
    }

    /// Runs it once over a frame. Returns what it says.
    pub fn test(&self, frame: &[u8]) -> io::Result<u32> {
        let mut out = vec![0_u8; frame.len() + 256];
        let mut test = TestProgram {
            program: self.fd.as_raw_fd().cast_unsigned(),
            bytes_in: frame.len() as u32,
            bytes_out: out.len() as u32,
            data_in: frame.as_ptr() as u64,
            data_out: out.as_mut_ptr() as u64,
            repeat: 1,
            ..TestProgram::default()
        };
        // SAFETY: both buffers outlive the call, with their true lengths.
        unsafe { call(TEST_PROGRAM, &mut test) }?;
        Ok(test.said)
    }
}

/// Holds a program to an interface.
#[derive(Debug)]
pub struct Attached {
    /// Closed, with all its copies, it takes the program off the interface.
    fd: OwnedFd,
}

impl Attached {
    /// One that another process has made.
    pub const fn adopt(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// To be given to another process.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The kernel's number of the program, and of the interface: `None` where that has gone.
    pub fn what(&self) -> io::Result<(u32, Option<u32>)> {
        let LinkInfo { program, interface, .. } = link_info(self.fd.as_fd())?;
        Ok((program, (interface != 0).then_some(interface)))
    }

    /// Attaches it, in the interface's driver or in front of the network stack (`is_generic`).
    pub fn new(program: &Loaded, interface: u32, is_generic: bool) -> io::Result<Self> {
        let mut link = MakeLink {
            program: program.fd.as_raw_fd().cast_unsigned(),
            interface,
            attached_as: ATTACH_XDP,
            flags: if is_generic { FLAG_GENERIC } else { FLAG_DRIVER },
        };
        // SAFETY: the attributes are numbers only.
        let fd = unsafe { call_for_descriptor(MAKE_LINK, &mut link) }?;
        Ok(Self { fd })
    }
}

/// Takes a program, by the kernel's number, off the interface that a link holds it to.
pub fn take_off(program: u32) -> io::Result<()> {
    let mut id = 0;
    loop {
        let mut next = ById { id, ..ById::default() };
        // SAFETY: the attributes are numbers only; the kernel writes the next number into them.
        unsafe { call(NEXT_LINK, &mut next) }?;
        id = next.next;
        let mut open = ById { id, ..ById::default() };
        // SAFETY: the attributes are numbers only.
        let Ok(link) = (unsafe { call_for_descriptor(OPEN_LINK, &mut open) }) else { continue };
        let info = link_info(link.as_fd())?;
        if info.kind == LINK_XDP && info.program == program {
            let mut detach = link.as_raw_fd().cast_unsigned();
            // SAFETY: the attributes are one number.
            return unsafe { call(DETACH_LINK, &mut detach) }.map(drop);
        }
    }
}

fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::default();
    let mut ask = AskInfo {
        fd: link.as_raw_fd().cast_unsigned(),
        bytes: size_of::<LinkInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel writes so many bytes at the most, into numbers that outlive the call.
    unsafe { call(TELL_INFO, &mut ask) }?;
    Ok(info)
}

/// # Safety
/// What the attributes point to must be as the call wants it.
unsafe fn call_for_descriptor<T>(what: i64, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(what, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// What the attributes point to must be as the call wants it.
unsafe fn call<T>(what: i64, attributes: &mut T) -> io::Result<i32> {
    let attributes: *mut T = attributes;
    // SAFETY: the attributes are passed with their size; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, what, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MakeMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// For `BPF_MAP_UPDATE_ELEM` and `BPF_MAP_DELETE_ELEM`.
#[repr(C)]
struct AccessMap {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// For `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct LoadProgram {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attached_as: u32,
}

/// For `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestProgram {
    program: u32,
    said: u32,
    bytes_in: u32,
    bytes_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    took_ns: u32,
}

/// For `BPF_LINK_CREATE`.
#[repr(C)]
struct MakeLink {
    program: u32,
    interface: u32,
    attached_as: u32,
    flags: u32,
}

/// For `BPF_LINK_GET_NEXT_ID` and `BPF_LINK_GET_FD_BY_ID`.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// For `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct AskInfo {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// The beginning of `struct bpf_link_info`, of a link to an interface.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    unused: u32,
    interface: u32,
    rest: u32,
}

const MAKE_MAP: i64 = 0;
const SET_IN_MAP: i64 = 2;
const REMOVE_FROM_MAP: i64 = 3;
const NEXT_IN_MAP: i64 = 4;
const LOAD_PROGRAM: i64 = 5;
const TEST_PROGRAM: i64 = 10;
const TELL_INFO: i64 = 15;
const MAKE_LINK: i64 = 28;
const OPEN_LINK: i64 = 30;
const NEXT_LINK: i64 = 31;
const DETACH_LINK: i64 = 34;

/// `BPF_LINK_TYPE_XDP`
const LINK_XDP: u32 = 6;

const MAP_HASH: u32 = 1;
const MAP_ARRAY: u32 = 2;
const MAP_SOCKETS: u32 = 17;
/// `BPF_MAP_TYPE_REUSEPORT_SOCKARRAY`
const MAP_PORT_SOCKETS: u32 = 20;
const PROGRAM_XDP: u32 = 6;
/// `BPF_PROG_TYPE_SK_REUSEPORT`
const PROGRAM_PORT_SOCKETS: u32 = 21;
const ATTACH_XDP: u32 = 37;

/// `BPF_F_MMAPABLE`
const FLAG_MAPPABLE: u32 = 1 << 10;

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_DRIVER: u32 = 1 << 2;

/// What the kernel says about a program that it does not take.
const LOG_BYTES: usize = 64 << 10;
