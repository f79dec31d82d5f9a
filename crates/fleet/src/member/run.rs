//! The tasks of a process that speak with etcd: they do what the machines of a mirror and of a
//! registration ask for, and decide nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::copies;
use super::own::{Doubted, Facts, Own};
use super::state::{MemberState, MemberStatus};
use crate::clocks::Clocks;
use crate::copy::StateFile;
use crate::etcd::Client;
use crate::keyspace::{Keyspace, Name};
use crate::lease::run::Command;
use crate::lease::{self, Handed, Registration, Words};
use crate::mirror::{self, Change, Machine, Reads, Truth};
use crate::seal::FleetKey;
use crate::values::Refused;
use ringgate_core::sync::lock;

/// What a role does with what etcd tells, and what it writes there.
pub trait Role: Send + 'static {
    /// What it says of itself.
    type Facts: Facts + Send;

    /// The value of its own key.
    fn value(&self, facts: &Self::Facts, doubted: &Doubted, now_s: u64) -> Result<Bytes, Refused>;

    /// What is known, or how, has become otherwise; `state` says so already.
    fn hear(&mut self, state: &mut MemberState, machine: &Machine, changes: &[Change]);

    /// Something may have become otherwise with what is written.
    fn hear_registration(&mut self, state: &MemberState, registration: &Registration);
}

/// A copy on disk.
#[derive(Clone, Debug)]
pub struct CopyAt {
    /// Where it is.
    pub file: StateFile,
    /// How often it is written at most.
    pub every_ms: u64,
}

/// What does not change while a process lives.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Speaks with etcd.
    pub client: Client,
    /// Where the fleet stands there.
    pub keyspace: Keyspace,
    /// The fleet's key, in a role that has it.
    pub key: Option<FleetKey>,
    /// What is mirrored.
    pub prefix: Bytes,
    /// Where the process's own value stands.
    pub own: Bytes,
    /// For how long a registration outlives its process.
    pub lease_s: i64,
    /// What is written of it for the next start, if anything may be.
    pub copy: Option<CopyAt>,
    /// Makes this process's waits unlike others'.
    pub seed: u64,
    /// What its times are counted by.
    pub clock: Arc<dyn Clocks>,
}

impl Plan {
    /// Now, on the process's clock.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// How a process of this name stands that begins with this truth.
    pub fn state(&self, name: &Name, truth: &Truth) -> MemberState {
        let (name, etcd) = (name.to_string(), self.client.endpoints());
        MemberState::new(MemberStatus { name, etcd, ..MemberStatus::default() }, &self.own, truth)
    }

    /// A registration that goes on with this. What an adopted one is not told before the member
    /// starts is deleted.
    pub fn registration(&self, handed: Handed) -> Registration {
        let seed = self.seed.rotate_left(32);
        let mut registration = Registration::adopt(self.lease_s, seed, handed);
        if let Some(key) = &self.key {
            let began_ms = (self.clock.unix_ns() / NS_PER_MS).saturating_sub(self.now_ms());
            registration.vouch_with(Words::new(self.keyspace.clone(), key.clone(), began_ms));
        }
        registration.put_first(self.own.clone());
        registration
    }
}

/// What the tasks of a member share with the rest of its process.
#[derive(Debug)]
pub struct Seat<R> {
    /// How it stands.
    pub state: MemberState,
    /// What it is there for.
    pub role: R,
}

/// When another history of etcd than the known one was last seen: what was written is to be written
/// again then.
pub fn rewritten<R: Send>(seat: &Arc<Mutex<Seat<R>>>) -> impl Fn() -> Option<u64> + Send + use<R> {
    let seat = Arc::clone(seat);
    move || lock(&seat).state.status.mirror.rewritten_at_ms
}

/// A process in its fleet. Dropped, it leaves its registration to its end.
pub struct Member<R: Role> {
    plan: Plan,
    seat: Arc<Mutex<Seat<R>>>,
    own: Own<R::Facts>,
    orders: mpsc::Sender<mirror::run::Command>,
    mirror: JoinHandle<Machine>,
    /// None while it rests.
    registered: Option<(mpsc::Sender<Command>, JoinHandle<Registration>)>,
}

impl<R: Role> Member<R> {
    /// Begins, on the runtime that this is called in. It is not registered yet.
    pub fn start(plan: Plan, seat: Arc<Mutex<Seat<R>>>, truth: Truth) -> Self {
        let (orders, ordered) = mpsc::channel(QUEUE_MAX);
        let reads = Reads::new(plan.key.clone());
        let agreed_at_ms = lock(&seat).state.status.mirror.agreed_at_ms;
        let options = mirror::Options::new(plan.prefix.clone(), reads, plan.seed);
        let options = mirror::Options { agreed_at_ms, ..options };
        let (shared, timed) = (Arc::clone(&seat), plan.clone());
        let see = move |machine: &Machine, changes: Vec<Change>| {
            let Seat { state, role } = &mut *lock(&shared);
            let now_ms = timed.now_ms();
            state.see(now_ms, machine, &changes);
            if let Some(copy) = &timed.copy {
                let has_changed = !changes.is_empty();
                state.copies.see(now_ms, machine.truth(), has_changed, copy.every_ms);
            }
            role.hear(state, machine, &changes);
        };
        let machine = Machine::new(options, truth);
        let (clock, client) = (Arc::clone(&plan.clock), plan.client.clone());
        let mirror = tokio::spawn(mirror::run::run_by(clock, machine, client, ordered, see));
        Self { plan, seat, own: Own::default(), orders, mirror, registered: None }
    }

    /// Has this registered, with what the process says of itself where that is known by now.
    pub fn register(&mut self, mut registration: Registration, facts: Option<R::Facts>) {
        {
            let Seat { state, role } = &mut *lock(&self.seat);
            let value = |facts| role.value(facts, &Doubted::default(), self.plan.clock.unix_s());
            if let Some(facts) = facts
                && let Ok(value) = value(&facts)
            {
                registration.set(self.plan.own.clone(), value);
                self.own.wrote(facts, Doubted::default(), self.plan.now_ms());
            }
            state.handed = registration.handed();
        }
        self.go_on(registration);
    }

    /// Goes on with its registration.
    pub fn go_on(&mut self, registration: Registration) {
        let (say, said) = mpsc::channel(QUEUE_MAX);
        let seat = Arc::clone(&self.seat);
        let see = move |now_ms: u64, registration: &Registration| {
            let Seat { state, role } = &mut *lock(&seat);
            state.see_registration(now_ms, registration);
            role.hear_registration(state, registration);
        };
        let Plan { clock, client, .. } = self.plan.clone();
        let registered = lease::run::run_by(clock, registration, client, said, see);
        self.registered = Some((say, tokio::spawn(registered)));
    }

    /// Has its registration rest, as it stands. Nothing is asked for it of etcd any more.
    pub async fn rest(&mut self) -> Option<Registration> {
        let (say, registration) = self.registered.take()?;
        drop(say);
        registration.await.ok()
    }

    /// What does not change.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was written of it, and since when.
    pub fn written(&self) -> Option<(&R::Facts, u64)> {
        self.own.written()
    }

    /// Has this said to the registration. Whether there was room for it.
    pub fn say(&self, command: Command) -> bool {
        self.registered.as_ref().is_some_and(|(say, _)| say.try_send(command).is_ok())
    }

    /// Writes what it says of itself, where that is due.
    pub fn tell(&mut self, facts: R::Facts) {
        let now_ms = self.plan.now_ms();
        let mut seat = lock(&self.seat);
        seat.state.status.now_ms = now_ms;
        let doubted = seat.state.doubted();
        seat.state.in_doubt.retain(|key| !self.say(Command::Doubt(key.clone())));
        if !self.own.is_due(&facts, &doubted, now_ms) {
            return;
        }
        let value = seat.role.value(&facts, &doubted, self.plan.clock.unix_s());
        drop(seat);
        let said = match value {
            Ok(value) => self.say(Command::Set(self.plan.own.clone(), value)),
            Err(why) => {
                tracing::error!("cannot register with the fleet: {why}");
                true
            }
        };
        if said {
            self.own.wrote(facts, doubted, now_ms);
        }
    }

    /// Has the doubt with this number believed.
    pub async fn confirm(&self, number: u64) {
        // A mirror that has ended believes nothing any more.
        let _ = self.orders.send(mirror::run::Command::Confirm(number)).await;
    }

    /// All that is known by now; `None` where that is not told in time.
    pub async fn truth(&self) -> Option<Truth> {
        let (reply, told) = oneshot::channel();
        self.orders.try_send(mirror::run::Command::Tell(reply)).ok()?;
        timeout(TELLS_WITHIN, told).await.ok()?.ok()
    }

    /// Writes the copy, where another one is due.
    pub async fn save(&self) {
        save(&self.plan, &self.seat).await;
    }

    /// Has its registration taken back, with everything written before that it was told.
    pub async fn leave(&self) {
        if let Some((say, _)) = &self.registered {
            // One that has ended is gone already.
            let _ = say.send(Command::Stop).await;
        }
    }

    /// Ends, and waits for that a little: etcd may be away. A registration that was not taken back
    /// is left as it is.
    pub async fn end(self) {
        let Self { plan, seat, orders, mirror, registered, .. } = self;
        drop(orders);
        if let Some((say, registration)) = registered {
            drop(say);
            drop(timeout(LAST_WORDS, registration).await);
        }
        if let Ok(Ok(machine)) = timeout(LAST_WORDS, mirror).await {
            lock(&seat).state.copies.finish(machine.truth());
        }
        save(&plan, &seat).await;
    }
}

async fn save<R>(plan: &Plan, seat: &Mutex<Seat<R>>) {
    let Some(truth) = lock(seat).state.copies.take() else { return };
    let Some(copy) = plan.copy.clone() else { return };
    let is_saved = copies::save(copy.file, plan.prefix.clone(), truth, plan.clock.unix_s()).await;
    let state = &mut lock(seat).state;
    state.copies.has_failed = !is_saved;
    state.status.copies[usize::from(!is_saved)] += 1;
}

/// How often a process looks what there is to do.
pub const TICK: Duration = Duration::from_millis(100);

/// How long the end of a process waits for etcd.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// It waits for nothing but its turn.
const TELLS_WITHIN: Duration = Duration::from_millis(500);
const QUEUE_MAX: usize = 256;
const NS_PER_MS: u64 = 1_000_000;
