//! Sessions that a game process closes after delivery: what was sent before arrives, as far as
//! there is time, and everybody hears what became of it.

use std::sync::Arc;

use super::RELIABLE;
use super::player::{Player, delivering, long_message, not_heard_yet, playing};
use crate::counters::Ended;
use crate::mail::Mail;
use crate::survey::{Survey, Wanted};
use crate::tests::clients::Library;
use crate::tests::games::{Game, Heard};
use crate::tests::rig::{OUR_USER, Rig, home, plain_setup};
use ringgate_core::delivery::{Channel, Options};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{
    self, CloseAfter, CloseReason, Goodbye, GoodbyeReason, Hello, LINGER_MS_MAX, RecordError,
    SessionId,
};

/// A gate with a game process and a player of today's client library.
fn playing_today() -> (Rig, Game, Player, SessionId) {
    let mut rig = Rig::new(delivering());
    let game = Game::join(&mut rig, "arena");
    let options = Options { takes_farewell: true, ..Options::default() };
    let mut player = Player::connected_with(&mut rig, 1, &options);
    player.live(&mut rig, 50);
    let session = rig.session_at(home(1));
    game.hear(&mut rig);
    (rig, game, player, session)
}

fn close_after(rig: &mut Rig, game: &Game, session: SessionId, linger_ms: u32) {
    let (reason, text) = (CloseReason::Kicked, &b"be nice"[..]);
    game.say(rig, |writer| writer.close_after(&CloseAfter { session, reason, linger_ms, text }));
}

/// Sixty reliable messages and the end, in one turn.
fn say_sixty_and_close(rig: &mut Rig, game: &Game, session: SessionId) {
    for n in 0..60 {
        game.send(rig, (session, RELIABLE), &long_message(1 + 50 * usize::from(n), n), 0);
    }
    close_after(rig, game, session, 20_000);
}

fn has_all_sixty(player: &Player) -> bool {
    let sent = (0..60).map(|n| (Channel::Reliable(0), long_message(1 + 50 * usize::from(n), n)));
    player.messages.iter().cloned().eq(sent)
}

fn closed_by(rig: &Rig, why: Ended) -> u64 {
    rig.counters().sessions_closed[why as usize]
}

#[test]
fn all_that_was_sent_before_arrives_and_the_player_is_told_why() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 4;
    say_sixty_and_close(&mut rig, &game, session);
    assert_eq!(rig.sessions(), 1);
    player.live(&mut rig, 5000);
    assert!(has_all_sixty(&player), "{} of 60", player.messages.len());
    assert_eq!(player.end.farewell(), Some((CloseReason::Kicked.as_u8(), &b"be nice"[..])));
    let told = [Heard::Lingered(session, 0, true), Heard::Closed(session, CloseReason::Kicked)];
    assert_eq!(game.hear(&mut rig), told);
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::ByBackend)), (0, 1));
    assert_eq!(rig.counters().messages_undelivered, 0);
}

#[test]
fn an_earlier_client_gets_everything_and_no_farewell() {
    let (mut rig, game, mut player, session) = playing();
    player.loses_every = 5;
    say_sixty_and_close(&mut rig, &game, session);
    player.live(&mut rig, 5000);
    assert!(has_all_sixty(&player), "{} of 60", player.messages.len());
    assert_eq!(player.end.farewell(), None);
    let told = [Heard::Lingered(session, 0, false), Heard::Closed(session, CloseReason::Kicked)];
    assert_eq!(game.hear(&mut rig), told);
}

#[test]
fn what_has_not_arrived_in_time_is_told_and_counted() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 1;
    for n in 0..3 {
        game.send(&mut rig, (session, RELIABLE), &long_message(1000, n), u64::from(n) + 1);
    }
    close_after(&mut rig, &game, session, 700);
    player.live(&mut rig, 600);
    assert_eq!(rig.sessions(), 1);
    player.live(&mut rig, 200);
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::LingerExpired)), (0, 1));
    assert_eq!(rig.counters().messages_undelivered, 3);
    let mut heard = game.hear(&mut rig);
    assert_eq!(heard.pop(), Some(Heard::Closed(session, CloseReason::Kicked)));
    assert_eq!(heard.pop(), Some(Heard::Lingered(session, 3000, false)));
    assert_eq!(heard, [1, 2, 3].map(|token| Heard::Report(session, token, false)));
}

#[test]
fn no_game_process_can_have_a_session_linger_longer_than_the_most() {
    for linger_ms in [LINGER_MS_MAX, u32::MAX] {
        let (mut rig, game, player, session) = playing_today();
        game.send(&mut rig, (session, RELIABLE), b"x", 0);
        close_after(&mut rig, &game, session, linger_ms);
        // The token's timeout ends it before, or the time does.
        drop(player);
        rig.pass(u64::from(LINGER_MS_MAX) + 100);
        assert_eq!((rig.sessions(), rig.counters().messages_undelivered), (0, 1));
    }
}

#[test]
fn nothing_more_is_taken_and_the_next_word_can_only_hurry() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 1;
    game.send(&mut rig, (session, RELIABLE), b"before", 0);
    close_after(&mut rig, &game, session, 1000);
    rig.provokes(DropReason::MessageUnknown, |rig| {
        game.send(rig, (session, RELIABLE), b"after", 0);
    });
    rig.provokes(DropReason::SessionUnknown, |rig| {
        game.say(rig, |writer| writer.payload(session, b"after"));
    });
    close_after(&mut rig, &game, session, 20_000);
    player.live(&mut rig, 500);
    close_after(&mut rig, &game, session, 100);
    player.live(&mut rig, 50);
    assert_eq!(rig.sessions(), 1);
    player.live(&mut rig, 100);
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::LingerExpired)), (0, 1));

    let (mut rig, game, _, session) = playing_today();
    game.send(&mut rig, (session, RELIABLE), b"before", 0);
    close_after(&mut rig, &game, session, 20_000);
    game.say(&mut rig, |writer| writer.close(session, CloseReason::Finished));
    let told = [Heard::Lingered(session, 6, false), Heard::Closed(session, CloseReason::Finished)];
    assert_eq!(game.hear(&mut rig), told);
    assert_eq!((rig.sessions(), rig.counters().messages_undelivered), (0, 1));
}

#[test]
fn what_the_player_still_says_comes_and_its_leaving_ends_it() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 1;
    game.send(&mut rig, (session, RELIABLE), b"lost", 0);
    close_after(&mut rig, &game, session, 20_000);
    player.end.send(Channel::Reliable(7), b"but why", None).expect("there is room");
    player.live(&mut rig, 50);
    let said = Heard::Message(session, bundle::Channel::Reliable(7), b"but why".to_vec());
    assert_eq!(game.hear(&mut rig), [said]);
    player.raw.leave(&mut rig);
    let told =
        [Heard::Lingered(session, 4, false), Heard::Closed(session, CloseReason::PlayerLeft)];
    assert_eq!(game.hear(&mut rig), told);
    assert_eq!(closed_by(&rig, Ended::ByPlayer), 1);
}

#[test]
fn it_needs_its_game_process_no_more() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 3;
    say_sixty_and_close(&mut rig, &game, session);
    game.crash(&mut rig);
    // Another process has the name, which has nothing to do with it.
    let next = Game::join(&mut rig, "arena");
    player.end.send(Channel::Reliable(7), b"to no one", None).expect("there is room");
    player.live(&mut rig, 5000);
    assert!(has_all_sixty(&player), "{} of 60", player.messages.len());
    assert!(player.end.farewell().is_some());
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::ByBackend)), (0, 1));
    assert_eq!(rig.drops(DropReason::MessageNotTaken), 1);
    let heard = next.hear(&mut rig);
    assert!(matches!(heard[..], [Heard::Welcome { .. }]), "{heard:?}");
}

#[test]
fn a_drain_leaves_it_its_time() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 4;
    say_sixty_and_close(&mut rig, &game, session);
    rig.mail(Mail::Drain { left_ms: 10_000 });
    rig.turn();
    player.live(&mut rig, 5000);
    assert!(has_all_sixty(&player), "{} of 60", player.messages.len());
    let told = [
        Heard::Draining(10_000),
        Heard::Lingered(session, 0, true),
        Heard::Closed(session, CloseReason::Kicked),
    ];
    assert_eq!(game.hear(&mut rig), told);
}

#[test]
fn an_operator_and_the_end_of_the_gateway_end_it_at_once() {
    let kick = || Arc::new(Survey::new(Wanted::default(), Some(Ended::ByOperator), 0, 1));
    for (mail, why, reason) in [
        (Mail::Survey(kick()), Ended::ByOperator, CloseReason::Operator),
        (Mail::Stop, Ended::Shutdown, CloseReason::Shutdown),
    ] {
        let (mut rig, game, mut player, session) = playing_today();
        player.loses_every = 1;
        game.send(&mut rig, (session, RELIABLE), b"lost", 0);
        close_after(&mut rig, &game, session, 20_000);
        player.live(&mut rig, 50);
        rig.mail(mail);
        rig.turn();
        let mut heard = game.hear(&mut rig);
        heard.truncate(2);
        assert_eq!(heard, [Heard::Lingered(session, 4, false), Heard::Closed(session, reason)]);
        assert_eq!((rig.sessions(), closed_by(&rig, why)), (0, 1));
        assert_eq!(rig.counters().messages_undelivered, 1);
        player.raw.exchange(&mut rig);
        assert!(player.raw.library.is_over(), "the player is told");
    }
}

#[test]
fn it_goes_on_in_the_next_process() {
    let (mut rig, game, mut player, session) = playing_today();
    player.loses_every = 4;
    say_sixty_and_close(&mut rig, &game, session);
    for _ in 0..10 {
        rig.hand_over();
        player.live(&mut rig, 30);
    }
    player.live(&mut rig, 5000);
    assert!(has_all_sixty(&player), "{} of 60", player.messages.len());
    assert!(player.end.farewell().is_some());
    let told = [Heard::Lingered(session, 0, true), Heard::Closed(session, CloseReason::Kicked)];
    assert_eq!(game.hear(&mut rig), told);

    // The time that is left goes along, and so does what is known of a player who is quiet.
    let (mut rig, game, mut player, session) = playing_today();
    rig.hand_over();
    player.loses_every = 1;
    close_after(&mut rig, &game, session, 1000);
    player.live(&mut rig, 500);
    rig.hand_over();
    player.live(&mut rig, 600);
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::LingerExpired)), (0, 1));
}

#[test]
fn where_nothing_is_delivered_it_is_over_at_once() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    crate::tests::clients::Player::connected(&mut rig, home(1), 1);
    let session = rig.session_at(home(1));
    game.hear(&mut rig);
    close_after(&mut rig, &game, session, 20_000);
    assert_eq!(game.hear(&mut rig), [Heard::Closed(session, CloseReason::Kicked)]);
    assert_eq!((rig.sessions(), closed_by(&rig, Ended::ByBackend)), (0, 1));
}

#[test]
fn a_player_who_does_not_know_yet_that_it_is_connected_is_waited_for_and_not_longer() {
    for answers in [false, true] {
        let (mut rig, game, scribe, session) = not_heard_yet();
        close_after(&mut rig, &game, session, 1000);
        rig.pass(500);
        assert_eq!(rig.sessions(), 1);
        if answers {
            // The first packet of an earlier client's end, which has nothing to say.
            rig.deliver(home(1), &scribe.payload(2, &[0xf0, 0xff, 3, 0, 0, 0, 0, 0]));
            let told =
                [Heard::Lingered(session, 0, false), Heard::Closed(session, CloseReason::Kicked)];
            assert_eq!(game.hear(&mut rig), told);
        } else {
            rig.pass(600);
            assert_eq!(closed_by(&rig, Ended::LingerExpired), 1);
        }
        assert_eq!(rig.sessions(), 0);
    }
}

#[test]
fn a_text_that_is_too_long_ends_the_link_and_an_earlier_link_has_no_such_word() {
    let (mut rig, game, _, session) = playing_today();
    let body_bytes = 8 + 1 + 4 + 201;
    let mut record = vec![body_bytes as u8 + 4, 0, 145, 0];
    record.extend(session.as_u64().to_le_bytes());
    record.extend([CloseReason::Kicked.as_u8(), 0, 0, 0, 0]);
    record.extend([b'x'; 201]);
    game.push_bytes(&mut rig, &record);
    rig.turn();
    let error = Some(RecordError::FarewellLength);
    let goodbye = Goodbye { reason: GoodbyeReason::RecordInvalid, error };
    assert_eq!(game.hear(&mut rig), [Heard::Goodbye(goodbye)]);

    let mut rig = Rig::new(delivering());
    let game = Game::connect(&mut rig, OUR_USER);
    let hello = Hello { version_max: 4, ..Hello::new(1, "arena") };
    game.say(&mut rig, |writer| writer.hello(&hello));
    Player::connected(&mut rig, 1);
    let session = rig.session_at(home(1));
    game.hear(&mut rig);
    close_after(&mut rig, &game, session, 0);
    assert_eq!((game.hear(&mut rig), rig.sessions()), (vec![], 1));
}
