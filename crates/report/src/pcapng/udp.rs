//! IP and UDP headers for datagrams that were taken behind the kernel, which has used up theirs.
//! Addresses, ports, lengths and checksums are as they were on the wire; what nobody knows any more
//! (identification, time to live) is made up.

use std::net::{IpAddr, SocketAddr};

/// Puts a datagram's headers and its payload behind `out`.
pub fn datagram(out: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
    let udp_len = (UDP_BYTES + payload.len()) as u16;
    let mut pseudo = Sum::default();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start = out.len();
            out.extend([0x45, 0]);
            out.extend((IPV4_BYTES as u16 + udp_len).to_be_bytes());
            out.extend([0, 0, DONT_FRAGMENT, 0, TTL, UDP, 0, 0]);
            out.extend(from.octets());
            out.extend(to.octets());
            let mut header = Sum::default();
            header.add(&out[start..]);
            out[start + 10..start + 12].copy_from_slice(&header.checksum().to_be_bytes());
            pseudo.add(&out[start + 12..]);
        }
        (from, to) => {
            out.extend([0x60, 0, 0, 0]);
            out.extend(udp_len.to_be_bytes());
            out.extend([UDP, TTL]);
            let start = out.len();
            out.extend(octets(from));
            out.extend(octets(to));
            pseudo.add(&out[start..]);
        }
    }
    pseudo.add(&[0, UDP]);
    pseudo.add(&udp_len.to_be_bytes());
    let start = out.len();
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    out.extend(udp_len.to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    pseudo.add(&out[start..]);
    // 0 would mean that there is none.
    let checksum = match pseudo.checksum() {
        0 => u16::MAX,
        checksum => checksum,
    };
    out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The sum of which the internet's checksum is the complement (RFC 1071).
#[derive(Default)]
struct Sum(u64);

impl Sum {
    /// All but the last addition have an even number of bytes.
    fn add(&mut self, bytes: &[u8]) {
        let (pairs, rest) = bytes.as_chunks::<2>();
        self.0 += pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>();
        self.0 += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }

    fn checksum(&self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;
const DONT_FRAGMENT: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn headers(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        datagram(&mut out, at(from), at(to), payload);
        out
    }

    /// Over a header with its checksum in place, or a pseudo header and what it is for.
    fn is_right(parts: &[&[u8]]) -> bool {
        let mut sum = Sum::default();
        for part in parts {
            sum.add(part);
        }
        sum.checksum() == 0
    }

    #[test]
    fn ipv4_headers_are_written_byte_by_byte() {
        let out = headers("192.0.2.1:1000", "198.51.100.2:40000", b"abc");
        #[rustfmt::skip]
        let expected = [
            0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x4e, 0x97,
            192, 0, 2, 1, 198, 51, 100, 2,
            0x03, 0xe8, 0x9c, 0x40, 0, 11, 0xaf, 0x15, b'a', b'b', b'c',
        ];
        assert!(is_right(&[&out[..20]]));
        assert!(is_right(&[&out[12..20], &[0, UDP, 0, 11], &out[20..]]));
        assert_eq!(out, expected);
    }

    #[test]
    fn ipv6_headers_cover_their_addresses() {
        let out = headers("[2001:db8::1]:1", "[2001:db8::2]:2", &[7; 1001]);
        assert_eq!(out[..8], [0x60, 0, 0, 0, 0x03, 0xf1, UDP, TTL]);
        assert_eq!(out.len(), 40 + 8 + 1001);
        assert!(is_right(&[&out[8..40], &[0, UDP, 0x03, 0xf1], &out[40..]]));
        // A dual-stack socket may be known by its IPv6 name only.
        let mixed = headers("192.0.2.1:1", "[::]:2", b"");
        assert_eq!(mixed[8..24], octets(at("192.0.2.1:1").ip()));
    }

    #[test]
    fn no_datagram_looks_as_if_it_had_no_checksum() {
        let (from, to) = ("0.0.0.0:0", "0.0.0.0:0");
        let sum_of = |payload: [u8; 2]| headers(from, to, &payload)[26..28].to_vec();
        // Chosen so that the sum is 0xffff: 17 + 10 + 10 = 37 from the headers.
        assert_eq!(sum_of((0xffff_u16 - 37).to_be_bytes()), [0xff, 0xff]);
    }
}
