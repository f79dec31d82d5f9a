//! Addresses and players that are denied: by the longest prefix, those who play and those who come,
//! alone and across workers. What is different on Unreal and plain listeners is tested with them.

use std::sync::Arc;

use super::clients::{Library, Player, Scribe};
use super::games::{Game, Heard};
use super::rig::{Fleet, Rig, endpoint, home, plain_setup};
use crate::counters::Ended;
use crate::denied::Denied;
use crate::mail::Mail;
use crate::survey::{Survey, Wanted};
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::CloseReason;

/// Rules as operators write them, and ids of players.
pub(super) fn denied(rules: &[(&str, bool)], clients: &[u64]) -> Arc<Denied> {
    let rules = rules.iter().map(|(text, is_denied)| (text.parse().expect("a prefix"), *is_denied));
    Arc::new(Denied::new(rules).with_clients(clients.iter().copied()))
}

/// Tells one worker, without ending anybody.
fn tell(rig: &mut Rig, denied: &Arc<Denied>) {
    let mut setup = rig.host.gate().setup().clone();
    setup.denied = Arc::clone(denied);
    setup.revision += 1;
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
}

/// Tells one worker as the control thread does; how many sessions that ends.
pub(super) fn deny(rig: &mut Rig, denied: &Arc<Denied>) -> u64 {
    tell(rig, denied);
    let wanted = Wanted { is_denied: true, ..Wanted::default() };
    let survey = Arc::new(Survey::new(wanted, Some(Ended::Denied), 0, 1));
    rig.mail(Mail::Survey(Arc::clone(&survey)));
    for _ in 0..100 {
        rig.turn();
        if survey.is_done() {
            return survey.found().count;
        }
    }
    panic!("no answer");
}

#[test]
fn who_plays_is_told_and_who_comes_costs_nothing() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let mut players = [1, 2].map(|n| Player::connected(&mut rig, home(n), u64::from(n)));
    let sessions: Vec<_> = game.guests(&mut rig).iter().map(|guest| guest.session).collect();
    let list = denied(&[("10.0.1.0/24", true)], &[]);
    assert_eq!(deny(&mut rig, &list), 1);
    assert_eq!(game.hear(&mut rig), [Heard::Closed(sessions[0], CloseReason::Operator)]);
    for player in &mut players {
        player.receive(&mut rig);
    }
    assert!(!players[0].library.is_connected() && players[1].library.is_connected());
    assert_eq!(rig.counters().sessions_closed[Ended::Denied as usize], 1);
    let request = Scribe::new(&rig.token(1)).request();
    for port in 1..100 {
        let from = home(1).with_port(port);
        rig.provokes(DropReason::AddressDenied, |rig| rig.deliver(from, &request));
    }
    assert!(rig.take_for(home(1).with_port(1)).is_empty(), "nothing is answered");
    tell(&mut rig, &denied(&[], &[]));
    let back = Player::connected(&mut rig, home(1), 1);
    assert!(back.library.is_connected());
}

#[test]
fn the_longest_prefix_decides_and_mapped_addresses_are_ipv4() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let rules =
        [("10.0.0.0/8", true), ("10.0.2.0/24", false), ("10.0.2.7", true), ("2001:db8::/32", true)];
    tell(&mut rig, &denied(&rules, &[]));
    let request = Scribe::new(&rig.token(1)).request();
    for refused in [
        "10.0.1.1:9",
        "[::ffff:10.0.3.1]:9",
        "10.0.2.7:9",
        "[::ffff:10.0.2.7]:9",
        "[2001:db8::1]:9",
    ] {
        let from = endpoint(refused);
        rig.provokes(DropReason::AddressDenied, |rig| rig.deliver(from, &request));
    }
    let before = rig.drops(DropReason::AddressDenied);
    for asked in ["10.0.2.8:9", "[::ffff:10.0.2.9]:9", "11.0.0.1:9", "[2001:db9::1]:9"] {
        rig.deliver(endpoint(asked), &request);
    }
    assert_eq!(rig.drops(DropReason::AddressDenied), before);
}

#[test]
fn players_are_denied_by_the_id_in_their_token_wherever_they_are() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let mut players = [1, 2].map(|n| Player::connected(&mut rig, home(n), u64::from(n)));
    assert_eq!(deny(&mut rig, &denied(&[], &[2, 9])), 1);
    for player in &mut players {
        player.receive(&mut rig);
    }
    assert!(players[0].library.is_connected() && !players[1].library.is_connected());
    let token = rig.token(2);
    let mut again = Player::new(&rig, home(7), &token);
    for _ in 0..3 {
        again.exchange(&mut rig);
        rig.jump(10);
    }
    assert!(again.library.is_over(), "it is denied, so it need not wait");
    assert_eq!(rig.sessions(), 1);
    assert_eq!(rig.drops(DropReason::ClientDenied), 1);
}

/// The worker that receives a player's datagrams hears of a deny later than the one that has the
/// session: what it forwards meanwhile moves no session to where nobody may play.
#[test]
fn a_session_does_not_move_to_a_denied_address_by_way_of_another_worker() {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let owner = &mut fleet.rigs[0];
    let game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(1));
    scribe.connect(owner, home(1));
    owner.deliver(home(1), &scribe.keep_alive(5));
    let moved: Endpoint = home(1).with_port(6000);
    let list = denied(&[("10.0.0.0/8", true)], &[]);
    tell(owner, &list);
    fleet.rigs[1].deliver(moved, &scribe.payload(6, b"moved"));
    fleet.deliver_mail();
    let owner = &mut fleet.rigs[0];
    assert_eq!(owner.drops(DropReason::AddressDenied), 1);
    assert_eq!(owner.counters().port_switches, 0);
    assert!(game.payloads(owner).is_empty());
    assert_eq!(deny(owner, &list), 1);
    tell(&mut fleet.rigs[1], &list);
    let late = scribe.payload(7, b"late");
    fleet.rigs[1].provokes(DropReason::AddressDenied, |rig| rig.deliver(moved, &late));
}
