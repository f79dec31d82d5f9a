//! Questions about all sessions: who is found, who is ended, and that it takes several turns.

use std::sync::Arc;

use super::captures::of_client;
use super::clients::Player;
use super::games::Game;
use super::lens::Lens;
use super::plain::{plain_rig, play};
use super::rig::{Rig, home, plain_setup, udp_backend};
use crate::counters::Ended;
use crate::denied::Denied;
use crate::ids::BackendId;
use crate::mail::Mail;
use crate::setup::Setup;
use crate::survey::{Found, Survey, Wanted};
use ringgate_core::netcode::Client;

/// Asks, and turns until there is an answer.
pub(super) fn ask(rig: &mut Rig, wanted: Wanted, ends: Option<Ended>, limit: usize) -> Found {
    let survey = Arc::new(Survey::new(wanted, ends, limit, 1));
    rig.mail(Mail::Survey(Arc::clone(&survey)));
    for _ in 0..100 {
        rig.turn();
        if survey.is_done() {
            return survey.found();
        }
        let due_ns = rig.host.gate().poll_timeout();
        assert!(due_ns <= Some(rig.now.mono_ns), "it does not sleep over a question");
    }
    panic!("no answer");
}

fn with_address(text: &str) -> Wanted {
    Wanted { address: Some(text.parse().expect("a prefix")), ..Wanted::default() }
}

fn two_players() -> (Rig, Game, [Player<Client>; 2]) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let players = [1, 2].map(|n| Player::connected(&mut rig, home(n), u64::from(n)));
    (rig, game, players)
}

#[test]
fn players_are_found_by_what_is_known_of_them() {
    let (mut rig, _game, _players) = two_players();
    let all = ask(&mut rig, Wanted::default(), None, 10);
    assert_eq!((all.count, all.sessions.len()), (2, 2));
    let (_, first) = all.sessions[0];
    let ids = |found: &Found| found.sessions.iter().map(|(_, it)| it.client_id).collect::<Vec<_>>();
    let wanted = Wanted { client_id: Some(2), ..Wanted::default() };
    assert_eq!(ids(&ask(&mut rig, wanted, None, 10)), [2]);
    assert_eq!(ids(&ask(&mut rig, with_address("10.0.1.0/24"), None, 10)), [1]);
    let wanted = Wanted { session: Some(first.id), ..Wanted::default() };
    assert_eq!(ids(&ask(&mut rig, wanted, None, 10)), [first.client_id]);
    let wanted = Wanted { backend: Some(BackendId(7)), ..Wanted::default() };
    assert_eq!(ask(&mut rig, wanted, None, 10).count, 0);
    let few = ask(&mut rig, Wanted::default(), None, 1);
    assert_eq!((few.count, few.sessions.len()), (2, 1), "bounded, and counted");
}

#[test]
fn those_who_are_found_can_be_ended() {
    let (mut rig, _game, mut players) = two_players();
    let wanted = Wanted { client_id: Some(2), ..Wanted::default() };
    assert_eq!(ask(&mut rig, wanted, Some(Ended::ByOperator), 0).count, 1);
    assert_eq!(rig.counters().sessions_closed[Ended::ByOperator as usize], 1);
    assert_eq!(rig.sessions(), 1);
    let mut setup: Setup = rig.host.gate().setup().clone();
    let rules = [("10.0.0.0/8", true), ("10.0.2.0/24", false)];
    let rules = rules.map(|(text, is_denied)| (text.parse().expect("a prefix"), is_denied));
    setup.denied = Arc::new(Denied::new(rules));
    rig.mail(Mail::Setup(setup.into()));
    let wanted = Wanted { is_denied: true, ..Wanted::default() };
    assert_eq!(ask(&mut rig, wanted, Some(Ended::Denied), 0).count, 1);
    assert_eq!(rig.counters().sessions_closed[Ended::Denied as usize], 1);
    for player in &mut players {
        player.receive(&mut rig);
        assert!(!player.library.is_connected(), "players are told");
    }
}

/// What stands for the id of a player without one is the number of a session, and others' ids are
/// small numbers, too.
#[test]
fn a_player_without_an_id_is_nobody_whom_an_id_means() {
    let mut rig = plain_rig(|_| {});
    play(&mut rig, home(1), b"here");
    let (_, info) = ask(&mut rig, Wanted::default(), None, 1).sessions[0];
    let lens = Lens::new(&mut rig, of_client(info.client_id), false);
    rig.deliver(home(1), b"here");
    assert!(lens.take().is_empty(), "a capture");
    let wanted = Wanted { client_id: Some(info.client_id), ..Wanted::default() };
    assert_eq!(ask(&mut rig, wanted, Some(Ended::ByOperator), 0).count, 0);
}

#[test]
fn the_address_that_a_udp_server_sees_leads_to_its_player() {
    let mut setup = plain_setup();
    setup.backends[BackendId(0)] = udp_backend("arena", "127.0.0.1:7777", 4);
    let mut rig = Rig::new(setup);
    let _player = Player::connected(&mut rig, home(1), 1);
    let (_, info) = ask(&mut rig, Wanted::default(), None, 1).sessions[0];
    let link = info.link_address.expect("on a udp link").ip().to_string();
    assert!(link.starts_with("127."), "{link}");
    assert_eq!(ask(&mut rig, with_address(&link), None, 1).sessions[0].1, info);
}
