//! Whose the names of game processes are, for all gateways and agents of a host: each name that a
//! process has been linked by stands at `PREFIX/claim/name/HOST/NAME` with its user, as long as the
//! process is there and through grace. Whoever takes announcements at that host looks there first.
//!
//! What is a user's stands under a lease that outlives its holder by grace. When the process has
//! gone, it goes on under one that ends with grace, unless another gateway or agent of that host
//! has written it since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::Error;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::txn::{Compare, Delete, Op, Put, Txn};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::member::Plan;
use ringgate_fleet::values::{NameClaim, Stored};

use super::announced::{Hold, Registry};

/// What keeps them.
pub(crate) struct Names {
    plan: Plan,
    host: Name,
    registry: Registry,
}

/// What was written, and how.
#[derive(Default)]
struct Written {
    /// The lease of the names that processes have; 0 for none.
    lease: i64,
    grace_s: i64,
    renew_at_ms: u64,
    /// When etcd's history was last another one.
    rewritten_at_ms: Option<u64>,
    /// By name: how it stands for whom, and under which lease that was written.
    names: BTreeMap<String, (u32, Hold, i64)>,
}

impl Names {
    /// Those of the game processes of one gateway or agent.
    pub(crate) fn of(plan: &Plan, registry: &Registry) -> Self {
        let host = registry.book().host().clone();
        Self { plan: plan.clone(), host, registry: registry.clone() }
    }

    /// Goes on until it is dropped. From now on nobody is told of a name before it was looked at.
    /// `rewritten` says when another history was last seen.
    pub(crate) fn keep(
        self,
        rewritten: impl Fn() -> Option<u64> + Send,
    ) -> impl Future<Output = ()> {
        self.registry.book().look_first();
        self.run(rewritten)
    }

    async fn run(self, rewritten: impl Fn() -> Option<u64> + Send) {
        let (mut written, mut looked_ms) = (Written::default(), 0);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let rewritten_at_ms = rewritten();
            if written.rewritten_at_ms != rewritten_at_ms {
                // What was written, and its lease, may not be there.
                written = Written { rewritten_at_ms, ..Written::default() };
            }
            let now_ms = self.plan.now_ms();
            let all = now_ms >= looked_ms + LOOK_AGAIN_MS;
            if all {
                looked_ms = now_ms;
            }
            let done = self.look(all).await;
            if done.is_err() || self.tell(&mut written).await.is_err() {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }

    fn key(&self, name: &str) -> Option<Bytes> {
        Some(self.plan.keyspace.key(&Place::Owned(self.host.clone(), Name::new(name)?)))
    }

    /// Looks whose the names are that were announced.
    async fn look(&self, all: bool) -> Result<(), Error> {
        let names = self.registry.book().to_look(all);
        let names: Vec<_> = names.into_iter().filter_map(|it| Some((self.key(&it)?, it))).collect();
        for some in names.chunks(AT_A_TIME) {
            let then = some.iter().map(|(key, _)| Op::Range(Range::one(key.clone()))).collect();
            let found = self.plan.client.txn(&Txn { then, ..Txn::default() }).await?.found;
            for (key, name) in some {
                let found = found.iter().find(|kv| kv.key == *key);
                let owner = found.and_then(|kv| NameClaim::decode(&kv.value).ok());
                if self.registry.book().looked(name, owner.map(|it| it.uid)) {
                    self.registry.tell_news();
                    tracing::warn!(
                        event = "fleet_announcement_refused",
                        backend = name,
                        reason = "name_taken",
                        "game process {name} is not registered: its name is another user's at this host"
                    );
                }
            }
        }
        Ok(())
    }

    /// Writes whose the names are that processes here have, or have had.
    async fn tell(&self, written: &mut Written) -> Result<(), Error> {
        let (held, grace_ms) = {
            let book = self.registry.book();
            (book.held(), book.grace_ms())
        };
        let grace_s = i64::try_from(grace_ms.div_ceil(1000)).unwrap_or(i64::MAX).max(1);
        if held.is_empty() && written.names.is_empty() {
            return Ok(());
        }
        self.keep_lease(written, grace_s).await?;
        let Written { lease, names, .. } = written;
        let mut ending = 0;
        for (name, uid, how) in &held {
            let before = names.get(name).copied();
            let is_told = match (how, before) {
                // It stands as it stood until the fleet has the process.
                (Hold::Waits, _) => true,
                (Hold::Process, before) => before == Some((*uid, Hold::Process, *lease)),
                (Hold::Kept, before) => before.is_some_and(|it| it.1 == Hold::Kept),
            };
            let Some(key) = self.key(name).filter(|_| !is_told) else { continue };
            let value = NameClaim { uid: *uid };
            let value = value.encode().map_err(|why| Error::Config(why.to_string()))?;
            if *how == Hold::Process {
                self.plan.client.put(&Put { key, value, lease: *lease }).await?;
                names.insert(name.clone(), (*uid, Hold::Process, *lease));
                continue;
            }
            if ending == 0 {
                ending = self.plan.client.grant(grace_s).await?.id;
            }
            // Another process of that user may be at another gateway or agent by now.
            let by = before.map_or(*lease, |it| it.2);
            for when in [Compare::Lease(key.clone(), by), Compare::Absent(key.clone())] {
                let put = Put { key: key.clone(), value: value.clone(), lease: ending };
                let txn = Txn { when: vec![when], then: vec![Op::Put(put)], ..Txn::default() };
                if self.plan.client.txn(&txn).await?.held || before.is_some() {
                    break;
                }
            }
            names.insert(name.clone(), (*uid, Hold::Kept, ending));
        }
        let here: BTreeSet<_> = held.iter().map(|(name, ..)| name).collect();
        let over = names.keys().filter(|name| !here.contains(name)).cloned();
        for name in over.collect::<Vec<_>>() {
            if let (Some(key), Some((.., by))) = (self.key(&name), names.get(&name)) {
                let when = vec![Compare::Lease(key.clone(), *by)];
                let then = vec![Op::Delete(Delete { key, end: Bytes::new() })];
                self.plan.client.txn(&Txn { when, then, ..Txn::default() }).await?;
            }
            names.remove(&name);
        }
        Ok(())
    }

    async fn keep_lease(&self, written: &mut Written, grace_s: i64) -> Result<(), Error> {
        let (now_ms, lease_s) = (self.plan.now_ms(), self.plan.lease_s);
        let is_as_long = written.grace_s == grace_s;
        if is_as_long && now_ms < written.renew_at_ms {
            return Ok(());
        }
        let is_kept = written.lease != 0
            && is_as_long
            && match self.plan.client.keep_alive(written.lease).await {
                Ok(lease) => lease.ttl_s > 0,
                Err(why) if why.is_lease_gone() => false,
                Err(why) => return Err(why),
            };
        if !is_kept {
            let lease = self.plan.client.grant(lease_s.saturating_add(grace_s)).await?;
            (written.lease, written.grace_s) = (lease.id, grace_s);
        }
        written.renew_at_ms = now_ms + lease_s.max(3).unsigned_abs() * 1000 / 3;
        Ok(())
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Names that are another user's may be free by now.
const LOOK_AGAIN_MS: u64 = 1_000;
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// etcd decides about 128 keys in one transaction.
const AT_A_TIME: usize = 100;
