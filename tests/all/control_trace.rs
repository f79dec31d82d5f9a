//! `ringgate trace` at a daemon: who may ask, what is told, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::cli_probe::PATIENT;
use crate::command::{Ending, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, wait_for};
use crate::gateway_rig::on_both_drivers;
use crate::upgrade_rig::Line;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_io::Choice;
use ringgate_report::text::Append as _;

on_both_drivers!(
    a_players_way_in_is_told_step_by_step,
    a_trace_ends_by_itself_and_says_what_it_has_told,
    players_without_a_client_id_are_told_by_their_address,
);

/// `ringgate trace` that is under way.
pub(crate) struct Tracing {
    child: Ending,
    lines: BufReader<ChildStdout>,
}

impl Tracing {
    /// One that has begun.
    pub(crate) fn start(daemon: &Daemon, words: &[&str]) -> Self {
        let mut command = ringgate(["trace"]);
        command.args(words).arg("--control").arg(daemon.control());
        Self::of(command)
    }

    /// The same by another command line.
    pub(crate) fn of(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("the binary was built");
        let mut child = Ending(child);
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut tracing = Self { child, lines };
        tracing.told("tracing ");
        tracing
    }

    /// The next line that contains these words.
    #[track_caller]
    pub(crate) fn told(&mut self, words: &str) -> String {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            let len = self.lines.read_line(&mut line).expect("text");
            assert!(len > 0, "{words:?} was not told: {before}");
            if line.contains(words) {
                return line;
            }
            before.push_str(&line);
        }
    }

    /// Waits for its end; whether it was one as it should be.
    fn ended(mut self) -> bool {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("text");
        self.child.wait().expect("our child").success()
    }
}

const fn name_of(io: Choice) -> &'static str {
    if matches!(io, Choice::Uring) { "uring" } else { "mmsg" }
}

fn text(io: Choice) -> Text {
    let gateway = format!("workers = 2\npin = false\nio = \"{}\"\n", name_of(io));
    let mut text = Text { gateway, ..Text::new() };
    text.listener.push_str("filter = false\n");
    text
}

fn a_players_way_in_is_told_step_by_step(io: Choice) {
    let daemon = Daemon::start(&text(io));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut tracing = Tracing::start(&daemon, &["--client", "12345", "--for", "1m"]);
    tracing.told("client 12345 has no session now");
    let _other = Player::connected(daemon.listener, 1, KEY_HEX);
    let mut player = Player::connected(daemon.listener, 12345, KEY_HEX);
    let opened = tracing.told("its token opened under the listener's current key; it expires in ");
    assert!(opened.contains(&player.local().to_string()), "{opened}");
    assert!(opened.contains("  eu  ") && opened.contains("  client 12345  "), "{opened}");
    tracing.told("asked to prove the address");
    tracing.told("began at backend arena, slot ");
    player.echo(b"traced");
    tracing.told("datagrams came and went on");
    player.leave();
    tracing.told("the session ended, by_player: the player left");
    // Who is there already is told at once.
    let mut player = Player::connected(daemon.listener, 777, KEY_HEX);
    let mut tracing = Tracing::start(&daemon, &["--client", "0x309", "--for", "1m"]);
    tracing.told("has session ");
    assert!(player.is_connected());
}

fn a_trace_ends_by_itself_and_says_what_it_has_told(io: Choice) {
    let daemon = Daemon::start(&text(io));
    let words = ["--address", "127.0.0.0/8", "--for"];
    let mut tracing = Tracing::start(&daemon, &[&words[..], &["10m"]].concat());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.send_to(&[0; 40], daemon.listener).expect("loopback takes it");
    let line = tracing.told("dropped, request_length: no connection request has this length");
    assert!(line.contains("it has 40 bytes"), "{line}");
    drop(tracing);
    wait_for("its end in the log", || {
        daemon.log().contains("the trace of address 127.0.0.0/8 is over: 1 decisions").then_some(())
    });
    let mut tracing = Tracing::start(&daemon, &[&words[..], &["10ms"]].concat());
    tracing.told(
        "the time is over: 0 decisions, 0 more that did not fit: nothing of address 127.0.0.0/8 has arrived",
    );
    assert!(tracing.ended());
}

/// Where a listener of this name is.
fn listener(daemon: &Daemon, name: &str) -> SocketAddr {
    let status = daemon.status();
    let all = status["listeners"].as_array().expect("a list");
    let found = all.iter().find(|it| it["name"] == name).expect("it is in the config");
    found["addresses"][0].as_str().and_then(|text| text.parse().ok()).expect("an address")
}

fn players_without_a_client_id_are_told_by_their_address(io: Choice) {
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a port");
    echo.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let server = crate::unreal_rig::Server::start(Framing::default(), 2);
    let mut text = text(io);
    let backends =
        [("any", "plain", echo.local_addr().expect("bound")), ("ue", "unreal", server.address)];
    for (name, protocol, address) in backends {
        writeln!(
            text.more,
            "[[listener]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nbind = [\"127.0.0.1:0\"]\n\
                 backends = [\"{name}-1\"]\nmax_sessions = 10\n[[backend]]\nname = \"{name}-1\"\n\
                 link = \"udp\"\naddress = \"{address}\"\nslots = 4"
        );
    }
    let daemon = Daemon::start(&text);
    wait_for("the servers", || {
        let status = daemon.status();
        let backends = status["backends"].as_array().expect("a list").clone();
        let is_up = |it: &&Value| it["name"] != "arena" && it["workers_up"] == 2;
        (backends.iter().filter(is_up).count() == 2).then_some(())
    });
    let mut tracing = Tracing::start(&daemon, &["--address", "127.0.0.1", "--for", "1m"]);

    let player = UdpSocket::bind("127.0.0.1:0").expect("a port");
    player.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    player.connect(listener(&daemon, "any")).expect("loopback");
    let mut buffer = [0; 100];
    player.send(b"hello").expect("loopback takes it");
    let line = tracing.told("passed on to backend any-1: its answer decides");
    assert!(line.contains(&player.local_addr().expect("bound").to_string()), "{line}");
    let (_, from) = echo.recv_from(&mut buffer).expect("the first datagram");
    echo.send_to(b"hi", from).expect("loopback takes it");
    player.recv(&mut buffer).expect("the answer");
    player.send(b"hello").expect("loopback takes it");
    tracing.told("began at backend any-1, slot ");

    let address = listener(&daemon, "ue").to_string();
    let words = ["probe", "--unreal", "--server", &address];
    run(ringgate([&words[..], &PATIENT].concat())).succeeded();
    tracing.told("asked to prove the address (challenge sent)");
    tracing.told("passed on to backend ue-1: its answer decides");
    tracing.told("began at backend ue-1, slot ");
}

#[test]
fn lines_have_the_documented_fields() {
    let mut gateway = Line::start(&text(Choice::Mmsg));
    let listener = gateway.daemon.listener;
    let words = ["--address", "127.0.0.1", "--for", "10m", "--json"];
    let mut tracing = Tracing::start(&gateway.daemon, &words);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.send_to(&[0; 40], listener).expect("loopback takes it");
    let line: Value = serde_json::from_str(&tracing.told("\"dropped\"")).expect("JSON");
    assert_eq!((&line["reason"], &line["bytes"]), (&"request_length".into(), &40.into()));
    assert_eq!(&line["listener"], "eu");
    assert_eq!(line["address"], socket.local_addr().expect("bound").to_string());
    assert!(line["unix_ms"].as_u64() > Some(1_700_000_000_000), "{line}");
    let (code, said) = gateway.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let line: Value = serde_json::from_str(&tracing.told("\"end\"")).expect("JSON");
    assert_eq!((&line["records"], &line["missed"]), (&1.into(), &0.into()));
    // Every field of a line stands in the handbook.
    let handbook = include_str!("../../docs/reference/trace-and-probe.md");
    for name in line.as_object().expect("an object").keys() {
        assert!(handbook.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn only_who_may_see_addresses_may_ask() {
    let daemon = Daemon::start(&Text::new());
    let refused = daemon.get("/trace?client=1&for_ms=10");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.body.contains("shows where players are"), "{}", refused.body);
    assert_eq!(daemon.ask("/trace?client=1&for_ms=10").status, 200);
    for wrong in ["", "client=1&address=::1", "client=x", "address=x", "client=1&for_ms=3600001"] {
        assert_eq!(daemon.ask(&format!("/trace?{wrong}")).status, 400, "{wrong}");
    }
    let log = daemon.log();
    assert!(log.contains("asks for a trace of client 1"), "{log}");
    assert!(log.contains("the trace of client 1 is over"), "{log}");
}

/// Begins one by hand, as any program may.
fn begin(daemon: &Daemon) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(daemon.control()).expect("the control socket listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = "GET /trace?client=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("taken");
    let mut head = [0; 600];
    let len = stream.read(&mut head).expect("an answer");
    (stream, String::from_utf8_lossy(&head[..len]).into_owned())
}

#[test]
fn a_few_go_on_at_once_and_each_ends_with_its_reader() {
    let daemon = Daemon::start(&Text::new());
    let readers: Vec<_> = (0..4).map(|_| begin(&daemon)).collect();
    for (_, head) in &readers {
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.to_lowercase().contains("transfer-encoding: chunked"), "{head}");
    }
    let (_, refused) = begin(&daemon);
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert_eq!(daemon.ask("/status").status, 200, "other pages are served meanwhile");
    drop(readers);
    wait_for("a place", || begin(&daemon).1.starts_with("HTTP/1.1 200").then_some(()));
    wait_for("their ends", || {
        (daemon.log().matches("the trace of client 1 is over").count() >= 4).then_some(())
    });
}

#[test]
fn a_gateway_that_stops_ends_it_with_a_sentence() {
    let mut daemon = Daemon::start(&Text::new());
    let mut tracing = Tracing::start(&daemon, &["--client", "1", "--for", "10m"]);
    tracing.told("no session now");
    daemon.signal("KILL");
    daemon.ended();
    assert!(!tracing.ended());
}

#[test]
fn wrong_words_are_wrong_input() {
    for words in [
        &["--client", "x"][..],
        &["--client", "1", "--address", "::1"],
        &["--address", "192.0.2.0/33"],
        &["--client", "1", "--for", "2h"],
        &[],
    ] {
        let ran = run(ringgate(["trace"].iter().chain(words)));
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
    }
}
