//! Many UDP datagrams of one length in one message: the kernel cuts what is sent (`UDP_SEGMENT`)
//! and joins what is received (`UDP_GRO`), so that its own work is done once for all of them.

use std::io;
use std::os::fd::BorrowedFd;

use crate::option;

/// Datagrams in one message that is sent, for every kernel that has this at all.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes of one message: what fits into the longest packet of either family.
pub const MESSAGE_BYTES_MAX: usize = 65_507 - 20;

/// Has the kernel hand out datagrams of one length that came together as one message.
pub fn receive_joined(socket: BorrowedFd<'_>) -> io::Result<()> {
    option::set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Datagrams leave in one piece or not at all, and what routers say about their MTU changes nothing
/// here: anybody could say it.
pub fn never_fragment(socket: BorrowedFd<'_>, is_v6: bool) -> io::Result<()> {
    option::set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    if is_v6 {
        option::set(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
    }
    Ok(())
}

/// Asks for buffers past the system's limit first, which needs `CAP_NET_ADMIN`, and within it
/// otherwise.
pub fn ask_for_buffers(socket: BorrowedFd<'_>, bytes: i32) {
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if option::set(socket, libc::SOL_SOCKET, force, bytes).is_err() {
            let _ = option::set(socket, libc::SOL_SOCKET, plain, bytes);
        }
    }
}

/// Control data that has the kernel cut a message into datagrams.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub struct Cut([u8; CUT_BYTES]);

impl Cut {
    /// All but the last of them are so long.
    pub fn new(bytes: u16) -> Self {
        let mut control = [0; CUT_BYTES];
        control[..8].copy_from_slice(&(HEADER_BYTES + 2).to_ne_bytes());
        control[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        control[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        control[16..18].copy_from_slice(&bytes.to_ne_bytes());
        Self(control)
    }

    /// The bytes to hand to the kernel.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How long the datagrams are that a received message was joined of; `None` for one that is alone.
pub fn joined_bytes(mut control: &[u8]) -> Option<usize> {
    loop {
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = i32::from_ne_bytes(*control.get(8..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*control.get(12..)?.first_chunk()?);
        let data = control.get(HEADER_BYTES..len)?;
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            let bytes = i32::from_ne_bytes(*data.first_chunk()?);
            return usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        }
        control = control.get(len.next_multiple_of(align_of::<usize>())..)?;
    }
}

const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

const CUT_BYTES: usize = HEADER_BYTES + 8;

// The byte offsets above are those of 64-bit Linux.
const _: () = assert!(HEADER_BYTES == 16 && size_of::<usize>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_behind_other_messages_and_nothing_is_read_beyond_the_end() {
        let message = |level: i32, kind: i32, data: &[u8]| {
            let mut bytes = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes
        };
        let joined = message(libc::SOL_UDP, libc::UDP_GRO, &1472_i32.to_ne_bytes());
        let other = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[1; 4]);
        assert_eq!(joined_bytes(&joined), Some(1472));
        assert_eq!(joined_bytes(&[other.clone(), joined.clone()].concat()), Some(1472));
        assert_eq!(joined_bytes(&other), None);
        assert_eq!(joined_bytes(&[]), None);
        assert_eq!(joined_bytes(&message(libc::SOL_UDP, libc::UDP_GRO, &[0; 4])), None);
        for len in 0..20 {
            assert_eq!(joined_bytes(&joined[..len]), None, "{len} bytes");
        }
        for wrong in [0_usize, 8, usize::MAX, usize::MAX - 3] {
            let mut endless = other.clone();
            endless[..8].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(joined_bytes(&endless), None, "{wrong}");
        }
    }
}
