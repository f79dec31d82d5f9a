//! Ten situations in which players cannot play, each made with a real gateway, and the one command
//! that says which it is: the first rows of docs/oncall.md, from which the sentences are read.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, PROTOCOL_ID, Player, Text};
use crate::control_trace::Tracing;
use crate::folder::Folder;
use crate::netns::Pair;
use crate::oncall::row;
use ringgate_core::netcode::{self, ConnectToken, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_os::clock;

/// A gateway that players could play at.
fn serving(text: &Text) -> (Daemon, Game) {
    let daemon = Daemon::start(text);
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    (daemon, game)
}

/// A player who keeps asking, until it is dropped.
struct Asking(Option<std::thread::JoinHandle<()>>, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Asking {
    fn start(mut player: Player) -> Self {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let ask = move || {
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                player.turn();
            }
        };
        Self(Some(std::thread::spawn(ask)), stop)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.1.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.0.take().map(std::thread::JoinHandle::join);
    }
}

/// A token's file, made so many seconds from now and good for so many.
fn token(folder: &Folder, server: SocketAddr, made_s: i64, lasts_s: u64) -> std::path::PathBuf {
    let servers = server.to_string().parse().expect("an address");
    let spec =
        TokenSpec { lifetime_seconds: Some(lasts_s), ..TokenSpec::new(PROTOCOL_ID, 5, servers) };
    let made = clock::unix_seconds().saturating_add_signed(made_s);
    let key = Key::from_hex(KEY_HEX).expect("hex");
    let token = netcode::mint(&spec, &key, made).expect("random bytes");
    folder.file("player.token", token.to_bytes(), 0o600)
}

/// A row's probe with this token says what the page says; everything that it says.
fn probe(id: &str, daemon: &Daemon, file: &Path) -> String {
    row(id).asked_at(daemon, &[("FILE", &file.display().to_string())])
}

#[test]
fn a_dead_backend() {
    let daemon = Daemon::start(&Text::new());
    row("dead-backend").asked_at(&daemon, &[]);
}

#[test]
fn a_wrong_key() {
    let (daemon, _game) = serving(&Text::new());
    let row = row("one-token-service");
    let mut tracing = row.tracing(&daemon, "127.0.0.1");
    let _asking = Asking::start(Player::new(daemon.listener, 1, &"11".repeat(32)));
    tracing.told(row.sentence());
}

#[test]
fn an_expired_token() {
    let (daemon, _game) = serving(&Text::new());
    let folder = Folder::new();
    let said = probe("expired", &daemon, &token(&folder, daemon.listener, -160, 30));
    assert!(
        said.contains("for 30 s: if it was made just now, the token service's clock is behind"),
        "{said}"
    );
    // And from the other side, with the same number.
    let mut tracing = Tracing::start(&daemon, &["--address", "127.0.0.1"]);
    let mut command = ringgate(["probe", "--timeout", "500ms", "--token"]);
    command.arg(token(&folder, daemon.listener, -160, 30));
    run(command);
    tracing.told("dropped, request_expired: the token has expired: it expired 1");
}

#[test]
fn clocks_that_differ() {
    let (daemon, _game) = serving(&Text::new());
    probe("clocks", &daemon, &token(&Folder::new(), daemon.listener, 3600, 30));
}

#[test]
fn a_full_listener() {
    let (daemon, _game) = serving(&Text { max_sessions: 1, ..Text::new() });
    let _first = Player::connected(daemon.listener, 1, KEY_HEX);
    let row = row("full");
    let mut tracing = row.tracing(&daemon, "2");
    let _asking = Asking::start(Player::new(daemon.listener, 2, KEY_HEX));
    tracing.told("told that it may not come in");
    tracing.told(row.sentence());
}

#[test]
fn a_banned_player() {
    let (daemon, _game) = serving(&Text::new());
    let mut command = ringgate(["deny", "127.0.0.0/8", "--control"]);
    command.arg(daemon.control());
    assert_eq!(run(command).code, Some(0));
    let row = row("banned");
    let mut tracing = row.tracing(&daemon, "127.0.0.1");
    let _asking = Asking::start(Player::new(daemon.listener, 1, KEY_HEX));
    tracing.told(row.sentence());
}

#[test]
fn a_wrong_protocol_id() {
    let (daemon, _game) = serving(&Text::new());
    let (folder, server) = (Folder::new(), daemon.listener.to_string());
    let file = folder.join("player.token");
    let mut command = ringgate(["token", "mint", "--key", KEY_HEX, "--protocol-id", "7"]);
    command.args(["--client-id", "5", "--server", &server, "--out"]).arg(&file);
    run(command).succeeded();
    let config = daemon.folder.join("gate.toml").display().to_string();
    let fill = [("TOKEN", &*file.display().to_string()), ("FILE", &*config)];
    row("one-version").asked_at(&daemon, &fill);
    // The socket filter drops its requests. What it drops while another test fills a socket is
    // taken for that (see `ringgate_os::overflows`), so the player asks until it is told.
    let mut tracing = Tracing::start(&daemon, &["--address", "127.0.0.1"]);
    let bytes = std::fs::read(&file).expect("a token");
    let token = ConnectToken::decode(&bytes).expect("a token");
    let _asking = Asking::start(Player::holding([127, 0, 0, 1], &token));
    tracing.told("or requests for another protocol id or version");
}

#[test]
fn a_wrong_protocol_id_without_a_filter() {
    let mut text = Text::new();
    text.listener.push_str("filter = false\n");
    let (daemon, _game) = serving(&text);
    let mut tracing = Tracing::start(&daemon, &["--address", "127.0.0.1"]);
    let (server, words) = (daemon.listener.to_string(), ["--protocol-id", "7"]);
    let mut command = ringgate(["probe", "--key", KEY_HEX, "--timeout", "500ms"]);
    command.args(words).args(["--server", &server]);
    assert_eq!(run(command).code, Some(1));
    tracing.told("it says 0x7, and the listener has 0x1122334455667788");
}

/// Whether there is what drops packets; said aloud where there is not.
pub(crate) fn has_nft() -> bool {
    let is_there = Command::new("nft").arg("--version").output().is_ok();
    let required = std::env::var_os("REQUIRE_NFT").is_some_and(|it| it == "1");
    assert!(is_there || !required, "REQUIRE_NFT=1, and the program `nft` is not there");
    if !is_there {
        eprintln!("SKIPPED: a filter takes the program `nft`");
    }
    is_there
}

#[test]
fn a_filter_on_the_way() {
    let Some(pair) = Pair::new() else { return };
    if !has_nft() {
        return;
    }
    let folder = Folder::new();
    let config = format!(
        "[gateway]\nworkers = 1\npin = false\nrun_dir = \"{}\"\n[[listener]]\nname = \"eu\"\n\
         protocol = \"netcode\"\nbind = [\"10.98.0.1:40000\"]\nprotocol_id = 7\n\
         keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n\
         [[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:7001\"\nslots = 4\n",
        folder.join("run").display()
    );
    let file = folder.file("gate.toml", config, 0o600);
    let inside = |namespace: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        command
    };
    let mut game = inside(&pair.gateway);
    game.arg(env!("CARGO_BIN_EXE_ringgate")).args(["echo", "--udp", "127.0.0.1:7001"]);
    let mut game = game.stdout(Stdio::piped()).spawn().expect("`ip` is there");
    let mut lines = BufReader::new(game.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("echo: "))));
    let mut gateway = inside(&pair.gateway);
    gateway.arg(env!("CARGO_BIN_EXE_ringgate")).args(["run", "--config"]).arg(&file);
    let mut gateway = gateway.stdout(Stdio::piped()).spawn().expect("`ip` is there");
    let mut lines = BufReader::new(gateway.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("ready: "))));
    let row = row("filter");
    let probe = |patience: &[&str]| {
        let mut probe = inside(&pair.player);
        probe.arg(env!("CARGO_BIN_EXE_ringgate"));
        probe.args(row.words(&[("FILE", &file.display().to_string())])).args(patience);
        run(probe).stdout
    };
    let before = probe(&["--timeout", "30s"]);
    for rule in [
        "add table inet way",
        "add chain inet way in { type filter hook input priority 0 ; }",
        "add rule inet way in udp dport 40000 drop",
    ] {
        let done = inside(&pair.gateway).arg("nft").arg(rule).status().expect("`nft` is there");
        assert!(done.success(), "{rule}");
    }
    let after = probe(&[]);
    for process in [&mut gateway, &mut game] {
        process.kill().and_then(|()| process.wait()).expect("ours");
    }
    assert!(before.contains("let in after"), "{before}");
    assert!(after.contains(row.sentence()), "{after}");
}

/// The config of a daemon that does not start.
fn config(folder: &Folder, gateway: &str, bind: &str) -> std::path::PathBuf {
    let text = format!(
        "[gateway]\nworkers = 1\n{gateway}run_dir = \"run\"\n[[listener]]\nname = \"eu\"\n\
         protocol = \"netcode\"\nbind = [\"{bind}\"]\nprotocol_id = 7\n\
         keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n\
         [[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\nslots = 4\n"
    );
    folder.file("gate.toml", text, 0o600)
}

#[test]
fn a_port_in_use() {
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = stranger.local_addr().expect("bound").to_string();
    let folder = Folder::new();
    let file = config(&folder, "", &address);
    let said = row("port-in-use").asked(&file, &[("FILE", &file.display().to_string())]);
    let holder = format!("UDP {address}: process {} (", std::process::id());
    assert!(said.contains(&holder), "{said}");
}

#[test]
fn no_io_uring() {
    let folder = Folder::new();
    let file = config(&folder, "io = \"uring\"\n", "127.0.0.1:0");
    let fill = [("FILE", &*file.display().to_string())];
    crate::cli_doctor::without_io_uring(|| row("no-io-uring").asked(&file, &fill));
}
