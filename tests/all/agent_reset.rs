//! The connection of a trunk breaks while both hosts live, as when something on the way forgets it:
//! what players and game processes notice.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_os::clock::{self, Clock};
use socket2::SockRef;

use crate::agent::{Agent, NAMES, Program, agent_file, certificates, echo, gateway};
use crate::control_rig::{KEY_HEX, Player, wait_for};
use crate::folder::Folder;
use crate::own::{own_address, own_ip, own_port};

/// What stands between an agent and a gateway: passes bytes and datagrams on, and can forget.
struct Middle {
    address: SocketAddr,
    lines: Arc<Mutex<Vec<TcpStream>>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// How long a thread looks at one thing before it looks at another.
const LOOK: Duration = Duration::from_millis(2);

impl Middle {
    fn start(to: SocketAddr) -> Self {
        let address = own_address();
        let listener = TcpListener::bind(address).expect("our own");
        let datagrams = UdpSocket::bind(address).expect("our own");
        let (lines, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (of_lines, its_end) = (Arc::clone(&lines), Arc::clone(&ends));
        let accept = move || pass_lines(&listener, to, &of_lines, &its_end);
        let its_end = Arc::clone(&ends);
        let pass = move || pass_datagrams(&datagrams, to, &its_end);
        let threads = vec![std::thread::spawn(accept), std::thread::spawn(pass)];
        Self { address, lines, ends, threads }
    }

    /// Whoever has a connection through here hears that there is none.
    fn forget(&self) {
        for line in self.lines.lock().expect("nobody panics").drain(..) {
            let reset = SockRef::from(&line).set_linger(Some(Duration::ZERO));
            reset.expect("a socket");
            // A reset leaves when the last descriptor is closed: its thread has one, and reads.
            let _ = SockRef::from(&line).set_nonblocking(true);
        }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.forget();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Takes connections, and passes on what comes over each as long as nobody forgets it.
fn pass_lines(
    listener: &TcpListener,
    to: SocketAddr,
    lines: &Mutex<Vec<TcpStream>>,
    ends: &AtomicBool,
) {
    listener.set_nonblocking(true).expect("a socket");
    let mut all: Vec<[TcpStream; 2]> = Vec::new();
    let mut bytes = [0; 16384];
    while !ends.load(Ordering::Relaxed) {
        if let Ok((agent, _)) = listener.accept()
            && let Ok(gateway) = TcpStream::connect(to)
        {
            for line in [&agent, &gateway] {
                line.set_nonblocking(true).expect("a socket");
                line.set_nodelay(true).expect("a socket");
                let second = line.try_clone().expect("descriptors are left");
                lines.lock().expect("nobody panics").push(second);
            }
            all.push([agent, gateway]);
        }
        // Who was forgotten has no second descriptor any more.
        if lines.lock().expect("nobody panics").is_empty() {
            all.clear();
        }
        for [agent, gateway] in &mut all {
            copy(agent, gateway, &mut bytes);
            copy(gateway, agent, &mut bytes);
        }
        clock::sleep(LOOK);
    }
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, bytes: &mut [u8]) {
    match from.peek(bytes) {
        Ok(0) => drop(to.shutdown(std::net::Shutdown::Write)),
        // What there is no room for stays where it is, for the next look.
        Ok(len) => {
            let written = to.write(&bytes[..len]).unwrap_or_default();
            drop(from.read_exact(&mut bytes[..written]));
        }
        Err(_) => {}
    }
}

/// Passes datagrams on, for each of the agent's sockets by one of its own.
fn pass_datagrams(here: &UdpSocket, to: SocketAddr, ends: &AtomicBool) {
    here.set_read_timeout(Some(LOOK)).expect("a timeout");
    let mut sockets: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
    let mut bytes = vec![0; 65536];
    while !ends.load(Ordering::Relaxed) {
        if let Ok((len, from)) = here.recv_from(&mut bytes) {
            let there = sockets.entry(from).or_insert_with(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
                socket.connect(to).expect("loopback");
                socket.set_nonblocking(true).expect("a socket");
                socket
            });
            let _ = there.send(&bytes[..len]);
        }
        for (from, there) in &sockets {
            while let Ok(len) = there.recv(&mut bytes) {
                let _ = here.send_to(&bytes[..len], from);
            }
        }
    }
}

/// A player's numbers, each sent once, and those that have come back.
struct Numbers {
    player: Player,
    sent: u32,
    came: BTreeSet<u32>,
}

impl Numbers {
    /// Sends the next one. Every echo is the first of its number.
    fn turn(&mut self) {
        self.player.play_once(&self.sent.to_be_bytes());
        self.sent += 1;
        for echo in self.player.turn() {
            let number = u32::from_be_bytes(echo.try_into().expect("a number"));
            assert!(self.came.insert(number), "{number} has come twice");
        }
    }

    /// Plays until this many more have come back.
    fn play(&mut self, more: usize) {
        let wanted = self.came.len() + more;
        wait_for("echoes", || {
            self.turn();
            (self.came.len() >= wanted).then_some(())
        });
    }
}

fn play_through(backend: &str, server: impl FnOnce(&Folder) -> Program) {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    let gateway = gateway(&folder, port);
    let middle = Middle::start((own_ip(), port).into());
    agent_file(&folder, "host-7", middle.address.port(), backend);
    let agent = Agent::start(&folder);
    let _server = server(&folder);
    gateway.ready();
    let player = Player::connected(gateway.listener, 7, KEY_HEX);
    let mut numbers = Numbers { player, sent: 0, came: BTreeSet::new() };
    numbers.play(50);
    for times in 1..=2 {
        let begun = || agent.get("/status").json()["gateways"][0]["connected"].as_u64();
        let before = begun().expect("a number");
        let (clock, had) = (Clock::start(), numbers.came.len());
        middle.forget();
        wait_for("another trunk", || {
            numbers.turn();
            begun().filter(|now| *now > before)
        });
        numbers.play(1);
        let (away_ms, lost) =
            (clock.now_ns() / 1_000_000, numbers.sent as usize - numbers.came.len());
        println!(
            "reset {times}: back after {away_ms} ms, {} echoes, {lost} lost so far",
            numbers.came.len() - had
        );
        numbers.play(50);
    }
    assert!(numbers.player.is_connected());
    let page = gateway.get("/metrics");
    let opened = page.sum("ringgate_sessions_opened_total", "");
    assert_eq!(opened, Some(1), "the session goes on");
    agent.shows("ringgate_agent_players{backend=\"arena\"}", 1);
}

#[test]
fn a_game_process_keeps_its_players_when_a_trunks_connection_is_reset() {
    play_through("link = \"bundle\"\n", |folder| {
        let run_dir = folder.join("host");
        echo(&["--socket", &run_dir.display().to_string(), "--name", "arena"])
    });
}

#[test]
fn an_unmodified_server_keeps_its_players_when_a_trunks_connection_is_reset() {
    let address = own_address().to_string();
    let backend = format!("link = \"udp\"\naddress = \"{address}\"\n");
    play_through(&backend, |_| echo(&["--udp", &address]));
}
