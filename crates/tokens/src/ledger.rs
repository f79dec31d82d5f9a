//! How several services share a backend's slots: by transactions in etcd, one backend at a time.
//!
//! ```text
//! read    the backend, the guard, every service's block        at one revision
//! decide  free = slots - used - blocks of others - our promises
//! write   guard, our block               only if the guard has not changed since
//! ```
//!
//! Every decision changes the guard, so no two services decide on the same grounds. What is
//! granted plus what is used is at most what there is, at the moment of the decision; afterwards
//! players only move from blocks to the backend, where they may count twice for a while.
//!
//! A service that ends leaves its blocks behind *closed*: with the ends of its promises, which
//! count for others until then. The next start of that name takes them into its own block. Of a
//! service that was killed the next start has the promises from its `journal`, if it kept one: then
//! that block is taken over as it stands, and holds nothing beside these.
//!
//! A block shrinks before its tokens have expired where that is certain. A backend that tells whose
//! players have come settles just their promises. Of one that does not: if nobody else holds slots
//! there, nobody did at our last decision, and nobody has decided since, then the players who have
//! come since are ours. Those of them come first whose promise has ended since.

use bytes::Bytes;
use ringgate_fleet::etcd::kv::{KeyValue, Range};
use ringgate_fleet::etcd::txn::{Compare, Delete, Op, Put, Txn};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Backend, Block, Guard, Refused, Stored};

use crate::book::Held;
use crate::journal::Promised;

/// What a decision stands on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grounds {
    /// The backend; `None` if there is none, or none that can be read.
    pub backend: Option<Backend>,
    /// The revision of the last decision; `None` if there was none.
    pub guard: Option<i64>,
    /// Slots in blocks of others.
    pub others: u32,
    /// Slots in our own block, as it stands.
    pub own: Option<u32>,
    /// What earlier starts of this service have left behind.
    pub left_behind: Vec<(Name, Block)>,
}

/// What was decided, to be taken over once it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Promises whose players have come.
    pub settled: u32,
    /// The size of our block from now on.
    pub block: u32,
    /// How many players the backend has.
    pub used: u32,
    /// Which start of the backend it is.
    pub instance: String,
    /// Whether nobody else holds slots there.
    pub alone: bool,
    /// Slots that others hold there.
    pub others: u32,
    /// Promises that had ended by then.
    pub ended: u32,
    /// Promises of earlier starts of this service that are ours from now on.
    pub inherited: Vec<(Name, Block)>,
}

/// The transaction that reads the grounds.
pub fn reading(keyspace: &Keyspace, backend: &Name) -> Txn {
    let one = Range::one(keyspace.key(&Place::Backend(backend.clone())));
    let all = Range::prefix(&keyspace.slots(backend));
    Txn { then: vec![Op::Range(one), Op::Range(all)], ..Txn::default() }
}

impl Grounds {
    /// What the transaction has found. A block that cannot be read stands for all there is. All
    /// promises of the starts `before` are in the book already. No promise is taken over that the
    /// lease of our blocks may not outlive: it stands under one that does.
    pub fn of(
        found: &[KeyValue],
        keyspace: &Keyspace,
        (service, before): (&Name, &[Name]),
        (now_s, leased_until_s): (u64, u64),
    ) -> Self {
        let mut grounds = Self::default();
        for kv in found {
            match keyspace.place(&kv.key) {
                Some(Place::Backend(_)) => grounds.backend = Backend::decode(&kv.value).ok(),
                Some(Place::Guard(_)) => grounds.guard = Some(kv.mod_revision),
                Some(Place::Block(_, by)) => {
                    let block = Block::decode(&kv.value);
                    let slots = block.as_ref().map_or(u32::MAX, |block| block.holds(now_s));
                    match block {
                        _ if by == *service => grounds.own = Some(slots),
                        _ if before.contains(&by) => {
                            let block = Block { slots: 0, promised: Vec::new(), closed: true };
                            grounds.left_behind.push((by, block));
                        }
                        Ok(block)
                            if block.closed
                                && is_start_of_same(&by, service)
                                && block.promised.iter().all(|it| it.0 <= leased_until_s)
                                && grounds.has_room_for(&block, now_s) =>
                        {
                            grounds.left_behind.push((by, block));
                        }
                        _ => grounds.others = grounds.others.saturating_add(slots),
                    }
                }
                _ => {}
            }
        }
        grounds
    }

    /// Whether the promises of an earlier start can be taken over. Whoever may write to etcd may
    /// say any number.
    fn has_room_for(&self, block: &Block, now_s: u64) -> bool {
        let held = |block: &Block| u64::from(block.promises(now_s));
        let before: u64 = self.left_behind.iter().map(|(_, it)| held(it)).sum();
        before + held(block) <= INHERITED_MAX
    }

    /// Forgets the promises whose players are among those whom the backend has by these grounds.
    pub fn settle(&self, held: &mut Held, now_s: u64) {
        if let Some(backend) = &self.backend {
            held.settle(backend, now_s);
        }
    }

    /// What to do, where so many free slots are wanted. More are taken if there are many, so that
    /// not every player costs a decision; none, to give back what is free.
    pub fn decide(&self, held: &Held, wanted: u32, now_s: u64) -> Decision {
        let unknown = |block: &&(Name, Block)| !held.has_heired(&block.0);
        let inherited: Vec<_> = self.left_behind.iter().filter(unknown).cloned().collect();
        let left: u32 = inherited.iter().map(|(_, block)| block.promises(now_s)).sum();
        let Some(backend) = &self.backend else {
            let (used, instance) = (held.used_then, held.instance.clone());
            let (block, ended) = (held.pending() + left, held.ended_since);
            let (alone, others) = (false, self.others);
            return Decision { settled: 0, block, used, instance, alone, others, ended, inherited };
        };
        let settled = self.settled(held, backend);
        let pending = held.pending() - settled + left;
        let taken = backend.used.saturating_add(self.others).saturating_add(pending);
        let free = backend.slots.saturating_sub(taken);
        let granted = match wanted {
            0 => 0,
            wanted => free.min(wanted.max(free.div_ceil(2))),
        };
        let instance = backend.instance.clone();
        let (used, block) = (backend.used, pending + granted);
        let (alone, others, ended) = (self.others == 0, self.others, held.ended_since);
        Decision { settled, block, used, instance, alone, others, ended, inherited }
    }

    /// How many of our players have come for certain.
    fn settled(&self, held: &Held, backend: &Backend) -> u32 {
        let is_alone = self.others == 0
            && held.alone_then
            && self.own.is_some()
            && self.guard == Some(held.decided_at)
            && backend.instance == held.instance
            // Else who has come is known by name, and is settled by name.
            && !(backend.joined.is_some() && held.is_tagged());
        let came = backend.used.saturating_sub(held.used_then);
        let came = came.saturating_sub(held.ended_since);
        if is_alone { held.settling(came) } else { 0 }
    }

    /// Whether nothing is there that would have to be written.
    pub const fn is_as_decided(&self, decision: &Decision) -> bool {
        self.own.is_none() && decision.block == 0 && self.left_behind.is_empty()
    }

    /// The transaction that writes a decision, under the lease of this service's blocks.
    pub fn writing(
        &self,
        decision: &Decision,
        keyspace: &Keyspace,
        backend: &Name,
        service: &Name,
        lease: i64,
    ) -> Result<Txn, Refused> {
        let guard = keyspace.key(&Place::Guard(backend.clone()));
        let block = keyspace.key(&Place::Block(backend.clone(), service.clone()));
        let when = match self.guard {
            Some(revision) => Compare::Unchanged(guard.clone(), revision),
            None => Compare::Absent(guard.clone()),
        };
        let value = Guard { by: service.to_string() }.encode()?;
        let mut then = vec![Op::Put(Put { key: guard, value, lease })];
        let stands = Block { slots: decision.block, promised: Vec::new(), closed: false };
        then.push(standing(block, &stands, lease)?);
        for (by, _) in &self.left_behind {
            let key = keyspace.key(&Place::Block(backend.clone(), by.clone()));
            then.push(Op::Delete(Delete { key, ..Delete::default() }));
        }
        Ok(Txn { when: vec![when], then, or_else: Vec::new() })
    }
}

/// The most promises of earlier starts that are taken over at once.
pub(crate) const INHERITED_MAX: u64 = 1 << 16;

/// A block as it is to stand there: an empty one does not.
fn standing(key: Bytes, block: &Block, lease: i64) -> Result<Op, Refused> {
    Ok(match block.slots {
        0 => Op::Delete(Delete { key, ..Delete::default() }),
        _ => Op::Put(Put { key, value: block.encode()?, lease }),
    })
}

/// The transaction that writes what a service leaves behind when it ends. What is still on its way
/// of its own decisions does not hold any more, because the guards change.
pub fn closing(
    keyspace: &Keyspace,
    service: &Name,
    lease: i64,
    blocks: &[(Name, Block)],
) -> Result<Txn, Refused> {
    let mut txn = Txn::default();
    for (backend, block) in blocks {
        let key = keyspace.key(&Place::Guard(backend.clone()));
        let value = Guard { by: service.to_string() }.encode()?;
        txn.then.push(Op::Put(Put { key, value, lease }));
        let key = keyspace.key(&Place::Block(backend.clone(), service.clone()));
        txn.then.push(standing(key, block, lease)?);
    }
    Ok(txn)
}

/// Whether two starts are of services of the same name: what stands behind the last point of it
/// tells them apart.
fn is_start_of_same(one: &Name, other: &Name) -> bool {
    let name = |it: &Name| it.as_str().rsplit_once('.').map(|(name, _)| name.to_owned());
    one != other && name(one).is_some() && name(one) == name(other)
}

impl Decision {
    /// The promises of earlier starts that are ours from now on, to be written down.
    pub fn promised(&self, backend: &Name) -> impl Iterator<Item = Promised> {
        let blocks = self.inherited.iter().flat_map(|(_, block)| &block.promised);
        blocks.map(|(until_s, count)| Promised {
            backend: backend.clone(),
            until_s: *until_s,
            tokens: Vec::new(),
            nameless: *count,
        })
    }

    /// Called before the decision is written, because the answer may be lost, or the transaction
    /// done long after nobody waits for it: until a later decision knows better, no more is
    /// promised than both the block as it was and the one that was decided have.
    pub fn venture(&self, held: &mut Held, now_s: u64) {
        for (owner, block) in &self.inherited {
            held.inherit(owner, block, now_s);
        }
        held.granted = held.granted.min(self.block.max(held.pending()));
        held.written = held.written.max(self.block);
    }

    /// Takes over what is written, at this revision.
    pub fn apply(self, held: &mut Held, revision: i64) {
        held.forget(self.settled);
        // Promises may have been made, or have ended, since the grounds were read.
        held.granted = self.block.max(held.pending());
        held.written = self.block;
        held.decided_at = revision;
        held.used_then = self.used;
        held.ended_since = held.ended_since.saturating_sub(self.ended);
        held.instance = self.instance;
        held.alone_then = self.alone;
        held.others = self.others;
    }
}
