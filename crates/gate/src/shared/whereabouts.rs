//! Which member of a cluster has which player: what this gateway's workers have, and what the other
//! members have told of theirs.
//!
//! A worker asks about datagrams of sources that it does not know, and enters or leaves an address
//! when a player comes or goes. The thread of the cluster's members takes what has changed, tells
//! it to the others, and writes down what they tell. No payload of a session that is here asks.
//!
//! What is known may be old. It decides where a datagram is looked at next, never what becomes of
//! it there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::ids::WorkerId;
use crate::store::area::Area;
use crate::store::hash::HashKey;
use crate::store::table::Address;

/// Another member of the cluster, by a number that it has here while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u8);

/// Shared by all workers and the thread of the cluster's members.
pub struct Whereabouts {
    key: HashKey,
    own: [Mutex<Own>; SHARDS],
    /// By a hash of the address: two addresses of one hash cost a datagram a way, no more.
    others: [RwLock<HashMap<u64, MemberId>>; SHARDS],
    others_count: AtomicUsize,
    /// For each bucket of addresses without ports, a bit for each member that has players there.
    homes: Box<[AtomicU64]>,
    /// How many players each member has in each bucket.
    home_counts: Mutex<[Box<[u32]>; MEMBERS_MAX]>,
}

/// Players of this gateway, those in a handshake included.
#[derive(Default)]
struct Own {
    held: HashMap<Address, Held>,
    /// Each of these is marked as changed where it is held.
    changed: Vec<Address>,
}

struct Held {
    /// The worker that entered it last.
    worker: WorkerId,
    /// How often it was entered and not left. What is held no more stays until that was taken.
    times: u32,
    is_changed: bool,
}

impl Whereabouts {
    /// Of a gateway that has nobody and knows of nobody.
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            own: std::array::from_fn(|_| Mutex::default()),
            others: std::array::from_fn(|_| RwLock::default()),
            others_count: AtomicUsize::new(0),
            homes: std::iter::repeat_with(AtomicU64::default).take(BUCKETS).collect(),
            home_counts: Mutex::new(std::array::from_fn(|_| Box::default())),
        }
    }

    /// A worker has a player at an address, or one in a handshake.
    pub(crate) fn enter(&self, address: &Address, worker: WorkerId) {
        let mut own = lock(&self.own[shard(self.hash(address))]);
        let Own { held, changed } = &mut *own;
        let fresh = Held { worker, times: 0, is_changed: false };
        let it = held.entry(*address).or_insert(fresh);
        (it.worker, it.times) = (worker, it.times + 1);
        if it.times == 1 && !it.is_changed {
            it.is_changed = true;
            changed.push(*address);
        }
    }

    /// It has not any more. Said once for each time that it was entered.
    pub(crate) fn leave(&self, address: &Address) {
        let mut own = lock(&self.own[shard(self.hash(address))]);
        let Own { held, changed } = &mut *own;
        let Some(it) = held.get_mut(address) else { return };
        it.times = it.times.saturating_sub(1);
        if it.times == 0 && !it.is_changed {
            it.is_changed = true;
            changed.push(*address);
        }
    }

    /// The other member that is known to have a player at an address.
    #[inline]
    pub(crate) fn find(&self, address: &Address) -> Option<MemberId> {
        if self.others_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let hash = self.hash(address);
        let shard = self.others[shard(hash)].read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&hash).copied()
    }

    /// The other members that may have players at that address with any port.
    pub(crate) fn homes_of(&self, address: &Address) -> impl Iterator<Item = MemberId> + use<> {
        let bits = if self.others_count.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.homes[self.bucket(address)].load(Ordering::Relaxed)
        };
        (0..MEMBERS_MAX as u8).filter(move |it| bits >> it & 1 == 1).map(MemberId)
    }

    /// The worker that has a player at an address.
    pub fn worker_of(&self, address: &Address) -> Option<WorkerId> {
        let own = lock(&self.own[shard(self.hash(address))]);
        own.held.get(address).filter(|it| it.times > 0).map(|it| it.worker)
    }

    /// Takes some of what has changed since it was last asked: addresses, and whether each is held.
    /// Where more has changed than fits, the rest is for the next time.
    pub fn take_changes(&self, max: usize, mut handle: impl FnMut(Address, bool)) {
        let mut left = max;
        for own in &self.own {
            let Own { held, changed } = &mut *lock(own);
            let taken = left.min(changed.len());
            left -= taken;
            for address in changed.drain(..taken) {
                let Some(it) = held.get_mut(&address) else { continue };
                it.is_changed = false;
                let is_held = it.times > 0;
                if !is_held {
                    held.remove(&address);
                }
                handle(address, is_held);
            }
        }
    }

    /// All addresses that are held in one of [`PARTS`] parts: for a member that knows nothing yet.
    /// What changes meanwhile is among the changes.
    pub fn own_part(&self, part: usize) -> Vec<Address> {
        let own = lock(&self.own[part]);
        own.held.iter().filter(|(_, it)| it.times > 0).map(|(address, _)| *address).collect()
    }

    /// Another member says that it has a player at an address. Who says so last is believed.
    pub fn learn(&self, address: &Address, member: MemberId) {
        let hash = self.hash(address);
        let before = write(&self.others[shard(hash)]).insert(hash, member);
        if before == Some(member) {
            return;
        }
        match before {
            Some(before) => self.count(address, before, false),
            None => drop(self.others_count.fetch_add(1, Ordering::Relaxed)),
        }
        self.count(address, member, true);
    }

    /// It says that it has not any more.
    pub fn unlearn(&self, address: &Address, member: MemberId) {
        let hash = self.hash(address);
        let mut others = write(&self.others[shard(hash)]);
        if others.get(&hash) == Some(&member) {
            others.remove(&hash);
            drop(others);
            self.others_count.fetch_sub(1, Ordering::Relaxed);
            self.count(address, member, false);
        }
    }

    /// A member is not connected any more: nothing goes to it.
    pub fn forget(&self, member: MemberId) {
        for others in &self.others {
            let mut others = write(others);
            let before = others.len();
            others.retain(|_, it| *it != member);
            self.others_count.fetch_sub(before - others.len(), Ordering::Relaxed);
        }
        let mut counts = lock(&self.home_counts);
        counts[usize::from(member.0)] = Box::default();
        for home in &self.homes {
            home.fetch_and(!(1 << member.0), Ordering::Relaxed);
        }
    }

    /// How many players other members have, as far as they have told.
    pub fn others_count(&self) -> usize {
        self.others_count.load(Ordering::Relaxed)
    }

    fn count(&self, address: &Address, MemberId(member): MemberId, is_more: bool) {
        let bucket = self.bucket(address);
        let counts = &mut lock(&self.home_counts)[usize::from(member)];
        if counts.is_empty() {
            *counts = vec![0; BUCKETS].into();
        }
        let count = &mut counts[bucket];
        *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        match *count {
            0 => self.homes[bucket].fetch_and(!(1 << member), Ordering::Relaxed),
            _ => self.homes[bucket].fetch_or(1 << member, Ordering::Relaxed),
        };
    }

    fn hash(&self, address: &Address) -> u64 {
        address.wide_hash(self.key)
    }

    fn bucket(&self, address: &Address) -> usize {
        Area::address(address.listener, &address.endpoint).hash(self.key) as usize % BUCKETS
    }
}

const fn shard(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(of: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    of.write().unwrap_or_else(PoisonError::into_inner)
}

/// A cluster has at most so many other members.
pub const MEMBERS_MAX: usize = 64;

/// So many parts has what is held here.
pub const PARTS: usize = SHARDS;

const SHARDS: usize = 64;
const BUCKETS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerId;
    use ringgate_batch::Endpoint;

    const B: MemberId = MemberId(1);
    const C: MemberId = MemberId(63);

    fn none() -> Whereabouts {
        Whereabouts::new(HashKey::new([1, 2]))
    }

    fn at(ip: u8, port: u16) -> Address {
        Address { listener: ListenerId(0), endpoint: Endpoint::v4([192, 0, 2, ip], port) }
    }

    fn changes(of: &Whereabouts) -> Vec<(u16, bool)> {
        let mut all = Vec::new();
        of.take_changes(100, |address, is_held| all.push((address.endpoint.port(), is_held)));
        all.sort_unstable();
        all
    }

    fn homes(of: &Whereabouts, ip: u8) -> Vec<MemberId> {
        of.homes_of(&at(ip, 9)).collect()
    }

    #[test]
    fn what_comes_and_goes_between_two_looks_is_told_once() {
        let whereabouts = none();
        whereabouts.enter(&at(1, 1), WorkerId(3));
        whereabouts.enter(&at(1, 2), WorkerId(4));
        whereabouts.leave(&at(1, 2));
        whereabouts.leave(&at(1, 3));
        assert_eq!(whereabouts.worker_of(&at(1, 1)), Some(WorkerId(3)));
        assert_eq!(whereabouts.worker_of(&at(1, 2)), None);
        assert_eq!(changes(&whereabouts), [(1, true), (2, false)]);
        assert_eq!(changes(&whereabouts), []);
        // Its handshake ends after its session has begun.
        whereabouts.enter(&at(1, 1), WorkerId(3));
        whereabouts.leave(&at(1, 1));
        assert_eq!(changes(&whereabouts), []);
        whereabouts.leave(&at(1, 1));
        whereabouts.enter(&at(1, 1), WorkerId(5));
        assert_eq!(changes(&whereabouts), [(1, true)]);
        assert_eq!(whereabouts.worker_of(&at(1, 1)), Some(WorkerId(5)));
    }

    #[test]
    fn changes_are_taken_in_portions_and_whoever_is_new_is_told_of_all() {
        let whereabouts = none();
        for port in 0..1000 {
            whereabouts.enter(&at(1, port), WorkerId(0));
        }
        let mut taken = 0;
        for expected in [600, 1000, 1000] {
            whereabouts.take_changes(600, |_, _| taken += 1);
            assert_eq!(taken, expected);
        }
        let parts = (0..PARTS).map(|part| whereabouts.own_part(part).len());
        assert_eq!(parts.sum::<usize>(), 1000);
    }

    #[test]
    fn the_member_that_has_said_so_last_has_a_player() {
        let whereabouts = none();
        assert_eq!((whereabouts.find(&at(1, 1)), homes(&whereabouts, 1)), (None, vec![]));
        for address in [at(1, 1), at(1, 2), at(2, 1)] {
            whereabouts.learn(&address, B);
            whereabouts.learn(&address, B);
        }
        whereabouts.learn(&at(1, 1), C);
        assert_eq!(whereabouts.find(&at(1, 1)), Some(C));
        assert_eq!(whereabouts.find(&at(1, 2)), Some(B));
        assert_eq!((homes(&whereabouts, 1), homes(&whereabouts, 2)), (vec![B, C], vec![B]));
        // The one before says so late.
        whereabouts.unlearn(&at(1, 1), B);
        assert_eq!(whereabouts.find(&at(1, 1)), Some(C));
        whereabouts.unlearn(&at(1, 2), B);
        assert_eq!((homes(&whereabouts, 1), whereabouts.others_count()), (vec![C], 2));
    }

    #[test]
    fn a_member_that_is_gone_has_nobody() {
        let whereabouts = none();
        whereabouts.learn(&at(1, 1), B);
        whereabouts.learn(&at(1, 2), C);
        whereabouts.forget(B);
        assert_eq!((whereabouts.find(&at(1, 1)), whereabouts.find(&at(1, 2))), (None, Some(C)));
        assert_eq!((homes(&whereabouts, 1), whereabouts.others_count()), (vec![C], 1));
        // Its number is another's.
        whereabouts.learn(&at(1, 3), B);
        whereabouts.unlearn(&at(1, 3), B);
        assert_eq!(homes(&whereabouts, 1), [C]);
    }
}
