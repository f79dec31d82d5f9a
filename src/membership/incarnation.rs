//! Which process of its cluster this gateway is, among all that ever were: one more than the last,
//! by a transaction in etcd. Numbers of packets have it in them, so no two processes may be the
//! same one.
//!
//! An etcd that was emptied or restored may have forgotten the last ones. So a gateway that sees
//! another history raises the count there to the largest that it has met, and nobody takes one from
//! it before all have had the time for that, as with tokens. A process that starts has met the one
//! before it, by what that has left in `state_dir`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringgate_cluster::Incarnation;
use ringgate_fleet::etcd::kv::{Header, KeyValue, Range};
use ringgate_fleet::etcd::txn::{Compare, Op, Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Incarnations, Stored};
use ringgate_gate::Standbys;

/// Counts this process.
pub(super) struct Counter {
    client: Client,
    key: Bytes,
    standbys: Arc<Standbys>,
}

/// Where a cluster's count stands.
pub(super) fn key(keyspace: &Keyspace, cluster: &str) -> Option<Bytes> {
    Some(keyspace.key(&Place::Incarnations(Name::new(cluster)?)))
}

/// What the count says.
enum Counted {
    /// It was raised to this.
    Raised(u16),
    /// Another process was faster, or etcd is not believed.
    Again,
    /// It is no count, or the last there is.
    Never(String),
}

impl Counter {
    /// `None` where the cluster's name cannot stand in etcd, which the config has made sure of.
    pub(super) fn new(
        client: Client,
        keyspace: &Keyspace,
        cluster: &str,
        standbys: Arc<Standbys>,
    ) -> Option<Self> {
        Some(Self { client, key: key(keyspace, cluster)?, standbys })
    }

    /// Goes on until it is dropped. `trusts` says whether etcd may answer, and whether it may have
    /// answered under a header; `rewritten`, when another history was last seen.
    pub(super) async fn run(
        self,
        trusts: impl Fn(Option<&Header>) -> bool + Send + Sync,
        rewritten: impl Fn() -> Option<u64> + Send,
    ) {
        let mut raised_in = None;
        loop {
            let history = rewritten();
            match self.standbys.incarnation() {
                None if trusts(None) => match self.raise(1, &trusts).await {
                    Ok(Counted::Raised(number)) => {
                        self.standbys.set_incarnation(Incarnation(number));
                        raised_in = Some(history);
                        continue;
                    }
                    Ok(Counted::Never(why)) => {
                        tracing::error!(
                            event = "cluster_incarnation_refused",
                            "no other gateway can go on with sessions of this one: {why}"
                        );
                        return;
                    }
                    Ok(Counted::Again) | Err(_) => {}
                },
                Some(_) if raised_in != Some(history) => {
                    // Whether that history is believed or not.
                    let raised = self.raise(0, &|_| true).await;
                    if matches!(raised, Ok(Counted::Raised(_) | Counted::Never(_))) {
                        raised_in = Some(history);
                    }
                }
                _ => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Makes the count so much more than the last process, unless somebody else does meanwhile.
    async fn raise(
        &self,
        by: u16,
        trusts: &(impl Fn(Option<&Header>) -> bool + Sync),
    ) -> Result<Counted, Error> {
        let found = self.client.range(&Range::one(self.key.clone())).await?;
        if !trusts(Some(&found.header)) {
            return Ok(Counted::Again);
        }
        let found = found.kvs.first();
        let before = match found.map(|kv| Incarnations::decode(&kv.value)).transpose() {
            Ok(before) => before.map_or(0, |it| it.last),
            Err(why) => return Ok(Counted::Never(why.to_string())),
        };
        let Some(last) = before.max(self.standbys.latest().0).checked_add(by) else {
            return Ok(Counted::Never("the cluster has had its last process".to_owned()));
        };
        if last == before {
            return Ok(Counted::Raised(last));
        }
        let value = Incarnations { last }.encode();
        let value = value.map_err(|why| Error::Config(why.to_string()))?;
        let key = self.key.clone();
        let unchanged = |kv: &KeyValue| Compare::Unchanged(key.clone(), kv.mod_revision);
        let when = vec![found.map_or_else(|| Compare::Absent(key.clone()), unchanged)];
        let then = vec![Op::Put(Put { key, value, lease: 0 })];
        let decided = self.client.txn(&Txn { when, then, ..Txn::default() }).await?;
        let is_ours = decided.held && trusts(Some(&decided.header));
        Ok(if is_ours { Counted::Raised(last) } else { Counted::Again })
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(200);
