//! Sessions of others: which there are at an address, and what has changed of that.
//!
//! All members are told where all players are. So one that went wrong may give a session of its own
//! at the address of another's player: each member has one there, and all of them are tried.

use std::collections::{HashMap, HashSet};

use crate::ids::MemberId;
use crate::store::admission::{Bucket, Rate};
use crate::store::table::Address;
use ringgate_cluster::{Record, SessionId, Tenure};
use ringgate_core::limits::MEMBERS_MAX;

/// Where each of them is.
pub(super) struct Places {
    pub(super) of: HashMap<SessionId, Address>,
    /// How many each member has given.
    given: [usize; MEMBERS_MAX],
}

/// Those of a part of all addresses.
#[derive(Default)]
pub(super) struct Stood {
    /// At each address there is one, or more.
    entries: HashMap<Address, Vec<Entry>>,
    /// Addresses that have come or gone since they were told.
    changed: HashSet<Address>,
}

pub(super) struct Entry {
    /// Who has given it; none where it was this gateway's own, and its owner could not be reached.
    pub(super) owner: Option<MemberId>,
    pub(super) record: Box<Record>,
    /// Since when its owner is gone, if it is.
    pub(super) gone_at_ns: Option<u64>,
    /// Its owner wants this gateway to have it.
    pub(super) is_offered: bool,
    /// A worker has asked for it, and waits.
    pub(super) is_claimed: bool,
    /// What this process has asked an arbiter for on a link that is over since then, without an
    /// answer: it may be granted.
    pub(super) unanswered: Option<Unanswered>,
    /// Packets that may be tried with its key.
    budget: Bucket,
}

#[derive(Clone, Copy)]
pub(super) struct Unanswered {
    pub(super) asked: Tenure,
    pub(super) since_ns: u64,
}

/// What becomes of a datagram from an address whose session is another's that is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A worker has asked for the session, and waits.
    Claimed,
    /// Too many were tried.
    Limited,
    /// It may be tried with the record's key.
    Try(Box<Record>),
}

impl Places {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), given: [0; MEMBERS_MAX] }
    }

    /// How many a member has given.
    pub(super) const fn given_by(&self, MemberId(member): MemberId) -> usize {
        self.given[member as usize]
    }

    /// It has given one more, or one less.
    pub(super) fn count(&mut self, owner: Option<MemberId>, is_more: bool) {
        let Some(MemberId(member)) = owner else { return };
        let given = &mut self.given[usize::from(member)];
        *given = if is_more { *given + 1 } else { *given - 1 };
    }
}

impl Stood {
    /// Those at an address.
    pub(super) fn at(&self, address: &Address) -> &[Entry] {
        self.entries.get(address).map_or(&[], Vec::as_slice)
    }

    pub(super) fn get_mut(&mut self, address: &Address, session: SessionId) -> Option<&mut Entry> {
        self.entries.get_mut(address)?.iter_mut().find(|it| it.record.session == session)
    }

    pub(super) fn put(&mut self, address: Address, entry: Entry) {
        self.entries.entry(address).or_insert_with(|| Vec::with_capacity(1)).push(entry);
        self.note_change(address);
    }

    pub(super) fn take(&mut self, address: &Address, session: SessionId) -> Option<Entry> {
        let all = self.entries.get_mut(address)?;
        let at = all.iter().position(|it| it.record.session == session)?;
        let entry = all.remove(at);
        if all.is_empty() {
            self.entries.remove(address);
        }
        self.note_change(*address);
        Some(entry)
    }

    /// Of those at an address, which another one is in the place of: who has given them gives that
    /// one.
    pub(super) fn displaced_by(&self, address: &Address, by: &Entry) -> Vec<SessionId> {
        let is_displaced = |it: &&Entry| {
            it.record.holder.incarnation == by.record.holder.incarnation
                || (it.owner.is_some() && it.owner == by.owner)
        };
        self.at(address).iter().filter(is_displaced).map(|it| it.record.session).collect()
    }

    /// What a datagram from an address may be tried with. The next one is tried with another.
    pub(super) fn find(&mut self, address: &Address, now_ns: u64) -> Option<Found> {
        let all = self.entries.get_mut(address)?;
        let is_gone = |it: &Entry| it.gone_at_ns.is_some();
        if all.iter().any(|it| is_gone(it) && it.is_claimed) {
            return Some(Found::Claimed);
        }
        let is_free = |it: &mut Entry| is_gone(it) && it.budget.take(TRIES, 1, now_ns);
        let Some(at) = all.iter_mut().position(is_free) else {
            return all.iter().any(is_gone).then_some(Found::Limited);
        };
        let mut record = all[at].record.clone();
        // So long nothing of its player's has come here.
        let silent_ns = now_ns.saturating_sub(all[at].gone_at_ns.unwrap_or(now_ns));
        record.silent_ms = u32::try_from(silent_ns / 1_000_000).unwrap_or(u32::MAX);
        all[at..].rotate_left(1);
        Some(Found::Try(record))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.pairs().map(|(_, it)| it)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Address, &Entry)> {
        self.entries.iter().flat_map(|(address, all)| all.iter().map(move |it| (address, it)))
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (&Address, &mut Entry)> {
        self.entries
            .iter_mut()
            .flat_map(|(address, all)| all.iter_mut().map(move |it| (address, it)))
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        self.entries.keys().copied().collect()
    }

    /// Takes some of the addresses that have changed, and whether there are sessions at each.
    /// Returns how many.
    pub(super) fn take_changes(
        &mut self,
        max: usize,
        handle: &mut impl FnMut(Address, bool),
    ) -> usize {
        let some: Vec<Address> = self.changed.iter().take(max).copied().collect();
        for address in &some {
            self.changed.remove(address);
            handle(*address, self.entries.contains_key(address));
        }
        some.len()
    }

    /// Where nobody takes what has changed, that has an end.
    fn note_change(&mut self, address: Address) {
        if self.changed.len() < CHANGES_MAX {
            self.changed.insert(address);
        }
    }
}

impl Entry {
    pub(super) fn new(owner: Option<MemberId>, record: Record, gone_at_ns: Option<u64>) -> Self {
        let (record, budget) = (Box::new(record), Bucket::full(0));
        let (is_offered, is_claimed, unanswered) = (false, false, None);
        Self { owner, record, gone_at_ns, is_offered, is_claimed, unanswered, budget }
    }

    /// One that is this process's where its arbiter has granted what is not answered, so that the
    /// next question is whether it has.
    pub(super) fn asked_for(record: Record, asked: Tenure, since_ns: u64) -> Self {
        Self::new(None, Record { holder: asked, ..record }, Some(since_ns))
    }

    /// The same of this one, where this process has asked for it and has not heard the answer.
    pub(super) fn asked_again(&self) -> Option<Self> {
        let Unanswered { asked, since_ns } = self.unanswered?;
        Some(Self::asked_for((*self.record).clone(), asked, since_ns))
    }

    /// Whether a worker may ask for it.
    pub(super) const fn is_free(&self) -> bool {
        self.gone_at_ns.is_some() || self.is_offered
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        let timeout_ns = match self.record.timeout_ms {
            0 => NO_TIMEOUT_NS,
            timeout_ms => u64::from(timeout_ms) * 1_000_000,
        };
        self.gone_at_ns.is_some_and(|at_ns| now_ns >= at_ns + timeout_ns + GRACE_NS)
    }
}

/// Packets that may be tried with a record's key: two at once, and then one each 50 ms.
const TRIES: Rate = Rate { per_second: 20, burst: 2 };

/// How long a session is kept beyond its timeout whose owner is gone: as its arbiter does.
const GRACE_NS: u64 = 5_000_000_000;
const NO_TIMEOUT_NS: u64 = 55_000_000_000;

/// Of each part, so many changes wait at the most.
pub(super) const CHANGES_MAX: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };
