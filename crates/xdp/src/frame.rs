//! Frames: Ethernet, at most one VLAN tag, IPv4 or IPv6 without anything optional, UDP. Takes them
//! apart, and writes the headers of those that leave. Knows bytes only.
//!
//! ```text
//!   | Ethernet 14 | tag 4, where there is one | IPv4 20 or IPv6 40 | UDP 8 | datagram |
//! ```
//!
//! What the interface's program has passed to us is checked again: the program may have been
//! replaced, and nobody but us looks at checksums.

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::checksum::Sum;
use ringgate_batch::{Endpoint, LocalIp};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// The longest headers: with a tag, over IPv6.
pub const HEADERS_MAX: usize = ETHERNET_BYTES + TAG_BYTES + V6_BYTES + UDP_BYTES;

/// A datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Who has put the frame on the wire: the sender, or the last router.
    pub from: Mac,
    /// The VLAN that its tag names; 0 where there is none.
    pub vlan: u16,
    /// Who sent the datagram.
    pub peer: Endpoint,
    /// To which address.
    pub local: LocalIp,
    /// To which port.
    pub port: u16,
    /// Where the datagram lies in the frame.
    pub payload: Range<usize>,
}

/// Why a frame is no datagram for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not UDP in plain IPv4 or IPv6, or shorter than it says.
    Shape,
    /// A source that no host can have, the unspecified address, a loopback or a multicast one; or
    /// one that is an address on its link only.
    Source,
    /// The header's checksum or the datagram's is wrong.
    Checksum,
}

/// Takes a frame apart.
pub fn parse(frame: &[u8]) -> Result<Arrived, Refusal> {
    let (ethernet, rest) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(Refusal::Shape)?;
    let from = *ethernet[6..].first_chunk().expect("there are eight more bytes");
    let (kind, vlan, packet) = match [ethernet[12], ethernet[13]] {
        TAGGED => {
            let (tag, packet) = rest.split_first_chunk::<TAG_BYTES>().ok_or(Refusal::Shape)?;
            ([tag[2], tag[3]], u16::from_be_bytes([tag[0], tag[1]]) & VLAN_MASK, packet)
        }
        kind => (kind, 0, rest),
    };
    let packet = match kind {
        KIND_V4 => parse_v4(packet)?,
        KIND_V6 => parse_v6(packet)?,
        _ => return Err(Refusal::Shape),
    };
    let at = packet.payload.as_ptr() as usize - frame.as_ptr() as usize;
    let Packet { peer, local, port, payload } = packet;
    Ok(Arrived { from, vlan, peer, local, port, payload: at..at + payload.len() })
}

struct Packet<'a> {
    peer: Endpoint,
    local: LocalIp,
    port: u16,
    payload: &'a [u8],
}

fn parse_v4(packet: &[u8]) -> Result<Packet<'_>, Refusal> {
    let (header, _) = packet.split_first_chunk::<V4_BYTES>().ok_or(Refusal::Shape)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & (MORE_FRAGMENTS | OFFSET_MASK);
    if header[0] != V4_PLAIN || fragment != 0 || header[9] != UDP {
        return Err(Refusal::Shape);
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let udp = packet.get(V4_BYTES..total).ok_or(Refusal::Shape)?;
    if !Sum::default().add(header).is_right() {
        return Err(Refusal::Checksum);
    }
    let [source, own] = [12, 16].map(|at| *header[at..].first_chunk::<4>().expect("eight bytes"));
    if matches!(source[0], 0 | 127 | 224..) {
        return Err(Refusal::Source);
    }
    let addresses = Sum::default().add(&header[12..]);
    // Over IPv4 a sender may leave the checksum out.
    let Udp { from, port, payload, .. } = Udp::parse(udp, addresses)?;
    Ok(Packet { peer: Endpoint::v4(source, from), local: LocalIp::v4(own, 0), port, payload })
}

fn parse_v6(packet: &[u8]) -> Result<Packet<'_>, Refusal> {
    let (header, rest) = packet.split_first_chunk::<V6_BYTES>().ok_or(Refusal::Shape)?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return Err(Refusal::Shape);
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let udp = rest.get(..len).ok_or(Refusal::Shape)?;
    let [source, own] =
        [8, 24].map(|at| *header[at..].first_chunk::<16>().expect("sixteen bytes each"));
    // Unspecified, loopback, and IPv4 in the guise of IPv6, which would be another player; and of
    // the link only, which nobody can answer without its interface.
    let is_of_link = Ipv6Addr::from(source).is_unicast_link_local();
    if source[0] == 0xff || source[..8] == [0; 8] || is_of_link {
        return Err(Refusal::Source);
    }
    let addresses = Sum::default().add(&header[8..]);
    let Udp { from, port, payload, has_checksum } = Udp::parse(udp, addresses)?;
    if !has_checksum {
        return Err(Refusal::Checksum);
    }
    Ok(Packet { peer: Endpoint::v6(source, 0, from), local: LocalIp::v6(own, 0), port, payload })
}

struct Udp<'a> {
    from: u16,
    port: u16,
    payload: &'a [u8],
    has_checksum: bool,
}

impl<'a> Udp<'a> {
    /// Takes a UDP packet apart, whose addresses add up to a sum.
    fn parse(udp: &'a [u8], addresses: Sum) -> Result<Self, Refusal> {
        let (header, payload) = udp.split_first_chunk::<UDP_BYTES>().ok_or(Refusal::Shape)?;
        let [from, port, len, checksum] =
            [0, 2, 4, 6].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
        if usize::from(len) != udp.len() {
            return Err(Refusal::Shape);
        }
        let pseudo = addresses.add_number(len).add_number(u16::from(UDP));
        // A sender on this host, or on a virtual machine's, has left the checksum to its card,
        // which there is none of: the field holds what the card was to add the datagram to. Such a
        // frame has never been on a wire that could have damaged it.
        let is_left_to_card = checksum == pseudo.folded().to_be();
        if checksum != 0 && !is_left_to_card && !pseudo.add(udp).is_right() {
            return Err(Refusal::Checksum);
        }
        Ok(Self { from, port, payload, has_checksum: checksum != 0 })
    }
}

/// Where a frame goes, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The next host on the way.
    pub to: Mac,
    /// Our own interface.
    pub from: Mac,
    /// The VLAN to be tagged with; 0 for no tag.
    pub vlan: u16,
}

/// What the headers of a datagram say beside its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Where its frame goes.
    pub leg: Leg,
    /// Our own address.
    pub local: LocalIp,
    /// Our own port.
    pub port: u16,
    /// To whom.
    pub peer: Endpoint,
    /// Routers may take it apart where it is too long for a path, and tell the pieces by this
    /// number. Only IPv4 has such routers.
    pub fragments: Option<u16>,
    /// Who sends the frame adds the datagram to its checksum, which stands [`SUM_AT`] bytes behind
    /// the beginning of its header. The one of an IPv4 header is always ours.
    pub sum_is_left: bool,
}

/// Writes the headers in front of a datagram: the end of `room` is where it begins. Returns how
/// many bytes they are. Both addresses are of one family, and the datagram is no longer than a
/// frame.
///
/// # Panics
/// Where `room` is shorter than [`HEADERS_MAX`].
#[inline]
pub fn write_headers(room: &mut [u8], leaving: &Leaving, datagram: &[u8]) -> usize {
    assert!(room.len() >= HEADERS_MAX, "a frame has room for all headers");
    let udp_len = (UDP_BYTES + datagram.len()) as u16;
    let (room, udp) = room.split_last_chunk_mut::<UDP_BYTES>().expect("it was asked above");
    udp[..2].copy_from_slice(&leaving.port.to_be_bytes());
    udp[2..4].copy_from_slice(&leaving.peer.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[SUM_AT..].fill(0);
    let own = leaving.local.ip_bytes();
    let other = leaving.peer.ip_bytes();
    // IPv4 addresses are kept in the last four of sixteen bytes.
    let is_v4 = leaving.peer.is_v4();
    let addresses = if is_v4 {
        Sum::default().add(&own[12..]).add(&other[12..])
    } else {
        Sum::default().add(own).add(other)
    };
    let pseudo = addresses.add_number(udp_len).add_number(u16::from(UDP));
    let checksum = if leaving.sum_is_left {
        pseudo.folded().to_ne_bytes()
    } else {
        pseudo.add(udp).add(datagram).field()
    };
    udp[SUM_AT..].copy_from_slice(&checksum);
    let (room, ip_bytes, kind) = if is_v4 {
        let (room, header) = room.split_last_chunk_mut().expect("it was asked above");
        write_v4(header, leaving, udp_len);
        (room, V4_BYTES, KIND_V4)
    } else {
        let (room, header) = room.split_last_chunk_mut().expect("it was asked above");
        write_v6(header, leaving, udp_len);
        (room, V6_BYTES, KIND_V6)
    };
    write_ethernet(room, &leaving.leg, kind) + ip_bytes + UDP_BYTES
}

fn write_v4(header: &mut [u8; V4_BYTES], leaving: &Leaving, udp_len: u16) {
    let total = V4_BYTES as u16 + udp_len;
    let (id, flags) = leaving.fragments.map_or((0, DONT_FRAGMENT), |id| (id, 0));
    header[0] = V4_PLAIN;
    header[1] = 0;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..8].copy_from_slice(&flags.to_be_bytes());
    header[8] = HOPS;
    header[9] = UDP;
    header[10..12].fill(0);
    header[12..16].copy_from_slice(&leaving.local.ip_bytes()[12..]);
    header[16..].copy_from_slice(&leaving.peer.ip_bytes()[12..]);
    let checksum = Sum::default().add(header).field();
    header[10..12].copy_from_slice(&checksum);
}

fn write_v6(header: &mut [u8; V6_BYTES], leaving: &Leaving, udp_len: u16) {
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&udp_len.to_be_bytes());
    header[6] = UDP;
    header[7] = HOPS;
    header[8..24].copy_from_slice(leaving.local.ip_bytes());
    header[24..].copy_from_slice(leaving.peer.ip_bytes());
}

fn write_ethernet(room: &mut [u8], leg: &Leg, kind: [u8; 2]) -> usize {
    let (room, end) = room.split_last_chunk_mut::<2>().expect("it was asked above");
    *end = kind;
    let (addresses, tag_bytes) = if leg.vlan == 0 {
        (room, 0)
    } else {
        let (room, tag) = room.split_last_chunk_mut::<TAG_BYTES>().expect("it was asked above");
        tag[..2].copy_from_slice(&TAGGED);
        tag[2..].copy_from_slice(&(leg.vlan & VLAN_MASK).to_be_bytes());
        (room, TAG_BYTES)
    };
    let (room, from) = addresses.split_last_chunk_mut::<6>().expect("it was asked above");
    *from = leg.from;
    *room.last_chunk_mut::<6>().expect("it was asked above") = leg.to;
    ETHERNET_BYTES + tag_bytes
}

/// Bytes of the headers inside of an interface's MTU.
pub const fn inner_headers(is_v4: bool) -> usize {
    UDP_BYTES + if is_v4 { V4_BYTES } else { V6_BYTES }
}

/// Where in a UDP header its checksum stands.
pub const SUM_AT: usize = 6;

pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const TAG_BYTES: usize = 4;
pub(crate) const V4_BYTES: usize = 20;
pub(crate) const V6_BYTES: usize = 40;
/// A UDP header: the last one before the datagram, and where its checksum begins.
pub const UDP_BYTES: usize = 8;

/// What the last two bytes of an Ethernet header announce.
pub(crate) const KIND_V4: [u8; 2] = [0x08, 0x00];
pub(crate) const KIND_V6: [u8; 2] = [0x86, 0xdd];
pub(crate) const TAGGED: [u8; 2] = [0x81, 0x00];
pub(crate) const VLAN_MASK: u16 = 0x0fff;

/// Version 4, and a header of five words: no options.
pub(crate) const V4_PLAIN: u8 = 0x45;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const OFFSET_MASK: u16 = 0x1fff;
const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const UDP: u8 = 17;

/// How many routers a datagram may pass, as Linux has it.
const HOPS: u8 = 64;

#[cfg(test)]
mod tests;
