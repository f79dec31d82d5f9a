//! The admin address and the control socket under people who should not have their way: connections
//! that hold places, names that are not the gateway's, and changes without the right to make them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use ringgate_report::text::Append as _;

use crate::command::{ringgate, run};
use crate::control_listeners::descriptors;
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, request, wait_for};

/// A connection on which this was sent.
fn holding(daemon: &Daemon, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.admin).expect("it listens");
    // A connection that had to make room is one whose peer has closed it.
    let _ = stream.write_all(sent);
    stream
}

/// More connections than there are places: who cannot come in before others have had their time
/// would find a few places taken then.
const CROWD: usize = 400;
const MANY: usize = 40;

/// Health is answered beside connections that hold most places, and say this meanwhile. A machine
/// that stands still until they have had their time shows nothing, so others come then.
fn health_is_answered_beside(daemon: &Daemon, sent: &[u8], meanwhile: &[u8]) {
    let idle = descriptors(daemon);
    wait_for("health while places are held", || {
        let mut held: Vec<_> = (0..CROWD).map(|_| holding(daemon, sent)).collect();
        let mut is_beside = false;
        for _ in 0..5 {
            for stream in &mut held {
                let _ = stream.write_all(meanwhile);
            }
            assert_eq!(daemon.get("/healthz").status, 200);
            is_beside |= descriptors(daemon) >= idle + MANY;
        }
        is_beside.then_some(())
    });
}

#[test]
fn silent_connections_do_not_keep_health_from_answering() {
    health_is_answered_beside(&Daemon::start(&Text::new()), b"", b"");
}

#[test]
fn slow_senders_do_not_keep_health_from_answering() {
    let daemon = Daemon::start(&Text::new());
    health_is_answered_beside(&daemon, b"GET /metrics HTTP/1.1\r\nX: ", b"x");
}

#[test]
fn slow_readers_do_not_keep_health_from_answering() {
    let mut text = Text::new();
    // Hundreds of backends make pages that no socket buffer holds.
    for number in 0..500 {
        let name = format!("spare-of-a-rather-long-name-{number}");
        text.backends.push_str("[[backend]]\nlink = \"bundle\"\nslots = 4\n");
        writeln!(text.backends, "name = \"{name}\"");
    }
    let daemon = Daemon::start(&text);
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.admin);
    health_is_answered_beside(&daemon, ask.as_bytes(), b"");
}

#[test]
fn a_connection_that_asks_for_nothing_is_closed_soon() {
    let daemon = Daemon::start(&Text::new());
    let sent = [&b""[..], b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"];
    // All at once: each takes the daemon's whole patience.
    for (sent, mut stream) in sent.map(|sent| (sent, holding(&daemon, sent))) {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        if let Err(why) = stream.read_to_end(&mut Vec::new()) {
            assert_eq!(why.kind(), std::io::ErrorKind::ConnectionReset, "after {sent:?}");
        }
    }
}

/// A request whose head is exactly this.
fn raw(daemon: &Daemon, head: &str) -> (u16, String) {
    let mut stream = holding(daemon, format!("{head}\r\n\r\n").as_bytes());
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    (status, answer)
}

#[test]
fn names_that_are_not_the_gateways_are_refused() {
    let mut text = Text::new();
    text.admin.push_str("hosts = [\"gate.example\"]\n");
    let daemon = Daemon::start(&text);
    for host in [
        "127.0.0.1",
        "127.0.0.1:9464",
        "10.1.2.3",
        "[::1]:80",
        "[::1]",
        "localhost",
        "LOCALHOST:1",
        "gate.example",
        "Gate.Example:9464",
    ] {
        let (status, answer) = raw(&daemon, &format!("GET /status HTTP/1.1\r\nHost: {host}"));
        assert_eq!(status, 200, "{host}: {answer}");
    }
    for host in [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "gate.example.evil.example",
        "127.1",
        "0x7f000001",
        "127.0.0.1:9464:1",
        "[::1",
        "user@localhost",
        "",
    ] {
        let (status, answer) = raw(&daemon, &format!("GET /status HTTP/1.1\r\nHost: {host}"));
        assert!(status == 421 || status == 400, "{host}: {answer}");
        assert!(!answer.contains("uptime_s"), "{answer}");
    }
    let (status, answer) = raw(&daemon, "GET /status HTTP/1.1\r\nHost: evil.example");
    assert!(status == 421 && answer.contains("[admin] hosts"), "{answer}");
    assert_eq!(raw(&daemon, "GET /status HTTP/1.1").0, 400, "HTTP/1.1 names its host");
    let two = "GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example";
    assert_eq!(raw(&daemon, two).0, 400);
    // A name in the request's first line goes before the one in the header.
    let absolute = "GET http://evil.example/status HTTP/1.1\r\nHost: localhost";
    assert_eq!(raw(&daemon, absolute).0, 421);
    assert_eq!(raw(&daemon, "GET /healthz HTTP/1.0").0, 200, "HTTP/1.0 need not");
}

#[test]
fn tcp_without_a_token_only_reads() {
    let daemon = Daemon::start(&Text::new());
    for path in ["/drain", "/reload", "/deny?client=1", "/allow?client=1"] {
        for headers in ["", "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"] {
            let page = request(daemon.admin, "POST", path, headers).expect("an answer");
            assert_eq!(page.status, 403, "{}", page.body);
            assert!(page.body.contains("control.sock") && page.body.contains("token"));
        }
    }
    assert_eq!(daemon.status()["state"], "serving");
    assert_eq!(daemon.status()["config"]["reloads"], 0);
}

#[test]
fn tcp_with_the_token_may_change() {
    const TOKEN: &str = "a-token-of-the-operators";
    let mut text = Text::new();
    text.admin.push_str("token = { file = \"admin.token\" }\n");
    let mut daemon = Daemon::start_with(&text, |_, folder| {
        folder.file("admin.token", format!("{TOKEN}\n"), 0o600);
    });
    for wrong in [
        "",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer a-token-of-the-operator\r\n",
        "Authorization: Bearer a-token-of-the-operatorS\r\n",
        "Authorization: Basic a-token-of-the-operators\r\n",
    ] {
        let page = request(daemon.admin, "POST", "/reload", wrong).expect("an answer");
        assert_eq!(page.status, 401, "{wrong}");
        assert!(page.head.to_ascii_lowercase().contains("www-authenticate: bearer"));
    }
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    let page = request(daemon.admin, "POST", "/reload", &header).expect("an answer");
    assert_eq!(page.status, 200, "{}", page.body);

    // A token that a page may change things with starts no program.
    let page = request(daemon.admin, "POST", "/upgrade", &header).expect("an answer");
    assert_eq!((page.status, page.body.contains("through the control socket")), (403, true));

    // The command line takes it from a file of its own.
    let admin = daemon.admin.to_string();
    let file = daemon.folder.join("admin.token").display().to_string();
    let ran = run(ringgate(["reload", "--admin", &admin]));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("401"), "{}", ran.stderr);
    let reloaded = run(ringgate(["reload", "--admin", &admin, "--token", &file])).succeeded();
    assert_eq!(reloaded, "reloaded; nothing has changed\n");

    // A token is changed without a restart, and the old one is worth nothing then.
    daemon.folder.file("admin.token", "another-token-of-the-operators", 0o600);
    let page = request(daemon.admin, "POST", "/reload", &header).expect("an answer");
    assert!(page.body.contains("admin.token"), "{}", page.body);
    let page = request(daemon.admin, "POST", "/drain", &header).expect("an answer");
    assert_eq!(page.status, 401);
    let header = "Authorization: Bearer another-token-of-the-operators\r\n";
    let page = request(daemon.admin, "POST", "/drain", header).expect("an answer");
    assert_eq!(page.status, 200);
    assert_eq!(daemon.ended(), Some(0));
    assert!(!daemon.log().contains("token-of-the"), "{}", daemon.log());
}

#[test]
fn no_page_shows_a_players_address() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    let port = player.local().port().to_string();
    for path in ["/healthz", "/readyz", "/status", "/metrics", "/", "/sessions", "/denied"] {
        let page = daemon.get(path);
        assert!(!page.body.contains(&format!(":{port}")), "{path}: {}", page.body);
    }
}

/// What would do something on a path, or show somebody.
const ACTING: &[(&str, &str)] = &[
    ("/drain", "?deadline_ms=1"),
    ("/drain", "?backend=arena"),
    ("/kick", "?client=1"),
    ("/deny", "?client=1&prefix=127.0.0.0/8"),
    ("/allow", "?client=9"),
    ("/sessions", "?address=127.0.0.0/8"),
    ("/denied", "?limit=10"),
    ("/readyz", "?listener=eu"),
];

/// The gateway lists its paths where it has none, from what it serves by.
#[test]
fn on_no_path_a_stranger_changes_anything_or_sees_a_player() {
    const TOKEN: &str = "a-token-of-the-operators";
    for has_token in [false, true] {
        let mut text = Text::new();
        if has_token {
            text.admin.push_str("token = { file = \"admin.token\" }\n");
        }
        let daemon = Daemon::start_with(&text, |_, folder| {
            folder.file("admin.token", TOKEN, 0o600);
        });
        let _game = Game::start(&daemon, "arena");
        daemon.ready();
        let mut player = Player::at([127, 0, 0, 77], daemon.listener, 1, KEY_HEX);
        player.connect();
        daemon.post("/deny?client=9");
        let list = daemon.get("/no-such-path").body;
        let words = list.split([' ', ',', '\n']);
        let paths: Vec<_> = words.filter(|word| word.starts_with('/')).collect();
        assert!(paths.len() > 10 && ACTING.iter().all(|(path, _)| paths.contains(path)), "{list}");
        let plain = paths.iter().map(|path| (*path, ""));
        for (path, query) in plain.chain(ACTING.iter().copied()) {
            let path = format!("{path}{query}");
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
                for headers in ["", "Authorization: Bearer a-token-of-another\r\n"] {
                    let page = request(daemon.admin, method, &path, headers).expect("an answer");
                    let is_read = matches!(method, "GET" | "HEAD") && page.status == 200;
                    assert!(is_read || page.status >= 400, "{method} {path}: {}", page.status);
                    assert!(!page.body.contains("127.0.0.77"), "{method} {path}: {}", page.body);
                }
            }
        }
        player.echo(b"still here");
        let status = daemon.status();
        let backend = &status["backends"][0];
        assert_eq!(
            (status["state"].as_str(), &backend["drained"]),
            (Some("serving"), &false.into())
        );
        assert_eq!(
            (status["denied"]["clients"].as_u64(), &backend["players"]),
            (Some(1), &1.into())
        );
        assert_eq!(status["config"]["reloads"], 0);
        assert_eq!(daemon.log().matches("event=\"asked\"").count(), 1, "ours: {}", daemon.log());
    }
}

#[test]
fn the_control_socket_is_closed_to_others_and_takes_changes() {
    let mut daemon = Daemon::start(&Text::new());
    let path = daemon.control();
    let meta = std::fs::symlink_metadata(&path).expect("it is there");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let control = path.display().to_string();
    let config = daemon.folder.join("gate.toml").display().to_string();
    for place in [["--control", &control], ["--config", &config]] {
        let status = run(ringgate([&["status"][..], &place].concat())).succeeded();
        assert!(status.contains(", serving"), "{status}");
        let top = run(ringgate([&["top", "--once", "--interval", "10ms"][..], &place].concat()));
        assert!(top.succeeded().contains("0 sessions"));
        let reloaded = run(ringgate([&["reload"][..], &place].concat())).succeeded();
        assert_eq!(reloaded, "reloaded; nothing has changed\n");
    }
    let drained = run(ringgate(["drain", "--wait", "--config", &config])).succeeded();
    assert!(drained.starts_with("draining: 0 sessions"), "{drained}");
    assert_eq!(daemon.ended(), Some(0));
    assert!(!path.exists(), "it is removed at the end");
    let ran = run(ringgate(["status", "--config", &config]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with(&format!("ringgate: no gateway answers at {control}: ")));
}

#[test]
fn a_config_with_mistakes_still_tells_where_the_socket_is() {
    let daemon = Daemon::start(&Text::new());
    let mut broken = Text::new();
    broken.backends = broken.backends.replace("slots = 4", "slots = none");
    daemon.rewrite(&broken);
    let config = daemon.folder.join("gate.toml").display().to_string();
    let ran = run(ringgate(["status", "--config", &config]));
    assert_eq!(ran.code, Some(2), "what is no TOML may hide where the socket is: {}", ran.stdout);
    // One that is TOML, and whose keys this process cannot read.
    broken.backends = Text::new().backends.replace("slots = 4", "slots = \"none\"");
    broken.listener =
        broken.listener.replace(&format!("hex = \"{KEY_HEX}\""), "credential = \"x\"");
    daemon.rewrite(&broken);
    let status = run(ringgate(["status", "--config", &config])).succeeded();
    assert!(status.contains(", serving"), "{status}");
}

#[test]
fn holders_of_the_tcp_address_do_not_reach_the_control_socket() {
    let daemon = Daemon::start(&Text::new());
    let _silent: Vec<_> = (0..400).map(|_| holding(&daemon, b"")).collect();
    let path = daemon.control();
    let _idle: Vec<_> = (0..200)
        .map(|_| UnixStream::connect(&path).or_else(|_| UnixStream::connect(&path)))
        .collect();
    let control = path.display().to_string();
    let reloaded = run(ringgate(["reload", "--control", &control])).succeeded();
    assert_eq!(reloaded, "reloaded; nothing has changed\n");
}

#[test]
fn without_an_admin_table_the_control_socket_is_there() {
    let mut text = Text::new();
    text.has_admin = false;
    let mut daemon = Daemon::start(&text);
    let control = daemon.control().display().to_string();
    let status = run(ringgate(["status", "--control", &control])).succeeded();
    assert!(status.contains(", serving"), "{status}");
    run(ringgate(["drain", "--control", &control])).succeeded();
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn a_socket_that_a_dead_process_left_is_replaced_and_a_live_one_is_not() {
    let daemon = Daemon::start_with(&Text::new(), |_, folder| {
        std::fs::create_dir(folder.join("run")).expect("our folder");
        drop(UnixListener::bind(folder.join("run/control.sock")).expect("a stale socket"));
    });
    let control = daemon.control().display().to_string();
    run(ringgate(["status", "--control", &control])).succeeded();

    let mut second = Text::new();
    second.run_dir = Some(daemon.run_dir());
    second.backends =
        "[[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\nslots = 4\n"
            .into();
    let why = Daemon::refused(&second);
    assert!(why.contains("control.sock") && why.contains(&daemon.id().to_string()), "{why}");
    run(ringgate(["status", "--control", &control])).succeeded();
}

#[test]
fn what_stands_in_the_sockets_place_is_not_touched() {
    let folder = crate::folder::Folder::new();
    let secret = folder.file("secret", "of root", 0o600);
    std::fs::create_dir(folder.join("run")).expect("our folder");
    symlink(&secret, folder.join("run/control.sock")).expect("our folder");
    let mut text = Text::new();
    text.run_dir = Some(folder.join("run"));
    let why = Daemon::refused(&text);
    assert!(why.contains("control.sock"), "{why}");
    let meta = std::fs::metadata(&secret).expect("it is there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&secret).expect("readable"), "of root");
}

#[test]
fn another_user_is_refused_by_the_socket_whatever_its_mode() {
    if ringgate_os::process::effective_uid() != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let daemon = Daemon::start(&Text::new());
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our folder");
    };
    open(daemon.folder.path(), 0o755);
    open(&daemon.run_dir(), 0o755);
    let ask = || {
        let mut command =
            ringgate(["reload", "--control", &daemon.control().display().to_string()]);
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        run(command)
    };
    let ran = ask();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("ermission denied"), "{}", ran.stderr);
    open(&daemon.control(), 0o666);
    let ran = ask();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("403") && ran.stderr.contains("root"), "{}", ran.stderr);
    assert_eq!(daemon.status()["config"]["reloads"], 0);
}

#[test]
fn a_signal_without_a_meaning_does_nothing() {
    let mut daemon = Daemon::start(&Text::new());
    daemon.signal("USR1");
    wait_for("an answer after them", || (daemon.get("/healthz").status == 200).then_some(()));
    assert!(daemon.is_running());
    assert_eq!(daemon.status()["state"], "serving");
    // Bit 9 of the mask of ignored signals.
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a line");
    let ignored = u64::from_str_radix(ignored, 16).expect("hex");
    assert_eq!(ignored & 0x200, 0x200);
}
