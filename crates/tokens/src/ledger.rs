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
//! A block shrinks before its tokens have expired where that is certain: if nobody else holds
//! slots there, nobody did at our last decision, and nobody has decided since, then the players
//! who have come since are ours. Those of them come first whose promise has ended since.

use ringgate_fleet::etcd::kv::{KeyValue, Range};
use ringgate_fleet::etcd::txn::{Compare, Delete, Op, Put, Txn};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Backend, Block, Guard, Refused, Stored};

use crate::book::Held;

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
    /// Promises that had ended by then.
    pub ended: u32,
}

/// The transaction that reads the grounds.
pub fn reading(keyspace: &Keyspace, backend: &Name) -> Txn {
    let one = Range::one(keyspace.key(&Place::Backend(backend.clone())));
    let all = Range::prefix(&keyspace.slots(backend));
    Txn { then: vec![Op::Range(one), Op::Range(all)], ..Txn::default() }
}

impl Grounds {
    /// What the transaction has found. A block that cannot be read stands for all there is.
    pub fn of(found: &[KeyValue], keyspace: &Keyspace, service: &Name) -> Self {
        let mut grounds = Self::default();
        for kv in found {
            match keyspace.place(&kv.key) {
                Some(Place::Backend(_)) => grounds.backend = Backend::decode(&kv.value).ok(),
                Some(Place::Guard(_)) => grounds.guard = Some(kv.mod_revision),
                Some(Place::Block(_, by)) => {
                    let slots = Block::decode(&kv.value).map_or(u32::MAX, |block| block.slots);
                    if by == *service {
                        grounds.own = Some(slots);
                    } else {
                        grounds.others = grounds.others.saturating_add(slots);
                    }
                }
                _ => {}
            }
        }
        grounds
    }

    /// What to do, where so many free slots are wanted. More are taken if there are many, so that
    /// not every player costs a decision; none, to give back what is free.
    pub fn decide(&self, held: &Held, wanted: u32) -> Decision {
        let Some(backend) = &self.backend else {
            let (used, instance) = (held.used_then, held.instance.clone());
            let (block, ended) = (held.pending(), held.ended_since);
            return Decision { settled: 0, block, used, instance, alone: false, ended };
        };
        let settled = self.settled(held, backend);
        let pending = held.pending() - settled;
        let taken = backend.used.saturating_add(self.others).saturating_add(pending);
        let free = backend.slots.saturating_sub(taken);
        let granted = match wanted {
            0 => 0,
            wanted => free.min(wanted.max(free.div_ceil(2))),
        };
        let instance = backend.instance.clone();
        let (used, block) = (backend.used, pending + granted);
        let (alone, ended) = (self.others == 0, held.ended_since);
        Decision { settled, block, used, instance, alone, ended }
    }

    /// How many of our players have come for certain.
    fn settled(&self, held: &Held, backend: &Backend) -> u32 {
        let is_alone = self.others == 0
            && held.alone_then
            && self.own.is_some()
            && self.guard == Some(held.decided_at)
            && backend.instance == held.instance;
        let came = backend.used.saturating_sub(held.used_then);
        let came = came.saturating_sub(held.ended_since);
        if is_alone { came.min(held.pending()) } else { 0 }
    }

    /// Whether nothing is there that would have to be written.
    pub const fn is_as_decided(&self, decision: &Decision) -> bool {
        self.own.is_none() && decision.block == 0
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
        match decision.block {
            0 => then.push(Op::Delete(Delete { key: block, ..Delete::default() })),
            slots => {
                let value = Block { slots }.encode()?;
                then.push(Op::Put(Put { key: block, value, lease }));
            }
        }
        Ok(Txn { when: vec![when], then, or_else: Vec::new() })
    }
}

impl Decision {
    /// Called before the decision is written, because the answer may be lost, or the transaction
    /// done long after nobody waits for it: until a later decision knows better, no more is
    /// promised than both the block as it was and the one that was decided have.
    pub fn venture(&self, held: &mut Held) {
        held.granted = held.granted.min(self.block.max(held.pending()));
        held.written = held.written.max(self.block);
    }

    /// Takes over what is written, at this revision.
    pub fn apply(self, held: &mut Held, revision: i64) {
        held.settle(self.settled);
        // Promises may have been made, or have ended, since the grounds were read.
        held.granted = self.block.max(held.pending());
        held.written = self.block;
        held.decided_at = revision;
        held.used_then = self.used;
        held.ended_since = held.ended_since.saturating_sub(self.ended);
        held.instance = self.instance;
        held.alone_then = self.alone;
    }
}
