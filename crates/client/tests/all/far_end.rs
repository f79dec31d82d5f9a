//! A game server for tests: netcode by the `renetcode` crate, messages by the delivery layer, and a
//! network in front of it that loses and delays. It answers each message with itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use renetcode::{NetcodeServer, ServerAuthentication, ServerConfig, ServerResult};
use ringgate_client::{Channel, SendError};
use ringgate_core::delivery::{End, Options, Refusal, Report};
use ringgate_core::netcode::{self, ConnectToken, ServerAddresses, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_impair::{Fate, Impairments, Path};
use ringgate_os::clock::{self, Clock};

/// Longer than any step takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE_NS: u64 = 60_000_000_000;

pub(crate) const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;

pub(crate) const KEY: [u8; 32] = [7; 32];

/// A server that runs until it is dropped.
pub(crate) struct FarEnd {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    orders: Mutex<Vec<Order>>,
    books: Mutex<Books>,
}

/// What a test has the server do.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Say goodbye to everyone.
    Kick,
    /// Send a payload that nobody writes.
    Lie,
}

/// What the server has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// Every message that came, in order.
    pub(crate) messages: Vec<(Channel, Vec<u8>)>,
    /// What became of answers, which have their number as their token.
    pub(crate) reports: Vec<Report>,
    pub(crate) answers: u64,
    pub(crate) connected: u32,
    pub(crate) left: u32,
}

impl FarEnd {
    pub(crate) fn start(players: usize, impairments: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        let address = socket.local_addr().expect("bound");
        let shared = Arc::<Shared>::default();
        let server = NetcodeServer::new(ServerConfig {
            current_time: Duration::from_nanos(clock::unix_ns()),
            max_clients: players,
            protocol_id: PROTOCOL_ID,
            public_addresses: vec![address],
            authentication: ServerAuthentication::Secure { private_key: KEY },
        });
        let network = Network {
            socket,
            settings: Impairments::parse(impairments).expect("settings"),
            paths: BTreeMap::new(),
            delayed: BinaryHeap::new(),
            delays: 0,
        };
        let mut run = Run {
            server,
            network,
            ends: BTreeMap::new(),
            answers: VecDeque::new(),
            shared: Arc::clone(&shared),
            now_ns: 0,
        };
        let thread = thread::spawn(move || run.until_it_is_over());
        Self { address, shared, thread: Some(thread) }
    }

    pub(crate) fn order(&self, order: Order) {
        self.shared.orders.lock().expect("whole").push(order);
    }

    pub(crate) fn books(&self) -> Books {
        self.shared.books.lock().expect("whole").clone()
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

/// A token for these servers.
pub(crate) fn token(client_id: u64, servers: &[SocketAddr], timeout_seconds: i32) -> ConnectToken {
    let list: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let addresses: ServerAddresses = list.join(",").parse().expect("addresses");
    let spec = TokenSpec { timeout_seconds, ..TokenSpec::new(PROTOCOL_ID, client_id, addresses) };
    let now_unix_s = clock::unix_ns() / 1_000_000_000;
    netcode::mint(&spec, &Key::from_bytes(KEY), now_unix_s).expect("random bytes")
}

struct Run {
    server: NetcodeServer,
    network: Network,
    ends: BTreeMap<u64, End>,
    /// Messages that go back to whom they came from.
    answers: VecDeque<(u64, Channel, Vec<u8>)>,
    shared: Arc<Shared>,
    now_ns: u64,
}

/// When it is due, how many were delayed before it, the player, whether it goes up, and the bytes.
type Delayed = (u64, u64, SocketAddr, bool, Vec<u8>);

struct Network {
    socket: UdpSocket,
    settings: Impairments,
    paths: BTreeMap<SocketAddr, Path>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    delays: u64,
}

impl Network {
    /// Puts a datagram on its way.
    fn put(&mut self, now_ns: u64, player: SocketAddr, is_up: bool, bytes: &[u8]) {
        let seed = u32::from(player.port());
        let path = self.paths.entry(player).or_insert_with(|| Path::new(1, seed));
        let fate = if is_up {
            self.settings.outgoing(path, now_ns, bytes.len())
        } else {
            self.settings.incoming(path, now_ns)
        };
        let (times, later_ns) = match fate {
            Fate::Lose => (0, 0),
            Fate::Delay(later_ns) => (1, later_ns),
            Fate::Twice => (2, 0),
            Fate::Pass | Fate::Hold => (1, 0),
        };
        for _ in 0..times {
            self.delays += 1;
            let delayed = (now_ns + later_ns, self.delays, player, is_up, bytes.to_vec());
            self.delayed.push(Reverse(delayed));
        }
    }

    /// What has come up, after what goes down was sent.
    fn take_due(&mut self, now_ns: u64) -> Option<(SocketAddr, Vec<u8>)> {
        while self.delayed.peek().is_some_and(|Reverse((due_ns, ..))| *due_ns <= now_ns) {
            let Reverse((_, _, player, is_up, bytes)) = self.delayed.pop()?;
            if is_up {
                return Some((player, bytes));
            }
            // A player who has left is nobody's fault.
            let _ = self.socket.send_to(&bytes, player);
        }
        None
    }
}

impl Run {
    fn until_it_is_over(&mut self) {
        let clock = Clock::start();
        let mut buffer = [0; 2048];
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let received = self.network.socket.recv_from(&mut buffer);
            let now_ns = clock.now_ns();
            self.server.update(Duration::from_nanos(now_ns - self.now_ns));
            self.now_ns = now_ns;
            if let Ok((len, from)) = received {
                self.network.put(now_ns, from, true, &buffer[..len]);
            }
            while let Some((from, mut bytes)) = self.network.take_due(now_ns) {
                self.handle_datagram(from, &mut bytes);
            }
            let orders = std::mem::take(&mut *self.shared.orders.lock().expect("whole"));
            for order in orders {
                self.obey(order);
            }
            self.answer();
            self.send_all();
        }
    }

    fn handle_datagram(&mut self, from: SocketAddr, bytes: &mut [u8]) {
        let now_ns = self.now_ns;
        let mut answers = Vec::new();
        match self.server.process_packet(from, bytes) {
            ServerResult::Payload { client_id, payload } => {
                let end = self.ends.get_mut(&client_id).expect("it was made");
                let taken = end.handle_packet(now_ns, payload, |channel, message| {
                    answers.push((client_id, channel, message.to_vec()));
                });
                assert!(!matches!(taken, Err(Refusal::Fault(_))), "{taken:?}");
            }
            ServerResult::PacketToSend { addr, payload } => {
                self.network.put(now_ns, addr, false, payload);
            }
            ServerResult::ClientConnected { client_id, addr, payload, .. } => {
                self.network.put(now_ns, addr, false, payload);
                self.ends.insert(client_id, End::new(&Options::default(), now_ns));
                self.shared.books.lock().expect("whole").connected += 1;
            }
            ServerResult::ClientDisconnected { client_id, .. } => {
                self.ends.remove(&client_id);
                self.shared.books.lock().expect("whole").left += 1;
            }
            ServerResult::None => {}
        }
        let mut books = self.shared.books.lock().expect("whole");
        for (client_id, channel, message) in answers {
            books.messages.push((channel, message.clone()));
            self.answers.push_back((client_id, channel, message));
        }
    }

    /// Answers in order; what a reliable channel has no room for waits until there is some.
    fn answer(&mut self) {
        let mut books = self.shared.books.lock().expect("whole");
        while let Some((client_id, channel, message)) = self.answers.front() {
            let end = self.ends.get_mut(client_id);
            match end.map(|end| end.send(*channel, message, Some(books.answers))) {
                Some(Ok(())) => books.answers += 1,
                Some(Err(SendError::Full)) if matches!(channel, Channel::Reliable(_)) => return,
                _ => {}
            }
            self.answers.pop_front();
        }
    }

    fn obey(&mut self, order: Order) {
        for client_id in self.server.clients_id() {
            match order {
                Order::Kick => {
                    let addr = self.server.client_addr(client_id).expect("it is in");
                    if let ServerResult::ClientDisconnected { payload: Some(payload), .. } =
                        self.server.disconnect(client_id)
                    {
                        self.network.put(self.now_ns, addr, false, payload);
                    }
                    self.ends.remove(&client_id);
                }
                Order::Lie => {
                    let lie = self.server.generate_payload_packet(client_id, &[0xff; 7]);
                    let (addr, packet) = lie.expect("it is in");
                    self.network.put(self.now_ns, addr, false, packet);
                }
            }
        }
    }

    fn send_all(&mut self) {
        let mut packet = [0; 1200];
        for client_id in self.server.clients_id() {
            if let Some(end) = self.ends.get_mut(&client_id) {
                while let Some(len) = end.poll_transmit(self.now_ns, &mut packet) {
                    let sealed = self.server.generate_payload_packet(client_id, &packet[..len]);
                    let (addr, sealed) = sealed.expect("it is in");
                    self.network.put(self.now_ns, addr, false, sealed);
                }
                let mut books = self.shared.books.lock().expect("whole");
                books.reports.extend(std::iter::from_fn(|| end.poll_report()));
            }
            match self.server.update_client(client_id) {
                ServerResult::PacketToSend { addr, payload } => {
                    self.network.put(self.now_ns, addr, false, payload);
                }
                ServerResult::ClientDisconnected { client_id, .. } => {
                    self.ends.remove(&client_id);
                    self.shared.books.lock().expect("whole").left += 1;
                }
                _ => {}
            }
        }
    }
}
