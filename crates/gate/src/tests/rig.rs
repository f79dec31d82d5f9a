//! A gate whose sockets are lists, with a clock that moves when a test says so.
//!
//! The rig judges whatever the gate does in any test: every turn has to balance, every packet that
//! leaves for a player has to open under the key of a token that the test has minted, and no nonce
//! may be used twice under a key.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::handover;
use crate::counters::{Counters, Ledger};
use crate::gate::Gate;
use crate::host::Host;
use crate::ids::{BackendId, BindId, ListenerId, WorkerId};
use crate::mail::Mail;
use crate::memory::Wire;
use crate::now::Now;
use crate::seed::{Seed, WorkerIndex};
use crate::setup::{
    Allowed, Backend, ClaimLimits, Credentials, Limits, LinkKind, Listener, Netcode, Phase,
    Protocol, Route, Setup, TokenReuse,
};
use crate::shared::claims::Claims;
use crate::store::table::Address;
use crate::tests::lens::Lens;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, Port, SendFailure, SocketId, TxTarget};
use ringgate_core::crypto::{Aead, Job, Key, Verdict};
use ringgate_core::drops::{DropCounts, DropReason};
use ringgate_core::netcode::{ConnectToken, TokenSpec, mint};
use ringgate_core::proto::netcode::packet::{AadTable, Header, PacketKind, Receiver};
use ringgate_core::proto::netcode::server::SessionSequence;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_link::bundle::SessionId;

pub(super) const PROTOCOL: u64 = 0x1122_3344_5566_7788;
pub(super) const PUBLIC: &str = "203.0.113.9:40000";
pub(super) const START: Now = Now { mono_ns: 1_000_000_000, unix_s: 1_700_000_000 };

/// The first socket of each listener's first address; the second address has the next one.
const PLAYER_SOCKETS: [SocketId; 2] = [SocketId(1), SocketId(3)];
pub(super) const UDP_LINK: SocketId = SocketId(20);
const LINK_LISTENER: SocketId = SocketId(21);
const FIRST_LINK: u32 = 30;

pub(super) const OUR_USER: Credentials = Credentials { uid: 1000, gid: 1000, pid: 0 };

pub(super) fn key(n: u8) -> Key {
    Key::from_bytes([n; 32])
}

pub(super) fn endpoint(text: &str) -> Endpoint {
    text.parse::<std::net::SocketAddr>().expect("literal").into()
}

/// The address of the `n`th player, each in a network of its own.
pub(super) fn home(n: u16) -> Endpoint {
    Endpoint::v4([10, (n >> 8) as u8, n as u8, 7], 5000)
}

pub(super) fn bundle_backend(name: &str, slots: u32) -> Backend {
    Backend {
        name: name.to_owned(),
        link: LinkKind::Bundle { allow: Allowed { uids: vec![OUR_USER.uid], gids: Vec::new() } },
        slots,
        grace_ns: 2_000_000_000,
        retired: false,
        drained: false,
        intake: crate::setup::Intake::Anybody,
    }
}

pub(super) fn udp_backend(name: &str, address: &str, slots: u32) -> Backend {
    let address = address.parse().expect("literal");
    Backend { link: LinkKind::Udp { address }, ..bundle_backend(name, slots) }
}

pub(super) fn listener(name: &str, backends: &[u16]) -> Listener {
    Listener {
        name: name.to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL,
            keys: vec![key(1).into()],
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: TokenReuse::Deny,
            delivers: false,
            unique_in: None,
            moves: Vec::new(),
            replace_after_ns: 2_000_000_000,
        }),
        public: vec![PUBLIC.parse().expect("literal")],
        backends: backends.iter().copied().map(BackendId).collect(),
        route: Route::Single,
        sessions_max: 100,
        follow_port_switch: true,
        limits: Limits::NETCODE,
        phase: Phase::Serving,
    }
}

/// The rules of the first listener.
pub(super) fn netcode_rules(setup: &mut Setup) -> &mut Netcode {
    let Protocol::Netcode(rules) = &mut setup.listeners[ListenerId(0)].protocol else {
        panic!("netcode")
    };
    rules
}

/// One listener with one backend on a bundle link.
pub(super) fn plain_setup() -> Setup {
    Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 4)], 77)
}

/// A datagram that has left the gate.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) target: TxTarget,
    pub(super) bytes: Vec<u8>,
}

/// Something that the driver was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Close(SocketId),
    Hold { socket: SocketId, is_held: bool },
    Open(std::net::SocketAddr),
}

/// Why the next datagrams on a socket do not leave.
pub(super) type Obstacle = (SocketId, SendFailure);

pub(super) struct Rig {
    pub(super) host: Host,
    pub(super) now: Now,
    /// What has left and was not taken by a test yet.
    pub(super) sent: Vec<Sent>,
    pub(super) obstacles: Vec<Obstacle>,
    /// What the driver was asked for and a test has not looked at yet.
    pub(super) requests: Vec<Asked>,
    /// How far the wall clock is off.
    wall_ahead_s: i64,
    /// Sockets that the worker can still make for sessions.
    pub(super) descriptors: u32,
    /// Those that it has made.
    pub(super) session_sockets: Vec<SocketId>,
    judge: Rc<RefCell<Judge>>,
    next_socket: u32,
    turns: u64,
    /// What the workers agree on has the size that follows from the setup.
    has_usual_claims: bool,
}

impl Rig {
    pub(super) fn new(setup: Setup) -> Self {
        let claims = claims_for(&setup, setup.claim_limits());
        Self { has_usual_claims: true, ..Self::with_claims(setup, claims) }
    }

    pub(super) fn with_claims(setup: Setup, claims: Arc<Claims>) -> Self {
        let judge = Rc::new(RefCell::new(Judge::new(PROTOCOL)));
        let worker = WorkerIndex { id: WorkerId(0), count: 1 };
        Self::worker(Arc::new(setup), (worker, 0), claims, judge)
    }

    fn worker(
        setup: Arc<Setup>,
        (worker, life): (WorkerIndex, u8),
        claims: Arc<Claims>,
        judge: Rc<RefCell<Judge>>,
    ) -> Self {
        let number = u64::from(life) << 40 | u64::from(worker.id.0);
        let seed = Seed {
            challenge_key: key(200_u8
                .wrapping_add(worker.id.0 as u8)
                .wrapping_add(life.wrapping_mul(20))),
            random: [u64::MAX ^ number << 8, number, 1, 2],
        };
        let listeners = setup.listeners.clone();
        if listeners.iter().any(|listener| listener.netcode().is_none()) {
            judge.borrow_mut().sees_netcode_only = false;
        }
        let mut gate = Gate::new(setup, worker, claims, Aead::detect(), seed, START);
        for (at, listener) in listeners.iter().enumerate() {
            for bind in 0..listener.public.len() as u16 {
                let socket = SocketId(PLAYER_SOCKETS[at].0 + u32::from(bind));
                gate.bind_player_socket(socket, ListenerId::at(at), BindId(bind));
            }
        }
        gate.bind_udp_link(UDP_LINK);
        gate.bind_link_listener(LINK_LISTENER);
        Self {
            host: Host::new(gate).with_secrets(u64::from(life) << 32),
            now: START,
            sent: Vec::new(),
            obstacles: Vec::new(),
            requests: Vec::new(),
            wall_ahead_s: 0,
            descriptors: u32::MAX,
            session_sockets: Vec::new(),
            judge,
            next_socket: FIRST_LINK,
            turns: 0,
            has_usual_claims: false,
        }
    }

    /// Mints a token that the first listener takes.
    pub(super) fn token(&mut self, client_id: u64) -> ConnectToken {
        self.token_with(client_id, |_| {})
    }

    pub(super) fn token_with(
        &mut self,
        client_id: u64,
        change: impl FnOnce(&mut TokenSpec),
    ) -> ConnectToken {
        let mut spec = TokenSpec::new(PROTOCOL, client_id, PUBLIC.parse().expect("literal"));
        change(&mut spec);
        self.token_under(&spec, &key(1))
    }

    pub(super) fn token_under(&mut self, spec: &TokenSpec, key: &Key) -> ConnectToken {
        let token = mint(spec, key, self.now.unix_s).expect("random bytes");
        self.judge.borrow_mut().learn(token.server_to_client.clone());
        token
    }

    /// A datagram for the first listener, found by the next turn.
    pub(super) fn push(&mut self, from: Endpoint, bytes: &[u8]) {
        self.push_at(PLAYER_SOCKETS[0], from, bytes);
    }

    pub(super) fn push_at(&mut self, socket: SocketId, from: Endpoint, bytes: &[u8]) {
        while self.host.receive(socket, from, bytes).is_none() {
            self.turn();
        }
    }

    /// A datagram for the first listener, alone in a turn.
    pub(super) fn deliver(&mut self, from: Endpoint, bytes: &[u8]) {
        self.push(from, bytes);
        self.turn();
    }

    /// Datagrams for the first listener, each in a turn of its own.
    pub(super) fn deliver_all(&mut self, from: Endpoint, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            self.deliver(from, datagram);
        }
    }

    /// A datagram for the `listener`th listener, alone in a turn.
    pub(super) fn deliver_at(&mut self, listener: ListenerId, from: Endpoint, bytes: &[u8]) {
        self.push_at(PLAYER_SOCKETS[listener.index()], from, bytes);
        self.turn();
    }

    /// A datagram from a udp backend for the player who has that loopback address.
    pub(super) fn answer_udp(&mut self, from: Endpoint, to: LocalIp, bytes: &[u8]) {
        self.host.receive(UDP_LINK, from, bytes).expect("room").local = to;
        self.turn();
    }

    pub(super) fn event(&mut self, event: IoEvent) {
        self.host.notice(event);
        self.turn();
    }

    /// A process connects to the link socket.
    pub(super) fn accept_link(&mut self, credentials: Credentials) -> SocketId {
        let socket = self.new_socket();
        let accepted =
            IoEvent::Accepted { socket: LINK_LISTENER, connection: socket, peer: credentials };
        self.host.notice(accepted);
        socket
    }

    pub(super) fn new_socket(&mut self) -> SocketId {
        self.next_socket += 1;
        SocketId(self.next_socket)
    }

    pub(super) fn turn(&mut self) {
        let Self { host, sent, obstacles, judge, now, requests, .. } = self;
        let Self { descriptors, session_sockets, next_socket, .. } = self;
        let mut sockets =
            Surface { sent, obstacles, judge, requests, descriptors, session_sockets, next_socket };
        host.turn(*now, &mut sockets);
        self.balance();
        self.turns += 1;
        if handover::is_rehearsed(self.turns) && self.can_be_handed_over() {
            self.hand_over();
        }
    }

    /// Hands the gate over to another one and goes on with that.
    pub(super) fn hand_over(&mut self) {
        let setup = Arc::clone(&self.host.gate().common.setup);
        let succession = handover::succession(&[self.host.gate()], &setup, self.now);
        let [gate] = succession.gates.try_into().ok().expect("one worker");
        self.go_on_with(gate);
        self.balance();
    }

    /// A worker notes the moments of a turn right behind it; tests do so later.
    fn go_on_with(&mut self, mut gate: Gate) {
        let before = self.host.gate_mut();
        std::mem::swap(&mut gate.common.stamps, &mut before.common.stamps);
        *before = gate;
    }

    /// Whether nobody else holds what the workers agree on.
    fn can_be_handed_over(&self) -> bool {
        let common = &self.host.gate().common;
        let is_alone = common.worker.count == 1 && Arc::strong_count(&common.claims) == 1;
        is_alone && self.has_usual_claims && self.has_only_what_is_carried()
    }

    /// Who asks and who watches ends with the process, and a session that lacks a socket asks for
    /// it anew.
    fn has_only_what_is_carried(&self) -> bool {
        let Gate { common, fronts } = self.host.gate();
        let is_watched =
            !(common.surveys.is_empty() && common.captures.is_empty() && common.taps.is_empty());
        let lacks_none = fronts.netcode.session_sockets.lacking.is_empty();
        !is_watched && lacks_none && self.host.can_be_handed_over()
    }

    /// Mail for the next turn.
    pub(super) fn mail(&mut self, mail: Mail) {
        self.host.post(mail);
    }

    /// Refuses all mail to other workers, as their mailboxes do when they are full.
    pub(super) fn refuse_mail(&mut self) {
        for (_, mail) in self.host.take_written() {
            self.host.gate_mut().mail_refused(&mail);
        }
        self.balance();
    }

    fn balance(&self) {
        self.counters().check_conservation().expect("every turn balances");
        let mut by_listener = DropCounts::new();
        self.host.gate().listener_drops().for_each(|drops| by_listener.merge(drops));
        for (reason, count) in by_listener.iter() {
            let whole = self.drops(reason);
            let is_told_apart = Ledger::of(reason) == Ledger::Datagrams;
            let expected = if is_told_apart { whole } else { 0 };
            // What a number had counted goes when it becomes another listener's.
            let is_another = self.host.gate().revision() > 0 && count < expected;
            assert!(count == expected || is_another, "{}: {count}, {expected}", reason.name());
        }
    }

    /// Lets time pass, in turns of 10 ms.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            self.jump(10);
            self.turn();
        }
    }

    /// Lets time pass without a turn.
    pub(super) fn jump(&mut self, ms: u64) {
        self.now.mono_ns += ms * 1_000_000;
        let since_start_s = (self.now.mono_ns - START.mono_ns) / 1_000_000_000;
        self.now.unix_s = (START.unix_s + since_start_s).saturating_add_signed(self.wall_ahead_s);
    }

    /// Sets the wall clock, by which tokens expire, ahead or back.
    pub(super) fn step_wall_clock(&mut self, seconds: i64) {
        self.wall_ahead_s += seconds;
        self.jump(0);
    }

    pub(super) fn counters(&self) -> &Counters {
        self.host.gate().counters()
    }

    pub(super) fn drops(&self, reason: DropReason) -> u64 {
        self.counters().drops.of(reason)
    }

    pub(super) fn sessions(&self) -> usize {
        self.host.gate().session_count()
    }

    /// The session of the player at an address.
    pub(super) fn session_at(&self, player: Endpoint) -> SessionId {
        self.host.gate().session_at(player)
    }

    /// Forgets the keys of all tokens so far, where a test makes thousands.
    pub(super) fn forget_tokens(&mut self) {
        let mut judge = self.judge.borrow_mut();
        judge.keys.clear();
        judge.used.clear();
    }

    /// What has left since the last look, for a player.
    pub(super) fn take_for(&mut self, player: Endpoint) -> Vec<Vec<u8>> {
        self.take(|sent| sent.target.peer == Some(player) && is_player_socket(sent.target.socket))
    }

    /// What has left since the last look, on a link.
    pub(super) fn take_on(&mut self, link: SocketId) -> Vec<Vec<u8>> {
        self.take(|sent| sent.target.socket == link)
    }

    /// What has left since the last look, toward udp backends: each with the loopback address it
    /// came from.
    pub(super) fn take_udp(&mut self) -> Vec<(LocalIp, Vec<u8>)> {
        let is_udp = |sent: &mut Sent| sent.target.socket == UDP_LINK;
        self.sent.extract_if(.., is_udp).map(|sent| (sent.target.source, sent.bytes)).collect()
    }

    /// What has left since the last look, for udp backends: whom for, and the loopback address it
    /// came from.
    pub(super) fn take_for_servers(&mut self) -> Vec<(Endpoint, LocalIp, Vec<u8>)> {
        let is_udp = |sent: &mut Sent| sent.target.socket == UDP_LINK;
        let sent = self.sent.extract_if(.., is_udp);
        sent.filter_map(|sent| Some((sent.target.peer?, sent.target.source, sent.bytes))).collect()
    }

    fn take(&mut self, wanted: impl Fn(&Sent) -> bool) -> Vec<Vec<u8>> {
        self.sent.extract_if(.., |sent| wanted(sent)).map(|sent| sent.bytes).collect()
    }

    /// Asserts that `act` makes the gate count `reason` once and no other reason at all.
    pub(super) fn provokes(&mut self, reason: DropReason, act: impl FnOnce(&mut Self)) {
        let before = self.counters().drops.clone();
        let lens = Lens::wide(self);
        act(self);
        assert_eq!(newly(&before, &self.counters().drops), [(reason, 1)]);
        lens.has_seen(reason);
    }
}

/// What has been counted since.
pub(super) fn newly(before: &DropCounts, after: &DropCounts) -> Vec<(DropReason, u64)> {
    let both = before.iter().zip(after.iter());
    let grown = both.map(|((reason, before), (_, after))| (reason, after - before));
    grown.filter(|(_, count)| *count > 0).collect()
}

pub(super) fn claims_for(setup: &Setup, limits: ClaimLimits) -> Arc<Claims> {
    let claims = Claims::new(setup.listeners.len(), &setup.backend_slots(), limits);
    Arc::new(claims.clustered(setup))
}

/// Several workers that share their claims and write to each other.
pub(super) struct Fleet {
    pub(super) rigs: Vec<Rig>,
}

impl Fleet {
    pub(super) fn new(setup: Setup, count: u16) -> Self {
        Self::gateway(setup, count, &Rc::new(RefCell::new(Judge::new(PROTOCOL))))
    }

    /// Several gateways with the same setup, whose packets have the same players.
    pub(super) fn several<const COUNT: usize>(setup: &Setup, count: u16) -> [Self; COUNT] {
        let judge = Rc::new(RefCell::new(Judge::new(PROTOCOL)));
        std::array::from_fn(|_| Self::gateway(setup.clone(), count, &judge))
    }

    /// Another gateway in the place of one that has died, for the same players.
    pub(super) fn restarted(&self) -> Self {
        let first = &self.rigs[0];
        let setup = Setup::clone(first.host.gate().setup());
        let mut fleet = Self::gateway(setup, self.rigs.len() as u16, &Rc::clone(&first.judge));
        for rig in &mut fleet.rigs {
            rig.now = first.now;
            rig.wall_ahead_s = first.wall_ahead_s;
        }
        fleet
    }

    fn gateway(setup: Setup, count: u16, judge: &Rc<RefCell<Judge>>) -> Self {
        let life = judge.borrow().lives;
        judge.borrow_mut().lives += 1;
        let claims = claims_for(&setup, setup.claim_limits());
        let setup = Arc::new(setup);
        let worker = |index| {
            let (setup, claims) = (Arc::clone(&setup), Arc::clone(&claims));
            let worker = WorkerIndex { id: WorkerId(index), count };
            Rig::worker(setup, (worker, life), claims, Rc::clone(judge))
        };
        Self { rigs: (0..count).map(worker).collect() }
    }

    /// Does not check what is sent: for crowds whose keys nobody remembers.
    pub(super) fn look_away(&mut self) {
        self.rigs.iter().for_each(|rig| rig.judge.borrow_mut().sees_netcode_only = false);
    }

    /// Delivers all mail, and the mail that follows from it.
    pub(super) fn deliver_mail(&mut self) {
        for from in (0..self.rigs.len()).cycle().take(3 * self.rigs.len()) {
            self.deliver_mail_once(from);
        }
        let sent: u64 = self.rigs.iter().map(|rig| rig.counters().forwarded_out).sum();
        let received: u64 = self.rigs.iter().map(|rig| rig.counters().forwarded_in).sum();
        assert_eq!(sent, received, "no datagram is lost between workers");
        if handover::is_rehearsed(self.rigs[0].turns) && self.can_be_handed_over() {
            self.hand_over();
        }
    }

    /// Whether nothing is under way, and no test holds what the workers agree on.
    fn can_be_handed_over(&self) -> bool {
        let is_quiet = |rig: &Rig| rig.has_only_what_is_carried() && rig.host.mail_count() == 0;
        let claims = &self.rigs[0].host.gate().common.claims;
        self.rigs.iter().all(is_quiet) && Arc::strong_count(claims) == self.rigs.len()
    }

    /// Hands all gates over to others and goes on with those.
    pub(super) fn hand_over(&mut self) {
        let now = self.rigs[0].now;
        let gates: Vec<_> = self.rigs.iter().map(|rig| rig.host.gate()).collect();
        let setup = Arc::clone(&gates[0].common.setup);
        let succession = handover::succession(&gates, &setup, now);
        for (rig, gate) in self.rigs.iter_mut().zip(succession.gates) {
            rig.go_on_with(gate);
        }
    }

    /// Delivers the mail of one worker, and not what follows from it.
    pub(super) fn deliver_mail_once(&mut self, from: usize) {
        for (to, mail) in self.rigs[from].host.take_written() {
            self.rigs[to.index()].mail(mail);
            self.rigs[to.index()].turn();
        }
    }

    /// Lets time pass for all.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            for rig in &mut self.rigs {
                rig.jump(10);
                rig.turn();
            }
            self.deliver_mail();
        }
    }
}

fn is_player_socket(socket: SocketId) -> bool {
    socket < UDP_LINK
}

/// The sockets of a rig, in a turn.
struct Surface<'a> {
    sent: &'a mut Vec<Sent>,
    obstacles: &'a [Obstacle],
    judge: &'a RefCell<Judge>,
    requests: &'a mut Vec<Asked>,
    descriptors: &'a mut u32,
    session_sockets: &'a mut Vec<SocketId>,
    next_socket: &'a mut u32,
}

impl Wire for Surface<'_> {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        if is_player_socket(target.socket) && self.judge.borrow().sees_netcode_only {
            self.judge.borrow_mut().look_at(bytes);
        }
        if let Some((_, why)) = self.obstacles.iter().find(|(it, _)| *it == target.socket) {
            return Err(*why);
        }
        self.sent.push(Sent { target: *target, bytes: bytes.to_vec() });
        Ok(())
    }

    fn open(&mut self, port: &Port<'_>) -> io::Result<SocketId> {
        let Port::Session { address } = port else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        self.requests.push(Asked::Open(*address));
        let left = self.descriptors.checked_sub(1);
        *self.descriptors = left.ok_or_else(|| io::Error::other("too few descriptors"))?;
        *self.next_socket += 1;
        let socket = SocketId(*self.next_socket);
        self.session_sockets.push(socket);
        Ok(socket)
    }

    fn close(&mut self, socket: SocketId) {
        self.requests.push(Asked::Close(socket));
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        self.requests.push(Asked::Hold { socket, is_held });
    }
}

/// Knows the keys of all tokens, and every nonce that was used under them.
struct Judge {
    aad: Box<AadTable>,
    keys: Vec<Key>,
    used: HashSet<(usize, u64)>,
    aead: Aead,
    /// How many processes there have been: each draws other random numbers.
    lives: u8,
    /// Other packets are not its business.
    sees_netcode_only: bool,
}

impl Judge {
    fn new(protocol_id: u64) -> Self {
        Self {
            aad: Box::new(AadTable::new(protocol_id)),
            keys: Vec::new(),
            used: HashSet::new(),
            aead: Aead::detect(),
            lives: 0,
            sees_netcode_only: true,
        }
    }

    fn learn(&mut self, key: Key) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }

    fn look_at(&mut self, packet: &[u8]) {
        let header = Header::decode(packet, Receiver::Client).expect("a packet that clients take");
        let opens = |key: &Key| {
            let mut copy = packet[header.body_start()..].to_vec();
            let aad = self.aad.of(header.prefix);
            let mut jobs = [Job::new(key, header.nonce(), aad, &mut copy)];
            self.aead.open(&mut jobs);
            jobs[0].verdict == Verdict::Done
        };
        let key = self.keys.iter().position(opens).expect("sealed under a token's key");
        assert!(self.used.insert((key, header.sequence)), "nonce {} used twice", header.sequence);
        let is_early = matches!(header.kind, PacketKind::Challenge | PacketKind::Denied);
        assert_eq!(is_early, header.sequence >= 1 << 63, "{header:?}");
    }
}

impl Gate {
    fn session_at(&self, player: Endpoint) -> SessionId {
        let address = Address { listener: ListenerId(0), endpoint: player };
        let netcode = &self.fronts.netcode;
        let index = netcode.sessions.find(netcode.sessions.hash(&address), &address);
        netcode.sessions.id(index.expect("a player lives there"))
    }

    /// Whose session is at an address, if one is.
    pub(super) fn client_at(&self, player: Endpoint) -> Option<u64> {
        let address = Address { listener: ListenerId(0), endpoint: player };
        let sessions = &self.fronts.netcode.sessions;
        let index = sessions.find(sessions.hash(&address), &address)?;
        Some(sessions.at(index).client_id)
    }

    /// Uses up a session's sequence numbers, which takes 2^63 packets otherwise.
    pub(super) fn exhaust_sequence(&mut self, session: SessionId) {
        let netcode = &mut self.fronts.netcode;
        let index = netcode.sessions.named(session).expect("live");
        netcode.sessions.at_mut(index).next_sequence = SessionSequence::EXHAUSTED;
    }
}
