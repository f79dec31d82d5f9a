//! A local worker with real processes at its sockets and real servers on loopback, and the tests in
//! the place of the gateway.

use std::io::Read as _;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringgate_core::carry::{Maps, Reader, Writer as Carrier};
use ringgate_core::delivery::{self, End, Options};
use ringgate_io::Bell;
use ringgate_link::backend::{Backend as Process, Event, LinkLoss};
use ringgate_link::bundle::{
    AgentDelivery, BUNDLE_BYTES_MAX, Channel, CloseAfter, CloseReason, ClusterClaim, Clustered,
    Frame, Frames, Goodbye, GoodbyeReason, Hello, MessagePart, Opened, OpenedPlain, SessionId,
    ToGame, ToGateway, USER_DATA_BYTES, VERSION_MAX, VERSION_MIN, Writer,
};
use ringgate_os::clock::{Clock, sleep};
use ringgate_os::notify::Epoll;
use ringgate_os::process;

use crate::agent::counts::{Counts, Drop as Dropped};
use crate::agent::crossings::{Crossings, Inbox};
use crate::agent::options::{Allowed, Backend, Link};
use crate::agent::servers::Servers;
use crate::agent::station::{Around, HeardBundles, Owner, Station, Wish, Wishes, owner};
use crate::protocol::arbitration::Arbitration;
use crate::protocol::relay::{Action, Relay};

const LANE: u8 = 0;

/// Whoever is slower than this waits for something that does not come.
const PATIENCE_NS: u64 = 60_000_000_000;

struct Rig {
    station: Station,
    servers: Option<Servers>,
    backends: Vec<Backend>,
    crossings: Crossings,
    epoll: Epoll,
    counts: Counts,
    heard: HeardBundles,
    clock: Clock,
    /// Added to the clock.
    ahead_ns: u64,
    /// What the gateway was told, decoded.
    told: Vec<String>,
    dir: PathBuf,
}

impl Rig {
    fn new(name: &str, backends: Vec<Backend>) -> Self {
        let dir =
            std::env::temp_dir().join(format!("ringgate-agent-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder for sockets");
        let epoll = Epoll::new().expect("descriptors are left");
        let servers = Servers::open(&backends, epoll.raw()).expect("loopback");
        // The library asks at worker 0 how many there are.
        let station = Station::open(0, (0, 1), (&dir, 77), &backends, &epoll).expect("a socket");
        let (counts, heard, clock) = (Counts::default(), HeardBundles::default(), Clock::start());
        let (told, crossings, ahead_ns) = (Vec::new(), Crossings::default(), 0);
        Self {
            station,
            servers,
            backends,
            crossings,
            epoll,
            counts,
            heard,
            clock,
            ahead_ns,
            told,
            dir,
        }
    }

    /// What a station does, with what it has for the gateway noted.
    fn with(&mut self, act: impl FnOnce(&mut Station, &mut Around<'_>, Wishes<'_>)) {
        let Self { station, servers, backends, epoll, counts, clock, told, ahead_ns, .. } = self;
        let crossings = &self.crossings;
        let (servers, now_ns) = (servers.as_mut(), clock.now_ns() + *ahead_ns);
        let mut around = Around::new(backends, servers, counts, (crossings, epoll), now_ns);
        act(station, &mut around, &mut |wish| told.push(said(wish)));
    }

    fn turn(&mut self) {
        if let Some(servers) = &mut self.servers {
            servers.turn(Duration::ZERO).expect("it can be waited");
            servers.take_refusals();
        }
        let mut ready = Vec::with_capacity(16);
        self.epoll.ready(&mut ready).expect("a live set");
        for one in ready {
            let mut heard = std::mem::take(&mut self.heard);
            match owner(one.token) {
                Owner::Listener(_) => self.with(|station, around, _| station.accept(around)),
                Owner::Link(_, place) => self.with(|station, around, wish| {
                    station.read(place, &mut heard, around, wish);
                }),
                Owner::Other => {}
            }
            self.heard = heard;
        }
        let mut came = Vec::new();
        if let Some(servers) = &mut self.servers {
            servers.take(&mut self.counts, |_, game, record| came.push((game, record.to_vec())));
        }
        for (game, record) in came {
            self.with(|station, around, wish| station.take_datagram(game, &record, around, wish));
        }
        self.with(|station, around, wish| station.keep(around, wish));
        self.station.let_go(&self.crossings, &self.epoll);
        self.station.flush(&self.epoll);
        if let Some(servers) = &mut self.servers {
            servers.flush(&mut self.counts);
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start_ns = self.clock.now_ns();
        while !is_so(self) {
            assert!(self.clock.now_ns() < start_ns + PATIENCE_NS, "{what}");
            self.turn();
            sleep(Duration::from_micros(200));
        }
    }

    /// The gateway says something on a link.
    fn say(&mut self, link: u16, write: impl Fn(&mut Writer<'_>) -> bool) {
        let record = written(write);
        self.with(|station, around, wish| {
            station.hear(link, only(&record), around, wish).expect("as the format wants it");
        });
    }

    /// The agent has these from now on.
    fn set_backends(&mut self, backends: Vec<Backend>) {
        self.backends = backends;
        if let Some(servers) = &mut self.servers {
            servers.set(&self.backends, |server| self.station.has_server(server));
            servers.look();
        }
        self.with(|station, around, wish| station.set_backends(around, wish));
    }

    /// Another process goes on with the station.
    fn upgrade(&mut self, arbitration: &Arc<Arbitration>) {
        let mut memory = vec![0; 1 << 20];
        let mut out = Carrier::new(&mut memory);
        self.station.write(&[], &mut out);
        self.station.relay().write_clusters(&mut out);
        self.station.relay().write_ends(&mut out);
        let (len, maps) = (out.len(), Maps::default());
        let fds = self.station.descriptors().map(|fd| fd.try_clone_to_owned().expect("it is live"));
        let (mut fds, mut from) =
            (fds.collect::<Vec<_>>().into_iter(), Reader::new(&memory[..len], &maps));
        let place = (&*self.dir, &*self.backends);
        let mut next =
            Station::go_on(&mut from, &mut fds, 0, place, &[], &self.epoll).expect("own");
        next.read_clusters(&mut from).expect("own");
        next.read_ends(&mut from).expect("own");
        next.arbitrate_with(arbitration);
        std::mem::replace(&mut self.station, next).leave();
        self.with(|station, around, wish| station.recheck(around, wish));
    }

    fn players(&self, name: &str) -> usize {
        let welcome = self.station.relay().welcome();
        welcome.filter(|(it, ..)| *it == name).map(|(_, _, players)| players).sum()
    }

    fn take_told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub(super) fn written(write: impl Fn(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; 16_384];
    let mut writer = Writer::new(&mut bytes);
    assert!(write(&mut writer), "it has room");
    writer.bytes().to_vec()
}

pub(super) fn only(record: &[u8]) -> Frame<'_> {
    Frames::new(record).next().expect("one").expect("own")
}

fn said(wish: Wish<'_>) -> String {
    let record = |frame| match ToGateway::decode(frame).expect("a gateway can read it") {
        ToGateway::Hello(hello) => format!("hello {} up to {}", hello.name, hello.version_max),
        ToGateway::Payload { session, bytes } => format!("payload {session} {}", text(bytes)),
        other => format!("{other:?}"),
    };
    match wish {
        Wish::Tell(link, frame) => format!("{link} told {}", record(frame)),
        Wish::Push(link, frame) => format!("{link} pushed {}", record(frame)),
        Wish::End(link) => format!("{link} ended"),
        Wish::NotHeld(session) => format!("nothing of {session}"),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

pub(super) fn bundle(name: &str, uids: Vec<u32>) -> Backend {
    Backend { name: name.to_owned(), link: Link::Bundle(Allowed { uids, gids: Vec::new() }) }
}

pub(super) fn udp(name: &str, server: &UdpSocket) -> Backend {
    let SocketAddr::V4(address) = server.local_addr().expect("bound") else { panic!("IPv4") };
    Backend { name: name.to_owned(), link: Link::Udp(address) }
}

pub(super) fn server() -> UdpSocket {
    let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    server.set_nonblocking(true).expect("a live socket");
    server
}

fn opened(session: SessionId) -> OpenedPlain<'static> {
    let address = "192.0.2.7:9".parse().expect("literal");
    OpenedPlain { session, slot: Some(1), slots_max: 4, address, listener: "any" }
}

/// What a process hears, as text.
fn events(process: &mut Process) -> Vec<String> {
    let mut heard = Vec::new();
    let mut events = process.poll().expect("it can be asked");
    while let Some((event, _)) = events.next() {
        heard.push(match event {
            Event::LinkUp { worker, workers, .. } => format!("up {worker} of {workers}"),
            Event::LinkLost { loss: LinkLoss::Goodbye(goodbye), .. } => {
                format!("sent away: {:?}", goodbye.reason)
            }
            Event::LinkLost { .. } => "lost".to_owned(),
            Event::OpenedPlain(opened) => format!("opened {}", opened.session),
            Event::Payload { session, bytes } => format!("payload {session} {}", text(bytes)),
            Event::Closed { session, .. } => format!("closed {session}"),
            Event::Draining { left, .. } => format!("draining {} ms", left.as_millis()),
            Event::Pong { .. } => "pong".to_owned(),
            other => format!("{other:?}"),
        });
    }
    heard
}

/// Turns until a process has heard all of these.
fn hears(rig: &mut Rig, process: &mut Process, expected: &[&str]) {
    let mut heard = Vec::new();
    rig.until(&format!("the process hears {expected:?}"), |_| {
        heard.extend(events(process));
        heard.len() >= expected.len()
    });
    assert_eq!(heard, expected);
}

#[test]
fn a_process_takes_the_agent_for_a_gateway() {
    let mut rig = Rig::new("process", vec![bundle("arena-1", vec![process::effective_uid()])]);
    let mut game = Process::connect(&rig.dir, "arena-1").expect("the agent listens");
    hears(&mut rig, &mut game, &["up 0 of 1"]);
    assert_eq!(rig.take_told(), Vec::<String>::new(), "no lane is up");
    assert_eq!(game.ping(), 1);
    game.flush();
    hears(&mut rig, &mut game, &["pong"]);

    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    assert_eq!(rig.take_told(), ["256 told hello arena-1 up to 6"]);
    let there = SessionId::new(LANE.into(), 42);
    rig.say(256, |writer| writer.opened_plain(&opened(there)));
    rig.say(256, |writer| writer.payload(there, b"hello"));
    hears(&mut rig, &mut game, &["opened 0/42", "payload 0/42 hello"]);
    assert_eq!((rig.players("arena-1"), rig.counts.passed.payloads_to_games), (1, 1));
    game.outbox().send(SessionId::new(0, 42), b"welcome").expect("the link is up");
    game.flush();
    rig.until("the gateway hears the answer", |rig| !rig.told.is_empty());
    assert_eq!(rig.take_told(), ["256 pushed payload 0/42 welcome"]);

    rig.with(|station, around, wish| {
        station.drain(around.now_ns + 1_500_000_000, around, wish);
    });
    assert_eq!(rig.take_told(), ["256 told Intake { is_open: false }"]);
    rig.say(256, |writer| writer.closed(there, CloseReason::TimedOut));
    hears(&mut rig, &mut game, &["draining 1500 ms", "closed 0/42"]);
    assert_eq!(rig.players("arena-1"), 0);
    rig.with(|station, around, _| station.fall(around));
    hears(&mut rig, &mut game, &["lost"]);
}

#[test]
fn a_process_whose_backend_is_taken_out_keeps_its_players_and_gets_no_more() {
    let own = process::effective_uid();
    let mut rig = Rig::new("taken-out", vec![bundle("arena-1", vec![own])]);
    let mut game = Process::connect(&rig.dir, "arena-1").expect("the agent listens");
    hears(&mut rig, &mut game, &["up 0 of 1"]);
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    let there = SessionId::new(LANE.into(), 42);
    rig.say(256, |writer| writer.opened_plain(&opened(there)));
    hears(&mut rig, &mut game, &["opened 0/42"]);
    rig.take_told();

    rig.set_backends(vec![bundle("arena-2", vec![own])]);
    assert_eq!(rig.take_told(), ["256 told Intake { is_open: false }"]);
    rig.say(256, |writer| writer.payload(there, b"hello"));
    hears(&mut rig, &mut game, &["payload 0/42 hello"]);
    for (name, heard) in [("arena-1", "sent away: NameUnknown"), ("arena-2", "up 0 of 1")] {
        let mut other = Process::connect(&rig.dir, name).expect("the agent listens");
        hears(&mut rig, &mut other, &[heard]);
    }
    rig.take_told();
    rig.set_backends(vec![bundle("arena-1", vec![own])]);
    assert_eq!(rig.take_told()[0], "256 told Intake { is_open: true }");
    rig.set_backends(vec![bundle("arena-1", vec![own + 1])]);
    hears(&mut rig, &mut game, &["sent away: Unauthorised"]);
    assert_eq!(rig.take_told()[0], "256 ended");
}

#[test]
fn servers_come_and_go_and_who_plays_plays_on() {
    let sockets = [server(), server(), server()];
    let mut rig = Rig::new("servers", vec![udp("any-1", &sockets[0])]);
    assert!(rig.servers.as_mut().expect("there is one").look(), "it listens");
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    rig.turn();
    assert_eq!(rig.take_told(), ["256 told hello any-1 up to 3"]);
    let there = SessionId::new(LANE.into(), 42);
    rig.say(256, |writer| writer.opened_plain(&opened(there)));
    rig.set_backends(vec![udp("any-2", &sockets[1])]);
    rig.turn();
    let told = ["256 told Intake { is_open: false }", "257 told hello any-2 up to 3"];
    assert_eq!(rig.take_told(), told);
    rig.say(256, |writer| writer.payload(there, b"still here"));
    receives(&mut rig, &sockets[0], b"still here");
    rig.say(256, |writer| writer.closed(there, CloseReason::PlayerLeft));
    rig.turn();
    assert_eq!(rig.take_told(), ["256 ended"]);

    // One at another address is another one: who plays at the first waits for it.
    rig.say(257, |writer| writer.opened_plain(&opened(there)));
    rig.set_backends(vec![udp("any-2", &sockets[2])]);
    rig.turn();
    assert_eq!(rig.take_told(), ["257 ended", "512 told hello any-2 up to 3"]);
    rig.say(512, |writer| writer.opened_plain(&opened(there)));
    rig.say(512, |writer| writer.payload(there, b"over here"));
    receives(&mut rig, &sockets[2], b"over here");
}

#[test]
fn who_may_not_connect_is_told_why() {
    let (socket, own) = (server(), process::effective_uid());
    let backends =
        vec![bundle("arena-1", vec![own + 1]), bundle("arena-2", vec![own]), udp("any-1", &socket)];
    let mut rig = Rig::new("turned-away", backends);
    let mut first = Process::connect(&rig.dir, "arena-2").expect("the agent listens");
    hears(&mut rig, &mut first, &["up 0 of 1"]);
    for (name, why) in [
        ("arena-1", GoodbyeReason::Unauthorised),
        ("arena-2", GoodbyeReason::NameTaken),
        ("any-1", GoodbyeReason::NameTaken),
        ("arena-9", GoodbyeReason::NameUnknown),
    ] {
        let mut game = Process::connect(&rig.dir, name).expect("the agent listens");
        hears(&mut rig, &mut game, &[&format!("sent away: {why:?}")]);
    }
    let dropped = |rig: &Rig| {
        [Dropped::Unauthorised, Dropped::NameTaken].map(|why| rig.counts.dropped[why as usize])
    };
    assert_eq!(dropped(&rig), [1, 2]);
    // Its name is free once it has gone.
    drop(first);
    rig.turn();
    let mut second = Process::connect(&rig.dir, "arena-2").expect("the agent listens");
    hears(&mut rig, &mut second, &["up 0 of 1"]);
    // Whoever may be nothing here is told so before it says anything.
    rig.set_backends(vec![bundle("arena-1", vec![own + 1]), udp("any-1", &socket)]);
    let mut barred = Process::connect(&rig.dir, "arena-9").expect("the agent listens");
    hears(&mut rig, &mut barred, &["sent away: Unauthorised"]);
}

/// A record that no release knows is passed over, but not before a hello: that would be taken
/// without a look at who says it.
#[test]
fn who_says_anything_before_its_hello_is_turned_away() {
    let (socket, own) = (server(), process::effective_uid());
    let backends =
        vec![bundle("arena-1", vec![own + 1]), bundle("arena-2", vec![own]), udp("any-1", &socket)];
    let mut rig = Rig::new("smuggled", backends);
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    rig.take_told();
    for name in ["arena-1", "arena-2", "any-1"] {
        let link = ringgate_io::socket::link(&rig.dir.join("worker-0.sock")).expect("it listens");
        let mut link = socket2::Socket::from(link);
        let version_max = VERSION_MAX as u8;
        let hello = Hello { version_min: VERSION_MIN, version_max, pid: 1, name };
        let mut bundle = vec![4, 0, 128, 0];
        bundle.extend(written(|writer| writer.hello(&hello)));
        link.send(&bundle).expect("it takes it");
        let mut heard = [0; 64];
        let mut said = 0;
        rig.until("it is answered", |_| {
            said = link.read(&mut heard).unwrap_or(0);
            said > 0
        });
        let record = ToGame::decode(only(&heard[..said])).expect("own");
        let goodbye = Goodbye { reason: GoodbyeReason::HelloExpected, error: None };
        assert_eq!(record, ToGame::Goodbye(goodbye));
    }
    assert_eq!(rig.take_told(), Vec::<String>::new());
}

#[test]
fn a_process_that_says_nothing_is_hung_up_on() {
    let mut rig = Rig::new("silent", vec![bundle("arena-1", vec![process::effective_uid()])]);
    let path = rig.dir.join("worker-0.sock");
    let links: Vec<_> = (0..40).map(|_| ringgate_io::socket::link(&path)).collect();
    let let_in = links.iter().filter(|link| link.is_ok()).count() as u64;
    rig.until("all were looked at", |rig| {
        rig.counts.passed.links + rig.counts.dropped[Dropped::Nameless as usize] == let_in
    });
    assert_eq!(rig.counts.passed.links, 16, "of one process at a time");
    rig.ahead_ns = 6_000_000_000;
    rig.until("all are hung up on", |rig| rig.counts.dropped[Dropped::Nameless as usize] == let_in);
}

#[test]
fn a_server_has_a_player_at_an_address_of_its_own_and_keeps_it() {
    let socket = server();
    let mut rig = Rig::new("server", vec![udp("any-1", &socket)]);
    assert!(rig.servers.as_mut().expect("there is one").look(), "it listens");
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    rig.turn();
    assert_eq!(rig.take_told(), ["256 told hello any-1 up to 3"]);
    let there = SessionId::new(LANE.into(), 42);
    rig.say(256, |writer| writer.opened_plain(&opened(there)));
    rig.say(256, |writer| writer.payload(there, b"hello"));
    let from = receives(&mut rig, &socket, b"hello");
    assert!(from.ip().is_loopback() && from.ip().to_string().starts_with("127.1."), "{from}");
    assert_eq!(socket.send_to(b"welcome", from).expect("loopback"), 7);
    rig.until("the gateway hears the answer", |rig| !rig.told.is_empty());
    assert_eq!(rig.take_told(), ["256 pushed payload 0/42 welcome"]);

    // Nobody is sent what is too long for any player, nor what another process sends.
    for (socket, bytes) in [(&socket, &[7; 1473][..]), (&socket, &[]), (&server(), b"x")] {
        socket.send_to(bytes, from).expect("loopback");
    }
    rig.until("all three are counted", |rig| {
        let dropped = &rig.counts.dropped;
        dropped[Dropped::PayloadLength as usize] == 2
            && dropped[Dropped::ServerStranger as usize] == 1
    });

    // The trunk is gone for a moment: who comes back is the same player to the server.
    rig.with(|station, around, _| station.fall(around));
    rig.ahead_ns += 1_000_000_000;
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    rig.turn();
    assert_eq!(rig.take_told(), ["512 told hello any-1 up to 3"]);
    rig.say(512, |writer| writer.opened_plain(&opened(there)));
    rig.say(512, |writer| writer.payload(there, b"again"));
    assert_eq!(receives(&mut rig, &socket, b"again"), from);

    // A server that is gone is no game process any more.
    drop(socket);
    rig.until("the gateway hears of it", |rig| {
        rig.servers.as_mut().expect("there is one").look();
        !rig.told.is_empty()
    });
    assert_eq!(rig.take_told(), ["512 ended"]);
}

/// Turns until a server has received this. Who it is from.
fn receives(rig: &mut Rig, server: &UdpSocket, expected: &[u8]) -> SocketAddr {
    let mut buffer = [0; 2000];
    let mut received = None;
    rig.until("the server receives it", |_| {
        received = server.recv_from(&mut buffer).ok();
        received.is_some()
    });
    let (len, from) = received.expect("waited for");
    assert_eq!(&buffer[..len], expected);
    from
}

#[test]
fn a_worker_that_is_held_reads_nobody_until_it_is_let_go() {
    let mut rig = Rig::new("held", vec![bundle("arena-1", vec![process::effective_uid()])]);
    rig.station.hold(true, &rig.epoll);
    let mut game = Process::connect(&rig.dir, "arena-1").expect("the agent listens");
    for _ in 0..20 {
        rig.turn();
    }
    assert_eq!((rig.counts.passed.links, rig.counts.passed.bundles_in), (1, 0));
    rig.station.hold(false, &rig.epoll);
    hears(&mut rig, &mut game, &["up 0 of 1"]);
}

/// A game process that reads nothing by itself, with players whose messages are delivered here.
fn deaf_game<const PLAYERS: usize>(rig: &mut Rig) -> (OwnedFd, [SessionId; PLAYERS]) {
    let game = ringgate_io::socket::link(&rig.dir.join("worker-0.sock")).expect("it listens");
    let hello = written(|writer| writer.hello(&Hello::new(9, "arena-1")));
    socket2::SockRef::from(&game).send(&hello).expect("it is up");
    rig.until("it is introduced", |rig| !rig.told.is_empty());
    let sessions = std::array::from_fn(|at| SessionId::new(LANE.into(), 42 + at as u64));
    for (at, session) in sessions.into_iter().enumerate() {
        let clustered = Clustered {
            session,
            id: [at as u8; 16],
            tenure: 0x1_000b,
            token_until_s: 1000,
            timeout_ms: 10_000,
            delivery: Some(AgentDelivery { keep_alive_ms: 100, begins: true }),
        };
        rig.say(256, |writer| writer.clustered(&clustered));
        let opened = Opened {
            ticket: None,
            session,
            client_id: 5,
            address: "192.0.2.7:9".parse().expect("literal"),
            slot: 1,
            slots_max: 4,
            delivers: true,
            user_data: &[0; USER_DATA_BYTES],
            listener: "eu",
        };
        rig.say(256, |writer| writer.opened(&opened));
    }
    (game, sessions)
}

/// Each of them alone finds room at the game process's link, and the first leaves none.
#[test]
fn players_do_not_say_more_at_once_than_there_is_room_for() {
    let mut rig = Rig::new("room", vec![bundle("arena-1", vec![process::effective_uid()])]);
    rig.station.arbitrate_with(&Arc::default());
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    let (game, sessions) = deaf_game::<2>(&mut rig);
    for session in sessions {
        let mut player = End::new(&Options::default(), 0);
        let packets = [0, 1, 2, 3].map(|channel| {
            let mut packet = vec![0; 1200];
            let sent = player.send(delivery::Channel::Reliable(channel), &[1; 500], None);
            assert_eq!(sent, Ok(()));
            let len = player
                .poll_transmit(u64::from(channel) * 20_000_000, &mut packet)
                .expect("it is due");
            packet.truncate(len);
            packet
        });
        // As packets come late at times, the last one waits for the one before it.
        for at in [1, 0, 3] {
            let number = at as u64 + 1;
            rig.say(256, |writer| writer.numbered(session, number, &packets[at]));
        }
    }
    let mut bundle = vec![0; BUNDLE_BYTES_MAX];
    let mut reads = || (&*socket2::SockRef::from(&game)).read(&mut bundle).is_ok();
    rig.turn();
    while reads() {}
    let other = SessionId::new(LANE.into(), 41);
    rig.say(256, |writer| writer.opened_plain(&opened(other)));
    let messages = |rig: &Rig| rig.station.relay().delivered().traffic.messages_in;
    let before = messages(&rig);
    for len in [1000, 100] {
        let full = rig.counts.dropped[Dropped::LinkFull as usize];
        while rig.counts.dropped[Dropped::LinkFull as usize] == full {
            rig.say(256, |writer| writer.payload(other, &vec![1; len]));
        }
    }
    assert!(reads());
    rig.station.flush(&rig.epoll);
    rig.ahead_ns += 1_000_000_000;
    rig.with(|station, around, wish| station.look_after_ends(around, wish));
    assert_eq!(messages(&rig) - before, 1);
    // Its gateway hears that too much waits.
    let full = rig.counts.dropped[Dropped::LinkFull as usize];
    while rig.counts.dropped[Dropped::LinkFull as usize] == full {
        rig.say(256, |writer| writer.payload(other, &[1; 1000]));
    }
    rig.station.flush(&rig.epoll);
    rig.take_told();
    rig.with(|station, around, wish| station.tell_rooms(around, wish));
    assert!(rig.take_told()[0].starts_with("256 told Unknown"));
}

/// A game process that closes its player after delivery, and ends.
#[test]
fn who_was_closed_after_delivery_outlives_its_process_a_reload_and_an_upgrade() {
    let own = process::effective_uid();
    let mut rig = Rig::new("lingers", vec![bundle("arena-1", vec![own])]);
    let arbitration = Arc::default();
    rig.station.arbitrate_with(&arbitration);
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    let (game, [session]) = deaf_game(&mut rig);
    let says = |bundle: Vec<u8>| socket2::SockRef::from(&game).send(&bundle).expect("it is up");
    let part = MessagePart::of(session, Channel::Reliable(0), 0, b"map").next().expect("one");
    let reason = CloseReason::GameShutdown;
    let close = CloseAfter { session, reason, linger_ms: 30_000, text: b"bye" };
    says(written(|writer| writer.message(&part) && writer.close_after(&close)));
    drop(game);
    rig.until("it has gone", |rig| rig.station.relay().welcome().next().is_none());
    let stays = |rig: &Rig| rig.station.relay().gone().eq([("arena-1", 1)]);
    assert!(stays(&rig));
    // What the player still says is handed to nobody, and counted.
    let (mut player, mut packet) = (End::new(&Options::default(), 0), [0; 1200]);
    assert_eq!(player.send(delivery::Channel::Reliable(0), &vec![1; 40_000], None), Ok(()));
    assert_eq!(player.send(delivery::Channel::Unreliable(0), b"hi", None), Ok(()));
    for number in 1.. {
        let Some(len) = player.poll_transmit(number * 20_000_000, &mut packet) else { break };
        rig.say(256, |writer| writer.numbered(session, number, &packet[..len]));
    }
    let counted = rig.counts.dropped[Dropped::MessageNotTaken as usize];
    assert_eq!(counted, rig.station.relay().delivered().traffic.messages_in);
    assert!(counted > 0);
    rig.set_backends(vec![bundle("arena-2", vec![own])]);
    assert!(stays(&rig));
    rig.upgrade(&arbitration);
    assert!(stays(&rig));
    rig.say(256, |writer| writer.closed(session, reason));
    assert!(rig.station.relay().gone().next().is_none() && !rig.station.relay().has_ends());
}

/// Its name is free once the gateway has ended that one's link.
#[test]
fn who_waits_for_the_link_of_a_process_that_has_gone_is_introduced_when_the_gateway_ends_it() {
    let mut rig = Rig::new("succeeds", vec![bundle("arena-1", vec![process::effective_uid()])]);
    rig.station.arbitrate_with(&Arc::default());
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    let (game, [session]) = deaf_game(&mut rig);
    let reason = CloseReason::GameShutdown;
    let close = CloseAfter { session, reason, linger_ms: 30_000, text: b"bye" };
    let closes = written(|writer| writer.close_after(&close));
    socket2::SockRef::from(&game).send(&closes).expect("it is up");
    drop(game);
    rig.until("it has gone", |rig| rig.station.relay().gone().next().is_some());
    let mut next = Process::connect(&rig.dir, "arena-1").expect("the agent listens");
    hears(&mut rig, &mut next, &["up 0 of 1"]);
    rig.take_told();
    rig.with(|station, around, wish| station.hear_end(256, around, wish));
    assert_eq!(rig.take_told()[0], "257 told hello arena-1 up to 6");
}

/// A session that has gone to the gateway of another local worker, while its game process stays
/// linked where it is.
#[test]
fn a_process_that_says_more_than_another_threads_gateway_takes_is_read_no_more_until_it_has() {
    let mut rig = Rig::new("crowded", vec![bundle("arena-1", vec![process::effective_uid()])]);
    let arbitration = Arc::<Arbitration>::default();
    let mut other = Relay::new(1, 2, 77, vec!["arena-1".to_owned()]);
    other.arbitrate_with(Arc::clone(&arbitration));
    rig.station.arbitrate_with(&arbitration);
    let inboxes = [(); 2].map(|()| Inbox::new(Bell::new().expect("descriptors")));
    for (worker, inbox) in inboxes.iter().enumerate() {
        rig.crossings.register(worker, inbox);
    }
    let hello = written(|writer| writer.hello(&Hello::new(9, "arena-1")));
    let game = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::SEQPACKET, None);
    let game = game.expect("descriptors");
    let path = socket2::SockAddr::unix(rig.dir.join("worker-0.sock")).expect("it is short");
    game.connect(&path).expect("the agent listens");
    game.set_nonblocking(true).expect("a live socket");
    game.send(&hello).expect("it is short");
    rig.with(|station, around, wish| station.rise(LANE, around, wish));
    rig.until("it is let in", |rig| !rig.told.is_empty());

    let (there, user_data) = (SessionId::new(LANE.into(), 9), [0; USER_DATA_BYTES]);
    let clustered = |tenure| Clustered {
        session: there,
        id: [7; 16],
        tenure,
        token_until_s: 1 << 40,
        timeout_ms: 10_000,
        delivery: None,
    };
    let opened = Opened {
        ticket: None,
        session: there,
        client_id: 5,
        address: "192.0.2.7:9".parse().expect("literal"),
        slot: 1,
        slots_max: 4,
        delivers: true,
        user_data: &user_data,
        listener: "eu",
    };
    let [first, second] = [(1 << 16) + 11, (2 << 16) + 12];
    rig.say(256, |writer| writer.clustered(&clustered(first)));
    rig.say(256, |writer| writer.opened(&opened));
    let claim =
        ClusterClaim { id: [7; 16], tenure: second, over: first, timeout_ms: 9, is_offered: false };
    let said = [
        written(|writer| writer.claim(&claim)),
        written(|writer| writer.clustered(&clustered(second))),
        written(|writer| writer.opened(&opened)),
    ];
    let mut pass = |act: Action<'_>| {
        if let Action::Pass(worker, passed) = act {
            rig.crossings.send(worker, &passed);
        }
    };
    let linked = other.connect().expect("there is room");
    other.handle_bundle(linked, &hello, &mut pass);
    other.handle_lane(LANE, &mut pass);
    for record in &said {
        other.handle_record(256, only(record), &mut pass).expect("as the format wants it");
    }
    let mut parcels: Vec<_> = inboxes[0].take_for_games().into();
    parcels.extend(inboxes[0].take_for_gateway(usize::MAX));
    for (_, parcel) in parcels {
        rig.with(|station, around, wish| station.take_passed(&parcel.passed(), around, wish));
    }

    let channel = Channel::Reliable(0);
    let part = MessagePart {
        session: there,
        channel,
        is_first: true,
        is_last: true,
        token: 0,
        bytes: &[7; 10_000],
    };
    let message = written(|writer| writer.message(&part));
    let mut sent = 0;
    let mut play = |rig: &mut Rig| {
        while sent < 800 && game.send(&message).is_ok() {
            sent += 1;
        }
        rig.turn();
        sent == 800
    };
    rig.until("it waits", |rig| !play(rig) && rig.station.has_waiting());
    let read = rig.counts.passed.bundles_in;
    for _ in 0..50 {
        assert!(!play(&mut rig));
    }
    assert_eq!(rig.counts.passed.bundles_in, read);
    let mut taken = 0;
    rig.until("all that it has said", |rig| {
        taken += inboxes[1].take_for_gateway(64 << 10).len();
        play(rig) && taken == 800
    });
    assert!(!rig.station.has_waiting());
    assert_eq!(rig.counts.dropped[Dropped::CrossingFull as usize], 0);
}
