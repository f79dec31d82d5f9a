//! The tasks of an agent that speak with etcd and ask its game processes: on the runtime of its
//! pages, because nothing of it takes long. What comes is looked at ten times a second.

mod resting;
mod standing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::lease::{self, Handed, Registration};
use ringgate_fleet::mirror::{self, Change, Machine, Reads, Truth};
use ringgate_fleet::values::{Confirmation, Stored};
use ringgate_os::clock::{self, Clock};
use ringgate_os::publishing::{Request, Roll};
use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::agent::service::Agent;
use ringgate_trunk::agent::view::View;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::gateways::Gateways;
use super::handed::Beginning;
use super::wellness::Watched;
use super::{Prepared, Settings, Update, agones, probe};
use crate::config::hosted::{Health, StateOf, Url};
use crate::membership::announced::{self, Book, Door, Refusal};
use crate::membership::copy::{self, Copies};
use crate::membership::leases;
pub use resting::Resting;
use resting::{Asked, Busy};
pub(super) use standing::guests;
use standing::{Shared, lock};
pub use standing::{Shown, Status};

/// An agent's place in its fleet. Dropped with its runtime, it leaves its registration to its end.
pub struct Member {
    shared: Arc<Mutex<Shared>>,
    book: Arc<Mutex<Book>>,
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
        let Beginning { truth, registration, is_heir, copies, .. } = begins;
        let book = Arc::new(Mutex::new(begins.book));
        let mut gateways = Gateways::new(&settings);
        for (key, entry) in &truth.entries {
            gateways.learn(key, Some(&entry.value));
        }
        gateways.go_on_with(begins.chosen);
        let known = |watched: &Watched| Shown::before(watched);
        let status = Status {
            region: settings.region.to_string(),
            host: settings.host.to_string(),
            away_since_ms: Some(0),
            leases_lost: begins.leases_lost,
            copies,
            backends: begins.watched.iter().filter(|_| is_heir).map(known).collect(),
            ..Status::default()
        };
        let guests = guests(&lock(&book), |name| agent.is_own(name))
            .map(|(name, uid)| (name.to_owned(), uid))
            .collect();
        let now_ns = agent.clock().now_ns();
        match &begins.players {
            Some(players) => agent.rolls().inherit(players, now_ns),
            None => agent.rolls().start(now_ns),
        }
        let shared = Arc::new(Mutex::new(Shared {
            status,
            gateways,
            watched: begins.watched,
            copies: Copies::default(),
            leases: Vec::new(),
            leases_lost_before: begins.leases_lost,
        }));
        // The other process may have known more than it had written down.
        if is_heir {
            lock(&shared).copies.see(0, &truth, true, 0);
        }
        let (orders, ordered) = mpsc::unbounded_channel();
        let (news, _) = watch::channel(0);
        let prefix = settings.prefix();
        let part = Part {
            client,
            settings,
            agent,
            clock: Clock::start(),
            shared: Arc::clone(&shared),
            book: Arc::clone(&book),
            news: Arc::new(news),
            started_s: begins.started_s,
            wanted: begins.wanted,
            awaited: Vec::new(),
            guests: Some(guests),
            written: None,
            doubt: 0,
            doubted_s: None,
            asked_ms: 0,
            left: (leases::Left::default(), 0),
            doubted_ms: 0,
        };
        let registration = part.registration(registration, is_heir);
        let task = tokio::spawn(part.run(truth, (registration, door), ordered));
        Self { shared, book, orders, task: Mutex::new(Some(task)), prefix }
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let status = lock(&self.shared).status.clone();
        let book = lock(&self.book);
        let announcements_refused =
            Refusal::ALL.map(Refusal::name).into_iter().zip(book.refusals()).collect();
        Status { announced: book.names().count(), announcements_refused, ..status }
    }

    /// Asks its task to say how it stands now.
    pub fn ask(&self, roll: &mut Roll) {
        self.order(Order::Publish(roll.request("the copy of the fleet".to_owned())));
    }

    /// Has the doubt with this number believed. Whether it is the one that stands.
    pub fn confirm(&self, doubt: u64) -> bool {
        let status = lock(&self.shared).status.mirror.doubt.clone();
        let stands = status.is_some_and(|(number, _)| number == doubt);
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

type Say = mpsc::Sender<lease::run::Command>;

/// The tasks' end.
struct Part {
    client: Client,
    settings: Settings,
    agent: Arc<Agent>,
    clock: Clock,
    shared: Arc<Mutex<Shared>>,
    book: Arc<Mutex<Book>>,
    /// Counts whenever it stands otherwise with a game process.
    news: Arc<watch::Sender<u64>>,
    started_s: u64,
    /// What the agent was told last: where to connect, and who may come to it.
    wanted: Option<Vec<Gateway>>,
    /// The gateways that it is to connect to; none while that is not known for certain.
    awaited: Vec<String>,
    guests: Option<BTreeMap<String, Option<u32>>>,
    /// What the file in `state_dir` says, and when that was written.
    left: (leases::Left, u64),
    /// The gateways that the agent's own value names, and when it was written; the number of what
    /// was held back then.
    written: Option<(Vec<String>, u64)>,
    doubt: u64,
    /// Since when something is held back, and when it was last asked whether an operator believes
    /// it: in seconds since 1970, and on the tasks' clock.
    doubted_s: Option<u64>,
    asked_ms: u64,
    doubted_ms: u64,
}

impl Part {
    async fn run(
        mut self,
        truth: Truth,
        (registration, door): (Registration, Option<Door>),
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let (confirm, confirmed) = mpsc::channel(QUEUE_MAX);
        let mirror = self.start_mirror(truth, confirmed);
        let mut busy = self.set_to_work(registration, door);
        // They end when this does.
        let mut questions = self.start_questions();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Confirm(number)) => {
                        let _ = confirm.send(mirror::run::Command::Confirm(number)).await;
                    }
                    Some(Order::Publish(request)) => {
                        self.tick(busy.say());
                        request.answer();
                    }
                    Some(Order::Drain) => lock(&self.book).drain(),
                    Some(Order::Undrain) => lock(&self.book).undrain(),
                    Some(Order::Reload(update)) => {
                        // Who asks knows processes by their places.
                        questions.abort_all();
                        self.reload(*update);
                        questions = self.start_questions();
                    }
                    Some(Order::Rest(asked)) => match self.rest(busy, &confirm, asked).await {
                        Some(again) => busy = again,
                        // Everything that it had is another process's.
                        None => return,
                    },
                    Some(Order::Leave) | None => break,
                },
                _ = ticks.tick() => {
                    self.tick(busy.say());
                    self.hear_confirmation(&confirm).await;
                    self.save().await;
                    self.save_leases().await;
                }
            }
        }
        drop(confirm);
        // What was said last is written before all of it goes.
        self.tick(busy.say());
        busy.end().await;
        if let Ok(Ok(machine)) = timeout(LAST_WORDS, mirror).await {
            lock(&self.shared).copies.finish(machine.truth());
        }
        self.save().await;
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ns() / NS_PER_MS
    }

    fn start_mirror(
        &self,
        truth: Truth,
        confirmed: mpsc::Receiver<mirror::run::Command>,
    ) -> JoinHandle<Machine> {
        let prefix = self.settings.keyspace.gateways();
        let seed = clock::unix_ns() ^ self.settings.instance;
        // An agent has no key of the fleet.
        let reads = Reads::default();
        let machine = Machine::new(mirror::Options::new(prefix, reads, seed), truth);
        let (shared, clock) = (Arc::clone(&self.shared), self.clock);
        let see = move |machine: &Machine, changes: Vec<Change>| {
            lock(&shared).see(clock.now_ns() / NS_PER_MS, machine, &changes);
        };
        tokio::spawn(mirror::run::run(machine, self.client.clone(), confirmed, see))
    }

    /// Another process's goes on with all that stands there, as it stands.
    fn registration(&self, handed: Handed, is_heir: bool) -> Registration {
        let seed = clock::unix_ns().rotate_left(32) ^ self.settings.instance;
        let mut registration = Registration::adopt(self.settings.lease_s, seed, handed);
        registration.put_first(self.own_key());
        if !is_heir {
            return registration;
        }
        // What an adopted registration is not told before it is polled would be deleted.
        let view = self.agent.view();
        self.tell_file(&view);
        let names = lock(&self.shared).gateways.names();
        if let Ok(value) = self.own_value(&names, clock::unix_seconds()) {
            registration.set(self.own_key(), value);
        }
        let counted = self.counted(&view);
        let mut book = lock(&self.book);
        book.tell(self.now_ms(), &counted, &self.settings.keyspace, |_| true);
        book.tell_again(&self.settings.keyspace, |command| {
            lease::run::obey(&mut registration, command);
        });
        drop(book);
        registration
    }

    /// Has those tasks begin that rest before a hand-over.
    fn set_to_work(&self, registration: Registration, door: Option<Door>) -> Busy {
        let (say, said) = mpsc::channel(QUEUE_MAX);
        let (rest, rests) = watch::channel(false);
        let (shared, own) = (Arc::clone(&self.shared), self.own_key());
        let (book, news) = (Arc::clone(&self.book), Arc::clone(&self.news));
        let keyspace = self.settings.keyspace.clone();
        let see = move |now_ms: u64, registration: &Registration| {
            lock(&shared).see_registration(now_ms, registration, &own);
            if lock(&book).see_registration(registration, &keyspace) {
                news.send_modify(|count| *count += 1);
            }
        };
        let client = self.client.clone();
        let registration = lease::run::run_by(self.clock, registration, client, said, see);
        let door = door.map(|door| {
            let (book, news) = (Arc::clone(&self.book), self.news.subscribe());
            tokio::spawn(announced::serve(door, book, news, rests))
        });
        Busy::new(say, tokio::spawn(registration), (door, rest))
    }

    /// Those who ask whether game processes are well.
    fn start_questions(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (at, watched) in lock(&self.shared).watched.iter().enumerate() {
            if let Some(health) = &watched.hosted.health {
                tasks.spawn(ask_health(Arc::clone(&self.shared), at, health.clone()));
            }
            if let StateOf::Agones(server) = &watched.hosted.state {
                tasks.spawn(ask_agones(Arc::clone(&self.shared), at, server.clone()));
            }
        }
        tasks
    }

    /// Goes by another file. What was answered holds, where the same is asked of the same process.
    fn reload(&mut self, update: Update) {
        let Update { hosted, taken, gateways, regions, max_gateways, rules } = update;
        let mut shared = lock(&self.shared);
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
        drop(shared);
        let mut book = lock(&self.book);
        book.set_own(taken.clone(), &registered);
        book.set_rules(rules.clone());
        drop(book);
        let settings = &mut self.settings;
        (settings.taken, settings.gateways, settings.regions) = (taken, gateways, regions);
        (settings.max_gateways, settings.rules) = (max_gateways, rules);
        // Those whose user is not known may be other users' by now.
        self.guests = None;
    }

    fn own_key(&self) -> Bytes {
        self.settings.keyspace.key(&Place::Agent(self.settings.name.clone()))
    }

    /// Everything that there is to do now and then.
    fn tick(&mut self, say: &Say) {
        let view = self.agent.view();
        self.tell_file(&view);
        self.admit_guests();
        self.choose_gateways(&view, self.now_ms());
        self.limit_players();
        self.register(&view, say);
        lock(&self.shared).status.now_ms = self.now_ms();
    }

    /// Has nobody let in beyond the slots of any game process that is told to the fleet.
    fn limit_players(&self) {
        let rolls = self.agent.rolls();
        rolls.set_slots(lock(&self.book).slots());
        rolls.set_grace(lock(&self.shared).gateways.grace_ms());
        rolls.keep(self.agent.clock().now_ns(), &self.awaited());
    }

    /// Tells the fleet what is due.
    fn register(&mut self, view: &View, say: &Say) {
        let now_ms = self.now_ms();
        // Before the count, in which each of them is.
        let joins = self.agent.rolls().take_joins();
        let counted = self.counted(view);
        self.register_own(now_ms, say);
        let send = |command| say.try_send(command).is_ok();
        let mut book = lock(&self.book);
        if book.admit_refused() {
            self.news.send_modify(|count| *count += 1);
        }
        book.note_joins(joins);
        book.tell(now_ms, &counted, &self.settings.keyspace, send);
        drop(book);
        if now_ms >= self.doubted_ms + DOUBT_EVERY_MS {
            self.doubted_ms = now_ms;
            self.doubt(say);
        }
    }

    fn register_own(&mut self, now_ms: u64, say: &Say) {
        let (gateways, doubt) = {
            let status = &lock(&self.shared).status;
            (status.gateways.clone(), status.doubt())
        };
        let is_due = match &self.written {
            Some((before, at_ms)) => *before != gateways || now_ms >= at_ms + OWN_EVERY_MS,
            None => true,
        } || doubt != self.doubt;
        if !is_due {
            return;
        }
        let said = match self.own_value(&gateways, clock::unix_seconds()) {
            Ok(value) => say.try_send(lease::run::Command::Set(self.own_key(), value)).is_ok(),
            Err(why) => {
                tracing::error!("cannot register with the fleet: {why}");
                true
            }
        };
        if said {
            self.written = Some((gateways, now_ms));
            self.doubt = doubt;
        }
    }

    /// Only gateways are mirrored here: whether somebody has deleted what this agent has written is
    /// asked now and then.
    fn doubt(&self, say: &Say) {
        let book = lock(&self.book);
        let names = book.all_names().filter_map(Name::new);
        let keys = names.map(|name| self.settings.keyspace.key(&Place::Backend(name)));
        for key in keys.chain([self.own_key()]) {
            let _ = say.try_send(lease::run::Command::Doubt(key));
        }
    }

    /// Writes which leases and names there are, where that is news. What could not be written is
    /// tried again with the next of them: it matters to a start within the lease's time alone.
    async fn save_leases(&mut self) {
        let leases = lock(&self.shared).leases.clone();
        let owned = lock(&self.book).owned_for_good();
        let left = leases::Left { leases, owned, ..leases::Left::default() };
        let (written, at_ms) = &self.left;
        let now_ms = self.now_ms();
        if !left.leases.is_empty() && !left.is_in(written, now_ms - at_ms) {
            self.left = (left.clone(), now_ms);
            let path = self.settings.leases.clone();
            if !leases::save(path, left).await {
                tracing::warn!(
                    event = "fleet_leases_not_written",
                    "cannot write to state_dir: an agent that is started again at once will wait for the end of this one's lease"
                );
            }
        }
    }

    /// An operator's word for all stands outside of what is mirrored here, and an agent has no key
    /// to open it with: one that is younger than the doubt is obeyed. It is about gateways alone,
    /// and those that are connected stay.
    async fn hear_confirmation(&mut self, confirm: &mpsc::Sender<mirror::run::Command>) {
        let doubt = lock(&self.shared).status.mirror.doubt.as_ref().map(|(number, _)| *number);
        let Some(number) = doubt else {
            self.doubted_s = None;
            return;
        };
        let since_s = *self.doubted_s.get_or_insert_with(clock::unix_seconds);
        if self.now_ms() < self.asked_ms + CONFIRMED_EVERY_MS {
            return;
        }
        self.asked_ms = self.now_ms();
        let at = Range::one(self.settings.keyspace.key(&Place::Confirm));
        let Ok(Ok(ranged)) = timeout(CONFIRMED_WITHIN, self.client.range(&at)).await else {
            return;
        };
        let word = ranged.kvs.first().and_then(|kv| Confirmation::decode(&kv.value).ok());
        let cluster = ranged.header.cluster_id;
        if word.is_some_and(|word| word.at >= since_s && word.is_about(cluster)) {
            let _ = confirm.send(mirror::run::Command::Confirm(number)).await;
        }
    }

    /// Writes the copy, where there is another one.
    async fn save(&self) {
        let Some(truth) = lock(&self.shared).copies.take() else { return };
        let prefix = self.settings.keyspace.gateways();
        let is_saved = copy::save(self.settings.copy.clone(), prefix, truth).await;
        let mut shared = lock(&self.shared);
        let [done, failed] = &mut shared.status.copies;
        *if is_saved { done } else { failed } += 1;
    }
}

async fn ask_health(shared: Arc<Mutex<Shared>>, at: usize, health: Health) {
    let mut ticks = tokio::time::interval(health.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = probe::ask(&health).await;
        if let Some(watched) = lock(&shared).watched.get_mut(at) {
            watched.hear_health(answer);
        }
    }
}

async fn ask_agones(shared: Arc<Mutex<Shared>>, at: usize, server: Url) {
    let mut ticks = tokio::time::interval(AGONES_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = timeout(AGONES_TIMEOUT, agones::state(&server)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {AGONES_TIMEOUT:?}")));
        if let Some(watched) = lock(&shared).watched.get_mut(at) {
            watched.hear_agones(answer);
        }
    }
}

/// How often it is looked what there is to do.
const TICK: Duration = Duration::from_millis(100);

/// How long the end waits for etcd.
const LAST_WORDS: Duration = Duration::from_secs(2);

const AGONES_EVERY: Duration = Duration::from_secs(1);
const AGONES_TIMEOUT: Duration = Duration::from_secs(1);
const DOUBT_EVERY_MS: u64 = 30_000;
/// So that others see how far our clock is from theirs.
const OWN_EVERY_MS: u64 = 60_000;
/// How often it is asked, while something is held back, whether an operator believes it.
const CONFIRMED_EVERY_MS: u64 = 5_000;
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);
const QUEUE_MAX: usize = 256;
const NS_PER_MS: u64 = 1_000_000;
