//! Signals that reach a gateway while it is handed over: whoever has the gateway in the end obeys
//! them.

use std::os::fd::AsFd;
use std::time::Duration;

use ringgate_os::clock;
use ringgate_process::handover::{Channel, Heard};

use crate::control_rig::{Game, KEY_HEX, PATIENCE, Player, wait_for};
use crate::upgrade_rig::{Line, is_root, text};

/// What the log says of a reload.
const RELOADED: &str = "the config was read again";

#[test]
fn a_reload_that_comes_while_the_gateway_is_handed_over_is_done_by_the_next_process() {
    if !is_root() {
        return;
    }
    // While it prepares, while the state is copied, behind the barrier, and when it is too late for
    // the process that was told.
    for moment in [Heard::Hello, Heard::Prepared, Heard::Read, Heard::Taken] {
        // A confined process may send no signal to another.
        let mut config = text("mmsg");
        config.gateway.push_str("confine = true\n");
        let mut line = Line::start(&config);
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let (successor, its) = line.successor();
        line.heirs.push(successor.id());
        let gateway = line.connect();
        let mut is_told = false;
        pass_until(&its, &gateway, |heard| {
            if heard == moment && !std::mem::replace(&mut is_told, true) {
                line.daemon.signal("HUP");
            }
            // The relay is not needed any more when the latencies have gone over.
            heard == Heard::Recorded
        });
        drop((its, gateway));
        assert!(is_told, "{moment:?} never came");
        wait_for("the successor's reload", || {
            line.log("successor.log").contains(RELOADED).then_some(())
        });
        assert!(!line.daemon.log().contains(RELOADED), "{moment:?}: it is not the owner any more");
        assert_eq!(line.pid(), successor.id());
        player.echo(b"and goes on");
    }
}

#[test]
fn a_reload_that_has_waited_for_a_hand_over_is_done_when_that_fails() {
    if !is_root() {
        return;
    }
    for moment in [Heard::Hello, Heard::Prepared, Heard::Read, Heard::Taken] {
        let mut line = Line::start(&text("mmsg"));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let (mut successor, its) = line.successor();
        let gateway = line.connect();
        pass_until(&its, &gateway, |heard| heard == moment);
        line.daemon.signal("HUP");
        successor.kill().expect("our child");
        successor.wait().expect("our child");
        drop((its, gateway));
        wait_for("the reload", || line.daemon.log().contains(RELOADED).then_some(()));
        assert_eq!(line.pid(), line.daemon.id(), "{moment:?}");
        player.echo(b"still here");
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{moment:?}: it can be tried again: {said}");
    }
}

/// Passes on what the two say, until `is_enough` of something that the successor or the gateway has
/// said: before that is passed on, unless it is the last word.
fn pass_until(its: &Channel, gateway: &Channel, mut is_enough: impl FnMut(Heard) -> bool) {
    let clock = clock::Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        for (from, to) in [(its, gateway), (gateway, its)] {
            let (heard, packet) = from.hear(Duration::from_millis(1));
            let Some((message, fds)) = packet else { continue };
            let is_enough = is_enough(heard);
            if !is_enough || heard == Heard::Recorded {
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                to.say(&message, &fds).expect("it lives");
            }
            if is_enough {
                return;
            }
        }
    }
    panic!("it takes too long");
}
