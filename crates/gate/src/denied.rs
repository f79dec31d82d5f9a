//! Who may not play: tens of thousands of prefixes of addresses, of which the longest decides, and
//! players by the id in their token.
//!
//! Prefixes lie inside each other or apart, so they cut the line of all addresses into stretches
//! that are denied and stretches that are not, by turns. What is kept is where each stretch begins:
//! an address is denied if an odd number of beginnings lie at or before it. For IPv4 an index by
//! the upper half of the address leaves a few of them to look at.

use crate::prefix::Prefix;
use ringgate_batch::Endpoint;

/// Prefixes, ready to be asked about each datagram of an unknown source.
#[derive(Clone, Debug, Default)]
pub struct Denied {
    /// Where stretches of IPv4 addresses begin.
    v4: Vec<u32>,
    /// How many of them begin before the addresses with each upper half; empty without any.
    v4_index: Vec<u32>,
    /// The same of IPv6 addresses.
    v6: Vec<u128>,
    /// Client ids, in order.
    clients: Vec<u64>,
}

impl Denied {
    /// From prefixes that are denied, or allowed within others that are. Each is there once.
    pub fn new(prefixes: impl IntoIterator<Item = (Prefix, bool)>) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) =
            prefixes.into_iter().partition(|(prefix, _)| prefix.is_v4());
        // Behind the last IPv4 address begins nothing that is asked about.
        let v4 = beginnings(v4).into_iter().filter(|at| *at != V4_END);
        let v4: Vec<u32> = v4.map(|at| at as u32).collect();
        Self { v4_index: index_by_half(&v4), v4, v6: beginnings(v6), clients: Vec::new() }
    }

    /// And these players, by the id in their token.
    #[must_use]
    pub fn with_clients(mut self, clients: impl IntoIterator<Item = u64>) -> Self {
        self.clients = clients.into_iter().collect();
        self.clients.sort_unstable();
        self
    }

    /// Whether nobody is denied.
    pub const fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty() && self.clients.is_empty()
    }

    /// Whether an address is.
    #[inline]
    pub fn holds(&self, source: &Endpoint) -> bool {
        !(self.v4.is_empty() && self.v6.is_empty()) && self.is_listed(source)
    }

    /// Whether the player with this id is.
    pub fn holds_client(&self, client_id: u64) -> bool {
        self.clients.binary_search(&client_id).is_ok()
    }

    fn is_listed(&self, source: &Endpoint) -> bool {
        let (high, low) = source.ip_words();
        let count = if source.is_v4() {
            let ip = low as u32;
            let upper = (ip >> HALF_BITS) as usize;
            let Some([from, to]) = self.v4_index.get(upper..upper + 2) else { return false };
            let (from, to) = (*from as usize, *to as usize);
            from + self.v4[from..to].partition_point(|at| *at <= ip)
        } else {
            let ip = u128::from(high) << 64 | u128::from(low);
            self.v6.partition_point(|at| *at <= ip)
        };
        count % 2 == 1
    }
}

/// How many beginnings there are before the addresses with each upper half, and at last all.
fn index_by_half(v4: &[u32]) -> Vec<u32> {
    if v4.is_empty() {
        return Vec::new();
    }
    let mut before = 0;
    let mut count_to = |upper: u64| {
        let is_before = |at: &u32| u64::from(*at) < upper << HALF_BITS;
        before += v4[before..].iter().take_while(|at| is_before(at)).count();
        before as u32
    };
    (0..=1 << HALF_BITS).map(&mut count_to).collect()
}

/// Where what is denied begins and ends, by turns.
fn beginnings(mut prefixes: Vec<(Prefix, bool)>) -> Vec<u128> {
    prefixes.sort_unstable_by_key(|(prefix, _)| (prefix.range().0, prefix.len()));
    let mut cuts = Cuts::default();
    // The prefixes that the one at hand lies in: their ends, and what they say.
    let mut around: Vec<(u128, bool)> = Vec::new();
    let said = |around: &[(u128, bool)]| around.last().is_some_and(|(_, is_denied)| *is_denied);
    for (prefix, is_denied) in prefixes {
        let (first, last) = prefix.range();
        while let Some((end, _)) = around.pop_if(|(end, _)| *end < first) {
            cuts.add(end + 1, said(&around));
        }
        around.push((last, is_denied));
        cuts.add(first, is_denied);
    }
    while let Some((end, _)) = around.pop() {
        if let Some(next) = end.checked_add(1) {
            cuts.add(next, said(&around));
        }
    }
    cuts.into_beginnings()
}

/// Where something else holds than before.
#[derive(Default)]
struct Cuts(Vec<(u128, bool)>);

impl Cuts {
    /// Later words on the same place replace earlier ones.
    fn add(&mut self, at: u128, is_denied: bool) {
        if self.0.last().is_some_and(|(last, _)| *last == at) {
            self.0.pop();
        }
        if self.0.last().is_some_and(|(_, last)| *last) != is_denied {
            self.0.push((at, is_denied));
        }
    }

    fn into_beginnings(self) -> Vec<u128> {
        self.0.into_iter().map(|(at, _)| at).collect()
    }
}

const HALF_BITS: u32 = 16;

/// The address after the last mapped IPv4 one.
const V4_END: u128 = 0x1_0000_0000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(list: &[(&str, bool)]) -> Denied {
        Denied::new(
            list.iter().map(|(text, is_denied)| (text.parse().expect("a prefix"), *is_denied)),
        )
    }

    fn at(ip: &str) -> Endpoint {
        Endpoint::from(std::net::SocketAddr::new(ip.parse().expect("an address"), 1))
    }

    #[test]
    fn the_longest_prefix_decides() {
        let list = denied(&[
            ("10.0.0.0/8", true),
            ("10.1.0.0/16", false),
            ("10.1.2.0/24", true),
            ("2001:db8::/32", true),
            ("2001:db8:1::/48", false),
            ("255.255.255.0/24", true),
            ("0.0.0.0/32", true),
        ]);
        for ip in ["10.0.0.0", "10.255.255.255", "10.1.2.3", "255.255.255.255", "0.0.0.0"] {
            assert!(list.holds(&at(ip)), "{ip}");
        }
        for ip in ["10.1.0.0", "10.1.3.0", "9.255.255.255", "11.0.0.0", "0.0.0.1", "255.255.254.9"]
        {
            assert!(!list.holds(&at(ip)), "{ip}");
        }
        assert!(list.holds(&at("2001:db8::1")) && !list.holds(&at("2001:db8:1::1")));
        assert!(list.holds(&at("::ffff:10.2.3.4")), "mapped IPv4 is IPv4");
        assert!(!list.holds(&at("::1")));
        assert!(Denied::default().is_empty() && !Denied::default().holds(&at("10.0.0.1")));
    }

    #[test]
    fn players_are_denied_by_their_id_whatever_their_address_is() {
        let list = Denied::default().with_clients([7, u64::MAX, 0]);
        assert!([0, 7, u64::MAX].iter().all(|id| list.holds_client(*id)));
        assert!(!list.holds_client(1) && !list.holds(&at("10.0.0.1")) && !list.is_empty());
        assert!(!Denied::default().holds_client(0));
    }

    #[test]
    fn everything_can_be_denied_but_a_few() {
        let list = denied(&[("0.0.0.0/0", true), ("192.0.2.0/24", false), ("::/0", true)]);
        assert!(list.holds(&at("8.8.8.8")) && list.holds(&at("::1")) && list.holds(&at("f::")));
        assert!(!list.holds(&at("192.0.2.255")) && list.holds(&at("192.0.3.0")));
    }

    /// It ends where the mapped IPv4 addresses do.
    #[test]
    fn an_ipv6_prefix_around_the_mapped_addresses_has_an_end() {
        let list = denied(&[("::/80", true)]);
        assert!(list.holds(&at("::1")) && list.holds(&at("::fffe:1:1")));
        assert!(!list.holds(&at("::1:0:0:0")) && !list.holds(&at("2001:db8::1")));
        assert!(!list.holds(&at("::ffff:10.0.0.1")) && !list.holds(&at("10.0.0.1")));
        let list = denied(&[("::/80", true), ("240.0.0.0/4", true)]);
        assert!(list.holds(&at("255.255.255.255")) && !list.holds(&at("0.0.0.0")));
        assert!(!list.holds(&at("ffff::")));
    }

    /// The rule itself, one prefix after the other.
    #[test]
    fn tens_of_thousands_say_what_a_walk_through_all_says() {
        let mut state = 0x1234_5678_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        let mut list = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let ip = std::net::Ipv4Addr::from_bits(random() & 0x0f0f_ffff);
            let prefix = Prefix::new(ip.into(), 8 + (random() % 25) as u8).expect("in range");
            list.insert(prefix, random().is_multiple_of(3));
        }
        let denied = Denied::new(list.iter().map(|(prefix, is_denied)| (*prefix, *is_denied)));
        for _ in 0..300 {
            let ip = std::net::Ipv4Addr::from_bits(random() & 0x0f0f_ffff);
            let bytes = ip.to_ipv6_mapped().octets();
            let holding = list.iter().filter(|(prefix, _)| prefix.holds(&bytes));
            let longest = holding.max_by_key(|(prefix, _)| prefix.len());
            let wanted = longest.is_some_and(|(_, is_denied)| *is_denied);
            assert_eq!(denied.holds(&Endpoint::v4(ip.octets(), 1)), wanted, "{ip}");
        }
    }
}
