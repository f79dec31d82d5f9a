//! Workers that wake up and fall asleep, and a world of sessions by seed.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use super::{Awake, FULL_FROM, QUIET_NS};
use ringgate_batch::spread::{BUCKETS, Bucket, KERNEL, SPREAD_WORDS, Spread, SpreadKey};
use ringgate_core::splitmix;

const LOOK_NS: u64 = 100_000_000;

/// So many looks at the same, from a moment on.
fn look(awake: &mut Awake, now_ns: &mut u64, looks: u64, busy: &[f64]) {
    for _ in 0..looks {
        *now_ns += LOOK_NS;
        awake.look(*now_ns, busy, true);
    }
}

#[test]
fn all_begin_awake_and_those_that_are_not_needed_fall_asleep_after_a_while() {
    let (mut awake, mut now_ns) = (Awake::new(4, 4), 0);
    assert_eq!((awake.count(), awake.takers()), (4, vec![0, 1, 2, 3]));
    look(&mut awake, &mut now_ns, QUIET_NS / LOOK_NS, &[0.1, 0.1, 0.05, 0.05]);
    assert_eq!(awake.count(), 4, "not yet");
    look(&mut awake, &mut now_ns, 1, &[0.1, 0.1, 0.05, 0.05]);
    assert_eq!((awake.count(), awake.takers()), (1, vec![0]));
}

#[test]
fn no_more_fall_asleep_than_the_busiest_moment_of_the_quiet_allows() {
    let (mut awake, mut now_ns) = (Awake::new(4, 4), 0);
    look(&mut awake, &mut now_ns, 50, &[0.05; 4]);
    look(&mut awake, &mut now_ns, 10, &[0.2; 4]);
    look(&mut awake, &mut now_ns, 50, &[0.05; 4]);
    assert_eq!(awake.count(), 3);
}

#[test]
fn who_is_full_gets_nobody_and_another_is_woken_when_all_are() {
    let (mut awake, mut now_ns) = (Awake::new(3, 3), 0);
    look(&mut awake, &mut now_ns, 200, &[0.1, 0.0, 0.0]);
    assert_eq!(awake.takers(), [0]);
    look(&mut awake, &mut now_ns, 5, &[0.45, 0.0, 0.0]);
    assert_eq!(awake.takers(), [0], "there is room");
    look(&mut awake, &mut now_ns, 5, &[0.7, 0.0, 0.0]);
    assert_eq!((awake.count(), awake.takers(), awake.among()), (2, vec![1], 1));
    look(&mut awake, &mut now_ns, 5, &[0.45, 0.2, 0.0]);
    assert_eq!(awake.takers(), [1], "it was full a moment ago");
    look(&mut awake, &mut now_ns, 5, &[0.35, 0.2, 0.0]);
    assert_eq!(awake.takers(), [0, 1]);
    look(&mut awake, &mut now_ns, 20, &[0.9, 0.9, 0.9]);
    assert_eq!((awake.count(), awake.takers(), awake.among()), (3, vec![0, 1, 2], 3));
}

/// What the kernel, workers and players do, by seed.
struct World {
    random: u64,
    spread: Spread,
    awake: Awake,
    /// The bucket of each session, its worker, and how much of a core it takes.
    sessions: HashMap<u64, (usize, u16, f64)>,
    /// Datagrams of newcomers that wait in a worker's socket.
    waiting: Vec<(usize, u16)>,
    now_ns: u64,
    next: u64,
    refused: u64,
}

impl World {
    fn new(seed: u64, workers: u16) -> Self {
        let words: Vec<_> = (0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect();
        // Small numbers would have all sources in one bucket.
        let key = SpreadKey::new([(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15); 6]);
        let spread = Spread::new(Box::new(words), key, workers);
        let (awake, random) = (Awake::new(workers, workers.into()), seed);
        let (sessions, waiting) = (HashMap::new(), Vec::new());
        let mut world =
            Self { random, spread, awake, sessions, waiting, now_ns: 0, next: 0, refused: 0 };
        // Players of a process before this one, among whom the kernel has chosen.
        for bucket in 0..32 {
            world.spread.set(bucket, Bucket { worker: KERNEL, sessions: 2 });
            for _ in 0..2 {
                world.next += 1;
                world.sessions.insert(world.next, (bucket, world.route(bucket), 0.001));
            }
        }
        world.spread.give_empty(&world.awake.takers());
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        splitmix::next(&mut self.random) % n
    }

    /// The worker whose socket the kernel puts a datagram of that bucket in.
    fn route(&self, bucket: usize) -> u16 {
        match self.spread.bucket(bucket).worker {
            KERNEL => (bucket as u16).wrapping_mul(7) % self.spread.workers(),
            worker => worker,
        }
    }

    fn busy(&self) -> Vec<f64> {
        let mut busy = vec![0.0; self.spread.workers().into()];
        for (_, worker, load) in self.sessions.values() {
            busy[usize::from(*worker)] += load;
        }
        busy.iter().map(|it| it.min(1.0)).collect()
    }

    /// A worker takes the next datagram of a newcomer.
    fn take_one(&mut self, load: f64) {
        let at = self.below(self.waiting.len() as u64) as usize;
        let (bucket, worker) = self.waiting.swap_remove(at);
        if self.spread.begin(bucket, worker) {
            self.next += 1;
            self.sessions.insert(self.next, (bucket, worker, load));
        } else {
            self.refused += 1;
        }
    }

    fn end_one(&mut self) {
        let at = self.below(self.sessions.len().max(1) as u64) as usize;
        let mut keys: Vec<_> = self.sessions.keys().copied().collect();
        keys.sort_unstable();
        if let Some((bucket, ..)) = keys.get(at).and_then(|key| self.sessions.remove(key)) {
            self.spread.leave(bucket);
        }
    }

    /// Who decides looks. No worker that is full takes anybody while another could.
    fn look(&mut self) {
        self.now_ns += LOOK_NS;
        let busy = self.busy();
        self.awake.look(self.now_ns, &busy, true);
        let takers = self.awake.takers();
        self.spread.give_empty(&takers);
        let is_full = |worker: &u16| self.awake.workers[usize::from(*worker)].busy > FULL_FROM;
        if takers.iter().any(is_full) {
            assert_eq!(takers.len(), usize::from(self.spread.workers()), "{busy:?}");
        }
    }

    fn check(&self) {
        let mut counts = vec![0; BUCKETS];
        for (bucket, worker, _) in self.sessions.values() {
            assert_eq!(self.route(*bucket), *worker, "a session's datagrams come to its worker");
            counts[*bucket] += 1;
        }
        let all = counts.iter().enumerate();
        all.for_each(|(at, count)| assert_eq!(self.spread.bucket(at).sessions, *count));
    }
}

#[test]
fn every_session_is_where_its_datagrams_come_to_whoever_is_awake() {
    let mut refused = 0;
    for seed in 0..6 {
        let mut world = World::new(seed, 2 + (seed % 4) as u16);
        // As many as come while it is busy, and few while it is not.
        for (rounds, newcomers, load) in
            [(40, 8, 0.002), (30, 40, 0.01), (150, 1, 0.001), (20, 60, 0.008), (350, 0, 0.001)]
        {
            for _ in 0..rounds {
                for _ in 0..newcomers {
                    // Few buckets are asked for, so that many share one.
                    let bucket = world.below(64) as usize;
                    let worker = world.route(bucket);
                    world.waiting.push((bucket, worker));
                }
                // Some of them wait until somebody else has their bucket.
                while world.waiting.len() > 30 {
                    world.take_one(load);
                }
                let leaving = if newcomers < 5 { 20 } else { 3 };
                (0..leaving).for_each(|_| world.end_one());
                world.look();
            }
            world.check();
        }
        assert_eq!((world.sessions.len(), world.awake.count()), (0, 1), "seed {seed}");
        let rest = (0..BUCKETS).filter(|at| world.spread.bucket(*at).worker != 0).count();
        assert_eq!(rest, 0, "nobody is left, so one worker has all");
        refused += world.refused;
    }
    assert!(refused > 0, "no datagram has waited while its bucket was given away");
}
