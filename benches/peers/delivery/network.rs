//! The network of a run: what the impairments of the load generator do to packets, and a narrow
//! place with a queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringgate_impair::{Fate, Impairments, Path};

/// Both directions. Packets of end 0 go to end 1, and the other way around.
pub struct Network {
    settings: Impairments,
    paths: [Path; 2],
    /// Bytes a second of the narrow place; 0 where there is none.
    rate: u64,
    /// When it has sent what is in its queue.
    free_ns: [u64; 2],
    /// By where they arrive: when each does, which it is, and the packet.
    under_way: [BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>; 2],
    /// Packets that were sent.
    pub packets: u64,
}

impl Network {
    pub fn new(settings: &str, rate: u64) -> Self {
        Self {
            settings: Impairments::parse(settings).expect("settings"),
            paths: [Path::new(1, 0), Path::new(1, 1)],
            rate,
            free_ns: [0; 2],
            under_way: Default::default(),
            packets: 0,
        }
    }

    /// Puts a packet of that end on its way.
    pub fn put(&mut self, now_ns: u64, from: usize, packet: Vec<u8>) {
        self.packets += 1;
        let Some(waits_ns) = self.pass_narrow_place(now_ns, from, packet.len() as u64) else {
            return;
        };
        let later_ns = match self.settings.outgoing(&mut self.paths[from], now_ns, packet.len()) {
            Fate::Lose => return,
            Fate::Delay(later_ns) => later_ns,
            Fate::Pass | Fate::Hold | Fate::Twice => 0,
        };
        let at_ns = now_ns + waits_ns + later_ns;
        self.under_way[1 - from].push(Reverse((at_ns, self.packets, packet)));
    }

    /// The next packet that has arrived at that end by then.
    pub fn take(&mut self, to: usize, now_ns: u64) -> Option<Vec<u8>> {
        let Reverse((at_ns, ..)) = self.under_way[to].peek()?;
        if *at_ns > now_ns {
            return None;
        }
        self.under_way[to].pop().map(|Reverse((.., packet))| packet)
    }

    /// When the next one arrives, wherever.
    pub fn due_ns(&self) -> u64 {
        let next = self.under_way.iter().filter_map(BinaryHeap::peek);
        next.map(|Reverse((at_ns, ..))| *at_ns).min().unwrap_or(u64::MAX)
    }

    /// How long a packet waits there; `None` where the queue is full.
    fn pass_narrow_place(&mut self, now_ns: u64, from: usize, bytes: u64) -> Option<u64> {
        if self.rate == 0 {
            return Some(0);
        }
        let waits_ns = self.free_ns[from].saturating_sub(now_ns);
        if waits_ns > QUEUE_NS {
            return None;
        }
        let takes_ns = bytes * 1_000_000_000 / self.rate;
        self.free_ns[from] = now_ns + waits_ns + takes_ns;
        Some(waits_ns + takes_ns)
    }
}

/// What the queue of the narrow place holds.
const QUEUE_NS: u64 = 100_000_000;
