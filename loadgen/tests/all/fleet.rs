//! A whole run over real sockets, against a gateway of a few lines in a thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_core::secret::Key;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_loadgen::measure::gateway::Gateway;
use ringgate_loadgen::measure::tally::Count;
use ringgate_loadgen::players::Protocol;
use ringgate_loadgen::players::arrivals::Arrivals;
use ringgate_loadgen::players::scenario::Scenario;
use ringgate_loadgen::players::tokens::{Mint, Tokens};
use ringgate_loadgen::players::traffic::Traffic;
use ringgate_loadgen::report::record::Record;
use ringgate_loadgen::run::Run;
use ringgate_loadgen::run::engine::Options;

use super::fake_gateway::{FakeGateway, PROTOCOL_ID};

/// A gateway that echoes until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<FakeGateway>>,
}

pub(crate) fn key() -> Key {
    Key::from_bytes([3; 32])
}

impl Server {
    pub(crate) fn start() -> Self {
        // With room for everyone's goodbyes at once, however late this thread is woken.
        let options = UdpOptions { kernel_time: false, ..UdpOptions::default() };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = UdpSocket::from(socket::player(any, &options).expect("loopback").fd);
        socket.set_nonblocking(false).expect("a flag");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let address = socket.local_addr().expect("bound");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut gateway, mut buffer) = (FakeGateway::new(key()), [0; 2048]);
            loop {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    continue;
                };
                if let Some(answer) = gateway.handle(from.into(), &mut buffer[..len]) {
                    socket.send_to(&answer, from).expect("loopback takes it");
                }
            }
            gateway
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// The gateway's memory, when it is over.
    fn end(mut self) -> FakeGateway {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not ended before").join().expect("the gateway did not panic")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn play(server: SocketAddr, threads: u32, arrivals: Arrivals, scenario: &str) -> Record {
    let mint = Mint {
        key: key(),
        protocol_id: PROTOCOL_ID,
        servers: ringgate_core::netcode::ServerAddresses::new(&[server]).expect("an address"),
        timeout_seconds: 20,
        user_data: [0; 256],
    };
    let scenario = Scenario::parse(scenario).expect("valid");
    assert!(
        scenario
            .phases
            .iter()
            .all(|phase| phase.traffic == Traffic { hz: 5.0, ..Traffic::default() })
    );
    let run = Run {
        protocol: Protocol::Netcode(Tokens::Mint(Arc::new(mint))),
        protocol_id: PROTOCOL_ID,
        server,
        arrivals,
        threads,
        options: Options {
            io: ringgate_io::Choice::Auto,
            cores: Vec::new(),
            spin: false,
            interval: Duration::from_millis(250),
            server,
            ports: 3,
            players_at: None,
            own_sockets: false,
            gather: None,
        },
        keep_alive: Duration::from_millis(100),
        allowed_outside: ringgate_loadgen::report::require::Allowance::default(),
        gateway: Gateway::default(),
        patience: Duration::from_secs(5),
        linger: Duration::from_secs(1),
        hlog: None,
        scenario,
    };
    run.execute(|_| {}).expect("the run goes through")
}

#[test]
fn players_of_two_threads_come_play_and_go_over_real_sockets() {
    let server = Server::start();
    let record = play(
        server.address,
        2,
        Arrivals::Ticks,
        "[[phase]]\nkind = \"ramp\"\nseconds = 0.5\nsessions = 40\ntraffic = { hz = 5 }\n\
         [[phase]]\nseconds = 1\ntraffic = { hz = 5 }\n",
    );
    let gateway = server.end();
    let c = |count| record.count(count);
    assert_eq!((c(Count::Joins), c(Count::Connected), c(Count::Left)), (40, 40, 40));
    assert_eq!(c(Count::PayloadsDue), gateway.payloads);
    assert_eq!(
        (c(Count::Echoed), c(Count::Corrupt), c(Count::Misdelivered)),
        (gateway.payloads, 0, 0)
    );
    assert!(gateway.payloads > 0);
    assert_eq!(gateway.goodbyes, 40);
    assert!(record.checks.iter().all(|check| check.holds), "{:?}", record.checks);
    let by_interval: u64 = record.intervals.iter().map(|interval| interval.due).sum();
    assert_eq!(by_interval, gateway.payloads);
    assert!(record.own_cpu.len() == 2 && record.own_resident_bytes > 0);
    let json = serde_json::to_string(&record).expect("JSON");
    assert_eq!(serde_json::from_str::<Record>(&json).expect("back").counters, record.counters);
}

#[test]
fn a_drain_phase_lets_players_go_one_by_one() {
    let server = Server::start();
    let record = play(
        server.address,
        1,
        Arrivals::Ticks,
        "[[phase]]\nseconds = 0.5\nsessions = 20\ntraffic = { hz = 5 }\n\
         [[phase]]\nkind = \"drain\"\nseconds = 1\ntraffic = { hz = 5 }\n",
    );
    assert_eq!(record.count(Count::Left), 20);
    assert_eq!(record.counters["missing"], 0);
    let gateway = server.end();
    assert_eq!((gateway.goodbyes, gateway.session_count()), (20, 0));
}
