//! Threads of an agent with real processes at their sockets, and the tests in the place of the
//! gateways.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use ringgate_link::bundle::{
    BUNDLE_BYTES_MAX, ClusterClaim, Clustered, Hello, Opened, SessionId, ToGame, USER_DATA_BYTES,
};
use ringgate_os::clock::sleep;
use ringgate_os::process;

use super::*;
use crate::agent::tests::{bundle, server, udp, written};
use crate::protocol::tls::{self, fixtures};

/// Whoever is slower than this waits for something that does not come.
const PATIENCE_NS: u64 = 60_000_000_000;

/// What the relay calls the first link at a gateway.
const LINK: u16 = 256;

const FIRST: u32 = (1 << 16) + 11;
const SECOND: u32 = (2 << 16) + 12;

struct Agent {
    shared: Shared,
    dir: PathBuf,
}

impl Agent {
    fn new(name: &str, backends: Vec<Backend>) -> Self {
        let dir = std::env::temp_dir().join(format!("ringgate-desk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder for sockets");
        let identity = || {
            tls::Agent::new(crate::socket::provider(), fixtures::AGENT)
                .map_err(|why| why.to_string())
        };
        let options = Options {
            name: "host-7".to_owned(),
            gateways: Vec::new(),
            identity: Arc::new(identity),
            run_dir: dir.clone(),
            backends,
            patience: Duration::ZERO,
            incarnation: 77,
        };
        let shared = Shared {
            options: Arc::new(options),
            book: Arc::new(Book::new(Bell::new().expect("descriptors"))),
            rolls: Arc::default(),
            arbitration: Arc::default(),
            crossings: Arc::default(),
            clock: Clock::start(),
        };
        Self { shared, dir }
    }

    /// A thread for a gateway whose name nobody knows: it connects nowhere.
    fn thread(&self, gateway: &str) -> Thread {
        let (commands, told) = channel();
        let bell = Bell::new().expect("descriptors");
        let with = (&self.shared, self.shared.options.backends.clone().into());
        let gateway = Gateway::parse(gateway).expect("literal");
        let desk = Desk::open(with, Some(gateway), (bell, told), Arc::default());
        Thread { desk: desk.expect("loopback"), commands }
    }

    /// Two gateways' threads, of which the second has taken a session over that the game process
    /// knows by the first, and that process's link there.
    fn with_a_session_taken_over(&self) -> ([Thread; 2], OwnedFd) {
        let mut threads =
            ["gate-1.invalid:7", "gate-2.invalid:7"].map(|gateway| self.thread(gateway));
        let [game, _] = threads.each_mut().map(|thread| {
            thread.begin(1, 1);
            let game = self.game(thread);
            thread.rise();
            game
        });
        let [first, second] = &mut threads;
        first.announce(FIRST);
        let claim = ClusterClaim {
            id: ID,
            tenure: SECOND,
            over: FIRST,
            timeout_ms: 10_000,
            is_offered: false,
        };
        second.say(|writer| writer.claim(&claim));
        second.announce(SECOND);
        assert_eq!(self.shared.arbitration.counts(), [1, 0, 1], "it is the second one's");
        (threads, game)
    }

    /// A game process that is welcome at the first lane of a thread.
    fn game(&self, thread: &mut Thread) -> OwnedFd {
        let worker = thread.desk.stations[0].worker();
        let path = self.dir.join(format!("worker-{worker}.sock"));
        let game = ringgate_io::socket::link(&path).expect("it listens");
        send(&game, &written(|writer| writer.hello(&Hello::new(9, "arena-1"))));
        let is_welcome = |desk: &Desk| desk.stations[0].relay().welcome().next().is_some();
        thread.until("it is welcome", is_welcome);
        game
    }
}

impl std::ops::Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Thread {
    desk: Desk,
    commands: Sender<Command>,
}

impl Thread {
    /// The gateway lets the agent in, with so many lanes.
    fn begin(&mut self, lanes: u8, incarnation: u64) {
        let welcome = Welcome { version: 1, lanes, trunk: 1, incarnation };
        self.desk.begin(welcome, self.desk.now_ns());
    }

    /// It has a trunk, to somebody who says nothing.
    fn connect(&mut self) -> TcpListener {
        let gateway = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let to = gateway.local_addr().expect("it is bound");
        let Desk { shared, epoll, .. } = &self.desk;
        let name = Gateway::parse("gate-1.example:7").expect("literal");
        let trunk = connect(&shared.options, &name, to, epoll, self.desk.now_ns());
        self.desk.trunk = Some(trunk.expect("loopback"));
        gateway
    }

    /// Its lanes are up.
    fn rise(&mut self) {
        for (lane, at) in self.desk.by_lane.clone().into_iter().enumerate() {
            let now_ns = self.desk.now_ns();
            self.desk.one_station(at, now_ns, |station, around, wish| {
                station.rise(lane as u8, around, wish);
            });
        }
    }

    /// The gateway says something on the first link of the first lane.
    fn say(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) {
        let (record, now_ns) = (written(write), self.desk.now_ns());
        self.desk.one_station(0, now_ns, |station, around, wish| {
            for frame in Frames::new(&record) {
                let frame = frame.expect("own");
                station.hear(LINK, frame, around, &mut *wish).expect("as the format wants it");
            }
        });
    }

    fn announce(&mut self, tenure: u32) {
        let session = there();
        let clustered = Clustered {
            session,
            id: ID,
            tenure,
            token_until_s: 1 << 40,
            timeout_ms: 10_000,
            delivery: None,
        };
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
        self.say(|writer| writer.clustered(&clustered) && writer.opened(&opened));
    }

    fn tell(&mut self, command: Command) {
        self.commands.send(command).expect("it lives");
        self.turn();
    }

    fn turn(&mut self) {
        let desk = &mut self.desk;
        match &mut desk.servers {
            Some(servers) => {
                servers.turn(Duration::ZERO).expect("it can wait");
                desk.epoll.ready(&mut desk.ready).expect("a live set");
            }
            None => desk.epoll.wait(&mut desk.ready, Duration::ZERO).expect("a live set"),
        }
        assert!(desk.turn(), "it goes on");
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Desk) -> bool) {
        let start_ns = self.desk.now_ns();
        while !is_so(&self.desk) {
            assert!(self.desk.now_ns() < start_ns + PATIENCE_NS, "{what}");
            self.turn();
            sleep(Duration::from_micros(200));
        }
    }
}

const ID: [u8; 16] = [7; 16];

/// What gateways call their session.
fn there() -> SessionId {
    SessionId::new(0, 9)
}

fn send(game: &OwnedFd, bundle: &[u8]) {
    socket2::SockRef::from(game).send(bundle).expect("it is up");
}

/// Whether a game process hears that its gateway will end.
fn is_told_to_drain(game: &OwnedFd) -> bool {
    let mut is_told = false;
    hear(game, |record| is_told |= matches!(record, ToGame::Draining { .. }));
    is_told
}

/// What a game process has been told.
fn hear(game: &OwnedFd, mut take: impl FnMut(ToGame<'_>)) {
    let mut bundle = vec![0; BUNDLE_BYTES_MAX];
    while let Ok(len @ 1..) = (&*socket2::SockRef::from(game)).read(&mut bundle) {
        let records = Frames::new(&bundle[..len]).map(|it| it.expect("own"));
        records.filter_map(|frame| ToGame::decode(frame).ok()).for_each(&mut take);
    }
}

#[test]
fn a_game_process_is_told_of_workers_that_other_threads_have_brought_by_then() {
    let agent = Agent::new("counted", vec![bundle("arena-1", vec![process::effective_uid()])]);
    let mut thread = agent.thread("gate-1.invalid:7");
    thread.begin(1, 1);
    let path = agent.dir.join("worker-1.sock");
    let game = ringgate_io::socket::link(&path).expect("it listens");
    thread.turn();
    send(&game, &written(|writer| writer.hello(&Hello::new(9, "arena-1"))));
    agent.shared.book.take(1);
    let mut told = None;
    let start_ns = thread.desk.now_ns();
    while told.is_none() {
        assert!(thread.desk.now_ns() < start_ns + PATIENCE_NS, "it is welcome");
        thread.turn();
        hear(&game, |record| {
            if let ToGame::Welcome(welcome) = record {
                told = Some(welcome.workers);
            }
        });
    }
    assert_eq!(told, Some(3));
}

#[test]
fn a_thread_that_has_left_its_gateway_stays_for_sessions_that_another_one_has() {
    let own = process::effective_uid();
    let agent = Agent::new("caretaker", vec![bundle("arena-1", vec![own])]);
    let ([mut first, mut second], game) = agent.with_a_session_taken_over();
    first.tell(Command::Leave { until_ns: 0 });
    assert!(!first.desk.has_left_gateway(), "its game process knows a session");
    assert!(!is_told_to_drain(&game));
    // Its trunk does not stay: nobody plays by it any more.
    if ringgate_os::processor::suffices_for_tls().is_ok() {
        let _gateway = first.connect();
        first.tell(Command::Leave { until_ns: u64::MAX });
        assert!(first.desk.trunk.is_some(), "there is time");
        first.tell(Command::Leave { until_ns: 0 });
        assert!(first.desk.trunk.is_none());
    }
    assert!(!first.desk.has_left_gateway());
    second.say(|writer| writer.closed(there(), CloseReason::PlayerLeft));
    first.until("it ends with the session", Desk::has_left_gateway);
}

#[test]
fn a_session_whose_gateway_is_taken_out_is_taken_by_another_one_or_ends() {
    let own = process::effective_uid();
    for is_closed in [true, false] {
        let agent = Agent::new("taken-out", vec![bundle("arena-1", vec![own])]);
        let arbitration = &agent.shared.arbitration;
        arbitration.pass_time(1000, 0);
        let ([mut first, mut second], game) = agent.with_a_session_taken_over();
        second.tell(Command::Leave { until_ns: u64::MAX });
        assert!(!second.desk.has_left_gateway(), "somebody plays by it");
        second.tell(Command::Leave { until_ns: 0 });
        assert!(second.desk.has_left_gateway());
        second.desk.stop();
        assert_eq!(arbitration.counts(), [1, 1, 1], "it waits for another gateway");
        if is_closed {
            let session = SessionId::new(first.desk.stations[0].worker(), 9);
            send(&game, &written(|writer| writer.close(session, CloseReason::Kicked)));
            first.until("it ends", |desk| desk.shared.arbitration.counts() == [0, 0, 1]);
        } else {
            assert_eq!(arbitration.pass_time(1014, 14), []);
            let ended = arbitration.pass_time(1016, 16);
            assert_eq!(ended.len(), 1);
        }
    }
}

#[test]
fn a_server_that_a_reload_has_replaced_is_served_by_lanes_that_come_later() {
    let sockets = [server(), server()];
    let agent = Agent::new("replaced", vec![udp("any-1", &sockets[0])]);
    let mut thread = agent.thread("gate-1.invalid:7");
    thread.begin(1, 1);
    thread.rise();
    thread.until("the first one is linked", |desk| desk.stations[0].has_server(0));
    thread.tell(Command::Backends(vec![udp("any-1", &sockets[1])].into()));
    thread.until("the next one is linked", |desk| desk.stations[0].has_server(1));
    thread.begin(2, 1);
    thread.rise();
    thread.until("the other lane has it, too", |desk| desk.stations[1].has_server(1));
}

#[test]
fn a_process_is_not_heard_where_others_have_filled_the_stream_in_the_same_turn() {
    if let Err(why) = ringgate_os::processor::suffices_for_tls() {
        return eprintln!("SKIPPED: {why}");
    }
    let agent = Agent::new("filled", vec![bundle("arena-1", vec![process::effective_uid()])]);
    let mut thread = agent.thread("gate-1.invalid:7");
    thread.begin(1, 1);
    let game = agent.game(&mut thread);
    let _gateway = thread.connect();
    let trunk = thread.desk.trunk.as_mut().expect("just made");
    while !trunk.is_crowded() {
        trunk.say(&[7; 10_000]);
    }
    let heard = thread.desk.counts.passed.bundles_in;
    send(&game, &written(|writer| writer.ping(1)));
    let mut game = Some(game);
    for _ in 0..3 {
        thread.turn();
        assert_eq!(thread.desk.counts.passed.bundles_in, heard);
        // Nor when it has died, which is said once.
        drop(game.take());
    }
    let is_link = |one: &Ready| matches!(owner(one.token), Owner::Link(..));
    assert!(!thread.desk.ready.iter().any(is_link));
    thread.desk.trunk = None;
    thread.until("it is heard", |desk| desk.counts.passed.bundles_in > heard);
}

#[test]
fn numbers_of_lanes_that_cannot_be_served_are_free() {
    let agent = Agent::new("unserved", Vec::new());
    std::fs::create_dir(agent.dir.join("worker-2.sock")).expect("it is not there");
    let mut thread = agent.thread("gate-1.invalid:7");
    thread.begin(4, 1);
    assert_eq!(thread.desk.by_lane, [0]);
    assert_eq!(agent.shared.book.take(3), [2, 3, 4]);
}
