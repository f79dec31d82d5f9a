//! A gateway that is the first process of a container. With that process the kernel ends all others
//! there, so it has to stay when it hands its players over.

use std::process::{Command, Stdio};

use ringgate_os::process;

use crate::command::upgrade_at;
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::upgrade_rig::is_root;

/// Starts it in a namespace of processes, where its number is 1.
fn first(text: &Text) -> Daemon {
    Daemon::start_with(text, |command, folder| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare.arg(command.get_program()).args(command.get_args()).stdout(Stdio::piped());
        unshare.stderr(std::fs::File::create(folder.join("log")).expect("a log file"));
        *command = unshare;
    })
}

/// What it is called outside.
fn outside(daemon: &Daemon) -> u32 {
    let path = format!("/proc/{0}/task/{0}/children", daemon.id());
    let children = std::fs::read_to_string(path).expect("this kernel tells");
    children.trim().parse().expect("one")
}

fn upgrade(daemon: &Daemon) {
    let said = upgrade_at(&daemon.control());
    assert!(said.succeeded().starts_with("upgraded: process "));
}

#[test]
fn the_first_process_of_a_container_stays_when_it_is_upgraded() {
    if !is_root() {
        return;
    }
    let mut text = Text::new();
    text.gateway = text.gateway.replace("\"1h\"", "\"100ms\"");
    let mut daemon = first(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    for generation in [2, 3] {
        upgrade(&daemon);
        player.echo(b"hello");
        let now = || daemon.ask("/status").json()["generation"].as_u64();
        wait_for("the next process", || (now() == Some(generation)).then_some(()));
    }
    assert!(daemon.is_running());
    // What a container's engine tells the first process is meant for the one that serves.
    process::signal(outside(&daemon), libc::SIGHUP).expect("it is there");
    wait_for("the reload", || daemon.log().contains("the config was read again").then_some(()));
    player.echo(b"hello");
    process::signal(outside(&daemon), libc::SIGTERM).expect("it is there");
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
    assert!(player.ended().is_closed());
}

#[test]
fn the_first_process_of_a_container_ends_as_its_successor_does() {
    if !is_root() {
        return;
    }
    let mut daemon = first(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    upgrade(&daemon);
    wait_for("the next process", || {
        (daemon.ask("/status").json()["generation"] == 2).then_some(())
    });
    let first = outside(&daemon);
    let path = format!("/proc/{first}/task/{first}/children");
    let heir =
        wait_for("its successor", || std::fs::read_to_string(&path).ok()?.trim().parse().ok());
    process::signal(heir, libc::SIGKILL).expect("it is there");
    assert_eq!(daemon.ended(), Some(128 + libc::SIGKILL), "{}", daemon.log());
}
