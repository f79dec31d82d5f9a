//! Server addresses as tokens carry them.
//!
//! The reference writes an IPv6 address as eight little-endian words, so `::1` ends in `01 00`;
//! some other implementations write the octets in network order. What stands here is the
//! reference's order; [`server`](super::server) compares in both. A token carries no scope id and
//! no flow label, so an address that needs a scope cannot be put into one.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Deref;
use std::str::FromStr;

use arrayvec::ArrayVec;

use super::wire::{Reader, Writer};

/// Most servers that one token can name.
pub const SERVERS_MAX: usize = 32;

/// Longest form of one address: type, eight words, port.
pub const ADDRESS_BYTES_MAX: usize = 1 + 16 + 2;

/// The servers that a token names, in the order in which the client tries them.
///
/// Invariant: 1 to [`SERVERS_MAX`] addresses, none with a scope id or a flow label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddresses(ArrayVec<SocketAddr, SERVERS_MAX>);

impl ServerAddresses {
    /// Takes addresses that a client could dial.
    pub fn new(addresses: &[SocketAddr]) -> Result<Self, AddressError> {
        let mut list = ArrayVec::new();
        for &address in addresses {
            list.try_push(checked(address)?).map_err(|_| AddressError::TooMany)?;
        }
        if list.is_empty() { Err(AddressError::Missing) } else { Ok(Self(list)) }
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.put(&(self.len() as u32).to_le_bytes());
        for address in self.iter() {
            encode(address, out);
        }
    }

    /// `None` where the count is not 1 to 32, a type is unknown, or the bytes end early.
    pub(super) fn decode(input: &mut Reader<'_>) -> Option<Self> {
        let count = input.u32()?;
        if !(1..=SERVERS_MAX as u32).contains(&count) {
            return None;
        }
        let mut list = ArrayVec::new();
        for _ in 0..count {
            list.push(decode(input)?);
        }
        Some(Self(list))
    }
}

impl Deref for ServerAddresses {
    type Target = [SocketAddr];

    fn deref(&self) -> &[SocketAddr] {
        &self.0
    }
}

impl FromStr for ServerAddresses {
    type Err = AddressError;

    /// Reads a list like `203.0.113.9:40000,[2001:db8::2]:40000`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut list = ArrayVec::<_, SERVERS_MAX>::new();
        for part in text.split(',') {
            list.try_push(parse(part)?).map_err(|_| AddressError::TooMany)?;
        }
        Ok(Self(list))
    }
}

impl fmt::Display for ServerAddresses {
    /// Writes the list in the form in which it can be read again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

crate::told! {
    /// Why an address cannot be put into a token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AddressError;
    /// No address at all.
    Missing = "a token names at least one server address",
    /// Port 0 cannot be dialled.
    PortZero = "a server address needs a port other than 0",
    /// A link-local IPv6 address with a scope, which means something on one host only.
    Scoped = "a server address cannot carry an IPv6 scope (%...)",
    /// Not an address and a port.
    Syntax = "a server address is written 203.0.113.9:40000 or [2001:db8::2]:40000",
    /// More than [`SERVERS_MAX`].
    TooMany = "a token names at most 32 server addresses",
}

/// Reads one address with its port, white space around it allowed.
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let address = text.trim().parse().map_err(|_| AddressError::Syntax)?;
    checked(address)
}

fn checked(address: SocketAddr) -> Result<SocketAddr, AddressError> {
    match address {
        _ if address.port() == 0 => Err(AddressError::PortZero),
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Err(AddressError::Scoped),
        SocketAddr::V6(v6) => Ok(SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into()),
        SocketAddr::V4(_) => Ok(address),
    }
}

fn encode(address: &SocketAddr, out: &mut Writer<'_>) {
    match address {
        SocketAddr::V4(v4) => {
            out.put(&[TYPE_IPV4]);
            out.put(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out.put(&[TYPE_IPV6]);
            for word in v6.ip().segments() {
                out.put(&word.to_le_bytes());
            }
        }
    }
    out.put(&address.port().to_le_bytes());
}

fn decode(input: &mut Reader<'_>) -> Option<SocketAddr> {
    match input.u8()? {
        TYPE_IPV4 => {
            let ip = Ipv4Addr::from(*input.array::<4>()?);
            Some(SocketAddrV4::new(ip, input.u16()?).into())
        }
        TYPE_IPV6 => {
            let mut words = [0; 8];
            for word in &mut words {
                *word = input.u16()?;
            }
            Some(SocketAddrV6::new(Ipv6Addr::from(words), input.u16()?, 0, 0).into())
        }
        _ => None,
    }
}

const TYPE_IPV4: u8 = 1;
const TYPE_IPV6: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(address: SocketAddr) -> Vec<u8> {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        encode(&address, &mut writer);
        let len = writer.len();
        bytes[..len].to_vec()
    }

    #[test]
    fn ipv6_words_are_little_endian() {
        let loopback = "[::1]:258".parse().expect("literal");
        let expected = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1];
        assert_eq!(encoded(loopback), expected);
    }

    #[test]
    fn unknown_types_and_cut_addresses_do_not_decode() {
        assert_eq!(decode(&mut Reader::new(&[0, 1, 2, 3, 4, 5, 6])), None);
        assert_eq!(decode(&mut Reader::new(&[3, 1, 2, 3, 4, 5, 6])), None);
        for address in ["1.2.3.4:5", "[1:2:3:4:5:6:7:8]:9"] {
            let bytes = encoded(address.parse().expect("literal"));
            for len in 0..bytes.len() {
                assert_eq!(decode(&mut Reader::new(&bytes[..len])), None);
            }
        }
    }

    #[test]
    fn text_is_read_and_written_the_same_way() {
        let text = "203.0.113.9:40000,[2001:db8::1:2]:50000";
        let list: ServerAddresses = text.parse().expect("two addresses");
        assert_eq!(list.to_string(), text);
        assert_eq!(ServerAddresses::new(&list), Ok(list.clone()));
        assert_eq!(" 203.0.113.9:40000 , [2001:db8::1:2]:50000".parse(), Ok(list));
    }

    #[test]
    fn each_mistake_in_a_text_has_its_own_answer() {
        let parse = |text: &str| text.parse::<ServerAddresses>().expect_err("a mistake");
        assert_eq!(parse(""), AddressError::Syntax);
        assert_eq!(parse("1.2.3.4"), AddressError::Syntax);
        assert_eq!(parse("1.2.3.4:5,"), AddressError::Syntax);
        assert_eq!(parse("localhost:5"), AddressError::Syntax);
        assert_eq!(parse("1.2.3.4:0"), AddressError::PortZero);
        assert_eq!(parse("[fe80::1%3]:5"), AddressError::Scoped);
        assert_eq!(parse(&["1.2.3.4:5"; 33].join(",")), AddressError::TooMany);
        assert_eq!(ServerAddresses::new(&[]), Err(AddressError::Missing));
    }

    #[test]
    fn the_count_is_checked_before_any_address() {
        for count in [0_u32, 33, u32::MAX] {
            let mut bytes = count.to_le_bytes().to_vec();
            bytes.extend([1, 10, 0, 0, 1, 5, 0].repeat(40));
            assert_eq!(ServerAddresses::decode(&mut Reader::new(&bytes)), None);
        }
    }

    proptest! {
        #[test]
        fn every_address_comes_back(v6: bool, ip: u128, port: u16) {
            let address = if v6 {
                SocketAddr::from((Ipv6Addr::from(ip), port))
            } else {
                SocketAddr::from((Ipv4Addr::from(ip as u32), port))
            };
            prop_assert_eq!(decode(&mut Reader::new(&encoded(address))), Some(address));
        }
    }
}
