//! A gateway of the world: what it really knows of its fleet and makes of it, and a real gate with
//! a worker, over sockets that exist only here. What its `state_dir` has outlives it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use ringgate::config::keys::KeySources;
use ringgate::config::{self, Config};
use ringgate::control::following::{self, Crew, Following, KnownListeners, Running};
use ringgate::control::plan::{self, Links};
use ringgate::membership::{
    Facts, Known, Member, Order, Prepared, Shelf, StateFiles, Surroundings,
};
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, SocketId, TxTarget};
use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;
use ringgate_fleet::copy::StateFile;
use ringgate_gate::{
    BackendId, BindId, Claims, Credentials, Ended, FleetPlayers, FleetTokens, Front, Gate,
    ListenerId, Mail, MoveOrder, Now, Protocol, Seed, SessionId, Setup, SpentToken, Survey, Wanted,
    WorkerId, WorkerIndex,
};
use ringgate_link::announce::{Announced, Announcement};
use ringgate_testkit::{Host, Random, Rehearsal, Succession, Wire};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::etcd::{self, Etcd};
use crate::process::{Process, UNIX_START_S};
use crate::questions::Questions;
use crate::service::FLEET_KEY;

/// A gateway, alive or not.
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) number: usize,
    /// Where players find it.
    pub(crate) address: Endpoint,
    pub(crate) file: Config,
    files: StateFiles,
    spent: Vec<SpentToken>,
    alive: Option<Alive>,
    /// A predecessor that has handed everything over and still ends.
    parting: Option<(Process, JoinHandle<()>)>,
    pub(crate) back_ms: u64,
    pub(crate) frozen_until_ms: u64,
    ran_ms: u64,
    /// Lives of it, to name sockets and connections by.
    lives: u32,
    /// What leaves it: datagrams for players, and bundles for game processes.
    pub(crate) to_players: Vec<(Endpoint, Vec<u8>)>,
    pub(crate) to_games: Vec<(SocketId, Vec<u8>)>,
    pub(crate) to_udp: Vec<(Endpoint, LocalIp, Vec<u8>)>,
    /// Links that it has closed.
    pub(crate) closed: Vec<SocketId>,
    /// What is wrong with its books.
    pub(crate) unbalanced: Option<String>,
    /// Its successors do not know which questions were answered.
    pub(crate) forgets_questions: bool,
}

struct Alive {
    process: Process,
    member: Member,
    work: JoinHandle<()>,
    receiver: watch::Receiver<Arc<Known>>,
    following: Following,
    config: Config,
    setup: Arc<Setup>,
    claims: Arc<Claims>,
    host: Host,
    links: Links,
    questions: Arc<Questions>,
    inbox: VecDeque<(SocketId, Endpoint, LocalIp, Vec<u8>)>,
    is_pending: bool,
    tells_ms: u64,
    /// When it was told to end, and has until then to.
    leaves_ms: Option<u64>,
    is_parted: bool,
}

impl Gateway {
    pub(crate) fn new(number: usize, host: usize, unique: bool) -> Self {
        let name = format!("gate-{number}");
        let address = Endpoint::v4([203, 0, 113, 1 + number as u8], 40_000);
        let unique = if unique { "unique_clients = \"fleet\"\n" } else { "" };
        let text = format!(
            "[gateway]\nrun_dir = \"/run/host-{host}/{name}\"\nworkers = 1\n\
             [fleet]\nendpoints = [\"http://etcd-0:2379\"]\nprefix = \"/f\"\nname = \"{name}\"\n\
             host = \"host-{host}\"\nregion = \"here\"\nlease = \"10s\"\nallow_uids = [{UID}]\nkey = {{ hex = \"{FLEET_KEY}\" }}\n\
             [[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [\"203.0.113.{n}:40000\"]\npublic = [\"203.0.113.{n}:40000\"]\n\
             protocol_id = 7\ngroup = \"arena\"\nroute = \"user-data\"\nmax_sessions = 200\n{unique}",
            n = 1 + number
        );
        let sources = KeySources::new(&|_| None, None);
        let file = config::parse(&text, Path::new("gate.toml"), &sources);
        let in_memory = || StateFile::Memory(Arc::default());
        let files = StateFiles { copy: in_memory(), left: in_memory(), kept: in_memory() };
        Self {
            name,
            number,
            address,
            file: file.unwrap_or_else(|why| panic!("{why}")),
            files,
            spent: Vec::new(),
            alive: None,
            parting: None,
            back_ms: 0,
            frozen_until_ms: 0,
            ran_ms: 0,
            lives: 0,
            to_players: Vec::new(),
            to_games: Vec::new(),
            to_udp: Vec::new(),
            closed: Vec::new(),
            unbalanced: None,
            forgets_questions: false,
        }
    }

    /// By what unmodified servers tell its socket from others: a start makes another one, and a
    /// successor goes on with it.
    pub(crate) const fn port(&self) -> usize {
        self.number << 16 | self.lives as usize
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    /// Whether it serves, and was not told to end.
    pub(crate) fn serves(&self) -> bool {
        self.alive.as_ref().is_some_and(|it| it.leaves_ms.is_none())
    }

    pub(crate) fn session_count(&self) -> usize {
        self.alive.as_ref().map_or(0, |it| it.host.gate().session_count())
    }

    /// Players of a backend, as its claims count them.
    pub(crate) fn players_of(&self, backend: &str) -> u32 {
        let Some(alive) = &self.alive else { return 0 };
        let its = alive.setup.backends.pairs().filter(|(_, it)| it.name == backend);
        its.map(|(id, _)| alive.claims.players(id)).sum()
    }

    /// Whether its worker takes a client for banned.
    pub(crate) fn denies(&self, client: u64) -> bool {
        self.alive.as_ref().is_some_and(|it| it.host.gate().setup().denied.holds_client(client))
    }

    /// Whether it has not heard yet what etcd has.
    pub(crate) fn awaits_fleet(&self) -> bool {
        self.alive.as_ref().is_some_and(|it| it.setup.awaits_fleet)
    }

    /// The number of what it holds back; 0 for nothing.
    pub(crate) fn doubt(&self) -> u64 {
        self.alive.as_ref().map_or(0, |it| it.member.status().member.doubt())
    }

    /// What it holds back, in words.
    pub(crate) fn doubted(&self) -> String {
        self.alive.as_ref().map_or_else(String::new, |it| it.member.status().member.limits())
    }

    pub(crate) fn confirm(&self, doubt: u64) {
        if let Some(alive) = &self.alive {
            alive.member.order(Order::Confirm(doubt));
        }
    }

    fn prepared(&self, etcd: &Etcd, process: &Process, random: u64) -> Prepared {
        let client = etcd::client(etcd, self.number);
        let files = self.files.clone();
        let around = Surroundings { client, clock: process.clock(), files, random };
        let fleet = self.file.fleet.as_ref().expect("it is in a fleet");
        Prepared::with(fleet, &self.file.gateway, UID, around).expect("it has a name")
    }

    /// A start with what `state_dir` has.
    pub(crate) fn start(&mut self, etcd: &Etcd, now_ms: u64, random: &mut Random) {
        self.lives += 1;
        let process = Process::start(now_ms, random.within(0..1500));
        let mut prepared = self.prepared(etcd, &process, random.word());
        let known = prepared.known(process.clock().unix_s());
        let config = ringgate::membership::merged(&self.file, &known).config;
        let mut setup = Setup::clone(&plan::plan(&config).expect("a plan").setup);
        setup.denied = Arc::new(known.bans.to_denied());
        let setup = Arc::new(setup);
        let links = plan::links(&config);
        let slots = setup.backend_slots();
        let claims = Claims::with_key(setup.listeners.len(), &slots, setup.claim_limits(), [1, 2]);
        let claims = Arc::new(claims);
        let now = gate_now(now_ms, &process);
        for token in &self.spent {
            claims.remember_spent(token, now);
        }
        let seed = Seed {
            challenge_key: Key::from_bytes([self.lives as u8; 32]),
            random: [random.word(), random.word(), 1, 2],
        };
        let worker = WorkerIndex { id: WorkerId(0), count: 1 };
        let mut gate =
            Gate::new(Arc::clone(&setup), worker, Arc::clone(&claims), Aead::detect(), seed, now);
        gate.bind_player_socket(PLAYERS, ListenerId(0), BindId(0));
        gate.bind_link_listener(LINKS);
        gate.bind_udp_link(UDP);
        let host = Host::new(gate);
        let following = Following::new(self.file.clone(), known);
        self.begin(process, prepared, (following, config, setup), (claims, host, links), now_ms);
    }

    fn begin(
        &mut self,
        process: Process,
        prepared: Prepared,
        (following, config, setup): (Following, Config, Arc<Setup>),
        (claims, host, links): (Arc<Claims>, Host, Links),
        now_ms: u64,
    ) {
        let Setup { fleet_tokens, fleet_players, .. } = &*setup;
        let (tokens, players) = (fleet_tokens.clone(), fleet_players.clone());
        let crew = GateCrew { gate: host.gate(), claims: &claims };
        let running = Running {
            config: &config,
            setup: &setup,
            crew: &crew,
            workers: 1,
            is_free: &|_| false,
        };
        let used = following::players_of_backends(&running);
        let facts = Facts { started_unix_s: UNIX_START_S, ..following.facts(&running) };
        let questions = Questions::new(&config, &setup, &claims);
        let answerer = Some(questions.answerer());
        let shelf = Shelf { answerer, tokens, players, used, ..Shelf::default() };
        let (member, work) = Member::open(prepared, facts, shelf);
        let work = process.spawn(work);
        self.ran_ms = now_ms;
        self.alive = Some(Alive {
            receiver: member.known(),
            process,
            member,
            work,
            following,
            config,
            setup,
            claims,
            host,
            links,
            questions,
            inbox: VecDeque::new(),
            is_pending: true,
            tells_ms: 0,
            leaves_ms: None,
            is_parted: false,
        });
    }

    /// It is gone without a word.
    pub(crate) fn kill(&mut self) {
        (self.alive, self.parting) = (None, None);
        (self.to_players, self.to_games, self.closed) = Default::default();
        self.to_udp.clear();
    }

    /// It is told to end: players have so long to leave.
    pub(crate) fn leave(&mut self, now_ms: u64) {
        if let Some(alive) = self.alive.as_mut().filter(|it| it.leaves_ms.is_none()) {
            alive.leaves_ms = Some(now_ms + DRAIN_MS);
            alive.host.post(Mail::Drain { left_ms: DRAIN_MS as u32 });
        }
    }

    /// Another process takes over. False where that cannot be now.
    pub(crate) fn upgrade(&mut self, etcd: &Etcd, now_ms: u64, random: &mut Random) -> bool {
        let is_ready = |it: &Alive| {
            it.leaves_ms.is_none()
                && it.host.mail_count() == 0
                && it.questions.is_quiet()
                && it.host.can_be_handed_over()
        };
        if self.parting.is_some() || !self.alive.as_ref().is_some_and(is_ready) {
            return false;
        }
        let Some(mut alive) = self.alive.take() else { return false };
        self.keep_spent(&mut alive);
        let mut process = Process::start(now_ms, random.within(0..1500));
        let mut prepared = self.prepared(etcd, &process, random.word());
        alive.count();
        let mut heirloom = alive.member.heirloom();
        if self.forgets_questions {
            heirloom.asked.clear();
        }
        // It is made with what the copy has, and hears of the rest once its workers are there.
        let known = prepared.known(process.clock().unix_s());
        process.prepare(PREPARES_MS);
        prepared.inherit(heirloom);
        let config = ringgate::membership::merged(&self.file, &known).config;
        let before = unheard(&alive.setup, &config);
        let sessions_max = before.claim_limits().sessions_max;
        let setup = Arc::new(Setup {
            fleet_tokens: Some(Arc::new(FleetTokens::new(1000))),
            fleet_players: Some(Arc::new(FleetPlayers::new(sessions_max))),
            denied: Arc::new(known.bans.to_denied()),
            ..before
        });
        let now = gate_now(now_ms, &process);
        let gates = [alive.host.gate()];
        let count = alive.host.gate().session_count();
        let succession = Rehearsal::new(1, 1 << 16).finish(&gates, &setup, now);
        let Succession { mut gates, claims, arrived } = succession.expect("it is quiet");
        assert_eq!((arrived.sessions, arrived.not_carried), (count, 0), "{}", self.name);
        let host = Host::new(gates.pop().expect("one"));
        alive.member.order(Order::Part);
        alive.questions.end();
        let following = Following::new(self.file.clone(), known);
        let inbox = alive.inbox;
        self.parting = Some((alive.process, alive.work));
        let links = alive.links;
        self.begin(process, prepared, (following, config, setup), (claims, host, links), now_ms);
        if let Some(alive) = &mut self.alive {
            alive.inbox = inbox;
            alive.receiver.mark_changed();
        }
        true
    }

    /// An operator has a player go over to another game process.
    pub(crate) fn order_move(&mut self, session: u64, backend: &str) {
        let Some(alive) = &mut self.alive else { return };
        let mut its = alive.setup.backends.pairs().filter(|(_, it)| it.name == backend);
        let session = SessionId::from_u64(session).expect("a session's number");
        if let Some((to, _)) = its.next() {
            let order = MoveOrder::new(session, to, 1_000);
            let order = order.with(OPERATORS, Box::default());
            let order = if session.as_u64().is_multiple_of(2) { order } else { order.confirmed() };
            alive.host.post(Mail::Move([Arc::new(order)].into()));
        }
    }

    /// A game process connects. What it says first is to be pushed on its link.
    pub(crate) fn accept(&mut self, link: SocketId) {
        if let Some(alive) = &mut self.alive {
            let accepted = IoEvent::Accepted { socket: LINKS, connection: link, peer: GAME };
            alive.host.notice(accepted);
        }
    }

    /// A game process's link has ended.
    pub(crate) fn lose_link(&mut self, link: SocketId) {
        if let Some(alive) = &mut self.alive {
            alive.host.notice(IoEvent::Closed { socket: link });
        }
    }

    /// A game process says what it is over a connection.
    pub(crate) fn announce(&self, connection: u64, name: &str, instance: u64, slots: u32) -> bool {
        let what = Announcement::new("arena", slots);
        let what = Announced { name: name.to_owned(), instance, what };
        self.alive.as_ref().is_some_and(|it| it.member.announce(connection, GAME, what))
    }

    /// That connection has ended.
    pub(crate) fn lose_announced(&self, connection: u64) {
        if let Some(alive) = &self.alive {
            alive.member.lose(connection);
        }
    }

    /// Something has arrived at its address.
    pub(crate) fn hear_player(&mut self, from: Endpoint, bytes: Vec<u8>) {
        if let Some(alive) = &mut self.alive {
            alive.inbox.push_back((PLAYERS, from, LocalIp::UNSPECIFIED, bytes));
        }
    }

    /// A game process has said something on its link.
    pub(crate) fn hear_game(&mut self, link: SocketId, bytes: Vec<u8>) {
        if let Some(alive) = &mut self.alive {
            alive.inbox.push_back((link, NOBODY, LocalIp::UNSPECIFIED, bytes));
        }
    }

    /// An unmodified server says something to the player at this address.
    pub(crate) fn hear_udp(&mut self, from: Endpoint, to: LocalIp, bytes: Vec<u8>) {
        if let Some(alive) = &mut self.alive {
            alive.inbox.push_back((UDP, from, to, bytes));
        }
    }

    /// Nobody listens at this address of its host.
    pub(crate) fn hear_that_nobody_listens(&mut self, at: Endpoint) {
        if let Some(alive) = &mut self.alive {
            alive.host.notice(IoEvent::Unreachable { socket: UDP, peer: at });
        }
    }

    pub(crate) fn run(&mut self, now_ms: u64) {
        let step_ms = now_ms - self.ran_ms;
        if now_ms < self.frozen_until_ms || step_ms == 0 {
            return;
        }
        self.ran_ms = now_ms;
        if let Some((process, work)) = &self.parting {
            process.run(now_ms, crate::STEP_MS);
            if work.is_finished() {
                self.parting = None;
            }
        }
        let Some(mut alive) = self.alive.take() else { return };
        if step_ms > 4 * crate::STEP_MS {
            alive.process.skip(step_ms - crate::STEP_MS);
        }
        alive.process.run(now_ms, step_ms.min(crate::STEP_MS));
        alive.follow();
        for mail in alive.questions.take_mail() {
            alive.host.post(mail);
        }
        alive.end_in_time(now_ms);
        self.turn(&mut alive, now_ms);
        self.keep_spent(&mut alive);
        if now_ms >= alive.tells_ms && !alive.is_parted {
            alive.tells_ms = now_ms + TELL_EVERY_MS;
            alive.tell();
        }
        if !(alive.is_parted && alive.work.is_finished()) {
            self.alive = Some(alive);
        }
    }

    fn keep_spent(&mut self, alive: &mut Alive) {
        while alive.claims.has_spent() {
            self.spent.extend(alive.claims.take_spent(64));
        }
    }

    fn turn(&mut self, alive: &mut Alive, now_ms: u64) {
        let now = gate_now(now_ms, &alive.process);
        loop {
            while let Some((socket, from, local, bytes)) = alive.inbox.front() {
                let Some(meta) = alive.host.receive(*socket, *from, bytes) else { break };
                meta.local = *local;
                alive.inbox.pop_front();
            }
            let Self { to_players, to_games, to_udp, closed, .. } = self;
            alive.host.turn(now, &mut Sockets { to_players, to_games, to_udp, closed });
            drop(alive.host.take_written());
            if let Err(why) = alive.host.gate().counters().check_conservation() {
                let name = &self.name;
                self.unbalanced.get_or_insert_with(|| format!("{name}: {why:?}"));
            }
            if alive.inbox.is_empty() {
                return;
            }
        }
    }
}

impl Alive {
    /// What the fleet knows goes to the worker, and who has logged in elsewhere goes.
    fn follow(&mut self) {
        if self.receiver.has_changed().unwrap_or(false) {
            let known = Arc::clone(&self.receiver.borrow_and_update());
            if self.following.hear(Arc::clone(&known)) {
                let mut setup = Setup::clone(&self.setup);
                setup.denied = Arc::new(known.bans.to_denied());
                setup.revision += 1;
                self.setup = Arc::new(setup);
                self.host.post(Mail::Setup(Arc::clone(&self.setup)));
                let wanted = Wanted { is_denied: true, ..Wanted::default() };
                let survey = Survey::new(wanted, Some(Ended::Denied), 0, 1);
                self.host.post(Mail::Survey(Arc::new(survey)));
            }
            self.following.gave_bans(self.setup.revision);
            self.is_pending = true;
        }
        if self.is_pending && self.leaves_ms.is_none() {
            let Self { following, config, setup, claims, host, member, links, .. } = self;
            let crew = GateCrew { gate: host.gate(), claims };
            let is_free = |id: BackendId| {
                setup.backends[id].retired
                    && claims.players(id) == 0
                    && host.gate().setup().revision == setup.revision
            };
            let running = Running { config, setup, crew: &crew, workers: 1, is_free: &is_free };
            let fronts: Vec<_> = setup.listeners.iter().map(|it| Front::of(&it.protocol)).collect();
            // Its listeners are those that it was started with.
            let listeners = KnownListeners {
                fronts: &fronts,
                made_with: &|_| None,
                is_vacant: &|_| false,
                spoken: &|backend| (crew.players(backend) > 0).then_some(Front::Netcode),
                links: *links,
                holder_of: &|_| None,
            };
            match following.next(&running, |name| member.owner(name), &listeners) {
                Ok((next, config)) => {
                    self.setup = Arc::new(next.setup);
                    self.config = config;
                    self.following.gave(self.setup.revision);
                    self.is_pending = false;
                    self.questions.see(&self.config, &self.setup);
                    self.host.post(Mail::Setup(Arc::clone(&self.setup)));
                }
                Err(why) => panic!("{why:?}"),
            }
        }
        let players = self.setup.fleet_players.as_ref().filter(|it| it.has_ousted());
        if let Some(players) = players {
            let ousted: Arc<[SessionId]> = players.take_ousted(64).into();
            self.host.post(Mail::Oust(ousted));
        }
    }

    /// What others are told.
    fn tell(&mut self) {
        let Self { following, config, setup, claims, host, .. } = self;
        let crew = GateCrew { gate: host.gate(), claims };
        following.confirm(&crew);
        let running = Running { config, setup, crew: &crew, workers: 1, is_free: &|_| false };
        let is_draining = self.leaves_ms.is_some();
        let facts = following.facts(&running);
        self.member.tell(Facts { is_draining, started_unix_s: UNIX_START_S, ..facts });
        self.count();
    }

    fn count(&mut self) {
        let Self { config, setup, claims, host, .. } = self;
        let crew = GateCrew { gate: host.gate(), claims };
        let running = Running { config, setup, crew: &crew, workers: 1, is_free: &|_| false };
        let name = |backend: BackendId| setup.backends.get(backend).map(|it| it.name.clone());
        let joins = claims.take_joins().into_iter();
        let joined = joins.filter_map(|(backend, it)| Some((name(backend)?, it))).collect();
        let players = following::players_of_backends(&running);
        self.member.count(players, following::linked_backends(&running), joined);
    }

    fn end_in_time(&mut self, now_ms: u64) {
        let is_over = self.leaves_ms.is_some_and(|at_ms| now_ms >= at_ms);
        if is_over && !std::mem::replace(&mut self.is_parted, true) {
            self.host.post(Mail::Stop);
            self.member.order(Order::Leave);
        }
    }
}

/// What is known of the only worker.
struct GateCrew<'a> {
    gate: &'a Gate,
    claims: &'a Claims,
}

impl Crew for GateCrew<'_> {
    fn has_adopted(&self, revision: u64) -> bool {
        self.gate.setup().revision >= revision
    }

    fn players(&self, backend: BackendId) -> u32 {
        self.claims.players(backend)
    }

    fn sessions(&self, listener: ListenerId) -> u32 {
        self.claims.sessions(listener)
    }

    fn linked(&self, backend: BackendId) -> [usize; 2] {
        let is_up = self.gate.backends_up().nth(backend.index());
        [usize::from(is_up == Some(true)), usize::from(is_up.is_some())]
    }

    fn is_closed(&self, backend: BackendId) -> bool {
        self.gate.backends_closed().nth(backend.index()) == Some(true)
    }
}

struct Sockets<'a> {
    to_players: &'a mut Vec<(Endpoint, Vec<u8>)>,
    to_games: &'a mut Vec<(SocketId, Vec<u8>)>,
    to_udp: &'a mut Vec<(Endpoint, LocalIp, Vec<u8>)>,
    closed: &'a mut Vec<SocketId>,
}

impl Wire for Sockets<'_> {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        match (target.socket, target.peer) {
            (PLAYERS, Some(to)) => self.to_players.push((to, bytes.to_vec())),
            (UDP, Some(to)) => self.to_udp.push((to, target.source, bytes.to_vec())),
            (link, _) if !self.closed.contains(&link) => self.to_games.push((link, bytes.to_vec())),
            _ => return Err(SendFailure::Gone),
        }
        Ok(())
    }

    fn close(&mut self, socket: SocketId) {
        self.closed.push(socket);
    }
}

/// What a successor begins with, whose config knows no more of the fleet than that.
fn unheard(before: &Setup, config: &Config) -> Setup {
    let mut setup = before.clone();
    for it in &mut setup.backends {
        it.retired |= !config.backends.iter().any(|known| known.name == it.name);
    }
    let Setup { backends, listeners, .. } = &mut setup;
    for listener in listeners {
        listener.backends.retain(|it| !backends[*it].retired);
        if let Protocol::Netcode(rules) = &mut listener.protocol {
            rules.moves.retain(|it| !backends[*it].retired);
        }
    }
    Setup { awaits_fleet: true, ..setup }
}

/// A gate's time is the host's, whichever process has it.
fn gate_now(now_ms: u64, process: &Process) -> Now {
    let (_, unix_s) = process.now();
    Now { mono_ns: 1_000_000_000 + now_ms * 1_000_000, unix_s }
}

/// Who the gateway and its game processes run as.
const UID: u32 = 7;
const GAME: Credentials = Credentials { uid: UID, gid: UID, pid: 0 };
const PLAYERS: SocketId = SocketId(1);
const LINKS: SocketId = SocketId(2);
const UDP: SocketId = SocketId(3);
/// The ticket of moves that an operator asks of one gateway. Those of a fleet have none.
const OPERATORS: u64 = 1;
const NOBODY: Endpoint = Endpoint::v4([0; 4], 0);
const TELL_EVERY_MS: u64 = 100;
/// How long a successor takes until it serves, on a host with much to do.
const PREPARES_MS: u64 = 15_000;
/// How long players have when a gateway ends.
const DRAIN_MS: u64 = 3_000;
