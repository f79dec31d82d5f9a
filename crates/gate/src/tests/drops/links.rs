//! What goes no further between workers, game processes and players' sockets.

use super::super::clients::{Player, Scribe};
use super::super::games::Game;
use super::super::rig::{
    Fleet, OUR_USER, Rig, bundle_backend, endpoint, home, listener, plain_setup, udp_backend,
};
use super::{playing, playing_with, ready};
use crate::setup::Setup;
use ringgate_batch::{IoEvent, SendFailure, SocketId};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::Client;

pub(super) fn mailbox_full(reason: DropReason) {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let [owner, other] = &mut fleet.rigs[..] else { panic!("two workers") };
    let _game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(1));
    scribe.connect(owner, home(1));
    other.provokes(reason, |rig| {
        rig.deliver(home(1).with_port(6000), &scribe.payload(10, b"x"));
        rig.refuse_mail();
    });
}

pub(super) fn link_full(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.obstacles.push((game.link, SendFailure::Full));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(10, b"x")));
}

pub(super) fn link_down(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.obstacles.push((game.link, SendFailure::Gone));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(10, b"x")));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(11, b"x")));
}

pub(super) fn record_invalid(reason: DropReason) {
    for bytes in [&[1][..], &[3, 0, 1, 0], &[255, 255, 1, 0], &[4, 0, 99, 0], &vec![0; 20_000]] {
        let (mut rig, game) = ready();
        rig.provokes(reason, |rig| {
            game.push_bytes(rig, bytes);
            rig.turn();
        });
    }
}

pub(super) fn multicast_duplicate(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.provokes(reason, |rig| game.say(rig, |w| w.multicast(&[session, session], b"x")));
}

/// More than a turn takes, and the process is replaced before the next.
pub(super) fn link_ended(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    let successor = Game::connect(&mut rig, OUR_USER);
    rig.turn();
    rig.provokes(reason, |rig| {
        rig.host.notice(IoEvent::Closed { socket: game.link });
        game.push(rig, |w| (0..257).all(|_| w.payload(session, b"x")));
        successor.hello(rig, "arena");
    });
}

pub(super) fn session_unknown(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.deliver(home(1), &scribe.disconnect(10));
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"too late")));
    // One of another backend is as unknown as one that never was.
    let setup = Setup::new(
        vec![listener("eu", &[0, 1])],
        vec![bundle_backend("arena", 4), bundle_backend("other", 4)],
        1,
    );
    let (mut rig, game, _) = playing_with(setup);
    let session = game.guests(&mut rig)[0].session;
    let other = Game::join(&mut rig, "other");
    rig.provokes(reason, |rig| other.say(rig, |w| w.payload(session, b"not yours")));
}

pub(super) fn link_stranger(reason: DropReason) {
    let setup =
        Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", "127.0.0.1:7777", 4)], 1);
    let mut rig = Rig::new(setup);
    let mut player = Player::<Client>::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"up");
    let (address, _) = rig.take_udp().remove(0);
    let stranger = endpoint("127.0.0.1:7778");
    rig.provokes(reason, |rig| rig.answer_udp(stranger, address, b"let me in"));
    rig.provokes(reason, |rig| {
        rig.push_at(SocketId(500), stranger, b"on a socket that nobody has");
        rig.turn();
    });
}

pub(super) fn payload_length(reason: DropReason) {
    let setup =
        Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", "127.0.0.1:7777", 4)], 1);
    let mut rig = Rig::new(setup);
    let mut player = Player::<Client>::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"up");
    let (address, _) = rig.take_udp().remove(0);
    for len in [0, 1201, 5000] {
        let bytes = vec![0; len];
        rig.provokes(reason, |rig| rig.answer_udp(endpoint("127.0.0.1:7777"), address, &bytes));
    }
}

pub(super) fn sequence_exhausted(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.host.gate_mut().exhaust_sequence(session);
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"one too many")));
    // A keep-alive that cannot be sent is no payload that was dropped.
    rig.pass(1000);
    assert_eq!(rig.drops(reason), 1);
}

pub(super) fn send_buffer_full(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.obstacles.push((SocketId(1), SendFailure::Full));
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"x")));
}

pub(super) fn send_refused(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    for why in [SendFailure::Refused, SendFailure::Gone] {
        rig.obstacles = vec![(SocketId(1), why)];
        rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"x")));
    }
}
