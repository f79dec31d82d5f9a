//! Any number of players who are connected to one worker with one game process: what a bench or a
//! measurement starts from.
//!
//! After [`ConnectedPlayers::new`] nothing here allocates, and what a player's own end remembers is
//! a few bytes (its keys follow from its number). So it is the gate that is measured: a million
//! clients would push its sessions out of the caches.

use std::ops::Range;
use std::sync::Arc;

use super::host::Host;
use super::netcode::{Cipher, Heard};
use ringgate_batch::{Endpoint, IoEvent, SendFailure, SocketId, TxTarget};
use ringgate_core::crypto::{Aead, Key};
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX, TAG_BYTES};
use ringgate_core::netcode::{ServerAddresses, TokenSecrets, TokenSpec, mint_with};
use ringgate_core::proto::netcode::client::{Client, Options, State};
use ringgate_core::proto::netcode::packet::{
    Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_gate::{
    Allowed, Backend, BackendId, BindId, Claims, Credentials, Gate, Limits, LinkKind, Listener,
    ListenerId, Mail, Netcode, Now, Phase, Protocol, Route, Seed, Setup, TokenReuse, WorkerId,
    WorkerIndex,
};
use ringgate_link::bundle::{Hello, SessionId, ToGame, Writer};

/// A worker's gate, and everybody who is connected to it.
pub struct ConnectedPlayers {
    host: Host,
    worker: WorkerId,
    now: Now,
    cipher: Cipher,
    members: Vec<Member>,
    is_one_address: bool,
}

/// A player who is connected.
#[derive(Clone, Copy)]
struct Member {
    /// What the game process calls it.
    session: Option<SessionId>,
    /// The number of its next packet.
    next_sequence: u64,
}

/// A player who is coming in.
struct Newcomer {
    client: Client,
    session: Option<SessionId>,
}

impl ConnectedPlayers {
    /// What tokens and packets are bound to.
    pub const PROTOCOL: u64 = PROTOCOL;

    /// Bytes that a player's own end takes, which a measurement of the gate leaves out.
    pub const MEMBER_BYTES: usize = size_of::<Member>();

    /// Connects so many players, at most 2^24.
    pub fn new(players: usize, aead: Aead) -> Self {
        Self::prepared(players, aead, |_| ())
    }

    /// Connects so many players, after `prepare` has had a look at the gate that will take them in.
    pub fn prepared(players: usize, aead: Aead, prepare: impl Fn(&Gate)) -> Self {
        Self::with_idle_games(players, 0, aead, prepare)
    }

    /// The same, all of them behind one address, which for IPv6 is a /64.
    pub fn behind_one_address(players: usize, aead: Aead) -> Self {
        let setup = Arc::new(setup(players, 0));
        let claims = claims(&setup);
        let place = WorkerIndex { id: WorkerId(0), count: 1 };
        Self::worker(place, players, &setup, &claims, aead, (true, |_| ()))
    }

    /// The same, at a listener that delivers messages. Each is heard of by a keep-alive, and has
    /// not begun to speak.
    pub fn delivering(players: usize, aead: Aead) -> Self {
        let mut setup = setup(players, 0);
        netcode_rules(&mut setup).delivers = true;
        let setup = Arc::new(setup);
        let place = WorkerIndex { id: WorkerId(0), count: 1 };
        Self::worker(place, players, &setup, &claims(&setup), aead, (false, |_| ()))
    }

    /// The same as [`new`](Self::new), on a host with so many other game processes, each with a
    /// link and without players.
    pub fn with_idle_games(
        players: usize,
        idle_games: u16,
        aead: Aead,
        prepare: impl Fn(&Gate),
    ) -> Self {
        let setup = Arc::new(setup(players, idle_games));
        let claims = claims(&setup);
        let place = WorkerIndex { id: WorkerId(0), count: 1 };
        Self::worker(place, players, &setup, &claims, aead, (false, prepare))
    }

    /// So many connected players on each worker of one gateway; the workers share what they do in
    /// production.
    pub fn workers(count: u16, players: usize, aead: impl Fn() -> Aead) -> Vec<Self> {
        let setup = Arc::new(setup(usize::from(count) * players, 0));
        let claims = claims(&setup);
        let worker = |index| {
            let place = WorkerIndex { id: WorkerId(index), count };
            Self::worker(place, players, &setup, &claims, aead(), (false, |_| ()))
        };
        (0..count).map(worker).collect()
    }

    fn worker(
        place: WorkerIndex,
        players: usize,
        setup: &Arc<Setup>,
        claims: &Arc<Claims>,
        aead: Aead,
        (is_one_address, prepare): (bool, impl Fn(&Gate)),
    ) -> Self {
        let seed = Seed { challenge_key: Key::from_bytes([3; 32]), random: [1, 2, 3, 4] };
        let mut gate = Gate::new(Arc::clone(setup), place, Arc::clone(claims), aead, seed, START);
        prepare(&gate);
        gate.bind_player_socket(PLAYERS, ListenerId(0), BindId(0));
        let cipher = Cipher::new(PROTOCOL);
        let members = Vec::with_capacity(players);
        let mut connected = Self {
            host: Host::new(gate),
            worker: place.id,
            now: START,
            cipher,
            members,
            is_one_address,
        };
        // One after the other: no more than a few may be there without a name.
        for (game, backend) in (0..).zip(&setup.backends) {
            let (connection, peer) = (link_of(game), Credentials { uid: 1, gid: 1, pid: 0 });
            let socket = connection;
            connected.host.notice(IoEvent::Accepted { socket, connection, peer });
            connected.say_hello(game, &backend.name);
        }
        for first in (0..players).step_by(WAVE) {
            connected.connect(first..players.min(first + WAVE));
        }
        connected
    }

    /// The gate, to ask it.
    pub fn gate(&self) -> &Gate {
        self.host.gate()
    }

    /// The moment of the last turn, and of the next one.
    pub const fn now(&self) -> Now {
        self.now
    }

    /// How many players there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        self.now.mono_ns += ns;
        self.now.unix_s = START.unix_s + self.now.mono_ns / 1_000_000_000;
    }

    /// Writes a player's payload packet; returns its length.
    pub fn write_payload(
        &mut self,
        player: usize,
        payload: &[u8],
        out: &mut [u8; DATAGRAM_BYTES_MAX],
    ) -> usize {
        self.write_packet(player, PacketKind::Payload, payload, out)
    }

    fn write_packet(
        &mut self,
        player: usize,
        kind: PacketKind,
        body: &[u8],
        out: &mut [u8; DATAGRAM_BYTES_MAX],
    ) -> usize {
        let sequence = self.members[player].next_sequence;
        self.members[player].next_sequence += 1;
        let (header, len) = encode_packet(kind, sequence, body, out);
        let key = secret_key(client_id(self.worker, player), TO_SERVER);
        self.cipher.seal_packet(&key, &header, &mut out[header.body_start()..len]);
        len
    }

    /// Opens a packet for a player in place: its payload, if it is one.
    pub fn open_payload<'p>(&mut self, player: usize, packet: &'p mut [u8]) -> Option<&'p [u8]> {
        let header = Header::decode(packet, Receiver::Client).ok()?;
        let key = secret_key(client_id(self.worker, player), TO_CLIENT);
        let sealed = &mut packet[header.body_start()..];
        let is_payload = header.kind == PacketKind::Payload;
        let is_open = is_payload && self.cipher.open(&key, &header, sealed);
        is_open.then(|| &sealed[..sealed.len() - TAG_BYTES])
    }

    /// What the game process calls a player.
    ///
    /// # Panics
    /// Where it was not told of it.
    pub fn session(&self, player: usize) -> SessionId {
        self.members[player].session.expect("everybody was announced")
    }

    /// Writes a packet that is numbered so far ahead of a player's, and that opens for nobody;
    /// returns its length.
    pub fn write_junk(
        &self,
        player: usize,
        ahead: u64,
        payload: &[u8],
        out: &mut [u8; DATAGRAM_BYTES_MAX],
    ) -> usize {
        let sequence = self.members[player].next_sequence + ahead;
        let (_, len) = encode_packet(PacketKind::Payload, sequence, payload, out);
        len
    }

    /// Writes a bundle with the same payload for some players, one record for each; returns its
    /// length.
    pub fn write_bundle(
        &self,
        players: impl Iterator<Item = usize>,
        payload: &[u8],
        out: &mut [u8],
    ) -> usize {
        let mut writer = Writer::new(out);
        for player in players {
            let session = self.session(player);
            assert!(writer.payload(session, payload), "it fits a bundle");
        }
        writer.len()
    }

    /// A datagram for the next turn, from a player or from anybody. False when a turn has to come
    /// first.
    pub fn receive(&mut self, from: Endpoint, datagram: &[u8]) -> bool {
        self.host.receive(PLAYERS, from, datagram).is_some()
    }

    /// A bundle for the next turn. False when a turn has to come first.
    pub fn receive_bundle(&mut self, bundle: &[u8]) -> bool {
        self.host.receive(LINK, NOBODY, bundle).is_some()
    }

    /// One turn; returns how many datagrams have left.
    pub fn turn(&mut self) -> u64 {
        let mut left = 0;
        self.turn_over(|_, _| {
            left += 1;
            Ok(())
        });
        left
    }

    /// One turn; `carry` gets what leaves, for which address, or for the game process.
    pub fn turn_over(
        &mut self,
        mut carry: impl FnMut(Option<Endpoint>, &[u8]) -> Result<(), SendFailure>,
    ) {
        self.host.turn(self.now, &mut |target: &TxTarget, bytes: &[u8]| carry(target.peer, bytes));
    }

    /// Sends keep-alives every so many nanoseconds from now on.
    pub fn keep_alive_every(&mut self, ns: u64) {
        let mut setup = self.gate().setup().clone();
        netcode_rules(&mut setup).keep_alive_ns = ns;
        self.host.post(Mail::Setup(Arc::new(setup)));
    }

    /// Where a player is.
    pub fn home(player: usize) -> Endpoint {
        let [_, a, b, c] = (player as u32).to_be_bytes();
        Endpoint::v4([10, a, b, c], 5000)
    }

    /// The same, for this group of players.
    pub fn home_of(&self, player: usize) -> Endpoint {
        home_of(self.is_one_address, player)
    }

    fn say_hello(&mut self, game: u32, name: &str) {
        let mut hello = [0; 64];
        let mut writer = Writer::new(&mut hello);
        let written = writer.hello(&Hello::new(1, name));
        debug_assert!(written, "a hello is short");
        let len = writer.len();
        self.host.receive(link_of(game), NOBODY, &hello[..len]);
        self.turn();
    }

    /// Lets a few players in: request, challenge, response, keep-alive; and a payload of theirs, so
    /// that they are known to be here.
    fn connect(&mut self, players: Range<usize>) {
        let first = players.start;
        let mut wave: Vec<_> =
            players.clone().map(|player| Newcomer::new(client_id(self.worker, player))).collect();
        for _ in 0..3 {
            self.exchange(first, &mut wave);
        }
        for newcomer in &wave {
            let is_in = newcomer.client.state() == State::Connected;
            assert!(is_in, "{:?}: {:?}", newcomer.client.state(), self.gate().counters());
            let Newcomer { session, .. } = *newcomer;
            self.members.push(Member { session, next_sequence: NEXT_SEQUENCE });
        }
        let protocol = &self.gate().setup().listeners[ListenerId(0)].protocol;
        let delivers = matches!(protocol, Protocol::Netcode(rules) if rules.delivers);
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        for player in players {
            let len = if delivers {
                let body = KeepAlive::default().encode();
                self.write_packet(player, PacketKind::KeepAlive, &body, &mut packet)
            } else {
                self.write_payload(player, &[1; PAYLOAD_BYTES_MAX / 12], &mut packet)
            };
            self.receive(self.home_of(player), &packet[..len]);
        }
        self.turn();
    }

    fn exchange(&mut self, first: usize, wave: &mut [Newcomer]) {
        let Self { host, cipher, now, is_one_address, .. } = self;
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        for (newcomer, player) in wave.iter_mut().zip(first..) {
            while let Some(len) = cipher.poll(&mut newcomer.client, now.mono_ns, &mut packet) {
                let received =
                    host.receive(PLAYERS, home_of(*is_one_address, player), &packet[..len]);
                assert!(received.is_some(), "a wave fits a turn");
            }
        }
        host.turn(*now, &mut |target: &TxTarget, bytes: &[u8]| {
            match target.peer {
                Some(home) => {
                    let mut packet = [0; DATAGRAM_BYTES_MAX];
                    let packet = &mut packet[..bytes.len()];
                    packet.copy_from_slice(bytes);
                    let client = &mut wave[player_at(&home) - first].client;
                    let heard = cipher.take(client, now.mono_ns, SERVER, packet);
                    assert!(!matches!(heard, Heard::Refused(_)), "{heard:?}");
                }
                None => note_openings(first, wave, bytes),
            }
            Ok(())
        });
    }
}

impl Newcomer {
    fn new(client_id: u64) -> Self {
        let servers = ServerAddresses::new(&[SERVER.into()]).expect("a plain address");
        let mut spec = TokenSpec::new(PROTOCOL, client_id, servers);
        spec.timeout_seconds = -1;
        let mut nonce = [0; 24];
        nonce[..8].copy_from_slice(&client_id.to_le_bytes());
        let secrets = TokenSecrets {
            nonce,
            client_to_server: secret_key(client_id, TO_SERVER),
            server_to_client: secret_key(client_id, TO_CLIENT),
        };
        let token = mint_with(&spec, &Key::from_bytes([1; 32]), START.unix_s, secrets);
        let options = Options { first_sequence: 0, answers_at_once: true };
        Self { client: Client::new(&token, START.mono_ns, options), session: None }
    }
}

fn note_openings(first: usize, wave: &mut [Newcomer], bundle: &[u8]) {
    for record in ToGame::read(bundle).map_while(Result::ok) {
        if let ToGame::Opened(opened) = record {
            wave[number_of(opened.client_id) - first].session = Some(opened.session);
        }
    }
}

fn client_id(worker: WorkerId, player: usize) -> u64 {
    u64::from(worker.0) << CLIENT_ID_BITS | player as u64
}

/// A player's key in one direction.
fn secret_key(client_id: u64, direction: u8) -> Key {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&client_id.to_le_bytes());
    bytes[31] = direction;
    Key::from_bytes(bytes)
}

fn home_of(is_one_address: bool, player: usize) -> Endpoint {
    if !is_one_address {
        return ConnectedPlayers::home(player);
    }
    let mut ip = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[12..].copy_from_slice(&(player as u32).to_be_bytes());
    Endpoint::v6(ip, 0, 5000)
}

/// The link of a game process.
const fn link_of(game: u32) -> SocketId {
    SocketId(1 + game)
}

fn number_of(client_id: u64) -> usize {
    (client_id & ((1 << CLIENT_ID_BITS) - 1)) as usize
}

fn player_at(home: &Endpoint) -> usize {
    home.ip_words().1 as usize & 0x00ff_ffff
}

fn claims(setup: &Setup) -> Arc<Claims> {
    Arc::new(Claims::new(1, &setup.backend_slots(), setup.claim_limits()))
}

/// The rules of the one listener.
fn netcode_rules(setup: &mut Setup) -> &mut Netcode {
    match &mut setup.listeners[ListenerId(0)].protocol {
        Protocol::Netcode(rules) => rules,
        other => unreachable!("{other:?}"),
    }
}

fn setup(players: usize, idle_games: u16) -> Setup {
    let listener = Listener {
        name: "crowd".to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL,
            keys: vec![Key::from_bytes([1; 32]).into()],
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: TokenReuse::Deny,
            delivers: false,
            unique_in: None,
            moves: Vec::new(),
            replace_after_ns: 2_000_000_000,
        }),
        public: vec![SERVER.into()],
        backends: vec![BackendId(0)],
        route: Route::Single,
        sessions_max: players as u32,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let backend = |number: u16| Backend {
        name: format!("game-{number}"),
        link: LinkKind::Bundle { allow: Allowed { uids: vec![1], gids: Vec::new() } },
        slots: players as u32,
        grace_ns: 0,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    Setup::new(vec![listener], (0..=idle_games).map(backend).collect(), 1)
}

const PROTOCOL: u64 = 0x63_726f_7764;
const START: Now = Now { mono_ns: 1_000_000_000, unix_s: 1_700_000_000 };
const SERVER: Endpoint = Endpoint::v4([203, 0, 113, 9], 40_000);
const PLAYERS: SocketId = SocketId(0);
const LINK: SocketId = link_of(0);
const NOBODY: Endpoint = Endpoint::v4([0; 4], 0);

/// A client id is its worker's number and, in so many bits, its own.
const CLIENT_ID_BITS: u32 = 24;

/// Directions of keys.
const TO_SERVER: u8 = 1;
const TO_CLIENT: u8 = 2;

/// Higher than any that connecting takes; a gate takes any jump.
const NEXT_SEQUENCE: u64 = 100;

/// Players who are let in together: as many requests as a gate takes in a turn that is not half
/// full. A player who is connecting takes far more memory than one who is connected.
const WAVE: usize = 31;
