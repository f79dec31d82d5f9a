//! The ways in which a successor comes: started by the daemon or by root, beside a service manager
//! or without one, with io_uring or without.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::cli_doctor::without_io_uring;
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, wait_for};
use crate::io_rig::Rig;
use crate::upgrade_rig::{Line, is_root, text};

#[test]
fn io_uring_that_only_one_of_both_processes_may_use_costs_no_player_anything() {
    if !is_root() || !Rig::uring_works() {
        return;
    }
    for is_first_without in [false, true] {
        let start = || Line::start(&text("auto"));
        let mut line = if is_first_without { without_io_uring(start) } else { start() };
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let has_uring = |line: &Line| line.daemon.status()["why_not_uring"].is_null();
        assert_eq!(has_uring(&line), !is_first_without);
        let server = line.daemon.listener;
        let players: Vec<_> = (1..=3)
            .map(|id| {
                let mut player = Player::connected(server, id, KEY_HEX);
                thread::spawn(move || (player.play_for(200), player))
            })
            .collect();
        if is_first_without {
            line.take_over();
        } else {
            without_io_uring(|| line.take_over());
        }
        assert_eq!((line.generation(), has_uring(&line)), (2, is_first_without));
        // What the heir starts may do what the heir may.
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}");
        assert_eq!((line.generation(), has_uring(&line)), (3, is_first_without));
        for player in players {
            let ((sent, back), mut player) = player.join().expect("it plays");
            assert_eq!(sent, back, "{}", line.daemon.log());
            player.echo(b"and now");
        }
        assert_eq!(line.daemon.status()["totals"]["sessions_opened"], 3);
        let said = line.log("successor.log");
        assert_eq!(said.contains("io_uring is not used"), !is_first_without, "{said}");
    }
}

/// As where a host's processors or a quota have changed since the start.
#[test]
fn a_successor_that_may_use_other_processors_keeps_the_number_of_workers() {
    if !is_root() {
        return;
    }
    let mut config = text("mmsg");
    config.gateway = config.gateway.replace("workers = 2", "workers = \"auto\"");
    let mut line = Line::start(&config);
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let workers = |line: &Line| line.daemon.status()["workers"].as_array().map(Vec::len);
    let before = workers(&line);
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let cores = core_affinity::get_core_ids().expect("some");
    let with_one = || {
        assert!(core_affinity::set_for_current(cores[0]));
        line.take_over();
    };
    thread::scope(|scope| scope.spawn(with_one).join().expect("it has not panicked"));
    assert_eq!((line.generation(), workers(&line)), (2, before));
    player.echo(b"and now");
    if cores.len() > 1 {
        let said = line.log("successor.log");
        assert!(said.contains("a restart would make it 1"), "{said}");
    }
}

#[test]
fn a_confined_daemon_says_that_it_cannot_start_programs_and_root_takes_it_over() {
    if !is_root() {
        return;
    }
    let mut config = text("mmsg");
    config.gateway.push_str("confine = true\n");
    let mut line = Line::start(&config);
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    for generation in 2..=3 {
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("cannot start programs") && said.contains("--take-over"), "{said}");
        player.echo(b"still here");
        line.take_over();
        assert_eq!(line.generation(), generation);
        player.echo(b"and goes on");
    }
}

#[test]
fn a_successor_whose_stdout_takes_nothing_serves() {
    if !is_root() {
        return;
    }
    let mut line = Line::start(&text("mmsg"));
    let _game = Game::start(&line.daemon, "arena");
    line.daemon.ready();
    let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    line.come(|command| {
        command.stdout(full);
    });
    wait_for("the warning", || line.log("successor.log").contains("write to stdout").then_some(()));
    player.echo(b"goes on");
    assert_eq!(line.generation(), 2);
}

/// What stands in for systemd: hears what it is told, in order.
pub(crate) fn manager(socket: UnixDatagram) -> Receiver<String> {
    let (sender, heard) = channel();
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    thread::spawn(move || {
        let mut buffer = [0; 512];
        loop {
            let said = match socket.recv(&mut buffer) {
                Ok(len) => String::from_utf8_lossy(&buffer[..len]).into_owned(),
                // Nothing now. An empty word finds out whether anybody listens.
                Err(_) => String::new(),
            };
            if sender.send(said).is_err() {
                return;
            }
        }
    });
    heard
}

/// The next message that is not about something else.
pub(crate) fn next(heard: &Receiver<String>, is_meant: impl Fn(&str) -> bool) -> String {
    let clock = ringgate_os::clock::Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        match heard.recv_timeout(PATIENCE) {
            Ok(said) if is_meant(&said) => return said,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the manager has ended"),
        }
    }
    panic!("the manager has waited in vain");
}

#[test]
fn the_service_manager_follows_and_its_watchdog_is_fed_whoever_starts_the_next_one() {
    if !is_root() {
        return;
    }
    let mut socket = None;
    let daemon = Daemon::start_with(&text("mmsg"), |command: &mut Command, folder| {
        let path = folder.join("notify");
        socket = Some(UnixDatagram::bind(&path).expect("a socket"));
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let heard = manager(socket.expect("bound above"));
    next(&heard, |said| said.starts_with("READY=1\n"));
    let mut line = Line::of(daemon);
    // Who is started by root has nothing of the manager's in its environment, and neither has the
    // one that it starts.
    for is_by_root in [false, true, false, true] {
        if is_by_root {
            line.take_over();
        } else {
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{said}");
        }
        manager_follows(&heard, line.pid().into());
    }
}

/// Both processes tell the manager who goes on, and that one feeds the watchdog.
pub(crate) fn manager_follows(heard: &Receiver<String>, heir: u64) {
    let follow = format!("MAINPID={heir}");
    let old_one = next(heard, |said| said.starts_with("MAINPID="));
    let new_one = next(heard, |said| said.starts_with("MAINPID="));
    let mut both = [old_one, new_one];
    // They do not wait for each other.
    both.sort_unstable_by_key(String::len);
    let is_serving = format!("{follow}\nREADY=1\nSTATUS=serving\nWATCHDOG=1");
    assert_eq!(both, [follow, is_serving]);
    // The old one is silent by now.
    next(heard, |said| said == "WATCHDOG=1");
}
