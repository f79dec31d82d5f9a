//! What the gate is for: players come in, payloads go both ways, players leave.

use super::clients::{Library, Player};
use super::games::{Game, Guest, Heard};
use super::rig::{Rig, bundle_backend, endpoint, home, listener, plain_setup, udp_backend};
use crate::setup::Setup;
use ringgate_core::netcode::{State, user_data};
use ringgate_link::bundle::{CloseReason, VERSION_MAX};

fn a_player_comes_talks_and_leaves<L: Library>(rig: &mut Rig, game: &Game, mut player: Player<L>) {
    player.connect(rig);
    assert_eq!(rig.sessions(), 1);
    let guests = game.guests(rig);
    let [Guest { session, client_id, address, slot, slots_max, user_data, listener, .. }] =
        &guests[..]
    else {
        panic!("one player is announced once: {guests:?}")
    };
    assert_eq!((*client_id, *slot, *slots_max, listener.as_str()), (7, 0, 4, "eu"));
    assert_eq!(*address, player.home.into());
    assert_eq!(&user_data[..5], b"hello");

    for size in [1, 2, 100, 1199, 1200] {
        let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
        player.send(rig, &payload);
        assert_eq!(game.hear(rig), [Heard::Payload(*session, payload.clone())]);
        game.say(rig, |w| w.payload(*session, &payload));
        player.receive(rig);
        assert_eq!(std::mem::take(&mut player.got), [payload]);
    }

    player.live(rig, 20_000);
    assert!(player.library.is_connected(), "keep-alives hold both ends");
    player.leave(rig);
    assert_eq!(rig.sessions(), 0);
    assert_eq!(game.hear(rig), [Heard::Closed(*session, CloseReason::PlayerLeft)]);
}

fn token_of_seven(rig: &mut Rig) -> ringgate_core::netcode::ConnectToken {
    rig.token_with(7, |spec| spec.user_data = user_data(b"hello").expect("short"))
}

#[test]
fn our_client_plays_over_a_bundle_link() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let welcome = Heard::Welcome { version: VERSION_MAX, worker: 0, workers: 1, incarnation: 77 };
    assert_eq!(game.hear(&mut rig), [welcome]);
    let token = token_of_seven(&mut rig);
    let player = Player::new(&rig, home(1), &token);
    a_player_comes_talks_and_leaves(&mut rig, &game, player);
}

#[test]
fn renetcode_plays_over_a_bundle_link() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let token = token_of_seven(&mut rig);
    let player = Player::renetcode(&rig, home(1), &token, 7);
    a_player_comes_talks_and_leaves(&mut rig, &game, player);
}

fn udp_setup() -> Setup {
    Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", "127.0.0.1:7777", 4)], 77)
}

fn two_players_at_a_udp_backend<L: Library>(mut rig: Rig, mut players: [Player<L>; 2]) {
    let game = endpoint("127.0.0.1:7777");
    let mut addresses = Vec::new();
    for player in &mut players {
        player.connect(&mut rig);
        assert!(rig.take_udp().is_empty(), "a udp backend hears payloads and nothing else");
        player.send(&mut rig, b"up");
        let arrived = rig.take_udp();
        let [(address, bytes)] = &arrived[..] else { panic!("one datagram: {arrived:?}") };
        assert_eq!(bytes, b"up");
        assert!(address.ip().is_loopback());
        addresses.push(*address);
    }
    assert_ne!(addresses[0], addresses[1], "the game process tells players apart by address");
    for (player, address) in players.iter_mut().zip(&addresses) {
        rig.answer_udp(game, *address, b"down");
        player.receive(&mut rig);
        assert_eq!(player.got, [b"down"]);
        player.leave(&mut rig);
    }
    assert_eq!(rig.sessions(), 0);
}

#[test]
fn our_clients_play_over_a_udp_link() {
    let mut rig = Rig::new(udp_setup());
    let tokens = [(1, rig.token(1)), (2, rig.token(2))];
    let players = tokens.map(|(n, token)| Player::new(&rig, home(n), &token));
    two_players_at_a_udp_backend(rig, players);
}

#[test]
fn renetcode_plays_over_a_udp_link() {
    let mut rig = Rig::new(udp_setup());
    let tokens = [(1, rig.token(1)), (2, rig.token(2))];
    let players = tokens.map(|(id, token)| Player::renetcode(&rig, home(id as u16), &token, id));
    two_players_at_a_udp_backend(rig, players);
}

#[test]
fn a_full_backend_denies_whatever_client_it_is() {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 77);
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let first = Player::connected(&mut rig, home(1), 1);
    let tokens = [rig.token(2), rig.token(3)];
    let mut second = Player::new(&rig, home(2), &tokens[0]);
    second.exchange(&mut rig);
    assert_eq!(second.library.state(), State::Denied);
    let mut third = Player::renetcode(&rig, home(3), &tokens[1], 3);
    third.exchange(&mut rig);
    assert!(third.library.is_over());
    assert!(first.library.is_connected());
    assert_eq!(rig.sessions(), 1);
}
