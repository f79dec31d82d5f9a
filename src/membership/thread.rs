//! The thread that speaks with etcd: the mirror, the registration, the copy. The control thread
//! tells it how this gateway is and hears what is known; neither waits for the other.
//!
//! What comes is looked at ten times a second, so that a thousand changes are one for the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::kv::Header;
use ringgate_fleet::lease::{self, Handed, Registration, Standing, Words};
use ringgate_fleet::mirror::{self, Change, Machine, Truth};
use ringgate_fleet::values::Stored;
use ringgate_gate::{FleetPlayers, FleetTokens};
use ringgate_os::clock::{self, Clock};
use ringgate_os::publishing::Request;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle as Task;
use tokio::time::timeout;

use super::announced::{self, Book, Counted, Door, Refusal, Rules};
use super::claims::Claimer;
use super::copy::{self, Copies};
use super::kept;
use super::known::{Known, Reading};
use super::leases::{self, Left};
use super::news;
use super::own::{self, Facts, Pace};
use super::players::{Host, PlayerClaimer, PlayerCounts};
use super::{Inherited, Join, Prepared, Settings};

/// The control thread's end.
pub struct Member {
    facts: watch::Sender<Facts>,
    orders: mpsc::UnboundedSender<Order>,
    known: watch::Receiver<Arc<Known>>,
    shared: Arc<Mutex<Shared>>,
    book: Arc<Mutex<Book>>,
    counted: watch::Sender<Counted>,
    instance: String,
    thread: JoinHandle<()>,
}

/// What an operator wants.
#[derive(Clone, Debug)]
pub enum Order {
    /// The doubt with this number is to be believed.
    Confirm(u64),
    /// What is known is to be told at once.
    Publish(Request),
    /// The thread is to end, and the registration with it.
    Leave,
    /// The thread is to end, and the registration is another process's.
    Part,
}

/// How it stands with the fleet.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What this gateway is called there.
    pub name: String,
    /// The region that it says it is in.
    pub region: String,
    /// The host whose backends it takes.
    pub host: String,
    /// The mirror.
    pub mirror: mirror::Status,
    /// The revision up to which everything is known.
    pub revision: i64,
    /// Keys that are known.
    pub keys: usize,
    /// Since when what is known may be out of date, on the thread's clock.
    pub away_since_ms: Option<u64>,
    /// Now, on that clock.
    pub now_ms: u64,
    /// Whether this gateway is registered, under a lease that lives for certain.
    pub is_registered: bool,
    /// The lease of another process that has our name.
    pub taken_by: Option<i64>,
    /// Our own lease; 0 for none.
    pub lease: i64,
    /// Leases that have ended while we lived.
    pub leases_lost: u64,
    /// What went wrong with the registration last.
    pub lease_error: Option<String>,
    /// Whether etcd takes no writes for want of space.
    pub lacks_space: bool,
    /// Copies that were written, and that could not be.
    pub copies: [u64; 2],
    /// Times the keys of listeners were written down, and could not be.
    pub keys_kept: [u64; 2],
    /// What the last process has left of them that could not be used, by the names of the reasons.
    pub keys_refused: Vec<(&'static str, u64)>,
    /// Tokens that etcd was asked about.
    pub claims: u64,
    /// Times it did not answer.
    pub claim_failures: u64,
    /// Players who may be in one place of the fleet only.
    pub players: PlayerCounts,
    /// Game processes that have registered themselves here.
    pub announced: usize,
    /// How often one of them was refused, by the names of the reasons.
    pub announcements_refused: Vec<(&'static str, u64)>,
}

/// What workers want the fleet to be told and asked, and the game processes that come by
/// themselves.
#[derive(Debug, Default)]
pub struct Shelf {
    /// Tokens that name several gateways.
    pub tokens: Option<Arc<FleetTokens>>,
    /// Players who may be in one place only.
    pub players: Option<Arc<FleetPlayers>>,
    /// Where game processes register themselves.
    pub door: Option<Door>,
    /// Backends of the config file, whose names are taken.
    pub file: Vec<String>,
    /// How many players each backend has that connects to us.
    pub used: BTreeMap<String, u32>,
}

/// What the tasks of the thread share.
struct Shared {
    status: Status,
    reading: Reading,
    /// Of the registration.
    handed: Handed,
    has_news: bool,
    copies: Copies,
    /// Which history is known, and up to where.
    known: Header,
}

type Orders = mpsc::UnboundedReceiver<Order>;

impl Member {
    /// Starts the thread. `facts` is how the gateway is now.
    pub fn start(prepared: Prepared, facts: Facts, shelf: Shelf) -> std::io::Result<Self> {
        let Prepared { client, settings, truth, mut reading, handed, left } = prepared;
        let status = Status {
            name: settings.name.to_string(),
            region: settings.region.to_string(),
            host: settings.host.to_string(),
            keys: truth.entries.len(),
            revision: truth.revision,
            away_since_ms: Some(0),
            keys_refused: reading.refused_keys().counts().collect(),
            ..Status::default()
        };
        let (tell, known) = watch::channel(Arc::new(reading.known(clock::unix_seconds())));
        let shared = Arc::new(Mutex::new(Shared {
            status,
            reading,
            handed: Handed::default(),
            has_news: false,
            copies: Copies::default(),
            known: truth.header(),
        }));
        let (facts, told) = watch::channel(facts);
        let (orders, ordered) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let instance = settings.instance.clone();
        let (clock, pace) = (Clock::start(), Pace::default());
        let shown = Arc::clone(&shared);
        let book = settings.book(&shelf.file, handed.as_ref(), &left);
        let book = Arc::new(Mutex::new(book));
        // A successor has players from its first word on.
        let players = shelf.used.clone();
        let (counted, counts) = watch::channel(Counted { players, ..Counted::default() });
        let (news, _) = watch::channel(0);
        let entries = Arc::clone(&book);
        let part = Part {
            client,
            settings,
            clock,
            shared: shown,
            tell,
            pace,
            shelf,
            book: entries,
            counts,
            news: Arc::new(news),
            former: left,
            written: (Left::default(), 0),
            keys_again_ms: 0,
        };
        let run = move || runtime.block_on(part.run(truth, handed, told, ordered));
        let thread = std::thread::Builder::new().name("ringgate-fleet".to_owned()).spawn(run)?;
        Ok(Self { facts, orders, known, shared, book, counted, instance, thread })
    }

    /// What is known, and whether it has changed since.
    pub fn known(&self) -> watch::Receiver<Arc<Known>> {
        self.known.clone()
    }

    /// How this gateway is now.
    pub fn tell(&self, facts: Facts) {
        self.facts.send_replace(facts);
    }

    /// How many players each backend has, which are linked, and whose have come, who are counted.
    pub fn count(
        &self,
        players: BTreeMap<String, u32>,
        linked: BTreeSet<String>,
        joined: Vec<(String, Join)>,
    ) {
        self.counted.send_replace(Counted { players, linked, ..Counted::default() });
        // Behind that: whoever finds them in the book has counts in which they are.
        lock(&self.book).note_joins(joined);
    }

    /// The config file was read again: these are its backends, and the rules for others.
    pub fn set_file(&self, backends: Vec<String>, rules: Option<Rules>) {
        let mut book = lock(&self.book);
        book.set_file(backends);
        if let Some(rules) = rules {
            book.set_rules(rules);
        }
    }

    /// Whose process a name is, of those that have registered themselves here.
    pub fn owner(&self, name: &str) -> Option<u32> {
        lock(&self.book).owner(name)
    }

    /// An operator wants something.
    pub fn order(&self, order: Order) {
        // A thread that has ended needs no orders.
        let _ = self.orders.send(order);
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let (announced, refusals) = {
            let book = lock(&self.book);
            (book.names().count(), book.refusals())
        };
        let announcements_refused =
            Refusal::ALL.map(Refusal::name).into_iter().zip(refusals).collect();
        Status { announced, announcements_refused, ..lock(&self.shared).status.clone() }
    }

    /// What a successor goes on with.
    pub fn heirloom(&self) -> Inherited {
        let handed = lock(&self.shared).handed.clone();
        let (announced, owned, joined) = {
            let book = lock(&self.book);
            (book.handed(), book.owned(), book.joined())
        };
        Inherited { instance: self.instance.clone(), handed, announced, owned, joined }
    }

    /// Ends with [`Order::Leave`] or [`Order::Part`], and waits for that a little: etcd may be
    /// away.
    pub fn end(self, order: Order) {
        self.order(order);
        drop(self.thread.join());
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's end.
struct Part {
    client: Client,
    settings: Settings,
    clock: Clock,
    shared: Arc<Mutex<Shared>>,
    tell: watch::Sender<Arc<Known>>,
    pace: Pace,
    shelf: Shelf,
    /// Game processes that have announced themselves.
    book: Arc<Mutex<Book>>,
    counts: watch::Receiver<Counted>,
    /// Counts whenever it stands otherwise with one of them.
    news: Arc<watch::Sender<u64>>,
    /// What the processes before have left.
    former: Left,
    /// What the next one finds, and when that was written.
    written: (Left, u64),
    /// When keys that could not be written down are to be tried again.
    keys_again_ms: u64,
}

impl Part {
    async fn run(
        mut self,
        truth: Truth,
        inherited: Option<Inherited>,
        facts: watch::Receiver<Facts>,
        mut orders: Orders,
    ) {
        let (confirm, confirmed) = mpsc::channel(QUEUE_MAX);
        let (say, said) = mpsc::channel(QUEUE_MAX);
        let mirror = self.start_mirror(truth, confirmed);
        let first = facts.borrow().clone();
        let registration = self.start_registration(inherited, &first, said);
        self.pace.wrote(&first, self.clock.now_ns() / NS_PER_MS);
        // Before this instance claims the first token.
        self.leave().await;
        let claims = self.start_claims();
        let players_end = Arc::new(AtomicBool::new(false));
        let players = self.start_players(&players_end);
        let door = self.shelf.door.take();
        let door = door.map(|door| {
            let (book, news) = (Arc::clone(&self.book), self.news.subscribe());
            // A gateway's successor waits for its processes to come again.
            let (_, never) = watch::channel(false);
            tokio::spawn(announced::serve(door, book, news, never))
        });
        let mut ticks = tokio::time::interval(TICK);
        let is_left = loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Confirm(number)) => {
                        let _ = confirm.send(mirror::run::Command::Confirm(number)).await;
                    }
                    Some(Order::Publish(request)) => {
                        self.publish();
                        request.answer();
                    }
                    order => break matches!(order, Some(Order::Leave)),
                },
                _ = ticks.tick() => {
                    self.publish();
                    self.register(&facts.borrow().clone(), &say);
                    self.register_announced(&say);
                    self.save().await;
                    self.keep_keys().await;
                    self.leave().await;
                }
            }
        };
        drop(confirm);
        if let Some(claims) = claims {
            claims.abort();
        }
        if let Some(door) = door {
            door.abort();
        }
        players_end.store(true, Ordering::Release);
        if let Some(mut players) = players
            && (is_left || timeout(LAST_WORDS, &mut players).await.is_err())
        {
            players.abort();
        }
        if is_left {
            // Who cannot know by the fleet's key that this is the end hears it so.
            self.register(&Facts { is_draining: true, ..facts.borrow().clone() }, &say);
            drop(say.send(lease::run::Command::Stop).await);
        }
        drop(say);
        drop(timeout(LAST_WORDS, registration).await);
        if let Ok(Ok(machine)) = timeout(LAST_WORDS, mirror).await {
            lock(&self.shared).copies.finish(machine.truth());
        }
        self.save().await;
        self.keys_again_ms = 0;
        self.keep_keys().await;
    }

    fn start_claims(&self) -> Option<Task<()>> {
        let tokens = Arc::clone(self.shelf.tokens.as_ref()?);
        let shared = Arc::clone(&self.shared);
        let tell = move |asked: u64, failed: u64| {
            let mut shared = lock(&shared);
            shared.status.claims += asked;
            shared.status.claim_failures += failed;
        };
        let former = self.former.instances.clone();
        let claimer = Claimer::new(self.client.clone(), &self.settings, tokens, former);
        let shared = Arc::clone(&self.shared);
        let trusts = move |header: Option<&Header>| lock(&shared).trusts(header);
        Some(tokio::spawn(claimer?.run(tell, trusts)))
    }

    fn start_players(&self, ends: &Arc<AtomicBool>) -> Option<Task<()>> {
        let players = Arc::clone(self.shelf.players.as_ref()?);
        let host = PlayerHost(Arc::clone(&self.shared));
        let claimer = PlayerClaimer::new(self.client.clone(), &self.settings, players, host);
        Some(tokio::spawn(claimer?.run(Arc::clone(ends))))
    }

    fn start_mirror(
        &self,
        truth: Truth,
        confirmed: mpsc::Receiver<mirror::run::Command>,
    ) -> Task<Machine> {
        let prefix = self.settings.keyspace.truth();
        let seed = clock::unix_ns() ^ u64::from(std::process::id()) << 32;
        let reads = lock(&self.shared).reading.reads();
        let machine = Machine::new(mirror::Options::new(prefix, reads, seed), truth);
        let (shared, clock) = (Arc::clone(&self.shared), self.clock);
        let see = move |machine: &Machine, changes: Vec<Change>| {
            lock(&shared).see(clock.now_ns() / NS_PER_MS, machine, &changes);
        };
        tokio::spawn(mirror::run::run(machine, self.client.clone(), confirmed, see))
    }

    fn start_registration(
        &self,
        inherited: Option<Inherited>,
        facts: &Facts,
        said: mpsc::Receiver<lease::run::Command>,
    ) -> Task<Registration> {
        let seed = clock::unix_ns().rotate_left(32) ^ u64::from(std::process::id());
        let own = lock(&self.shared).reading.own_key().clone();
        let mut registration = match inherited {
            Some(inherited) => Registration::adopt(self.settings.lease_s, seed, inherited.handed),
            None => {
                // What stands under the leases of the last start is this one's.
                let former = self.former.leases.clone();
                let handed = Handed { former, ..Handed::default() };
                Registration::adopt(self.settings.lease_s, seed, handed)
            }
        };
        if let Some(key) = lock(&self.shared).reading.fleet_key() {
            let began_ms = clock::unix_ns() / NS_PER_MS;
            registration.vouch_with(Words::new(self.settings.keyspace.clone(), key, began_ms));
        }
        registration.put_first(own.clone());
        // What an adopted registration is not told before it is polled would be deleted.
        let first = own::value(&self.settings, facts, clock::unix_seconds());
        if let Ok(value) = first.encode() {
            registration.set(own.clone(), value);
        }
        let mut book = lock(&self.book);
        book.tell(0, &self.counts.borrow(), &self.settings.keyspace, |command| {
            if let lease::run::Command::Set(key, value) = command {
                registration.set(key, value);
            }
            true
        });
        drop(book);
        let shared = Arc::clone(&self.shared);
        let (book, news) = (Arc::clone(&self.book), Arc::clone(&self.news));
        let keyspace = self.settings.keyspace.clone();
        let see = move |now_ms: u64, registration: &Registration| {
            lock(&shared).see_registration(now_ms, registration, &own);
            if lock(&book).see_registration(registration, &keyspace) {
                news.send_modify(|count| *count += 1);
            }
        };
        tokio::spawn(lease::run::run(registration, self.client.clone(), said, see))
    }

    /// Tells the control thread what has become otherwise.
    fn publish(&mut self) {
        let now_s = clock::unix_seconds();
        let known = {
            let mut shared = lock(&self.shared);
            shared.status.now_ms = self.clock.now_ns() / NS_PER_MS;
            // Keys and bans end by themselves.
            let is_over = shared.reading.next_s() <= now_s;
            if !std::mem::take(&mut shared.has_news) && !is_over {
                return;
            }
            shared.reading.known(now_s)
        };
        self.tell.send_if_modified(|before| {
            let differs = **before != known;
            if differs {
                *before = Arc::new(known);
            }
            differs
        });
    }

    /// Writes what this gateway is, where that is due.
    fn register(&mut self, facts: &Facts, say: &mpsc::Sender<lease::run::Command>) {
        let (own, is_in_doubt, doubt, held) = {
            let mut shared = lock(&self.shared);
            let doubt = shared.status.mirror.doubt.as_ref().map_or(0, |(number, _)| *number);
            let held = shared.status.mirror.held();
            (shared.reading.own_key().clone(), shared.reading.take_own_doubt(), doubt, held)
        };
        let facts = &Facts { doubt, held, ..facts.clone() };
        if is_in_doubt {
            drop(say.try_send(lease::run::Command::Doubt(own.clone())));
        }
        let now_ms = self.clock.now_ns() / NS_PER_MS;
        if !self.pace.is_due(facts, now_ms) {
            return;
        }
        let value = own::value(&self.settings, facts, clock::unix_seconds()).encode();
        let said = match value {
            Ok(value) => say.try_send(lease::run::Command::Set(own, value)).is_ok(),
            Err(why) => {
                tracing::error!("cannot register with the fleet: {why}");
                true
            }
        };
        if said {
            self.pace.wrote(facts, now_ms);
        }
    }

    /// Writes which game processes there are, where that is due.
    fn register_announced(&self, say: &mpsc::Sender<lease::run::Command>) {
        let now_ms = self.clock.now_ns() / NS_PER_MS;
        let mut book = lock(&self.book);
        if book.admit_refused() {
            self.news.send_modify(|count| *count += 1);
        }
        let say = |command| say.try_send(command).is_ok();
        book.tell(now_ms, &self.counts.borrow(), &self.settings.keyspace, say);
    }

    /// Writes for the next start which leases, instances and names there are, where that is news.
    async fn leave(&mut self) {
        let Some(path) = self.settings.left.clone() else { return };
        let leases = {
            let shared = lock(&self.shared);
            let Handed { lease, former, .. } = &shared.handed;
            let known = Some(*lease).filter(|lease| *lease != 0).into_iter();
            known.chain(former.iter().rev().copied()).collect::<Vec<_>>()
        };
        let leases = if leases.is_empty() { self.former.leases.clone() } else { leases };
        let own = &self.settings.instance;
        let former = self.former.instances.iter().filter(|it| *it != own);
        let instances = [own].into_iter().chain(former).cloned().collect();
        let left = Left { leases, instances, owned: lock(&self.book).owned_for_good() };
        let (written, at_ms) = &self.written;
        let now_ms = self.clock.now_ns() / NS_PER_MS;
        if left.is_in(written, now_ms - at_ms) {
            return;
        }
        self.written = (left.clone(), now_ms);
        if !leases::save(path, left).await {
            tracing::warn!(
                event = "fleet_leases_not_written",
                "cannot write to state_dir: a gateway that is started again at once will wait for the end of this one's lease"
            );
        }
    }

    /// Writes down which keys are known, where that is news.
    async fn keep_keys(&mut self) {
        let Some(path) = self.settings.kept.clone() else { return };
        let now_ms = self.clock.now_ns() / NS_PER_MS;
        if now_ms < self.keys_again_ms {
            return;
        }
        let Some(stood) = lock(&self.shared).reading.take_keys() else { return };
        let is_saved = kept::save(path, stood).await;
        let mut shared = lock(&self.shared);
        let [done, failed] = &mut shared.status.keys_kept;
        if is_saved {
            *done += 1;
            return;
        }
        *failed += 1;
        shared.reading.has_unwritten_keys();
        self.keys_again_ms = now_ms + SAVE_EVERY_MS;
        if shared.status.keys_kept[1] == 1 {
            tracing::warn!(
                event = "fleet_keys_not_written",
                "cannot write to state_dir: after a restore of etcd a gateway that is started again may refuse keys that token services still mint with"
            );
        }
    }

    /// Writes the copy, where there is another one.
    async fn save(&self) {
        let Some(truth) = lock(&self.shared).copies.take() else { return };
        let Some(path) = self.settings.copy.clone() else { return };
        let is_saved = copy::save(path, self.settings.keyspace.truth(), truth).await;
        let mut shared = lock(&self.shared);
        let [done, failed] = &mut shared.status.copies;
        *if is_saved { done } else { failed } += 1;
    }
}

/// What the claims of players go by.
struct PlayerHost(Arc<Mutex<Shared>>);

impl Host for PlayerHost {
    fn lease(&self) -> i64 {
        lock(&self.0).status.lease
    }

    fn count(&self, counts: PlayerCounts) {
        lock(&self.0).status.players += counts;
    }
}

impl Shared {
    /// The mirror has become otherwise.
    fn see(&mut self, now_ms: u64, machine: &Machine, changes: &[Change]) {
        let revision = machine.truth().revision;
        for change in changes {
            self.reading.change(change, revision);
        }
        let has_list = machine.status().lists != self.status.mirror.lists;
        if has_list {
            self.reading.see_list(revision);
        }
        self.has_news |= has_list || !changes.is_empty();
        self.copies.see(now_ms, machine.truth(), !changes.is_empty(), SAVE_EVERY_MS);
        let status = machine.status();
        news::tell_away(&mut self.status.away_since_ms, now_ms, status);
        news::tell_doubt(&self.status.mirror, status);
        self.status.mirror = status.clone();
        self.status.revision = machine.truth().revision;
        self.status.keys = machine.truth().entries.len();
        self.known = machine.truth().header();
    }

    fn trusts(&self, told: Option<&Header>) -> bool {
        self.status.mirror.trusts(&self.known, told)
    }

    fn see_registration(&mut self, now_ms: u64, registration: &Registration, own: &[u8]) {
        let is_registered = registration.stands(own, now_ms);
        let taken_by = match registration.standing(own) {
            Some(Standing::Taken { by, .. }) => Some(by),
            _ => None,
        };
        let status = &mut self.status;
        if is_registered && status.lease == 0 {
            tracing::info!(
                event = "fleet_registered",
                name = status.name,
                "registered in the fleet"
            );
        }
        if taken_by.is_some() && status.taken_by.is_none() {
            tracing::error!(
                event = "fleet_name_taken",
                name = status.name,
                "another gateway of the fleet is called {}; give each `fleet.name` of its own",
                status.name
            );
        }
        status.is_registered = is_registered;
        status.taken_by = taken_by;
        status.lease = if is_registered { registration.lease_id() } else { 0 };
        status.leases_lost = registration.lost();
        status.lease_error = registration.last_error().map(str::to_owned);
        news::tell_space(&mut status.lacks_space, registration.lacks_space());
        self.handed = registration.handed();
    }
}

/// How often it is looked what there is to do.
const TICK: Duration = Duration::from_millis(100);

/// How long the end waits for etcd.
const LAST_WORDS: Duration = Duration::from_secs(2);

const SAVE_EVERY_MS: u64 = 2_000;
const QUEUE_MAX: usize = 256;
const NS_PER_MS: u64 = 1_000_000;
