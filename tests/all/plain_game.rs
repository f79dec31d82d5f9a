//! A real game behind the plain front: two unmodified Teeworlds servers, as Debian packs them,
//! behind one listener that routes by token.
//!
//! The player here says what the game's own client says, from the first datagram to the map, and
//! the servers say of it what they say of any player. Where the server is not installed the tests
//! skip aloud; with `REQUIRE_GAMES=1` they fail instead.
//!
//! The wire is Teeworlds 0.7's: seven bytes of header (flags and acknowledgement, chunks, the
//! peer's token), then chunks of messages. What a server compresses is counted and not read.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use ringgate_io::Choice;

use crate::command::{Ending, ringgate};
use crate::folder::Folder;
use crate::gateway_rig::{on_both_drivers, socket_toward, until};
use crate::own::own_address;

on_both_drivers!(two_servers_behind_one_listener_are_played);

/// The server's binary. Games are in no user's path.
fn server_binary() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.push("/usr/games".into());
    let found = folders.into_iter().map(|folder| folder.join("teeworlds-server"));
    let found = found.into_iter().find(|binary| binary.is_file());
    if found.is_none() {
        let why = "teeworlds-server is not there (Debian has it in a package of that name)";
        let required = std::env::var_os("REQUIRE_GAMES").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_GAMES=1, but {why}");
        eprintln!("SKIPPED: {why}");
    }
    found
}

/// A program with all that it has said so far; it ends with its owner.
struct Program {
    _child: Ending,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut child = Ending(child);
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { _child: child, lines, said: Vec::new() }
    }

    /// The line with these words, if it has been said.
    fn said(&mut self, words: &str) -> Option<&str> {
        self.said.extend(self.lines.try_iter());
        self.said.iter().find(|line| line.contains(words)).map(String::as_str)
    }

    /// Waits for a line with these words, and returns what follows them.
    fn wait_for(&mut self, words: &str) -> String {
        until(words, || self.said(words).is_some());
        let line = self.said(words).unwrap_or_default();
        line.split_once(words).map_or("", |(_, rest)| rest).trim().to_owned()
    }
}

/// A game server of this name.
fn start_server(binary: &PathBuf, name: &str, folder: &Folder) -> (Program, SocketAddr) {
    let home = folder.join(name);
    std::fs::create_dir(&home).expect("a temporary folder");
    let address = own_address();
    let mut server = Program::start(Command::new(binary).env("HOME", home).args([
        &format!("sv_name {name}"),
        &format!("sv_port {}", address.port()),
        &format!("bindaddr {}", address.ip()),
        "sv_register 0",
        "sv_map dm1",
        "console_output_level 1",
    ]));
    server.wait_for("server name is");
    (server, address)
}

/// A player as the game's own client is one.
struct Player {
    socket: UdpSocket,
    gateway: SocketAddr,
    /// What routes it, at the end of each datagram.
    routing: [u8; 8],
    own_token: [u8; 4],
    server_token: [u8; 4],
    /// Messages of the server's that arrived in order.
    acknowledged: u16,
    sequence: u16,
    /// Of the player's, as the server says.
    confirmed: u16,
    /// What the server has said in clear.
    messages: Vec<Vec<u8>>,
    compressed: usize,
}

const CONTROL: u8 = 1;
const COMPRESSED: u8 = 4;
const WITHOUT_CONNECTION: u8 = 8;

const ASK_CONNECT: u8 = 1;
const ANSWER_ACCEPT: u8 = 2;
const ASK_CLOSE: u8 = 4;
const TOKEN: u8 = 5;

const SYSTEM_INFO: u8 = 1;
const SYSTEM_MAP_CHANGE: u8 = 2;
const SYSTEM_READY: u8 = 18;
const SYSTEM_ENTER_GAME: u8 = 19;
const GAME_START_INFO: u8 = 27;

/// The protocol's version, which server and client compare.
const NET_VERSION: &[u8] = b"0.7 802f1be60a05665f\0";

impl Player {
    fn new(gateway: SocketAddr, routing: [u8; 8], own_token: [u8; 4]) -> Self {
        Self {
            socket: socket_toward(gateway),
            gateway,
            routing,
            own_token,
            server_token: [0xff; 4],
            acknowledged: 0,
            sequence: 0,
            confirmed: 0,
            messages: Vec::new(),
            compressed: 0,
        }
    }

    fn send(&self, parts: &[&[u8]]) {
        let datagram = [&parts.concat()[..], &self.routing].concat();
        let sent = self.socket.send_to(&datagram, self.gateway).expect("loopback takes it");
        assert_eq!(sent, datagram.len());
    }

    fn header(&self, flags: u8, chunks: u8) -> [u8; 7] {
        let [high, low] = self.acknowledged.to_be_bytes();
        let [a, b, c, d] = self.server_token;
        [flags << 2 | high, low, chunks, a, b, c, d]
    }

    /// Requests have room for as much as they may provoke.
    fn ask(&self, what: u8) {
        let room = [0; 508];
        self.send(&[&self.header(CONTROL, 0), &[what], &self.own_token, &room]);
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut bytes).ok()?;
        assert_eq!(from, self.gateway);
        Some(bytes[..len].to_vec())
    }

    /// Asks again and again until an answer is taken.
    fn until_answered(
        &mut self,
        what: &str,
        ask: impl Fn(&Self),
        mut take: impl FnMut(&mut Self, &[u8]) -> bool,
    ) {
        let mut tries = 0;
        until(what, || {
            if tries % 250 == 0 {
                ask(self);
            }
            tries += 1;
            while let Some(datagram) = self.receive() {
                if take(self, &datagram) {
                    return true;
                }
            }
            false
        });
    }

    /// The handshake's first half: the server learns that the player is where it says it is.
    fn fetch_token(&mut self) {
        self.until_answered(
            "the server's token",
            |player| player.ask(TOKEN),
            |player, datagram| {
                let is_it = datagram.len() == 12
                    && datagram[0] >> 2 == CONTROL
                    && datagram[3..7] == player.own_token
                    && datagram[7] == TOKEN;
                if is_it {
                    player.server_token.copy_from_slice(&datagram[8..12]);
                }
                is_it
            },
        );
    }

    /// The server's name, its map, and how many players it has.
    fn fetch_info(&mut self) -> (String, String, u8) {
        let mut info = None;
        self.until_answered(
            "the server's info",
            |player| {
                let first = [WITHOUT_CONNECTION << 2 | 1];
                let body = b"\xff\xff\xff\xffgie3\x07";
                player.send(&[&first, &player.server_token, &player.own_token, body]);
            },
            |_, datagram| {
                info = read_info(datagram);
                info.is_some()
            },
        );
        info.expect("it was answered")
    }

    fn connect(&mut self) {
        self.until_answered(
            "the connection",
            |player| player.ask(ASK_CONNECT),
            |_, datagram| datagram[0] >> 2 == CONTROL && datagram[7] == ANSWER_ACCEPT,
        );
    }

    /// Says something that has to arrive, until it has.
    fn say(&mut self, message: &[u8]) {
        self.sequence += 1;
        let sequence = self.sequence;
        let [high, low] = sequence.to_be_bytes();
        let len = message.len();
        let chunk = [1 << 6 | (len >> 6) as u8, high << 6 | (len & 0x3f) as u8, low];
        self.until_answered(
            "the server's acknowledgement",
            |player| player.send(&[&player.header(0, 1), &chunk, message]),
            |player, datagram| {
                player.hear(datagram);
                player.confirmed == sequence
            },
        );
    }

    /// Takes in what a server says on a connection.
    fn hear(&mut self, datagram: &[u8]) {
        let flags = datagram[0] >> 2;
        if flags & (CONTROL | WITHOUT_CONNECTION) != 0 {
            return;
        }
        assert_eq!(datagram[3..7], self.own_token, "nobody else's");
        self.confirmed = u16::from(datagram[0] & 3) << 8 | u16::from(datagram[1]);
        if flags & COMPRESSED != 0 {
            self.compressed += 1;
            return;
        }
        let mut rest = &datagram[7..];
        for _ in 0..datagram[2] {
            let is_vital = rest[0] >> 6 & 1 == 1;
            let len = usize::from(rest[0] & 0x3f) << 6 | usize::from(rest[1] & 0x3f);
            let body = if is_vital { 3 } else { 2 };
            if is_vital {
                let sequence = u16::from(rest[1] & 0xc0) << 2 | u16::from(rest[2]);
                if sequence == self.acknowledged + 1 {
                    self.acknowledged = sequence;
                    self.messages.push(rest[body..body + len].to_vec());
                }
            }
            rest = &rest[body + len..];
        }
    }

    fn leave(&self) {
        self.send(&[&self.header(CONTROL, 0), &[ASK_CLOSE], b"bye\0"]);
    }
}

/// The answer to a question about the server: version, name, host, map and kind of game; then small
/// numbers, the third of which counts players.
fn read_info(datagram: &[u8]) -> Option<(String, String, u8)> {
    if datagram.first()? >> 2 != WITHOUT_CONNECTION {
        return None;
    }
    let body = datagram.get(9..)?.strip_prefix(b"\xff\xff\xff\xffinf3\x07")?;
    let mut words = body.splitn(6, |byte| *byte == 0);
    let text = |bytes: Option<&[u8]>| Some(String::from_utf8_lossy(bytes?).into_owned());
    let name = text(words.nth(1))?;
    let map = text(words.nth(1))?;
    Some((name, map, *words.nth(1)?.get(2)?))
}

fn system(message: u8) -> u8 {
    message << 1 | 1
}

/// What a client says of its player: name, clan, no country, the look.
fn start_info(name: &str) -> Vec<u8> {
    let parts: [&[u8]; 6] =
        [b"standard\0", b"\0", b"\0", b"standard\0", b"standard\0", b"standard\0"];
    [&[GAME_START_INFO << 1][..], name.as_bytes(), b"\0\0\x40", &parts.concat(), &[0; 12]].concat()
}

/// Plays from the first datagram to the map, and stays for some snapshots.
fn play(player: &mut Player, server: &mut Program, name: &str, server_name: &str) {
    player.fetch_token();
    let info = player.fetch_info();
    assert_eq!(info, (server_name.to_owned(), "dm1".to_owned(), 0));
    player.connect();
    player.say(&[&[system(SYSTEM_INFO)], NET_VERSION, b"\0\x85\x1c"].concat());
    let map = [&[system(SYSTEM_MAP_CHANGE)][..], b"dm1\0"].concat();
    until("the map's name", || {
        while let Some(datagram) = player.receive() {
            player.hear(&datagram);
        }
        player.messages.iter().any(|message| message.starts_with(&map))
    });
    player.say(&[system(SYSTEM_READY)]);
    player.say(&start_info(name));
    player.say(&[system(SYSTEM_ENTER_GAME)]);
    let entered = server.wait_for("player has entered the game.");
    assert!(entered.contains("addr=127."), "an address of the gateway's: {entered}");
    let port = player.socket.local_addr().expect("bound").port();
    assert!(!entered.ends_with(&format!(":{port}")), "not the player's own: {entered}");
    let before = player.compressed;
    until("ten snapshots", || {
        while let Some(datagram) = player.receive() {
            player.hear(&datagram);
        }
        player.compressed >= before + 10
    });
}

fn two_servers_behind_one_listener_are_played(io: Choice) {
    let Some(binary) = server_binary() else { return };
    let folder = Folder::new();
    let (mut alpha, alpha_address) = start_server(&binary, "alpha", &folder);
    let (mut beta, beta_address) = start_server(&binary, "beta", &folder);
    let driver = if io == Choice::Mmsg { "mmsg" } else { "uring" };
    let config = format!(
        r#"[gateway]
workers = 2
pin = false
io = "{driver}"
run_dir = "run"
state_dir = "state"
drain_timeout = "1s"
[[listener]]
name = "games"
protocol = "plain"
bind = ["127.0.0.1:0"]
backends = ["alpha", "beta"]
route = "token"
token = {{ at = "end", bytes = 8 }}
tokens = [{{ hex = "1122334455667788", backend = "alpha" }}, {{ file = "beta.tokens" }}]
[[backend]]
name = "alpha"
link = "udp"
address = "{alpha_address}"
slots = 8
[[backend]]
name = "beta"
link = "udp"
address = "{beta_address}"
slots = 8
"#
    );
    folder.file("beta.tokens", "99aabbccddeeff00 beta\n", 0o600);
    let file = folder.file("gate.toml", config, 0o600);
    let mut gateway =
        Program::start(&mut ringgate(["run".as_ref(), "--config".as_ref(), file.as_os_str()]));
    let address: SocketAddr =
        gateway.wait_for("listener games on ").parse().expect("it says where it listens");
    gateway.wait_for("ready:");
    let tokens = [0x1122_3344_5566_7788_u64, 0x99aa_bbcc_ddee_ff00].map(u64::to_be_bytes);
    let [mut ann, mut bob] = [(tokens[0], *b"annn"), (tokens[1], *b"bobb")]
        .map(|(token, own)| Player::new(address, token, own));
    play(&mut ann, &mut alpha, "ann", "alpha");
    play(&mut bob, &mut beta, "bob", "beta");
    ann.leave();
    bob.leave();
    for (server, name, other) in [(&mut alpha, "ann", "bob"), (&mut beta, "bob", "ann")] {
        server.wait_for("client dropped.");
        assert!(server.said(&format!("team_join player='0:{name}'")).is_some());
        assert!(server.said(&format!(":{other}'")).is_none(), "{other} was elsewhere");
    }
}
