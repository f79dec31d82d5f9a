//! Socket addresses as the kernel reads and writes them.
//!
//! `sockaddr_in` and `sockaddr_in6` are put together and taken apart byte by byte: no storage
//! union, no pointer cast, and what the kernel wrote is checked like any other input. The layouts
//! are part of the kernel's interface and do not change; a test compares them with libc's.

use ringgate_batch::Endpoint;

/// Bytes of the longer of the two addresses.
pub(super) const NAME_BYTES_MAX: usize = V6_BYTES;

/// Which addresses a socket speaks. An IPv6 socket wants IPv4 peers as IPv4-mapped addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// A socket address in the kernel's form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

impl Name {
    /// No address: for sockets with a fixed peer.
    pub(super) const NONE: Self = Self { bytes: [0; NAME_BYTES_MAX], len: 0 };

    /// The address of `peer` for a socket of this family. An IPv4 socket cannot name an IPv6 peer;
    /// what it gets then is an address the kernel refuses, so that the datagram fails where every
    /// other failure is handled.
    #[inline]
    pub(super) fn new(peer: &Endpoint, family: Family) -> Self {
        let mut name = Self::NONE;
        let ip = peer.ip_bytes();
        if family == Family::V4 && peer.is_v4() {
            name.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name.bytes[2..4].copy_from_slice(&peer.port().to_be_bytes());
            name.bytes[4..8].copy_from_slice(&ip[12..]);
            name.len = V4_BYTES as u8;
        } else {
            name.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name.bytes[2..4].copy_from_slice(&peer.port().to_be_bytes());
            name.bytes[8..24].copy_from_slice(ip);
            name.bytes[24..28].copy_from_slice(&peer.scope().to_ne_bytes());
            name.len = V6_BYTES as u8;
        }
        name
    }

    /// The bytes to hand to the kernel.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Reads an address that the kernel wrote, `None` where it is neither IPv4 nor IPv6 (a Unix peer
/// has none).
#[inline]
pub(super) fn decode(name: &[u8]) -> Option<Endpoint> {
    let family = u16::from_ne_bytes(*name.first_chunk()?);
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => Some(Endpoint::v4(*name.get(4..)?.first_chunk()?, port)),
        libc::AF_INET6 => {
            let ip = *name.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*name.get(24..)?.first_chunk()?);
            Some(Endpoint::v6(ip, scope, port))
        }
        _ => None,
    }
}

const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const _: () = assert!(V4_BYTES == 16 && V6_BYTES == 28);

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::net::{SocketAddr, SocketAddrV6};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_those_of_libc() {
        assert_eq!(offset_of!(libc::sockaddr_in, sin_port), 2);
        assert_eq!(offset_of!(libc::sockaddr_in, sin_addr), 4);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_port), 2);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_addr), 8);
        assert_eq!(offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
    }

    #[test]
    fn socket2_reads_what_we_write() {
        let scoped = SocketAddrV6::new("fe80::7".parse().expect("literal"), 4242, 0, 9);
        for address in ["192.0.2.7:4242".parse().expect("literal"), SocketAddr::V6(scoped)] {
            let peer = Endpoint::from(address);
            let family = if peer.is_v4() { Family::V4 } else { Family::V6 };
            let theirs = socket2::SockAddr::from(address);
            assert_eq!(Name::new(&peer, family).as_bytes().len(), theirs.len() as usize);
            assert_eq!(decode(Name::new(&peer, family).as_bytes()), Some(peer));
        }
    }

    #[test]
    fn an_ipv6_socket_names_an_ipv4_peer_as_mapped() {
        let peer = Endpoint::v4([192, 0, 2, 7], 9);
        let name = Name::new(&peer, Family::V6);
        assert_eq!(&name.as_bytes()[8..24], b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x07");
        assert_eq!(decode(name.as_bytes()), Some(peer));
    }

    proptest! {
        #[test]
        fn every_endpoint_survives(ip: [u8; 16], scope: u32, port: u16) {
            let peer = Endpoint::v6(ip, scope, port);
            prop_assert_eq!(decode(Name::new(&peer, Family::V6).as_bytes()), Some(peer));
            let v4 = Endpoint::v4([ip[0], ip[1], ip[2], ip[3]], port);
            prop_assert_eq!(decode(Name::new(&v4, Family::V4).as_bytes()), Some(v4));
        }

        #[test]
        fn bytes_from_anywhere_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_cut_address_is_refused(cut in 0..V6_BYTES) {
            let name = Name::new(&Endpoint::v6([1; 16], 2, 3), Family::V6);
            prop_assert_eq!(decode(&name.as_bytes()[..cut]), None);
        }
    }
}
