//! A prefix of addresses, as operators name networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that begin with the same bits. IPv4-mapped IPv6 is IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// IPv4 mapped; the bits behind the length are 0.
    bits: u128,
    /// Of the mapped address: 96 more than people write of an IPv4 one.
    len: u8,
}

impl Prefix {
    /// The first `len` bits of an address, if it has as many.
    pub fn new(ip: IpAddr, len: u8) -> Option<Self> {
        let (bits, len) = match ip {
            IpAddr::V4(v4) if len <= 32 => (v4.to_ipv6_mapped().to_bits(), len + MAPPED_LEN),
            IpAddr::V6(v6) if len <= 128 => (v6.to_bits(), len),
            _ => return None,
        };
        Some(Self { bits: bits & mask(len), len })
    }

    /// Whether it is of IPv4 addresses.
    pub const fn is_v4(&self) -> bool {
        self.len >= MAPPED_LEN && self.bits >> 32 == MAPPED
    }

    /// Whether an address begins with it. IPv4 addresses are no part of IPv6.
    pub fn holds(&self, ip: &[u8; 16]) -> bool {
        self.covers(&Self { bits: u128::from_be_bytes(*ip), len: 128 })
    }

    /// Whether all addresses of another one begin with it. IPv4 addresses are no part of IPv6.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_v4() == other.is_v4()
            && self.len <= other.len
            && other.bits & mask(self.len) == self.bits
    }

    /// The one around it that says a bit less, unless it says nothing.
    pub fn shorter(&self) -> Option<Self> {
        let len = self.len.checked_sub(1)?;
        (!self.is_v4() || len >= MAPPED_LEN).then_some(Self { bits: self.bits & mask(len), len })
    }

    /// Its first address and its last, IPv4 mapped.
    pub const fn range(&self) -> (u128, u128) {
        (self.bits, self.bits | !mask(self.len))
    }

    /// How many bits of the mapped address it says.
    pub(crate) const fn len(&self) -> u8 {
        self.len
    }
}

const fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

/// What IPv4 addresses begin with, mapped.
const MAPPED: u128 = 0xffff;
const MAPPED_LEN: u8 = 96;

impl FromStr for Prefix {
    type Err = &'static str;

    /// An address alone is a prefix of all its bits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str =
            "expected an address or a prefix such as 192.0.2.0/24 or 2001:db8::/32";
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip, Some(len.parse::<u8>().map_err(|_| WANTED)?)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| WANTED)?;
        let all = if ip.is_ipv4() { 32 } else { 128 };
        Self::new(ip, len.unwrap_or(all)).ok_or(WANTED)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_v4() {
            write!(f, "{}/{}", Ipv4Addr::from_bits(self.bits as u32), self.len - MAPPED_LEN)
        } else {
            write!(f, "{}/{}", Ipv6Addr::from_bits(self.bits), self.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn prefixes_are_read_and_written_without_the_bits_behind_them() {
        for (text, shown) in [
            ("192.0.2.77/24", "192.0.2.0/24"),
            ("192.0.2.77", "192.0.2.77/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::ffff:192.0.2.77/120", "192.0.2.0/24"),
            ("2001:db8:1::5/32", "2001:db8::/32"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(prefix(text).to_string(), shown);
        }
        for bad in ["", "192.0.2.0/33", "192.0.2/24", "::/129", "x", "1.2.3.4/", "1.2.3.4/-1"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_prefix_covers_what_begins_with_it() {
        assert!(prefix("10.0.0.0/8").covers(&prefix("10.1.0.0/16")));
        assert!(!prefix("10.1.0.0/16").covers(&prefix("10.0.0.0/8")));
        assert!(!prefix("::/0").covers(&prefix("10.0.0.0/8")));
        assert!(prefix("::/0").covers(&prefix("2001:db8::/32")));
        assert!(prefix("10.0.0.0/8").holds(&Ipv4Addr::new(10, 9, 9, 9).to_ipv6_mapped().octets()));
        assert!(!prefix("2001:db8::/32").holds(&[0; 16]) && prefix("::/0").holds(&[0; 16]));
        assert!(!prefix("::/0").holds(&Ipv4Addr::new(10, 9, 9, 9).to_ipv6_mapped().octets()));
    }

    #[test]
    fn prefixes_get_shorter_until_they_say_nothing() {
        let count = |text| std::iter::successors(Some(prefix(text)), Prefix::shorter).count();
        assert_eq!([count("10.1.2.3"), count("2001:db8::1"), count("0.0.0.0/0")], [33, 129, 1]);
        assert_eq!(prefix("10.1.0.0/16").shorter(), Some(prefix("10.0.0.0/15")));
    }
}
