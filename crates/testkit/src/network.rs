//! The internet between players and the gateway: it loses, duplicates, delays and reorders, as a
//! seed decides; and does what the load generator's settings of a bad network say.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::random::Random;
use ringgate_batch::Endpoint;
use ringgate_impair::{Fate, Impairments, Path};

/// How bad a path is.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Datagrams out of a thousand that never arrive.
    pub loss_per_mille: u32,
    /// Datagrams out of a thousand that arrive twice.
    pub duplicate_per_mille: u32,
    /// How long one takes. A wide range reorders.
    pub delay_ns: Range<u64>,
    /// What happens before that, where a player is, by the names of Unreal's settings.
    pub settings: Impairments,
}

impl Faults {
    /// Everything arrives, once, in order.
    pub fn none() -> Self {
        Self {
            loss_per_mille: 0,
            duplicate_per_mille: 0,
            delay_ns: 10_000_000..10_000_001,
            settings: Impairments::default(),
        }
    }

    /// The longest that a datagram takes.
    pub fn slowest_ns(&self) -> u64 {
        self.delay_ns.end + self.settings.lag_ns_max()
    }
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

impl Datagram {
    fn copy(&self) -> Self {
        let Self { from, to, ref bytes } = *self;
        Self { from, to, bytes: bytes.clone() }
    }
}

/// Datagrams under way.
#[derive(Debug, Default)]
pub struct Network {
    under_way: BinaryHeap<UnderWay>,
    sent: u64,
    /// Players whose settings do something, by their addresses.
    players: HashMap<Endpoint, Player>,
}

/// What is known of a player's network.
#[derive(Debug)]
struct Player {
    path: Path,
    /// What waits until the next datagram has left.
    held: Option<Datagram>,
}

#[derive(Debug, PartialEq, Eq)]
struct UnderWay {
    arrives_ns: u64,
    /// Keeps the order of those that arrive at the same time.
    number: u64,
    datagram: Datagram,
}

impl Network {
    /// Sends a datagram of a player.
    pub fn send(&mut self, now_ns: u64, datagram: Datagram, path: &Faults, random: &mut Random) {
        if !path.settings.is_active() {
            return self.travel(now_ns, datagram, path, random);
        }
        let home = datagram.from;
        let player = self.player(home, path.settings.seed);
        match path.settings.outgoing(&mut player.path, now_ns, datagram.bytes.len()) {
            Fate::Lose => return,
            // Held twice in a row, the first one travels after all.
            Fate::Hold => {
                if let Some(before) = player.held.replace(datagram) {
                    self.travel(now_ns, before, path, random);
                }
                return;
            }
            Fate::Delay(later_ns) => {
                return self.travel(now_ns + later_ns, datagram, path, random);
            }
            Fate::Twice => self.travel(now_ns, datagram.copy(), path, random),
            Fate::Pass => {}
        }
        let held = self.player(home, path.settings.seed).held.take();
        self.travel(now_ns, datagram, path, random);
        if let Some(held) = held {
            self.travel(now_ns, held, path, random);
        }
    }

    /// Sends a datagram to a player.
    pub fn send_down(
        &mut self,
        now_ns: u64,
        datagram: Datagram,
        path: &Faults,
        random: &mut Random,
    ) {
        let mut later_ns = 0;
        if path.settings.is_active() {
            let player = self.player(datagram.to, path.settings.seed);
            match path.settings.incoming(&mut player.path, now_ns) {
                Fate::Lose => return,
                Fate::Delay(ns) => later_ns = ns,
                Fate::Pass | Fate::Twice | Fate::Hold => {}
            }
        }
        self.travel(now_ns + later_ns, datagram, path, random);
    }

    fn player(&mut self, home: Endpoint, seed: u64) -> &mut Player {
        let number = self.players.len() as u32;
        let new = || Player { path: Path::new(seed, number), held: None };
        self.players.entry(home).or_insert_with(new)
    }

    fn travel(&mut self, now_ns: u64, datagram: Datagram, path: &Faults, random: &mut Random) {
        if random.chance(path.loss_per_mille) {
            return;
        }
        if random.chance(path.duplicate_per_mille) {
            self.put(now_ns + random.within(path.delay_ns.clone()), datagram.copy());
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
        assert_eq!(arrivals(&Faults::none()), (0..=255).collect::<Vec<_>>());
        let path = Faults {
            loss_per_mille: 200,
            duplicate_per_mille: 100,
            delay_ns: 1_000_000..50_000_000,
            ..Faults::none()
        };
        let mut seen = arrivals(&path);
        assert!(!seen.is_sorted());
        seen.sort_unstable();
        assert!(seen.windows(2).any(|pair| pair[0] == pair[1]));
        seen.dedup();
        assert!((180..240).contains(&seen.len()), "{}", seen.len());
    }

    #[test]
    fn every_setting_of_a_bad_network_does_what_the_load_generator_would() {
        let with = |settings: &str| {
            let settings = Impairments::parse(settings).expect("settings");
            arrivals(&Faults { settings, ..Faults::none() })
        };
        let all: Vec<u8> = (0..=255).collect();
        let lost = with("PktLoss=20");
        assert!((150..240).contains(&lost.len()) && lost.is_sorted());
        assert_eq!(with("PktLoss=100 PktLossMinSize=2"), all, "they are shorter");
        let mut twice = with("PktDup=20");
        assert!(twice.len() > 270 && twice.is_sorted());
        twice.dedup();
        assert_eq!(twice, all);
        for settings in ["PktOrder=1", "PktLag=40 PktLagVariance=40 LagReorders=1", "PktJitter=50"]
        {
            let mut changed = with(settings);
            assert!(!changed.is_sorted(), "{settings}");
            changed.sort_unstable();
            // The last one may be held for one that never comes.
            assert!(all.starts_with(&changed) && changed.len() >= 255, "{settings}");
        }
        for settings in ["PktLag=40 PktLagVariance=40", "PktFrameDelay=2", "PktBufferBloatInMS=30"]
        {
            assert_eq!(with(settings), all, "{settings}");
        }
    }
}
