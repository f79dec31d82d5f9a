//! The thread that speaks with etcd: the mirror, the registration, the copy. The control thread
//! tells it how this gateway is and hears what is known; neither waits for the other.
//!
//! What comes is looked at ten times a second, so that a thousand changes are one for the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use ringgate_cluster::Incarnation;
use ringgate_fleet::asking::Used;
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::etcd::kv::Header;
use ringgate_fleet::keyspace::Place;
use ringgate_fleet::lease::{self, Handed, Registration};
use ringgate_fleet::member::{
    self, CopyAt, Doubted, LAST_WORDS, MemberState, MemberStatus, Plan, Role, Seat, TICK, lock,
    rewritten,
};
use ringgate_fleet::mirror::{Change, Machine, Truth};
use ringgate_fleet::values;
use ringgate_fleet::values::Stored;
use ringgate_gate::{Credentials, FleetPlayer, FleetPlayers, FleetTokens, Standbys, TokenQuestion};
use ringgate_link::announce::Announced;
use ringgate_os::hand::Hand;
use ringgate_os::publishing::Request;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle as Task;
use tokio::time::timeout;

use super::announced::{Counted, Door, Registry, Rules};
use super::asked::{Answerer, Asked, Questions};
use super::claims::Claimer;
use super::incarnation::{self, Counter};
use super::kept;
use super::known::{Known, Reading};
use super::leases::{self, Leases, Left};
use super::names::Names;
use super::own::{self, Facts};
use super::players::{Host, PlayerClaimer, PlayerCounts};
use super::{Inherited, Join, Prepared, Settings, Surroundings};

/// The control thread's end.
pub struct Member {
    facts: watch::Sender<Facts>,
    orders: mpsc::UnboundedSender<Order>,
    known: watch::Receiver<Arc<Known>>,
    seat: Arc<Mutex<Seat<Gateway>>>,
    registry: Registry,
    counted: watch::Sender<Counted>,
    used: Arc<Mutex<Used>>,
    players: Option<Arc<FleetPlayers>>,
    tokens: Option<Arc<FleetTokens>>,
    standbys: Option<Arc<Standbys>>,
    instance: String,
    /// None where somebody else has its work done.
    thread: Option<JoinHandle<()>>,
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
    /// As of any process.
    pub member: MemberStatus,
    /// The region that it says it is in.
    pub region: String,
    /// The host whose backends it takes.
    pub host: String,
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
    /// What operators have asked through etcd.
    pub questions: Questions,
    /// Game processes that have registered themselves here.
    pub announced: usize,
    /// How often one of them was refused, by the names of the reasons.
    pub announcements_refused: Vec<(&'static str, u64)>,
}

/// What a member runs on.
pub struct Ground {
    runtime: tokio::runtime::Runtime,
    hand: Hand,
}

impl Ground {
    /// Made before there is anything to do on it.
    pub fn ready() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, hand: Hand::ready("ringgate-fleet")? })
    }
}

/// What workers want the fleet to be told and asked, and the game processes that come by
/// themselves.
#[derive(Default)]
pub struct Shelf {
    /// What answers the questions of operators.
    pub answerer: Option<Answerer>,
    /// Tokens that name several gateways.
    pub tokens: Option<Arc<FleetTokens>>,
    /// Players who may be in one place only.
    pub players: Option<Arc<FleetPlayers>>,
    /// Sessions of the cluster that is asked which of its processes this gateway is.
    pub standbys: Option<Arc<Standbys>>,
    /// Where game processes register themselves.
    pub door: Option<Door>,
    /// Backends of the config file, whose names are taken.
    pub file: Vec<String>,
    /// How many players each backend has that connects to us.
    pub used: BTreeMap<String, u32>,
}

/// What a gateway reads, and what it says.
struct Gateway {
    settings: Settings,
    status: Status,
    reading: Reading,
    registry: Registry,
    has_news: bool,
    /// How often everything was listed.
    lists: u64,
    /// What stands in etcd of players is a successor's to say.
    is_given: bool,
}

type Orders = mpsc::UnboundedReceiver<Order>;

impl Member {
    /// Begins on its thread. `facts` is how the gateway is now.
    pub fn start(ground: Ground, prepared: Prepared, facts: Facts, shelf: Shelf) -> Self {
        let Ground { runtime, hand } = ground;
        let (member, work) = Self::open(prepared, facts, shelf);
        Self { thread: Some(hand.work(move || runtime.block_on(work))), ..member }
    }

    /// A member, and what it does: that goes on until it is told to end.
    pub fn open(
        prepared: Prepared,
        facts: Facts,
        shelf: Shelf,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let Prepared { around, settings, truth, mut reading, handed, left } = prepared;
        let Surroundings { client, clock, random, .. } = around;
        let (tell, mut known) = watch::channel(Arc::new(reading.known(clock.unix_s())));
        let keyspace = settings.keyspace.clone();
        let plan = Plan {
            client,
            key: reading.fleet_key(),
            prefix: keyspace.truth(),
            own: keyspace.key(&Place::Gateway(settings.name.clone())),
            lease_s: settings.lease_s,
            copy: settings
                .files
                .as_ref()
                .map(|files| CopyAt { file: files.copy.clone(), every_ms: SAVE_EVERY_MS }),
            seed: random,
            clock,
            keyspace: keyspace.clone(),
        };
        let heir = handed.as_ref().map(|it| (it, plan.now_ms()));
        let cluster = facts.cluster.as_ref().and_then(|it| incarnation::key(&keyspace, &it.name));
        let count = cluster.map(|key| String::from_utf8_lossy(&key).into_owned());
        let registry = Registry::new(settings.book(&shelf.file, heir, &left), keyspace);
        let status = Status {
            region: settings.region.to_string(),
            host: settings.host.to_string(),
            keys_refused: reading.refused_keys().counts().collect(),
            ..Status::default()
        };
        let (instance, files) = (settings.instance.clone(), settings.files.clone());
        let (left_at, kept) = files.map(|files| (files.left, files.kept)).unzip();
        let leases = Leases::new(left_at);
        let mut state = plan.state(&settings.name, &truth);
        if handed.as_ref().is_some_and(|it| it.remembers) {
            state.remember(plan.now_ms());
        }
        let own = registry.clone();
        let (has_news, lists, is_given) = (false, 0, false);
        let role = Gateway { settings, status, reading, registry: own, has_news, lists, is_given };
        let seat = Arc::new(Mutex::new(Seat { state, role }));
        let (facts, told) = watch::channel(facts);
        let (orders, ordered) = mpsc::unbounded_channel();
        // A successor has players from its first word on.
        let players = shelf.used.clone();
        let (counted, counts) = watch::channel(Counted { players, ..Counted::default() });
        let players = shelf.players.clone();
        let gone = handed.iter().flat_map(|it| &it.left);
        let player = |(group, client_id): &(String, u64)| FleetPlayer {
            group: Arc::from(group.as_str()),
            client_id: *client_id,
        };
        if let Some(players) = &players {
            players.go_on_with_left(gone.map(player));
        }
        let tokens = shelf.tokens.clone();
        if let Some(tokens) = &tokens {
            let claimed = handed.iter().flat_map(|it| &it.tokens);
            let claimed = claimed.map(|(mac, at_s)| TokenQuestion { mac: *mac, expire_s: *at_s });
            tokens.go_on_with_claimed(claimed);
        }
        let standbys = shelf.standbys.clone();
        let incarnation = handed.as_ref().and_then(|it| it.incarnation);
        if let (Some(standbys), Some(number)) = (&standbys, incarnation) {
            standbys.set_incarnation(Incarnation(number));
        }
        let former = left.incarnation.as_ref().filter(|it| Some(&it.key) == count.as_ref());
        if let (Some(standbys), Some(former)) = (&standbys, former) {
            standbys.note_process(Incarnation(former.number));
        }
        let mut used = Used::default();
        if let Some(it) = &handed {
            used.adopt(it.asked.clone(), it.asked_latest_s, it.asked_bounds_s);
        }
        let used = Arc::new(Mutex::new(used));
        let part = Part {
            seat: Arc::clone(&seat),
            registry: registry.clone(),
            tell,
            shelf,
            counts,
            used: Arc::clone(&used),
            former: left,
            count,
            leases,
            kept,
            keys_again_ms: 0,
        };
        if handed.is_some() {
            // What the process before has known may be later than what we have begun with.
            known.mark_changed();
        }
        let handed = handed.map(|it| it.handed);
        let work = part.run(plan, (truth, handed), told, ordered);
        let thread = None;
        let member = Self {
            facts,
            orders,
            known,
            seat,
            registry,
            counted,
            used,
            players,
            tokens,
            standbys,
            instance,
            thread,
        };
        (member, work)
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
        self.registry.book().note_joins(joined);
    }

    /// The config file was read again: these are its backends, and the rules for others.
    pub fn set_file(&self, backends: Vec<String>, rules: Option<Rules>) {
        let mut book = self.registry.book();
        book.set_file(backends);
        if let Some(rules) = rules {
            book.set_rules(rules);
        }
    }

    /// A game process says what it is over a connection that somebody else has. Whether it may.
    pub fn announce(&self, connection: u64, who: Credentials, what: Announced) -> bool {
        let mut book = self.registry.book();
        book.arrive(connection, who).is_ok() && book.announce(connection, what).is_ok()
    }

    /// That connection has ended.
    pub fn lose(&self, connection: u64) {
        self.registry.book().leave(connection);
    }

    /// Whose process a name is, of those that have registered themselves here.
    pub fn owner(&self, name: &str) -> Option<u32> {
        self.registry.book().owner(name)
    }

    /// An operator wants something.
    pub fn order(&self, order: Order) {
        // A thread that has ended needs no orders.
        let _ = self.orders.send(order);
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let (announced, announcements_refused) = self.registry.counts();
        let Seat { state, role } = &*lock(&self.seat);
        let member = state.status.clone();
        Status { member, announced, announcements_refused, ..role.status.clone() }
    }

    /// What a successor goes on with. From here on it says where players are, and hears where they
    /// are to end: both processes go by the same name in etcd.
    pub fn heirloom(&self) -> Inherited {
        let (handed, bans, remembers) = {
            let Seat { state, role } = &mut *lock(&self.seat);
            role.is_given = true;
            let has_copy = role.settings.files.is_some() && !state.copies.has_failed;
            (state.handed.clone(), role.reading.bans(), has_copy && state.remembers())
        };
        // So many would take longer than a hand-over may; its copy has most of them.
        let bans = (bans.len() <= BANS_HANDED_MAX).then(|| bans.into_iter().collect());
        let (announced, owned, joined) = {
            let book = self.registry.book();
            (book.handed(), book.owned(), book.joined())
        };
        let instance = self.instance.clone();
        let (asked, asked_latest_s, asked_bounds_s) = {
            let used = lock(&self.used);
            (used.handed(), used.latest_s(), Some(used.bounds()))
        };
        let left = self.players.iter().flat_map(|players| players.left());
        let left = left.map(|it| (it.group.to_string(), it.client_id)).collect();
        let tokens = self.tokens.iter().flat_map(|it| it.claimed()).take(TOKENS_HANDED_MAX);
        let tokens = tokens.map(|it| (it.mac, it.expire_s)).collect();
        let incarnation = self.standbys.as_ref().and_then(|it| it.incarnation()).map(|it| it.0);
        Inherited {
            instance,
            handed,
            announced,
            owned,
            joined,
            asked,
            asked_latest_s,
            asked_bounds_s,
            left,
            tokens,
            incarnation,
            bans,
            remembers,
        }
    }

    /// Nobody has taken the [heirloom](Self::heirloom).
    pub fn go_on(&self) {
        lock(&self.seat).role.is_given = false;
    }

    /// Ends with [`Order::Leave`] or [`Order::Part`], and waits for that a little: etcd may be
    /// away.
    pub fn end(self, order: Order) {
        self.order(order);
        drop(self.thread.map(JoinHandle::join));
    }
}

/// The thread's end.
struct Part {
    seat: Arc<Mutex<Seat<Gateway>>>,
    registry: Registry,
    tell: watch::Sender<Arc<Known>>,
    shelf: Shelf,
    counts: watch::Receiver<Counted>,
    used: Arc<Mutex<Used>>,
    /// What the processes before have left, and what the next one finds.
    former: Left,
    /// Where processes of its cluster are counted.
    count: Option<String>,
    leases: Leases,
    /// Where the keys of listeners are written, and when that is to be tried again where it could
    /// not be done.
    kept: Option<StateFile>,
    keys_again_ms: u64,
}

impl Part {
    async fn run(
        mut self,
        plan: Plan,
        (truth, handed): (Truth, Option<Handed>),
        facts: watch::Receiver<Facts>,
        mut orders: Orders,
    ) {
        // What stands under the leases of the last start is this one's.
        let handed = handed.unwrap_or_else(|| Handed::of_leases(self.former.leases.clone()));
        let lease = handed.lease;
        let mut registration = plan.registration(handed);
        self.registry.tell(0, &self.counts.borrow(), |command| {
            lease::run::obey(&mut registration, command);
            true
        });
        let first = facts.borrow().clone();
        let seat = Arc::clone(&self.seat);
        let mut member = member::Member::start(plan, seat, truth);
        member.register(registration, Some(first));
        // Before this instance claims the first token.
        self.leave(&member).await;
        let claims = self.start_claims(member.plan());
        let cluster = facts.borrow().cluster.as_ref().map(|it| it.name.clone());
        let counter = cluster.and_then(|cluster| self.start_counter(member.plan(), &cluster));
        let players_end = Arc::new(AtomicBool::new(false));
        let players = self.start_players(member.plan(), lease, &players_end);
        let (asked_end, asked_ends) = watch::channel(false);
        let asked = self.start_asked(member.plan(), asked_ends);
        // A gateway's successor waits for its processes to come again.
        let (_, never) = watch::channel(false);
        let names = Names::of(member.plan(), &self.registry);
        let names = tokio::spawn(names.keep(rewritten(&self.seat)));
        let door = self.shelf.door.take().map(|door| self.registry.serve(door, never));
        let mut ticks = tokio::time::interval(TICK);
        let is_left = loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Confirm(number)) => member.confirm(number).await,
                    Some(Order::Publish(request)) => {
                        self.publish(member.plan());
                        request.answer();
                    }
                    order => break matches!(order, Some(Order::Leave)),
                },
                _ = ticks.tick() => {
                    self.publish(member.plan());
                    member.tell(facts.borrow().clone());
                    let now_ms = member.plan().now_ms();
                    self.registry.tell(now_ms, &self.counts.borrow(), |it| member.say(it));
                    member.save().await;
                    self.keep_keys(now_ms).await;
                    self.leave(&member).await;
                }
            }
        };
        names.abort();
        claims.into_iter().chain(counter).for_each(|task| task.abort());
        if let Some(door) = door {
            door.abort();
        }
        let _ = asked_end.send(true);
        if let Some(mut asked) = asked
            && timeout(LAST_WORDS, &mut asked).await.is_err()
        {
            asked.abort();
        }
        players_end.store(true, Ordering::Release);
        if let Some(mut players) = players
            && (is_left || timeout(LAST_WORDS, &mut players).await.is_err())
        {
            players.abort();
        }
        if is_left {
            // Who cannot know by the fleet's key that this is the end hears it so.
            member.tell(Facts { is_draining: true, ..facts.borrow().clone() });
            member.leave().await;
        }
        member.end().await;
        self.keep_keys(u64::MAX).await;
    }

    fn start_claims(&self, plan: &Plan) -> Option<Task<()>> {
        let tokens = Arc::clone(self.shelf.tokens.as_ref()?);
        let seat = Arc::clone(&self.seat);
        let tell = move |asked: u64, failed: u64| {
            let status = &mut lock(&seat).role.status;
            status.claims += asked;
            status.claim_failures += failed;
        };
        let former = self.former.instances.clone();
        let settings = lock(&self.seat).role.settings.clone();
        let around = (plan.client.clone(), Arc::clone(&plan.clock));
        let claimer = Claimer::new(around, &settings, tokens, former);
        Some(tokio::spawn(claimer?.run(tell, self.trusts(), rewritten(&self.seat))))
    }

    fn start_counter(&self, plan: &Plan, cluster: &str) -> Option<Task<()>> {
        let standbys = Arc::clone(self.shelf.standbys.as_ref()?);
        let counter = Counter::new(plan.client.clone(), &plan.keyspace, cluster, standbys);
        Some(tokio::spawn(counter?.run(self.trusts(), rewritten(&self.seat))))
    }

    /// Whether etcd may answer, and whether it may have answered under a header.
    fn trusts(&self) -> impl Fn(Option<&Header>) -> bool + Send + Sync + use<> {
        let seat = Arc::clone(&self.seat);
        move |header| lock(&seat).state.status.trusts(header)
    }

    fn start_players(&self, plan: &Plan, lease: i64, ends: &Arc<AtomicBool>) -> Option<Task<()>> {
        let players = Arc::clone(self.shelf.players.as_ref()?);
        let host = PlayerHost(Arc::clone(&self.seat));
        let settings = lock(&self.seat).role.settings.clone();
        let around = (plan.client.clone(), Arc::clone(&plan.clock));
        let claimer = PlayerClaimer::new(around, &settings, players, host);
        Some(tokio::spawn(claimer?.with_lease(lease).run(Arc::clone(ends))))
    }

    fn start_asked(&mut self, plan: &Plan, ends: watch::Receiver<bool>) -> Option<Task<()>> {
        let answerer = self.shelf.answerer.take()?;
        let seat = Arc::clone(&self.seat);
        let tell = move |seen: Questions| {
            let Questions { answered, refused, forged } = &mut lock(&seat).role.status.questions;
            *answered += seen.answered;
            *refused += seen.refused;
            *forged += seen.forged;
        };
        let settings = lock(&self.seat).role.settings.clone();
        let with = (answerer, Arc::clone(&self.used));
        let around = (plan.client.clone(), Arc::clone(&plan.clock));
        let asked = Asked::new(around, &settings, plan.key.clone()?, with);
        Some(tokio::spawn(asked?.run(tell, ends)))
    }

    /// Tells the control thread what has become otherwise.
    fn publish(&self, plan: &Plan) {
        let now_s = plan.clock.unix_s();
        let known = {
            let Seat { state, role } = &mut *lock(&self.seat);
            state.status.now_ms = plan.now_ms();
            // Keys and bans end by themselves.
            let is_over = role.reading.is_over(now_s);
            if !std::mem::take(&mut role.has_news) && !is_over {
                return;
            }
            role.reading.known(now_s)
        };
        self.tell.send_if_modified(|before| {
            let differs = **before != known;
            if differs {
                *before = Arc::new(known);
            }
            differs
        });
    }

    /// Writes for the next start which leases, instances and names there are, where that is news.
    async fn leave(&mut self, member: &member::Member<Gateway>) {
        let (leases, own) = {
            let Seat { state, role } = &*lock(&self.seat);
            (state.handed.leases(), role.settings.instance.clone())
        };
        let former = self.former.instances.iter().filter(|it| **it != own);
        let instances = [&own].into_iter().chain(former).cloned().collect();
        let latest = self.shelf.standbys.as_ref().map(|it| it.latest()).filter(|it| it.0 > 0);
        let latest = latest.zip(self.count.clone());
        let latest = latest.map(|(Incarnation(number), key)| leases::Counted { number, key });
        let incarnation = latest.or_else(|| self.former.incarnation.clone());
        let owned = self.registry.book().owned_for_good();
        let left = Left { leases, instances, incarnation, owned };
        self.leases.keep(left, member.plan().now_ms()).await;
    }

    /// Writes down which keys are known, where that is news.
    async fn keep_keys(&mut self, now_ms: u64) {
        let Some(file) = self.kept.clone() else { return };
        if now_ms < self.keys_again_ms {
            return;
        }
        let Some(stood) = lock(&self.seat).role.reading.take_keys() else { return };
        let is_saved = file.replace(move || kept::text(&stood)).await.is_ok();
        let role = &mut lock(&self.seat).role;
        let [done, failed] = &mut role.status.keys_kept;
        if is_saved {
            *done += 1;
            return;
        }
        *failed += 1;
        role.reading.has_unwritten_keys();
        self.keys_again_ms = now_ms.saturating_add(SAVE_EVERY_MS);
        if role.status.keys_kept[1] == 1 {
            tracing::warn!(
                event = "fleet_keys_not_written",
                "cannot write to state_dir: after a restore of etcd a gateway that is started again may refuse keys that token services still mint with"
            );
        }
    }
}

/// What the claims of players go by.
struct PlayerHost(Arc<Mutex<Seat<Gateway>>>);

impl Host for PlayerHost {
    fn lease(&self) -> i64 {
        let Seat { state, role } = &*lock(&self.0);
        if role.is_given { 0 } else { state.status.lease }
    }

    fn rewritten_at_ms(&self) -> Option<u64> {
        lock(&self.0).state.status.mirror.rewritten_at_ms
    }

    fn count(&self, counts: PlayerCounts) {
        lock(&self.0).role.status.players.merge(&counts);
    }
}

impl Role for Gateway {
    type Facts = Facts;

    fn value(
        &self,
        facts: &Facts,
        doubted: &Doubted,
        now_s: u64,
    ) -> Result<Bytes, values::Refused> {
        own::value(&self.settings, facts, doubted, now_s).encode()
    }

    fn hear(&mut self, state: &mut MemberState, machine: &Machine, changes: &[Change]) {
        let (revision, status) = (machine.truth().revision, machine.status());
        for change in changes {
            self.reading.change(change, revision);
        }
        let has_list = std::mem::replace(&mut self.lists, status.lists) != status.lists;
        // What a process begins with is as good as a list once etcd agrees with it.
        let has_all = has_list || status.is_current && !self.reading.is_listed();
        if has_all {
            self.reading.see_list(revision);
        }
        self.has_news |= has_all || !changes.is_empty();
        if self.reading.take_own_doubt() {
            state.doubt_own();
        }
    }

    fn hear_registration(&mut self, _: &MemberState, registration: &Registration) {
        self.registry.see_registration(registration);
    }
}

const SAVE_EVERY_MS: u64 = 2_000;
const BANS_HANDED_MAX: usize = 10_000;
const TOKENS_HANDED_MAX: usize = 10_000;
