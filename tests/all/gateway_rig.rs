//! A whole gateway over real sockets, in this process, with players and game servers to talk to it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use renetcode::{ClientAuthentication, NetcodeClient};
use ringgate_core::netcode::{Client, Notice, TokenSpec, UserData, mint, user_data};
use ringgate_core::proto::netcode::address::ServerAddresses;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::body::Gathers;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{
    Allowed, Backend, BackendId, Counters, Limits, LinkKind, Listener, Netcode, Phase, Protocol,
    Route, Setup, TokenReuse,
};
use ringgate_io::Choice;
use ringgate_link::backend::{Event, Options};
use ringgate_os::clock::{self, Clock};
use ringgate_os::publishing::Roll;
use ringgate_report::text::Append as _;
use ringgate_worker::{Fleet, Plan, Report};

use crate::folder::Folder;

/// Runs each function as a test on both drivers. The uring half skips aloud where io_uring is
/// missing, and fails instead with `REQUIRE_URING=1`.
macro_rules! on_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod mmsg {
            $( #[test] fn $name() { super::$name(ringgate_io::Choice::Mmsg); } )+
        }
        mod uring {
            $( #[test] fn $name() {
                if crate::io_rig::Rig::uring_works() {
                    super::$name(ringgate_io::Choice::Uring);
                }
            } )+
        }
    };
}
pub(crate) use on_both_drivers;

pub(crate) const PROTOCOL_ID: u64 = 0x0102_0304_0506_0708;

/// How a gateway under test is set up.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) io: Choice,
    pub(crate) bind: SocketAddr,
    /// What tokens name, where that is not what is bound; port 0 is replaced.
    pub(crate) public: Vec<SocketAddr>,
    pub(crate) workers: u16,
    pub(crate) slots: u32,
    /// Where the game server listens; `None` for a bundle link.
    pub(crate) udp: Option<SocketAddr>,
    pub(crate) grace_ms: u64,
    pub(crate) filter: bool,
    /// Whole messages are delivered.
    pub(crate) delivers: bool,
}

impl Wishes {
    pub(crate) fn new(io: Choice) -> Self {
        Self {
            io,
            bind: local("127.0.0.1:0"),
            public: Vec::new(),
            workers: 2,
            slots: 64,
            udp: None,
            grace_ms: 200,
            filter: true,
            delivers: false,
        }
    }
}

pub(crate) struct Gateway {
    fleet: Option<Fleet>,
    folder: Folder,
    key: Key,
    setup: Setup,
    address: SocketAddr,
    public: Option<SocketAddr>,
    udp: Option<SocketAddr>,
}

impl Gateway {
    pub(crate) fn start(wishes: &Wishes) -> Self {
        let folder = Folder::new();
        let key = Key::generate().expect("random bytes");
        let plan = plan(wishes, &folder, &key);
        let fleet = Fleet::start(&plan).expect("a gateway starts on loopback");
        let setup = Setup::clone(&plan.setup);
        let address = fleet.addresses()[0][0];
        let public =
            wishes.public.first().map(|public| SocketAddr::new(public.ip(), address.port()));
        Self { fleet: Some(fleet), folder, key, setup, address, public, udp: wishes.udp }
    }

    /// Where players find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.public.unwrap_or(self.address)
    }

    /// Where its game server listens.
    pub(crate) fn udp(&self) -> Option<SocketAddr> {
        self.udp
    }

    pub(crate) fn run_dir(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().expect("stopped at the end only")
    }

    /// Gives the workers another delay, as a reload does.
    pub(crate) fn adopt_delay(&mut self, batch_delay: BatchDelay) {
        self.setup.batch_delay = batch_delay;
        self.setup.revision += 1;
        self.fleet().adopt(&self.setup, Vec::new());
    }

    /// What the first worker has waited on purpose, as it says by itself once it goes by the last
    /// setup: to be asked would wake it.
    pub(crate) fn gathers(&self) -> Option<Gathers> {
        let report = self.fleet().published()[0].report();
        (report.revision == self.setup.revision).then_some(report.gathers)
    }

    /// All workers' counters.
    pub(crate) fn counters(&self) -> Counters {
        counters(self.fleet())
    }

    pub(crate) fn token(&self, client_id: u64) -> ringgate_core::netcode::ConnectToken {
        let servers = ServerAddresses::new(&[self.address()]).expect("one address");
        let spec = TokenSpec {
            timeout_seconds: SILENCE_S,
            user_data: user_data_of(client_id),
            ..TokenSpec::new(PROTOCOL_ID, client_id, servers)
        };
        mint(&spec, &self.key, clock::unix_seconds()).expect("random bytes")
    }

    /// The key that its tokens are sealed with, as a key file has it.
    pub(crate) fn key_hex(&self) -> String {
        let mut hex = String::new();
        for byte in self.key.as_bytes() {
            write!(hex, "{byte:02x}");
        }
        hex
    }

    /// A player with our client.
    pub(crate) fn player(&self, client_id: u64) -> Player {
        Player::new(&self.token(client_id), self.address())
    }

    /// A player with renetcode's client and a token of renetcode's making.
    pub(crate) fn renet(&self, client_id: u64) -> Renet {
        let now = Duration::from_secs(clock::unix_seconds());
        let connect_token = renetcode::ConnectToken::generate(
            now,
            PROTOCOL_ID,
            60,
            client_id,
            SILENCE_S,
            vec![self.address()],
            None,
            self.key.as_bytes(),
        )
        .expect("a token");
        let client = NetcodeClient::new(now, ClientAuthentication::Secure { connect_token });
        Renet::new(client.expect("a client"), socket_toward(self.address()))
    }

    /// Stops the gateway and checks every worker's balances.
    pub(crate) fn stop(mut self) -> Counters {
        stop(self.fleet.take().expect("stopped once"))
    }
}

/// What each worker has to report as of now: what a test reads may not depend on when it is
/// published.
pub(crate) fn reports(fleet: &Fleet) -> Vec<Report> {
    let mut roll = Roll::new();
    fleet.publishers().ask(&mut roll);
    let mut asked = roll.close();
    until("all workers publish", || asked.is_over());
    assert!(asked.silent().is_empty(), "a worker has ended");
    fleet.published().iter().map(|worker| worker.report()).collect()
}

/// The counters of all workers as of now.
pub(crate) fn counters(fleet: &Fleet) -> Counters {
    let mut total = Counters::default();
    for report in reports(fleet) {
        total.merge(&report.counters);
    }
    total
}

/// Stops workers, and checks that each of them accounts for everything.
pub(crate) fn stop(fleet: Fleet) -> Counters {
    let published = fleet.published().to_vec();
    fleet.stop().expect("workers end well");
    let mut total = Counters::default();
    for worker in published {
        let counters = worker.report().counters;
        assert_eq!(counters.check_conservation(), Ok(()), "{counters:#?}");
        total.merge(&counters);
    }
    total
}

fn plan(wishes: &Wishes, folder: &Folder, key: &Key) -> Plan {
    let own_uid = std::os::unix::fs::MetadataExt::uid(
        &std::fs::metadata(folder.path()).expect("the folder is ours"),
    );
    let link = match wishes.udp {
        Some(address) => LinkKind::Udp { address },
        None => LinkKind::Bundle { allow: Allowed { uids: vec![own_uid], gids: Vec::new() } },
    };
    let listener = Listener {
        name: "test".to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL_ID,
            keys: vec![key.clone().into()],
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: TokenReuse::Deny,
            delivers: wishes.delivers,
            unique_in: None,
            moves: Vec::new(),
            replace_after_ns: 2_000_000_000,
        }),
        public: wishes.public.clone(),
        backends: vec![BackendId(0)],
        route: Route::Single,
        sessions_max: 1000,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let backend = Backend {
        name: "game".to_owned(),
        link,
        slots: wishes.slots,
        grace_ns: wishes.grace_ms * 1_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    Plan {
        setup: Arc::new(Setup::new(vec![listener], vec![backend], 7)),
        binds: vec![vec![wishes.bind]],
        filter: vec![wishes.filter],
        run_dir: wishes.udp.is_none().then(|| folder.path().to_owned()),
        expects_udp: false,
        narrows: false,
        card: None,
        spent: Vec::new(),
        workers: wishes.workers,
        pin: false,
        io: wishes.io,
        spin: Duration::ZERO,
    }
}

/// A player with a socket of its own.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) socket: UdpSocket,
    pub(crate) received: Vec<Vec<u8>>,
    /// Every datagram that was sent, for those who want to send it again.
    pub(crate) sent: Vec<Vec<u8>>,
    clock: Clock,
}

impl Player {
    pub(crate) fn new(token: &ringgate_core::netcode::ConnectToken, server: SocketAddr) -> Self {
        Self {
            client: Client::new(token, 0).expect("random bytes"),
            socket: socket_toward(server),
            received: Vec::new(),
            sent: Vec::new(),
            clock: Clock::start(),
        }
    }

    /// Sends what is due and takes in what has come.
    pub(crate) fn step(&mut self) {
        let now_ns = self.clock.now_ns();
        let _ = self.client.handle_timeout(now_ns);
        let mut buffer = [0; 2048];
        while let Some((to, datagram)) = self.client.poll_transmit(now_ns, &mut buffer) {
            self.sent.push(datagram.to_vec());
            let _ = self.socket.send_to(datagram, to);
        }
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let taken = self.client.handle_datagram(now_ns, from, &mut buffer[..len]);
            if let Ok(Some(Notice::Payload(bytes))) = taken {
                self.received.push(bytes.to_vec());
            }
        }
    }

    /// A payload as the datagram that carries it.
    pub(crate) fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let now_ns = self.clock.now_ns();
        let (_, datagram) =
            self.client.write_payload(now_ns, payload, &mut buffer).expect("connected");
        datagram.to_vec()
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let datagram = self.write(payload);
        let _ = self.socket.send_to(&datagram, self.client.server());
        self.sent.push(datagram);
    }

    pub(crate) fn connect(&mut self) {
        until("the player is connected", || {
            self.step();
            self.client.is_connected()
        });
    }

    /// Sends a payload once, to a backend that is up, and waits for its echo.
    pub(crate) fn echo_once(&mut self, payload: &[u8]) {
        self.send(payload);
        until("the only echo is back", || {
            self.step();
            self.received.iter().any(|received| received == payload)
        });
    }

    /// Sends a payload until its echo is here: the first may meet a backend that is not up yet.
    pub(crate) fn echo(&mut self, payload: &[u8]) {
        let mut patience = 0;
        until("the echo is back", || {
            if patience % 100 == 0 {
                self.send(payload);
            }
            patience += 1;
            self.step();
            self.received.iter().any(|received| received == payload)
        });
    }
}

/// renetcode's client with a socket of its own.
pub(crate) struct Renet {
    pub(crate) client: NetcodeClient,
    socket: UdpSocket,
    clock: Clock,
    stepped_ns: u64,
}

impl Renet {
    pub(crate) fn new(client: NetcodeClient, socket: UdpSocket) -> Self {
        Self { client, socket, clock: Clock::start(), stepped_ns: 0 }
    }

    /// Sends what is due; returns the payloads that have come.
    pub(crate) fn step(&mut self) -> Vec<Vec<u8>> {
        let now_ns = self.clock.now_ns();
        let elapsed = Duration::from_nanos(now_ns - self.stepped_ns);
        self.stepped_ns = now_ns;
        if let Some((datagram, to)) = self.client.update(elapsed) {
            let _ = self.socket.send_to(datagram, to);
        }
        let mut payloads = Vec::new();
        let mut buffer = [0; 2048];
        while let Ok((len, _)) = self.socket.recv_from(&mut buffer) {
            payloads.extend(self.client.process_packet(&mut buffer[..len]).map(<[u8]>::to_vec));
        }
        payloads
    }

    pub(crate) fn connect(&mut self) {
        until("renetcode's client is connected", || {
            self.step();
            self.client.is_connected()
        });
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let (to, datagram) = self.client.generate_payload_packet(payload).expect("connected");
        let _ = self.socket.send_to(datagram, to);
    }

    pub(crate) fn disconnect(&mut self) {
        let (to, datagram) = self.client.disconnect().expect("connected");
        let _ = self.socket.send_to(datagram, to);
    }
}

/// A game server that answers every payload with itself, until it is dropped.
pub(crate) struct Echo {
    stop: Arc<AtomicBool>,
    pub(crate) payloads: Arc<AtomicU64>,
    pub(crate) closed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Over the bundle link; connected to all workers when this returns.
    pub(crate) fn bundle(gateway: &Gateway) -> Self {
        let mut backend = Options::new(gateway.run_dir(), "game").start().expect("a backend");
        until("the backend is linked", || {
            let _ = backend.wait(Some(Duration::from_millis(5)));
            let mut events = backend.poll().expect("links work");
            while events.next().is_some() {}
            backend.flush();
            backend.is_up()
        });
        Self::run(move |stop, payloads, closed| {
            while !stop.load(Ordering::Acquire) {
                let _ = backend.wait(Some(Duration::from_millis(5)));
                let mut events = backend.poll().expect("links work");
                while let Some((event, outbox)) = events.next() {
                    match event {
                        Event::Payload { session, bytes } => {
                            payloads.fetch_add(1, Ordering::Relaxed);
                            let _ = outbox.send(session, bytes);
                        }
                        Event::Closed { .. } => {
                            closed.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => {}
                    }
                }
                backend.flush();
            }
        })
    }

    /// An ordinary UDP server that knows nothing of a gateway.
    pub(crate) fn udp(socket: UdpSocket) -> Self {
        let wait = Some(Duration::from_millis(5));
        socket.set_read_timeout(wait).expect("a socket option");
        Self::run(move |stop, payloads, _| {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Acquire) {
                let Ok((len, player)) = socket.recv_from(&mut buffer) else { continue };
                payloads.fetch_add(u64::from(len > 0), Ordering::Relaxed);
                let _ = socket.send_to(&buffer[..len], player);
            }
        })
    }

    fn run(body: impl FnOnce(&AtomicBool, &AtomicU64, &AtomicU64) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (payloads, closed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, ended) = (stop.clone(), payloads.clone(), closed.clone());
        let thread = std::thread::spawn(move || body(&stopped, &counted, &ended));
        Self { stop, payloads, closed, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket on the loopback address of the server's family.
pub(crate) fn socket_toward(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).expect("a free port");
    socket.set_nonblocking(true).expect("a socket option");
    socket
}

pub(crate) fn local(text: &str) -> SocketAddr {
    let address: SocketAddr = text.parse().expect("literal");
    assert!(address.ip().is_loopback() || address.ip().is_unspecified());
    address
}

/// Waits for a condition, for as long as a very slow machine may need.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !is_true() {
        assert!(clock.now_ns() < PATIENCE_NS, "still waiting: {what}");
        clock::sleep(Duration::from_millis(1));
    }
}

const PATIENCE_NS: u64 = 60_000_000_000;

/// Longer than a test waits for anything: no player of a rig says something meanwhile.
const SILENCE_S: i32 = 600;

/// What the tokens of players carry for their game processes.
pub(crate) fn user_data_of(client_id: u64) -> UserData {
    user_data(format!("player {client_id}").as_bytes()).expect("short")
}
