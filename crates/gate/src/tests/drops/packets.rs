//! What is refused of datagrams and of the packets of sessions.

use super::super::clients::{Scribe, forged};
use super::super::rig::{home, netcode_rules, plain_setup};
use super::{playing, playing_with, ready};
use crate::ids::ListenerId;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;
use ringgate_core::proto::replay::Policy;

pub(super) fn empty(reason: DropReason) {
    for datagram in [&[][..], &[0], &[5]] {
        ready().0.provokes(reason, |rig| rig.deliver(home(1), datagram));
        playing().0.provokes(reason, |rig| rig.deliver(home(1), datagram));
    }
}

pub(super) fn too_long(reason: DropReason) {
    let (mut rig, ..) = playing();
    for datagram in [vec![0; DATAGRAM_BYTES_MAX + 1], vec![0x15; 40_000]] {
        for n in [1, 2] {
            rig.provokes(reason, |rig| rig.deliver(home(n), &datagram));
        }
    }
}

pub(super) fn unknown_source(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    for datagram in [&[5, 0][..], &[0x15; 18], &[0x45; 18], &[0x95; 1000], &[0x10; REQUEST_BYTES]] {
        rig.provokes(reason, |rig| rig.deliver(home(2), datagram));
    }
    rig.provokes(reason, |rig| rig.deliver(home(2), &scribe.payload(10, b"from elsewhere")));
}

pub(super) fn session_ended(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    rig.deliver(home(1), &scribe.disconnect(2));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.disconnect(3)));
}

pub(super) fn packet_length(reason: DropReason) {
    let (mut rig, ..) = playing();
    // The length counts before the type.
    for datagram in [&[0x15; 17][..], &[0x99; 2]] {
        rig.provokes(reason, |rig| rig.deliver(home(1), datagram));
    }
}

pub(super) fn packet_type(reason: DropReason) {
    let (mut rig, ..) = playing();
    for prefix in [0x11, 0x12, 0x17, 0x1f, 0x99] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[prefix; 40]));
    }
}

pub(super) fn sequence_length(reason: DropReason) {
    let (mut rig, ..) = playing();
    for prefix in [0x05, 0x95, 0xf5] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[prefix; 40]));
    }
}

pub(super) fn packet_truncated(reason: DropReason) {
    let (mut rig, ..) = playing();
    for len in 18..25 {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[0x85; 24][..len.min(24)]));
    }
}

pub(super) fn replay_duplicate(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    let packet = scribe.payload(10, b"once");
    rig.deliver(home(1), &packet);
    rig.provokes(reason, |rig| rig.deliver(home(1), &packet));
    // Both copies in one batch pass the first look; the second is caught after it was opened.
    let packet = scribe.payload(11, b"twice");
    rig.provokes(reason, |rig| {
        rig.push(home(1), &packet);
        rig.deliver(home(1), &packet);
    });
    assert_eq!(game.payloads(&mut rig), [&b"once"[..], b"twice"]);
}

pub(super) fn replay_too_old(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.deliver(home(1), &scribe.payload(300, b"newest"));
    rig.deliver(home(1), &scribe.payload(45, b"the oldest that is taken"));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(44, b"too old")));
    assert_eq!(game.payloads(&mut rig).len(), 2);
}

fn gap_setup() -> Setup {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).replay = Policy::new(512, 512).expect("UNet's");
    setup
}

pub(super) fn sequence_gap(reason: DropReason) {
    let (mut rig, game, scribe) = playing_with(gap_setup());
    rig.deliver(home(1), &scribe.payload(9 + 512, b"just in reach"));
    assert_eq!(game.payloads(&mut rig).len(), 1);
    let beyond = scribe.payload(9 + 512 + 513, b"beyond");
    rig.provokes(reason, |rig| rig.deliver(home(1), &beyond));
    assert_eq!(rig.sessions(), 0);
}

pub(super) fn packet_forged(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    for packet in [scribe.payload(10, b"x"), scribe.disconnect(10), scribe.keep_alive(1 << 60)] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &forged(packet)));
    }
    rig.deliver(home(1), &scribe.payload(10, b"x"));
    assert_eq!(game.payloads(&mut rig).len(), 1);

    let waiting = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &waiting.request());
    let challenge = waiting.challenge(&mut rig, home(2));
    let response = forged(waiting.packet(PacketKind::Response, 1, &challenge));
    rig.provokes(reason, |rig| rig.deliver(home(2), &response));
}

pub(super) fn body_length(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let bodies = [
        (PacketKind::Payload, 0),
        (PacketKind::KeepAlive, 7),
        (PacketKind::KeepAlive, 9),
        (PacketKind::Disconnect, 1),
        (PacketKind::Response, 307),
    ];
    for (sequence, (kind, len)) in (10..).zip(bodies) {
        let packet = scribe.packet(kind, sequence, &vec![0; len]);
        rig.provokes(reason, |rig| rig.deliver(home(1), &packet));
    }
    assert_eq!(rig.sessions(), 1);
}

pub(super) fn packet_unexpected(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let second_response = scribe.packet(PacketKind::Response, 10, &[0; 308]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &second_response));
    let request_with_sequence = scribe.packet(PacketKind::Request, 11, &[]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &request_with_sequence));

    let waiting = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &waiting.request());
    rig.provokes(reason, |rig| rig.deliver(home(2), &waiting.payload(1, b"too early")));
    // The second of two responses in one batch finds the handshake completed by the first.
    let challenge = waiting.challenge(&mut rig, home(2));
    rig.provokes(reason, |rig| {
        for sequence in [2, 3] {
            rig.push(home(2), &waiting.packet(PacketKind::Response, sequence, &challenge));
        }
        rig.turn();
    });
    assert_eq!(rig.sessions(), 2);
}

pub(super) fn port_switch_rate_limited(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.port_switches_per_block = 1;
    let (mut rig, _, scribe) = playing_with(setup);
    for (sequence, port) in [(10, 6000), (11, 6001)] {
        rig.deliver(home(1).with_port(port), &scribe.payload(sequence, b"x"));
    }
    assert_eq!(rig.counters().port_switches, 2, "what may come at once");
    let moved = home(1).with_port(6002);
    rig.provokes(reason, |rig| rig.deliver(moved, &scribe.payload(12, b"x")));
}

pub(super) fn port_switch_forged(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let moved = home(1).with_port(6000);
    rig.provokes(reason, |rig| rig.deliver(moved, &forged(scribe.payload(10, b"x"))));
}

pub(super) fn port_switch_stale(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let moved = home(1).with_port(6000);
    for sequence in [2, 9] {
        rig.provokes(reason, |rig| rig.deliver(moved, &scribe.payload(sequence, b"x")));
    }
}
