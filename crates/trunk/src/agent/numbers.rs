//! Loopback addresses of players: each has one towards the game servers that speak plain UDP.
//!
//! A server knows a player by the address alone, so one that is given back rests for as long as a
//! server may remember it. While there are fresh ones, none is used a second time before that.

use std::collections::VecDeque;
use std::net::IpAddr;

use ringgate_batch::LocalIp;

/// One of the addresses from 127.1.0.0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number(u32);

impl Number {
    /// The address itself.
    pub(crate) const fn address(self) -> LocalIp {
        let [_, x, y, z] = (self.0 + FIRST).to_be_bytes();
        LocalIp::v4([127, x, y, z], 0)
    }

    /// Whose address that is.
    pub(crate) fn of(address: &LocalIp) -> Option<Self> {
        let IpAddr::V4(v4) = address.ip() else { return None };
        let [127, x, y, z] = v4.octets() else { return None };
        u32::from_be_bytes([0, x, y, z]).checked_sub(FIRST).map(Self)
    }
}

ringgate_core::carried_alone!(Number);
ringgate_core::carried!(Numbers { fresh, resting });

/// Those that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    fresh: u32,
    /// The one that rests longest first, and until when.
    resting: VecDeque<(u64, Number)>,
}

impl Numbers {
    /// One for a player. `None` where all are taken.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Number> {
        let is_rested = self.resting.front().is_some_and(|(until_ns, _)| *until_ns <= now_ns);
        if !is_rested && self.fresh < COUNT {
            self.fresh += 1;
            return Some(Number(self.fresh - 1));
        }
        self.resting.pop_front().map(|(_, number)| number)
    }

    /// Its player has left.
    pub(crate) fn give_back(&mut self, number: Number, now_ns: u64) {
        self.resting.push_back((now_ns + REST_NS, number));
    }
}

/// 127.1.0.0.
const FIRST: u32 = 1 << 16;

/// Up to 127.255.255.254; the one behind is the broadcast address.
const COUNT: u32 = 0x00ff_fffe - FIRST + 1;

/// As at a gateway.
const REST_NS: u64 = 120_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_map_both_ways_and_end_before_the_broadcast() {
        for number in [0, 1, 65_535, COUNT - 1].map(Number) {
            assert!(number.address().ip().is_loopback());
            assert_eq!(Number::of(&number.address()), Some(number));
        }
        assert_eq!(Number(COUNT - 1).address(), LocalIp::v4([127, 255, 255, 254], 0));
        assert_eq!(Number::of(&LocalIp::v4([127, 0, 0, 1], 0)), None);
        assert_eq!(Number::of(&LocalIp::v4([10, 1, 0, 0], 0)), None);
    }

    #[test]
    fn an_address_rests_while_there_are_fresh_ones() {
        let mut numbers = Numbers::default();
        let (one, two) = (numbers.take(0).expect("fresh"), numbers.take(0).expect("fresh"));
        numbers.give_back(one, 5);
        assert_eq!(numbers.take(REST_NS), Some(Number(2)), "the first still rests");
        assert_eq!(numbers.take(REST_NS + 5), Some(one));
        numbers.fresh = COUNT;
        assert_eq!(numbers.take(0), None);
        numbers.give_back(two, 0);
        assert_eq!(numbers.take(0), Some(two), "rather too early than not at all");
    }
}
