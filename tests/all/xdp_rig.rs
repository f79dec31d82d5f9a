//! A daemon that serves past the kernel's sockets, in a network namespace; the game servers beside
//! it, and the players behind the wire.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use ringgate_os::process::effective_uid;
use ringgate_xdp::frame::Mac;

use crate::command::{Ending, Ran, ringgate, run, upgrade_at};
use crate::control_rig::{Daemon, KEY_HEX, PROTOCOL_ID, Text, wait_for};
use crate::netns::Pair;
use crate::upgrade_rig::kill;

pub(crate) const NETCODE_PORT: u16 = 7000;
pub(crate) const PLAIN_PORT: u16 = 7001;
pub(crate) const UNREAL_PORT: u16 = 7002;

pub(crate) const GATEWAY: &str = "10.98.0.1";
pub(crate) const GATEWAY_V6: &str = "[fd98::1]";

/// The ends of the first wire.
pub(crate) const GATEWAYS_MAC: Mac = [2, 0, 0, 0, 0, 0x11];
pub(crate) const PLAYERS_MAC: Mac = [2, 0, 0, 0, 0, 0x12];

/// All three protocols by the first wire.
pub(crate) const BY_CARD: &str = "io = \"xdp\"\nxdp = { interface = \"wire0\" }\n";

/// A gateway in a namespace, with its game servers and a place for players.
pub(crate) struct Host {
    games: Vec<Ending>,
    pub(crate) pair: Pair,
    pub(crate) daemon: Daemon,
    /// Processes that have come after the daemon's first.
    heirs: Vec<u32>,
}

/// What was counted of frames, over all workers of a daemon with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) taken: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) by_socket: u64,
    pub(crate) dropped: u64,
    pub(crate) wrong_checksums: u64,
}

/// The config of such a daemon, one listener for each protocol. `by_card` is in all of them.
pub(crate) fn text(pair: &Pair, by_card: &str) -> Text {
    let mut text = Text::new();
    text.namespace = Some(pair.gateway.clone());
    text.has_admin = false;
    text.bind = "\"10.98.0.1:7000\", \"[fd98::1]:7000\"";
    text.listener =
        format!("keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n{by_card}");
    "[[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 16\n\
         [[backend]]\nname = \"any-1\"\nlink = \"udp\"\naddress = \"127.0.0.1:9001\"\nslots = 16\n\
         [[backend]]\nname = \"ue-1\"\nlink = \"udp\"\naddress = \"127.0.0.1:9002\"\nslots = 16\n"
        .clone_into(&mut text.backends);
    text.more = format!(
        "[[listener]]\nname = \"any\"\nprotocol = \"plain\"\nbind = [\"0.0.0.0:{PLAIN_PORT}\", \"[::]:{PLAIN_PORT}\"]\n\
         backends = [\"any-1\"]\nmax_sessions = 100\n{by_card}\
         [[listener]]\nname = \"ue\"\nprotocol = \"unreal\"\nbind = [\"0.0.0.0:{UNREAL_PORT}\", \"[::]:{UNREAL_PORT}\"]\n\
         backends = [\"ue-1\"]\nmax_sessions = 100\n{by_card}"
    );
    text
}

/// A pair of namespaces. `None`, said aloud, where there are no rights for them; `REQUIRE_XDP=1`
/// takes that for a failure.
pub(crate) fn pair() -> Option<Pair> {
    let pair = if effective_uid() == 0 { Pair::new() } else { None };
    let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|value| value == "1");
    assert!(pair.is_some() || !is_required, "REQUIRE_XDP=1, but there are no namespaces");
    if pair.is_none() {
        eprintln!("SKIPPED: frames take root and network namespaces");
    }
    let pair = pair?;
    for (namespace, mac) in [(&pair.gateway, GATEWAYS_MAC), (&pair.player, PLAYERS_MAC)] {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        Host::set(namespace, &format!("link set wire0 address {mac}"));
    }
    Some(pair)
}

impl Host {
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| {})
    }

    /// The same with another config.
    pub(crate) fn start_with(change: impl FnOnce(&mut Text)) -> Option<Self> {
        let pair = pair()?;
        let mut text = text(&pair, BY_CARD);
        change(&mut text);
        let daemon = Daemon::start(&text);
        Some(Self::around(pair, daemon))
    }

    /// Game servers for a daemon that runs.
    pub(crate) fn around(pair: Pair, daemon: Daemon) -> Self {
        let run_dir = daemon.run_dir().display().to_string();
        let mut host = Self::beside(pair, daemon);
        host.start_game(&["echo", "--socket", &run_dir, "--name", "arena"]);
        host
    }

    /// The same where game processes on bundle links are elsewhere.
    pub(crate) fn beside(pair: Pair, daemon: Daemon) -> Self {
        let mut host = Self { pair, daemon, games: Vec::new(), heirs: Vec::new() };
        host.start_game(&["echo", "--udp", "127.0.0.1:9001"]);
        host.start_game(&["echo", "--unreal", "127.0.0.1:9002"]);
        host
    }

    fn start_game(&mut self, words: &[&str]) {
        let mut game = within(&self.pair.gateway, words);
        let game = game.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.games.push(Ending(game.expect("`ip` is there")));
    }

    /// `ringgate upgrade`: its exit code and what it says.
    pub(crate) fn upgrade(&mut self) -> (Option<i32>, String) {
        let ran = upgrade_at(&self.daemon.control());
        if ran.code == Some(0) {
            let status = self.daemon.status();
            self.heirs.push(status["pid"].as_u64().expect("a number") as u32);
        }
        (ran.code, ran.stdout + &ran.stderr)
    }

    /// A player tries once. Whoever is answered has succeeded.
    pub(crate) fn probe(&self, words: &[&str]) -> Ran {
        self.probe_for("2s", words)
    }

    /// The same for so long.
    pub(crate) fn probe_for(&self, time: &str, words: &[&str]) -> Ran {
        let words = [&["probe", "--timeout", time], words].concat();
        run(within(&self.pair.player, &words))
    }

    /// A player of the plain listener at one of its addresses, until it is answered: game servers
    /// may not be up yet, neighbours not known.
    pub(crate) fn plays_plain(&self, ip: &str) {
        let server = format!("{ip}:{PLAIN_PORT}");
        self.plays(&["--plain", "--server", &server, "--payload", "over the wire"]);
    }

    pub(crate) fn plays_netcode(&self, ip: &str) {
        let (server, id) = (format!("{ip}:{NETCODE_PORT}"), PROTOCOL_ID.to_string());
        let words = ["--key", KEY_HEX, "--protocol-id", &id, "--server", &server];
        self.plays(&[&words[..], &["--payload", "over the wire"]].concat());
    }

    pub(crate) fn plays_unreal(&self, ip: &str) {
        let server = format!("{ip}:{UNREAL_PORT}");
        self.plays(&["--unreal", "--server", &server]);
    }

    fn plays(&self, words: &[&str]) {
        let mut last = String::new();
        for _ in 0..30 {
            let ran = self.probe(words);
            if ran.code == Some(0) {
                return;
            }
            last = ran.stdout + &ran.stderr;
        }
        panic!("{words:?}: {last}\n{}", self.daemon.log());
    }

    /// What was counted up to now.
    pub(crate) fn frames(&self) -> Frames {
        frames(&self.daemon)
    }

    /// Waits until what was counted is as it should be.
    pub(crate) fn wait_for_frames(&self, what: &str, is_so: impl Fn(&Frames) -> bool) -> Frames {
        wait_for(what, || Some(self.frames()).filter(&is_so))
    }

    /// Plays until answers leave in frames, which takes a neighbour that is known.
    pub(crate) fn warm_up(&self) -> Frames {
        let before = self.frames();
        wait_for("answers in frames", || {
            self.plays_plain(GATEWAY);
            Some(self.frames()).filter(|now| now.sent > before.sent)
        })
    }

    /// Changes the network of the gateway's side or of the player's.
    pub(crate) fn set(namespace: &str, words: &str) {
        let args: Vec<_> = ["-n", namespace].into_iter().chain(words.split(' ')).collect();
        let done = Command::new("ip").args(args).output().expect("it was there a moment ago");
        assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The same where a kernel may know no such thing. Returns whether it was done.
    pub(crate) fn may_set(namespace: &str, words: &str) -> bool {
        let args: Vec<_> = ["-n", namespace].into_iter().chain(words.split(' ')).collect();
        let done = Command::new("ip").args(args).output().expect("it was there a moment ago");
        done.status.success()
    }

    /// What the gateway's page says of its interface.
    pub(crate) fn shown(&self) -> serde_json::Value {
        self.daemon.ask("/status").json()["xdp"].clone()
    }
}

/// A socket that can send to a server, which never blocks.
pub(crate) fn unbound(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).expect("our namespace");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// What a daemon has counted.
pub(crate) fn frames(daemon: &Daemon) -> Frames {
    let page = daemon.ask("/metrics");
    let of = |name: &str| {
        let series = format!("ringgate_frames_{name}_total{{worker=\"0\"}}");
        page.value(&series).unwrap_or_else(|| panic!("no {series}"))
    };
    let dropped = |why: &str| {
        let series = format!("ringgate_drops_total{{worker=\"0\",reason=\"frame_{why}\"}}");
        page.value(&series).unwrap_or_else(|| panic!("no {series}"))
    };
    let reasons = ["malformed", "source", "checksum", "ring_full", "no_memory", "unfit"];
    Frames {
        taken: of("taken"),
        received: of("received"),
        sent: of("sent"),
        by_socket: of("left_by_socket"),
        dropped: reasons.map(dropped).iter().sum(),
        wrong_checksums: dropped("checksum"),
    }
}

/// A command of ours in a namespace.
pub(crate) fn within(namespace: &str, words: &[&str]) -> Command {
    let ours = ringgate(words);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(ours.get_program()).args(ours.get_args());
    command
}

impl Drop for Host {
    fn drop(&mut self) {
        self.heirs.iter().for_each(|pid| kill(*pid));
    }
}
