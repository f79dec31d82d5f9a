//! Unreal in turmoil: engine-like players and servers, what they send again and from elsewhere,
//! damaged packets, two workers.

use std::collections::HashSet;

use super::stage::{HOMES, Input, Stage, UDP_LINK, home, is_player_socket};
use crate::Host;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure};
use ringgate_bots::unreal::StandIn;
use ringgate_bots::unreal::peer::Peer;
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::handshake::{Base, TAIL_BYTES_MAX, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_core::secret::CookieSecret;
use ringgate_gate::{
    Backend, BackendId, Duplicates, Limits, LinkKind, Listener, ListenerId, Mail, Phase, Protocol,
    Route, SessionInfo, Setup, Unreal,
};

/// Runs one sequence of events to its end; what does not hold panics. Returns how many sessions
/// were opened.
pub fn unreal(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let mut cast = Cast::new(&mut input);
    while !input.is_over() {
        cast.act(&mut input);
        cast.watch(&mut input);
    }
    cast.opened
}

struct Cast {
    stage: Stage,
    servers: Vec<Server>,
    players: Vec<Player>,
    tape: Vec<Vec<u8>>,
    opened: u64,
    /// The game's bits that each address has sent, and those that servers have sent to whoever was
    /// there then.
    said: HashSet<(Endpoint, Vec<u8>)>,
    answered: HashSet<(Endpoint, Vec<u8>)>,
    /// Port switches so far. Whoever moves may have been elsewhere when it said something.
    switches: u64,
    has_moved: bool,
}

struct Server {
    at: Endpoint,
    stand_in: StandIn,
    /// A server that loads a level hears nothing.
    is_deaf: bool,
    restarts: u8,
}

struct Player {
    client: Client,
    peer: Option<Peer>,
    home: Endpoint,
    worker: usize,
}

impl Cast {
    fn new(input: &mut Input<'_>) -> Self {
        let setup = setup(input);
        let servers = (0..SERVERS).map(|number| Server {
            at: server_at(number).into(),
            stand_in: stand_in(number as u8 + 1, 0),
            is_deaf: false,
            restarts: 0,
        });
        let mut cast = Self {
            stage: Stage::new(setup, WORKERS),
            servers: servers.collect(),
            players: Vec::new(),
            tape: Vec::new(),
            opened: 0,
            said: HashSet::new(),
            answered: HashSet::new(),
            switches: 0,
            has_moved: false,
        };
        (0..usize::from(WORKERS)).for_each(|worker| cast.stage.turn(worker));
        cast.watch(input);
        cast
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let worker = input.below(WORKERS.into());
        match input.byte() {
            0..=9 => self.come(worker, input),
            10..=79 => self.shake_hands(input),
            80..=129 => self.play(input),
            130..=149 => self.replay(worker, input),
            150..=157 => self.throw_junk(worker, input),
            158..=181 => self.stage.deliver_mail(input.byte() < 16),
            182..=204 => self.stage.pass(PAUSES_MS[input.below(PAUSES_MS.len())]),
            205..=209 => self.stage.step_wall_clock(STEPS_S[input.below(STEPS_S.len())]),
            210..=217 => self.reload(input),
            218..=227 => self.move_away(input),
            228..=247 => self.trouble(worker, input),
            248 => self.stage.tell(worker, Mail::Drain { left_ms: 1000 }),
            249 if input.byte() < 8 => self.stage.tell(worker, Mail::Stop),
            250..=252 => self.stage.hand_over(input),
            _ => {}
        }
        self.stage.turn(worker);
    }

    fn come(&mut self, worker: usize, input: &mut Input<'_>) {
        let base = Base {
            version_min: 3,
            version: 3 + input.byte() % 2,
            sent_count: 0,
            network_version: NETWORK_VERSION,
            network_features: 1,
        };
        let profile = Profile { framing: Framing::default(), client_id: input.byte() % 8, base };
        let player = Player {
            client: Client::new(&profile, self.stage.now.mono_ns),
            peer: None,
            home: home(input.below(HOMES)),
            worker,
        };
        if self.players.len() >= PLAYERS_MAX {
            let at = input.below(PLAYERS_MAX);
            self.players[at] = player;
        } else {
            self.players.push(player);
        }
    }

    /// A player sends what its handshake owes.
    fn shake_hands(&mut self, input: &mut Input<'_>) {
        if self.players.is_empty() {
            return self.come(0, input);
        }
        let at = input.below(self.players.len());
        let tail = tail(input);
        let player = &mut self.players[at];
        let mut out = [0; UNREAL_BYTES_MAX];
        let now_ns = self.stage.now.mono_ns;
        if let Some(len) = player.client.poll_transmit(now_ns, &tail, &mut out) {
            self.send(at, out[..len].to_vec(), input);
        }
    }

    fn play(&mut self, input: &mut Input<'_>) {
        if self.players.is_empty() {
            return;
        }
        let at = input.below(self.players.len());
        let player = &mut self.players[at];
        let ids = player.client.ids();
        let Some(peer) = &mut player.peer else { return self.shake_hands(input) };
        let mut payload = [0; 32];
        let mut bits = BitWriter::new(&mut payload);
        bits.write(0, 2);
        // Whose it is, too.
        bits.write(u64::from(input.byte()) | (at as u64) << 8, 60);
        bits.write(7, 60);
        let Some(payload) = BitReader::new(&payload).take(122) else { return };
        let mut out = [0; 256];
        if let Some(len) = peer.write(&Framing::default(), ids, payload, &mut out) {
            self.send(at, out[..len].to_vec(), input);
        }
    }

    fn send(&mut self, player: usize, mut datagram: Vec<u8>, input: &mut Input<'_>) {
        input.damage(&mut datagram);
        let Player { home, worker, .. } = self.players[player];
        self.push(worker, home, &datagram);
        self.tape.push(datagram);
    }

    fn push(&mut self, worker: usize, from: Endpoint, datagram: &[u8]) {
        self.said.extend(game_bits(datagram).map(|bits| (from, bits)));
        self.stage.push(worker, ListenerId(0), from, datagram);
    }

    fn replay(&mut self, worker: usize, input: &mut Input<'_>) {
        let back = input.below(64) + 1;
        let Some(datagram) = self.tape.len().checked_sub(back).map(|at| &self.tape[at]) else {
            return;
        };
        let mut datagram = datagram.clone();
        input.damage(&mut datagram);
        self.push(worker, home(input.below(HOMES)), &datagram);
    }

    fn throw_junk(&mut self, worker: usize, input: &mut Input<'_>) {
        let len = input.below(80);
        let junk = input.bytes(len);
        self.push(worker, home(input.below(HOMES)), &junk);
    }

    fn move_away(&mut self, input: &mut Input<'_>) {
        if self.players.is_empty() {
            return;
        }
        let at = input.below(self.players.len());
        self.players[at].home = home(input.below(HOMES));
        self.players[at].worker = input.below(WORKERS.into());
    }

    fn trouble(&mut self, worker: usize, input: &mut Input<'_>) {
        let at = input.below(SERVERS.into());
        match input.byte() {
            0..=79 => {
                self.stage.obstacles.clear();
                self.servers[at].is_deaf = false;
            }
            80..=119 => self.servers[at].is_deaf = true,
            120..=159 => {
                let server = &mut self.servers[at];
                server.restarts = server.restarts.wrapping_add(1);
                let session = (server.restarts % 4) * 4 + at as u8 + 1;
                server.stand_in = stand_in(session % 4, self.stage.now.mono_ns);
            }
            160..=199 => {
                let peer = self.servers[at].at;
                self.stage.notice(worker, IoEvent::Unreachable { socket: UDP_LINK, peer });
            }
            200..=219 => self.stage.obstacles.push((worker, UDP_LINK, SendFailure::Full)),
            _ => {
                let len = input.below(60);
                let junk = input.bytes(len);
                let local = LocalIp::v4([127, 255, 255, 254 - input.byte() % 8], 0);
                self.note_answer(worker, local, &junk);
                self.stage.push_on(worker, UDP_LINK, self.servers[at].at, local, &junk);
            }
        }
    }

    fn reload(&mut self, input: &mut Input<'_>) {
        let (what, value) = (input.byte(), input.byte());
        if what >= 236 {
            return self.stage.turn_over(ListenerId(0), value);
        }
        self.stage.reload(|setup| {
            let listener = &mut setup.listeners[ListenerId(0)];
            match what {
                0..=63 => listener.follow_port_switch = value < 200,
                64..=127 => listener.sessions_max = u32::from(value % 8),
                128..=191 => setup.backends[BackendId(0)].slots = u32::from(value % 8),
                _ => setup.backends[BackendId(1)].retired = value < 100,
            }
        });
    }

    /// Hands on what has left, until nothing is on its way between workers and servers.
    fn watch(&mut self, input: &mut Input<'_>) {
        let gates = self.stage.hosts.iter().map(Host::gate);
        let switches = gates.map(|gate| gate.counters().port_switches).sum();
        self.has_moved = std::mem::replace(&mut self.switches, switches) != switches;
        for _ in 0..ROUNDS_MAX {
            let sent = self.stage.take_sent();
            if sent.is_empty() {
                break;
            }
            for sent in sent {
                if is_player_socket(sent.target.socket) {
                    let to = sent.target.peer.expect("a player's packet is for a player");
                    self.hear(to, &sent.bytes);
                } else if let Some(to) = sent.target.peer {
                    self.reach(sent.worker, to, sent.target.source, &sent.bytes, input);
                }
            }
        }
        for server in &self.servers {
            assert_eq!(server.stand_in.tally.duplicates, 0, "a server heard a packet twice");
        }
        let hosts = self.stage.hosts.iter();
        self.opened = hosts.map(|host| host.gate().counters().sessions_opened).sum();
    }

    /// Where the player is that a server sees at this address; `None` where nobody is.
    fn source(&self, worker: usize, local: LocalIp) -> Option<Endpoint> {
        let mut sessions = self.stage.hosts[worker].gate().sessions();
        let has = |it: &SessionInfo| it.link_address.is_some_and(|link| link.ip() == local.ip());
        sessions.find(has).map(|session| session.address)
    }

    /// A server says this to whoever is at an address of the gateway's.
    fn note_answer(&mut self, worker: usize, local: LocalIp, datagram: &[u8]) {
        let said = self.source(worker, local).zip(game_bits(datagram));
        self.answered.extend(said);
    }

    fn hear(&mut self, to: Endpoint, datagram: &[u8]) {
        if let Some(bits) = game_bits(datagram).filter(|_| !self.has_moved) {
            let is_own = self.answered.contains(&(to, bits));
            assert!(is_own, "{to:?} was sent what no server said to it: {datagram:?}");
        }
        let now_ns = self.stage.now.mono_ns;
        for player in self.players.iter_mut().filter(|player| player.home == to) {
            match player.client.handle_datagram(now_ns, datagram) {
                Ok(Event::Connected(cookie)) => {
                    player.peer = Some(Peer::new(Sender::Client, &cookie));
                }
                Ok(Event::Game) => {
                    let Ok((_, reader)) = Framing::default().read(datagram) else { continue };
                    if let (Ok(header), Some(peer)) = (Header::read(reader), &mut player.peer) {
                        let _ = peer.handle_header(&header, true, |_, _| ());
                    }
                }
                _ => {}
            }
        }
    }

    fn reach(
        &mut self,
        worker: usize,
        to: Endpoint,
        source: LocalIp,
        datagram: &[u8],
        input: &mut Input<'_>,
    ) {
        let source_bits = self.source(worker, source).zip(game_bits(datagram));
        let is_own = source_bits.is_none_or(|it| self.has_moved || self.said.contains(&it));
        assert!(is_own, "{source:?} has not said {datagram:?}");
        let (now_ns, tail) = (self.stage.now.mono_ns, tail(input));
        let server = self.servers.iter_mut().find(|server| server.at == to && !server.is_deaf);
        let Some(server) = server else { return };
        let std::net::IpAddr::V4(ip) = source.ip() else { return };
        let from = Endpoint::v4(ip.octets(), 4000 + worker as u16);
        let mut out = [0; UNREAL_BYTES_MAX];
        let answer = server.stand_in.handle_datagram(now_ns, from, datagram, &tail, &mut out);
        if let Ok(len @ 1..) = answer {
            self.note_answer(worker, source, &out[..len]);
            self.stage.push_on(worker, UDP_LINK, to, source, &out[..len]);
            self.stage.turn(worker);
        }
    }
}

/// What the game says in a packet; `None` of one that is none of the game's.
fn game_bits(datagram: &[u8]) -> Option<Vec<u8>> {
    let (prefix, reader) = Framing::default().read(datagram).ok()?;
    let bits = Header::read(reader).ok().filter(|_| !prefix.is_handshake)?.payload();
    let mut out = vec![0; datagram.len() + 1];
    let mut writer = BitWriter::new(&mut out);
    writer.copy(bits);
    let len = writer.finish(1);
    out.truncate(len);
    Some(out)
}

fn tail(input: &mut Input<'_>) -> Tail {
    let first = input.byte();
    Tail::draw(&[first; TAIL_BYTES_MAX + 1])
}

fn stand_in(session: u8, now_ns: u64) -> StandIn {
    let base = Base {
        version_min: 3,
        version: 4,
        sent_count: 0,
        network_version: NETWORK_VERSION,
        network_features: 1,
    };
    let profile = Profile { framing: Framing::default(), client_id: 0, base };
    let secrets = [5, 6].map(|byte| CookieSecret::from_bytes([byte + session; 64]));
    StandIn::new(&profile, session, 64, CookieMac::tag_once, secrets, now_ns)
}

fn setup(input: &mut Input<'_>) -> Setup {
    let slots = 1 + input.below(8) as u32;
    let backends = (0..SERVERS).map(|number| Backend {
        name: format!("game-{number}"),
        link: LinkKind::Udp { address: server_at(number) },
        slots,
        grace_ns: 2_000_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    });
    let listener = Listener {
        name: "ue".to_owned(),
        protocol: Protocol::Unreal(Unreal {
            framing: Framing::default(),
            versions: 3..=4,
            network_versions: None,
            duplicates: Duplicates::Notify,
            idle_timeout_ns: 5_000_000_000,
            learns_base: true,
            gap_limit: 0,
        }),
        public: Vec::new(),
        backends: (0..SERVERS).map(BackendId).collect(),
        route: if input.byte() < 128 { Route::LeastPlayers } else { Route::Hash },
        sessions_max: 6,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let mut setup = Setup::new(vec![listener], backends.collect(), 1);
    setup.worker_sessions_max = 1 + input.below(8);
    setup.worker_spare_places_min = 0;
    setup
}

fn server_at(number: u16) -> std::net::SocketAddr {
    ([127, 0, 0, 1], 7000 + number).into()
}

const WORKERS: u16 = 2;
const SERVERS: u16 = 2;
const NETWORK_VERSION: u32 = 0x1234_5678;
const PLAYERS_MAX: usize = 6;
/// A handshake between gateway and server is over after a few.
const ROUNDS_MAX: usize = 20;
const PAUSES_MS: [u64; 8] = [1, 20, 100, 300, 1_000, 2_000, 12_000, 200_000];
const STEPS_S: [i64; 4] = [-7_200, -1, 1, 7_200];
