//! Plain players of game processes on bundle links.

use super::super::games::{Game, Heard};
use super::super::rig::{OUR_USER, Rig, bundle_backend, home};
use super::plain_setup_with;
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PLAIN_BYTES_MAX;
use ringgate_link::bundle::{CloseReason, SessionId};

fn bundled() -> Setup {
    let mut setup = plain_setup_with(4, |_| {});
    setup.backends = vec![bundle_backend("arena", 4)].into();
    setup.listeners[ListenerId(0)].backends = vec![BackendId(0)];
    setup
}

/// A gate with one process behind it, and a player who has sent once.
fn begun() -> (Rig, Game, SessionId) {
    let mut rig = Rig::new(bundled());
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    rig.deliver(home(1), b"hello");
    let heard = game.hear(&mut rig);
    let [Heard::OpenedPlain(session, None), Heard::Payload(of, bytes)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!((of, &bytes[..]), (session, &b"hello"[..]));
    (rig, game, *session)
}

#[test]
fn a_process_hears_of_a_session_at_once_and_of_its_slot_when_it_opens() {
    let (mut rig, game, session) = begun();
    rig.deliver(home(1), b"again");
    assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"again".to_vec())]);
    game.say(&mut rig, |writer| writer.payload(session, b"welcome"));
    assert_eq!(rig.take_for(home(1)), [b"welcome"]);
    rig.deliver(home(1), b"thanks");
    assert_eq!(
        game.hear(&mut rig),
        [Heard::OpenedPlain(session, Some(0)), Heard::Payload(session, b"thanks".to_vec())]
    );
    let long = vec![7; PLAIN_BYTES_MAX];
    rig.deliver(home(1), &long);
    assert_eq!(game.hear(&mut rig), [Heard::Payload(session, long.clone())]);
    game.say(&mut rig, |writer| writer.payload(session, &long));
    assert_eq!(rig.take_for(home(1)), [long]);
}

#[test]
fn a_process_may_end_sessions_and_hears_when_they_end_by_themselves() {
    let (mut rig, game, session) = begun();
    game.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::Kicked)]);
    assert_eq!(rig.counters().pending, 0);
    game.say(&mut rig, |writer| writer.payload(session, b"late"));
    assert_eq!(rig.drops(DropReason::SessionUnknown), 1);
    let (mut rig, game, session) = begun();
    rig.pass(4100);
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::TimedOut)]);
}

#[test]
fn who_plays_is_announced_again_on_the_next_link() {
    let (mut rig, game, session) = begun();
    game.say(&mut rig, |writer| writer.payload(session, b"welcome"));
    rig.deliver(home(1), b"thanks");
    game.crash(&mut rig);
    rig.provokes(DropReason::LinkDown, |rig| rig.deliver(home(1), b"lost"));
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    rig.deliver(home(1), b"back");
    assert_eq!(
        game.hear(&mut rig),
        [Heard::OpenedPlain(session, Some(0)), Heard::Payload(session, b"back".to_vec())]
    );
    rig.pass(61_000);
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 1);
    assert!(game.hear(&mut rig).contains(&Heard::Closed(session, CloseReason::TimedOut)));
}

#[test]
fn a_process_of_an_older_library_gets_no_plain_players() {
    let mut rig = Rig::new(bundled());
    let game = Game::connect(&mut rig, OUR_USER);
    // Versions 1 to 2, no process id.
    game.push_bytes(&mut rig, &[15, 0, 16, 0, 1, 0, 0, 0, 0, 2, b'a', b'r', b'e', b'n', b'a']);
    rig.turn();
    assert!(matches!(game.hear(&mut rig)[..], [Heard::Welcome { version: 2, .. }]));
    rig.provokes(DropReason::RequestBackendDown, |rig| rig.deliver(home(1), b"hello"));
    assert_eq!(game.hear(&mut rig), []);
}
