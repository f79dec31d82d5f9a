//! The commands that talk to a running gateway.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use libc::{SIGCONT, SIGSTOP};
use ringgate_os::process;

use crate::command::{Ending, Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;
use crate::oncall::row;
use crate::own::own_address;
use crate::upgrade_rig::Line;

/// Runs a command against a daemon's control socket.
fn ask(daemon: &Daemon, command: &[&str]) -> Ran {
    let control = daemon.control().display().to_string();
    run(ringgate([command, &["--control", &control]].concat()))
}

#[test]
fn status_and_top_show_the_gateway_on_a_screen() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));

    let status = ask(&daemon, &["status"]).succeeded();
    let first = status.lines().next().expect("a line");
    assert!(first.starts_with("ringgate ") && first.contains(", serving, ready, up "), "{status}");
    let row = |name: &str| -> Vec<String> {
        let line = status.lines().find(|line| line.starts_with(name));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("eu "), ["eu", "1", "100", "serving", &daemon.listener.to_string()]);
    assert_eq!(row("arena "), ["arena", "1", "4", "bundle", "up"]);
    assert!(status.contains("every datagram and payload is accounted for"), "{status}");
    let json = ask(&daemon, &["status", "--json"]).succeeded();
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok_and(|page| page.is_object()));

    let screen = ask(&daemon, &["top", "--once", "--interval", "10ms"]).succeeded();
    assert!(screen.contains("1 sessions, 0 handshakes under way"), "{screen}");
    assert!(screen.contains("kernel drops/s") && !screen.contains('\x1b'), "{screen}");
}

#[test]
fn a_process_that_was_stopped_is_named_by_commands_that_ask_it() {
    let mut line = Line::start(&Text::new());
    let stopped = |line: &Line, command| {
        let pid = line.pid();
        process::signal(pid, SIGSTOP).expect("our process");
        let said = ask(&line.daemon, &[command]);
        process::signal(pid, SIGCONT).expect("our process");
        let control = line.daemon.control();
        let expected =
            format!("process {pid} holds {} and does not answer (stopped)", control.display());
        assert!(said.code == Some(1) && said.stderr.contains(&expected), "{}", said.stderr);
        ask(&line.daemon, &["status"]).succeeded();
    };
    stopped(&line, "status");
    // The kernel remembers who began to listen at a socket, and successors are given theirs.
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    stopped(&line, "upgrade");
}

#[test]
fn top_prints_lines_where_there_is_no_terminal_and_ends_with_its_reader() {
    let daemon = Daemon::start(&Text::new());
    let admin = daemon.admin.to_string();
    let mut top = ringgate(["top", "--interval", "20ms", "--admin", &admin])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains("  serving  sessions 0  in/s "), "{line}");
    }
    drop(lines);
    let ended = wait_for("its end", || top.try_wait().expect("our child"));
    assert!(ended.success());
}

#[test]
fn reload_says_what_has_changed_or_every_mistake() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    assert_eq!(ask(&daemon, &["reload"]).succeeded(), "reloaded; nothing has changed\n");
    text.backends = text.backends.replace("slots = 4", "slots = 5");
    daemon.rewrite(&text);
    let answer = ask(&daemon, &["reload"]).succeeded();
    assert_eq!(answer, "reloaded:\n  backend arena: slots 4 -> 5\n");

    text.backends = text.backends.replace("slots = 5", "slots = none");
    text.gateway.push_str("pim = true\n");
    daemon.rewrite(&text);
    let Ran { code, stderr, .. } = ask(&daemon, &["reload"]);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("ringgate: nothing was changed:\n  "), "{stderr}");
}

#[test]
fn drain_waits_for_the_end_if_it_is_asked_to() {
    let mut daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));
    let answer = ask(&daemon, &["drain"]).succeeded();
    assert!(answer.starts_with("draining: 1 sessions, "), "{answer}");
    assert!(daemon.is_running());
    player.leave();
    // The gateway may be gone already, or going, which is an answer too.
    let again = ask(&daemon, &["drain", "--wait"]);
    let is_gone = ["no gateway answers at", "stopping"].iter().any(|it| again.stderr.contains(it));
    assert!(again.code == Some(0) || is_gone, "{}", again.stderr);
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn who_waits_for_a_drain_hears_that_it_cannot_be_said_or_was_taken_back() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    let control = daemon.control().display().to_string();
    let waits = |change: &dyn Fn()| {
        let words = ["drain", "--deadline", "1h", "--wait", "--control", &control];
        let mut drain = ringgate(words);
        drain.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut drain = Ending(drain.spawn().expect("the binary was built"));
        let mut said = BufReader::new(drain.stderr.take().expect("piped")).lines();
        let line = said.next().expect("a line").expect("text");
        assert!(line.starts_with("1 sessions are left, "), "{line}");
        change();
        let last = said.map(|line| line.expect("text")).last().expect("why");
        (drain.wait().expect("our child").code(), last)
    };
    let (code, why) = waits(&|| drop(ask(&daemon, &["undrain"]).succeeded()));
    assert!(code == Some(1) && why.ends_with("has taken the drain back"), "{code:?} {why}");
    player.echo(b"still here");
    let (code, why) = waits(&|| daemon.signal("STOP"));
    daemon.signal("CONT");
    assert!(code == Some(1) && why.ends_with("does not answer (stopped)"), "{code:?} {why}");
}

/// As where a service manager starts a gateway again.
#[test]
fn who_waits_for_a_drain_has_waited_where_another_process_is_there() {
    let run_dir = Folder::new();
    let text = Text { run_dir: Some(run_dir.path().to_owned()), ..Text::new() };
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    let control = daemon.control().display().to_string();
    let mut drain = ringgate(["drain", "--deadline", "1h", "--wait", "--control", &control]);
    drain.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut drain = Ending(drain.spawn().expect("the binary was built"));
    let mut said = BufReader::new(drain.stderr.take().expect("piped")).lines();
    said.next().expect("a line").expect("text");
    process::signal(drain.id(), SIGSTOP).expect("ours");
    drop(daemon);
    let _next = Daemon::start(&text);
    process::signal(drain.id(), SIGCONT).expect("ours");
    let last = said.map(|line| line.expect("text")).last();
    assert_eq!((drain.wait().expect("our child").code(), last), (Some(0), None));
}

/// One that has not answered what it was asked first is asked for nothing more.
#[test]
fn an_upgrade_of_a_process_that_does_not_answer_is_not_asked_for() {
    let folder = Folder::new();
    let control = folder.join("control.sock");
    let listener = UnixListener::bind(&control).expect("a new folder");
    listener.set_nonblocking(true).expect("it is ours");
    let mut command = ringgate(["upgrade".as_ref(), "--control".as_ref(), control.as_os_str()]);
    let upgrade = command.stderr(Stdio::piped()).spawn().expect("the binary was built");
    drop(wait_for("a question", || listener.accept().ok()));
    let ended = upgrade.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("no gateway answers at"), "{said}");
    assert!(listener.accept().is_err(), "it has asked again: {said}");
}

#[test]
fn where_no_gateway_is_one_sentence_says_so() {
    let admin = own_address().to_string();
    for command in ["status", "top", "drain", "reload"] {
        let ran = run(ringgate([command, "--admin", &admin]));
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.starts_with(&format!("ringgate: no gateway answers at {admin}: ")));
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
    let host = Folder::new();
    let file = host.file("gate.toml", "[gateway]\nrun_dir = \".\"\n", 0o600);
    row("gateway-gone").asked(&file, &[]);
}
