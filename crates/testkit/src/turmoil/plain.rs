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
    Plain, Protocol, Route, Sequence, SessionInfo, Setup, Token, TokenPlace,
};
use ringgate_link::bundle::{
    CloseReason, Hello, LONG_PAYLOAD_BYTES_MAX, SessionId, ToGame, Writer,
};
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
    /// What each source has sent, as a server may hear it.
    said: HashSet<(Endpoint, Vec<u8>)>,
    /// What servers have said to whoever was at each source then; `None` once one has said anything
    /// at all on a link, to whomever.
    answered: Option<HashSet<(Endpoint, Vec<u8>)>>,
    /// How much of a datagram's end is for the gateway alone.
    stripped: usize,
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
        let token = rules(&setup).token.as_ref().filter(|token| token.strip);
        let stripped = token.map_or(0, |token| token.bytes.into());
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
            said: HashSet::new(),
            answered: Some(HashSet::new()),
            stripped,
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
        let len = match input.byte() {
            0..=31 => SIZES[input.below(SIZES.len())],
            _ => 6 + input.below(40),
        };
        let mut datagram = vec![mark_of(at); len.saturating_sub(token.len())];
        datagram.iter_mut().zip([0, high, low]).for_each(|(byte, head)| *byte = head);
        datagram.extend(token);
        datagram.truncate(len);
        input.damage(&mut datagram);
        self.push(worker_of(at), home(at), &datagram);
        self.tape.push(datagram);
    }

    fn push(&mut self, worker: usize, from: Endpoint, datagram: &[u8]) {
        self.exchanged.entry(from).or_default()[0] += datagram.len() + HEADER_BYTES;
        let heard = datagram.len().saturating_sub(self.stripped);
        self.said.insert((from, datagram[..heard].to_vec()));
        self.stage.push(worker, ListenerId(0), from, datagram);
    }

    fn charge(&mut self, sent: &Sent) {
        let to = sent.target.peer.expect("a player's packet is for a player");
        let [heard, charged] = self.exchanged.entry(to).or_default();
        *charged += sent.bytes.len() + HEADER_BYTES;
        let is_paid = self.ratio_max.is_none_or(|ratio| *charged <= ratio * *heard);
        assert!(is_paid, "{to:?}: {charged} for {heard}");
        let said = self.answered.as_ref();
        let is_own = said.is_none_or(|said| said.contains(&(to, sent.bytes.clone())));
        assert!(is_own, "{to:?} was sent what nobody said to it: {:?}", sent.bytes);
    }

    /// Where the player of a seat may be. One whose session has not begun, or is over, is anywhere
    /// where that was said which was heard of it.
    fn sources(&self, seat: Seat, heard: Option<&[u8]>) -> Vec<Endpoint> {
        let has = |worker: usize, session: &SessionInfo| match seat {
            Seat::Loopback(at, local) => {
                at == worker && session.link_address.is_some_and(|it| it.ip() == local.ip())
            }
            Seat::Session(id) => session.id == id.as_u64(),
        };
        let hosts = self.stage.hosts.iter().enumerate();
        let mut sessions = hosts.flat_map(|(worker, host)| {
            host.gate().sessions().map(move |session| (worker, session))
        });
        if let Some((_, session)) = sessions.find(|(worker, session)| has(*worker, session)) {
            return vec![session.address];
        }
        let has_said = |from| heard.is_none_or(|it| self.said.contains(&(from, it.to_vec())));
        (0..HOMES).map(home).filter(|from| has_said(*from)).collect()
    }

    /// A server says this to whoever has a seat, perhaps because of what it has heard.
    fn note_answer(&mut self, seat: Seat, heard: Option<&[u8]>, answer: &[u8]) {
        let sources = self.sources(seat, heard);
        if let Some(answered) = &mut self.answered {
            answered.extend(sources.into_iter().map(|to| (to, answer.to_vec())));
        }
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
                self.note_answer(Seat::Loopback(worker, local), None, &junk);
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
                    // The gate asks whether there is a server.
                    Some(_) if sent.target.source == LocalIp::UNSPECIFIED => {
                        assert!(sent.bytes.is_empty(), "no player says that");
                    }
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
                        let answer = answer(bytes, LONG_PAYLOAD_BYTES_MAX, input);
                        self.note_answer(Seat::Session(session), Some(bytes), &answer);
                        let (worker, socket) = (sent.worker, sent.target.socket);
                        self.say(worker, socket, |writer| writer.payload(session, &answer));
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
            0..=99 => {
                self.note_answer(Seat::Session(guest), None, b"a");
                self.say(at, link, |writer| writer.payload(guest, b"a"));
            }
            100..=149 => self.say(at, link, |writer| writer.close(guest, CloseReason::Kicked)),
            150..=199 => {
                let guests = self.guests.clone();
                for guest in &guests {
                    self.note_answer(Seat::Session(*guest), None, b"a");
                }
                self.say(at, link, |writer| writer.multicast(&guests, b"a"));
            }
            _ => {
                let len = input.below(30);
                let junk = input.bytes(len);
                self.answered = None;
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

    /// What a server hears was said by the player of that seat, and no number of it comes twice.
    fn hear(&mut self, seat: Seat, bytes: &[u8]) {
        let mut sources = self.sources(seat, Some(bytes)).into_iter();
        let is_own = sources.any(|from| self.said.contains(&(from, bytes.to_vec())));
        assert!(is_own, "{seat:?} has not said {bytes:?}");
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
            let answer = answer(bytes, SIZES[SIZES.len() - 1], input);
            self.note_answer(Seat::Loopback(worker, source), Some(bytes), &answer);
            self.stage.push_on(worker, UDP_LINK, server, source, &answer);
            self.stage.turn(worker);
        }
    }
}

/// What a server says to what it has heard: a piece of it, or as much as can be said of it.
fn answer(heard: &[u8], len_max: usize, input: &mut Input<'_>) -> Vec<u8> {
    match input.byte() {
        0..=31 => {
            let len = SIZES[input.below(SIZES.len())].clamp(1, len_max);
            vec![heard.last().copied().unwrap_or_default(); len]
        }
        _ => heard[..heard.len().min(1 + input.below(64))].to_vec(),
    }
}

/// What the bytes of a source's datagrams are behind their numbers.
const fn mark_of(home: usize) -> u8 {
    home as u8 | 0x40
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

/// Lengths on both sides of every limit.
const SIZES: [usize; 8] = [0, 1, 2, 1199, 1472, 1473, 1474, 2000];

/// What a player's source is sent for each byte.
const RATIO: u32 = 2;

/// IPv4's and UDP's.
const HEADER_BYTES: usize = 28;
const PAUSES_MS: [u64; 8] = [1, 20, 100, 300, 1_000, 2_000, 12_000, 200_000];
