//! What both protocols' turmoil happens on: workers that share their claims, two clocks, and the
//! rules that hold for everybody.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use crate::Host;
use crate::memory::Wire;
use crate::rehearsal::{Rehearsal, Succession, succeed};
use ringgate_batch::{Endpoint, IoEvent, LocalIp, Port, SendFailure, SocketId, TxTarget};
use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;
use ringgate_gate::{
    BindId, Claims, Credentials, Gate, IdVec, Listener, ListenerId, Mail, Now, Phase, Seed, Setup,
    WorkerId, WorkerIndex,
};

/// Decisions, one byte each. When there are none left, the run is over.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub(super) fn pick<'t, T>(&mut self, things: &'t [T]) -> Option<&'t T> {
        let at = self.below(things.len());
        things.get(at)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// Changes some bytes anywhere.
    fn distort(&mut self, stream: &mut [u8]) {
        let at = (self.below(256) << 16 | self.below(256) << 8 | self.below(256)) % stream.len();
        match self.byte() {
            0..=127 => stream[at] ^= 1 << self.below(8),
            128..=191 => stream[at] = self.byte(),
            _ => stream[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
        }
    }

    /// Changes a byte, cuts the end off, or leaves everything as it is.
    pub(super) fn damage(&mut self, datagram: &mut Vec<u8>) {
        match self.byte() {
            0..=15 if !datagram.is_empty() => {
                let at = (self.below(256) << 8 | self.below(256)) % datagram.len();
                datagram[at] ^= 1 << self.below(8);
            }
            16..=23 => datagram.truncate(self.below(datagram.len() + 1)),
            24..=27 => datagram.push(self.byte()),
            _ => {}
        }
    }
}

/// A datagram that has left a worker.
pub(super) struct Sent {
    pub(super) worker: usize,
    pub(super) target: TxTarget,
    pub(super) bytes: Vec<u8>,
}

/// Bytes between the gateway and an address while nobody plays there.
#[derive(Clone, Copy, Default)]
struct Exchange {
    from: u64,
    to: u64,
}

pub(super) struct Stage {
    pub(super) hosts: Vec<Host>,
    pub(super) claims: Arc<Claims>,
    pub(super) setup: Arc<Setup>,
    /// As they were at first.
    listeners: IdVec<ListenerId, Listener>,
    pub(super) now: Now,
    /// What has left in the turn at hand.
    sent: Vec<Sent>,
    /// What has left and was looked at here.
    seen: Vec<Sent>,
    /// By worker: where players were when it was decided what leaves in this turn.
    homes_before: Vec<HashSet<Endpoint>>,
    /// Sockets that take nothing for now.
    pub(super) obstacles: Vec<(usize, SocketId, SendFailure)>,
    /// Mail on its way.
    mail: VecDeque<(usize, WorkerId, Mail)>,
    /// By worker: port switches so far.
    switches: Vec<u64>,
    strangers: HashMap<Endpoint, Exchange>,
    next_socket: u32,
}

impl Stage {
    pub(super) fn new(setup: Setup, workers: u16) -> Self {
        let setup = Arc::new(setup);
        let slots = setup.backend_slots();
        let (listeners, limits) = (setup.listeners.len(), setup.claim_limits());
        let claims = Arc::new(Claims::with_key(listeners, &slots, limits, [1, 2]));
        let host = |index| {
            let seed = Seed {
                challenge_key: Key::from_bytes([200 + index as u8; 32]),
                random: [u64::MAX - 3, u64::from(index) << 40 | 5, 1, 2],
            };
            let worker = WorkerIndex { id: WorkerId(index), count: workers };
            let (setup, claims) = (Arc::clone(&setup), Arc::clone(&claims));
            let listeners = setup.listeners.ids();
            let mut gate = Gate::new(setup, worker, claims, Aead::detect(), seed, START);
            for listener in listeners {
                gate.bind_player_socket(player_socket(listener), listener, BindId(0));
            }
            gate.bind_udp_link(UDP_LINK);
            gate.bind_link_listener(LINK_LISTENER);
            Host::new(gate).with_secrets(u64::from(index) << 32)
        };
        Self {
            hosts: (0..workers).map(host).collect(),
            claims,
            listeners: setup.listeners.clone(),
            setup,
            now: START,
            sent: Vec::new(),
            seen: Vec::new(),
            homes_before: vec![HashSet::new(); usize::from(workers)],
            obstacles: Vec::new(),
            mail: VecDeque::new(),
            switches: vec![0; usize::from(workers)],
            strangers: HashMap::new(),
            next_socket: FIRST_SOCKET,
        }
    }

    pub(super) fn open_socket(&mut self) -> SocketId {
        self.next_socket += 1;
        SocketId(self.next_socket)
    }

    pub(super) fn accept_link(&mut self, worker: usize) -> SocketId {
        let socket = self.open_socket();
        let accepted = IoEvent::Accepted { socket: LINK_LISTENER, connection: socket, peer: US };
        self.notice(worker, accepted);
        socket
    }

    /// A player's datagram, found by the worker's next turn.
    pub(super) fn push(
        &mut self,
        worker: usize,
        listener: ListenerId,
        from: Endpoint,
        bytes: &[u8],
    ) {
        self.strangers.entry(from).or_default().from += bytes.len() as u64;
        self.push_on(worker, player_socket(listener), from, LocalIp::UNSPECIFIED, bytes);
    }

    pub(super) fn push_on(
        &mut self,
        worker: usize,
        socket: SocketId,
        from: Endpoint,
        local: LocalIp,
        bytes: &[u8],
    ) {
        if let Some(meta) = self.hosts[worker].receive(socket, from, bytes) {
            meta.local = local;
        }
    }

    pub(super) fn notice(&mut self, worker: usize, event: IoEvent) {
        self.hosts[worker].notice(event);
    }

    /// A turn of one worker, after which everything that must hold does.
    pub(super) fn turn(&mut self, worker: usize) {
        self.note_homes(worker);
        let Self { hosts, sent, obstacles, now, next_socket, .. } = self;
        hosts[worker].turn(*now, &mut Sockets { worker, sent, obstacles, next_socket });
        let written = self.hosts[worker].take_written();
        self.mail.extend(written.into_iter().map(|(to, mail)| (worker, to, mail)));
        self.inspect(worker);
    }

    /// Delivers, or refuses, the message that has waited longest.
    pub(super) fn deliver_mail(&mut self, is_refused: bool) {
        let Some((from, to, mail)) = self.mail.pop_front() else { return };
        if is_refused {
            self.hosts[from].gate_mut().mail_refused(&mail);
            return self.balance(from);
        }
        self.tell(to.index(), mail);
        self.turn(to.index());
    }

    /// Mail for a worker, from another or from the control thread.
    pub(super) fn tell(&mut self, worker: usize, mail: Mail) {
        self.hosts[worker].post(mail);
    }

    pub(super) fn reload(&mut self, change: impl FnOnce(&mut Setup)) {
        let mut setup = Setup::clone(&self.setup);
        change(&mut setup);
        let before = std::mem::replace(&mut self.setup, Arc::new(setup));
        let is_closed = |setup: &Setup, listener| setup.listeners[listener].phase == Phase::Closed;
        let is_new = |it: &ListenerId| is_closed(&before, *it) && !is_closed(&self.setup, *it);
        let new: Vec<_> = before.listeners.ids().filter(is_new).collect();
        for worker in 0..self.hosts.len() {
            self.tell(worker, Mail::Setup(Arc::clone(&self.setup)));
            self.turn(worker);
            for &listener in &new {
                let gate = self.hosts[worker].gate_mut();
                gate.bind_player_socket(player_socket(listener), listener, BindId(0));
            }
        }
    }

    /// Takes a listener one step further in its life, or back from a drain.
    pub(super) fn turn_over(&mut self, listener: ListenerId, value: u8) {
        let first = self.listeners[listener].clone();
        self.reload(|setup| {
            let listener = &mut setup.listeners[listener];
            *listener = match (listener.phase, value) {
                (Phase::Serving, _) => Listener { phase: Phase::Draining, ..listener.clone() },
                (Phase::Draining, 0..160) => listener.closed(),
                (Phase::Draining, _) => Listener { phase: Phase::Serving, ..listener.clone() },
                (Phase::Closed, _) => first,
            };
        });
        for host in &self.hosts {
            let mut sessions = host.gate().sessions();
            let is_closed = self.setup.listeners[listener].phase == Phase::Closed;
            assert!(!is_closed || sessions.all(|session| session.listener != listener));
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now.mono_ns += ms * 1_000_000;
        self.now.unix_s += ms / 1000;
    }

    /// Another process takes over, or one that has taken everything gives up before its first turn,
    /// or one is given streams that somebody has damaged.
    pub(super) fn hand_over(&mut self, input: &mut Input<'_>) {
        // No mail is handed over, so workers turn until there is none.
        while !self.mail.is_empty() {
            self.deliver_mail(false);
        }
        for worker in 0..self.hosts.len() {
            self.turn(worker);
        }
        let is_at_rest = |host: &Host| host.mail_count() == 0 && host.can_be_handed_over();
        if !self.mail.is_empty() || !self.hosts.iter().all(is_at_rest) {
            return;
        }
        let gates: Vec<_> = self.hosts.iter().map(Host::gate).collect();
        let mut rehearsal = Rehearsal::new(gates.len(), STREAM_BYTES);
        rehearsal.write_rest(&gates).expect("it is quiet");
        let mut streams: Vec<_> = rehearsal.streams().map(<[u8]>::to_vec).collect();
        let fate = input.byte();
        if fate < 64 {
            let at = input.below(streams.len());
            (0..=input.below(4)).for_each(|_| input.distort(&mut streams[at]));
        }
        let parts: Vec<_> = streams[1..].iter().map(Vec::as_slice).collect();
        let read = succeed(&streams[0], &parts, &gates, &self.setup, self.now);
        if fate < 64 {
            return read.into_iter().for_each(Self::try_out);
        }
        let Succession { gates, claims, arrived } = read.expect("it is as it was written");
        let before: usize = self.hosts.iter().map(|host| host.gate().session_count()).sum();
        assert_eq!((arrived.sessions, arrived.not_carried), (before, 0));
        if fate < 128 {
            let hosts = self.hosts.iter_mut();
            return hosts.for_each(|host| host.gate_mut().resume_after_failed_hand_over());
        }
        for (host, gate) in self.hosts.iter_mut().zip(gates) {
            *host.gate_mut() = gate;
        }
        self.claims = claims;
    }

    /// What could be read of a damaged stream can be asked.
    fn try_out(succession: Succession) {
        for gate in succession.gates {
            let _ = (gate.sessions().count(), gate.poll_timeout());
        }
    }

    /// Sets the wall clock.
    pub(super) fn step_wall_clock(&mut self, seconds: i64) {
        self.now.unix_s = self.now.unix_s.saturating_add_signed(seconds);
    }

    /// What has left since the last look.
    pub(super) fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.seen)
    }

    fn note_homes(&mut self, worker: usize) {
        let homes = self.homes();
        self.homes_before[worker].extend(homes);
    }

    /// Where players are.
    fn homes(&self) -> HashSet<Endpoint> {
        let gates = self.hosts.iter().map(Host::gate);
        gates.flat_map(Gate::sessions).map(|session| session.address).collect()
    }

    fn balance(&self, worker: usize) {
        let balance = self.hosts[worker].gate().counters().check_conservation();
        assert_eq!(balance, Ok(()), "worker {worker} loses something");
    }

    fn inspect(&mut self, worker: usize) {
        self.balance(worker);
        let sessions: usize = self.hosts.iter().map(|host| host.gate().session_count()).sum();
        let listeners = self.setup.listeners.ids();
        let claimed: u32 = listeners.map(|listener| self.claims.sessions(listener)).sum();
        assert_eq!(claimed as usize, sessions, "claims and sessions");
        let backends = self.setup.backends.ids();
        let players: u32 = backends.map(|backend| self.claims.players(backend)).sum();
        let kept: usize = self.hosts.iter().map(|host| host.gate().slots_kept()).sum();
        let offers: u32 =
            self.setup.backends.ids().map(|backend| self.claims.offers(backend)).sum();
        assert_eq!(offers as usize, kept, "offers and the slots that are kept");
        assert_eq!(players as usize, sessions + kept, "players and sessions");
        assert!(self.claims.tokens_remembered() <= self.setup.claim_limits().tokens_max);
        let (before, after) = (std::mem::take(&mut self.homes_before[worker]), self.homes());
        // A session may have come to an address and left it again in this turn.
        let switches = self.hosts[worker].gate().counters().port_switches;
        let has_moved = std::mem::replace(&mut self.switches[worker], switches) != switches;
        let sent = std::mem::take(&mut self.sent);
        for sent in sent.iter().filter(|sent| is_player_socket(sent.target.socket)) {
            let to = sent.target.peer.expect("a player's packet is for a player");
            if before.contains(&to) || after.contains(&to) || has_moved {
                continue;
            }
            let stranger = self.strangers.entry(to).or_default();
            stranger.to += sent.bytes.len() as u64;
            let Exchange { from, to: back } = *stranger;
            assert!(back <= from, "{to:?} was sent {back} bytes for {from}");
        }
        self.seen.extend(sent);
    }
}

/// The sockets of one worker, in a turn.
struct Sockets<'a> {
    worker: usize,
    sent: &'a mut Vec<Sent>,
    obstacles: &'a [(usize, SocketId, SendFailure)],
    next_socket: &'a mut u32,
}

impl Wire for Sockets<'_> {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        let stands = |(at, socket, _): &&(usize, SocketId, SendFailure)| {
            *at == self.worker && *socket == target.socket
        };
        if let Some((.., why)) = self.obstacles.iter().find(stands) {
            return Err(*why);
        }
        self.sent.push(Sent { worker: self.worker, target: *target, bytes: bytes.to_vec() });
        Ok(())
    }

    fn open(&mut self, _port: &Port<'_>) -> io::Result<SocketId> {
        *self.next_socket += 1;
        Ok(SocketId(*self.next_socket))
    }
}

pub(super) const fn player_socket(listener: ListenerId) -> SocketId {
    SocketId(1 + listener.0 as u32)
}

pub(super) fn is_player_socket(socket: SocketId) -> bool {
    socket < UDP_LINK
}

/// An address of a player, of which there are a few, some behind one IP address.
pub(super) fn home(n: usize) -> Endpoint {
    Endpoint::v4([10, 0, 0, 1 + (n / 4) as u8], 5000 + (n % 4) as u16)
}

pub(super) const HOMES: usize = 16;

pub(super) const START: Now = Now { mono_ns: 1_000_000_000_000, unix_s: 1_700_000_000 };
pub(super) const UDP_LINK: SocketId = SocketId(20);
const LINK_LISTENER: SocketId = SocketId(21);
const FIRST_SOCKET: u32 = 30;
/// For a worker's stream: there are a handful of players.
const STREAM_BYTES: usize = 4 << 20;
pub(super) const US: Credentials = Credentials { uid: 7, gid: 7, pid: 0 };
