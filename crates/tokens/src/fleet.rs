//! The service's side of etcd: what feeds the desk and what is registered, the lease of its blocks,
//! and the decisions about slots. Decides nothing itself.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::kv::{Range, key_after};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::lease::{Handed, Registration};
use ringgate_fleet::member::{self, Doubted, Member, MemberState, Role, Seat};
use ringgate_fleet::mirror::{Change, Machine, Truth};
use ringgate_fleet::values::{Refused, Service, Stored};

use crate::book::Held;
use crate::counters::add;
use crate::desk::Desk;
use crate::ledger::{Decision, Grounds, closing, reading};
use crate::service::{Plan, Shared};

/// What a token service reads, and what it says.
pub(crate) struct Tenant {
    shared: Arc<Shared>,
    /// Leases that are written for the next start.
    kept: Vec<i64>,
}

impl Role for Tenant {
    type Facts = ();

    fn value(&self, (): &(), doubted: &Doubted, now_s: u64) -> Result<Bytes, Refused> {
        let Shared { options, owner, started_s, .. } = &*self.shared;
        let value = Service {
            instance: owner.to_string(),
            host: options.host.to_string(),
            version: options.version.clone(),
            started: *started_s,
            written: now_s,
            doubt: doubted.number,
            held: doubted.held.clone(),
        };
        value.encode()
    }

    fn hear(&mut self, state: &mut MemberState, machine: &Machine, changes: &[Change]) {
        let now = self.shared.now();
        let mut desk = self.shared.desk();
        for change in changes {
            desk.hear(change, now);
        }
        desk.set_mirror(machine.truth().is_known(), machine.status().is_current);
        drop(desk);
        self.shared.set_member(&state.status);
    }

    fn hear_registration(&mut self, state: &MemberState, _: &Registration) {
        self.shared.set_member(&state.status);
        let mut leases = state.handed.leases();
        leases.reverse();
        if let Some(mut journal) = self.shared.journal().filter(|_| leases != self.kept) {
            journal.keep_leases(&leases);
            self.kept = leases;
        }
    }
}

/// Has the desk told what etcd knows, and the service registered. On the runtime that this is
/// called in.
pub(crate) fn join(shared: &Arc<Shared>, client: Client) -> Member<Tenant> {
    let Plan { keyspace, key, name, .. } = &shared.options;
    let plan = member::Plan {
        client,
        keyspace: keyspace.clone(),
        key: Some(key.clone()),
        prefix: keyspace.truth(),
        own: keyspace.key(&Place::Service(name.clone())),
        lease_s: REGISTRATION_TTL_S,
        copy: None,
        seed: shared.seed(),
        clock: shared.clock,
    };
    let state = plan.state(name, &Truth::default());
    let role = Tenant { shared: Arc::clone(shared), kept: Vec::new() };
    // What stands under the leases of the last start is this one's.
    let former = shared.journal().map(|it| it.leases()).unwrap_or_default();
    let registration = plan.registration(Handed { former, ..Handed::default() });
    let seat = Arc::new(Mutex::new(Seat { state, role }));
    let mut member = Member::start(plan, seat, Truth::default());
    member.register(registration, Some(()));
    member
}

/// Keeps the lease of all blocks.
pub(crate) async fn keep_lease(shared: Arc<Shared>, client: Client) {
    let mut waits = ringgate_fleet::backoff::Backoff::new(100, 3000, shared.seed());
    loop {
        let asked_ms = shared.now().ms;
        let held = shared.lease.load(Ordering::Relaxed);
        let answer = match held {
            0 => {
                let ttl_s = shared.desk().lease_s(shared.now());
                client.grant(ttl_s).await
            }
            id => client.keep_alive(id).await,
        };
        let wait_ms = match answer {
            Ok(lease) if lease.ttl_s > 0 && lease.id != 0 => {
                waits.reset();
                shared.lease.store(lease.id, Ordering::Relaxed);
                let ttl_ms = lease.ttl_s as u64 * 1000;
                shared.desk().set_leased(asked_ms + ttl_ms);
                (ttl_ms / 3).min(RENEW_MS_MAX)
            }
            Ok(_) => {
                lose_lease(&shared);
                0
            }
            Err(why) => {
                if why.is_lease_gone() {
                    lose_lease(&shared);
                } else {
                    shared.desk().miss_lease();
                }
                waits.next_wait_ms()
            }
        };
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

fn lose_lease(shared: &Shared) {
    if shared.lease.swap(0, Ordering::Relaxed) != 0 {
        add(&shared.counters.leases_lost, 1);
        let mut desk = shared.desk();
        desk.set_leased(0);
        desk.book_mut().lose_blocks();
    }
}

/// Gives back what was leased and is not used, and what earlier starts had beyond their promises.
pub(crate) async fn tidy(shared: Arc<Shared>, client: Client) {
    let before = shared.desk().book().before();
    let mut has_taken_over = before.is_empty();
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let now = shared.now();
        if let Some(mut journal) = shared.journal() {
            journal.tidy(now);
        }
        if !has_taken_over {
            has_taken_over = matches!(take_over(&shared, &client, &before).await, Ok(true));
        }
        let idle = shared.desk().book_mut().idle(now, IDLE_MS, TIDY_MAX);
        give_up(&shared, &client, idle).await;
    }
}

/// Takes over the blocks of these starts. Whether none is left.
async fn take_over(shared: &Shared, client: &Client, before: &[Name]) -> Result<bool, Error> {
    let keyspace = &shared.options.keyspace;
    let mut range = Range { limit: PAGE_KEYS, ..Range::prefix(&keyspace.all_slots()) };
    let mut left = BTreeSet::new();
    loop {
        let page = client.range(&range).await?;
        left.extend(page.kvs.iter().filter_map(|kv| match keyspace.place(&kv.key) {
            Some(Place::Block(backend, by)) if before.contains(&by) => Some(backend),
            _ => None,
        }));
        match page.kvs.last() {
            Some(last) if page.more => range.key = key_after(&last.key),
            _ => break,
        }
    }
    let is_done = left.is_empty();
    let now = shared.now();
    let free = |backend: &Name| shared.desk().book_mut().open(backend, now.unix_s).free();
    let left = left.into_iter().map(|backend| (backend.clone(), free(&backend)));
    give_up(shared, client, left.collect()).await;
    Ok(is_done)
}

/// Gives back what is free in these blocks, one after the other: slots of a block whose turn has
/// not come can still be promised.
async fn give_up(shared: &Shared, client: &Client, blocks: Vec<(Name, u32)>) {
    for (backend, wanted) in blocks {
        let now = shared.now();
        let is_decided_already = {
            let mut desk = shared.desk();
            let held = desk.book_mut().open(&backend, now.unix_s);
            std::mem::replace(&mut held.is_leasing, true)
        };
        if !is_decided_already {
            decide(shared, client, &backend, wanted).await;
        }
    }
}

/// Leases slots of a backend: so many that are free, or more. Whoever asks has marked the block.
pub(crate) async fn decide(shared: &Shared, client: &Client, backend: &Name, wanted: u32) {
    let _mark = Mark { shared, backend };
    for _ in 0..ATTEMPTS {
        match attempt(shared, client, backend, wanted).await {
            Ok(true) => {
                add(&shared.counters.decisions, 1);
                break;
            }
            Ok(false) => add(&shared.counters.decisions_lost, 1),
            Err(why) => {
                add(&shared.counters.decisions_failed, 1);
                tracing::debug!("no decision about the slots of {backend}: {why}");
                if why.is_lease_gone() {
                    lose_lease(shared);
                }
                break;
            }
        }
    }
    let now = shared.now();
    Desk::settle_dry(shared.desk().book_mut().open(backend, now.unix_s), now, wanted);
}

/// Takes the mark away and wakes those who wait, whatever happens to the request that leases.
struct Mark<'a> {
    shared: &'a Shared,
    backend: &'a Name,
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let now = self.shared.now();
        self.shared.desk().end_leasing(self.backend, now);
        self.shared.leased.notify_waiters();
    }
}

/// One decision. Whether it was written.
async fn attempt(
    shared: &Shared,
    client: &Client,
    backend: &Name,
    wanted: u32,
) -> Result<bool, Error> {
    let (keyspace, owner) = (&shared.options.keyspace, &shared.owner);
    let lease = shared.lease.load(Ordering::Relaxed);
    if lease == 0 {
        return Err(Error::Config("there is no lease yet".into()));
    }
    let read = client.txn(&reading(keyspace, backend)).await?;
    let now = shared.now();
    let (before, leased_until_s) = {
        let desk = shared.desk();
        (desk.book().before(), desk.leased_until_s(now))
    };
    let clock = (now.unix_s, leased_until_s);
    let grounds = Grounds::of(&read.found, keyspace, (owner, &before), clock);
    let decision: Decision = {
        let mut desk = shared.desk();
        let held: &mut Held = desk.book_mut().open(backend, now.unix_s);
        grounds.settle(held, now.unix_s);
        let decision = grounds.decide(held, wanted, now.unix_s);
        decision.venture(held, now.unix_s);
        decision
    };
    // What is written takes them out of the blocks in which they stand.
    shared.keep(&decision.promised(backend).collect::<Vec<_>>());
    if grounds.is_as_decided(&decision) {
        let (now, mut desk) = (shared.now(), shared.desk());
        decision.apply(desk.book_mut().open(backend, now.unix_s), 0);
        return Ok(true);
    }
    let writing = grounds.writing(&decision, keyspace, backend, owner, lease);
    let txn = writing.map_err(|why| Error::Config(why.to_string()))?;
    let written = client.txn(&txn).await?;
    // Where the answer is lost, the block in etcd may be larger than what is held, and never
    // smaller: nobody else promises these slots, and the next decision looks again.
    if written.held && shared.lease.load(Ordering::Relaxed) == lease {
        let (now, mut desk) = (shared.now(), shared.desk());
        let held = desk.book_mut().open(backend, now.unix_s);
        decision.apply(held, written.header.revision);
    }
    Ok(written.held)
}

/// Writes what is left of the blocks before the service ends: what it has promised, and until when.
/// Nothing may be promised any more. Whether all of it is there.
pub(crate) async fn close(shared: &Shared, client: &Client) -> bool {
    let lease = shared.lease.load(Ordering::Relaxed);
    let closed = shared.desk().book_mut().close(shared.now());
    let (keyspace, owner) = (&shared.options.keyspace, &shared.owner);
    let mut is_left = true;
    for blocks in closed.chunks(CLOSED_AT_A_TIME) {
        let closing = closing(keyspace, owner, lease, blocks);
        let closing = closing.map_err(|why| Error::Config(why.to_string()));
        let done = match closing {
            Ok(txn) => client.txn(&txn).await.map(drop),
            Err(why) => Err(why),
        };
        match done {
            Ok(()) => add(&shared.counters.decisions, blocks.len() as u64),
            Err(why) => {
                is_left = false;
                add(&shared.counters.decisions_failed, blocks.len() as u64);
                tracing::warn!(
                    event = "slots_not_given_back",
                    "the slots of {} backends stay leased until the lease ends: {why}",
                    blocks.len()
                );
            }
        }
    }
    is_left
}

const REGISTRATION_TTL_S: i64 = 10;
/// Often enough to learn soon that etcd is away.
const RENEW_MS_MAX: u64 = 5000;
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Slots that were not needed for so long are given back.
const IDLE_MS: u64 = 5000;
/// Blocks that are asked for at a time.
const PAGE_KEYS: i64 = 500;
/// Backends that are looked at in one go.
const TIDY_MAX: usize = 64;
/// etcd decides about 128 keys in one transaction; each block has two.
const CLOSED_AT_A_TIME: usize = 60;
/// How often a decision is tried again when another service was faster.
const ATTEMPTS: u32 = 8;
