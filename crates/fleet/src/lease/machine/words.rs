//! What a registration writes as the fleet's word, so that whoever doubts what etcd says can see
//! what is newer, and that what goes was given up by its owner.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::etcd::txn::{Op, Put, Txn};
use crate::keyspace::{Keyspace, Place};
use crate::seal::FleetKey;

/// The fleet's key, and where its words stand.
#[derive(Debug)]
pub struct Words {
    keyspace: Keyspace,
    key: FleetKey,
    /// When the registration's clock began, in milliseconds since 1970. What is written later has a
    /// higher counter, over all starts of a process.
    began_unix_ms: u64,
    /// The highest counter that was written.
    said: AtomicU64,
}

impl Words {
    /// Words of this fleet.
    pub const fn new(keyspace: Keyspace, key: FleetKey, began_unix_ms: u64) -> Self {
        Self { keyspace, key, began_unix_ms, said: AtomicU64::new(0) }
    }

    /// The same behind a process that has written this counter: its clock may have been ahead.
    pub(super) fn behind(self, said: u64) -> Self {
        let began_unix_ms = self.began_unix_ms.max(said.saturating_add(1));
        Self { began_unix_ms, said: said.into(), ..self }
    }

    /// The highest counter that was written.
    pub(super) fn said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    /// The value with the word for it. Without random numbers it goes without one.
    pub(super) fn vouch(&self, key: &Bytes, value: &Bytes, now_ms: u64) -> Bytes {
        let counter = self.began_unix_ms.saturating_add(now_ms);
        self.said.fetch_max(counter, Ordering::Relaxed);
        self.key.vouch(key, value, counter).unwrap_or_else(|_| value.clone())
    }

    /// Writes that everything under `lease` is about to go.
    pub(super) fn farewell(&self, lease: i64, under: i64, now_ms: u64) -> Txn {
        let put = self.gone(self.keyspace.key(&Place::Gone(lease)), under, now_ms);
        Txn { when: Vec::new(), then: vec![Op::Put(put)], or_else: Vec::new() }
    }

    /// Where it is written that what stands at a key has ended.
    pub(super) fn end_of(&self, key: &[u8]) -> Option<Bytes> {
        let rest = key.strip_prefix(&*self.keyspace.truth())?;
        Some([&self.keyspace.gone()[..], rest].concat().into())
    }

    /// Writes at such a key.
    pub(super) fn gone(&self, key: Bytes, under: i64, now_ms: u64) -> Put {
        let value = self.vouch(&key, &Bytes::from_static(br#"{"v":1}"#), now_ms);
        Put { key, value, lease: under }
    }
}
