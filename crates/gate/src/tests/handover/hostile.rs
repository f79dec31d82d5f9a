//! Streams that are not what a gate has written.

use super::super::clients::{Player, Scribe};
use super::super::games::Game;
use super::super::rig::{Rig, home, listener, plain_setup};
use super::super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_setup};
use super::{STREAM_BYTES, rehearse};
use crate::gate::Gate;
use crate::handover::{Format, Kept};
use crate::ids::ListenerId;
use crate::now::Now;
use crate::rehearsal::{Rehearsal, succeed};
use crate::setup::Setup;
use ringgate_link::bundle::VERSION_MAX;
use std::sync::Arc;

/// A gate with a player, a handshake, a link and a place that rests.
fn lively() -> Rig {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let _stays = Player::connected(&mut rig, home(1), 1);
    Player::connected(&mut rig, home(2), 2).leave(&mut rig);
    let asks = Scribe::new(&rig.token(3));
    rig.deliver(home(3), &asks.request());
    game.hear(&mut rig);
    rig
}

fn try_streams(streams: &[Vec<u8>], gate: &Gate, now: Now) -> Result<(), String> {
    let setup = Arc::clone(&gate.common.setup);
    let mut successor = succeed(&streams[0], &[&streams[1]], &[gate], &setup, now)?;
    // What was read can be played with.
    let gate = &mut successor.gates[0];
    let _ = gate.sessions().count();
    gate.poll_timeout();
    Ok(())
}

#[test]
fn a_stream_that_is_cut_off_is_refused() {
    let rig = lively();
    let setup = Arc::clone(&rig.host.gate().common.setup);
    let (streams, _) = rehearse(&[rig.host.gate()], &setup, rig.now);
    for which in 0..2 {
        for len in (0..streams[which].len()).step_by(7).chain([streams[which].len() - 1]) {
            let mut streams = streams.clone();
            streams[which].truncate(len);
            let read = try_streams(&streams, rig.host.gate(), rig.now);
            assert!(read.is_err(), "{len} bytes of stream {which}");
        }
    }
}

#[test]
fn no_byte_that_is_wrong_makes_a_gate_panic() {
    let rig = lively();
    let mut arena = Arena::new(unreal_setup(1), 1);
    UnrealPlayer::connected(&mut arena, 1);
    let unreal = &arena.fleet.rigs[0];
    for rig in [&rig, unreal] {
        let setup = Arc::clone(&rig.host.gate().common.setup);
        let (streams, _) = rehearse(&[rig.host.gate()], &setup, rig.now);
        for which in 0..2 {
            let step = (streams[which].len() / 300).max(1);
            for at in (0..streams[which].len()).step_by(step) {
                for value in [0, 0xff, streams[which][at] ^ 1] {
                    let mut streams = streams.clone();
                    streams[which][at] = value;
                    let _ = try_streams(&streams, rig.host.gate(), rig.now);
                }
            }
        }
    }
}

/// What is said of streams after a change to one of them.
fn said_of(change: impl FnOnce(&mut [Vec<u8>])) -> String {
    let rig = lively();
    let setup = Arc::clone(&rig.host.gate().common.setup);
    let (mut streams, _) = rehearse(&[rig.host.gate()], &setup, rig.now);
    change(&mut streams);
    try_streams(&streams, rig.host.gate(), rig.now).expect_err("it is not as it was written")
}

#[test]
fn a_stream_that_is_not_this_releases_or_not_this_workers_is_refused_by_name() {
    const VERSION_AT: usize = 8;
    for which in 0..2 {
        let said = said_of(|streams| streams[which][VERSION_AT] = 2);
        assert_eq!(
            said,
            "the state is in version 2 of its format, and this release reads version 1"
        );
        let said = said_of(|streams| streams[which][0] = b'X');
        assert_eq!(said, "what should be the state is none");
    }
    // The order in which they come is not to be trusted.
    let said = said_of(|streams| streams.swap(0, 1));
    assert_eq!(said, "the state is another worker's");
    let said = said_of(|streams| {
        streams[1].pop();
    });
    assert_eq!(said, "the record of the worker's state cannot be read: it ends too soon");
    let said = said_of(|streams| streams[1].extend([0x23, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(said, "the state has records of an unknown kind, 291");
    // Another boot's moments mean nothing here.
    let gate_of = Format::of(&plain_setup(), 1, [8; 16]);
    let said = gate_of.compatible(&Format::of(&plain_setup(), 1, [7; 16]), &Kept::new());
    assert_eq!(
        said.err().as_deref(),
        Some("the running process's state is of another boot of the host")
    );
}

#[test]
fn a_link_whose_version_is_a_later_releases_is_refused_by_name() {
    let mut rig = lively();
    let links = &mut rig.host.gate_mut().common.links;
    links.all.iter_mut().flatten().for_each(|link| link.version = VERSION_MAX + 1);
    let setup = Arc::clone(&rig.host.gate().common.setup);
    let read = Rehearsal::new(1, STREAM_BYTES).finish(&[rig.host.gate()], &setup, rig.now);
    let said = read.err().expect("it is not spoken here");
    assert!(said.contains("version of a link"), "{said}");
}

#[test]
fn a_gate_that_has_something_to_give_is_not_handed_over() {
    let mut rig = lively();
    rig.host.gate_mut().common.life.in_turn = true;
    let written = Rehearsal::new(1, STREAM_BYTES).write_rest(&[rig.host.gate()]);
    assert_eq!(written, Err("the worker has not come to rest".to_owned()));
    rig.host.gate_mut().common.life.in_turn = false;
    assert_eq!(Rehearsal::new(1, STREAM_BYTES).write_rest(&[rig.host.gate()]), Ok(()));
}

#[test]
fn a_process_that_differs_too_much_says_why() {
    let rig = lively();
    let why = |change: fn(&mut Setup)| {
        let mut setup = plain_setup();
        change(&mut setup);
        let finished =
            Rehearsal::new(1, STREAM_BYTES).finish(&[rig.host.gate()], &Arc::new(setup), rig.now);
        finished.err().expect("it is refused")
    };
    let said = why(|setup| setup.incarnation += 1);
    assert_eq!(said, "incarnation: the running process has 77, this one 78");
    let said = why(|setup| setup.worker_sessions_max = 7);
    assert!(said.contains("sessions of a worker: the running process has 100, this one only 7"));
    let said = why(|setup| {
        setup.listeners = vec![listener("eu", &[0])].into();
        super::super::rig::netcode_rules(setup).protocol_id = 9;
        setup.listeners[ListenerId(0)].sessions_max = 5;
    });
    assert!(said.starts_with("the rules of listener \"eu\": "), "{said}");
}
