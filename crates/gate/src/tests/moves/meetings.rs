//! Moves that meet something else: a port that changes, a ban, a new login, another protocol.

use super::super::denied::{denied, deny};
use super::super::games::{Game, Heard};
use super::super::rig::{bundle_backend, home, netcode_rules};
use super::*;
use crate::counters::Ended;
use crate::ids::{ListenerId, Slot};
use crate::survey::Wanted;
use crate::tests::captures::of_client;
use crate::tests::lens::Lens;
use crate::tests::plain::plain_setup_with;
use crate::tests::surveys::ask;
use crate::tests::traces::watch;
use crate::tests::unreal;
use crate::tests::unreal::rig::{Arena, unreal_setup};
use crate::trace::{Fact, Watched};

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
fn who_plays_at_a_server_on_a_udp_link_stays_there() {
    let mut setup = zones();
    setup.listeners[ListenerId(0)].backends = vec![BackendId(3)];
    let mut rig = Rig::new(setup);
    let arena = Game::join(&mut rig, "arena");
    let player = Player::<Client>::connected(&mut rig, home(1), 1);
    let session = rig.session_at(home(1));
    arena.hear(&mut rig);
    assert_eq!(ordered(&mut rig, session, ARENA), Some(Err(MoveRefusal::Front)));
    assert_eq!((arena.news(&mut rig), rig.sessions()), (vec![], 1));
    assert!(player.library.is_connected());
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

#[test]
fn who_watches_a_player_sees_it_go_over_and_goes_on() {
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let (trace, records) = watch(&mut rig, Watched::Client(1));
    let lens = Lens::new(&mut rig, of_client(1), true);
    player.send(&mut rig, b"up");
    let offer = offered(&mut rig, &games, &wanted(session));
    lobby.say(&mut rig, |writer| writer.payload(session, b"from the lobby"));
    say_yes(&mut rig, arena, &offer);
    arena.say(&mut rig, |writer| writer.payload(session, b"from the arena"));
    player.send(&mut rig, b"here");
    let facts: Vec<_> = records.try_iter().map(|it| it.fact).collect();
    let went = Fact::WentOver { from: BackendId(0), to: ARENA, slot: Slot(0) };
    assert_eq!(facts.iter().filter(|fact| **fact == went).count(), 1, "{facts:?}");
    let clear = lens.take().into_iter().filter(|it| it.is_clear).map(|it| it.bytes);
    let said: Vec<_> = clear.filter(|bytes| !bytes.is_empty()).collect();
    assert_eq!(said, [&b"up"[..], b"from the lobby", b"from the arena", b"here"]);
    // Who asks for the sessions is shown where it plays.
    let [(_, info)] = ask(&mut rig, Wanted::default(), None, 2).sessions[..] else { panic!("one") };
    assert_eq!((info.id, info.backend), (session.as_u64(), ARENA));
    drop(trace);
}

#[test]
fn an_offer_is_over_when_the_gateway_drains_or_the_process_takes_nobody_any_more() {
    for drains in [false, true] {
        let (mut rig, games, mut player, session) = two_zones();
        let [lobby, arena] = &games;
        let offer = offered(&mut rig, &games, &wanted(session));
        if drains {
            rig.mail(Mail::Drain { left_ms: 1000 });
            rig.turn();
        } else {
            arena.say(&mut rig, |writer| writer.intake(false));
        }
        let over = Heard::OfferOver(session, offer.number, MoveRefusal::Closed);
        assert!(arena.news(&mut rig).contains(&over));
        assert!(lobby.news(&mut rig).contains(&Heard::MoveRefused(
            session,
            7,
            MoveRefusal::Closed
        )));
        assert_eq!(players(&rig), [1, 0]);
        rig.provokes(DropReason::OfferUnknown, |rig| say_yes(rig, arena, &offer));
        player.send(&mut rig, b"here");
        assert_eq!(lobby.payloads(&mut rig), [b"here"]);
    }
}

/// In the turn in which the time of an offer is over, too.
#[test]
fn a_yes_that_comes_as_the_time_is_over_is_too_late() {
    let (mut rig, games, mut player, session) = two_zones();
    let [lobby, arena] = &games;
    let asked = Move { time_ms: u32::MAX, ..wanted(session) };
    let offer = offered(&mut rig, &games, &asked);
    player.live(&mut rig, 29_900);
    assert_eq!((arena.news(&mut rig), players(&rig)), (vec![], [1, 1]), "30 s at most");
    lobby.hear(&mut rig);
    rig.jump(200);
    say_yes(&mut rig, arena, &offer);
    assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, MoveRefusal::Time)]);
    let over = Heard::OfferOver(session, offer.number, MoveRefusal::Time);
    assert_eq!((arena.news(&mut rig), players(&rig)), (vec![over], [1, 0]));
}

/// What has become of an operator's wish.
fn ordered(rig: &mut Rig, session: SessionId, to: BackendId) -> Option<Result<(), MoveRefusal>> {
    let order = Arc::new(MoveOrder::new(session, to, 500));
    rig.mail(Mail::Move(Arc::from([Arc::clone(&order)])));
    rig.turn();
    order.outcome()
}
