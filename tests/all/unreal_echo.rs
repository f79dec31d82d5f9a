//! `ringgate echo --unreal` as its users meet it: processes, real sockets, and what it says at the
//! end.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use ringgate_bots::unreal::peer::Peer;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::{Client, Event, Profile, State};
use ringgate_core::proto::unreal::handshake::{Base, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_os::clock::Clock;

use crate::command::{Ending, ringgate, run};
use crate::control_rig::{PATIENCE, wait_for};

/// Stand-in servers in a process of their own. Killed when dropped.
pub(crate) struct Echo {
    child: Ending,
    stdout: BufReader<ChildStdout>,
    pub(crate) servers: Vec<SocketAddr>,
}

impl Echo {
    /// That many servers on free ports.
    pub(crate) fn start(servers: usize, more: &[&str]) -> Self {
        let addresses = vec!["127.0.0.1:0"; servers].join(",");
        let mut command = ringgate(["echo", "--unreal", &addresses]);
        command.args(more).stdout(Stdio::piped());
        let mut child = Ending(command.spawn().expect("the binary was built"));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut address = || {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("text");
            let address = line.strip_prefix("echo: unreal on ").expect("an address").trim();
            address.parse().expect("an address")
        };
        let servers = (0..servers).map(|_| address()).collect();
        Self { child, stdout, servers }
    }

    /// Asks it to end, and reads what it has seen: numbers by name.
    pub(crate) fn end(mut self) -> HashMap<String, u64> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill is there");
        assert!(sent.success());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("our child").success());
        let row = |line: &str| {
            let (name, count) = line.split_once(' ').expect("a name and a number");
            (name.to_owned(), count.parse().expect("a number"))
        };
        text.lines().map(row).collect()
    }
}

/// One engine's client with a socket.
struct Player {
    socket: UdpSocket,
    clock: Clock,
    /// What the player's clock shows more than time has passed.
    ahead_ns: u64,
    framing: Framing,
    client: Client,
    peer: Option<Peer>,
    sent: Vec<Vec<u8>>,
    /// The numbers that came back.
    heard: Vec<u64>,
}

impl Player {
    fn new(server: SocketAddr, framing: Framing, base: Base) -> Self {
        let profile = Profile { framing, client_id: 2, base };
        Self {
            socket: socket(server),
            clock: Clock::start(),
            ahead_ns: 0,
            framing,
            client: Client::new(&profile, 0),
            peer: None,
            sent: Vec::new(),
            heard: Vec::new(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns() + self.ahead_ns
    }

    /// Says what it has to say to the handshake, and takes in one datagram if one is there.
    fn turn(&mut self) {
        let mut buf = [0; 2048];
        let tail = Tail::draw(&[0x5a; 17]);
        if let Some(len) = self.client.poll_transmit(self.now_ns(), &tail, &mut buf) {
            self.socket.send(&buf[..len]).expect("loopback takes it");
        }
        let Ok(len) = self.socket.recv(&mut buf) else { return };
        match self.client.handle_datagram(self.now_ns(), &buf[..len]) {
            Ok(Event::Connected(cookie)) => self.peer = Some(Peer::new(Sender::Client, &cookie)),
            Ok(Event::Game) => self.handle_game(&buf[..len]),
            _ => {}
        }
    }

    fn handle_game(&mut self, datagram: &[u8]) {
        let (_, reader) = self.framing.read(datagram).expect("the client has read it");
        let header = Header::read(reader).expect("a header");
        let peer = self.peer.as_mut().expect("connected");
        peer.handle_header(&header, true, |_, _| ()).expect("in order on loopback");
        let mut payload = header.payload();
        assert_eq!(payload.flag(), Some(false), "no packet info");
        if payload.remaining() > 0 {
            self.heard.push(payload.read(32).expect("what was sent"));
        }
    }

    fn say(&mut self, number: u64) {
        let mut bytes = [0; 16];
        let mut out = BitWriter::new(&mut bytes);
        out.flag(false);
        out.write(number, 32);
        let len = out.position();
        let payload = BitReader::new(&bytes).take(len).expect("just written");
        let mut packet = [0; 128];
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, self.client.ids(), payload, &mut packet);
        self.sent.push(packet[..len.expect("few are in flight")].to_vec());
        self.repeat();
    }

    /// Sends its last packet again.
    fn repeat(&self) {
        self.socket.send(self.sent.last().expect("said something")).expect("loopback takes it");
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        wait_for(what, || {
            self.turn();
            is_so(self).then_some(())
        });
    }
}

fn socket(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.connect(server).expect("a route");
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
    socket
}

const BASE: Base =
    Base { version_min: 3, version: 4, sent_count: 0, network_version: 7, network_features: 0 };

/// A client obeys a request to restart at the earliest ten seconds after its last handshake.
const LATER_NS: u64 = 11 * PATIENCE.as_nanos() as u64;

#[test]
fn players_of_several_servers_are_echoed_and_the_judge_counts() {
    let framing =
        Framing { magic: Magic::from_text("11011101").expect("binary"), ..Framing::default() };
    let echo = Echo::start(3, &["--magic", "11011101", "--network-version", "7"]);
    let mut players: Vec<_> =
        echo.servers.iter().map(|server| Player::new(*server, framing, BASE)).collect();
    for player in &mut players {
        player.until("the handshake", |player| player.peer.is_some());
        for number in 0..20 {
            player.say(number);
            player.until("the echo", |player| player.heard.len() as u64 == number + 1);
        }
    }
    assert_eq!(players[0].heard, (0..20).collect::<Vec<_>>());
    // A gateway that did this would be found out.
    players[1].repeat();
    players[1].repeat();
    // A player whose port changes goes on after a restart.
    let mover = &mut players[2];
    mover.socket = socket(echo.servers[2]);
    mover.ahead_ns = LATER_NS;
    mover.say(98);
    mover.until("the request", |player| player.client.state() != State::Connected);
    mover.until("the restart", |player| player.client.state() == State::Connected);
    mover.say(99);
    mover.until("the echo", |player| player.heard.last() == Some(&99));
    assert!(!mover.heard.contains(&98));

    let seen = echo.end();
    assert_eq!((seen["connections"], seen["players"], seen["restarts"]), (3, 3, 1));
    assert_eq!((seen["packets"], seen["echoes"]), (61, 61));
    assert_eq!((seen["duplicates"], seen["refused_replay_duplicate"]), (2, 2));
    assert_eq!((seen["late"], seen["implausible"], seen["kernel_drops"]), (0, 0, 0));
    assert_eq!((seen["restart_requests"], seen["acks"], seen["challenges"]), (1, 4, 4));
}

#[test]
fn the_original_layout_is_served_and_the_silent_are_forgotten() {
    let framing = Framing { layout: Layout::Original, ..Framing::default() };
    let echo = Echo::start(1, &["--versions", "0", "--idle-timeout", "200ms"]);
    // A machine that stands still for longer than the timeout has the player forgotten before it
    // has said anything: another player comes then.
    let mut forgotten = 0;
    let player = loop {
        let mut player = Player::new(echo.servers[0], framing, Base::default());
        player.until("the handshake", |player| player.peer.is_some());
        player.ahead_ns = LATER_NS;
        player.say(5);
        player.until("the echo, or a request to restart", |player| {
            player.heard == [5] || player.client.state() != State::Connected
        });
        forgotten += 1;
        if player.heard == [5] {
            break player;
        }
    };
    // A packet that has been there before keeps no player alive. Once forgotten, the player is
    // asked to restart.
    let mut buf = [0; 2048];
    wait_for("being forgotten", || {
        player.repeat();
        player.socket.recv(&mut buf).is_ok_and(|len| len == 1).then_some(())
    });
    let seen = echo.end();
    assert_eq!((seen["idle"], seen["players"]), (forgotten, 0));
}

#[test]
fn every_version_is_spoken_on_both_bases() {
    for (options, layout, version) in [
        (&["--versions", "1"][..], Layout::Early, 1),
        (&["--versions", "1,2"], Layout::Early, 2),
        (&["--versions", "2", "--short-base"], Layout::EarlyShort, 2),
        (&["--versions", "3", "--short-base"], Layout::VersionedShort, 3),
        (&["--versions", "3"], Layout::Versioned, 3),
    ] {
        let framing = Framing { layout, ..Framing::default() };
        let echo = Echo::start(1, options);
        let base = Base { version_min: version, version, ..BASE };
        let mut player = Player::new(echo.servers[0], framing, base);
        player.until("the handshake", |player| player.peer.is_some());
        player.say(5);
        player.until("the echo", |player| player.heard == [5]);
        assert_eq!(echo.end()["connections"], 1, "{options:?}");
    }
}

#[test]
fn an_old_client_is_told_and_wrong_options_are_one_sentence() {
    let echo = Echo::start(1, &["--versions", "4"]);
    let old = Base { version: 3, ..BASE };
    let mut player = Player::new(echo.servers[0], Framing::default(), old);
    player.until("the answer", |player| player.client.state() == State::WrongVersion);
    assert_eq!(echo.end()["upgrades"], 1);

    let refused = |more: &[&str]| {
        let mut command = ringgate(["echo", "--unreal", "127.0.0.1:0"]);
        command.args(more);
        run(command).refused()
    };
    assert!(refused(&["--magic", "12"]).starts_with("--magic: at most 32"));
    assert!(refused(&["--idle-timeout", "0s"]).starts_with("--idle-timeout: found"));
    assert!(refused(&["--network-version", "0x1ffffffff"]).contains("32 bits"));
    assert!(refused(&["--versions", "0,4"]).starts_with("--versions: 0 alone"));
    assert!(refused(&["--versions", "2,3"]).starts_with("--versions: 0 alone"));
    let other = run(ringgate(["echo", "--udp", "127.0.0.1:0", "--magic", "1"]));
    assert_eq!(other.code, Some(2));
}
