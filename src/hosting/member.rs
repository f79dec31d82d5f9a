//! The tasks of an agent that speak with etcd and ask its game processes: on the runtime of its
//! pages, because nothing of it takes long. What comes is looked at ten times a second.

mod resting;
mod standing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringgate_fleet::clocks;
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::keyspace::Place;
use ringgate_fleet::lease::{self, Handed, Registration};
use ringgate_fleet::member::{self, CopyAt, Plan, Seat, TICK, lock};
use ringgate_fleet::values::{Confirmation, Stored};
use ringgate_os::clock;
use ringgate_os::publishing::{Request, Roll};
use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::agent::service::Agent;
use ringgate_trunk::agent::view::View;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::gateways::Gateways;
use super::handed::Beginning;
use super::wellness::Watched;
use super::{Prepared, Update, agones, probe};
use crate::config::hosted::{Health, StateOf, Url};
use crate::membership::announced::{Counted, Door, Registry};
use crate::membership::leases::{Leases, Left};
use crate::membership::names::Names;
pub use resting::Resting;
use resting::{Asked, Serving};
pub(super) use standing::guests;
use standing::{ConnectsTo, Hosting};
pub use standing::{Shown, Status};

/// An agent's place in its fleet. Dropped with its runtime, it leaves its registration to its end.
pub struct Member {
    seat: Arc<Mutex<Seat<Hosting>>>,
    registry: Registry,
    orders: mpsc::UnboundedSender<Order>,
    task: Mutex<Option<JoinHandle<()>>>,
    prefix: String,
}

#[derive(Debug)]
enum Order {
    Confirm(u64),
    Publish(Request),
    Drain,
    Undrain,
    Reload(Box<Update>),
    Rest(Asked),
    Leave,
}

impl Member {
    /// Begins, on the runtime that this is called in.
    pub fn start(prepared: Prepared, agent: Arc<Agent>) -> Self {
        let Prepared { client, settings, hosted, door, begins } = prepared;
        let begins = begins.unwrap_or_else(|| Beginning::afresh(&settings, hosted));
        let Beginning { truth, registration, is_heir, copies, leases_lost, remembers, .. } = begins;
        let keyspace = settings.keyspace.clone();
        let plan = Plan {
            client,
            // An agent has no key of the fleet.
            key: None,
            prefix: keyspace.gateways(),
            own: keyspace.key(&Place::Agent(settings.name.clone())),
            lease_s: settings.lease_s,
            copy: Some(CopyAt {
                file: StateFile::Disk(settings.copy.clone()),
                every_ms: SAVE_EVERY_MS,
            }),
            seed: clock::unix_ns() ^ settings.instance,
            clock: clocks::of_host(),
            keyspace: keyspace.clone(),
        };
        let mut gateways = Gateways::new(&settings);
        for (key, entry) in &truth.entries {
            gateways.learn(key, Some(&entry.value));
        }
        gateways.go_on_with(begins.chosen);
        let known = |watched: &Watched| Shown::before(watched);
        let status = Status {
            region: settings.region.to_string(),
            host: settings.host.to_string(),
            backends: begins.watched.iter().filter(|_| is_heir).map(known).collect(),
            ..Status::default()
        };
        let registry = Registry::new(begins.book, keyspace);
        let guests = guests(&registry.book(), |name| agent.is_own(name))
            .map(|(name, uid)| (name.to_owned(), uid))
            .collect();
        let now_ns = agent.clock().now_ns();
        match &begins.players {
            Some(players) => agent.rolls().inherit(players, now_ns),
            None => agent.rolls().start(now_ns),
        }
        let mut state = plan.state(&settings.name, &truth);
        state.count_on(leases_lost, copies);
        if remembers {
            state.remember(plan.now_ms());
        }
        // The other process may have known more than it had written down.
        if is_heir {
            state.copies.see(0, &truth, true, 0);
        }
        let leases = Leases::new(Some(StateFile::Disk(settings.leases.clone())));
        let prefix = settings.prefix();
        let (started_s, watched) = (begins.started_s, begins.watched);
        let own = registry.clone();
        let role = Hosting { settings, status, gateways, watched, registry: own, started_s };
        let seat = Arc::new(Mutex::new(Seat { state, role }));
        let (orders, ordered) = mpsc::unbounded_channel();
        let mut part = Part {
            member: member::Member::start(plan, Arc::clone(&seat), truth),
            agent,
            seat: Arc::clone(&seat),
            registry: registry.clone(),
            wanted: begins.wanted,
            awaited: Vec::new(),
            guests: Some(guests),
            doubted_s: None,
            asked_ms: 0,
            leases,
            doubted_ms: 0,
        };
        part.register(registration, is_heir);
        let task = tokio::spawn(part.run(door, ordered));
        Self { seat, registry, orders, task: Mutex::new(Some(task)), prefix }
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let (announced, announcements_refused) = self.registry.counts();
        let Seat { state, role } = &*lock(&self.seat);
        let member = state.status.clone();
        Status { member, announced, announcements_refused, ..role.status.clone() }
    }

    /// Asks its task to say how it stands now.
    pub fn ask(&self, roll: &mut Roll) {
        self.order(Order::Publish(roll.request("the copy of the fleet".to_owned())));
    }

    /// Has the doubt with this number believed. Whether it is the one that stands.
    pub fn confirm(&self, doubt: u64) -> bool {
        let stands = doubt != 0 && lock(&self.seat).state.status.doubt() == doubt;
        if stands {
            self.order(Order::Confirm(doubt));
        }
        stands
    }

    /// The agent will end: nobody new is to come to any of its game processes.
    pub fn drain(&self) {
        self.order(Order::Drain);
    }

    /// It goes on after all.
    pub fn undrain(&self) {
        self.order(Order::Undrain);
    }

    /// The file was read again, and says this.
    pub fn reload(&self, update: Update) {
        self.order(Order::Reload(Box::new(update)));
    }

    /// Takes the registration back, and waits for that a little: etcd may be away.
    pub async fn leave(&self) {
        self.order(Order::Leave);
        let task = lock(&self.task).take();
        if let Some(task) = task {
            drop(task.await);
        }
    }

    /// Has its tasks rest, because another process is about to go on with what they have. Waits
    /// for that: not for the runtime's own thread.
    pub fn rest(&self) -> Result<Resting, String> {
        let (asked, resting) = Asked::new();
        self.order(Order::Rest(asked));
        resting.wait()
    }

    /// Which fleet this is.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn order(&self, order: Order) {
        // A task that has ended needs no orders.
        let _ = self.orders.send(order);
    }
}

/// The tasks' end.
struct Part {
    member: member::Member<Hosting>,
    agent: Arc<Agent>,
    seat: Arc<Mutex<Seat<Hosting>>>,
    registry: Registry,
    /// What the agent was told last: where to connect, and who may come to it.
    wanted: Option<Vec<Gateway>>,
    /// The gateways that it is to connect to; none while that is not known for certain.
    awaited: Vec<String>,
    guests: Option<BTreeMap<String, Option<u32>>>,
    /// What the file in `state_dir` says.
    leases: Leases,
    /// Since when something is held back, and when it was last asked whether an operator believes
    /// it: in seconds since 1970, and on the tasks' clock.
    doubted_s: Option<u64>,
    asked_ms: u64,
    doubted_ms: u64,
}

impl Part {
    async fn run(mut self, door: Option<Door>, mut orders: mpsc::UnboundedReceiver<Order>) {
        let names = Names::of(self.member.plan(), &self.registry);
        let names = tokio::spawn(names.keep(member::rewritten(&self.seat)));
        let mut serving = Serving::new(door, &self.registry);
        // They end when this does.
        let mut questions = self.start_questions();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Confirm(number)) => self.member.confirm(number).await,
                    Some(Order::Publish(request)) => {
                        self.tick();
                        request.answer();
                    }
                    Some(Order::Drain) => self.registry.book().drain(),
                    Some(Order::Undrain) => self.registry.book().undrain(),
                    Some(Order::Reload(update)) => {
                        // Who asks knows processes by their places.
                        questions.abort_all();
                        self.reload(*update);
                        questions = self.start_questions();
                    }
                    Some(Order::Rest(asked)) => match self.rest(serving, asked).await {
                        Some(again) => serving = again,
                        // Everything that it had is another process's.
                        None => {
                            names.abort();
                            return;
                        }
                    },
                    Some(Order::Leave) | None => break,
                },
                _ = ticks.tick() => {
                    self.tick();
                    self.hear_confirmation().await;
                    self.member.save().await;
                    self.save_leases().await;
                }
            }
        }
        names.abort();
        // What was said last is written before all of it goes.
        self.tick();
        self.member.leave().await;
        self.member.end().await;
        serving.end();
    }

    fn now_ms(&self) -> u64 {
        self.member.plan().now_ms()
    }

    /// Another process's goes on with all that stands there, as it stands.
    fn register(&mut self, handed: Handed, is_heir: bool) {
        let mut registration = self.member.plan().registration(handed);
        if !is_heir {
            return self.member.register(registration, None);
        }
        // What an adopted registration is not told before it is polled would be deleted.
        let view = self.agent.view();
        self.tell_file(&view);
        let names = lock(&self.seat).role.gateways.names();
        self.tell_all(&self.counted(&view), &mut registration);
        self.member.register(registration, Some(ConnectsTo(names)));
    }

    fn tell_all(&self, counted: &Counted, registration: &mut Registration) {
        let keyspace = &self.member.plan().keyspace;
        let mut book = self.registry.book();
        book.tell(self.now_ms(), counted, keyspace, |_| true);
        book.tell_again(keyspace, |command| lease::run::obey(registration, command));
    }

    /// Those who ask whether game processes are well.
    fn start_questions(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (at, watched) in lock(&self.seat).role.watched.iter().enumerate() {
            if let Some(health) = &watched.hosted.health {
                tasks.spawn(ask_health(Arc::clone(&self.seat), at, health.clone()));
            }
            if let StateOf::Agones(server) = &watched.hosted.state {
                tasks.spawn(ask_agones(Arc::clone(&self.seat), at, server.clone()));
            }
        }
        tasks
    }

    /// Goes by another file. What was answered holds, where the same is asked of the same process.
    fn reload(&mut self, update: Update) {
        let Update { hosted, taken, gateways, regions, max_gateways, rules } = update;
        let shared = &mut lock(&self.seat).role;
        shared.gateways.set(gateways.clone(), regions.clone(), max_gateways);
        let before = std::mem::take(&mut shared.watched);
        let watched = |row| {
            let mut watched = Watched::new(row);
            if let Some(known) = before.iter().find(|it| it.name == watched.name) {
                watched.go_on_with(&known.hand_over());
            }
            watched
        };
        shared.watched = hosted.into_iter().map(watched).collect();
        let registered: Vec<_> = shared.watched.iter().map(|it| it.name.clone()).collect();
        let mut book = self.registry.book();
        book.set_own(taken.clone(), &registered);
        book.set_rules(rules.clone());
        drop(book);
        let settings = &mut shared.settings;
        (settings.taken, settings.gateways, settings.regions) = (taken, gateways, regions);
        (settings.max_gateways, settings.rules) = (max_gateways, rules);
        // Those whose user is not known may be other users' by now.
        self.guests = None;
    }

    /// Everything that there is to do now and then.
    fn tick(&mut self) {
        let view = self.agent.view();
        self.tell_file(&view);
        self.admit_guests();
        self.choose_gateways(&view);
        self.limit_players();
        self.tell(&view);
    }

    /// Has nobody let in beyond the slots of any game process that is told to the fleet.
    fn limit_players(&self) {
        let rolls = self.agent.rolls();
        rolls.set_slots(self.registry.book().slots());
        rolls.set_grace(lock(&self.seat).role.gateways.grace_ms());
        rolls.keep(self.agent.clock().now_ns(), &self.awaited());
    }

    /// Tells the fleet what is due.
    fn tell(&mut self, view: &View) {
        let now_ms = self.now_ms();
        // Before the count, in which each of them is.
        let joins = self.agent.rolls().take_joins();
        let counted = self.counted(view);
        let gateways = lock(&self.seat).role.status.gateways.clone();
        self.member.tell(ConnectsTo(gateways));
        self.registry.book().note_joins(joins);
        self.registry.tell(now_ms, &counted, |command| self.member.say(command));
        if now_ms >= self.doubted_ms + DOUBT_EVERY_MS {
            self.doubted_ms = now_ms;
            // Only gateways are mirrored here: whether somebody has deleted what this agent has
            // written is asked now and then.
            lock(&self.seat).state.doubt_all();
        }
    }

    /// Writes which leases and names there are, where that is news.
    async fn save_leases(&mut self) {
        let leases = lock(&self.seat).state.handed.leases();
        let owned = self.registry.book().owned_for_good();
        let left = Left { leases, owned, ..Left::default() };
        self.leases.keep(left, self.now_ms()).await;
    }

    /// An operator's word for all stands outside of what is mirrored here, and an agent has no key
    /// to open it with: one that is younger than the doubt is obeyed. It is about gateways alone,
    /// and those that are connected stay.
    async fn hear_confirmation(&mut self) {
        let number = lock(&self.seat).state.status.doubt();
        if number == 0 {
            self.doubted_s = None;
            return;
        }
        let since_s = *self.doubted_s.get_or_insert_with(clock::unix_seconds);
        if self.now_ms() < self.asked_ms + CONFIRMED_EVERY_MS {
            return;
        }
        self.asked_ms = self.now_ms();
        let Plan { keyspace, client, .. } = self.member.plan();
        let at = Range::one(keyspace.key(&Place::Confirm));
        let Ok(Ok(ranged)) = timeout(CONFIRMED_WITHIN, client.range(&at)).await else {
            return;
        };
        let word = ranged.kvs.first().and_then(|kv| Confirmation::decode(&kv.value).ok());
        let cluster = ranged.header.cluster_id;
        if word.is_some_and(|word| word.at >= since_s && word.is_about(cluster)) {
            self.member.confirm(number).await;
        }
    }
}

async fn ask_health(seat: Arc<Mutex<Seat<Hosting>>>, at: usize, health: Health) {
    let mut ticks = tokio::time::interval(health.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = probe::ask(&health).await;
        if let Some(watched) = lock(&seat).role.watched.get_mut(at) {
            watched.hear_health(answer);
        }
    }
}

async fn ask_agones(seat: Arc<Mutex<Seat<Hosting>>>, at: usize, server: Url) {
    let mut ticks = tokio::time::interval(AGONES_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = timeout(AGONES_TIMEOUT, agones::state(&server)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {AGONES_TIMEOUT:?}")));
        if let Some(watched) = lock(&seat).role.watched.get_mut(at) {
            watched.hear_agones(answer);
        }
    }
}

const AGONES_EVERY: Duration = Duration::from_secs(1);
const AGONES_TIMEOUT: Duration = Duration::from_secs(1);
const DOUBT_EVERY_MS: u64 = 30_000;
/// How often it is asked, while something is held back, whether an operator believes it.
const CONFIRMED_EVERY_MS: u64 = 5_000;
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
/// Gateways write their load once a second, and only their addresses matter in the copy.
const SAVE_EVERY_MS: u64 = 10_000;
