//! The service's side of etcd: what feeds the desk and what is registered, the lease of its blocks,
//! and the decisions about slots. Decides nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringgate_core::secret::Key;
use ringgate_fleet::clocks;
use ringgate_fleet::epochs::{self, Epoch};
use ringgate_fleet::etcd::kv::{Range, key_after};
use ringgate_fleet::etcd::txn::{Delete, Put, Txn};
use ringgate_fleet::etcd::{Client, Error};
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::lease::{Handed, Registration};
use ringgate_fleet::member::{self, Doubted, Facts, Member, MemberState, Role, Seat};
use ringgate_fleet::mirror::{Change, Machine, Truth};
use ringgate_fleet::values::{Refused, Service, Stored};

use crate::book::Held;
use crate::claims::{self, Claim, Claiming, ending};
use crate::counters::add;
use crate::desk::{Desk, Placed};
use crate::ledger::{Decision, Grounds, closing, reading};
use crate::refusal::Refusal;
use crate::service::{Plan, Shared};

/// What a token service reads, and what it says.
pub(crate) struct Tenant {
    shared: Arc<Shared>,
    /// Leases that are written for the next start.
    kept: Vec<i64>,
    was_told: bool,
    /// When the history of etcd that is believed was seen first, where it is not the first one.
    rewritten_at_ms: Option<u64>,
}

/// The other services that find what this one promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beside(pub(crate) Vec<String>);

impl Facts for Beside {
    fn is_news(&self, written: &Self, _age_ms: u64) -> bool {
        self != written
    }
}

impl Role for Tenant {
    type Facts = Beside;

    fn value(
        &self,
        Beside(beside): &Beside,
        doubted: &Doubted,
        now_s: u64,
    ) -> Result<Bytes, Refused> {
        let Shared { options, owner, started_s, .. } = &*self.shared;
        let value = Service {
            instance: owner.to_string(),
            host: options.host.to_string(),
            version: options.version.clone(),
            started: *started_s,
            written: now_s,
            beside: Some(beside.clone()),
            doubt: doubted.number,
            held: doubted.held.clone(),
        };
        value.encode()
    }

    fn hear(&mut self, state: &mut MemberState, machine: &Machine, changes: &[Change]) {
        let now = self.shared.now();
        let mut desk = self.shared.desk();
        let mut is_news = false;
        for change in changes {
            is_news |= desk.hear(change, now);
        }
        let is_told = machine.truth().is_known();
        is_news |= is_told && !std::mem::replace(&mut self.was_told, true);
        let status = machine.status();
        desk.set_mirror(is_told, status.is_current);
        let rewritten_at_ms = status.rewritten_at_ms;
        let was_at_ms = &mut self.rewritten_at_ms;
        if status.is_current && std::mem::replace(was_at_ms, rewritten_at_ms) != rewritten_at_ms {
            desk.meet_history();
            self.shared.company.notify_one();
        }
        if is_news {
            desk.meet(now);
            self.shared.company.notify_one();
        }
        drop(desk);
        self.shared.set_member(&state.status);
    }

    fn hear_registration(&mut self, state: &MemberState, _: &Registration) {
        self.shared.registered.store(state.status.lease, Ordering::Relaxed);
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
    let own = own_key(shared);
    let plan = member::Plan {
        client,
        keyspace: keyspace.clone(),
        key: Some(key.clone()),
        prefix: keyspace.truth(),
        own,
        lease_s: REGISTRATION_TTL_S,
        copy: None,
        seed: shared.seed(),
        clock: Arc::clone(&shared.clock),
    };
    let state = plan.state(name, &Truth::default());
    let role = Tenant {
        shared: Arc::clone(shared),
        kept: Vec::new(),
        was_told: false,
        rewritten_at_ms: None,
    };
    // What stands under the leases of the last start is this one's.
    let former = shared.journal().map(|it| it.leases()).unwrap_or_default();
    let registration = plan.registration(Handed { former, ..Handed::default() });
    let seat = Arc::new(Mutex::new(Seat { state, role }));
    let mut member = Member::start(plan, seat, Truth::default());
    member.register(registration, Some(Beside(Vec::new())));
    member
}

fn own_key(shared: &Shared) -> Bytes {
    let options = &shared.options;
    options.keyspace.key(&Place::Service(options.name.clone()))
}

/// Has others find what this service promises, and tells them so. What they have left is looked at
/// before it takes itself to be alone.
pub(crate) async fn keep_company(shared: Arc<Shared>, client: Client) {
    let mut over = Vec::new();
    loop {
        let news = shared.company.notified();
        let _ = tokio::time::timeout(TIDY_EVERY, news).await;
        let now = shared.now();
        let (covering, looks) = {
            let mut desk = shared.desk();
            over.extend(desk.book_mut().take_over_claims(now.unix_s));
            (desk.cover(false, now), desk.looks_for_others())
        };
        if looks && matches!(is_nothing_claimed(&shared, &client).await, Ok(true)) {
            shared.desk().stay_alone();
        }
        if let Some(covering) = covering {
            match write_claims(&shared, &client, covering).await {
                Ok(elsewhere) => shared.desk().yield_to(&elsewhere),
                Err(_) => shared.desk().miss_claims(),
            }
        }
        shared.desk().tell_others();
        over = end_claims(&client, over).await;
    }
}

/// Whether no promise stands any more. A claim whose answer was lost is nobody's, and goes when its
/// time is over.
async fn is_nothing_claimed(shared: &Shared, client: &Client) -> Result<bool, Error> {
    let all = Range::prefix(&shared.options.keyspace.promises());
    let some = Range { limit: claims::AT_A_TIME as i64, ..all };
    loop {
        let found = client.range(&some).await?.kvs;
        let over = claims::over(&found, shared.now().unix_s);
        if over.is_empty() {
            return Ok(found.is_empty());
        }
        let are_gone = client.txn(&ending(&over)).await?.have_all_held();
        if !are_gone || over.len() < found.len() {
            return Ok(false);
        }
    }
}

/// Removes claims whose promises are over. Returns those that may stand.
async fn end_claims(client: &Client, mut over: Vec<Claim>) -> Vec<Claim> {
    while !over.is_empty() {
        let some = over.split_off(over.len().saturating_sub(claims::AT_A_TIME));
        if client.txn(&ending(&some)).await.is_err() {
            over.extend(some);
            break;
        }
    }
    over
}

/// Writes claims, until all stand or one of these clients has a promise elsewhere: those are
/// returned.
async fn write_claims(
    shared: &Shared,
    client: &Client,
    mut claiming: Claiming,
) -> Result<Vec<(u64, Name)>, Error> {
    let (mut elsewhere, mut lost, mut failed) = (Vec::new(), 0, 0);
    loop {
        let lease = shared.lease.load(Ordering::Relaxed);
        let registered = shared.registered.load(Ordering::Relaxed);
        let registered = (registered != 0).then(|| (own_key(shared), registered));
        let txn = claiming.txn(lease, registered).map_err(|why| Error::Config(why.to_string()))?;
        let Some(txn) = txn else { return Ok(elsewhere) };
        match client.txn(&txn).await {
            Ok(decided) => {
                let now = shared.now();
                elsewhere.extend(claiming.take(&decided, now.unix_s));
                lost += u32::from(!decided.have_all_held());
                let standing = claiming.standing();
                // Under a lease that has ended meanwhile nothing stands any more.
                if shared.lease.load(Ordering::Relaxed) == lease {
                    let mut desk = shared.desk();
                    for it in &standing {
                        desk.book_mut().note_claim(it, now.unix_s);
                    }
                }
            }
            Err(why) => {
                if why.is_lease_gone() {
                    lose_lease(shared, lease);
                }
                failed += 1;
                if failed > CLAIM_FAILURES {
                    return Err(why);
                }
            }
        }
        if lost > ATTEMPTS {
            return Err(Error::Config("the claims change all the time".into()));
        }
    }
}

/// Claims what is promised with a place, before its caller hears of it. `None` where another
/// service has promised one of these clients something elsewhere, which is added.
pub(crate) async fn claim(
    shared: &Shared,
    client: &Client,
    placed: Box<Placed>,
    elsewhere: &mut Vec<(u64, Name)>,
) -> Result<Option<Box<Placed>>, Refusal> {
    let claiming = shared.desk().claiming(&placed, elsewhere, shared.now());
    let mut mark = ClaimMark { shared, placed: Some(placed) };
    match write_claims(shared, client, claiming).await {
        Ok(found) if found.is_empty() => {}
        Ok(found) => {
            elsewhere.retain(|(client, _)| found.iter().all(|(of, _)| of != client));
            elsewhere.extend(found);
            return Ok(None);
        }
        Err(why) => {
            tracing::debug!("a promise could not be claimed: {why}");
            let mut desk = shared.desk();
            if !desk.rules().serves_away {
                drop(desk);
                return Err(Refusal::EtcdAway);
            }
            desk.miss_claims();
        }
    }
    Ok(mark.end(true))
}

/// A place that is on its way to etcd: nobody is told of it, if whoever asks has gone.
struct ClaimMark<'a> {
    shared: &'a Shared,
    placed: Option<Box<Placed>>,
}

impl ClaimMark<'_> {
    fn end(&mut self, is_told: bool) -> Option<Box<Placed>> {
        let placed = self.placed.take()?;
        self.shared.desk().end_claiming(&placed, is_told);
        self.shared.leased.notify_waiters();
        Some(placed)
    }
}

impl Drop for ClaimMark<'_> {
    fn drop(&mut self) {
        self.end(false);
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
            Err(why) if !why.is_lease_gone() => {
                shared.desk().miss_lease();
                waits.next_wait_ms()
            }
            _ => {
                lose_lease(&shared, held);
                waits.next_wait_ms()
            }
        };
        let lost = shared.lost.notified();
        let _ = tokio::time::timeout(Duration::from_millis(wait_ms), lost).await;
    }
}

/// What was asked under this lease shows that it has gone.
pub(crate) fn lose_lease(shared: &Shared, lease: i64) {
    let lost = shared.lease.compare_exchange(lease, 0, Ordering::Relaxed, Ordering::Relaxed);
    if lease != 0 && lost.is_ok() {
        add(&shared.counters.leases_lost, 1);
        shared.desk().lose_lease();
        shared.lost.notify_one();
    }
}

/// Makes the next keys of listeners when it is time, where that is asked for. Of several services
/// one makes each: whoever creates its place first.
pub(crate) async fn rotate(shared: Arc<Shared>, client: Client) {
    let Some(rotation) = shared.options.rotation else { return };
    let mut was_ahead = false;
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let (standing, now_s) = (shared.standing(), shared.now().unix_s);
        // What is out of date or in doubt is no ground to make keys by.
        if !standing.member.is_current() || standing.member.doubt() != 0 {
            continue;
        }
        let mut keys = BTreeMap::<Name, Vec<Epoch>>::new();
        let is_ahead = {
            let desk = shared.desk();
            for (listener, epoch) in desk.known().epochs() {
                keys.entry(listener.clone()).or_default().push(epoch);
            }
            clocks::is_ahead(now_s, desk.known().written_beside(desk.service()))
        };
        if is_ahead && !was_ahead {
            tracing::warn!(
                event = "clock_ahead",
                "the clock is ahead of all others in the fleet: no key is made or taken away by it"
            );
        }
        was_ahead = is_ahead;
        if is_ahead {
            continue;
        }
        for (listener, epochs) in keys {
            let (minted, over) = {
                let desk = shared.desk();
                let known = desk.known();
                (known.minted_with(&listener, now_s), known.over(&listener, &epochs, now_s))
            };
            let next = epochs::next_by_itself(now_s, &epochs, minted, rotation);
            let done = async {
                if let Some(next) = next {
                    make_key(&shared, &client, &listener, next).await?;
                }
                forget(&shared, &client, &listener, &over).await
            };
            if let Err(why) = done.await {
                tracing::warn!(event = "key_not_rotated", %listener, "no key of {listener} is made: {why}");
            }
        }
    }
}

pub(crate) async fn make_key(
    shared: &Shared,
    client: &Client,
    listener: &Name,
    Epoch { number, validity }: Epoch,
) -> Result<(), Error> {
    let Plan { keyspace, key, .. } = &shared.options;
    let place = keyspace.key(&Place::Key(listener.clone(), number));
    let failed = |why: &dyn std::fmt::Display| Error::Config(why.to_string());
    let at = String::from_utf8_lossy(&place).into_owned();
    if let Some((_, why)) = shared.desk().known().all_unreadable().find(|(key, _)| *key == at) {
        return Err(failed(&format!("{at} cannot be read: {why}")));
    }
    let own = Key::generate().map_err(|why| failed(&why))?;
    let sealed = key.seal(&place, validity, &own).map_err(|why| failed(&why))?;
    let value = sealed.encode().map_err(|why| failed(&why))?;
    if client.txn(&Txn::claim(Put { key: place, value, lease: 0 })).await?.held {
        let until = validity.mint_until;
        tracing::info!(event = "key_rotated", %listener, number, until, "made key {number} of {listener}");
    }
    Ok(())
}

/// Takes away keys that no token can be of any more.
async fn forget(
    shared: &Shared,
    client: &Client,
    listener: &Name,
    over: &[u32],
) -> Result<(), Error> {
    for number in over {
        let key = shared.options.keyspace.key(&Place::Key(listener.clone(), *number));
        client.delete(&Delete { key, ..Delete::default() }).await?;
    }
    Ok(())
}

/// Gives back what was leased and is not used, and what earlier starts had beyond their promises.
pub(crate) async fn tidy(shared: Arc<Shared>, client: Client) {
    let before = shared.desk().book().before();
    let (mut has_taken_over, mut has_more) = (before.is_empty(), false);
    loop {
        if !has_more {
            tokio::time::sleep(TIDY_EVERY).await;
        }
        let now = shared.now();
        if let Some(mut journal) = shared.journal() {
            journal.tidy(now);
        }
        if !has_taken_over {
            has_taken_over = matches!(take_over(&shared, &client, &before).await, Ok(true));
        }
        // While etcd takes no decision, one is tried and none is lost.
        let undecided = shared.desk().undecided();
        let next = match undecided {
            Some(backend) => vec![(backend, 1)],
            None => shared.desk().book_mut().idle(now, IDLE_MS, TIDY_MAX),
        };
        let count = next.len();
        give_up(&shared, &client, next).await;
        // Without a lease nothing is decided, nor anything waited for.
        has_more = count == TIDY_MAX && shared.lease.load(Ordering::Relaxed) != 0;
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
        // The others keep their slots: what is given up is lost before the answer.
        if shared.desk().undecided().is_some() {
            break;
        }
    }
}

/// Leases slots of a backend: so many that are free, or more. Whoever asks has marked the block.
pub(crate) async fn decide(shared: &Shared, client: &Client, backend: &Name, wanted: u32) {
    let _mark = Mark { shared, backend };
    for _ in 0..ATTEMPTS {
        let lease = shared.lease.load(Ordering::Relaxed);
        match attempt(shared, client, (backend, wanted), lease).await {
            Ok(true) => {
                add(&shared.counters.decisions, 1);
                break;
            }
            Ok(false) => add(&shared.counters.decisions_lost, 1),
            Err(why) => {
                add(&shared.counters.decisions_failed, 1);
                tracing::debug!("no decision about the slots of {backend}: {why}");
                match why {
                    why if why.is_lease_gone() => lose_lease(shared, lease),
                    Error::Config(_) => {}
                    _ => shared.desk().miss_decision(backend, shared.now()),
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
    (backend, wanted): (&Name, u32),
    lease: i64,
) -> Result<bool, Error> {
    let (keyspace, owner) = (&shared.options.keyspace, &shared.owner);
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
    // While it is tried whether etcd takes decisions, one is written in any case.
    if grounds.is_as_decided(&decision) && shared.desk().undecided().is_none() {
        let (now, mut desk) = (shared.now(), shared.desk());
        decision.apply(desk.book_mut().open(backend, now.unix_s), 0);
        return Ok(true);
    }
    let writing = grounds.writing(&decision, keyspace, backend, owner, lease);
    let txn = writing.map_err(|why| Error::Config(why.to_string()))?;
    let written = client.txn(&txn).await?;
    shared.desk().note_decision();
    // Where the answer is lost, the block in etcd may be larger than what is held, and never
    // smaller: nobody else promises these slots, and the next decision looks again.
    if written.held && shared.lease.load(Ordering::Relaxed) == lease {
        let (now, mut desk) = (shared.now(), shared.desk());
        let held = desk.book_mut().open(backend, now.unix_s);
        decision.apply(held, written.header.revision);
    }
    Ok(written.held)
}

/// Has whoever comes next find at which servers its clients are expected, as long as the service is
/// registered: no claim holds afterwards. Whether all of it stands.
pub(crate) async fn claim_all(shared: &Shared, client: &Client) -> bool {
    let Some(covering) = shared.desk().cover(true, shared.now()) else { return true };
    let claiming = write_claims(shared, client, covering);
    let is_claimed = matches!(tokio::time::timeout(CLAIMED_WITHIN, claiming).await, Ok(Ok(_)));
    if !is_claimed {
        tracing::warn!(event = "promises_not_claimed", "not all that is promised could be claimed");
    }
    is_claimed
}

/// Writes what is left of the blocks before the service ends: what it has promised, and until when.
/// Nothing may be promised any more. Whether all of it is there.
pub(crate) async fn close(shared: &Shared, client: &Client) -> bool {
    let lease = shared.lease.load(Ordering::Relaxed);
    if lease == 0 {
        // What stood has gone with its lease, and without one it would stand for ever.
        return shared.desk().book().last_until_s() == 0;
    }
    let closed = shared.desk().book_mut().close(shared.now());
    let (keyspace, owner) = (&shared.options.keyspace, &shared.owner);
    let mut is_left = true;
    for blocks in closed.chunks(CLOSED_AT_A_TIME) {
        let done = match closing(keyspace, owner, lease, blocks) {
            Ok(txn) => client.txn(&txn).await.map(drop),
            Err(why) => Err(Error::Config(why.to_string())),
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
/// How long the end waits for claims: slots are given back behind them.
const CLAIMED_WITHIN: Duration = Duration::from_secs(5);
/// How often claims are tried again that had no answer.
const CLAIM_FAILURES: u32 = 1;
/// How often a decision is tried again when another service was faster.
const ATTEMPTS: u32 = 8;
