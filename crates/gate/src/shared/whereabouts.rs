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
use std::collections::hash_map;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::ids::{MemberId, WorkerId};
use crate::store::admission::{Bucket, Rate};
use crate::store::hash::HashKey;
use crate::store::table::{Address, Told};
use ringgate_cluster::{News, NoRoom};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::MEMBERS_MAX;
use ringgate_core::sync::lock;

/// Some of the other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members(u64);

/// Shared by all workers and the thread of the cluster's members.
pub struct Whereabouts {
    key: HashKey,
    own: [Mutex<Own>; SHARDS],
    /// Something has changed of it since that was last taken.
    has_news: AtomicBool,
    /// By a hash of the address: two addresses of one hash cost a datagram a way, no more.
    others: [Mutex<ByHash<u64, Other>>; SHARDS],
    others_count: AtomicUsize,
    others_max: usize,
    /// Who stands by for players of others, by the same hash.
    stands: [Mutex<ByHash<u64, Other>>; SHARDS],
    stands_count: AtomicUsize,
    /// For how many each member does.
    stands_counts: [AtomicUsize; MEMBERS_MAX],
    /// A bit for each member that is connected and does not answer.
    silent: AtomicU64,
    /// For each bucket of addresses without ports, a bit for each member that has players there, or
    /// stands by for some.
    homes: Box<[AtomicU64]>,
    /// How many players these are of each member in each bucket.
    home_counts: Mutex<[ByHash<u64, u32>; MEMBERS_MAX]>,
    /// How many players each member has.
    counts: [AtomicUsize; MEMBERS_MAX],
}

/// Enters and leaves for a worker what its tables have.
pub(crate) struct Teller(Arc<Whereabouts>, WorkerId);

/// A map whose keys say their hash themselves: it is a keyed one already.
type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<Said>>;

/// An address, and its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hashed {
    hash: u64,
    address: Address,
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The hash that a key says.
#[derive(Default)]
struct Said(u64);

impl Hasher for Said {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a hash is a number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Players of this gateway, those in a handshake included.
#[derive(Default)]
struct Own {
    held: ByHash<Hashed, Held>,
    /// Each of these is marked as changed where it is held.
    changed: Vec<Hashed>,
    /// Of each of these something was accepted.
    heard: Vec<Hashed>,
}

struct Held {
    /// The worker that entered it last.
    worker: WorkerId,
    /// How often it was entered and not left. What is held no more stays until that was taken.
    times: u32,
    is_changed: bool,
    /// It is for members to know.
    is_public: bool,
    /// They were told of it.
    is_told: bool,
    /// Datagrams that members have forwarded and that were new, since that was last taken.
    accepted: u32,
    /// By which members they came: a bit for each.
    heard_by: u64,
    /// What other workers may hand to that one.
    budget: Bucket,
}

impl Teller {
    pub(crate) fn of(whereabouts: &Arc<Whereabouts>, worker: WorkerId) -> Arc<dyn Told> {
        Arc::new(Self(Arc::clone(whereabouts), worker))
    }
}

impl Told for Teller {
    fn enter(&self, address: &Address) {
        self.0.enter(address, self.1);
    }

    fn enter_unheard(&self, address: &Address) {
        self.0.enter_unheard(address, self.1);
    }

    fn announce(&self, address: &Address) {
        self.0.announce(address);
    }

    fn leave(&self, address: &Address) {
        self.0.leave(address);
    }
}

impl Own {
    /// An address has come or gone. Where nobody takes what has changed, that has an end.
    fn note_change(&mut self, at: &Hashed) {
        let Some(it) = self.held.get_mut(at).filter(|it| !it.is_changed) else { return };
        if self.changed.len() < CHANGES_MAX {
            it.is_changed = true;
            self.changed.push(*at);
        } else if it.times == 0 {
            self.held.remove(at);
        }
    }
}

impl Held {
    fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            times: 0,
            is_changed: false,
            is_public: false,
            is_told: false,
            accepted: 0,
            heard_by: 0,
            budget: Bucket::full(0),
        }
    }
}

/// A player of another member.
struct Other {
    /// Who has said so last.
    member: MemberId,
    /// Who had said so before, and not otherwise since.
    before: Option<MemberId>,
    /// What it may be sent of the player's datagrams.
    budget: Bucket,
    /// Datagrams a second that it has accepted, and when it has said so.
    accepted: u32,
    said_at_ns: u64,
}

impl Whereabouts {
    /// Of a gateway that has nobody and knows of nobody, and that may know of so many.
    pub(crate) fn new(key: HashKey, others_max: usize) -> Self {
        let buckets = (2 * others_max).next_power_of_two().clamp(BUCKETS_MIN, BUCKETS_MAX);
        Self {
            key,
            own: std::array::from_fn(|_| Mutex::default()),
            has_news: AtomicBool::new(false),
            others: std::array::from_fn(|_| Mutex::default()),
            others_count: AtomicUsize::new(0),
            others_max,
            stands: std::array::from_fn(|_| Mutex::default()),
            stands_count: AtomicUsize::new(0),
            stands_counts: std::array::from_fn(|_| AtomicUsize::new(0)),
            silent: AtomicU64::new(0),
            homes: std::iter::repeat_with(AtomicU64::default).take(buckets).collect(),
            home_counts: Mutex::new(std::array::from_fn(|_| ByHash::default())),
            counts: std::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// A worker has a player at an address, or one in a handshake.
    pub(crate) fn enter(&self, address: &Address, worker: WorkerId) {
        self.hold(address, worker, true);
    }

    /// A worker has somebody at an address of whom members do not hear yet: anybody can write any
    /// address on a datagram.
    pub(crate) fn enter_unheard(&self, address: &Address, worker: WorkerId) {
        self.hold(address, worker, false);
    }

    fn hold(&self, address: &Address, worker: WorkerId, is_public: bool) {
        if address.endpoint.port() == NOWHERE {
            return;
        }
        let (at, mut own) = self.own_of(address);
        let it = own.held.entry(at).or_insert_with(|| Held::new(worker));
        (it.worker, it.times) = (worker, it.times + 1);
        if is_public {
            // Also where it was here before: of two members that have said so, the one is believed
            // that has a session.
            self.publish(&at, &mut own);
        }
    }

    /// Members are to hear of who is at an address.
    pub(crate) fn announce(&self, address: &Address) {
        let (at, mut own) = self.own_of(address);
        self.publish(&at, &mut own);
    }

    fn publish(&self, at: &Hashed, own: &mut Own) {
        let Some(it) = own.held.get_mut(at).filter(|it| it.times > 0) else { return };
        it.is_public = true;
        own.note_change(at);
        self.has_news.store(true, Ordering::Release);
    }

    /// It has not any more. Said once for each time that it was entered.
    pub(crate) fn leave(&self, address: &Address) {
        let (at, mut own) = self.own_of(address);
        let Some(it) = own.held.get_mut(&at) else { return };
        it.times = it.times.saturating_sub(1);
        if it.times > 0 {
            return;
        }
        it.is_public = false;
        if it.is_told {
            own.note_change(&at);
            self.has_news.store(true, Ordering::Release);
        } else if !it.is_changed {
            own.held.remove(&at);
        }
    }

    /// The other member that is known to have a player at an address, or to stand by for whoever
    /// has had it and does not answer.
    #[inline]
    pub fn find(&self, address: &Address) -> Option<MemberId> {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        if count(&self.others_count) == 0 && count(&self.stands_count) == 0 {
            return None;
        }
        self.with_way(address, |way| way.member)
    }

    /// The way of a player's datagrams.
    fn with_way<T>(&self, address: &Address, with: impl FnOnce(&mut Other) -> T) -> Option<T> {
        let hash = self.hash(address);
        let answers = |it: &&mut Other| !self.is_silent(it.member);
        let mut others = lock(&self.others[shard(hash)]);
        let owner = others.get_mut(&hash);
        if owner.as_ref().is_some_and(answers) {
            return owner.map(with);
        }
        let mut stands = lock(&self.stands[shard(hash)]);
        stands.get_mut(&hash).filter(answers).or(owner).map(with)
    }

    /// The member that is known to have a player at an address, or to stand by for it, and that
    /// answers.
    pub(crate) fn find_answering(&self, address: &Address) -> Option<MemberId> {
        self.find(address).filter(|it| !self.is_silent(*it))
    }

    /// Whether a member says that it has a player at an address.
    pub(crate) fn is_at_member(&self, address: &Address) -> bool {
        let hash = self.hash(address);
        lock(&self.others[shard(hash)]).contains_key(&hash)
    }

    fn is_silent(&self, MemberId(member): MemberId) -> bool {
        self.silent.load(Ordering::Relaxed) >> member & 1 == 1
    }

    /// Whether a datagram from there may go to the member that has it. An attacker who writes a
    /// player's address on datagrams has as much of the way to its member as that player, and
    /// nothing of any other's.
    pub fn pay(&self, address: &Address, now_ns: u64) -> Result<(), DropReason> {
        let is_paid = self.with_way(address, |way| {
            let is_old = now_ns.saturating_sub(way.said_at_ns) > ACCEPTED_OLD_NS;
            let accepted = if is_old { 0 } else { way.accepted };
            let rate = accepted.saturating_mul(2).clamp(FORWARDS_MIN, FORWARDS_MAX);
            way.budget.take(Rate::new(rate, 1), 1, now_ns)
        });
        match is_paid {
            Some(true) => Ok(()),
            Some(false) => Err(DropReason::ForwardLimited),
            None => Err(DropReason::UnknownSource),
        }
    }

    /// The other members that may have players at that address with any port, or may go on with
    /// them.
    pub(crate) fn homes_of(&self, address: &Address) -> Members {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        if of(&self.others_count) == 0 && of(&self.stands_count) == 0 {
            return Members::NONE;
        }
        Members(self.homes[self.bucket(address)].load(Ordering::Relaxed))
    }

    /// The worker that has a player at an address.
    pub fn worker_of(&self, address: &Address) -> Option<WorkerId> {
        let (at, own) = self.own_of(address);
        own.held.get(&at).filter(|it| it.times > 0).map(|it| it.worker)
    }

    /// Whether something has changed since that was last taken: the thread of members is to look.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// Whether one more datagram from there may go from another worker to the one that has it: it
    /// may be another's that has written a player's address on it.
    pub(crate) fn pay_own(&self, address: &Address, now_ns: u64) -> Result<(), DropReason> {
        let (at, mut own) = self.own_of(address);
        let it = own.held.get_mut(&at).ok_or(DropReason::UnknownSource)?;
        let is_paid = it.budget.take(Rate::new(OWN_FORWARDS, 1), 1, now_ns);
        if is_paid { Ok(()) } else { Err(DropReason::ForwardLimited) }
    }

    /// Takes some of what has changed since it was last asked: addresses, and what has become of
    /// each. What came and went meanwhile is not told. Where more has changed than fits, the rest
    /// is for the next time. Returns whether that is so.
    pub fn take_changes(&self, max: usize, mut handle: impl FnMut(Address, News)) -> bool {
        if !take(&self.has_news) {
            return false;
        }
        let mut left = max;
        for own in &self.own {
            let Own { held, changed, .. } = &mut *lock(own);
            let taken = left.min(changed.len());
            left -= taken;
            for at in changed.drain(..taken) {
                let Some(it) = held.get_mut(&at) else { continue };
                it.is_changed = false;
                let was_told = std::mem::replace(&mut it.is_told, it.is_public);
                let news = match (it.is_public, was_told) {
                    (true, false) => Some(News::Came),
                    (true, true) => Some(News::Still),
                    (false, true) => Some(News::Left),
                    (false, false) => None,
                };
                if it.times == 0 {
                    held.remove(&at);
                }
                if let Some(news) = news {
                    handle(at.address, news);
                }
            }
        }
        if left == 0 {
            self.has_news.store(true, Ordering::Release);
        }
        left == 0
    }

    /// All addresses that are held in one of [`PARTS`] parts: for a member that knows nothing yet.
    /// What changes meanwhile is among the changes.
    pub fn own_part(&self, part: usize) -> Vec<Address> {
        let mut own = lock(&self.own[part]);
        let told = own.held.iter_mut().filter(|(_, it)| it.is_public).map(|(at, it)| {
            it.is_told = true;
            at.address
        });
        told.collect()
    }

    /// A datagram that a member has forwarded was new, and not one that was recorded before.
    pub(crate) fn note_accepted(&self, address: &Address, by: MemberId) {
        let (at, mut own) = self.own_of(address);
        let Own { held, heard, .. } = &mut *own;
        let Some(it) = held.get_mut(&at) else { return };
        if it.accepted == 0 {
            heard.push(at);
        }
        it.accepted = it.accepted.saturating_add(1);
        it.heard_by |= 1 << by.0;
    }

    /// Takes how many datagrams of each address were accepted since this was last asked, and by
    /// which members some of them had come. Each of these is to be told.
    pub fn take_accepted(&self, mut handle: impl FnMut(Address, u32, Members)) {
        for own in &self.own {
            let Own { held, heard, .. } = &mut *lock(own);
            for at in heard.drain(..) {
                let Some(it) = held.get_mut(&at) else { continue };
                let (accepted, heard_by) = (it.accepted, it.heard_by);
                (it.accepted, it.heard_by) = (0, 0);
                handle(at.address, accepted, Members(heard_by));
            }
        }
    }

    /// A member says how many datagrams a second it has accepted of a player of late, of those that
    /// were forwarded to it.
    pub fn learn_accepted(&self, address: &Address, member: MemberId, per_s: u32, now_ns: u64) {
        let hash = self.hash(address);
        let mut others = lock(&self.others[shard(hash)]);
        if let Some(other) = others.get_mut(&hash).filter(|other| other.member == member) {
            (other.accepted, other.said_at_ns) = (per_s, now_ns);
        }
    }

    /// Another member says that it has a player at an address. Who says so last is believed, and
    /// who did before when that one has it no more.
    pub fn learn(&self, address: &Address, member: MemberId, now_ns: u64) -> Result<(), NoRoom> {
        let has_share = self.count_of(member) < share_of(self.others_max);
        let room = (&self.others_count, self.others_max, has_share);
        let said = (self.hash(address), Other::new(member, now_ns));
        note(&self.others, room, said, |of, is_more| self.count(address, of, is_more))
    }

    /// It says that it has not any more.
    pub fn unlearn(&self, address: &Address, member: MemberId) {
        if give_up(&self.others, &self.others_count, (self.hash(address), member)) {
            self.count(address, member, false);
        }
    }

    /// Another member stands by for a player.
    pub fn learn_stands(
        &self,
        address: &Address,
        member: MemberId,
        now_ns: u64,
    ) -> Result<(), NoRoom> {
        let stood = self.stands_counts[usize::from(member.0)].load(Ordering::Relaxed);
        let room = (&self.stands_count, self.others_max, stood < share_of(self.others_max));
        let said = (self.hash(address), Other::new(member, now_ns));
        note(&self.stands, room, said, |of, is_more| self.count_stands(address, of, is_more))
    }

    /// It does not any more.
    pub fn unlearn_stands(&self, address: &Address, member: MemberId) {
        if give_up(&self.stands, &self.stands_count, (self.hash(address), member)) {
            self.count_stands(address, member, false);
        }
    }

    /// A member that is connected does not answer, or does again.
    pub fn set_silent(&self, MemberId(member): MemberId, is_silent: bool) {
        if is_silent {
            self.silent.fetch_or(1 << member, Ordering::Relaxed);
        } else {
            self.silent.fetch_and(!(1 << member), Ordering::Relaxed);
        }
    }

    /// What a member has told counts no more: nothing goes to it.
    pub fn forget(&self, member: MemberId) {
        for (known, count) in
            [(&self.stands, &self.stands_count), (&self.others, &self.others_count)]
        {
            for known in known {
                let mut known = lock(known);
                let before = known.len();
                known.retain(|_, it| !it.is_of(member) || it.give_up(member));
                count.fetch_sub(before - known.len(), Ordering::Relaxed);
            }
        }
        let mut counts = lock(&self.home_counts);
        counts[usize::from(member.0)] = ByHash::default();
        for counts in [&self.counts, &self.stands_counts] {
            counts[usize::from(member.0)].store(0, Ordering::Relaxed);
        }
        for home in &self.homes {
            home.fetch_and(!(1 << member.0), Ordering::Relaxed);
        }
    }

    /// How many players other members have, as far as they have told.
    pub fn others_count(&self) -> usize {
        self.others_count.load(Ordering::Relaxed)
    }

    /// How many players a member has, as far as it has told.
    pub fn count_of(&self, MemberId(member): MemberId) -> usize {
        self.counts[usize::from(member)].load(Ordering::Relaxed)
    }

    fn count(&self, address: &Address, member: MemberId, is_more: bool) {
        add(&self.counts[usize::from(member.0)], is_more);
        self.count_home(address, member, is_more);
    }

    fn count_stands(&self, address: &Address, member: MemberId, is_more: bool) {
        add(&self.stands_counts[usize::from(member.0)], is_more);
        self.count_home(address, member, is_more);
    }

    fn count_home(&self, address: &Address, MemberId(member): MemberId, is_more: bool) {
        let bucket = self.bucket(address);
        let counts = &mut lock(&self.home_counts)[usize::from(member)];
        // The map takes the place in its table from some bits and a mark from others.
        let key = (bucket as u64).wrapping_mul(SPREADING);
        let count = counts.entry(key).or_default();
        *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        match *count {
            0 => {
                counts.remove(&key);
                self.homes[bucket].fetch_and(!(1 << member), Ordering::Relaxed)
            }
            _ => self.homes[bucket].fetch_or(1 << member, Ordering::Relaxed),
        };
    }

    /// Where this gateway's player of an address is, if there is one.
    fn own_of(&self, address: &Address) -> (Hashed, MutexGuard<'_, Own>) {
        let hash = self.hash(address);
        (Hashed { hash, address: *address }, lock(&self.own[shard(hash)]))
    }

    fn hash(&self, address: &Address) -> u64 {
        address.wide_hash(self.key)
    }

    fn bucket(&self, address: &Address) -> usize {
        address.area().hash(self.key) as usize % self.homes.len()
    }
}

/// Notes that a member has said so of an address. Of those who had, the last one may say so still;
/// `count` hears whose each is more, and whose no more.
fn note(
    known: &[Mutex<ByHash<u64, Other>>; SHARDS],
    (known_count, known_max, has_share): (&AtomicUsize, usize, bool),
    (hash, fresh): (u64, Other),
    count: impl Fn(MemberId, bool),
) -> Result<(), NoRoom> {
    let (member, mut known) = (fresh.member, lock(&known[shard(hash)]));
    if !has_share && !known.get(&hash).is_some_and(|it| it.is_of(member)) {
        return Err(NoRoom::Share);
    }
    match known.entry(hash) {
        hash_map::Entry::Occupied(known) if known.get().member == member => return Ok(()),
        hash_map::Entry::Occupied(mut known) => {
            let known = known.get_mut();
            let (second, third) = (known.member, known.before);
            *known = Other { before: Some(second), ..fresh };
            if third == Some(member) {
                return Ok(());
            }
            third.inspect(|third| count(*third, false));
        }
        hash_map::Entry::Vacant(place) => {
            if known_count.load(Ordering::Relaxed) >= known_max {
                return Err(NoRoom::All);
            }
            place.insert(fresh);
            known_count.fetch_add(1, Ordering::Relaxed);
        }
    }
    count(member, true);
    Ok(())
}

/// A member says so no more. Whether it had.
fn give_up(
    known: &[Mutex<ByHash<u64, Other>>; SHARDS],
    known_count: &AtomicUsize,
    (hash, member): (u64, MemberId),
) -> bool {
    let mut known = lock(&known[shard(hash)]);
    let Some(other) = known.get_mut(&hash).filter(|it| it.is_of(member)) else { return false };
    if !other.give_up(member) {
        known.remove(&hash);
        known_count.fetch_sub(1, Ordering::Relaxed);
    }
    true
}

const fn shard(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// What one member may have of the room for what all of them say: one that went wrong leaves the
/// rest to the others.
pub(crate) const fn share_of(room: usize) -> usize {
    room.div_ceil(SHARES)
}

fn add(to: &AtomicUsize, is_more: bool) {
    if is_more {
        to.fetch_add(1, Ordering::Relaxed);
    } else {
        to.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether something was said, which is not from then on.
pub(crate) fn take(of: &AtomicBool) -> bool {
    of.load(Ordering::Relaxed) && of.swap(false, Ordering::Acquire)
}

impl Other {
    const fn new(member: MemberId, now_ns: u64) -> Self {
        let budget = Bucket::full(now_ns);
        Self { member, before: None, budget, accepted: 0, said_at_ns: 0 }
    }

    fn is_of(&self, member: MemberId) -> bool {
        self.member == member || self.before == Some(member)
    }

    /// One of those who have it has it no more. Whether there is another one.
    fn give_up(&mut self, member: MemberId) -> bool {
        let before = self.before.take();
        if self.member == member {
            self.member = before.unwrap_or(member);
            return before.is_some();
        }
        true
    }
}

impl Members {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many they are.
    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = MemberId> {
        (0..MEMBERS_MAX as u8).filter(move |it| self.0 >> it & 1 == 1).map(MemberId)
    }
}

/// A member has at most one of so many parts of the room: twice what it can have itself, where all
/// have room for as many sessions.
const SHARES: usize = 4;

/// So many parts has what is held here.
pub const PARTS: usize = SHARDS;

/// Sessions that are where no datagram comes from have this port.
const NOWHERE: u16 = 0;

/// What an entry may have forwarded a second, at the least: more than a player sends as a rule.
const FORWARDS_MIN: u32 = 50;

/// And at the most, whatever its member says.
const FORWARDS_MAX: u32 = 20_000;

/// Of each part, so many changes wait at the most.
const CHANGES_MAX: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };

/// What an address may have handed from worker to worker a second.
const OWN_FORWARDS: u32 = 1000;

/// Members say four times a second what they have accepted.
const ACCEPTED_OLD_NS: u64 = 1_000_000_000;

const _: () = assert!(size_of::<(u64, Other)>() <= 32);

const SHARDS: usize = 64;
const BUCKETS_MIN: usize = 1 << 16;
/// 32 MiB.
const BUCKETS_MAX: usize = 1 << 22;
/// Odd, so that each bucket has a number of its own.
const SPREADING: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerId;
    use ringgate_batch::Endpoint;

    const B: MemberId = MemberId(1);
    const C: MemberId = MemberId(63);

    fn none() -> Whereabouts {
        Whereabouts::new(HashKey::new([1, 2]), 1000)
    }

    fn at(ip: u8, port: u16) -> Address {
        Address { listener: ListenerId(0), endpoint: Endpoint::v4([192, 0, 2, ip], port) }
    }

    fn changes(of: &Whereabouts) -> Vec<(u16, News)> {
        let mut all = Vec::new();
        of.take_changes(100, |address, news| all.push((address.endpoint.port(), news)));
        all.sort_unstable_by_key(|it| it.0);
        all
    }

    fn homes(of: &Whereabouts, ip: u8) -> Vec<MemberId> {
        of.homes_of(&at(ip, 9)).iter().collect()
    }

    #[test]
    fn addresses_of_many_players_rarely_share_a_bucket() {
        let of = |others_max| Whereabouts::new(HashKey::new([1, 2]), others_max).homes.len();
        assert_eq!([0, 1 << 20, 8 << 20].map(of), [1 << 16, 1 << 21, 1 << 22]);
    }

    #[test]
    fn what_has_changed_between_two_looks_is_told_once_and_nothing_of_who_came_and_went() {
        let whereabouts = none();
        whereabouts.enter(&at(1, 1), WorkerId(3));
        whereabouts.enter(&at(1, 2), WorkerId(4));
        whereabouts.leave(&at(1, 2));
        whereabouts.leave(&at(1, 3));
        assert_eq!(whereabouts.worker_of(&at(1, 1)), Some(WorkerId(3)));
        assert_eq!(whereabouts.worker_of(&at(1, 2)), None);
        assert_eq!(changes(&whereabouts), [(1, News::Came)]);
        assert_eq!(changes(&whereabouts), []);
        // Its handshake ends after its session has begun.
        whereabouts.enter(&at(1, 1), WorkerId(3));
        whereabouts.leave(&at(1, 1));
        assert_eq!(changes(&whereabouts), [(1, News::Still)]);
        whereabouts.leave(&at(1, 1));
        whereabouts.enter(&at(1, 1), WorkerId(5));
        assert_eq!(changes(&whereabouts), [(1, News::Still)]);
        assert_eq!(whereabouts.worker_of(&at(1, 1)), Some(WorkerId(5)));
        whereabouts.leave(&at(1, 1));
        assert_eq!(changes(&whereabouts), [(1, News::Left)]);
        // A member that has just come was told of it with all others.
        whereabouts.enter(&at(1, 4), WorkerId(3));
        let all: Vec<_> = (0..PARTS).flat_map(|part| whereabouts.own_part(part)).collect();
        whereabouts.leave(&at(1, 4));
        assert_eq!((all, changes(&whereabouts)), (vec![at(1, 4)], vec![(4, News::Left)]));
    }

    #[test]
    fn members_hear_nothing_of_an_address_until_it_is_announced() {
        let whereabouts = none();
        let all = || (0..PARTS).map(|part| whereabouts.own_part(part).len()).sum::<usize>();
        for port in [1, 2] {
            whereabouts.enter_unheard(&at(1, port), WorkerId(3));
        }
        assert_eq!(whereabouts.worker_of(&at(1, 1)), Some(WorkerId(3)));
        assert_eq!((changes(&whereabouts), all()), (vec![], 0));
        whereabouts.announce(&at(1, 1));
        whereabouts.leave(&at(1, 2));
        whereabouts.announce(&at(1, 2));
        assert_eq!((changes(&whereabouts), all()), (vec![(1, News::Came)], 1));
        // It is over, and somebody else has come there.
        whereabouts.leave(&at(1, 1));
        whereabouts.enter_unheard(&at(1, 1), WorkerId(3));
        assert_eq!((changes(&whereabouts), all()), (vec![(1, News::Left)], 0));
        whereabouts.announce(&at(1, 1));
        assert_eq!(changes(&whereabouts), [(1, News::Came)]);
        whereabouts.leave(&at(1, 1));
        assert_eq!(changes(&whereabouts), [(1, News::Left)]);
        assert!(whereabouts.own.iter().all(|own| lock(own).held.is_empty()));
    }

    #[test]
    fn changes_are_taken_in_portions_and_whoever_is_new_is_told_of_all() {
        let whereabouts = none();
        for port in 1..=1000 {
            whereabouts.enter(&at(1, port), WorkerId(0));
        }
        let mut taken = 0;
        for (expected, has_more) in [(600, true), (1000, false), (1000, false)] {
            assert_eq!(whereabouts.take_changes(600, |_, _| taken += 1), has_more);
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
            assert!(whereabouts.learn(&address, B, 0).is_ok());
            assert!(whereabouts.learn(&address, B, 0).is_ok());
        }
        assert!(whereabouts.learn(&at(1, 1), C, 0).is_ok());
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
    fn what_a_member_may_be_sent_of_a_player_follows_what_it_takes_within_bounds() {
        let (whereabouts, at) = (none(), at(1, 1));
        assert!(whereabouts.learn(&at, B, 0).is_ok());
        let paid = |now_ns| (0..30_000).filter(|_| whereabouts.pay(&at, now_ns).is_ok()).count();
        assert_eq!((paid(0), paid(100_000_000)), (50, 5));
        assert_eq!(paid(99_000_000), 0, "another worker, whose turn began before");
        whereabouts.learn_accepted(&at, C, 1000, 100_000_000);
        assert_eq!(paid(200_000_000), 5, "it is not that one's");
        whereabouts.learn_accepted(&at, B, 200, 200_000_000);
        assert_eq!(paid(300_000_000), 40);
        whereabouts.learn_accepted(&at, B, u32::MAX, 300_000_000);
        assert_eq!(paid(1_300_000_000), 20_000);
        assert_eq!(paid(3_000_000_000), 50, "it has not said so for a while");
        // What it has said before stays where it says again that it has the player.
        assert!(whereabouts.learn(&at, B, 3_000_000_000).is_ok());
        assert_eq!(paid(3_000_000_000), 0);
    }

    #[test]
    fn what_was_accepted_is_told_once_and_to_those_who_have_brought_it() {
        let whereabouts = none();
        whereabouts.enter(&at(1, 1), WorkerId(0));
        for (address, by) in [(at(1, 1), B), (at(1, 1), C), (at(1, 1), B), (at(1, 2), B)] {
            whereabouts.note_accepted(&address, by);
        }
        let taken = || {
            let mut all = Vec::new();
            whereabouts.take_accepted(|address, count, by| {
                all.push((address.endpoint.port(), count, by.iter().collect::<Vec<_>>()));
            });
            all
        };
        assert_eq!(taken(), [(1, 3, vec![B, C])]);
        assert_eq!(taken(), []);
    }

    #[test]
    fn of_two_members_that_have_a_player_the_first_is_believed_again_when_the_last_has_it_no_more()
    {
        let (whereabouts, third) = (none(), MemberId(7));
        let learn = |member| assert!(whereabouts.learn(&at(1, 1), member, 0).is_ok());
        let known = || {
            let count = |of| whereabouts.count_of(of);
            let expected = homes(&whereabouts, 1).len();
            assert_eq!([B, C, third].map(count).iter().sum::<usize>(), expected);
            (whereabouts.find(&at(1, 1)), homes(&whereabouts, 1))
        };
        [B, C].into_iter().for_each(learn);
        assert_eq!(known(), (Some(C), vec![B, C]));
        whereabouts.unlearn(&at(1, 1), C);
        assert_eq!(known(), (Some(B), vec![B]));
        [C, B, third].into_iter().for_each(learn);
        assert_eq!(known(), (Some(third), vec![B, third]), "no more than two");
        whereabouts.unlearn(&at(1, 1), C);
        whereabouts.forget(third);
        assert_eq!(known(), (Some(B), vec![B]));
        whereabouts.unlearn(&at(1, 1), B);
        assert_eq!((known(), whereabouts.others_count()), ((None, vec![]), 0));
    }

    #[test]
    fn what_nobody_takes_has_an_end() {
        let whereabouts = none();
        let at = |n: u32| Address {
            listener: ListenerId(0),
            endpoint: Endpoint::v4(n.to_be_bytes(), 1),
        };
        let own = |of: &Whereabouts| {
            let counts =
                of.own.iter().map(|own| lock(own)).map(|own| (own.held.len(), own.changed.len()));
            counts.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
        };
        let all = 5 * (SHARDS * CHANGES_MAX / 4) as u32;
        (0..all).for_each(|n| {
            whereabouts.enter(&at(n), WorkerId(0));
            whereabouts.leave(&at(n));
        });
        let (held, changed) = own(&whereabouts);
        assert!(held == changed && changed <= SHARDS * CHANGES_MAX, "{held} {changed}");
        whereabouts.take_changes(usize::MAX, |_, news| panic!("{news:?}"));
        assert_eq!(own(&whereabouts), (0, 0));
    }

    #[test]
    fn no_more_is_learnt_than_there_is_room_for() {
        let whereabouts = none();
        let learn = |ip, port, member| whereabouts.learn(&at(ip, port), member, 0);
        let all = |ip: u8| (1..=250).all(|port| learn(ip, port, MemberId(ip)).is_ok());
        assert!(all(1) && all(2) && all(3));
        assert_eq!(learn(9, 1, B), Err(NoRoom::Share), "it leaves the rest to others");
        assert_eq!((learn(2, 1, B), learn(1, 1, B)), (Err(NoRoom::Share), Ok(())));
        assert!(all(4));
        assert_eq!(learn(9, 1, C), Err(NoRoom::All));
        assert_eq!(learn(1, 1, C), Ok(()), "another's is no more");
        whereabouts.unlearn(&at(1, 1), C);
        assert_eq!(learn(9, 1, C), Err(NoRoom::All), "the other still has it");
        whereabouts.unlearn(&at(1, 1), B);
        assert_eq!(learn(9, 1, B), Ok(()));
    }

    #[test]
    fn a_member_that_is_gone_has_nobody() {
        let whereabouts = none();
        assert!(whereabouts.learn(&at(1, 1), B, 0).is_ok());
        assert!(whereabouts.learn(&at(1, 2), C, 0).is_ok());
        whereabouts.forget(B);
        assert_eq!((whereabouts.find(&at(1, 1)), whereabouts.find(&at(1, 2))), (None, Some(C)));
        assert_eq!((homes(&whereabouts, 1), whereabouts.others_count()), (vec![C], 1));
        // Its number is another's.
        assert!(whereabouts.learn(&at(1, 3), B, 0).is_ok());
        whereabouts.unlearn(&at(1, 3), B);
        assert_eq!(homes(&whereabouts, 1), [C]);
    }

    #[test]
    fn who_stands_by_is_found_while_the_owner_is_gone_or_silent() {
        let (whereabouts, third) = (none(), MemberId(7));
        let found = || (whereabouts.find(&at(1, 1)), whereabouts.pay(&at(1, 1), 0).is_ok());
        assert!(whereabouts.learn_stands(&at(1, 1), C, 0).is_ok(), "heard before the owner");
        assert_eq!(found(), (Some(C), true));
        assert!(whereabouts.learn(&at(1, 1), B, 0).is_ok());
        assert_eq!(found(), (Some(B), true));
        whereabouts.set_silent(B, true);
        assert_eq!(found(), (Some(C), true));
        whereabouts.set_silent(C, true);
        assert_eq!(found(), (Some(B), true), "nobody knows better");
        whereabouts.set_silent(C, false);
        whereabouts.set_silent(B, false);
        assert_eq!(found(), (Some(B), true));
        assert!(whereabouts.learn_stands(&at(1, 1), third, 0).is_ok(), "another was appointed");
        whereabouts.unlearn_stands(&at(1, 1), C);
        whereabouts.forget(B);
        assert_eq!(found(), (Some(third), true));
        let again = whereabouts.learn_stands(&at(1, 1), C, 0);
        assert_eq!(again, Ok(()), "so does another one, for a while");
        whereabouts.unlearn_stands(&at(1, 1), C);
        assert_eq!(found(), (Some(third), true));
        whereabouts.forget(third);
        assert_eq!(found(), (None, false));
        let stands = |ip, port, member| whereabouts.learn_stands(&at(ip, port), member, 0);
        let all = |ip: u8| (1..=250).all(|port| stands(ip, port, MemberId(ip)).is_ok());
        assert!(all(1) && all(2) && all(3));
        assert_eq!((stands(9, 1, B), stands(2, 1, B)), (Err(NoRoom::Share), Err(NoRoom::Share)));
        assert!(all(4));
        assert_eq!((stands(9, 1, C), stands(1, 1, C)), (Err(NoRoom::All), Ok(())));
        whereabouts.unlearn_stands(&at(1, 1), B);
        assert_eq!(stands(2, 1, B), Ok(()), "it has one less");
    }
}
