//! A whole gateway for an Unreal game over real sockets, with engine-like players and a server that
//! judges.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_batch::Endpoint;
use ringgate_bots::unreal::bunch::write_close;
use ringgate_bots::unreal::peer::Peer;
use ringgate_bots::unreal::{StandIn, Tally};
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::handshake::{Base, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_core::secret::CookieSecret;
use ringgate_gate::{
    Backend, BackendId, Counters, Duplicates, Limits, LinkKind, Listener, Phase, Protocol, Route,
    Setup, Unreal,
};
use ringgate_io::Choice;
use ringgate_os::clock::Clock;
use ringgate_worker::{Fleet, Plan};

use crate::gateway_rig::{counters, local, reports, socket_toward, stop, until};
use crate::own::{own_address, take_again};

pub(crate) const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 0,
    network_version: 0x1234_5678,
    network_features: 1,
};

/// What a test may want to be different.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) io: Choice,
    pub(crate) workers: u16,
    pub(crate) route: Route,
    pub(crate) slots: u32,
    pub(crate) filter: bool,
    pub(crate) rules: Unreal,
}

impl Wishes {
    pub(crate) fn new(io: Choice) -> Self {
        let rules = Unreal {
            framing: Framing::default(),
            learns_base: true,
            versions: 3..=4,
            network_versions: None,
            duplicates: Duplicates::Notify,
            gap_limit: 0,
            idle_timeout_ns: 30_000_000_000,
        };
        Self { io, workers: 2, route: Route::Single, slots: 64, filter: true, rules }
    }
}

pub(crate) struct Gateway {
    fleet: Option<Fleet>,
    address: SocketAddr,
    framing: Framing,
}

impl Gateway {
    /// A gateway in front of these servers.
    pub(crate) fn start(wishes: &Wishes, servers: &[&Server]) -> Self {
        let backends = servers.iter().enumerate().map(|(number, server)| Backend {
            name: format!("server-{number}"),
            link: LinkKind::Udp { address: server.address },
            slots: wishes.slots,
            grace_ns: 500_000_000,
            retired: false,
            drained: false,
            intake: ringgate_gate::Intake::Anybody,
        });
        let listener = Listener {
            name: "shooter".to_owned(),
            protocol: Protocol::Unreal(wishes.rules.clone()),
            public: Vec::new(),
            backends: (0..servers.len()).map(BackendId::at).collect(),
            route: wishes.route,
            sessions_max: 20_000,
            follow_port_switch: true,
            limits: Limits::UNREAL,
            phase: Phase::Serving,
        };
        let plan = Plan {
            setup: Arc::new(Setup::new(vec![listener], backends.collect(), 7)),
            binds: vec![vec![local("127.0.0.1:0")]],
            filter: vec![wishes.filter],
            run_dir: None,
            expects_udp: false,
            narrows: false,
            card: None,
            spent: Vec::new(),
            workers: wishes.workers,
            pin: false,
            io: wishes.io,
            spin: Duration::ZERO,
        };
        let fleet = Fleet::start(&plan).expect("a gateway starts on loopback");
        let address = fleet.addresses()[0][0];
        Self { fleet: Some(fleet), address, framing: wishes.rules.framing }
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        self.fleet.as_ref().expect("stopped at the end only")
    }

    /// Waits until every worker has heard from every server.
    pub(crate) fn await_servers(&self) {
        until("all servers have answered", || {
            reports(self.fleet()).iter().all(|report| {
                !report.backends_up.is_empty() && report.backends_up.iter().all(|up| *up)
            })
        });
    }

    /// All workers' counters.
    pub(crate) fn counters(&self) -> Counters {
        counters(self.fleet())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn player(&self, client_id: u8) -> Player {
        Player::new(self.framing, client_id, self.address)
    }

    /// Stops the gateway and checks every worker's balances.
    pub(crate) fn stop(mut self) -> Counters {
        stop(self.fleet.take().expect("stopped once"))
    }
}

/// A game server with a socket and a thread of its own, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<StandIn>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(framing: Framing, session: u8) -> Self {
        Self::start_at(own_address(), framing, session)
    }

    pub(crate) fn start_at(address: SocketAddr, framing: Framing, session: u8) -> Self {
        Self::speaking(address, framing, BASE, session)
    }

    /// A server of another version or build.
    pub(crate) fn speaking(address: SocketAddr, framing: Framing, base: Base, session: u8) -> Self {
        let socket = take_again(|| UdpSocket::bind(address));
        let address = socket.local_addr().expect("bound");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket option");
        let clock = Clock::start();
        let profile = Profile { framing, client_id: 0, base };
        let secrets = [5, 6].map(|byte| CookieSecret::from_bytes([byte; 64]));
        let server =
            StandIn::new(&profile, session, 2000, CookieMac::tag_once, secrets, clock.now_ns());
        let state = Arc::new(Mutex::new(server));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut dice = Dice(7);
            let (mut datagram, mut out) = ([0; 2048], [0; UNREAL_BYTES_MAX]);
            while !stopped.load(Ordering::Acquire) {
                let received = socket.recv_from(&mut datagram);
                let now_ns = clock.now_ns();
                let mut server = shared.lock().expect("nobody panics");
                if let Ok((len, from)) = received {
                    let (from_player, tail) = (Endpoint::from(from), dice.tail());
                    let answered = server.handle_datagram(
                        now_ns,
                        from_player,
                        &datagram[..len],
                        &tail,
                        &mut out,
                    );
                    if let Ok(len @ 1..) = answered {
                        let _ = socket.send_to(&out[..len], from);
                    }
                }
                while let Some((to, len)) = server.poll_keep_alive(now_ns, &mut out) {
                    let _ = socket.send_to(&out[..len], SocketAddr::from(to));
                }
            }
        });
        Self { address, state, stop, thread: Some(thread) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, StandIn> {
        self.state.lock().expect("nobody panics")
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state().tally
    }

    pub(crate) fn connections(&self) -> usize {
        self.state().connections().len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(crate) fn tail(&mut self) -> Tail {
        Tail::draw(&std::array::from_fn(|_| self.roll(256) as u8))
    }
}

/// A player with a socket of its own.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) peer: Option<Peer>,
    pub(crate) socket: UdpSocket,
    pub(crate) server: SocketAddr,
    pub(crate) framing: Framing,
    /// Every datagram that was sent.
    pub(crate) sent: Vec<Vec<u8>>,
    /// Game packets that have come, and bunches among them.
    pub(crate) packets: u64,
    /// Game packets that came twice.
    pub(crate) duplicates: u64,
    pub(crate) reconnected: u64,
    clock: Clock,
    dice: Dice,
    /// How far the player's clock is ahead of ours.
    pub(crate) ahead_ns: u64,
}

impl Player {
    pub(crate) fn new(framing: Framing, client_id: u8, server: SocketAddr) -> Self {
        Self::speaking(framing, BASE, client_id, server)
    }

    /// A player whose engine has another version or build.
    pub(crate) fn speaking(
        framing: Framing,
        base: Base,
        client_id: u8,
        server: SocketAddr,
    ) -> Self {
        let clock = Clock::start();
        let profile = Profile { framing, client_id, base };
        Self {
            client: Client::new(&profile, clock.now_ns()),
            peer: None,
            socket: socket_toward(server),
            server,
            framing,
            sent: Vec::new(),
            packets: 0,
            duplicates: 0,
            reconnected: 0,
            clock,
            dice: Dice(u64::from(client_id)),
            ahead_ns: 0,
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns() + self.ahead_ns
    }

    /// Another port, as if a router had forgotten its mapping.
    pub(crate) fn change_port(&mut self) {
        self.socket = socket_toward(self.server);
    }

    pub(crate) fn send_datagram(&mut self, datagram: &[u8]) {
        let _ = self.socket.send_to(datagram, self.server);
        self.sent.push(datagram.to_vec());
    }

    /// Takes in what has come, and sends what the handshake owes: an answer to each challenge.
    pub(crate) fn step(&mut self) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            assert_eq!(from, self.server);
            self.step_with(&buffer[..len]);
        }
        self.shake_hands();
    }

    /// The next datagram that comes, not taken in.
    pub(crate) fn await_datagram(&mut self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let mut len = None;
        until("a datagram has come", || {
            len = self.socket.recv_from(&mut buffer).ok().map(|(len, _)| len);
            len.is_some()
        });
        buffer[..len.expect("come")].to_vec()
    }

    /// Takes in a datagram, and answers it where it is a challenge.
    pub(crate) fn step_with(&mut self, datagram: &[u8]) {
        self.take(datagram);
        self.shake_hands();
    }

    fn shake_hands(&mut self) {
        let mut buffer = [0; UNREAL_BYTES_MAX];
        let tail = self.dice.tail();
        if let Some(len) = self.client.poll_transmit(self.now_ns(), &tail, &mut buffer) {
            let datagram = buffer[..len].to_vec();
            self.send_datagram(&datagram);
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        match self.client.handle_datagram(self.now_ns(), datagram) {
            Ok(Event::Connected(cookie)) => self.peer = Some(Peer::new(Sender::Client, &cookie)),
            Ok(Event::Reconnected) => self.reconnected += 1,
            Ok(Event::Game) => {
                let (_, reader) = self.framing.read(datagram).expect("read before");
                let Ok(header) = Header::read(reader) else { return };
                let peer = self.peer.as_mut().expect("connected");
                match peer.handle_header(&header, true, |_, _| ()) {
                    Ok(()) => self.packets += 1,
                    Err(DropReason::ReplayTooOld) if header.sequence == peer.latest() => {
                        self.duplicates += 1;
                    }
                    Err(_) => {}
                }
            }
            _ => {}
        }
    }

    pub(crate) fn connect(&mut self) {
        until("the player is connected", || {
            self.step();
            self.peer.is_some()
        });
    }

    /// A packet with some bits in place of bunches; `None` where too many are in flight.
    pub(crate) fn write(&mut self) -> Option<Vec<u8>> {
        let mut payload = [0; 32];
        let mut out = BitWriter::new(&mut payload);
        // No packet info, and a bunch that neither opens nor closes anything.
        out.write(0, 2);
        (0..3).for_each(|_| out.write(self.dice.roll(1 << 30), 60));
        let payload = BitReader::new(&payload).take(182).expect("written");
        let mut buffer = [0; 256];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buffer)?;
        Some(buffer[..len].to_vec())
    }

    /// Sends a packet without any bunch.
    pub(crate) fn send_keep_alive(&mut self) {
        let payload = BitReader::new(&[0]).take(1).expect("a bit");
        let mut buffer = [0; 64];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        if let Some(len) = peer.write(&self.framing, ids, payload, &mut buffer) {
            self.send_datagram(&buffer[..len]);
        }
    }

    /// Plays on until something is the case.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            self.step();
            is_so(self)
        });
    }

    /// Closes the connection, as an engine does when its player leaves.
    pub(crate) fn say_goodbye(&mut self) {
        let mut payload = [0; 16];
        let mut out = BitWriter::new(&mut payload);
        out.flag(false);
        write_close(7, &mut out);
        let bits = out.position();
        let payload = BitReader::new(&payload).take(bits).expect("written");
        let mut buffer = [0; 64];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buffer).expect("few are in flight");
        self.send_datagram(&buffer[..len]);
    }

    pub(crate) fn send(&mut self) {
        if let Some(datagram) = self.write() {
            self.send_datagram(&datagram);
        }
    }

    /// Sends packets until one more than before has come back.
    pub(crate) fn echo(&mut self) {
        let before = self.packets;
        let mut patience = 0;
        until("an echo is back", || {
            if patience % 100 == 0 {
                self.send();
            }
            patience += 1;
            self.step();
            self.packets > before
        });
    }
}
