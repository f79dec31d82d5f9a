//! Many UDP datagrams of one length in one message: the kernel cuts what is sent (`UDP_SEGMENT`)
//! and joins what is received (`UDP_GRO`), so that its own work is done once for all of them.

use std::io;
use std::os::fd::BorrowedFd;

use crate::control::{bytes_of, messages, write};
use crate::option;

/// Datagrams in one message that is sent, for every kernel that has this at all.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes of one message: what fits into the longest packet of either family.
pub const MESSAGE_BYTES_MAX: usize = 65_507 - 20;

/// Has the kernel hand out datagrams of one length that came together as one message.
pub fn receive_joined(socket: BorrowedFd<'_>) -> io::Result<()> {
    option::set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Datagrams leave with "don't fragment" set, or where they `may` be taken apart without it; in
/// both cases messages about a path's MTU change nothing.
/// Whether such a message is true cannot be told: anybody can send one that quotes a packet of
/// ours, and a kernel that believes it refuses what is longer for ten minutes. Nor does the kernel
/// have to find out whether to fragment, which is 10 % of a send (docs/BENCHMARKS.md, the wire). A
/// dual-stack socket sends to both families, so an IPv6 socket gets both options.
pub fn choose_fragments(socket: BorrowedFd<'_>, is_v6: bool, may: bool) -> io::Result<()> {
    let (v4, v6) = if may {
        (libc::IP_PMTUDISC_OMIT, libc::IPV6_PMTUDISC_OMIT)
    } else {
        (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE)
    };
    option::set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, v4)?;
    if is_v6 {
        option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, v6)?;
    }
    Ok(())
}

/// Asks for buffers past the system's limit first, which needs `CAP_NET_ADMIN`, and within it
/// otherwise. Whoever cares reads back what was granted.
pub fn ask_for_buffers(socket: BorrowedFd<'_>, receive_bytes: i32, send_bytes: i32) {
    for (force, plain, bytes) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_bytes),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_bytes),
    ] {
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
        write(&mut control, libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
        Self(control)
    }

    /// The bytes to hand to the kernel.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How long the datagrams are that a received message was joined of; `None` for one that is alone.
pub fn joined_bytes(control: &[u8]) -> Option<usize> {
    let is_joined =
        |(level, kind, _): &(i32, i32, &[u8])| (*level, *kind) == (libc::SOL_UDP, libc::UDP_GRO);
    let (.., data) = messages(control).find(is_joined)?;
    usize::try_from(i32::from_ne_bytes(*data.first_chunk()?)).ok().filter(|bytes| *bytes > 0)
}

const CUT_BYTES: usize = bytes_of(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_behind_other_messages_and_nothing_is_read_beyond_the_end() {
        let message = |level: i32, kind: i32, data: &[u8]| {
            let mut bytes = vec![0; bytes_of(data.len())];
            write(&mut bytes, level, kind, data);
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
