//! One worker's mind, sans I/O: sessions, handshakes, admission, timers, routing, the turn.
//!
//! Datagrams come in as an [`RxBatch`], time as an argument, and everything that leaves is put into
//! a [`TxBatch`](ringgate_batch::TxBatch); the worker owns the sockets on both ends. So a whole
//! gateway runs in the simulator, from a seed, faster than real time.
//!
//! A turn has the stages that the documents name. **Classify** looks at everything that arrived
//! without decrypting anything; **open** runs one AEAD batch over what deserves it; **step**
//! commits replay windows, drives the state machines and copies payloads into the backends'
//! bundles; **seal** runs one batch over what leaves; **submit** is the driver's. Positions noted
//! early in a turn stay valid to its end, because nothing is reclaimed before.
//!
//! After warm-up a turn allocates nothing: what grows has been reserved, and rare things (a
//! session's user data, a mailed setup) are allocated where they are rare.
#![deny(unsafe_code)]

mod counters;
mod front;
pub mod host;
mod links;
mod mail;
mod output;
mod roles;
mod setup;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

pub use counters::{Counters, Ended, Imbalance, Ledger, LinkRefusal, PACKET_KINDS};
pub use front::netcode::session::SessionInfo;
pub use front::unreal::ServerInfo;
pub use links::listening::Listening;
pub use links::state::is_shared_socket_backend;
pub use mail::{ForwardedDatagram, Mail, Request, Steering};
pub use setup::{
    Allowed, Backend, Credentials, Duplicates, Limits, LinkKind, Listener, Netcode, Protocol,
    Route, Setup, TokenReuse, Unreal,
};
pub use shared::claims::{ClaimLimits, Claims};
pub use turn::{Exit, Now};

use front::netcode::departed::Departed;
use front::netcode::fetch::Source;
use front::netcode::players::Arrival;
use front::netcode::port_switch::PortSwitches;
use front::netcode::session::{Pending, Session};
use front::netcode::timers::Sweep;
use front::unreal::Front;
use links::session_sockets::SocketQueue;
use links::state::{BackendState, Link};
use output::Seal;
use roles::{Role, Roles};
use store::admission::Admission;
use store::census::Census;
use store::hash::HashKey;
use store::table::{Resting, Table};
use store::wheel::{TICK_NS, Wheel};
use turn::Turn;

use ringgate_batch::{Endpoint, IoEvent, RxBatch, SocketId};
use ringgate_core::crypto::{Aead, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::AadTable;
use ringgate_core::proto::netcode::server::GlobalSequence;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_link::bundle::SessionId;

/// Randomness that a gate starts from.
#[derive(Debug)]
pub struct Seed {
    /// Seals challenge tokens.
    pub challenge_key: Key,
    /// Where sequences start, and the keys of hash tables.
    pub random: [u64; 4],
}

impl Seed {
    /// From the operating system's generator.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; 4];
        for word in &mut random {
            *word = getrandom::u64()?;
        }
        Ok(Self { challenge_key: Key::generate()?, random })
    }
}

/// Which worker a gate belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerIndex {
    /// From 0.
    pub index: u16,
    /// How many there are.
    pub count: u16,
}

/// Moments that the worker turns into latencies, collected over a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When the kernel received each datagram whose payload went to a link in this turn, in its
    /// real-time clock.
    pub uplink_kernel_ns: Vec<u64>,
    /// How many payloads from links were sealed in this turn.
    pub downlink_count: u64,
    /// How long each handshake took that was completed in this turn, from the first request we
    /// took.
    pub handshakes_ns: Vec<u64>,
}

/// One worker's sessions and everything that decides about them.
pub struct Gate {
    setup: Arc<Setup>,
    worker: WorkerIndex,
    listeners: Vec<ListenerState>,
    backends: Vec<BackendState>,
    /// When to look for udp backends that are gone; `u64::MAX` while none is.
    next_probe_ns: u64,
    links: Vec<Option<Link>>,
    /// Links that a bundle was opened for since the last submit; some may have closed it again.
    open_links: Vec<u16>,
    /// Some link may not have said who it is, or has deferred records.
    has_unsettled_links: bool,
    /// Links whose sockets are not read because the gate is behind with what they say.
    links_held: u32,
    /// The link that is served first.
    first_backlog: usize,
    /// What each link may ask for in this turn.
    share: u32,
    turn_number: u64,
    /// The last multicast that has named each session.
    multicast_seen: Vec<u32>,
    multicast_serial: u32,
    /// Who may connect at all: the processes that one backend or another allows.
    may_connect: Allowed,
    /// Whose link was last closed, by reason.
    last_refused: [Option<Credentials>; LinkRefusal::COUNT],
    roles: Roles,
    udp_link: Option<SocketId>,
    session_sockets: SocketQueue,

    sessions: Table<Session>,
    /// Invariant: hashes with the same key as `sessions`, so that a datagram's source is hashed
    /// once.
    pending: Table<Pending>,
    sweep: Sweep,
    wheel: Wheel<TICK_NS>,
    claims: Arc<Claims>,
    admission: Admission,
    /// Unfinished handshakes of each block.
    handshakes: Census,
    port_switches: PortSwitches,
    departed: Departed,
    unreal: Front,
    /// Addresses whose datagrams we forward, and the worker that owns their session.
    steered: HashMap<SteeredKey, u16>,

    aead: Aead,
    challenge_key: Key,
    challenge_sequence: u64,
    global_sequence: GlobalSequence,
    random: Random,

    arrivals: Vec<Arrival>,
    /// Where they come from.
    sources: Vec<Source>,
    verdicts: Vec<Verdict>,
    seals: Vec<Seal>,
    counters: Counters,
    stamps: Stamps,
    requests: VecDeque<Request>,
    mail_out: Vec<(u16, Mail)>,
    /// Between the first mail of a turn and the turn's end.
    in_turn: bool,
    /// When the last turn was.
    turned_ns: u64,
    started_ns: u64,
    /// Until when players may stay, once no new ones are taken in.
    draining_until_ns: Option<u64>,
    stopped: bool,
}

type SteeredKey = (u16, Endpoint);

/// What a listener needs at every datagram.
struct ListenerState {
    is_unreal: bool,
    aads: AadTable,
    own: Vec<Endpoint>,
    /// Our sockets, by the position of their address in the listener's list.
    sockets: Vec<SocketId>,
    /// Invariant: its size never changes, because it says where the bits of live windows lie.
    replay: Policy,
}

/// Random numbers from a seed: `SplitMix64` over a random start. Unpredictability is not needed
/// where they are used (first sequence numbers), only that two runs do not meet.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Gate {
    /// A gate without sockets.
    pub fn new(
        setup: Arc<Setup>,
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        seed: Seed,
        now: Now,
    ) -> Self {
        let now_ns = now.mono_ns;
        let [global_start, session_starts, hash @ ..] = seed.random;
        let hash_key = HashKey::new(hash);
        let spare = setup.spare_places(setup.worker_sessions_max);
        let resting = Resting { ns: PLACE_REST_NS, spare };
        let mut gate = Self {
            worker,
            listeners: Vec::new(),
            backends: Vec::new(),
            next_probe_ns: u64::MAX,
            links: Vec::new(),
            open_links: Vec::new(),
            has_unsettled_links: false,
            links_held: 0,
            first_backlog: 0,
            share: 0,
            turn_number: 0,
            multicast_seen: vec![0; setup.worker_sessions_max],
            multicast_serial: 0,
            may_connect: Allowed::default(),
            last_refused: [None; LinkRefusal::COUNT],
            roles: Roles::new(),
            udp_link: None,
            session_sockets: SocketQueue::new(),
            sessions: Table::new(
                setup.worker_sessions_max,
                resting,
                (seed.random[1] >> 32) as u32,
                hash_key,
            ),
            pending: Table::new(setup.worker_pending_max, Resting::NONE, 0, hash_key),
            sweep: Sweep::new(now_ns),
            wheel: Wheel::new(setup.worker_sessions_max + resting.spare, now_ns),
            port_switches: PortSwitches::new(
                (worker.index, setup.worker_sessions_max + resting.spare),
                &claims,
                hash_key,
                now_ns,
            ),
            claims,
            admission: Admission::new(ADMISSION_BUCKETS, hash_key, now_ns),
            handshakes: Census::new(
                setup.worker_pending_max + Front::sessions_max(&setup),
                hash_key,
            ),
            departed: Departed::new(setup.worker_sessions_max),
            unreal: Front::new(&setup, hash_key, session_starts.rotate_left(32), now_ns),
            steered: HashMap::new(),
            aead,
            challenge_key: seed.challenge_key,
            challenge_sequence: 0,
            global_sequence: GlobalSequence::new(usize::from(worker.index), global_start),
            random: Random(session_starts),
            arrivals: Vec::new(),
            sources: Vec::new(),
            verdicts: Vec::new(),
            seals: Vec::new(),
            counters: Counters::default(),
            stamps: Stamps::default(),
            requests: VecDeque::new(),
            mail_out: Vec::new(),
            in_turn: false,
            turned_ns: now_ns,
            started_ns: now_ns,
            draining_until_ns: None,
            stopped: false,
            setup: Arc::new(Setup::new(Vec::new(), Vec::new(), 0)),
        };
        gate.adopt(setup, now_ns);
        gate
    }

    /// Says that `socket` serves a listener: the one at position `bind` of its addresses. Positions
    /// are bound in order.
    pub fn bind_player_socket(&mut self, socket: SocketId, listener: u16, bind: u16) {
        let sockets = &mut self.listeners[usize::from(listener)].sockets;
        assert_eq!(sockets.len(), usize::from(bind), "addresses are bound in order");
        sockets.push(socket);
        self.roles.assign(socket, Role::Player { listener, bind });
    }

    /// Says that `socket` is the one that carries all players to udp backends on loopback.
    pub fn bind_udp_link(&mut self, socket: SocketId) {
        self.udp_link = Some(socket);
        self.roles.assign(socket, Role::UdpLink);
    }

    /// Says that `socket` accepts links.
    pub fn bind_link_listener(&mut self, socket: SocketId) {
        self.roles.assign(socket, Role::LinkListener);
    }

    /// One turn over everything that has arrived. What leaves has been handed to `exit.out` when
    /// this returns.
    pub fn turn(&mut self, now: Now, rx: &mut RxBatch, exit: &mut Exit<'_>) {
        let turn = &mut Turn::new(now, exit);
        self.begin(turn);
        for &event in &rx.events {
            self.handle_event(now, event);
        }
        self.classify(now, rx);
        self.open(rx);
        self.step(turn, rx);
        self.serve_backlogs(turn);
        for &event in &rx.events {
            self.handle_closed(now, event);
        }
        self.handle_timers(turn);
        self.finish(turn);
    }

    /// Takes a message in. To be called before [`turn`](Self::turn), which sends what follows from
    /// it.
    pub fn handle_mail(&mut self, now: Now, mail: Mail, exit: &mut Exit<'_>) {
        let turn = &mut Turn::new(now, exit);
        self.begin(turn);
        match mail {
            Mail::Datagram(datagram) => self.handle_forwarded(turn, datagram),
            Mail::Drain { left_ms } => self.drain(turn, left_ms),
            Mail::Listening(news) => self.note_listening(now, news),
            Mail::Setup(setup) => {
                self.forget_replaced(now, &setup);
                self.adopt(setup, now.mono_ns);
                self.close_disallowed_links(turn);
            }
            Mail::Steer(steering) => self.steer(steering),
            Mail::Stop => self.stop(turn),
            Mail::Unsteer(steering) => self.unsteer(now, &steering),
        }
    }

    /// What has to go to other workers, with their index. Empties the list.
    pub fn poll_mail(&mut self) -> impl Iterator<Item = (u16, Mail)> + '_ {
        self.mail_out.drain(..)
    }

    /// A message that [`poll_mail`](Self::poll_mail) gave out could not be delivered.
    pub fn mail_refused(&mut self, mail: &Mail) {
        let Mail::Datagram(datagram) = mail else { return };
        self.counters.forwarded_out -= 1;
        self.counters.drops.bump(DropReason::MailboxFull);
        self.take_back(datagram);
    }

    /// What the worker is asked to do, one at a time.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// When the gate wants to be called again at the latest. `None` while nothing is timed.
    pub fn poll_timeout(&self) -> Option<u64> {
        let mut due_ns = self.next_probe_ns;
        let mut also = |at_ns: Option<u64>| due_ns = due_ns.min(at_ns.unwrap_or(u64::MAX));
        also(self.wheel.next_due());
        also(self.session_sockets.due_ns());
        if self.pending.len() > 0 {
            also(Some(self.sweep.due_ns()));
        }
        if self.has_unsettled_links {
            also(self.links_due_ns());
        }
        also(self.unreal_due_ns());
        if self.links_held > 0 {
            also(Some(self.turned_ns));
        }
        (due_ns < u64::MAX).then_some(due_ns)
    }

    fn links_due_ns(&self) -> Option<u64> {
        self.links.iter().flatten().filter_map(|link| link.due_ns(self.turned_ns)).min()
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The moments of the last turn.
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// All sessions, one after the other.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        (0..self.sessions.places()).filter_map(|index| {
            let session = self.sessions.get(index)?;
            let address = self.sessions.address(index);
            Some(SessionInfo {
                client_id: session.client_id,
                listener: address.listener,
                address: address.endpoint,
                backend: session.backend,
                slot: session.slot,
                heard_ns: session.last_receive_ns,
                timeout_ns: session.timeout_ns(),
            })
        })
    }

    /// Sessions now.
    pub fn session_count(&self) -> usize {
        self.sessions.len() + self.unreal.sessions.len()
    }

    /// Whether each backend can be reached from this worker.
    pub fn backends_up(&self) -> impl Iterator<Item = bool> + '_ {
        let backends = self.backends.iter().enumerate();
        backends.map(|(at, state)| state.is_up() && self.unreal.is_answering(at))
    }

    /// How often each backend has become reachable for this worker.
    pub fn backend_arrivals(&self) -> impl Iterator<Item = u64> + '_ {
        self.backends.iter().map(|state| state.arrivals)
    }

    /// What each backend has said about itself, where it serves an Unreal game.
    pub fn servers(&self) -> impl Iterator<Item = Option<ServerInfo>> + '_ {
        (0..self.backends.len()).map(|backend| self.unreal.server(backend))
    }

    /// Whose link was last closed for each reason, in the order of [`LinkRefusal::ALL`].
    pub fn last_refused(&self) -> &[Option<Credentials>; LinkRefusal::COUNT] {
        &self.last_refused
    }

    /// What it was told.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Whether [`Mail::Stop`] has been carried out: every player has been told.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Which kernel seals and opens.
    pub fn aead(&self) -> &Aead {
        &self.aead
    }

    /// Bytes that one session takes in this gate's tables, without what its claims take.
    pub const fn session_bytes() -> usize {
        Table::<Session>::entry_bytes() + Wheel::<TICK_NS>::ENTRY_BYTES + size_of::<u32>()
    }

    /// Where the tables lie that are large and touched at random, for advice to the operating
    /// system before they are used.
    pub fn large_tables(&self) -> impl Iterator<Item = Range<*const u8>> + use<> {
        self.sessions.memory().into_iter().chain(self.unreal.sessions.memory())
    }

    /// Starts a turn, if the turn's mail has not done so.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.in_turn, true) {
            self.stamps.clear();
            self.renew_allowances();
            self.flush_deferred(turn);
        }
    }

    /// Which setup it goes by.
    pub fn revision(&self) -> u64 {
        self.setup.revision
    }

    /// Forgets what is known of backends whose number is another's from now on. They have no
    /// players: those who hand numbers out have seen to it.
    fn forget_replaced(&mut self, now: Now, setup: &Setup) {
        for at in 0..self.backends.len() {
            if setup.backends[at].is_same(&self.setup.backends[at]) {
                continue;
            }
            if let Some(link) = self.backends[at].link {
                self.lose_link(now, link);
            }
            self.backends[at] = BackendState::new(&setup.backends[at], now.mono_ns);
            self.unreal.forget_server(at);
        }
    }

    fn adopt(&mut self, setup: Arc<Setup>, now_ns: u64) {
        for listener in &setup.listeners[self.listeners.len()..] {
            let rules = listener.netcode();
            self.listeners.push(ListenerState {
                is_unreal: listener.unreal().is_some(),
                aads: AadTable::new(rules.map_or(0, |rules| rules.protocol_id)),
                own: Vec::new(),
                sockets: Vec::new(),
                replay: rules.map_or(Policy::NETCODE, |rules| rules.replay),
            });
        }
        for (state, listener) in self.listeners.iter_mut().zip(&setup.listeners) {
            state.own = listener.public.iter().copied().map(Endpoint::from).collect();
            let gap_limit = listener.netcode().map_or(0, |rules| rules.replay.gap_limit());
            state.replay = Policy::new(state.replay.size_bits(), gap_limit).unwrap_or(state.replay);
        }
        self.claims.resize_backends(&setup.backend_slots());
        let in_use = setup.backends.iter().filter(|backend| !backend.retired);
        self.may_connect = Allowed::union(in_use.filter_map(|backend| match &backend.link {
            LinkKind::Bundle { allow } => Some(allow),
            LinkKind::Udp { .. } => None,
        }));
        for backend in &setup.backends[self.backends.len()..] {
            self.backends.push(BackendState::new(backend, now_ns));
        }
        self.next_probe_ns = now_ns;
        self.unreal.adopt(&setup, now_ns);
        self.setup = setup;
    }

    fn handle_event(&mut self, now: Now, event: IoEvent) {
        match event {
            // What the process has still said comes first; its link is given up afterwards.
            IoEvent::Closed { socket } => {
                if let Role::Link(link) = self.roles.of(socket) {
                    self.mark_hung_up(link);
                }
            }
            IoEvent::Unreachable { socket, peer } => self.lose_udp_backend(now, socket, &peer),
            // The worker looks up the credentials and calls `handle_link_accepted`; a bell only
            // ends the wait.
            IoEvent::Accepted { .. } | IoEvent::Woken => {}
        }
    }

    /// Gives up a socket that has ended, after everything that had arrived on it.
    fn handle_closed(&mut self, now: Now, event: IoEvent) {
        let IoEvent::Closed { socket } = event else { return };
        match self.roles.of(socket) {
            // What it has said before is heard to the end.
            Role::Link(link) if self.link_mut(link).is_some_and(|link| link.is_held) => {}
            Role::Link(link) => self.lose_link(now, link),
            Role::SessionLink(place) => {
                self.close_socket(socket);
                if let Some(index) = self.sessions.live(place) {
                    let session = self.sessions.at_mut(index);
                    session.uplink = None;
                    session.announced = 0;
                }
            }
            Role::LinkListener | Role::Player { .. } | Role::UdpLink | Role::Vacant => {}
        }
    }

    /// Forgets a socket and has the worker close it.
    fn close_socket(&mut self, socket: SocketId) {
        self.roles.assign(socket, Role::Vacant);
        self.requests.push_back(Request::CloseSocket(socket));
    }

    fn session_id(&self, index: u32) -> SessionId {
        let place = self.sessions.place(index);
        let generation = u64::from(place.generation);
        SessionId::new(usize::from(self.worker.index), generation << 32 | u64::from(index))
    }

    /// The live session that a link means.
    #[inline]
    fn session_index(&self, session: SessionId) -> Option<u32> {
        let index = session.as_u64() as u32;
        (self.sessions.is_live(index) && self.session_id(index) == session).then_some(index)
    }
}

impl Stamps {
    fn clear(&mut self) {
        self.uplink_kernel_ns.clear();
        self.downlink_count = 0;
        self.handshakes_ns.clear();
    }
}

/// How long a session's place is not given to another player: longer than a game server that is not
/// told of departures waits for a silent player.
const PLACE_REST_NS: u64 = 30_000_000_000;

/// 8 bytes each.
const ADMISSION_BUCKETS: usize = 1 << 14;
