//! A player's address in a record: 16 bytes of IPv6, the interface of a link-local one, a port.
//!
//! IPv4 is carried as IPv4-mapped IPv6 and comes out as IPv4, so that a player has one address
//! whatever socket the gateway took it in by.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The fields of a record for an address. IPv4 has no interface.
pub(super) fn to_fields(address: SocketAddr) -> ([u8; 16], u32, u16) {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped().octets(), 0, v4.port()),
        SocketAddr::V6(v6) => (v6.ip().octets(), v6.scope_id(), v6.port()),
    }
}

/// The address that a record's fields mean.
pub(super) fn from_fields(ip: [u8; 16], interface: u32, port: u16) -> SocketAddr {
    let ip = Ipv6Addr::from(ip);
    match ip.to_canonical() {
        IpAddr::V4(v4) => (v4, port).into(),
        IpAddr::V6(_) => SocketAddrV6::new(ip, port, 0, interface).into(),
    }
}
