//! The service's side of etcd: the mirror that feeds the desk, the registration, the lease of its
//! blocks, and the decisions about slots. Decides nothing itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::kv::{Range, key_after};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::lease::{self, Handed, Registration, Words};
use ringgate_fleet::mirror::{self, Machine, Reads, Truth};
use ringgate_fleet::values::{Refused, Service, Stored};
use ringgate_os::clock;
use tokio::sync::mpsc;

use crate::book::Held;
use crate::counters::add;
use crate::desk::Desk;
use crate::ledger::{Decision, Grounds, closing, reading};
use crate::service::{Plan, Shared};

/// Keeps the desk true for as long as the service lives.
pub(crate) async fn mirror(
    shared: Arc<Shared>,
    client: Client,
    commands: mpsc::Receiver<mirror::run::Command>,
) {
    let truth = shared.options.keyspace.truth();
    let reads = Reads::new(Some(shared.options.key.clone()));
    let options = mirror::Options::new(truth, reads, shared.seed());
    let machine = Machine::new(options, Truth::default());
    let seer = Arc::clone(&shared);
    let see = move |machine: &Machine, changes: Vec<mirror::Change>| {
        let now = seer.now();
        let mut desk = seer.desk();
        for change in &changes {
            desk.hear(change, now);
        }
        let status = machine.status();
        desk.set_mirror(machine.truth().is_known(), status.is_current);
        drop(desk);
        seer.see_mirror(status);
    };
    mirror::run::run(machine, client, commands, see).await;
}

/// Writes this service's key, and keeps it there.
pub(crate) async fn register(
    shared: Arc<Shared>,
    client: Client,
    commands: mpsc::Receiver<lease::run::Command>,
) {
    // What stands under the leases of the last start is this one's.
    let former = shared.journal().map(|it| it.leases()).unwrap_or_default();
    let handed = Handed { former, ..Handed::default() };
    let mut registration = Registration::adopt(REGISTRATION_TTL_S, shared.seed(), handed);
    let Plan { keyspace, key, .. } = &shared.options;
    let began_ms = clock::unix_ns() / NS_PER_MS;
    registration.vouch_with(Words::new(keyspace.clone(), key.clone(), began_ms));
    match own_value(&shared) {
        Ok(value) => registration.set(own_key(&shared), value),
        Err(why) => tracing::error!("this service cannot register: {why}"),
    }
    let seer = Arc::clone(&shared);
    let mut written = Vec::new();
    let see = move |_, registration: &Registration| {
        seer.see_space(registration.lacks_space());
        let Handed { lease, mut former, .. } = registration.handed();
        former.extend(Some(lease).filter(|it| *it != 0));
        if let Some(mut journal) = seer.journal().filter(|_| former != written) {
            journal.keep_leases(&former);
            written = former;
        }
    };
    lease::run::run(registration, client, commands, see).await;
}

fn own_key(shared: &Shared) -> Bytes {
    let options = &shared.options;
    options.keyspace.key(&Place::Service(options.name.clone()))
}

fn own_value(shared: &Shared) -> Result<Bytes, Refused> {
    let options = &shared.options;
    let (doubt, held) = shared.held();
    let value = Service {
        instance: shared.owner.to_string(),
        host: options.host.to_string(),
        version: options.version.clone(),
        started: shared.started_s,
        written: clock::unix_seconds(),
        doubt,
        held,
    };
    value.encode()
}

/// Writes this service's key anew now and then, and when it holds something back: others see that,
/// that it is not stuck, and what time it is here.
pub(crate) async fn write_anew(shared: Arc<Shared>, register: mpsc::Sender<lease::run::Command>) {
    loop {
        let news = shared.holds.notified();
        let _ = tokio::time::timeout(WRITE_EVERY, news).await;
        let Ok(value) = own_value(&shared) else { return };
        if register.send(lease::run::Command::Set(own_key(&shared), value)).await.is_err() {
            return;
        }
    }
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

const NS_PER_MS: u64 = 1_000_000;
const REGISTRATION_TTL_S: i64 = 10;
const WRITE_EVERY: Duration = Duration::from_mins(1);
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
