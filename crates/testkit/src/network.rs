//! The internet between players and the gateway: it loses, duplicates, delays and reorders, as a
//! seed decides.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::random::Random;
use ringgate_batch::Endpoint;

/// How bad a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Datagrams out of a thousand that never arrive.
    pub loss_per_mille: u32,
    /// Datagrams out of a thousand that arrive twice.
    pub duplicate_per_mille: u32,
    /// How long one takes. A wide range reorders.
    pub delay_ns: Range<u64>,
}

impl Faults {
    /// Everything arrives, once, in order.
    pub const NONE: Self =
        Self { loss_per_mille: 0, duplicate_per_mille: 0, delay_ns: 10_000_000..10_000_001 };
}

/// A datagram under way.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Whom it says it is from.
    pub from: Endpoint,
    /// Where it goes.
    pub to: Endpoint,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// Datagrams under way.
#[derive(Debug, Default)]
pub struct Network {
    under_way: BinaryHeap<UnderWay>,
    sent: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct UnderWay {
    arrives_ns: u64,
    /// Keeps the order of those that arrive at the same time.
    number: u64,
    datagram: Datagram,
}

impl Network {
    /// Sends a datagram over a path.
    pub fn send(&mut self, now_ns: u64, datagram: Datagram, path: &Faults, random: &mut Random) {
        if random.chance(path.loss_per_mille) {
            return;
        }
        if random.chance(path.duplicate_per_mille) {
            let Datagram { from, to, ref bytes } = datagram;
            let copy = Datagram { from, to, bytes: bytes.clone() };
            self.put(now_ns + random.within(path.delay_ns.clone()), copy);
        }
        self.put(now_ns + random.within(path.delay_ns.clone()), datagram);
    }

    /// The next datagram that has arrived.
    pub fn arrived(&mut self, now_ns: u64) -> Option<Datagram> {
        if self.under_way.peek()?.arrives_ns > now_ns {
            return None;
        }
        self.under_way.pop().map(|under_way| under_way.datagram)
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    fn put(&mut self, arrives_ns: u64, datagram: Datagram) {
        self.sent += 1;
        self.under_way.push(UnderWay { arrives_ns, number: self.sent, datagram });
    }
}

impl Ord for UnderWay {
    /// What arrives first is the greatest, because the heap gives that out first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrives_ns, other.number).cmp(&(self.arrives_ns, self.number))
    }
}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Endpoint = Endpoint::v4([10, 0, 0, 1], 1);

    fn arrivals(path: &Faults) -> Vec<u8> {
        let (mut network, mut random) = (Network::default(), Random::new(7));
        for n in 0..=255 {
            let datagram = Datagram { from: HERE, to: HERE, bytes: vec![n] };
            network.send(u64::from(n) * 1_000_000, datagram, path, &mut random);
        }
        std::iter::from_fn(|| network.arrived(u64::MAX)).map(|datagram| datagram.bytes[0]).collect()
    }

    #[test]
    fn a_good_path_changes_nothing_and_a_bad_one_everything() {
        assert_eq!(arrivals(&Faults::NONE), (0..=255).collect::<Vec<_>>());
        let path = Faults {
            loss_per_mille: 200,
            duplicate_per_mille: 100,
            delay_ns: 1_000_000..50_000_000,
        };
        let mut seen = arrivals(&path);
        assert!(!seen.is_sorted());
        seen.sort_unstable();
        assert!(seen.windows(2).any(|pair| pair[0] == pair[1]));
        seen.dedup();
        assert!((180..240).contains(&seen.len()), "{}", seen.len());
    }
}
