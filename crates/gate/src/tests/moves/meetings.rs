//! Moves that meet something else: a port that changes, a ban, a new login, another protocol.

use super::super::denied::{denied, deny};
use super::super::games::{Game, Heard};
use super::super::rig::{bundle_backend, home, netcode_rules};
use super::*;
use crate::counters::Ended;
use crate::ids::ListenerId;
use crate::survey::Wanted;
use crate::tests::plain::plain_setup_with;
use crate::tests::surveys::ask;
use crate::tests::unreal;
use crate::tests::unreal::rig::{Arena, unreal_setup};

#[test]
fn whose_port_changes_meanwhile_goes_over_all_the_same() {
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &wanted(session));
    player.home = home(1).with_port(6000);
    player.send(&mut rig, b"from elsewhere");
    assert_eq!(lobby.payloads(&mut rig), [b"from elsewhere"]);
    say_yes(&mut rig, arena, &offer);
    assert_eq!(arena.guests(&mut rig).len(), 1);
    player.home = home(1).with_port(7000);
    player.send(&mut rig, b"and again");
    assert_eq!(arena.payloads(&mut rig), [b"and again"]);
    arena.say(&mut rig, |writer| writer.payload(session, b"here"));
    player.receive(&mut rig);
    assert_eq!(player.got.pop().as_deref(), Some(&b"here"[..]));
    assert_eq!((rig.sessions(), rig.counters().port_switches), (1, 2));
}

#[test]
fn who_is_banned_meanwhile_goes_nowhere_and_keeps_no_slot() {
    for goes_over in [false, true] {
        let (mut rig, games, _player, session) = two_zones();
        let [lobby, arena] = &games;
        let asked = Move { confirms: true, ..wanted(session) };
        let offer = offered(&mut rig, &games, &asked);
        if goes_over {
            say_yes(&mut rig, arena, &offer);
            assert_eq!(lobby.news(&mut rig), [Heard::Moved(session, 7)]);
        }
        assert_eq!(deny(&mut rig, &denied(&[], &[1])), 1);
        if !goes_over {
            assert_eq!(lobby.news(&mut rig), [Heard::Closed(session, CloseReason::Operator)]);
        }
        let over = Heard::OfferOver(session, offer.number, MoveRefusal::SessionOver);
        assert_eq!(arena.news(&mut rig), [over]);
        assert_eq!(rig.counters().sessions_closed[Ended::Denied as usize], 1);
        assert_eq!((rig.sessions(), players(&rig)), (0, [0, 0]));
        say_yes(&mut rig, arena, &offer);
        assert_eq!(rig.drops(DropReason::OfferUnknown), 1);
    }
}

#[test]
fn who_logs_in_again_plays_where_its_token_says() {
    let mut setup = zones();
    netcode_rules(&mut setup).replace_after_ns = 1;
    let (mut rig, games, _player, session) = two_zones_of(setup);
    let [lobby, arena] = &games;
    let offer = offered(&mut rig, &games, &wanted(session));
    say_yes(&mut rig, arena, &offer);
    assert_eq!(arena.guests(&mut rig).len(), 1);
    lobby.hear(&mut rig);
    rig.pass(1000);
    let again = Player::<Client>::connected(&mut rig, home(2), 1);
    assert!(again.library.is_connected());
    let replaced = Heard::Closed(session, CloseReason::NewerLogin);
    let heard = arena.hear(&mut rig);
    assert!(heard.contains(&replaced), "{heard:?}");
    assert_eq!(lobby.guests(&mut rig).len(), 1);
    assert_eq!((rig.sessions(), players(&rig)), (1, [1, 0]));
}

#[test]
fn a_player_without_netcode_stays_where_its_server_is() {
    let mut setup = plain_setup_with(4, |_| {});
    setup.backends = ["lobby", "arena"].map(|name| bundle_backend(name, 4)).to_vec().into();
    setup.listeners[ListenerId(0)].backends = vec![BackendId(0)];
    let mut rig = Rig::new(setup);
    let [lobby, arena] = ["lobby", "arena"].map(|name| Game::join(&mut rig, name));
    rig.deliver(home(1), b"hello");
    let heard = lobby.news(&mut rig);
    let [Heard::OpenedPlain(session, None), ..] = heard[..] else { panic!("{heard:?}") };
    arena.hear(&mut rig);
    lobby.say(&mut rig, |writer| writer.move_session(&wanted(session)));
    assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, MoveRefusal::Front)]);
    assert_eq!((arena.news(&mut rig), refused(&rig, MoveRefusal::Front)), (vec![], 1));
    assert_eq!(ordered(&mut rig, session, ARENA), Some(Err(MoveRefusal::Front)));
    assert_eq!(arena.news(&mut rig), []);
}

#[test]
fn a_player_of_an_engine_is_refused_by_its_front_and_plays_on() {
    let mut setup = unreal_setup(2);
    setup.backends[ARENA] = bundle_backend("arena", 4);
    setup.listeners[ListenerId(0)].backends = vec![BackendId(0)];
    let mut engines = Arena::new(setup, 1);
    let arena = Game::join(engines.rig(), "arena");
    arena.hear(engines.rig());
    let mut player = unreal::rig::Player::connected(&mut engines, 1);
    assert!(player.plays(&mut engines));
    let rig = engines.rig();
    let [(_, info)] = ask(rig, Wanted::default(), None, 2).sessions[..] else { panic!("one") };
    let session = SessionId::from_u64(info.id).expect("its id");
    assert_eq!(ordered(rig, session, ARENA), Some(Err(MoveRefusal::Front)));
    assert_eq!((arena.news(rig), refused(rig, MoveRefusal::Front)), (vec![], 1));
    let stranger = SessionId::new(0, 99);
    assert_eq!(ordered(rig, stranger, ARENA), Some(Err(MoveRefusal::SessionOver)));
    assert!(player.plays(&mut engines));
}

/// What has become of an operator's wish.
fn ordered(rig: &mut Rig, session: SessionId, to: BackendId) -> Option<Result<(), MoveRefusal>> {
    let order = Arc::new(MoveOrder::new(session, to, 500));
    rig.mail(Mail::Move(Arc::from([Arc::clone(&order)])));
    rig.turn();
    order.outcome()
}
