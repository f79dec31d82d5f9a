//! Who is sent away where too many have connected that have not said who they are.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Of guests, each with its number (the higher, the later it came) and where it is: the oldest of
/// the address that has the most. So a stranger who connects again and again sends nobody away but
/// itself, and not an agent that is about to prove who it is.
pub(crate) fn in_the_way(guests: impl Iterator<Item = (u64, IpAddr)>) -> Option<u64> {
    let mut by_address = BTreeMap::<_, (usize, u64)>::new();
    for (number, ip) in guests {
        let (count, oldest) = by_address.entry(address_of(ip)).or_insert((0, number));
        (*count, *oldest) = (*count + 1, number.min(*oldest));
    }
    let first = |(count, oldest): &(usize, u64)| (*count, std::cmp::Reverse(*oldest));
    by_address.into_values().max_by_key(first).map(|(_, oldest)| oldest)
}

/// An IPv4 address, or the /64 of an IPv6 one: whoever has an address there has all of it.
fn address_of(ip: IpAddr) -> (bool, u64) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => (false, ip.to_bits().into()),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(guests: &[(u64, &str)]) -> Option<u64> {
        in_the_way(guests.iter().map(|(number, ip)| (*number, ip.parse().expect("an address"))))
    }

    #[test]
    fn who_comes_most_often_goes_and_otherwise_the_oldest() {
        assert_eq!(leaves(&[]), None);
        assert_eq!(leaves(&[(4, "10.0.0.1"), (3, "10.0.0.2")]), Some(3));
        let flood = [(1, "10.0.0.1"), (2, "10.0.0.9"), (3, "10.0.0.9"), (4, "::ffff:10.0.0.9")];
        assert_eq!(leaves(&flood), Some(2), "the agent that came first stays");
    }

    #[test]
    fn an_ipv6_host_has_many_addresses() {
        let flood = [(1, "fd00::1"), (2, "fd00:0:0:1::1"), (3, "fd00:0:0:1::2")];
        assert_eq!(leaves(&flood), Some(2));
    }
}
