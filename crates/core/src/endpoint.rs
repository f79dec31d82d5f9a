//! Addresses in the form the packet path compares and hashes them.
//!
//! IPv4 is kept as IPv4-mapped IPv6, so that a player behind a dual-stack socket and one behind a
//! plain IPv4 socket are the same player, and so that a key is 24 plain bytes whatever the family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A remote address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    ip: [u8; 16],
    /// The interface index of a link-local IPv6 address, else 0.
    scope: u32,
    port: u16,
}

impl Endpoint {
    /// An IPv4 endpoint.
    #[inline]
    pub const fn v4(ip: [u8; 4], port: u16) -> Self {
        Self { ip: mapped(ip), scope: 0, port }
    }

    /// An IPv6 endpoint; an IPv4-mapped address becomes the IPv4 one.
    #[inline]
    pub const fn v6(ip: [u8; 16], scope: u32, port: u16) -> Self {
        Self { ip, scope, port }
    }

    /// The address without the port.
    #[inline]
    pub fn ip(self) -> IpAddr {
        unmapped(self.ip)
    }

    /// The address without the port, as 16 bytes (IPv4 mapped).
    #[inline]
    pub const fn ip_bytes(&self) -> &[u8; 16] {
        &self.ip
    }

    /// The address without the port, as two words, to be hashed.
    #[inline]
    pub const fn ip_words(&self) -> (u64, u64) {
        let ip = u128::from_be_bytes(self.ip);
        ((ip >> 64) as u64, ip as u64)
    }

    /// The address without the port in one word, for those who come back to the same server by it.
    #[inline]
    pub const fn ip_key(&self) -> u64 {
        let (high, low) = self.ip_words();
        high ^ low.rotate_left(32)
    }

    /// The port in host order.
    #[inline]
    pub const fn port(self) -> u16 {
        self.port
    }

    /// The scope id of a link-local IPv6 address, else 0.
    #[inline]
    pub const fn scope(self) -> u32 {
        self.scope
    }

    /// The same address at another port.
    #[must_use]
    pub const fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Whether the address is an IPv4 one.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.ip[..12] == MAPPED_PREFIX
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::v4(v4.ip().octets(), v4.port()),
            SocketAddr::V6(v6) => Self::v6(v6.ip().octets(), v6.scope_id(), v6.port()),
        }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        match endpoint.ip() {
            IpAddr::V4(v4) => Self::from((v4, endpoint.port)),
            IpAddr::V6(v6) => Self::V6(SocketAddrV6::new(v6, endpoint.port, 0, endpoint.scope)),
        }
    }
}

/// One of our own addresses, as the kernel names it when a datagram arrives and as it wants it
/// named when one leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalIp {
    ip: [u8; 16],
    /// The interface of a link-local IPv6 address, which means nothing without it; else 0, and the
    /// kernel routes the answer.
    pub interface: u32,
}

impl LocalIp {
    /// Not known, or fixed by the socket's own bind: nothing has to be said when sending.
    pub const UNSPECIFIED: Self = Self { ip: [0; 16], interface: 0 };

    /// An IPv4 address.
    #[inline]
    pub const fn v4(ip: [u8; 4], interface: u32) -> Self {
        Self { ip: mapped(ip), interface }
    }

    /// An IPv6 address.
    #[inline]
    pub const fn v6(ip: [u8; 16], interface: u32) -> Self {
        Self { ip, interface }
    }

    /// Whether there is anything to tell the kernel when sending.
    #[inline]
    pub fn is_unspecified(&self) -> bool {
        self.ip == [0; 16]
    }

    /// The address.
    #[inline]
    pub fn ip(self) -> IpAddr {
        unmapped(self.ip)
    }

    /// The address as 16 bytes (IPv4 mapped).
    #[inline]
    pub const fn ip_bytes(&self) -> &[u8; 16] {
        &self.ip
    }

    /// Whether the address is an IPv4 one.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.ip[..12] == MAPPED_PREFIX
    }
}

crate::carried!(Endpoint { ip, scope, port });
crate::carried!(LocalIp { ip, interface });

const MAPPED_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

const fn mapped(ip: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ip[0], ip[1], ip[2], ip[3]]
}

fn unmapped(ip: [u8; 16]) -> IpAddr {
    match ip {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(ip).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_source_is_the_ipv4_player() {
        let plain: SocketAddr = "192.0.2.7:9".parse().expect("literal");
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:9".parse().expect("literal");
        assert_eq!(Endpoint::from(plain), Endpoint::from(mapped));
        assert_eq!(SocketAddr::from(Endpoint::from(mapped)), plain);
        assert!(Endpoint::from(mapped).is_v4());
    }

    #[test]
    fn ipv6_keeps_its_scope() {
        let link_local =
            SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("literal"), 5, 0, 3));
        assert_eq!(SocketAddr::from(Endpoint::from(link_local)), link_local);
    }
}
