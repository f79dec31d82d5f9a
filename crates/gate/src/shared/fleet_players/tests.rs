//! What the fleet is told of players, and which of their sessions end.

use super::*;

const fn at(unix_s: u64) -> Now {
    Now { mono_ns: 0, unix_s }
}

fn arena() -> Arc<str> {
    Arc::from("arena")
}

fn player(client_id: u64) -> FleetPlayer {
    FleetPlayer { group: arena(), client_id }
}

fn session(serial: u64) -> SessionId {
    SessionId::new(0, serial)
}

fn told(client_id: u64, session: Option<SessionId>, since_s: u64) -> PlayerNews {
    PlayerNews { player: player(client_id), session, since_s, term: 0, is_told_again: false }
}

#[test]
fn a_player_is_told_when_it_comes_and_when_it_leaves() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    assert!(players.has_news());
    let news = players.take_news(9);
    assert_eq!(news, [told(7, Some(session(1)), 50)]);
    assert!(!players.has_news());
    players.settle(&news[0], PlayerClaimed::Ours);
    players.ended(session(1));
    let news = players.take_news(9);
    assert_eq!(news, [told(7, None, 50)]);
    players.settle(&news[0], PlayerClaimed::Released);
    assert!(players.is_empty() && !players.has_news() && !players.has_ousted());
    players.ended(session(1));
    assert!(!players.has_news());
}

#[test]
fn when_a_session_has_begun_is_what_the_fleet_has_said() {
    let players = FleetPlayers::new(4);
    players.goes_on((&arena(), 7), session(1), (0, 0));
    let [it] = &players.take_news(9)[..] else { panic!("one player") };
    players.settle(&PlayerNews { since_s: 50, ..it.clone() }, PlayerClaimed::Ours);
    players.forget_claims();
    let again = PlayerNews { is_told_again: true, ..told(7, Some(session(1)), 50) };
    assert_eq!(players.take_news(9), [again]);
}

#[test]
fn who_comes_and_goes_at_once_is_no_news() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    players.ended(session(1));
    assert!(players.take_news(9).is_empty() && players.is_empty());
}

#[test]
fn the_newer_of_two_sessions_here_stays() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    players.began((&arena(), 7), session(2), (at(51), 0));
    assert_eq!(players.take_ousted(9), [session(1)]);
    players.ended(session(1));
    assert_eq!(players.take_news(9), [told(7, Some(session(2)), 51)]);
    // Of another group.
    players.began((&Arc::from("duel"), 7), session(3), (at(52), 0));
    assert!(!players.has_ousted());
    assert_eq!(players.take_news(9)[0].player.group, Arc::from("duel"));
}

#[test]
fn a_session_of_a_cluster_goes_on_as_old_as_it_is() {
    let players = FleetPlayers::new(4);
    players.goes_on((&arena(), 7), session(1), (50, 2));
    let goes_on = PlayerNews { term: 2, is_told_again: true, ..told(7, Some(session(1)), 50) };
    assert_eq!(players.take_news(9), [goes_on]);
    // Its player has logged in here since.
    players.began((&arena(), 8), session(2), (at(60), 1));
    players.goes_on((&arena(), 8), session(3), (59, 2));
    assert_eq!(players.take_ousted(9), [session(3)]);
    players.ended(session(3));
    assert_eq!(players.take_news(9)[0].session, Some(session(2)));
}

#[test]
fn a_session_in_the_way_of_its_own_player_ends_once() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    for _ in 0..3 {
        players.oust_older(&arena(), 7);
    }
    assert_eq!(players.take_ousted(9), [session(1)]);
    players.oust_older(&arena(), 8);
    assert!(!players.has_ousted());
}

#[test]
fn a_newer_session_elsewhere_ends_the_one_that_is_meant() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    let news = players.take_news(9);
    players.settle(&news[0], PlayerClaimed::Ours);
    assert!(!players.oust(&player(7), session(9)) && !players.oust(&player(8), session(1)));
    assert!(players.oust(&player(7), session(1)) && players.oust(&player(7), session(1)));
    assert_eq!(players.take_ousted(9), [session(1)]);
    players.ended(session(1));
    assert!(players.take_news(9).is_empty() && players.is_empty(), "it is not ours to release");
}

#[test]
fn what_was_said_of_an_earlier_session_does_not_end_a_later_one() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    let news = players.take_news(9);
    players.ended(session(1));
    players.began((&arena(), 7), session(2), (at(60), 0));
    players.settle(&news[0], PlayerClaimed::Theirs);
    assert!(!players.has_ousted());
    assert_eq!(players.take_news(9), [told(7, Some(session(2)), 60)]);
}

#[test]
fn without_an_answer_it_is_said_again_and_after_a_lost_lease_everything() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    let news = players.take_news(9);
    players.settle(&news[0], PlayerClaimed::Unknown);
    let again = players.take_news(9);
    assert_eq!(again, news);
    players.settle(&again[0], PlayerClaimed::Ours);
    players.began((&arena(), 8), session(2), (at(51), 0));
    let second = players.take_news(9);
    players.settle(&second[0], PlayerClaimed::Ours);
    players.ended(session(2));
    players.forget_claims();
    let anew = PlayerNews { is_told_again: true, ..told(7, Some(session(1)), 50) };
    assert_eq!(players.take_news(9), [anew], "who has left is forgotten");
    assert_eq!(players.len(), 1);
}

#[test]
fn a_session_that_is_to_end_is_not_claimed_again() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    players.began((&arena(), 8), session(2), (at(50), 0));
    for news in players.take_news(9) {
        players.settle(&news, PlayerClaimed::Theirs);
    }
    // Before the workers have ended them, the lease is another one.
    players.forget_claims();
    assert!(players.take_news(9).is_empty(), "it would end the newer session elsewhere");
    players.ended(session(1));
    assert!(players.take_news(9).is_empty() && players.len() == 1);
    // The next login of the same player is news.
    players.began((&arena(), 8), session(3), (at(60), 0));
    assert_eq!(players.take_news(9), [told(8, Some(session(3)), 60)]);
}

#[test]
fn memory_is_bounded_and_those_who_have_left_make_room() {
    let players = FleetPlayers::new(1);
    for client_id in 0..5 {
        players.began((&arena(), client_id), session(client_id + 1), (at(50), 0));
        for news in players.take_news(9) {
            players.settle(&news, PlayerClaimed::Ours);
        }
        players.ended(session(client_id + 1));
    }
    assert!(players.len() <= 2 && players.missed() == 0);
    let players = FleetPlayers::new(1);
    for client_id in 0..3 {
        players.goes_on((&arena(), client_id), session(client_id + 1), (0, 0));
    }
    assert_eq!((players.len(), players.missed()), (2, 1));
}

#[test]
fn who_left_before_a_hand_over_is_told_behind_it() {
    let before = FleetPlayers::new(4);
    for (client_id, serial) in [(7, 1), (8, 2), (9, 3)] {
        before.began((&arena(), client_id), session(serial), (at(50), 0));
    }
    before.take_news(2).iter().for_each(|it| before.settle(it, PlayerClaimed::Ours));
    for serial in 1..4 {
        before.ended(session(serial));
    }
    // Nothing was told of the last one, and one has come back.
    let mut left = before.left();
    left.sort_by_key(|it| it.client_id);
    assert_eq!(left, [player(7), player(8)]);
    let next = FleetPlayers::new(4);
    next.began((&arena(), 8), session(4), (at(60), 0));
    next.go_on_with_left(left);
    let news = next.take_news(9);
    assert_eq!(news, [told(8, Some(session(4)), 60), told(7, None, 0)]);
    for it in &news {
        next.settle(it, PlayerClaimed::Released);
    }
    assert_eq!(next.len(), 1);
}

#[test]
fn who_comes_again_behind_a_lost_lease_is_told_once() {
    let players = FleetPlayers::new(4);
    players.began((&arena(), 7), session(1), (at(50), 0));
    players.settle(&players.take_news(9)[0], PlayerClaimed::Ours);
    players.ended(session(1));
    // The lease has ended, and nothing has to be said of those who have left.
    players.forget_claims();
    players.began((&arena(), 7), session(2), (at(60), 0));
    assert_eq!(players.take_news(9), [told(7, Some(session(2)), 60)]);
    assert!(players.take_news(9).is_empty() && !players.has_news());
}
