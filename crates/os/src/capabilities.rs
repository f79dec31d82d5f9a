//! Rights that a thread has beside its user's, and giving them up: what a process needs at its
//! start must not be there for whoever breaks into it later.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;

/// A right, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// `CAP_NET_ADMIN`: to change the network.
    NetAdmin = 12,
    /// `CAP_NET_RAW`: to send and receive any packets.
    NetRaw = 13,
    /// `CAP_IPC_LOCK`: to lock any amount of memory.
    LockMemory = 14,
    /// `CAP_BPF`: to give the kernel programs.
    Bpf = 39,
}

/// Gives rights up, in all that the calling thread has and will have, without a way back. Threads
/// that it starts from here on do not have them either; others are not touched, so this comes
/// before there are any. A program that root starts has them again.
pub fn give_up(rights: &[Capability]) -> io::Result<()> {
    let mut sets = read()?;
    for right in rights {
        let (word, bit) = place_of(*right);
        let set = &mut sets[word];
        set.effective &= !bit;
        set.permitted &= !bit;
        // The kernel takes it out of the ambient ones by itself.
        set.inheritable &= !bit;
    }
    let mut header = Header::default();
    // SAFETY: header and sets are live, of the version that the header names; they are only read.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the calling thread has a right.
pub fn has(right: Capability) -> bool {
    let (word, bit) = place_of(right);
    read().is_ok_and(|sets| sets[word].effective & bit != 0)
}

fn read() -> io::Result<[Set; 2]> {
    let (mut header, mut sets) = (Header::default(), [Set::default(); 2]);
    // SAFETY: header and sets are live; this version has two sets, which the call fills in.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(sets) }
}

const fn place_of(right: Capability) -> (usize, u32) {
    let number = right as u8;
    ((number / 32) as usize, 1 << (number % 32))
}

/// Which version, and of which thread: the calling one.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

impl Default for Header {
    fn default() -> Self {
        Self { version: VERSION, pid: 0 }
    }
}

/// 32 rights of each kind.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`
const VERSION: u32 = 0x2008_0522;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_gone_in_this_thread_and_those_it_starts() {
        let had = has(Capability::NetRaw);
        let given = std::thread::spawn(|| {
            give_up(&[Capability::NetRaw, Capability::Bpf]).expect("fewer rights are allowed");
            let child = std::thread::spawn(|| has(Capability::NetRaw) || has(Capability::Bpf));
            (has(Capability::NetRaw), child.join().expect("it only looks"))
        });
        assert_eq!(given.join().expect("it only gives up"), (false, false));
        assert_eq!(has(Capability::NetRaw), had, "others keep what they have");
    }
}
