//! The sessions of one front of one worker: a table, a deadline for each of its entries, and the
//! names by which game processes and other workers know them. What a front keeps of a session is
//! its own; when a session begins or ends is for its [`Rules`](crate::front::rules::Rules) to say.

use std::ops::{Deref, DerefMut};

use crate::front::cluster::clustered::Clusters;
use crate::handover::arriving::Arriving;
use crate::ids::{BackendId, WorkerId};
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::{Address, Place, Resting, Table, Tenant};
use crate::store::unarmed::Unarmed;
use crate::store::wheel::{TICK_NS, Wheel};
use ringgate_core::carry::Broken;
use ringgate_link::bundle::SessionId;

/// What a front keeps of a session.
pub(crate) trait Kept: Tenant {
    /// Where its player plays; [`BackendId::NOBODYS`] of one who waits to be told of.
    fn at_backend(&self) -> BackendId;

    /// What the session at an address has claimed; `None` of one whose source has proven nothing.
    fn held(&self, address: &Address) -> Option<Claim>;

    /// The worker that forwards this player's datagrams to us, after a port switch.
    fn steered_by(&self) -> Option<WorkerId> {
        None
    }

    /// Whether a backend may ask for it.
    #[inline]
    fn plays_at(&self, backend: BackendId) -> bool {
        self.at_backend() == backend
    }
}

/// The sessions of a front. Everything that a table can be asked is asked as there.
pub(crate) struct Sessions<S> {
    /// Invariant: hashes with the same key as the gate's other tables, so that a datagram's source
    /// is hashed once.
    table: Table<S>,
    wheel: Wheel<Entry<S>, TICK_NS>,
    /// Those who have come from another process.
    unarmed: Unarmed,
    pub(crate) arriving: Arriving,
    /// Those that other gateways of a cluster could go on with.
    pub(crate) clusters: Clusters<S>,
    /// Whose sessions these are.
    worker: WorkerId,
    /// Numbers players whose protocol has no ids for them.
    pub(crate) serial: u64,
}

impl<S: Tenant> Sessions<S> {
    /// For so many sessions at once, in a table that is made as [`Table::new`] says.
    pub(crate) fn new(
        worker: WorkerId,
        sessions_max: usize,
        resting: Resting,
        first_generation: u32,
        key: HashKey,
        now_ns: u64,
    ) -> Self {
        Self {
            wheel: Wheel::new(sessions_max + resting.spare, now_ns),
            table: Table::new(sessions_max, resting, first_generation, key),
            unarmed: Unarmed::NONE,
            arriving: Arriving::default(),
            clusters: Clusters::new(),
            worker,
            serial: 0,
        }
    }

    /// Bytes that one session takes.
    pub(crate) const fn session_bytes() -> usize {
        Table::<S>::entry_bytes() + Wheel::<Entry<S>, TICK_NS>::ENTRY_BYTES
    }

    /// What links know a session by: its worker and its place, with the place's tenant.
    #[inline]
    pub(crate) fn id(&self, index: Entry<S>) -> SessionId {
        let Place { index, generation } = self.table.place(index);
        SessionId::new(self.worker.index(), u64::from(generation) << 32 | u64::from(index))
    }

    /// The live session that is known by an id.
    #[inline]
    pub(crate) fn named(&self, id: SessionId) -> Option<Entry<S>> {
        let index = entry_of(id);
        (self.table.is_live(index) && self.id(index) == id).then_some(index)
    }

    /// The id of another player whose protocol has none.
    pub(crate) fn next_client_id(&mut self) -> u64 {
        self.serial += 1;
        self.worker.client_id(self.serial)
    }

    /// Has a session looked after at a moment, and not before.
    #[inline]
    pub(crate) fn arm(&mut self, index: Entry<S>, deadline_ns: u64) {
        self.wheel.arm(index, deadline_ns);
    }

    /// The next session that is due.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Entry<S>> {
        self.wheel.pop_due(now_ns)
    }

    /// When a session is due next; `u64::MAX` while none is.
    pub(crate) fn due_ns(&self) -> u64 {
        self.wheel.next_due().unwrap_or(u64::MAX).min(self.unarmed.due_ns())
    }

    /// The places of those who could not be carried rest. Returns how many these are.
    pub(crate) fn free_lost(&mut self, now_ns: u64) -> Result<u64, Broken> {
        let mut count = 0;
        for (number, place) in std::mem::take(&mut self.arriving.lost) {
            if self.table.is_missing(number) {
                self.table.free(place, now_ns)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// All sessions have come from another process: their deadlines follow, some in each turn.
    pub(crate) fn start_at(&mut self, now_ns: u64) {
        self.wheel.start_at(now_ns);
        self.unarmed = Unarmed::all(self.table.places());
    }

    /// The next few places whose sessions have no deadline yet.
    pub(crate) fn take_unarmed(&mut self) -> impl Iterator<Item = Entry<S>> + use<S> {
        self.unarmed.take_some().map(Entry::numbered)
    }

    /// Gives one of them its deadline.
    pub(crate) fn arm_among_many(&mut self, index: Entry<S>, deadline_ns: u64) {
        self.wheel.arm_among_many(index, deadline_ns);
    }
}

/// The entry of the session that is known by an id, if it is there.
#[inline]
pub(crate) const fn entry_of<S>(id: SessionId) -> Entry<S> {
    Entry::numbered(id.as_u64() as u32)
}

impl<S> Deref for Sessions<S> {
    type Target = Table<S>;

    #[inline]
    fn deref(&self) -> &Table<S> {
        &self.table
    }
}

impl<S> DerefMut for Sessions<S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Table<S> {
        &mut self.table
    }
}
