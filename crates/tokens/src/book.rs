//! The slots that this service may promise, and those that it has promised: for each backend a
//! *block* that was leased, and the *pending* tokens in it, whose players may still come.
//!
//! A pending slot leaves the book when no player can come with its token any more. Whether one has
//! come cannot be seen here, only that the backend has more players: so what leaves the book leaves
//! the block too, and slots are leased again on the grounds of what the backend tells
//! (`ledger`). Until then a player who has come counts twice, which never overfills a server.

use std::collections::{HashMap, VecDeque};

use ringgate_fleet::keyspace::Name;

/// All blocks.
#[derive(Debug, Default)]
pub struct Book {
    held: HashMap<Name, Held>,
}

/// The slots at one backend.
#[derive(Debug, Default)]
pub struct Held {
    /// How many this service may promise, those included that it has.
    pub granted: u32,
    /// When the promises end, in seconds since 1970, the soonest first.
    pending: VecDeque<u64>,
    /// How large the block is in etcd.
    pub written: u32,
    /// The revision of our own last decision.
    pub decided_at: i64,
    /// How many players the backend had then, and which start of it.
    pub used_then: u32,
    /// Which start of the backend that was.
    pub instance: String,
    /// Whether nobody else held slots there then.
    pub alone_then: bool,
    /// Promises that have ended since then: their players may be among those who have come.
    pub ended_since: u32,
    /// Nothing could be leased; until then there is no sense in asking again.
    pub dry_until_ms: u64,
    /// When something was promised last.
    pub touched_ms: u64,
    /// A decision is under way.
    pub is_leasing: bool,
}

impl Held {
    /// Slots that may be promised now: none while a decision is under way, which counts promises.
    pub fn free(&self) -> u32 {
        if self.is_leasing { 0 } else { self.granted.saturating_sub(self.pending()) }
    }

    /// Slots that are promised.
    pub fn pending(&self) -> u32 {
        self.pending.len() as u32
    }

    /// Forgets promises that nobody can claim any more, with their slots.
    fn expire(&mut self, now_s: u64) {
        while self.pending.front().is_some_and(|until| *until <= now_s) {
            self.pending.pop_front();
            self.granted = self.granted.saturating_sub(1);
            self.ended_since += 1;
        }
    }

    /// Forgets so many promises: their players are there. Those go that would end the soonest,
    /// whoever has come, so the book never forgets a slot that is promised for longer.
    pub fn settle(&mut self, count: u32) {
        for _ in 0..count.min(self.pending()) {
            self.pending.pop_front();
            self.granted = self.granted.saturating_sub(1);
        }
    }

    /// Promises so many slots.
    fn promise(&mut self, count: u32, until_s: u64) {
        let at = self.pending.partition_point(|it| *it <= until_s);
        for _ in 0..count {
            self.pending.insert(at, until_s);
        }
    }
}

impl Book {
    /// What is held at a backend.
    pub fn held(&self, backend: &Name) -> Option<&Held> {
        self.held.get(backend)
    }

    /// The same, made where it is missing, without what has expired.
    pub fn open(&mut self, backend: &Name, now_s: u64) -> &mut Held {
        if !self.held.contains_key(backend) {
            self.held.insert(backend.clone(), Held::default());
        }
        let held = self.held.get_mut(backend).expect("it was made");
        held.expire(now_s);
        held
    }

    /// Promises slots of the block. Whether there were enough.
    pub fn take(&mut self, backend: &Name, count: u32, until_s: u64, now: Now) -> bool {
        let held = self.open(backend, now.unix_s);
        let has = held.free() >= count;
        if has {
            held.promise(count, until_s);
            held.touched_ms = now.ms;
        }
        has
    }

    /// Promises slots without a block: etcd is away, and the operator wants tokens all the same.
    pub fn take_unleased(&mut self, backend: &Name, count: u32, until_s: u64, now: Now) {
        let held = self.open(backend, now.unix_s);
        held.promise(count, until_s);
        held.granted = held.granted.max(held.pending());
        held.touched_ms = now.ms;
    }

    /// The lease of all blocks has ended: nothing is held any more, and promises still are.
    pub fn lose_blocks(&mut self) {
        for held in self.held.values_mut() {
            (held.granted, held.written, held.decided_at) = (held.pending(), 0, 0);
        }
    }

    /// Blocks that are larger than they have to be and were not used for a while: so many.
    pub fn idle(&mut self, now: Now, idle_ms: u64, count_max: usize) -> Vec<Name> {
        let mut idle = Vec::new();
        for (name, held) in &mut self.held {
            held.expire(now.unix_s);
            let is_idle = now.ms.saturating_sub(held.touched_ms) >= idle_ms && !held.is_leasing;
            if is_idle && held.written > held.pending() && idle.len() < count_max {
                idle.push(name.clone());
            }
        }
        self.held.retain(|_, it| it.granted > 0 || it.written > 0 || it.is_leasing);
        idle
    }

    /// Slots in blocks, and those of them that are promised.
    pub fn sums(&self) -> (u64, u64) {
        let sum = |of: fn(&Held) -> u32| self.held.values().map(|it| u64::from(of(it))).sum();
        (sum(|it| it.granted), sum(Held::pending))
    }
}

/// A moment, by the two clocks that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970: what tokens go by.
    pub unix_s: u64,
    /// Milliseconds of a clock that is never set: what waits go by.
    pub ms: u64,
}
