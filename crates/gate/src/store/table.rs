//! Which session or handshake belongs to an address: a slab of entries, found by listener and
//! endpoint.
//!
//! The [`Index`] is at most half full, so a lookup touches one line of it and one of the entry; a
//! batch of lookups has them fetched first, all at once. The hash key is random per process: an
//! attacker who chooses source ports cannot aim at one cell. Everything is sized once: the slab
//! reserves its capacity (untouched pages cost nothing), so no insertion ever moves an entry or
//! rehashes.
//!
//! An entry that is removed keeps its place until [`Table::reclaim`], so that positions noted
//! earlier in a turn stay valid to its end. Freed places are reused oldest first and not before
//! they have rested, because a place is also an address (the player's loopback address on the udp
//! link) and a session id: a game process must not take a new player for the one before. So there
//! are more places than entries: all entries of a full table may leave, and as many may come at
//! once. Places that were never used cost nothing. When all free places rest, none is given out.

pub(crate) mod handed;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::{ListenerId, WorkerId};
use crate::shared::buckets::Share;
use crate::store::area::Area;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::index::Index;
use ringgate_batch::{Endpoint, RxMeta, prefetch_line};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::LISTENERS_MAX;

/// What an entry is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Which listener the datagrams come in through.
    pub listener: ListenerId,
    /// Where they come from.
    pub endpoint: Endpoint,
}

impl Address {
    /// It with any port.
    #[inline]
    pub(crate) fn area(&self) -> Area {
        Area::address(self.listener, &self.endpoint)
    }

    /// The block that it is in.
    pub(crate) fn block(&self) -> Area {
        Area::block(self.listener, &self.endpoint)
    }

    /// The keyed hash of it, to be computed once per datagram.
    #[inline]
    pub(crate) fn hash(&self, key: HashKey) -> u32 {
        self.wide_hash(key) as u32
    }

    /// All of it.
    #[inline]
    pub(crate) fn wide_hash(&self, key: HashKey) -> u64 {
        let (high, low) = self.endpoint.ip_words();
        if self.endpoint.is_v4() {
            let from = u64::from(self.listener.0) << 48 | u64::from(self.endpoint.port()) << 32;
            return key.hash_seven(from | low & 0xffff_ffff);
        }
        let rest = u64::from(self.endpoint.port()) << 48
            | u64::from(self.listener.0) << 32
            | u64::from(self.endpoint.scope());
        key.hash([high, low, rest])
    }
}

/// The entry that a lookup will probably find, in the table of the front that the datagram is for;
/// [`NOBODY`](Self::NOBODY) where there is none. It lies beside datagrams of all fronts, so it has
/// no type. A wrong guess does no harm: the table compares the address, and who knows a session by
/// its id compares the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guess(u32);

impl Guess {
    /// Behind the end of every table.
    pub(crate) const NOBODY: Self = Self(u32::MAX);

    /// The guess that it is this entry.
    #[inline]
    pub(crate) fn of<T>(entry: Option<Entry<T>>) -> Self {
        entry.map_or(Self::NOBODY, |entry| Self(entry.number()))
    }

    /// The entry, as one of the table of the front that the datagram is for. Perhaps there is none
    /// of this number.
    #[inline]
    pub(crate) const fn entry<T>(self) -> Entry<T> {
        Entry::numbered(self.0)
    }
}

/// A position in the slab, and the generation that tells its tenants apart. It has no type, because
/// workers tell it each other and sockets have it as their role; [`Table::live`] looks whether its
/// tenant is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What lives in a table.
pub(crate) trait Tenant {
    /// Stands in a free place. It holds no secret of the tenant before.
    ///
    /// Not an `Option`: the compiler would mark its absence in whichever field has bits to spare,
    /// and every packet would wait for the line of that field (with a million sessions, a third of
    /// what it cost).
    fn nobody() -> Self;
}

/// A bounded map from [`Address`] to `T`.
pub(crate) struct Table<T> {
    key: HashKey,
    index: Index,
    stored: Vec<Stored<T>>,
    free: VecDeque<Rest<T>>,
    removed: Vec<Entry<T>>,
    live_count: usize,
    capacity: usize,
    /// Invariant: not fewer than `capacity`.
    places_max: usize,
    rest_ns: u64,
    first_generation: u32,
    told: Option<Arc<dyn Told>>,
    share: Option<Share>,
}

/// Who is told which addresses have entries in a table.
pub(crate) trait Told: Send + Sync {
    fn enter(&self, address: &Address);

    /// The same with one that nobody else is to hear of yet.
    fn enter_unheard(&self, address: &Address);

    /// Others may hear of it now.
    fn announce(&self, address: &Address);

    /// Said once for each time that it was entered.
    fn leave(&self, address: &Address);
}

/// How places rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    /// For how long a place is not given out again after its tenant has left.
    pub(crate) ns: u64,
    /// How many places there are beyond the capacity.
    pub(crate) spare: usize,
}

impl Resting {
    /// For a table whose places are no addresses and no ids: none rests.
    pub(crate) const NONE: Self = Self { ns: 0, spare: 0 };
}

/// Why there is no place for another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// There are as many entries as there may be.
    Full,
    /// All free places were left a moment ago.
    Resting,
    /// What comes from the address goes to another worker by now.
    Elsewhere,
}

impl NoPlace {
    /// Why a datagram is dropped that had none; `otherwise` where there are too many.
    pub(crate) const fn reason(self, otherwise: DropReason) -> DropReason {
        match self {
            Self::Elsewhere => DropReason::BucketMoved,
            Self::Full | Self::Resting => otherwise,
        }
    }
}

/// An entry. What a lookup compares fills the first half of a cache line, and the tenant begins
/// behind it.
#[repr(C, align(64))]
struct Stored<T> {
    address: Address,
    generation: Generation,
    /// Invariant: not [`Tenant::nobody`] while the entry is indexed, and after its removal until
    /// `reclaim`.
    tenant: T,
}

/// Where an entry's tenant begins, for tenants who care about cache lines.
pub(crate) const TENANT_OFFSET: usize = size_of::<Address>() + size_of::<Generation>();

/// Which tenant of its place an entry is, and whether it is indexed.
#[derive(Clone, Copy)]
struct Generation(u32);

impl Generation {
    const INDEXED: u32 = 1 << 31;

    const fn indexed(number: u32) -> Self {
        Self(number | Self::INDEXED)
    }

    const fn number(self) -> u32 {
        self.0 & !Self::INDEXED
    }

    const fn is_indexed(self) -> bool {
        self.0 & Self::INDEXED != 0
    }

    const fn unindexed(self) -> Self {
        Self(self.number())
    }
}

/// A free place, and since when.
struct Rest<T> {
    entry: Entry<T>,
    since_ns: u64,
}

impl<T: Tenant> Table<T> {
    /// A table of at most `capacity` entries. The first tenants are of `first_generation`: a random
    /// one keeps the ids of two runs of the gateway apart.
    pub(crate) fn new(
        capacity: usize,
        resting: Resting,
        first_generation: u32,
        key: HashKey,
    ) -> Self {
        let places_max = capacity + resting.spare;
        Self {
            key,
            index: Index::new(capacity * INDEX_CELLS),
            stored: Vec::with_capacity(places_max),
            free: VecDeque::with_capacity(places_max),
            removed: Vec::with_capacity(capacity),
            live_count: 0,
            capacity,
            places_max,
            rest_ns: resting.ns,
            first_generation: next_generation(first_generation),
            told: None,
            share: None,
        }
    }

    /// Has somebody told which addresses have entries here from now on.
    pub(crate) fn tell(&mut self, told: Arc<dyn Told>) {
        self.told = Some(told);
    }

    /// Counts the addresses of entries in their buckets from now on.
    pub(crate) fn share(&mut self, share: Share) {
        self.share = Some(share);
    }

    fn enter(&self, address: &Address, is_heard: bool) {
        match &self.told {
            Some(told) if is_heard => told.enter(address),
            Some(told) => told.enter_unheard(address),
            None => {}
        }
        if let Some(share) = &self.share {
            share.enter(address.listener, &address.endpoint);
        }
    }

    /// Others may hear of an entry that was inserted unheard.
    pub(crate) fn announce(&self, entry: Entry<T>) {
        if let Some(told) = &self.told {
            told.announce(&self.stored[entry.index()].address);
        }
    }

    fn leave(&self, address: &Address) {
        if let Some(told) = &self.told {
            told.leave(address);
        }
        if let Some(share) = &self.share {
            share.leave(address.listener, &address.endpoint);
        }
    }

    /// Bytes that one entry takes at most: itself, its cells of the index, and its place in the
    /// lists of free ones.
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Stored<T>>()
            + INDEX_CELLS * Index::CELL_BYTES
            + size_of::<Rest<T>>()
            + size_of::<Entry<T>>()
    }

    /// How many entries are indexed.
    pub(crate) fn len(&self) -> usize {
        self.live_count
    }

    /// How many places have ever been used.
    pub(crate) fn places(&self) -> u32 {
        self.stored.len() as u32
    }

    /// The entries of all places that have ever been used. Does not hold the table, so that they
    /// can be changed meanwhile.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<T>> + use<T> {
        (0..self.places()).map(Entry::numbered)
    }

    /// The hash of an address, under this table's key.
    #[inline]
    pub(crate) fn hash(&self, address: &Address) -> u32 {
        address.hash(self.key)
    }

    /// Where the entry of `address` lives.
    #[inline]
    pub(crate) fn find(&self, hash: u32, address: &Address) -> Option<Entry<T>> {
        let is_it = |number: u32| self.stored[number as usize].address == *address;
        self.index.find(hash, is_it).map(Entry::numbered)
    }

    /// Where the entry of `address` lives, which is probably where [`guess`](Self::guess) has said.
    /// Nothing may have been inserted or removed in between: where there was no guess, the address
    /// has no entry.
    #[inline]
    pub(crate) fn find_guessed(
        &self,
        guess: Guess,
        hash: u32,
        address: &Address,
    ) -> Option<Entry<T>> {
        let entry = guess.entry();
        let stored = self.stored.get(entry.index())?;
        if stored.address == *address { Some(entry) } else { self.find(hash, address) }
    }

    /// Hashes where a run of datagrams comes from; while one is hashed, memory works on those
    /// before it.
    pub(crate) fn hash_sources(
        &self,
        listener: ListenerId,
        metas: &[RxMeta],
        mut found: impl FnMut(u32),
    ) {
        for meta in metas {
            let hash = self.hash(&Address { listener, endpoint: meta.peer });
            self.prefetch_index(hash);
            found(hash);
        }
    }

    /// Has the memory fetched where a lookup of that hash begins.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u32) {
        self.index.prefetch(hash);
    }

    /// The entry that a lookup of that hash will probably find.
    #[inline]
    pub(crate) fn guess(&self, hash: u32) -> Option<Entry<T>> {
        self.index.find(hash, |_| true).map(Entry::numbered)
    }

    /// Has some lines of an entry fetched, if there is one of this number.
    #[inline]
    pub(crate) fn prefetch(&self, entry: Entry<T>, lines: std::ops::Range<usize>) {
        if let Some(stored) = self.stored.get(entry.index()) {
            lines.for_each(|line| prefetch_line(stored, line));
        }
    }

    /// The address ranges of everything that is large, for advice to the operating system. Most is
    /// not in use yet.
    pub(crate) fn memory(&self) -> [std::ops::Range<*const u8>; 2] {
        let stored = self.stored.as_ptr();
        let end = stored.wrapping_add(self.stored.capacity());
        [stored.cast()..end.cast(), self.index.memory()]
    }

    /// Inserts an entry for an address that has none, if there is a place for it.
    pub(crate) fn insert(
        &mut self,
        address: Address,
        tenant: T,
        now_ns: u64,
    ) -> Result<Entry<T>, NoPlace> {
        let entry = self.take_in(address, tenant, now_ns)?;
        self.enter(&address, true);
        Ok(entry)
    }

    /// The same for one that nobody else is to hear of until it is [announced](Self::announce).
    pub(crate) fn insert_unheard(
        &mut self,
        address: Address,
        tenant: T,
        now_ns: u64,
    ) -> Result<Entry<T>, NoPlace> {
        let entry = self.take_in(address, tenant, now_ns)?;
        self.enter(&address, false);
        Ok(entry)
    }

    fn take_in(&mut self, address: Address, tenant: T, now_ns: u64) -> Result<Entry<T>, NoPlace> {
        let hash = self.hash(&address);
        debug_assert!(self.find(hash, &address).is_none(), "one entry per address");
        let entry = self.take_place(now_ns)?;
        let old =
            self.stored.get(entry.index()).map(|old| next_generation(old.generation.number()));
        let generation = Generation::indexed(old.unwrap_or(self.first_generation));
        let stored = Stored { address, generation, tenant };
        match self.stored.get_mut(entry.index()) {
            Some(old) => *old = stored,
            None => self.stored.push(stored),
        }
        self.index.insert(hash, entry.number());
        self.live_count += 1;
        Ok(entry)
    }

    /// The same as [`insert`](Self::insert) for an address from which a datagram has come in here,
    /// unless another worker has `forwarded` it: then it has its worker, whatever its bucket.
    pub(crate) fn begin(
        &mut self,
        address: Address,
        tenant: T,
        now_ns: u64,
        forwarded: bool,
    ) -> Result<Entry<T>, NoPlace> {
        self.holding(&address, forwarded, |table| table.insert(address, tenant, now_ns))
    }

    /// The same as [`insert_unheard`](Self::insert_unheard).
    pub(crate) fn begin_unheard(
        &mut self,
        address: Address,
        tenant: T,
        now_ns: u64,
        forwarded: bool,
    ) -> Result<Entry<T>, NoPlace> {
        self.holding(&address, forwarded, |table| table.insert_unheard(address, tenant, now_ns))
    }

    /// Holds an address's bucket until its entry has a count of its own, or there is none.
    fn holding(
        &mut self,
        address: &Address,
        forwarded: bool,
        insert: impl FnOnce(&mut Self) -> Result<Entry<T>, NoPlace>,
    ) -> Result<Entry<T>, NoPlace> {
        let Some(share) = self.share.clone().filter(|_| !forwarded) else { return insert(self) };
        if !share.begin(address.listener, &address.endpoint) {
            return Err(NoPlace::Elsewhere);
        }
        let inserted = insert(self);
        share.leave(address.listener, &address.endpoint);
        inserted
    }

    /// The worker that gets what comes from an address, where that goes by buckets.
    pub(crate) fn worker_of(&self, address: &Address) -> Option<WorkerId> {
        self.share.as_ref()?.worker_of(address.listener, &address.endpoint)
    }

    /// The addresses of all entries.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        let live = self.stored.iter().filter(|it| it.generation.is_indexed());
        live.map(|it| &it.address)
    }

    /// Whether there are as many entries as there may be.
    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.live_count >= self.capacity
    }

    /// Whether there is a place that has rested or was never used. The table may be full all the
    /// same.
    pub(crate) fn has_rested_place(&self, now_ns: u64) -> bool {
        self.stored.len() < self.places_max || self.is_rested(now_ns)
    }

    /// Takes an entry out of the index. It can still be reached until
    /// [`reclaim`](Self::reclaim).
    pub(crate) fn remove(&mut self, entry: Entry<T>) {
        let stored = &mut self.stored[entry.index()];
        if stored.generation.is_indexed() {
            stored.generation = stored.generation.unindexed();
            let address = stored.address;
            self.index.remove(self.hash(&address), entry.number());
            self.removed.push(entry);
            self.live_count -= 1;
            self.leave(&address);
        }
    }

    /// Moves an entry to another address, which must have none.
    pub(crate) fn readdress(&mut self, entry: Entry<T>, address: Address) {
        debug_assert!(self.is_live(entry), "only live entries move");
        let old = std::mem::replace(&mut self.stored[entry.index()].address, address);
        self.index.remove(self.hash(&old), entry.number());
        self.index.insert(self.hash(&address), entry.number());
        self.leave(&old);
        self.enter(&address, true);
    }

    /// Ends the tenancy of removed entries: call it when no entry noted in this turn is used any
    /// more.
    #[inline]
    pub(crate) fn reclaim(&mut self, now_ns: u64) {
        if !self.removed.is_empty() {
            self.reclaim_removed(now_ns);
        }
    }

    fn reclaim_removed(&mut self, now_ns: u64) {
        for entry in self.removed.drain(..) {
            self.stored[entry.index()].tenant = T::nobody();
            self.free.push_back(Rest { entry, since_ns: now_ns });
        }
    }

    /// The address of an entry.
    #[inline]
    pub(crate) fn address(&self, entry: Entry<T>) -> &Address {
        &self.stored[entry.index()].address
    }

    /// Whether the entry is indexed (not removed).
    #[inline]
    pub(crate) fn is_live(&self, entry: Entry<T>) -> bool {
        self.stored.get(entry.index()).is_some_and(|stored| stored.generation.is_indexed())
    }

    /// The place of an entry, to recognise its tenant later.
    #[inline]
    pub(crate) fn place(&self, entry: Entry<T>) -> Place {
        Place { index: entry.number(), generation: self.stored[entry.index()].generation.number() }
    }

    /// The entry of a place whose tenant is still the same and live.
    #[inline]
    pub(crate) fn live(&self, place: Place) -> Option<Entry<T>> {
        let entry = Entry::numbered(place.index);
        let stored = self.stored.get(entry.index())?;
        (stored.generation.0 == Generation::indexed(place.generation).0).then_some(entry)
    }

    /// The live tenant of an entry, if there is one.
    #[inline]
    pub(crate) fn get(&self, entry: Entry<T>) -> Option<&T> {
        let stored = self.stored.get(entry.index())?;
        stored.generation.is_indexed().then_some(&stored.tenant)
    }

    /// The tenant of an entry that was noted in this turn.
    #[inline]
    pub(crate) fn at(&self, entry: Entry<T>) -> &T {
        &self.stored[entry.index()].tenant
    }

    /// The tenant of an entry that was noted in this turn.
    #[inline]
    pub(crate) fn at_mut(&mut self, entry: Entry<T>) -> &mut T {
        &mut self.stored[entry.index()].tenant
    }

    /// The place that was left first, if that was long enough ago, or a fresh one.
    fn take_place(&mut self, now_ns: u64) -> Result<Entry<T>, NoPlace> {
        if self.is_full() {
            return Err(NoPlace::Full);
        }
        if self.is_rested(now_ns)
            && let Some(rest) = self.free.pop_front()
        {
            return Ok(rest.entry);
        }
        if self.stored.len() < self.places_max {
            return Ok(Entry::numbered(self.stored.len() as u32));
        }
        Err(if self.rest_ns == 0 { NoPlace::Full } else { NoPlace::Resting })
    }

    /// Whether the place that was left first has rested.
    fn is_rested(&self, now_ns: u64) -> bool {
        self.free.front().is_some_and(|rest| now_ns >= rest.since_ns + self.rest_ns)
    }
}

/// An IPv4 address, its port and the listener fit seven bytes.
const _: () = assert!(LISTENERS_MAX <= 1 << 8);

/// Generations fit 24 bits and are never 0, because they are a part of session ids.
const fn next_generation(generation: u32) -> u32 {
    generation % GENERATION_MAX + 1
}

const GENERATION_MAX: u32 = (1 << 24) - 1;

/// Cells of the index for each entry: a lookup reads one and a half of them if it finds an entry,
/// and two and a half if there is none.
const INDEX_CELLS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::buckets::Buckets;
    use proptest::prelude::*;
    use ringgate_batch::spread::{Bucket, SPREAD_WORDS, Spread, SpreadKey};
    use std::collections::HashMap;
    use std::sync::atomic::AtomicU64;

    const KEY: HashKey = HashKey::new([1, 2]);

    impl Tenant for u16 {
        fn nobody() -> Self {
            Self::MAX
        }
    }

    fn address(n: u16) -> Address {
        Address {
            listener: ListenerId(n % 3),
            endpoint: Endpoint::v4([10, 0, 0, (n / 7) as u8], n),
        }
    }

    fn lookup(table: &Table<u16>, n: u16) -> Option<Entry<u16>> {
        let address = address(n);
        table.find(table.hash(&address), &address)
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(steps in prop::collection::vec((0u16..40, 0u8..3), 1..400)) {
            let mut table = Table::new(24, Resting::NONE, 0, KEY);
            let mut model: HashMap<u16, Entry<u16>> = HashMap::new();
            for (n, action) in steps {
                match (action, model.get(&n).copied()) {
                    (0, None) => match table.insert(address(n), n, 0) {
                        Ok(index) => { model.insert(n, index); }
                        Err(why) => prop_assert_eq!((why, model.len()), (NoPlace::Full, 24)),
                    },
                    (1, Some(index)) => { table.remove(index); table.reclaim(0); model.remove(&n); }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                for k in 0..40 {
                    prop_assert_eq!(lookup(&table, k), model.get(&k).copied());
                }
                for (k, index) in &model {
                    prop_assert_eq!(table.at(*index), k);
                }
            }
        }
    }

    #[test]
    fn a_removed_entry_stays_readable_until_reclaimed_and_its_place_rests() {
        let mut table = Table::new(2, Resting { ns: 100, spare: 1 }, 0, KEY);
        let index = table.insert(address(1), 1, 0).expect("room");
        let place = table.place(index);
        table.remove(index);
        assert_eq!((table.get(index), *table.at(index), table.live(place)), (None, 1, None));
        table.reclaim(0);
        assert_eq!(*table.at(index), u16::nobody(), "nothing of a tenant is left");
        let other = table.insert(address(2), 2, 50).expect("a fresh place");
        assert_ne!(other, index, "the place has not rested");
        let third = table.insert(address(3), 3, 60).expect("another");
        assert_eq!(table.insert(address(4), 4, 70), Err(NoPlace::Full));
        table.remove(third);
        table.reclaim(70);
        assert!(!table.has_rested_place(99));
        assert_eq!(table.insert(address(4), 4, 99), Err(NoPlace::Resting));
        assert!(table.has_rested_place(100));
        let again = table.insert(address(4), 4, 100).expect("it has rested");
        assert_eq!(again, index);
        assert_ne!(table.place(again), place);
        assert_eq!(table.insert(address(5), 5, 1000), Err(NoPlace::Full));
    }

    /// However entries come and go, a free place rests for as long as it has to, and the newcomer
    /// who gets none finds all at rest.
    #[test]
    fn no_place_is_given_out_before_it_has_rested() {
        let mut table = Table::new(8, Resting { ns: 50, spare: 8 }, 0, KEY);
        let (mut left_ns, mut here) = (HashMap::new(), VecDeque::new());
        let (mut refused, mut served) = (0, 0);
        for now_ns in 0..2000_u64 {
            let who = (now_ns % 1000) as u16;
            match table.insert(address(who), who, now_ns) {
                Ok(index) => {
                    let since_ns = left_ns.remove(&index);
                    let has_rested = since_ns.is_none_or(|since_ns| now_ns - since_ns >= 50);
                    assert!(has_rested, "{index:?} at {now_ns}");
                    here.push_back(index);
                    served += 1;
                }
                Err(NoPlace::Resting) => {
                    assert!(left_ns.values().all(|since_ns| now_ns - since_ns < 50));
                    refused += 1;
                }
                Err(_) => assert_eq!(table.len(), 8),
            }
            if now_ns % 3 == 0
                && let Some(index) = here.pop_front()
            {
                table.remove(index);
                left_ns.insert(index, now_ns);
            }
            table.reclaim(now_ns);
        }
        assert!(refused > 100 && served > 100, "{refused} {served}");
    }

    #[test]
    fn every_address_is_counted_in_its_bucket_for_as_long_as_it_has_an_entry() {
        let words: Vec<_> = (0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect();
        let buckets = Buckets::new(Spread::new(
            Box::new(words),
            SpreadKey::new([0x9e37_79b9_7f4a_7c15; 6]),
            2,
        ));
        let buckets = Arc::new(buckets);
        buckets.set_listener(ListenerId(1), true);
        let of = |n: u16| {
            buckets
                .spread()
                .bucket(buckets.bucket_of(ListenerId(1), &address(n).endpoint).expect("by it"))
        };
        let tables = [0, 1].map(|worker| {
            let mut table = Table::new(4, Resting::NONE, 0, KEY);
            table.share(Share::of(&buckets, WorkerId(worker)));
            table
        });
        let [mut here, mut there] = tables;
        let entry = here.begin(address(1), 1, 0, false).expect("nobody has it");
        assert_eq!(of(1), Bucket { worker: 0, sessions: 1 });
        assert_eq!(there.begin(address(1), 1, 0, false), Err(NoPlace::Elsewhere));
        let other = there.begin(address(1), 1, 0, true).expect("it was forwarded");
        assert_eq!((of(1), there.addresses().count()), (Bucket { worker: 0, sessions: 2 }, 1));
        there.remove(other);
        here.readdress(entry, address(4));
        assert_eq!([of(1).sessions, of(4).sessions], [0, 1]);
        here.remove(entry);
        here.remove(entry);
        here.reclaim(0);
        assert_eq!(of(4), Bucket { worker: 0, sessions: 0 });
        // A full table, and a listener that does not go by buckets.
        for n in [7, 10, 2, 3] {
            here.begin(address(n), n, 0, false).expect("room");
        }
        assert_eq!(here.begin(address(13), 13, 0, false), Err(NoPlace::Full));
        assert_eq!(of(13).sessions, 0);
    }

    #[test]
    fn generations_wrap_past_zero() {
        assert_eq!(next_generation(1), 2);
        assert_eq!(next_generation(GENERATION_MAX), 1);
    }

    #[test]
    fn readdressed_entries_are_found_at_their_new_address_only() {
        let mut table = Table::new(4, Resting::NONE, 0, KEY);
        let index = table.insert(address(1), 1, 0).expect("room");
        table.readdress(index, address(9));
        assert_eq!((lookup(&table, 1), lookup(&table, 9)), (None, Some(index)));
    }
}
