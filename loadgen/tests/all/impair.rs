//! The proxy that makes a network bad: the binary itself, between a client and an echo.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The proxy, until it is dropped.
struct Proxy {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Proxy {
    fn start(to: SocketAddr, settings: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"))
            .args(["impair", "--listen", "127.0.0.1:0", "--to", &to.to_string()])
            .args(["--settings", settings])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says where it listens");
        let address = line.split_whitespace().nth(3).expect(&line).parse().expect(&line);
        Self { child, lines, address }
    }

    /// Types a line, and returns what is said to it.
    fn say(&mut self, line: &str) -> String {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads");
        let mut said = String::new();
        self.lines.read_line(&mut said).expect("it answers");
        said
    }

    /// Ends it as Ctrl-C would: what it says at the end.
    fn end(mut self) -> String {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
        assert!(killed.success());
        assert_eq!(self.child.wait().expect("it ends").code(), Some(130));
        let mut said = String::new();
        self.lines.read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 2000];
    let (len, from) = socket.recv_from(&mut bytes).expect("a datagram");
    (bytes[..len].to_vec(), from)
}

#[test]
fn a_proxy_passes_on_and_back_and_tells_players_apart() {
    let server = socket();
    let proxy = Proxy::start(server.local_addr().expect("bound"), "pktlag=20 PktIncomingLagMin=5");
    let players = [socket(), socket()];
    let mut homes = Vec::new();
    for (number, player) in (0_u8..).zip(&players) {
        player.send_to(&[number; 1400], proxy.address).expect("sent");
        let (bytes, from) = receive(&server);
        assert_eq!(bytes, [number; 1400]);
        homes.push(from);
    }
    assert_ne!(homes[0], homes[1]);
    for (number, home) in (10_u8..).zip(&homes) {
        server.send_to(&[number; 100], home).expect("sent");
    }
    for (number, player) in (10_u8..).zip(&players) {
        assert_eq!(receive(player), (vec![number; 100], proxy.address));
    }
    let said = proxy.end();
    assert!(said.contains("4 datagrams arrived, 4 went on, 0 lost, 4 delayed"), "{said}");
}

#[test]
fn a_proxy_loses_and_doubles_and_counts_that() {
    let server = socket();
    let address = server.local_addr().expect("bound");
    let player = socket();
    let proxy = Proxy::start(address, "PktDup=100 PktLoss=100 PktLossMinSize=200");
    for len in [300, 50, 400, 60] {
        player.send_to(&vec![7; len], proxy.address).expect("sent");
    }
    let lens: Vec<_> = (0..4).map(|_| receive(&server).0.len()).collect();
    assert_eq!(lens, [50, 50, 60, 60]);
    let said = proxy.end();
    assert!(said.contains("4 datagrams arrived, 4 went on, 2 lost"), "{said}");
}

/// A player who is there already has the new network, and what cannot be is no network.
#[test]
fn a_proxy_has_other_settings_while_it_runs() {
    let (server, player) = (socket(), socket());
    let mut proxy = Proxy::start(server.local_addr().expect("bound"), "PktLoss=100");
    assert_eq!(proxy.say("PktDup=100"), "impair: PktDup=100 from now on\n");
    player.send_to(&[2], proxy.address).expect("sent");
    let refused = proxy.say("PktLoss=100 PktLagg=1");
    assert!(refused.contains("PktLagg") && refused.ends_with("stays as it was\n"), "{refused}");
    player.send_to(&[3], proxy.address).expect("sent");
    let heard: Vec<_> = (0..4).map(|_| receive(&server).0).collect();
    assert_eq!(heard, [[2], [2], [3], [3]]);
    assert!(proxy.say("PktLag=60000").contains("PktLag=60000 from now on"));
    player.send_to(&[5], proxy.address).expect("sent");
    assert_eq!(proxy.say(""), "impair: a perfect network from now on\n");
    player.send_to(&[4], proxy.address).expect("sent");
    // It does not wait for the one before, which is a minute late, unless the line came first.
    while receive(&server).0 != [4] {}
    let said = proxy.end();
    assert!(said.contains("4 datagrams arrived, ") && said.contains(" went on, 0 lost"), "{said}");
}
