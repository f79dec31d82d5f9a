//! What is refused of handshakes that were begun.

use super::super::clients::Scribe;
use super::super::rig::{Rig, bundle_backend, home, listener, plain_setup};
use super::{ready, ready_with};
use crate::ids::ListenerId;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;

pub(super) fn challenge_forged(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    for at in [0, 8, 307] {
        let mut damaged = challenge;
        damaged[at] ^= 1;
        let response = scribe.packet(PacketKind::Response, 1, &damaged);
        rig.provokes(reason, |rig| rig.deliver(home(1), &response));
    }
    rig.deliver(home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
    assert_eq!(rig.sessions(), 1, "forged answers did no harm");
}

pub(super) fn challenge_foreign(reason: DropReason) {
    let (mut rig, _) = ready();
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    rig.deliver(home(1), &first.request());
    let of_first = first.challenge(&mut rig, home(1));
    rig.deliver(home(1), &second.request());
    let of_second = second.challenge(&mut rig, home(1));
    // The challenge of token A under the keys of token B: the reference lets A in here.
    let mixed = second.packet(PacketKind::Response, 1, &of_first);
    rig.provokes(reason, |rig| rig.deliver(home(1), &mixed));
    rig.deliver(home(1), &second.packet(PacketKind::Response, 2, &of_second));
    assert_eq!(rig.sessions(), 1);
}

/// Two handshakes that wait for their responses, and the responses.
fn two_waiting(rig: &mut Rig, ids: [u64; 2]) -> [Vec<u8>; 2] {
    [1, 2].map(|n| {
        let scribe = Scribe::new(&rig.token(ids[usize::from(n) - 1]));
        rig.deliver(home(n), &scribe.request());
        let challenge = scribe.challenge(rig, home(n));
        scribe.packet(PacketKind::Response, 1, &challenge)
    })
}

/// The second of two handshakes fails, because the first was completed before.
fn second_response(reason: DropReason, setup: Setup, ids: [u64; 2]) {
    let (mut rig, _) = ready_with(setup);
    let [first, second] = two_waiting(&mut rig, ids);
    rig.deliver(home(1), &first);
    rig.provokes(reason, |rig| rig.deliver(home(2), &second));
    assert_eq!(rig.sessions(), 1);
    let denials = rig.counters().packets_out[PacketKind::Denied as usize];
    assert_eq!(denials, u64::from(ids[0] != ids[1]));
}

pub(super) fn response_client_connected(reason: DropReason) {
    second_response(reason, plain_setup(), [1, 1]);
}

pub(super) fn response_backend_full(reason: DropReason) {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    second_response(reason, setup, [1, 2]);
}

pub(super) fn response_sessions_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].sessions_max = 1;
    second_response(reason, setup, [1, 2]);
    // The worker's own table can be full too.
    let mut setup = plain_setup();
    setup.worker_sessions_max = 1;
    second_response(reason, setup, [1, 2]);
}

pub(super) fn places_resting(reason: DropReason) {
    let mut setup = plain_setup();
    (setup.worker_sessions_max, setup.worker_spare_places_min) = (1, 0);
    let (mut rig, _) = ready_with(setup);
    for n in 1..3 {
        let scribe = Scribe::new(&rig.token(n));
        scribe.connect(&mut rig, home(1));
        rig.deliver(home(1), &scribe.disconnect(2));
    }
    let third = Scribe::new(&rig.token(3));
    rig.deliver(home(1), &third.request());
    let challenge = third.challenge(&mut rig, home(1));
    let response = third.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(home(1), &response));
    assert_eq!(third.kinds(&mut rig, home(1)), [PacketKind::Denied]);
    rig.jump(31_000);
    Scribe::new(&rig.token(4)).connect(&mut rig, home(1));
    assert_eq!(rig.sessions(), 1, "rested");
}

pub(super) fn response_backend_down(reason: DropReason) {
    let (mut rig, game) = ready();
    let [response, _] = two_waiting(&mut rig, [1, 2]);
    game.crash(&mut rig);
    rig.provokes(reason, |rig| rig.deliver(home(1), &response));
}
