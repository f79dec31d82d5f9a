//! Handing a running gateway to the next process, with real processes: players, counters and links
//! go on, and so does what the operator has said.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use ringgate_os::process;

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::upgrade_rig::{Line, drivers, text};

#[test]
fn players_counters_and_links_go_on_in_the_next_process_and_the_one_after() {
    for io in drivers() {
        let mut line = Line::start_in_parts(&text(io), |_| ());
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let server = line.daemon.listener;
        let mut players: Vec<_> =
            (1..=4).map(|id| Player::connected(server, id, KEY_HEX)).collect();
        for player in &mut players {
            player.echo(b"before");
        }
        let before = line.daemon.status();
        for generation in 2..=4 {
            let former = line.pid();
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{io}: {said}\n{}", line.daemon.log());
            assert!(said.starts_with("upgraded: process "), "{said}");
            assert_ne!(line.pid(), former);
            assert_eq!(line.generation(), generation);
            for player in &mut players {
                let (sent, back) = player.play_for(20);
                assert_eq!(sent, back, "{io}: nothing is lost afterwards");
            }
        }
        assert_eq!(line.daemon.ended(), Some(0), "the first has left");
        let after = line.daemon.status();
        assert_eq!(after["incarnation"], before["incarnation"]);
        assert_eq!(after["started_unix_s"], before["started_unix_s"]);
        assert_eq!(after["totals"]["sessions_opened"], 4);
        assert_eq!(after["totals"]["sessions"], 4);
        assert_eq!(after["conservation"]["holds"], true, "{}", after["conservation"]);
        let came = |status: &serde_json::Value| status["totals"]["datagrams_in"].as_u64();
        let wanted = came(&before).map(|count| count + 4 * 3 * 20);
        wait_for("the counters to go on", || (came(&line.daemon.status()) >= wanted).then_some(()));
        // Who leaves is gone, and who comes has the place.
        players[0].leave();
        wait_for("one to be gone", || {
            (line.daemon.status()["totals"]["sessions"] == 3).then_some(())
        });
        Player::connected(server, 5, KEY_HEX).echo(b"new");
    }
}

#[test]
fn players_play_while_it_happens_and_lose_nothing() {
    for io in drivers() {
        let mut line = Line::start(&text(io));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let server = line.daemon.listener;
        let players: Vec<_> = (1..=4)
            .map(|id| {
                let mut player = Player::connected(server, id, KEY_HEX);
                std::thread::spawn(move || player.play_for(400))
            })
            .collect();
        for _ in 0..3 {
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{io}: {said}\n{}", line.daemon.log());
        }
        for player in players {
            let (sent, back) = player.join().expect("it plays");
            assert_eq!(sent, back, "{io}");
        }
    }
}

/// An event as often as it is in the log, of whichever process.
fn told(line: &Line, event: &str) -> Vec<serde_json::Value> {
    let log = line.daemon.log();
    let all = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    all.filter(|it| it["event"] == event).collect()
}

#[test]
fn what_the_log_was_told_is_not_told_again_and_goes_on() {
    let mut config = text("mmsg");
    config.gateway.push_str("log = \"json\"\n");
    config.max_sessions = 2;
    let mut line = Line::start(&config);
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let server = line.daemon.listener;
    let mut players = [1, 2].map(|id| Player::connected(server, id, KEY_HEX));
    let knock = |id: u64| {
        let mut late = Player::new(server, id, KEY_HEX);
        late.ended();
        assert!(late.is_denied());
    };
    knock(3);
    for event in ["backend_up", "listener_full", "refused"] {
        wait_for(event, || (told(&line, event).len() == 1).then_some(()));
    }
    // Not told yet: a reason is told once a minute.
    knock(4);
    for generation in 2..=3 {
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}");
        // What is new is told by the process that serves, and so is all that it tells besides.
        players[0].leave();
        let is_told = |event, times| {
            wait_for(event, || (told(&line, event).len() == times).then_some(()));
        };
        is_told("listener_has_room", generation - 1);
        players[0] = Player::connected(server, 10 + generation as u64, KEY_HEX);
        is_told("listener_full", generation);
        knock(20 + generation as u64);
    }
    assert_eq!(told(&line, "backend_up").len(), 1);
    let last = line.pid().to_string();
    for event in ["drain_begin", "drain_end"] {
        let sent = Command::new("kill").args(["-s", "TERM", &last]).status();
        assert!(sent.expect("kill is there").success());
        wait_for(event, || told(&line, event).pop());
    }
    // The last one tells what nobody has told, and each was told once.
    let counts = told(&line, "refused");
    let sum: u64 = counts.iter().filter_map(|it| it["count"].as_u64()).sum();
    assert_eq!(counts.last().map(|it| it["total"].as_u64()), Some(Some(sum)), "{counts:?}");
    assert!(sum > 1, "some were not told at once: {counts:?}");
}

#[test]
fn a_signal_upgrades_too() {
    let mut line = Line::start(&text("mmsg"));
    line.daemon.signal("USR2");
    assert_eq!(line.daemon.ended(), Some(0), "{}", line.daemon.log());
    line.heirs.push(line.pid());
    assert_eq!(line.generation(), 2);
}

#[test]
fn a_successor_that_cannot_start_changes_nothing_and_says_why() {
    let mut line = Line::start(&text("mmsg"));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let mut other = text("mmsg");
    other.gateway = other.gateway.replace("workers = 2", "workers = 3");
    for (text, why) in [
        (&other, "workers: the running process has 2, this one 3"),
        (&Text { listener: "keys = 5\n".to_owned(), ..other.clone() }, "its log says why"),
    ] {
        line.daemon.rewrite(text);
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("goes on as it is") && said.contains(why), "{said}");
        player.echo(b"still here");
    }
    assert!(line.daemon.is_running());
    assert_eq!(line.generation(), 1);
}

#[test]
fn another_run_dir_needs_a_restart_whatever_the_links_are() {
    for is_bundle in [false, true] {
        let mut config = text("mmsg");
        if !is_bundle {
            config.backends =
                "[[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"127.0.0.1:9\"\n\
                               slots = 4\n"
                    .to_owned();
        }
        let mut line = Line::start(&config);
        config.run_dir = Some(line.daemon.folder.join("another"));
        line.daemon.rewrite(&config);
        let (code, said) = line.upgrade();
        assert!(code == Some(1) && said.contains("gateway.run_dir has changed"), "{said}");
        assert_eq!(line.generation(), 1, "it answers where it was");
    }
}

#[test]
fn with_nobody_to_take_over_from_it_starts_as_ever_and_says_so() {
    let daemon = Daemon::start_with(&Text::new(), |command, _| {
        command.arg("--take-over");
    });
    assert!(daemon.log().contains("no process to take over from"), "{}", daemon.log());
    assert_eq!(daemon.status()["generation"], 1);
}

#[test]
fn what_the_operator_has_drained_and_denied_stays_so() {
    let mut line = Line::start(&text("mmsg"));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    // A drain without players would be over at once.
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let tell = |line: &Line, words: &[&str]| {
        let control = line.daemon.control();
        let at = ["--control".as_ref(), control.as_os_str()];
        let words = words.iter().map(std::ffi::OsStr::new).chain(at);
        run(ringgate(words))
    };
    assert_eq!(tell(&line, &["deny", "192.0.2.0/24"]).code, Some(0));
    line.daemon.post("/drain?backend=arena");
    let (code, said) = line.upgrade();
    assert_eq!(code, Some(0), "{said}");
    let status = line.daemon.status();
    assert_eq!(status["backends"][0]["drained"], true, "{status}");
    let denied = tell(&line, &["denied"]).stdout;
    assert!(denied.contains("192.0.2.0/24"), "{denied}");
    let allowed = tell(&line, &["allow", "192.0.2.0/24"]);
    assert_eq!(allowed.code, Some(0), "it can be changed: {}", allowed.stderr);
    line.daemon.post("/undrain?backend=arena");
    assert_eq!(line.daemon.post("/drain").status, 200);
    let (code, said) = line.upgrade();
    assert!(code == Some(1) && said.contains("`ringgate undrain` takes that back"), "{said}");
    assert_eq!(line.daemon.post("/undrain").status, 200);
    process::signal(line.pid(), libc::SIGTERM).expect("it runs");
    wait_for("the drain", || (line.daemon.status()["state"] == "draining").then_some(()));
    let (code, said) = line.upgrade();
    assert!(code == Some(1) && said.contains("a signal has begun that"), "{said}");
    player.echo(b"to the end");
}

#[test]
fn who_is_denied_is_kept_in_another_folder_too_and_by_another_user() {
    let ways = [("other", ""), ("other", "user = \"nobody\"\n"), ("state", "user = \"nobody\"\n")];
    let of_ordinary_users = &ways[..1];
    for (dir, user) in if process::effective_uid() == 0 { &ways } else { of_ordinary_users } {
        let mut line = Line::start(&text("mmsg"));
        let tell = |line: &Line, words: [&str; 2]| {
            let control = line.daemon.control();
            let at = ["--control".as_ref(), control.as_os_str()];
            run(ringgate(words.iter().map(AsRef::as_ref).chain(at))).succeeded()
        };
        tell(&line, ["deny", "192.0.2.0/24"]);
        let mut other = text("mmsg");
        write!(other.gateway, "state_dir = \"{dir}\"\n{user}").expect("strings grow");
        line.daemon.rewrite(&other);
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        let file = line.daemon.folder.join(dir).join("denied");
        let kept = || std::fs::read_to_string(&file).unwrap_or_default();
        wait_for("the file", || kept().contains("192.0.2.0/24").then_some(()));
        // The answer waits for the file.
        tell(&line, ["deny", "198.51.100.0/24"]);
        assert!(kept().contains("198.51.100.0/24"), "{dir} {user}: {}", kept());
    }
}

/// Puts a program in the place of the one that the daemon has been started by.
fn replace_program(daemon: &Daemon, script: &str) {
    let path = daemon.folder.join("program");
    // The one that runs is kept open by the kernel.
    std::fs::remove_file(&path).expect("a link");
    daemon.folder.file("program", script, 0o700);
}

#[test]
fn what_became_of_the_sessions_is_said_when_the_gateway_dies_while_it_hands_over() {
    let binary = env!("CARGO_BIN_EXE_ringgate");
    let anew = format!("#!/bin/sh\nkill -9 $PPID\nexec {binary} \"$@\"\n");
    for (script, why) in [
        ("#!/bin/sh\nkill -9 $PPID\n".to_owned(), "its 1 sessions are gone"),
        (anew, "has started without its 1 sessions"),
    ] {
        let mut line = Line::of(Daemon::start_with(&text("mmsg"), |command, folder| {
            let program = folder.join("program");
            std::os::unix::fs::symlink(binary, &program).expect("a link");
            let mut linked = Command::new(&program);
            linked.args(command.get_args());
            linked.stdout(Stdio::piped()).stderr(Stdio::null());
            *command = linked;
        }));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        Player::connected(line.daemon.listener, 1, KEY_HEX).echo(b"here");
        let pid = line.pid();
        replace_program(&line.daemon, &script);
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("process {pid}, ")) && said.contains(why), "{said}");
        if why.starts_with("has started") {
            line.heirs.push(line.pid());
        }
    }
}
