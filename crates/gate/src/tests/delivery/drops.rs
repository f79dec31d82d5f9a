//! Every reason for which only a listener that delivers messages refuses something, provoked.

use super::super::drops::OF_DELIVERY;
use super::player::{Player, messages, playing};
use crate::tests::games::Game;
use crate::tests::rig::Rig;
use ringgate_batch::{IoEvent, SendFailure};
use ringgate_core::delivery::Channel;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{self, SessionId};

/// What makes the gateway count the reason once.
type Case = fn(&mut Rig, &Game, &mut Player, SessionId);

const RELIABLE: bundle::Channel = bundle::Channel::Reliable(0);

const CASES: &[(DropReason, Case)] = &[
    (DropReason::DeliveryDeferred, |rig, game, player, _| {
        rig.host.notice(IoEvent::Closed { socket: game.link });
        player.lie(rig, b"what it says is not looked at");
    }),
    (DropReason::DeliveryLate, |rig, _, player, _| {
        player.lie(rig, &[0xf0, 0xff, 7, 0, 0, 0, 0, 0]);
        player.lie(rig, &[0xf0, 0xff, 3, 0, 0, 0, 0, 0]);
    }),
    (DropReason::DeliveryFault, |rig, _, player, _| player.lie(rig, b"?")),
    (DropReason::MessageNotTaken, |rig, game, player, _| {
        rig.obstacles.push((game.link, SendFailure::Full));
        player.end.send(Channel::Unreliable(0), b"x", None).expect("room");
        player.exchange(rig);
    }),
    (DropReason::MessageUnknown, |rig, game, _, session| {
        let other = SessionId::new(0, session.as_u64() ^ 1);
        game.send(rig, (other, RELIABLE), b"x", 0);
    }),
    (DropReason::MessageOverflow, |rig, game, _, session| {
        (0..5).for_each(|_| game.send(rig, (session, RELIABLE), &vec![7; 60_000], 0));
    }),
];

#[test]
fn every_reason_of_a_listener_that_delivers_is_provoked() {
    for (reason, provoke) in CASES {
        let (mut rig, game, mut player, session) = playing();
        rig.provokes(*reason, |rig| provoke(rig, &game, &mut player, session));
    }
    assert!(CASES.iter().map(|(reason, _)| reason).eq(OF_DELIVERY));
}

/// An agent says so where its own queue for the process is long.
#[test]
fn messages_wait_for_the_room_of_an_agents_link() {
    let (mut rig, game, mut player, session) = playing();
    // The gate stays in this process: to the next one the agent says so anew.
    let _claims = std::sync::Arc::clone(&rig.host.gate().common.claims);
    game.say(&mut rig, |writer| writer.crowded(true));
    player.end.send(Channel::Reliable(0), b"x", None).expect("room");
    let says = |rig: &mut Rig, player: &mut Player| {
        player.live(rig, 500);
        messages(&game, rig)
    };
    assert!(says(&mut rig, &mut player).is_empty());
    // What is said to the player leaves.
    game.send(&mut rig, (session, RELIABLE), b"y", 0);
    player.live(&mut rig, 50);
    assert_eq!(player.messages.len(), 1);
    game.say(&mut rig, |writer| writer.crowded(false));
    assert_eq!(says(&mut rig, &mut player), [b"x"]);
}
