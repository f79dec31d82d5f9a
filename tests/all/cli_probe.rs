//! `ringgate probe`: a player for a moment, at gateways that let it in and at what does not.

use std::net::{SocketAddr, UdpSocket};

use ringgate_report::text::Append as _;
use serde_json::Value;

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, PROTOCOL_ID, Player, Text};
use crate::folder::Folder;
use crate::own::own_address;

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENT: [&str; 2] = ["--timeout", "30s"];

/// A probe with a token made on the spot.
fn probe(server: SocketAddr, words: &[&str]) -> Ran {
    let (server, protocol_id) = (server.to_string(), format!("{PROTOCOL_ID:#x}"));
    let mut command = ringgate(["probe", "--key", KEY_HEX, "--protocol-id", &protocol_id]);
    command.args(["--server", &server]).args(words);
    if !words.contains(&"--timeout") {
        command.args(PATIENT);
    }
    run(command)
}

fn serving(text: &Text) -> (Daemon, Game) {
    let daemon = Daemon::start(text);
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    (daemon, game)
}

#[test]
fn a_player_who_is_let_in_says_how_long_each_step_took_and_leaves() {
    let (daemon, _game) = serving(&Text::new());
    let said = probe(daemon.listener, &["--client-id", "7"]).succeeded();
    for words in
        ["request     challenged after ", "response    let in (slot ", "goodbye", "let in after "]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    // It has given its slot back.
    crate::control_rig::wait_for("its end", || {
        (daemon.ask("/sessions").json()["count"] == 0).then_some(())
    });
    let said = probe(daemon.listener, &["--json"]).succeeded();
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&report["schema"], &report["outcome"]), (&1.into(), &"connected".into()));
    let steps: Vec<_> =
        report["steps"].as_array().expect("a list").iter().map(|it| &it["step"]).collect();
    assert_eq!(steps, ["token", "request", "response", "goodbye"]);
    // Every field stands in the handbook.
    let handbook = include_str!("../../docs/reference/trace-and-probe.md");
    for name in report.as_object().expect("an object").keys() {
        assert!(handbook.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_config_is_all_that_a_probe_needs() {
    let deserted = own_address();
    let folder = Folder::new();
    let config = format!(
        "[gateway]\nworkers = 1\npin = false\nrun_dir = \"{}\"\n[[listener]]\nname = \"eu\"\n\
         protocol = \"netcode\"\nbind = [\"{deserted}\"]\nprotocol_id = 7\n\
         keys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\n\
         [[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\nslots = 4\n",
        folder.join("run").display()
    );
    let file = folder.file("gate.toml", config, 0o600);
    let ran = run(ringgate(["probe".as_ref(), "--config".as_ref(), file.as_os_str()]));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("nobody listens there"), "{}", ran.stderr);
    assert!(ran.stdout.contains("refused by the host (ICMP)"), "{}", ran.stdout);
}

#[test]
fn a_denial_and_a_silence_are_told_apart() {
    let (daemon, _game) = serving(&Text { max_sessions: 1, ..Text::new() });
    let _first = Player::connected(daemon.listener, 1, KEY_HEX);
    let ran = probe(daemon.listener, &[]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("request     denied after "), "{}", ran.stdout);
    assert!(ran.stderr.contains("no free slot (max_sessions, slots)"), "{}", ran.stderr);

    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    silent.set_nonblocking(true).expect("an option");
    let ran = probe(silent.local_addr().expect("bound"), &["--timeout", "500ms", "--json"]);
    assert_eq!(ran.code, Some(1));
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(report["outcome"], "silence");
    // How many those are is the machine's business.
    let heard = std::iter::from_fn(|| silent.recv(&mut [0; 2000]).ok()).count() as u64;
    assert!(heard > 0 && report["steps"][1]["sent"] == heard, "{heard} heard: {report}");
}

#[test]
fn a_gateway_on_this_host_is_asked_what_it_has_decided() {
    let bind = format!("\"{}\"", own_address()).leak();
    let (daemon, _game) = serving(&Text { max_sessions: 1, bind, ..Text::new() });
    let (config, server) = (daemon.folder.join("gate.toml"), daemon.listener.to_string());
    let probe = |words: &[&str]| {
        let mut command = ringgate(["probe", "--server", &server, "--config"]);
        run_with(command.arg(&config), words)
    };
    let token = daemon.folder.join("player.token");
    let protocol_id = format!("{PROTOCOL_ID:#x}");
    let mut mint = ringgate(["token", "mint", "--key", KEY_HEX, "--protocol-id", &protocol_id]);
    run_with(mint.args(["--client-id", "5", "--server", &server, "--out"]).arg(&token), &[])
        .succeeded();
    let token = ["--token", token.to_str().expect("our own path")];
    let ran = probe(&[&token[..], &PATIENT].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr, "the token is used up by this: its player needs another one\n");
    let says = |words: &[&str], why: &str| {
        let ran = probe(&[words, &["--timeout", "500ms"]].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    };
    says(&token, "the gateway on this host says: dropped, token_used_elsewhere: ");
    let _first = Player::connected(daemon.listener, 1, KEY_HEX);
    says(&[], "the gateway on this host says: dropped, request_sessions_full: ");
    daemon.signal("STOP");
    says(&[], &format!("the gateway is frozen: process {} holds ", daemon.id()));
    daemon.signal("CONT");
}

#[test]
fn plain_and_unreal_players_hear_what_the_gateway_of_this_host_decides_too() {
    let [plain, unreal] = [own_address(), own_address()];
    let mut text = Text::new();
    for (protocol, at) in [("plain", plain), ("unreal", unreal)] {
        writeln!(
            text.more,
            "[[listener]]\nname = \"{protocol}\"\nprotocol = \"{protocol}\"\nbind = [\"{at}\"]\n\
                 backends = [\"{protocol}\"]\n[[backend]]\nname = \"{protocol}\"\nlink = \"udp\"\n\
                 address = \"{}\"\nslots = 4",
            own_address()
        );
    }
    let daemon = Daemon::start(&text);
    let config = daemon.folder.join("gate.toml");
    for (protocol, at) in [("plain", plain), ("unreal", unreal)] {
        let (named, at) = (format!("--{protocol}"), at.to_string());
        let mut here = ringgate(["probe", &named, "--server", &at, "--timeout", "500ms"]);
        here.env("RINGGATE_CONFIG", &config);
        let mut by_file =
            ringgate(["probe", "--listener", protocol, "--timeout", "500ms", "--config"]);
        by_file.arg(&config);
        for command in [here, by_file] {
            let ran = run(command);
            assert_eq!(ran.code, Some(1), "{}", ran.stdout);
            let why = "the gateway on this host says: dropped, ";
            assert!(ran.stderr.contains(why), "{protocol}: {}", ran.stderr);
        }
    }
    // A netcode player without a config, too.
    let mut command = ringgate(["probe", "--key", KEY_HEX, "--protocol-id"]);
    command.arg(format!("{PROTOCOL_ID:#x}")).arg("--server").arg(daemon.listener.to_string());
    let ran = run({
        command.args(["--timeout", "500ms"]).env("RINGGATE_CONFIG", &config);
        command
    });
    let why = "the gateway on this host says: dropped, ";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn a_game_that_lets_a_player_in_and_says_nothing_is_told_from_a_refusal() {
    let mute = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut text = Text::new();
    let at = mute.local_addr().expect("bound");
    text.backends =
        format!("[[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"{at}\"\nslots = 4\n");
    let daemon = Daemon::start(&text);
    daemon.ready();
    let ran = probe(daemon.listener, &["--payload", "hello", "--timeout", "1s"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("let in, and not answered"), "{}", ran.stdout);
    let why = "the player is in, and the game process has said nothing";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

fn run_with(command: &mut std::process::Command, words: &[&str]) -> Ran {
    let mut own = std::process::Command::new(command.get_program());
    own.args(command.get_args()).args(words);
    run(own)
}

#[test]
fn a_token_of_another_key_or_time_is_seen_before_anybody_answers() {
    let (daemon, _game) = serving(&Text::new());
    let folder = Folder::new();
    let token = folder.join("player.token");
    let (server, protocol_id) = (daemon.listener.to_string(), format!("{PROTOCOL_ID:#x}"));
    let other = "11".repeat(32);
    let mint = ringgate(["token", "mint", "--key", &other, "--protocol-id", &protocol_id]);
    let mut mint = mint;
    mint.args(["--client-id", "5", "--server", &server, "--out"]).arg(&token);
    run(mint).succeeded();
    let mut command = ringgate(["probe", "--key", KEY_HEX, "--timeout", "300ms", "--token"]);
    command.arg(&token);
    let ran = run(command);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("made under another key than --key"), "{}", ran.stderr);
}

#[test]
fn a_plain_listener_is_probed_with_any_payload() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = server.local_addr().expect("bound").to_string();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        let (len, from) = server.recv_from(&mut buffer).expect("a probe");
        server.send_to(b"welcome", from).expect("loopback takes it");
        buffer[..len].to_vec()
    });
    let words = ["probe", "--plain", "--server", &address, "--payload-hex", "00ff10"];
    let ran = run(ringgate([&words[..], &PATIENT].concat()));
    assert!(ran.succeeded().contains("answered with 7 bytes after "));
    assert_eq!(echo.join().expect("no panic"), [0, 255, 16]);
}

#[test]
fn an_unreal_listener_is_probed_up_to_its_acknowledgement() {
    use crate::unreal_rig::{Gateway, Server, Wishes};
    let wishes = Wishes::new(ringgate_io::Choice::Mmsg);
    let server = Server::start(wishes.rules.framing, 2);
    let gateway = Gateway::start(&wishes, &[&server]);
    gateway.await_servers();
    let address = gateway.address().to_string();
    let ran = run(ringgate([&["probe", "--unreal", "--server", &address][..], &PATIENT].concat()));
    let said = ran.succeeded();
    assert!(said.contains("initial     challenged after "), "{said}");
    assert!(said.contains("response    acknowledged with the server's cookie after "), "{said}");
}

#[test]
fn words_that_do_not_fit_together_are_wrong_input() {
    for words in [
        &[][..],
        &["--key", KEY_HEX],
        &["--plain"],
        &["--unreal", "--plain", "--server", "127.0.0.1:1"],
        &["--server", "127.0.0.1"],
        &["--server", "127.0.0.1:1", "--plain", "--payload-hex", "abc"],
        &["--token", "/nowhere"],
    ] {
        let ran = run(ringgate(["probe"].iter().chain(words)));
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
    }
}
