//! Any game over UDP through a whole gateway over real sockets: token-routed servers, strangers,
//! long datagrams, and a tool that knows nothing of gateways.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::folder::Folder;
use crate::gateway_rig::{counters, local, on_both_drivers, stop, until};
use crate::own::{own_address, own_ip};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_gate::{
    Allowed, Backend, BackendId, Counters, Ended, Limits, LinkKind, Listener, Phase, Plain,
    Protocol, Route, Sequence, Setup, Token, TokenPlace,
};
use ringgate_io::Choice;
use ringgate_link::backend::{Event, Options};
use ringgate_worker::{Fleet, Plan};
use socket2::{Domain, Socket, Type};

on_both_drivers!(
    two_servers_behind_one_listener_are_told_apart_by_token,
    datagrams_of_every_length_come_back,
    a_jump_ends_a_session_over_real_sockets,
    strangers_take_nothing_from_players,
    a_game_process_on_a_bundle_link_has_plain_players,
    iperf_measures_through_the_gateway,
);

struct Gateway {
    fleet: Option<Fleet>,
    address: SocketAddr,
}

impl Gateway {
    fn start(io: Choice, servers: &[SocketAddr], rules: Plain) -> Self {
        Self::bound(io, local("127.0.0.1:0"), servers, rules)
    }

    fn bound(io: Choice, bind: SocketAddr, servers: &[SocketAddr], rules: Plain) -> Self {
        let links = servers.iter().map(|address| LinkKind::Udp { address: *address }).collect();
        Self::linked(io, bind, (links, None), rules)
    }

    /// With such links to its servers, and a directory for the sockets of those on bundle links.
    fn linked(
        io: Choice,
        bind: SocketAddr,
        (links, run_dir): (Vec<LinkKind>, Option<PathBuf>),
        rules: Plain,
    ) -> Self {
        let servers = links.len();
        let backends = links.into_iter().enumerate().map(|(number, link)| Backend {
            name: format!("server-{number}"),
            link,
            slots: 64,
            grace_ns: 500_000_000,
            retired: false,
            drained: false,
            intake: ringgate_gate::Intake::Anybody,
        });
        let rules = Plain { half_open_ns: HALF_OPEN_NS, ..rules };
        let listener = Listener {
            name: "any".to_owned(),
            route: if rules.token.is_some() { Route::Token } else { Route::LeastPlayers },
            protocol: Protocol::Plain(rules),
            public: Vec::new(),
            backends: (0..servers).map(BackendId::at).collect(),
            sessions_max: 1000,
            follow_port_switch: false,
            limits: Limits::NONE,
            phase: Phase::Serving,
        };
        let plan = Plan {
            setup: Arc::new(Setup::new(vec![listener], backends.collect(), 7)),
            binds: vec![vec![bind]],
            filter: vec![true],
            run_dir,
            expects_udp: false,
            narrows: false,
            card: None,
            spent: Vec::new(),
            workers: 2,
            pin: false,
            io,
            spin: Duration::ZERO,
        };
        let fleet = Fleet::start(&plan).expect("a gateway starts on loopback");
        let address = fleet.addresses()[0][0];
        Self { fleet: Some(fleet), address }
    }

    fn counters(&self) -> Counters {
        counters(self.fleet.as_ref().expect("stopped at the end only"))
    }

    fn player(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(self.address).expect("a route");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        socket
    }

    /// Waits until everything that was let through is answered: whoever has to wait asks again, and
    /// an answer to that which comes while the gateway ends is dropped.
    fn answers_all(&self) {
        until("all is answered", || {
            let counters = self.counters();
            counters.payloads_down == counters.payloads_up
        });
    }

    /// Stops the gateway and checks every worker's balances.
    fn stop(mut self) -> Counters {
        stop(self.fleet.take().expect("stopped once"))
    }
}

/// Longer than any test waits for an answer: who is new stays so until it has come.
const HALF_OPEN_NS: u64 = 120_000_000_000;

/// A game server that answers with its name and what it was sent.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<SocketAddr>>>,
}

impl Server {
    fn start(name: u8) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
        let address = socket.local_addr().expect("bound");
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&socket, name, &until));
        Self { address, stop, thread: Some(thread) }
    }

    /// Ends it. Returns whom it has spoken to.
    fn stop(mut self) -> Vec<SocketAddr> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("joined once").join().expect("it does not panic")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &UdpSocket, name: u8, until: &AtomicBool) -> Vec<SocketAddr> {
    let mut players = Vec::new();
    let mut buffer = [0; 2048];
    while !until.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        if len == 0 {
            continue;
        }
        if !players.contains(&from) {
            players.push(from);
        }
        let mut answer = buffer[..len].to_vec();
        answer[0] = name;
        let _ = socket.send_to(&answer, from);
    }
    players
}

/// Sends until an answer of that length comes.
fn ask(player: &UdpSocket, bytes: &[u8], answer_len: usize) -> Vec<u8> {
    let mut found = Vec::new();
    until("an answer has come", || {
        player.send(bytes).expect("loopback takes it");
        let mut buffer = [0; 2048];
        while let Ok(len) = player.recv(&mut buffer) {
            if len == answer_len {
                found = buffer[..len].to_vec();
            }
        }
        !found.is_empty()
    });
    found
}

fn two_servers_behind_one_listener_are_told_apart_by_token(io: Choice) {
    let servers = [Server::start(b'A'), Server::start(b'B')];
    let known = [([0x11; 8], BackendId(0)), ([0x99; 8], BackendId(1))];
    let token = Token {
        at: TokenPlace::End,
        bytes: 8,
        strip: true,
        backends: Arc::new(known.into_iter().collect()),
    };
    let rules = Plain { token: Some(token), ..Plain::default() };
    let gateway = Gateway::start(io, &servers.each_ref().map(|server| server.address), rules);
    for (token, name) in [(0x11, b'A'), (0x99, b'B'), (0x11, b'A')] {
        let player = gateway.player();
        let datagram = [&b"where am I"[..], &[token; 8]].concat();
        for _ in 0..3 {
            let answer = ask(&player, &datagram, 10);
            assert_eq!((answer[0], &answer[1..]), (name, &b"here am I"[..]));
        }
    }
    let stranger = gateway.player();
    stranger.send(b"where am I\0\0\0\0\0\0\0\0").expect("loopback takes it");
    until("the unknown token is counted", || {
        gateway.counters().drops.of(DropReason::TokenUnknown) == 1
    });
    until("all of them play", || gateway.counters().sessions == 3);
    gateway.answers_all();
    let counters = gateway.stop();
    assert_eq!((counters.sessions_opened, counters.drops.total()), (3, 1), "{counters:#?}");
    let spoken_to = servers.map(Server::stop);
    assert_eq!(spoken_to.map(|players| players.len()), [2, 1], "an address for each player");
}

fn datagrams_of_every_length_come_back(io: Choice) {
    let server = Server::start(b'A');
    let gateway = Gateway::start(io, &[server.address], Plain::default());
    let player = gateway.player();
    ask(&player, b"hello", 5);
    for len in [1, 2, 500, 1200, 1300, 1472] {
        let sent: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let answer = ask(&player, &sent, len);
        assert_eq!(answer[1..], sent[1..]);
    }
    // The socket filter has dropped it.
    player.send(&[0; 1473]).expect("loopback takes it");
    ask(&player, b"still here", 10);
    gateway.answers_all();
    let counters = gateway.stop();
    assert_eq!(counters.drops.total(), 0, "{counters:#?}");
    drop(server);
}

fn a_jump_ends_a_session_over_real_sockets(io: Choice) {
    let server = Server::start(b'A');
    let field = Field { offset: 3, width: Width::Sixteen, order: Order::Big };
    let sequence = Sequence { field, policy: Policy::UNET, both: false };
    let rules = Plain { sequence: Some(sequence), rest_ns: 300_000_000, ..Plain::default() };
    let gateway = Gateway::start(io, &[server.address], rules);
    let player = gateway.player();
    let number = Cell::new(65_500_u16);
    let send = |step: u16| {
        number.set(number.get().wrapping_add(step));
        let [high, low] = number.get().to_be_bytes();
        player.send(&[0, 0, 0, high, low]).expect("loopback takes it");
        let _ = player.recv(&mut [0; 64]);
    };
    let play = |sessions| {
        until("the session is open", || {
            send(1);
            gateway.counters().sessions_opened == sessions
        });
    };
    play(1);
    let mut ends = 0;
    // On a machine that stands still for longer than the rest lasts, nothing is said meanwhile.
    until("something is said while the source rests", || {
        send(2000);
        ends += 1;
        until("the session has ended", || {
            gateway.counters().sessions_closed[Ended::SequenceGap as usize] == ends
        });
        play(ends + 1);
        gateway.counters().drops.of(DropReason::AfterGap) > 0
    });
    gateway.stop();
    drop(server);
}

fn strangers_take_nothing_from_players(io: Choice) {
    let server = Server::start(b'A');
    let rules = Plain { half_open_max: 32, starts_per_block: 0, ..Plain::default() };
    let gateway = Gateway::start(io, &[server.address], rules);
    let player = gateway.player();
    ask(&player, b"hello", 5);
    ask(&player, b"hello", 5);
    for host in 0..1000_u16 {
        let [third, last] = host.to_be_bytes();
        let socket =
            UdpSocket::bind(SocketAddr::from(([127, 9, third, last], 0))).expect("loopback");
        socket.send_to(b"let me in", gateway.address).expect("loopback takes it");
    }
    until("they have made room for each other", || gateway.counters().half_open_evicted > 100);
    ask(&player, b"still here", 10);
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 1, "{counters:#?}");
    drop(server);
}

fn a_game_process_on_a_bundle_link_has_plain_players(io: Choice) {
    let folder = Folder::new();
    let own_uid = std::fs::metadata(folder.path()).expect("the folder is ours").uid();
    let link = LinkKind::Bundle { allow: Allowed { uids: vec![own_uid], gids: Vec::new() } };
    let links = (vec![link], Some(folder.path().to_owned()));
    let gateway = Gateway::linked(io, local("127.0.0.1:0"), links, Plain::default());
    let mut game = Options::new(folder.path(), "server-0").start().expect("a backend");
    let player = gateway.player();
    let sent: Vec<u8> = (0..1472).map(|at| at as u8).collect();
    let (mut slots, mut answers) = (Vec::new(), 0);
    until("an answer to a player who has a slot", || {
        if game.is_up() {
            player.send(&sent).expect("loopback takes it");
        }
        let _ = game.wait(Some(Duration::from_millis(5)));
        let mut events = game.poll().expect("links work");
        while let Some((event, outbox)) = events.next() {
            match event {
                Event::OpenedPlain(opened) => slots.push(opened.slot),
                Event::Payload { session, bytes } => {
                    assert_eq!(bytes, sent);
                    let _ = outbox.send(session, bytes);
                }
                _ => {}
            }
        }
        game.flush();
        let mut buffer = [0; 2048];
        while let Ok(len) = player.recv(&mut buffer) {
            assert_eq!(buffer[..len], sent);
            answers += 1;
        }
        slots.len() == 2 && answers > 1
    });
    assert_eq!(slots, [None, Some(0)], "told at once, and again when it has its slot");
    let counters = gateway.stop();
    assert_eq!(counters.sessions_opened, 1, "{counters:#?}");
}

/// `iperf3` sends and receives datagrams through the gateway; what its two ends agree on over TCP
/// goes past it.
fn iperf_measures_through_the_gateway(io: Choice) {
    if Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("SKIPPED: iperf3 is not installed");
        return;
    }
    // The tool dials one number for TCP and UDP alike, at either end.
    let server_address = own_address();
    let (ip, port) = (own_ip(), server_address.port().to_string());
    let front = own_address();
    // The tool opens its UDP port only for each measurement, milliseconds before the first
    // datagram, and the gateway drops what is for a server that is not there. So a socket holds the
    // port; the kernel gives datagrams to the one that was bound last.
    let holder = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    holder.set_reuse_address(true).expect("a socket option");
    holder.bind(&server_address.into()).expect("our own");
    let mut server = Command::new("iperf3")
        .args(["--server", "--one-off", "--bind", &ip.to_string(), "--port", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("it is installed");
    let rules = Plain { answer_times: 0, ..Plain::default() };
    let gateway = Gateway::bound(io, front, &[server_address], rules);
    let control = TcpListener::bind(front).expect("the gateway has only the UDP port");
    thread::spawn(move || control.incoming().flatten().for_each(|it| pass_on(it, server_address)));
    until("the far end listens", || {
        // Looked up, because a connection would be taken for the measurement's.
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let ip = u32::from_ne_bytes(ip.octets());
        let wanted = format!("{ip:08X}:{:04X} 00000000:0000 0A", server_address.port());
        table.contains(&wanted)
    });
    let output = Command::new("iperf3")
        .args(["--udp", "--client", &ip.to_string(), "--port", &front.port().to_string()])
        .args(["--blockcount", "250", "--bitrate", "2M", "--length", "1000", "--json"])
        .output()
        .expect("it is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let sum = &report["end"]["sum"];
    assert!(sum["packets"].as_u64().is_some_and(|packets| packets > 100), "{text}");
    server.wait().expect("it ends by itself");
    let counters = gateway.stop();
    assert!(counters.payloads_to_links > 100, "{counters:#?}");
}

/// Passes a TCP connection on, both ways, until one end is done.
fn pass_on(near: TcpStream, to: SocketAddr) {
    let far = TcpStream::connect(to).expect("the far end listens");
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    };
    copy(near.try_clone().expect("a descriptor"), far.try_clone().expect("a descriptor"));
    copy(far, near);
}
