//! Game processes that ask for more answers than a turn has: each gets its share, in order, and
//! nothing is lost.

use super::clients::{Library, Player};
use super::games::{Game, Heard};
use super::rig::{Asked, Rig, bundle_backend, home, listener, plain_setup};
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::setup::{Route, Setup};
use ringgate_batch::{Endpoint, IoEvent, SendFailure};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_core::netcode::Client;
use ringgate_link::bundle::{SessionId, Writer};

/// What one link gets in a turn.
const SHARE: u64 = 256;

/// A gate with two games, and a player at each.
fn two_games() -> (Rig, [Game; 2], [Player<Client>; 2]) {
    let backends = vec![bundle_backend("one", 4), bundle_backend("two", 4)];
    let mut setup = Setup::new(vec![listener("eu", &[0, 1])], backends, 1);
    setup.listeners[ListenerId(0)].route = Route::LeastPlayers;
    let mut rig = Rig::new(setup);
    let games = ["one", "two"].map(|name| Game::join(&mut rig, name));
    let players = [1, 2].map(|n| Player::connected(&mut rig, home(n), n.into()));
    for game in &games {
        game.hear(&mut rig);
    }
    rig.requests.clear();
    (rig, games, players)
}

fn one_game() -> (Rig, Game, Player<Client>, SessionId) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let player = Player::connected(&mut rig, home(1), 1);
    game.hear(&mut rig);
    rig.requests.clear();
    let session = rig.session_at(home(1));
    (rig, game, player, session)
}

/// Bundles with so many numbered payloads.
fn numbered(session: SessionId, numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut buf = vec![0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    for number in numbers {
        assert!(writer.payload(session, &number.to_le_bytes()), "they fit");
    }
    writer.bytes().to_vec()
}

/// Gives the next turn a bundle to find.
fn push(rig: &mut Rig, game: &Game, bundle: &[u8]) {
    rig.host.receive(game.link, Endpoint::v4([0; 4], 0), bundle).expect("room");
}

fn sent_in(rig: &mut Rig, turn: impl FnOnce(&mut Rig)) -> u64 {
    let before = rig.counters().payloads_down;
    turn(rig);
    rig.counters().payloads_down - before
}

fn holds(rig: &mut Rig, game: &Game) -> Vec<bool> {
    let requests = std::mem::take(&mut rig.requests);
    let holds = requests.into_iter().filter_map(|request| match request {
        Asked::Hold { socket, is_held } if socket == game.link => Some(is_held),
        _ => None,
    });
    holds.collect()
}

#[test]
fn a_link_gets_its_share_of_a_turn_and_the_rest_in_the_next_ones() {
    let (mut rig, game, mut player, session) = one_game();
    push(&mut rig, &game, &numbered(session, 0..1000));
    push(&mut rig, &game, &numbered(session, 1000..1100));
    let mut sent = 0;
    assert_eq!(sent_in(&mut rig, Rig::turn), SHARE);
    assert_eq!(holds(&mut rig, &game), [true], "what it says next stays in its socket");
    while sent + SHARE < 1100 {
        sent += SHARE;
        let due_ns = rig.host.gate().poll_timeout().expect("there is work");
        assert!(due_ns <= rig.now.mono_ns, "a worker does not sleep over it");
        // One that was on its way comes behind what waits.
        if sent == SHARE {
            push(&mut rig, &game, &numbered(session, 1100..1101));
        }
        assert_eq!(sent_in(&mut rig, Rig::turn), SHARE.min(1101 - sent));
    }
    // A successor asks once more for what it holds.
    let released: Vec<_> = holds(&mut rig, &game).into_iter().filter(|is_held| !is_held).collect();
    assert_eq!(released, [false]);
    player.receive(&mut rig);
    let got: Vec<_> =
        player.got.iter().map(|it| u32::from_le_bytes(it[..].try_into().expect("4"))).collect();
    assert!(got.into_iter().eq(0..1101), "all, once, in order");
    assert_eq!(rig.counters().drops.total(), 0);
}

#[test]
fn a_session_that_a_multicast_repeats_gets_it_once() {
    let (mut rig, game, mut player, session) = one_game();
    for round in 1..=2 {
        game.push(&mut rig, |w| w.multicast(&[session; 1024], b"again and again"));
        let mut turns = 0;
        while rig.drops(DropReason::MulticastDuplicate) < round * 1023 {
            rig.turn();
            turns += 1;
        }
        assert_eq!(turns, 1024_u64.div_ceil(SHARE - 1), "and even to refuse it costs its share");
        player.receive(&mut rig);
        assert_eq!(player.got.len() as u64, round, "the next one is another one");
    }
}

#[test]
fn a_neighbour_is_served_in_the_turn_in_which_it_speaks() {
    let (mut rig, [loud, quiet], mut players) = two_games();
    let sessions = [1, 2].map(|n| rig.session_at(home(n)));
    for _ in 0..16 {
        push(&mut rig, &loud, &numbered(sessions[0], 0..1000));
    }
    for n in 0..20_u32 {
        push(&mut rig, &quiet, &numbered(sessions[1], n..n + 1));
        let sent = sent_in(&mut rig, Rig::turn);
        assert_eq!(sent, SHARE + 1);
        players[1].receive(&mut rig);
        assert_eq!(players[1].got.last(), Some(&n.to_le_bytes().to_vec()));
    }
    assert!(holds(&mut rig, &quiet).is_empty());
}

#[test]
fn two_loud_ones_come_on_side_by_side() {
    let (mut rig, games, mut players) = two_games();
    let sessions = [1, 2].map(|n| rig.session_at(home(n)));
    for (game, session) in games.iter().zip(sessions) {
        push(&mut rig, game, &numbered(session, 0..1000));
    }
    for turn in 1..=3 {
        rig.turn();
        for player in &mut players {
            player.receive(&mut rig);
            assert_eq!(player.got.len() as u64, turn * SHARE);
        }
    }
}

#[test]
fn a_loud_process_that_ends_is_heard_to_its_end() {
    let (mut rig, game, mut player, session) = one_game();
    push(&mut rig, &game, &numbered(session, 0..1000));
    rig.event(IoEvent::Closed { socket: game.link });
    for _ in 0..3 {
        assert!(!rig.requests.contains(&Asked::Close(game.link)));
        rig.turn();
    }
    assert!(rig.requests.contains(&Asked::Close(game.link)));
    player.receive(&mut rig);
    assert_eq!(player.got.len(), 1000);
    let again = Game::join(&mut rig, "arena");
    assert!(matches!(again.hear(&mut rig)[0], Heard::Welcome { .. }));
}

#[test]
fn a_gateway_that_stops_says_what_it_has_not_heard() {
    let (mut rig, game, _, session) = one_game();
    push(&mut rig, &game, &numbered(session, 0..1000));
    rig.turn();
    rig.mail(Mail::Stop);
    rig.turn();
    assert_eq!(rig.drops(DropReason::LinkEnded), 1000 - SHARE);
}

#[test]
fn a_bad_record_in_what_waits_ends_the_link_and_the_rest_is_counted() {
    let (mut rig, game, mut player, session) = one_game();
    let mut bundle = numbered(session, 0..400);
    bundle.extend([1, 2, 3]);
    push(&mut rig, &game, &bundle);
    push(&mut rig, &game, &numbered(session, 0..7));
    rig.turn();
    assert!(!rig.requests.contains(&Asked::Close(game.link)), "nobody has seen it yet");
    rig.turn();
    assert!(rig.requests.contains(&Asked::Close(game.link)));
    player.receive(&mut rig);
    assert_eq!(player.got.len(), 400, "what stood before it counts");
    assert_eq!(rig.drops(DropReason::LinkEnded), 7);
    assert_eq!(rig.host.gate().poll_timeout().map(|due| due > rig.now.mono_ns), Some(true));
}

#[test]
fn a_link_that_breaks_while_it_is_heard_is_heard_to_its_end() {
    let (mut rig, game, mut player, session) = one_game();
    rig.obstacles.push((game.link, SendFailure::Gone));
    let up = player.library.payload(rig.now.mono_ns, b"never arrives");
    rig.push(home(1), &up);
    // More answers than one flush takes: the first flush tells that the link is gone.
    push(&mut rig, &game, &numbered(session, 0..400));
    rig.turn();
    rig.turn();
    let held = |is_held| Asked::Hold { socket: game.link, is_held };
    assert_eq!(rig.requests, [held(true), held(false)], "its socket may have more");
    push(&mut rig, &game, &numbered(session, 400..600));
    rig.event(IoEvent::Closed { socket: game.link });
    player.receive(&mut rig);
    assert_eq!(player.got.len(), 600, "what had arrived is heard");
    assert_eq!(rig.requests.last(), Some(&Asked::Close(game.link)));
    assert_eq!((rig.drops(DropReason::LinkDown), rig.drops(DropReason::LinkEnded)), (1, 0));
}

/// A session's place may lie behind as many as there are sessions, once players have left.
#[test]
fn a_repeat_is_noticed_wherever_the_session_has_its_place() {
    let mut setup = plain_setup();
    setup.worker_sessions_max = 2;
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    for n in 1..=4 {
        let mut player = Player::connected(&mut rig, home(n), n.into());
        let session = rig.session_at(home(n));
        game.push(&mut rig, |w| w.multicast(&[session; 3], b"once"));
        rig.turn();
        assert_eq!(rig.drops(DropReason::MulticastDuplicate), u64::from(n) * 2);
        player.receive(&mut rig);
        assert_eq!(player.got, [b"once"]);
        player.leave(&mut rig);
    }
}
