//! Plain listeners in turmoil: sources that anybody can write on a datagram, tokens, numbers that
//! jump and come again, servers on both links that answer or not, reloads, two workers.

use std::collections::{HashMap, HashSet};

use super::stage::{HOMES, Input, Sent, Stage, UDP_LINK, US, home, is_player_socket};
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, SocketId};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_gate::{
    Allowed, Backend, BackendId, Credit, Echo, Limits, LinkKind, Listener, ListenerId, Mail, Phase,
    Plain, Protocol, Route, Sequence, Setup, Token, TokenPlace,
};
use ringgate_link::bundle::{CloseReason, Hello, SessionId, ToGame, Writer};
use std::sync::Arc;

/// Runs one sequence of events to its end; what does not hold panics. Returns how many sessions
/// were opened.
pub fn plain(input: &[u8]) -> u64 {
    let mut input = Input::new(input);
    let mut cast = Cast::new(&mut input);
    if cast.is_bundled {
        (0..WORKERS).for_each(|worker| cast.connect(worker.into()));
    }
    while !input.is_over() {
        cast.act(&mut input);
        cast.watch(&mut input);
    }
    let hosts = cast.stage.hosts.iter();
    hosts.map(|host| host.gate().counters().sessions_opened).sum()
}

struct Cast {
    stage: Stage,
    /// The next number of each source.
    numbers: [u16; HOMES],
    tape: Vec<Vec<u8>>,
    /// What servers have heard from each player, where datagrams are numbered.
    heard: HashSet<(Seat, u16)>,
    /// Links of the last server, where it is on bundle links: worker and socket.
    links: Vec<(usize, SocketId)>,
    /// Players whom it has been told of lately.
    guests: Vec<SessionId>,
    is_bundled: bool,
    is_numbered: bool,
    /// A source is sent at most so many bytes for each of its own, where no echo proves it.
    ratio_max: Option<usize>,
    /// Bytes that each source has sent and was sent, with headers.
    exchanged: HashMap<Endpoint, [usize; 2]>,
    /// A server that is busy answers nobody.
    is_deaf: bool,
}

/// By what a server tells its players apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seat {
    Loopback(usize, LocalIp),
    Session(SessionId),
}

impl Cast {
    fn new(input: &mut Input<'_>) -> Self {
        let setup = setup(input);
        let is_numbered = rules(&setup).sequence.is_some();
        let ratio_max = rules(&setup).echo.is_none().then_some(RATIO as usize);
        let is_bundled = matches!(setup.backends[BUNDLED].link, LinkKind::Bundle { .. });
        Self {
            links: Vec::new(),
            guests: Vec::new(),
            is_bundled,
            stage: Stage::new(setup, WORKERS),
            numbers: [0; HOMES],
            tape: Vec::new(),
            heard: HashSet::new(),
            is_numbered,
            ratio_max,
            exchanged: HashMap::new(),
            is_deaf: false,
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let worker = input.below(WORKERS.into());
        match input.byte() {
            0..=149 => self.send(input),
            150..=179 => self.replay(worker, input),
            180..=189 => self.throw_junk(worker, input),
            190..=217 => self.stage.pass(PAUSES_MS[input.below(PAUSES_MS.len())]),
            218..=229 => self.reload(input),
            242..=250 if self.is_bundled => self.speak(worker, input),
            230..=250 => self.trouble(worker, input),
            251 => self.stage.tell(worker, Mail::Drain { left_ms: 1000 }),
            252 if input.byte() < 8 => self.stage.tell(worker, Mail::Stop),
            253..=255 => self.stage.hand_over(input),
            _ => {}
        }
        self.stage.turn(worker);
    }

    /// A source sends its next datagram, or one that jumps. The kernel gives an address always to
    /// the same worker.
    fn send(&mut self, input: &mut Input<'_>) {
        let at = input.below(HOMES);
        let step = match input.byte() {
            0..=7 => 700,
            8..=31 => 5,
            32..=47 => u16::MAX - 3,
            _ => 1,
        };
        self.numbers[at] = self.numbers[at].wrapping_add(step);
        let [high, low] = self.numbers[at].to_be_bytes();
        let token = TOKENS[usize::from(input.byte() < 20)];
        let mut datagram = vec![0, high, low, b'a'];
        datagram.resize(4 + input.below(40), b'a');
        datagram.extend(token);
        input.damage(&mut datagram);
        self.push(worker_of(at), home(at), &datagram);
        self.tape.push(datagram);
    }

    fn push(&mut self, worker: usize, from: Endpoint, datagram: &[u8]) {
        self.exchanged.entry(from).or_default()[0] += datagram.len() + HEADER_BYTES;
        self.stage.push(worker, ListenerId(0), from, datagram);
    }

    fn charge(&mut self, sent: &Sent) {
        let to = sent.target.peer.expect("a player's packet is for a player");
        let [heard, charged] = self.exchanged.entry(to).or_default();
        *charged += sent.bytes.len() + HEADER_BYTES;
        let is_paid = self.ratio_max.is_none_or(|ratio| *charged <= ratio * *heard);
        assert!(is_paid, "{to:?}: {charged} for {heard}");
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

    fn reload(&mut self, input: &mut Input<'_>) {
        let (what, value) = (input.byte(), input.byte());
        if what >= 236 {
            return self.stage.turn_over(ListenerId(0), value);
        }
        self.stage.reload(|setup| {
            let listener = &mut setup.listeners[ListenerId(0)];
            match what {
                0..=63 => listener.sessions_max = u32::from(value % 8),
                64..=127 => rules_mut(listener).half_open_max = u32::from(value % 8),
                128..=159 => setup.backends[BackendId(0)].slots = u32::from(value % 8),
                160..=191 => listener.limits.sessions_per_address = u32::from(value % 4),
                _ => setup.backends[BackendId(1)].retired = value < 100,
            }
        });
    }

    fn trouble(&mut self, worker: usize, input: &mut Input<'_>) {
        let peer = server_at(input.below(SERVERS.into()) as u16).into();
        match input.byte() {
            0..=79 => {
                self.stage.obstacles.clear();
                self.is_deaf = false;
            }
            80..=119 => self.is_deaf = true,
            120..=159 => {
                self.stage.notice(worker, IoEvent::Unreachable { socket: UDP_LINK, peer });
            }
            160..=174 => self.stage.obstacles.push((worker, UDP_LINK, SendFailure::Full)),
            175..=189 => self.trouble_link(input),
            _ => {
                let len = input.below(60);
                let junk = input.bytes(len);
                let local = LocalIp::v4([127, 1, 0, input.byte() % 32], 0);
                self.stage.push_on(worker, UDP_LINK, peer, local, &junk);
            }
        }
    }

    /// Servers answer what has left for them.
    fn watch(&mut self, input: &mut Input<'_>) {
        for _ in 0..ROUNDS_MAX {
            let sent = self.stage.take_sent();
            if sent.is_empty() {
                return;
            }
            for sent in &sent {
                if is_player_socket(sent.target.socket) {
                    self.charge(sent);
                    continue;
                }
                match sent.target.peer {
                    Some(to) => {
                        self.reach((sent.worker, to, sent.target.source), &sent.bytes, input);
                    }
                    None => self.reach_link(sent, input),
                }
            }
        }
    }

    /// A bundle reaches its server.
    fn reach_link(&mut self, sent: &Sent, input: &mut Input<'_>) {
        for record in ToGame::read(&sent.bytes) {
            match record.expect("the gate writes what we read") {
                ToGame::OpenedPlain(opened) => {
                    self.guests.push(opened.session);
                    let excess = self.guests.len().saturating_sub(12);
                    self.guests.drain(..excess);
                }
                ToGame::Opened(opened) => panic!("{opened:?} is no player of a plain listener"),
                ToGame::Payload { session, bytes } => {
                    self.hear(Seat::Session(session), bytes);
                    if !self.is_deaf && input.byte() < 200 {
                        let answer = &bytes[..bytes.len().min(1 + input.below(64))];
                        let (worker, socket) = (sent.worker, sent.target.socket);
                        self.say(worker, socket, |writer| writer.payload(session, answer));
                        self.stage.turn(worker);
                    }
                }
                _ => {}
            }
        }
    }

    /// The server on bundle links connects, or says something that nobody has asked for.
    fn speak(&mut self, worker: usize, input: &mut Input<'_>) {
        let Some(&(at, link)) = self.links.iter().find(|(at, _)| *at == worker) else {
            return self.connect(worker);
        };
        let Some(&guest) = input.pick(&self.guests) else { return };
        match input.byte() {
            0..=99 => self.say(at, link, |writer| writer.payload(guest, b"a")),
            100..=149 => self.say(at, link, |writer| writer.close(guest, CloseReason::Kicked)),
            150..=199 => {
                let guests = self.guests.clone();
                self.say(at, link, |writer| writer.multicast(&guests, b"a"));
            }
            _ => {
                let len = input.below(30);
                let junk = input.bytes(len);
                self.stage.push_on(at, link, NOBODY, LocalIp::UNSPECIFIED, &junk);
            }
        }
    }

    fn connect(&mut self, worker: usize) {
        let link = self.stage.accept_link(worker);
        self.links.push((worker, link));
        let name = server_name(BUNDLED.0);
        self.say(worker, link, |writer| writer.hello(&Hello::new(1, &name)));
    }

    fn trouble_link(&mut self, input: &mut Input<'_>) {
        let Some(&(worker, socket)) = input.pick(&self.links) else { return };
        if input.byte() < 100 {
            return self.stage.obstacles.push((worker, socket, SendFailure::Full));
        }
        self.links.retain(|link| *link != (worker, socket));
        self.stage.notice(worker, IoEvent::Closed { socket });
    }

    fn say(&mut self, worker: usize, link: SocketId, write: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = [0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        if write(&mut writer) {
            self.stage.push_on(worker, link, NOBODY, LocalIp::UNSPECIFIED, writer.bytes());
        }
    }

    /// No server hears a number of a player twice.
    fn hear(&mut self, seat: Seat, bytes: &[u8]) {
        if let (Some(number), true) = (bytes.get(1..3), self.is_numbered) {
            let number = u16::from_be_bytes([number[0], number[1]]);
            assert!(self.heard.insert((seat, number)), "{seat:?} said {number} twice");
        }
    }

    fn reach(
        &mut self,
        (worker, server, source): (usize, Endpoint, LocalIp),
        bytes: &[u8],
        input: &mut Input<'_>,
    ) {
        self.hear(Seat::Loopback(worker, source), bytes);
        if !self.is_deaf && input.byte() < 200 {
            let answer = &bytes[..bytes.len().min(1 + input.below(64))];
            self.stage.push_on(worker, UDP_LINK, server, source, answer);
            self.stage.turn(worker);
        }
    }
}

fn setup(input: &mut Input<'_>) -> Setup {
    let slots = 1 + input.below(8) as u32;
    let is_bundled = input.byte() < 128;
    let backends = (0..SERVERS).map(|number| Backend {
        name: server_name(number),
        link: if is_bundled && number == BUNDLED.0 {
            LinkKind::Bundle { allow: Allowed { uids: vec![US.uid], gids: Vec::new() } }
        } else {
            LinkKind::Udp { address: server_at(number) }
        },
        slots,
        grace_ns: 2_000_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    });
    let (has_token, is_numbered) = (input.byte() < 128, input.byte() < 128);
    let has_echo = input.byte() < 128;
    let known = TOKENS.into_iter().zip((0..SERVERS).map(BackendId));
    let token = Token {
        at: TokenPlace::End,
        bytes: 2,
        strip: input.byte() < 128,
        backends: Arc::new(known.collect()),
    };
    let field = Field { offset: 1, width: Width::Sixteen, order: Order::Big };
    let rules = Plain {
        token: has_token.then_some(token),
        sequence: is_numbered.then_some(Sequence { field, policy: Policy::UNET, both: false }),
        idle_ns: 5_000_000_000,
        half_open_max: 1 + input.below(8) as u32,
        // What holds for all fronts in turmoil: no stranger is sent more than it has sent.
        answer_times: 1,
        credit: Credit { ratio: RATIO, burst: 2000, pause_ns: 2_000_000_000 },
        echo: has_echo.then_some(Echo { sent: 4, heard: 4 }),
        unproven_percent: if has_echo { 50 } else { 100 },
        ..Plain::default()
    };
    let listener = Listener {
        name: "any".to_owned(),
        route: match input.byte() {
            _ if has_token => Route::Token,
            0..128 => Route::LeastPlayers,
            _ => Route::Hash,
        },
        protocol: Protocol::Plain(rules),
        public: Vec::new(),
        backends: (0..SERVERS).map(BackendId).collect(),
        sessions_max: 6,
        follow_port_switch: false,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let mut setup = Setup::new(vec![listener], backends.collect(), 1);
    setup.worker_sessions_max = 1 + input.below(8);
    setup.worker_spare_places_min = input.below(64);
    setup
}

fn rules(setup: &Setup) -> &Plain {
    setup.listeners[ListenerId(0)].plain().expect("the only protocol here")
}

fn rules_mut(listener: &mut Listener) -> &mut Plain {
    let Protocol::Plain(rules) = &mut listener.protocol else { unreachable!("plain") };
    rules
}

const fn worker_of(home: usize) -> usize {
    home % WORKERS as usize
}

fn server_name(number: u16) -> String {
    format!("game-{number}")
}

fn server_at(number: u16) -> std::net::SocketAddr {
    ([127, 0, 0, 1], 7000 + number).into()
}

const WORKERS: u16 = 2;
const SERVERS: u16 = 2;

/// The one that may be on bundle links.
const BUNDLED: BackendId = BackendId(1);

/// The peer of a datagram on a link, which has only one.
const NOBODY: Endpoint = Endpoint::v4([0; 4], 0);
const TOKENS: [[u8; 2]; 2] = [*b"xx", *b"yy"];
const ROUNDS_MAX: usize = 20;

/// What a player's source is sent for each byte.
const RATIO: u32 = 2;

/// IPv4's and UDP's.
const HEADER_BYTES: usize = 28;
const PAUSES_MS: [u64; 8] = [1, 20, 100, 300, 1_000, 2_000, 12_000, 200_000];
