//! How a daemon ends: by drain, by signal, and by impatience.

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;

use ringgate_core::netcode::State;

use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, wait_for};

fn with_drain_timeout(timeout: &str) -> Text {
    let mut text = Text::new();
    text.gateway = format!("workers = 1\npin = false\ndrain_timeout = \"{timeout}\"\n");
    text
}

#[test]
fn an_empty_daemon_ends_at_the_first_signal() {
    for signal in ["TERM", "INT"] {
        let mut daemon = Daemon::start(&with_drain_timeout("1h"));
        daemon.signal(signal);
        assert_eq!(daemon.ended(), Some(0));
        assert!(daemon.folder.names().iter().all(|name| name != "worker-0.sock"));
    }
}

#[test]
fn players_play_on_until_they_leave_and_nobody_new_comes_in() {
    let mut daemon = Daemon::start(&with_drain_timeout("1h"));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    daemon.signal("TERM");
    wait_for("the drain", || (daemon.status()["state"] == "draining").then_some(()));
    let readiness = daemon.get("/readyz");
    assert_eq!((readiness.status, readiness.body.as_str()), (503, "draining\n"));
    assert_eq!(daemon.get("/healthz").status, 200);

    player.echo(b"still here");
    assert_eq!(Player::new(daemon.listener, 2, KEY_HEX).ended(), State::Denied);
    player.leave();
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn whoever_is_left_when_the_time_is_over_is_told() {
    let mut daemon = Daemon::start(&with_drain_timeout("200ms"));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    daemon.signal("TERM");
    assert_eq!(player.ended(), State::Disconnected);
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn a_second_signal_stops_at_once_and_still_tells_the_players() {
    let mut daemon = Daemon::start(&with_drain_timeout("1h"));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    daemon.signal("TERM");
    wait_for("the drain", || (daemon.status()["state"] == "draining").then_some(()));
    assert!(player.is_connected() && daemon.is_running());
    daemon.signal("TERM");
    assert_eq!(player.ended(), State::Disconnected);
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn the_button_begins_the_same_drain_and_can_be_pressed_again() {
    let mut daemon = Daemon::start(&with_drain_timeout("1h"));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));
    let first = daemon.post("/drain");
    assert_eq!((first.status, &first.json()["sessions"]), (200, &1.into()));
    let again = daemon.post("/drain").json();
    assert!(again["left_ms"].as_u64() <= first.json()["left_ms"].as_u64());
    // The service manager's signal after that is the first one, not the second.
    daemon.signal("TERM");
    player.echo(b"still here");
    assert!(daemon.is_running());
    player.leave();
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn the_service_manager_is_told() {
    let text = with_drain_timeout("1h");
    let mut manager = None;
    let mut daemon = Daemon::start_with(&text, |command, folder| {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
        manager = Some(socket);
    });
    let manager = manager.expect("bound above");
    // It is heard all the time: what does not fit into its queue is lost.
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(len) = manager.recv(&mut buffer)
            && tell.send(String::from_utf8_lossy(&buffer[..len]).into_owned()).is_ok()
        {}
    });
    let hear = || told.recv_timeout(PATIENCE).expect("a message");
    let hear_next = |start: &str| {
        wait_for(start, || {
            let message = hear();
            // It is given sockets to keep as well.
            let is_about = |what| message.contains(what);
            let is_other = ["WATCHDOG=1", "FDSTORE", "BARRIER"].into_iter().any(is_about);
            (!is_other).then_some(message)
        })
    };
    assert!(hear_next("READY").starts_with("READY=1\n"));
    daemon.signal("HUP");
    assert!(hear_next("RELOADING").starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(hear_next("READY").starts_with("READY=1\n"));
    wait_for("a sign of life", || (hear() == "WATCHDOG=1").then_some(()));
    // What may be taken back is no end: there is no way back from one.
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    let drain = || {
        assert_eq!(daemon.post("/drain?deadline_ms=86400000").status, 200);
        assert_eq!(hear_next("a drain"), "STATUS=draining");
    };
    drain();
    assert_eq!(daemon.post("/undrain").status, 200);
    assert_eq!(hear_next("READY"), "READY=1\nSTATUS=serving");
    drain();
    daemon.signal("TERM");
    let left_us = |message: &str| {
        let left = message.strip_prefix("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=");
        left.and_then(|it| it.parse::<u64>().ok()).unwrap_or_else(|| panic!("{message}"))
    };
    assert!(left_us(&hear_next("STOPPING")) > 80_000_000_000, "what the command has left");
    player.leave();
    assert_eq!(left_us(&hear_next("STOPPING")), 5_000_000, "for the last words");
    assert_eq!(daemon.ended(), Some(0));
}
