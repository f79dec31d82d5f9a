//! Players who are moved from one game process to another.

mod delivery;
mod meetings;
mod orders;
mod unheard;

use super::clients::{Player, Scribe};
use super::games::{Game, Heard, Offer};
use super::rig::{
    OUR_USER, Rig, bundle_backend, endpoint, home, listener, netcode_rules, udp_backend,
};
use crate::ids::BackendId;
use crate::links::loopback::loopback_of;
use crate::mail::Mail;
use crate::moves::MoveOrder;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::Client;
use ringgate_link::bundle::{
    Answer, CloseReason, Hello, MOVE_BYTES_MAX, Move, MoveRefusal, SessionId,
};
use std::sync::Arc;

/// A listener whose players come to the lobby, and may be moved to the arena and the small one.
fn zones() -> Setup {
    let backends = vec![
        bundle_backend("lobby", 80),
        bundle_backend("arena", 80),
        bundle_backend("small", 1),
        udp_backend("old", "127.0.0.1:7777", 4),
        bundle_backend("elsewhere", 4),
    ];
    let mut setup = Setup::new(vec![listener("eu", &[0])], backends, 77);
    netcode_rules(&mut setup).moves = [0, 1, 2, 3].map(BackendId).to_vec();
    setup
}

const ARENA: BackendId = BackendId(1);

/// A gate, the lobby with a player, and the arena.
fn two_zones() -> (Rig, [Game; 2], Player<Client>, SessionId) {
    two_zones_of(zones())
}

fn two_zones_of(setup: Setup) -> (Rig, [Game; 2], Player<Client>, SessionId) {
    let mut rig = Rig::new(setup);
    let games = ["lobby", "arena"].map(|name| Game::join(&mut rig, name));
    let player = Player::connected(&mut rig, home(1), 1);
    let session = rig.session_at(home(1));
    for game in &games {
        game.hear(&mut rig);
    }
    (rig, games, player, session)
}

fn wanted(session: SessionId) -> Move<'static> {
    let (backend, data) = ("arena", &b"level 3"[..]);
    Move { session, backend, ticket: 7, time_ms: 500, confirms: false, message: None, data }
}

/// A process asks for a move of one of its players; what the other one is offered.
fn offered(rig: &mut Rig, [lobby, arena]: &[Game; 2], asked: &Move<'_>) -> Offer {
    lobby.say(rig, |writer| writer.move_session(asked));
    let heard = arena.news(rig);
    let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
    offer.clone()
}

fn say_yes(rig: &mut Rig, arena: &Game, offer: &Offer) {
    arena.say(rig, |writer| writer.answer(offer.session, offer.number, Answer::Yes));
}

fn players(rig: &Rig) -> [u32; 2] {
    [0, 1].map(|backend| rig.host.gate().common.claims.players(BackendId(backend)))
}

fn refused(rig: &Rig, why: MoveRefusal) -> u64 {
    rig.counters().moves_refused[why as usize]
}

#[test]
fn a_player_is_offered_goes_over_and_plays_on() {
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &wanted(session));
    let Offer { ticket, client_id, slot, delivers, from, data, .. } = &offer;
    assert_eq!((*ticket, *client_id, *slot, *delivers), (7, 1, 0, false));
    assert_eq!((from.as_str(), &data[..]), ("lobby", &b"level 3"[..]));
    assert_eq!(players(&rig), [1, 1], "a slot is kept");

    // Until the cut the player plays on, and is nobody else's.
    player.send(&mut rig, b"before");
    lobby.say(&mut rig, |writer| writer.payload(session, b"lobby"));
    rig.provokes(DropReason::SessionUnknown, |rig| {
        arena.say(rig, |writer| writer.payload(session, b"not yet"));
    });
    player.receive(&mut rig);
    assert_eq!(player.got.pop(), Some(b"lobby".to_vec()));
    assert_eq!(lobby.payloads(&mut rig), [b"before"]);

    say_yes(&mut rig, arena, &offer);
    assert_eq!(lobby.news(&mut rig), [Heard::Moved(session, 7)]);
    let guests = arena.guests(&mut rig);
    assert_eq!((guests.len(), guests[0].session, guests[0].ticket), (1, session, Some(7)));
    assert_eq!((guests[0].slot, players(&rig)), (0, [0, 1]));
    player.send(&mut rig, b"after");
    assert_eq!(
        (lobby.payloads(&mut rig).len(), arena.payloads(&mut rig)),
        (0, vec![b"after".to_vec()])
    );
    rig.provokes(DropReason::AfterMove, |rig| {
        lobby.say(rig, |writer| writer.payload(session, b"late"));
    });
    arena.say(&mut rig, |writer| writer.payload(session, b"arena"));
    player.receive(&mut rig);
    assert_eq!(player.got, [b"arena"]);
    lobby.say(&mut rig, |writer| writer.confirm(session));
    rig.provokes(DropReason::SessionUnknown, |rig| {
        lobby.say(rig, |writer| writer.payload(session, b"its own fault"));
    });
    let moves: Vec<_> = rig.host.gate().backend_moves().collect();
    assert_eq!((moves[0].moved_out, moves[1].moved_in, rig.counters().moves), (1, 1, 1));

    // And back, and out.
    let back = Move { backend: "lobby", ticket: 8, ..wanted(session) };
    let [lobby, arena] = games;
    let offer = offered(&mut rig, &[arena, lobby], &back);
    assert_eq!(offer.from, "arena");
}

#[test]
fn nobody_is_moved_against_a_rule_and_each_has_its_name() {
    let (mut rig, games, _player, session) = two_zones();
    let [lobby, arena] = &games;
    let try_move = |rig: &mut Rig, asked: &Move<'_>| {
        lobby.say(rig, |writer| writer.move_session(asked));
        let heard = lobby.news(rig);
        let [Heard::MoveRefused(_, 7, why)] = heard[..] else { panic!("{heard:?}") };
        why
    };
    let to = |backend| Move { backend, ..wanted(session) };
    assert_eq!(try_move(&mut rig, &to("nobody")), MoveRefusal::NoSuchBackend);
    assert_eq!(try_move(&mut rig, &to("lobby")), MoveRefusal::Itself);
    assert_eq!(try_move(&mut rig, &to("elsewhere")), MoveRefusal::NotAllowed);
    assert_eq!(try_move(&mut rig, &to("old")), MoveRefusal::Front);
    assert_eq!(try_move(&mut rig, &to("small")), MoveRefusal::NotLinked);
    let stranger = Move { session: SessionId::new(0, 99), ..wanted(session) };
    assert_eq!(try_move(&mut rig, &stranger), MoveRefusal::SessionOver);
    let message = Some((ringgate_link::bundle::Channel::Reliable(0), &b"door"[..]));
    let spoken = Move { message, ..wanted(session) };
    assert_eq!(try_move(&mut rig, &spoken), MoveRefusal::Front, "nobody delivers messages here");

    let old = Game::connect(&mut rig, OUR_USER);
    old.say(&mut rig, |writer| writer.hello(&Hello { version_max: 5, ..Hello::new(1, "small") }));
    assert_eq!(try_move(&mut rig, &to("small")), MoveRefusal::Version);
    old.crash(&mut rig);
    let small = Game::join(&mut rig, "small");
    small.say(&mut rig, |writer| writer.intake(false));
    assert_eq!(try_move(&mut rig, &to("small")), MoveRefusal::Closed);
    small.say(&mut rig, |writer| writer.intake(true));
    lobby.say(&mut rig, |writer| writer.move_session(&to("small")));
    assert_eq!(try_move(&mut rig, &to("small")), MoveRefusal::Busy);
    assert_eq!(try_move(&mut rig, &wanted(session)), MoveRefusal::Busy);
    let mut other = Player::connected(&mut rig, home(2), 2);
    let second = rig.session_at(home(2));
    lobby.hear(&mut rig);
    let asked = Move { session: second, ..to("small") };
    assert_eq!(try_move(&mut rig, &asked), MoveRefusal::Full, "the slot is kept for the first");

    // Another process's player.
    arena
        .say(&mut rig, |writer| writer.move_session(&Move { backend: "lobby", ..wanted(session) }));
    assert_eq!(arena.news(&mut rig), [Heard::MoveRefused(session, 7, MoveRefusal::SessionOver)]);
    rig.mail(Mail::Drain { left_ms: 1000 });
    rig.turn();
    lobby.hear(&mut rig);
    assert_eq!(
        try_move(&mut rig, &Move { session: second, ..wanted(session) }),
        MoveRefusal::Closed
    );
    other.leave(&mut rig);
}

#[test]
fn an_offer_ends_by_name_and_its_slot_is_free_again() {
    let answers = [
        (Answer::No, MoveRefusal::Denied),
        (Answer::Full, MoveRefusal::Full),
        (Answer::Cannot, MoveRefusal::Front),
    ];
    for (answer, why) in answers {
        let (mut rig, games, _player, session) = two_zones();
        let offer = offered(&mut rig, &games, &wanted(session));
        games[1].say(&mut rig, |writer| writer.answer(session, offer.number, answer));
        assert_eq!(games[0].news(&mut rig), [Heard::MoveRefused(session, 7, why)]);
        assert_eq!((players(&rig), refused(&rig, why)), ([1, 0], 1));
    }
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &wanted(session));
    player.live(&mut rig, 490);
    assert_eq!((lobby.news(&mut rig), arena.news(&mut rig)), (vec![], vec![]));
    player.live(&mut rig, 20);
    let over = Heard::OfferOver(session, offer.number, MoveRefusal::Time);
    assert_eq!(arena.news(&mut rig), [over]);
    assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, MoveRefusal::Time)]);
    rig.provokes(DropReason::OfferUnknown, |rig| say_yes(rig, arena, &offer));
    assert_eq!((players(&rig), rig.sessions()), ([1, 0], 1));
    // A later offer of the same player is another one.
    let again = offered(&mut rig, &games, &wanted(session));
    rig.provokes(DropReason::OfferUnknown, |rig| say_yes(rig, arena, &offer));
    rig.provokes(DropReason::OfferUnknown, |rig| say_yes(rig, lobby, &again));
    say_yes(&mut rig, arena, &again);
    assert_eq!(arena.guests(&mut rig).len(), 1);
}

#[test]
fn at_most_64_players_are_offered_to_a_backend_and_nobody_is_over_its_slots() {
    let mut rig = Rig::new(zones());
    let [lobby, arena] = ["lobby", "arena"].map(|name| Game::join(&mut rig, name));
    for n in 1..=70 {
        Scribe::new(&rig.token(n.into())).connect(&mut rig, home(n));
    }
    lobby.hear(&mut rig);
    for n in 1..=70 {
        let session = rig.session_at(home(n));
        let slow = Move { time_ms: 30_000, ..wanted(session) };
        lobby.push(&mut rig, |writer| writer.move_session(&slow));
        rig.turn();
    }
    let offers = arena.news(&mut rig).len();
    let refusals = lobby.news(&mut rig);
    assert_eq!((offers, refusals.len(), refused(&rig, MoveRefusal::Offers)), (64, 6, 6));
    assert_eq!(players(&rig), [70, 64]);
    arena.crash(&mut rig);
    rig.turn();
    assert_eq!((players(&rig), refused(&rig, MoveRefusal::NotLinked)), ([70, 0], 64));
}

#[test]
fn an_operator_moves_anybody_anywhere_where_that_can_be() {
    let (mut rig, [lobby, arena], _player, session) = two_zones();
    let elsewhere = Game::join(&mut rig, "elsewhere");
    elsewhere.hear(&mut rig);
    let order = Arc::new(MoveOrder::new(session, BackendId(4), 500).with(9, Box::from(*b"hi")));
    rig.mail(Mail::Move(Arc::from([Arc::clone(&order)])));
    rig.turn();
    assert_eq!(order.outcome(), None);
    let heard = elsewhere.news(&mut rig);
    let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((offer.ticket, &offer.data[..]), (9, &b"hi"[..]));
    say_yes(&mut rig, &elsewhere, offer);
    assert_eq!(order.outcome(), Some(Ok(())));
    assert_eq!(lobby.news(&mut rig), [Heard::Moved(session, 9)]);
    for (to, why) in
        [(4, MoveRefusal::Itself), (3, MoveRefusal::Front), (9, MoveRefusal::NoSuchBackend)]
    {
        let order = Arc::new(MoveOrder::new(session, BackendId(to), 500));
        rig.mail(Mail::Move(Arc::from([Arc::clone(&order)])));
        rig.turn();
        assert_eq!(order.outcome(), Some(Err(why)));
    }
    assert!(arena.news(&mut rig).is_empty());
}

#[test]
fn a_process_with_an_older_library_can_be_moved_from() {
    let mut rig = Rig::new(zones());
    let lobby = Game::connect(&mut rig, OUR_USER);
    lobby.say(&mut rig, |writer| writer.hello(&Hello { version_max: 5, ..Hello::new(1, "lobby") }));
    let arena = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    let session = rig.session_at(home(1));
    for game in [&lobby, &arena] {
        game.hear(&mut rig);
    }
    let order = MoveOrder::new(session, ARENA, 500).confirmed();
    rig.mail(Mail::Move(Arc::from([Arc::new(order)])));
    rig.turn();
    let heard = arena.news(&mut rig);
    let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
    say_yes(&mut rig, &arena, offer);
    assert_eq!(lobby.news(&mut rig), [Heard::Closed(session, CloseReason::Moved)]);
    assert_eq!(arena.guests(&mut rig).len(), 1, "it cannot confirm");
    rig.provokes(DropReason::AfterMove, |rig| {
        lobby.say(rig, |writer| writer.payload(session, b"late"));
    });
    player.send(&mut rig, b"here");
    assert_eq!(arena.payloads(&mut rig), [b"here"]);
    // What it does not know, it cannot ask for.
    lobby.say(&mut rig, |writer| writer.move_session(&wanted(session)));
    assert_eq!(lobby.news(&mut rig), []);
}

#[test]
fn the_other_process_has_the_player_when_the_first_has_heard_of_it() {
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &Move { confirms: true, ..wanted(session) });
    say_yes(&mut rig, arena, &offer);
    assert_eq!(lobby.news(&mut rig), [Heard::Moved(session, 7)]);
    assert_eq!(arena.news(&mut rig), [], "not yet");
    rig.provokes(DropReason::MoveUnconfirmed, |rig| player.send(rig, b"between"));
    rig.provokes(DropReason::SessionUnknown, |rig| {
        arena.say(rig, |writer| writer.payload(session, b"too early"));
    });
    arena.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    arena.say(&mut rig, |writer| writer.confirm(session));
    assert_eq!((arena.news(&mut rig), rig.sessions()), (vec![], 1), "it is not its own yet");
    lobby.say(&mut rig, |writer| writer.confirm(session));
    assert_eq!(arena.guests(&mut rig).first().and_then(|guest| guest.ticket), Some(7));
    player.send(&mut rig, b"after");
    assert_eq!(arena.payloads(&mut rig), [b"after"]);
}

/// A server on a udp link answers to the loopback address of a player who had the place before.
#[test]
fn a_late_answer_to_the_place_of_a_player_who_waits_to_be_opened_is_for_nobody() {
    let (mut rig, games, _player, session) = two_zones();
    let offer = offered(&mut rig, &games, &Move { confirms: true, ..wanted(session) });
    say_yes(&mut rig, &games[1], &offer);
    let entry = rig.host.gate().fronts.netcode.sessions.named(session).expect("it is there");
    let place = loopback_of(entry).expect("in range");
    rig.provokes(DropReason::SessionUnknown, |rig| {
        rig.answer_udp(endpoint("127.0.0.1:7777"), place, b"late");
    });
}

#[test]
fn what_a_hostile_process_says_of_moves_changes_nothing() {
    let (mut rig, games, _player, session) = two_zones();
    let [lobby, arena] = &games;
    let long = [7; MOVE_BYTES_MAX];
    let asked = Move { data: &long, time_ms: u32::MAX, confirms: true, ..wanted(session) };
    let offer = offered(&mut rig, &games, &asked);
    for _ in 0..50 {
        lobby.push(&mut rig, |writer| writer.move_session(&asked));
        lobby.push(&mut rig, |writer| writer.answer(session, offer.number, Answer::Yes));
        lobby.push(&mut rig, |writer| writer.confirm(session));
        arena.push(&mut rig, |writer| writer.answer(session, offer.number + 1, Answer::Yes));
        arena.push(&mut rig, |writer| writer.confirm(session));
        arena.push(&mut rig, |writer| writer.move_session(&Move { backend: "lobby", ..asked }));
        arena.push(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
        arena.push(&mut rig, |writer| {
            writer.answer(SessionId::new(0, 12_345), offer.number, Answer::Yes)
        });
    }
    rig.pass(100);
    assert_eq!((rig.sessions(), players(&rig)), (1, [1, 1]));
    assert_eq!(refused(&rig, MoveRefusal::Busy), 50);
    assert_eq!(rig.drops(DropReason::OfferUnknown), 150);
    assert_eq!((rig.counters().moves, rig.counters().moves_offered), (0, 1));
}
