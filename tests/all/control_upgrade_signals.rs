//! Signals that reach a gateway while it is handed over: whoever has the gateway in the end obeys
//! them.

use ringgate_process::handover::Message;

use crate::control_rig::{Game, KEY_HEX, Player, wait_for};
use crate::upgrade_rig::{Line, is_like, is_root, pass_changed, pass_until, text};

/// What the log says of a reload.
const RELOADED: &str = "the config was read again";

#[test]
fn a_reload_that_comes_while_the_gateway_is_handed_over_is_done_by_the_next_process() {
    if !is_root() {
        return;
    }
    // While it prepares, while the state is copied, behind the barrier, and when it is too late for
    // the process that was told.
    for moment in [Message::hello(), Message::Prepared, Message::Read, Message::Taken] {
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
            if is_like(heard, &moment) && !std::mem::replace(&mut is_told, true) {
                line.daemon.signal("HUP");
            }
            // The relay is not needed any more when the latencies have gone over.
            matches!(heard, Message::Recorded { .. })
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
    for moment in [Message::hello(), Message::Prepared, Message::Read, Message::Taken] {
        let mut line = Line::start(&text("mmsg"));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut player = Player::connected(line.daemon.listener, 1, KEY_HEX);
        let (mut successor, its) = line.successor();
        let gateway = line.connect();
        pass_until(&its, &gateway, |heard| is_like(heard, &moment));
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

#[test]
fn a_gateway_that_is_told_to_end_meanwhile_leaves_nobody_behind() {
    if !is_root() {
        return;
    }
    // Nobody plays, so the drain is over at once. With the second signal nothing waits for it.
    for (moment, is_twice) in [
        (Message::hello(), false),
        (Message::Prepared, false),
        (Message::Prepared, true),
        (Message::Read, false),
    ] {
        let mut line = Line::start(&text("mmsg"));
        let (mut successor, its) = line.successor();
        line.heirs.push(successor.id());
        let gateway = line.connect();
        pass_until(&its, &gateway, |heard| is_like(heard, &moment));
        line.daemon.signal("TERM");
        if is_twice {
            line.daemon.signal("INT");
        }
        pass_changed(&its, &gateway, |packet| packet);
        assert_eq!(line.daemon.ended(), Some(0), "{moment:?}: {}", line.daemon.log());
        let ended = wait_for("the successor's end", || successor.try_wait().expect("our child"));
        let log = line.log("successor.log");
        assert_eq!(ended.code(), Some(1), "{moment:?}: {log}");
        assert!(log.contains("a signal has begun that"), "{moment:?}: {log}");
    }
}

#[test]
fn a_reload_that_has_waited_for_a_hand_over_is_answered_when_that_succeeds() {
    if !is_root() {
        return;
    }
    let mut line = Line::start(&text("mmsg"));
    let (successor, its) = line.successor();
    line.heirs.push(successor.id());
    let gateway = line.connect();
    std::thread::scope(|scope| {
        let daemon = &line.daemon;
        let mut asked = None;
        pass_until(&its, &gateway, |heard| {
            if *heard == Message::Prepared && asked.is_none() {
                asked = Some(scope.spawn(|| daemon.post("/reload")));
                let is_asked = || daemon.log().contains("asks for a reload").then_some(());
                wait_for("the request", is_asked);
            }
            matches!(heard, Message::Recorded { .. })
        });
        let answer = asked.expect("it has prepared").join().expect("an answer");
        assert_eq!((answer.status, &*answer.body), (503, "stopping\n"));
    });
    assert_eq!(line.pid(), successor.id());
}
