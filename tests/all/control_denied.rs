//! Who is denied at a daemon: while it plays, over a restart, for a time, and by whom.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use ringgate_core::netcode::State;
use ringgate_link::backend::{Event, Options};
use ringgate_report::text::Append as _;

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, request, wait_for};
use crate::folder::Folder;
use crate::oncall::row;
use crate::upgrade_rig::Line;

/// A command of the command line at a daemon.
fn command(daemon: &Daemon, words: &[&str]) -> Ran {
    let mut command = ringgate(words);
    command.arg("--control").arg(daemon.control());
    run(command)
}

fn succeeds(daemon: &Daemon, words: &[&str]) -> String {
    command(daemon, words).succeeded()
}

fn with_state(folder: &Path) -> Text {
    let mut text = Text::new();
    writeln!(text.gateway, "state_dir = \"{}\"", folder.display());
    text
}

fn player(daemon: &Daemon, ip: [u8; 4], client_id: u64) -> Player {
    Player::at(ip, daemon.listener, client_id, KEY_HEX)
}

/// It asks, and hears nothing.
fn is_kept_out(daemon: &Daemon, player: &mut Player) {
    let dropped = || daemon.status()["drops"]["address_denied"].as_u64().expect("a number");
    let before = dropped();
    wait_for("a refusal", || {
        assert!(!player.is_connected());
        (dropped() > before).then_some(())
    });
}

#[test]
fn a_player_is_denied_while_it_plays_and_may_come_back() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut players = [[127, 0, 0, 5], [127, 0, 1, 5]].map(|ip| {
        let mut player = player(&daemon, ip, ip[2].into());
        player.connect();
        player
    });
    let said = succeeds(&daemon, &["deny", "127.0.0.0/24", "--for", "12h"]);
    assert_eq!(said, "127.0.0.0/24 may not play for 12 h; ended 1 sessions\n");
    assert_eq!(players[0].ended(), State::Disconnected);
    players[1].echo(b"of another network");
    is_kept_out(&daemon, &mut player(&daemon, [127, 0, 0, 5], 0));
    let status = daemon.status();
    assert_eq!((&status["denied"]["ipv4"], &status["denied"]["kept"]), (&1.into(), &true.into()));
    assert_eq!(status["conservation"]["holds"], true);
    let closed = || daemon.status()["sessions_closed"]["denied"] == 1;
    wait_for("the end to be counted", || closed().then_some(()));

    let said = succeeds(&daemon, &["status"]);
    assert!(said.contains("\ndenied: 1 IPv4 prefixes\n"), "{said}");

    // One address of it may play all the same.
    let said = succeeds(&daemon, &["allow", "127.0.0.6"]);
    assert!(said.starts_with("127.0.0.6/32 may play: an exception"), "{said}");
    player(&daemon, [127, 0, 0, 6], 6).connect();
    let shown = succeeds(&daemon, &["denied"]);
    assert!(shown.contains("127.0.0.6/32  play: an exception  told otherwise"), "{shown}");
    let shown = succeeds(&daemon, &["denied", "127.0.0.6"]);
    assert!(
        shown.starts_with("127.0.0.6 is not denied: 127.0.0.6/32 is an exception\n"),
        "{shown}"
    );
    let shown = succeeds(&daemon, &["denied", "127.0.0.7"]);
    assert!(shown.starts_with("127.0.0.7 is denied, by the rule 127.0.0.0/24\n"), "{shown}");
    let said = succeeds(&daemon, &["deny", "127.0.0.0/24"]);
    assert!(said.contains("\nexceptions within that stay: 1 (--whole forgets them)\n"), "{said}");

    assert_eq!(succeeds(&daemon, &["allow", "127.0.0.0/24"]), "127.0.0.0/24 may play\n");
    assert_eq!(succeeds(&daemon, &["denied"]), "nobody is denied\n");
    player(&daemon, [127, 0, 0, 5], 0).connect();
    assert_eq!(succeeds(&daemon, &["allow", "127.0.0.0/24"]), "127.0.0.0/24 was not denied\n");
    let log = daemon.log();
    for line in ["denial of 127.0.0.0/24 for 12 h", "by=user ", "127.0.0.6/32 may play"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[test]
fn a_player_is_denied_by_its_id_and_hears_it() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut playing = Player::connected(daemon.listener, 7, KEY_HEX);
    let mut other = Player::connected(daemon.listener, 8, KEY_HEX);
    let said = succeeds(&daemon, &["deny", "--client", "7"]);
    assert_eq!(said, "client 7 may not play; ended 1 sessions\n");
    assert_eq!(playing.ended(), State::Disconnected);
    let mut again = Player::new(daemon.listener, 7, KEY_HEX);
    again.ended();
    assert!(again.is_denied());
    wait_for("the drop", || (daemon.status()["drops"]["client_denied"] == 1).then_some(()));
    other.echo(b"plays on");
    let shown = succeeds(&daemon, &["denied", "--client", "7"]);
    assert!(shown.starts_with("client 7 is denied, by the rule client 7\n"), "{shown}");
    assert_eq!(succeeds(&daemon, &["allow", "--client", "7"]), "client 7 may play\n");
    let _back = Player::connected(daemon.listener, 7, KEY_HEX);
}

#[test]
fn what_is_denied_outlives_the_gateway_and_its_death() {
    let folder = Folder::new();
    let state = folder.join("state");
    let text = with_state(&state);
    let daemon = Daemon::start(&text);
    succeeds(&daemon, &["deny", "127.0.0.1", "--for", "2h"]);
    succeeds(&daemon, &["deny", "::ffff:192.0.2.0/120", "--client", "9"]);
    // Killed, not ended.
    drop(daemon);
    assert_eq!(crate::folder::mode(&state), 0o700);
    assert_eq!(crate::folder::mode(&state.join("denied")), 0o600);
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    is_kept_out(&daemon, &mut Player::new(daemon.listener, 1, KEY_HEX));
    let page = daemon.ask("/denied").json();
    assert_eq!(
        (&page["count"], &page["kept"], &page["schema"]),
        (&3.into(), &true.into(), &1.into())
    );
    assert_eq!(page["rules"][0]["prefix"], "127.0.0.1/32");
    let left_s = page["rules"][0]["left_s"].as_u64().expect("a number");
    assert!((7000..=7201).contains(&left_s), "{left_s}");
    assert_eq!(page["rules"][1]["prefix"], "192.0.2.0/24");
    assert_eq!(page["rules"][2]["client"], 9);
    assert!(daemon.log().contains("denied_read"), "{}", daemon.log());

    // Another gateway must not have the same folder.
    let why = Daemon::refused(&text);
    assert!(why.contains("another process uses it"), "{why}");
}

#[test]
fn a_file_that_cannot_be_read_keeps_the_gateway_from_starting() {
    let folder = Folder::new();
    let text = with_state(folder.path());
    let whole = "ringgate denied 1\ndeny 192.0.2.0/24\ndeny client 7\nend 2\n";
    for (bad, said) in [
        ("", "line 1: found \"\", expected ringgate denied 1"),
        (&whole[..50], "a last line \"end\""),
        ("ringgate denied 1\ndeny 192.0.2.0/33\nend 1\n", "line 2: found \"deny 192.0.2.0/33\""),
        ("ringgate denied 9\nend 0\n", "line 1: found \"ringgate denied 9\""),
    ] {
        folder.file("denied", bad, 0o600);
        let why = Daemon::refused(&text);
        assert!(why.contains(said) && why.contains("start with nobody denied"), "{why}");
    }
    std::fs::remove_file(folder.join("denied")).expect("ours");
    std::os::unix::fs::symlink("/etc/hostname", folder.join("denied")).expect("ours");
    let why = Daemon::refused(&text);
    assert!(why.contains("cannot read who is denied"), "{why}");
    std::fs::remove_file(folder.join("denied")).expect("ours");
    folder.file("denied", whole, 0o600);
    let daemon = Daemon::start(&text);
    assert_eq!(daemon.ask("/denied").json()["count"], 2);
    let open = std::fs::Permissions::from_mode(0o777);
    drop(daemon);
    std::fs::set_permissions(folder.path(), open).expect("ours");
    let why = Daemon::refused(&text);
    assert!(why.contains("every user may write to it"), "{why}");
}

#[test]
fn a_denial_ends_by_itself() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    succeeds(&daemon, &["deny", "127.0.0.1", "::1", "--for", "300ms"]);
    succeeds(&daemon, &["deny", "192.0.2.1"]);
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    let page = daemon.ask("/denied").json();
    assert_eq!(page["count"], 1, "{page}");
    assert!(daemon.log().contains("2 rules about who is denied are over"), "{}", daemon.log());
    let file = daemon.folder.join("state").join("denied");
    wait_for("the file", || {
        let text = std::fs::read_to_string(&file).expect("it is there");
        text.ends_with("deny 192.0.2.1/32\nend 1\n").then_some(())
    });
}

#[test]
fn what_cannot_be_written_lasts_until_the_restart_and_is_told() {
    let mut line = Line::start(&Text::new());
    let daemon = &line.daemon;
    std::fs::remove_dir_all(daemon.folder.join("state")).expect("ours");
    row("denials-not-kept").asked_at(daemon, &[("PREFIX", "192.0.2.0/24")]);
    assert_eq!(daemon.status()["denied"]["kept"], false);
    assert_eq!(daemon.get("/metrics").value("ringgate_denied_kept"), Some(0));
    let shown = succeeds(daemon, &["denied"]);
    assert!(
        shown.contains("192.0.2.0/24") && shown.contains("until the gateway restarts"),
        "{shown}"
    );
    assert!(daemon.log().contains("state_not_written"), "{}", daemon.log());
    // An upgrade takes it along, and the next process goes on trying. While a try is under way it
    // has to wait.
    wait_for("an upgrade", || (line.upgrade().0 == Some(0)).then_some(()));
    let daemon = &line.daemon;
    wait_for("its try", || (daemon.status()["denied"]["kept"] == false).then_some(()));
    std::fs::create_dir(daemon.folder.join("state")).expect("ours");
    wait_for("another try", || (daemon.status()["denied"]["kept"] == true).then_some(()));
}

#[test]
fn tens_of_thousands_come_from_a_file_at_once() {
    let daemon = Daemon::start(&Text::new());
    let mut list = String::from("# a botnet\n");
    for number in 0..20_000_u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        writeln!(list, "10.{high}.{middle}.{low} # once");
    }
    list.push_str("client 0x2a\n2001:db8::/32\n");
    let file = daemon.folder.file("list", list, 0o600).display().to_string();
    let said = succeeds(&daemon, &["deny", "--file", &file]);
    assert_eq!(said, "20,002 prefixes and players may not play; ended 0 sessions\n");
    let metrics = daemon.get("/metrics");
    for (kind, count) in [("ipv4", 20_000), ("ipv6", 1), ("client", 1), ("exception", 0)] {
        let series = format!("ringgate_denied_rules{{kind=\"{kind}\"}}");
        assert_eq!(metrics.value(&series), Some(count), "{kind}");
    }
    let shown = succeeds(&daemon, &["denied", "--limit", "5"]);
    assert!(shown.contains("20,002 rules, 5 of them shown (--limit)"), "{shown}");
    let said = succeeds(&daemon, &["allow", "10.0.0.0/8"]);
    assert!(said.contains("denied prefixes within that stay: 20,000 (--whole"), "{said}");
    succeeds(&daemon, &["allow", "10.0.0.0/8", "--whole"]);
    assert_eq!(daemon.ask("/denied").json()["count"], 2);
    for (words, said) in [
        (&["deny"][..], "expected an address, a prefix, a client id or --file FILE"),
        (&["deny", "10.0.0.0/33"], "found \"10.0.0.0/33\", expected an address"),
        (&["deny", "::1", "--for", "100000h"], "--for: found \"100000h\", expected a time"),
        (&["allow", "192.0.2.1", "--for", "1h"], "nothing around 192.0.2.1/32 is denied"),
        (&["deny", "--file", "/nowhere"], "cannot read /nowhere"),
    ] {
        let ran = command(&daemon, words);
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{}", ran.stderr);
    }
}

#[test]
fn what_was_done_before_a_refusal_is_told() {
    let folder = Folder::new();
    let control = folder.join("control.sock");
    let gateway = UnixListener::bind(&control).expect("a new folder");
    let list: Vec<_> = (0..9000).map(|n| format!("10.0.{}.{}\n", n / 250, n % 250)).collect();
    let file = folder.file("list", list.concat(), 0o600);
    let done = r#"{"changed":1,"exceptions":0,"contrary":0,"ended":7,"complete":true}"#;
    let answers = [format!("200 OK\r\n\r\n{done}"), "409 Conflict\r\n\r\ntoo many\n".to_owned()];
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            for answer in answers {
                let (mut asked, _) = gateway.accept().expect("a command");
                let lines = BufReader::new(&asked).lines().map_while(Result::ok);
                assert!(lines.take_while(|line| !line.is_empty()).count() > 0);
                write!(asked, "HTTP/1.0 {answer}").expect("it reads");
            }
        });
        let mut deny = ringgate(["deny", "--file"]);
        deny.arg(&file).arg("--control").arg(&control);
        run(deny)
    });
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    let said = ran.stderr.split_once("ringgate: too many (done before that: the first ");
    let (_, behind) = said.unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(behind.ends_with(" of 9,000; ended 7 sessions)\n"), "{}", ran.stderr);
}

#[test]
fn others_deny_nobody() {
    const TOKEN: &str = "a-token-of-the-operators";
    let mut text = Text::new();
    text.admin.push_str("token = { file = \"admin.token\" }\n");
    let daemon = Daemon::start_with(&text, |_, folder| {
        folder.file("admin.token", TOKEN, 0o600);
    });
    for (method, path) in
        [("POST", "/deny?client=7"), ("POST", "/allow?client=7"), ("GET", "/denied")]
    {
        let page = request(daemon.admin, method, path, "").expect("an answer");
        assert!(matches!(page.status, 401 | 403), "{path}: {}", page.body);
    }
    assert_eq!(daemon.ask("/denied").json()["count"], 0);
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    let page = request(daemon.admin, "POST", "/deny?client=7", &header).expect("an answer");
    assert_eq!(page.json()["changed"], 1);
    assert!(daemon.log().contains(&format!("by={}", daemon.admin.ip())), "{}", daemon.log());
    if ringgate_os::process::effective_uid() != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our folder");
    };
    open(daemon.folder.path(), 0o755);
    open(&daemon.run_dir(), 0o755);
    open(&daemon.control(), 0o666);
    let mut stranger = ringgate(["allow", "--client", "7", "--control"]);
    stranger.arg(daemon.control());
    std::os::unix::process::CommandExt::uid(&mut stranger, 65_534);
    let ran = run(stranger);
    assert!(ran.code == Some(1) && ran.stderr.contains("403"), "{}", ran.stderr);
    assert_eq!(daemon.ask("/denied").json()["count"], 1);
}

#[test]
fn a_game_process_hears_that_a_drain_is_undone() {
    let daemon = Daemon::start(&Text::new());
    let mut backend = Options::new(daemon.run_dir(), "arena").start().expect("a backend");
    let mut hear = |wanted: fn(&Event<'_>) -> bool| {
        wait_for("an event", || {
            backend.wait(Some(Duration::from_millis(10))).expect("a wait");
            let mut events = backend.poll().expect("a poll");
            let mut is_heard = false;
            while let Some((event, _)) = events.next() {
                is_heard |= wanted(&event);
            }
            is_heard.then_some(())
        });
    };
    hear(|event| matches!(event, Event::LinkUp { .. }));
    // Without anybody a drain would be over at once.
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    succeeds(&daemon, &["drain", "--deadline", "1h"]);
    hear(|event| matches!(event, Event::Draining { .. }));
    succeeds(&daemon, &["undrain"]);
    hear(|event| matches!(event, Event::Undrained { worker: 0 }));
}
