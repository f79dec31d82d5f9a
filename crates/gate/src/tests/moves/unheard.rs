//! Moves that meet a successor which has not heard yet which backends its fleet has.

use super::super::games::Heard;
use super::super::rig::netcode_rules;
use super::*;
use crate::tests::handover::mapping::hand_over_to;

/// What a successor has, where the fleet has told the process before of the arena.
fn unheard() -> Setup {
    let mut setup = zones();
    netcode_rules(&mut setup).moves.clear();
    setup.backends[ARENA].retired = true;
    setup.awaits_fleet = true;
    setup
}

fn hear_of_fleet(rig: &mut Rig, mut setup: Setup) {
    setup.revision += 1;
    rig.mail(Mail::Setup(Arc::new(setup)));
    rig.turn();
}

#[test]
fn an_offer_waits_until_a_successor_has_heard_of_its_fleet_and_no_longer() {
    for is_order in [false, true] {
        let offered_to_unheard = || {
            let (mut rig, games, player, session) = two_zones();
            let offer = if is_order {
                let order = Arc::new(MoveOrder::new(session, ARENA, 500).with(7, Box::default()));
                rig.mail(Mail::Move(Arc::from([order])));
                rig.turn();
                let heard = games[1].news(&mut rig);
                let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
                offer.clone()
            } else {
                offered(&mut rig, &games, &wanted(session))
            };
            assert_eq!(hand_over_to(&mut rig, unheard()), 0);
            rig.pass(100);
            assert_eq!((players(&rig), games[1].news(&mut rig)), ([1, 1], vec![]));
            games[0].hear(&mut rig);
            (rig, games, player, session, offer)
        };
        // Before it has heard, and behind that.
        for hears in [false, true] {
            let (mut rig, [lobby, arena], mut player, session, offer) = offered_to_unheard();
            if hears {
                hear_of_fleet(&mut rig, zones());
            }
            say_yes(&mut rig, &arena, &offer);
            assert_eq!(lobby.news(&mut rig), [Heard::Moved(session, 7)]);
            assert_eq!(arena.guests(&mut rig).len(), 1);
            hear_of_fleet(&mut rig, zones());
            player.send(&mut rig, b"here");
            assert_eq!((arena.payloads(&mut rig), players(&rig)), (vec![b"here".to_vec()], [0, 1]));
        }
        // The fleet does not have it any more, or its registration is away: its process is there.
        let (mut rig, [lobby, arena], _player, session, offer) = offered_to_unheard();
        hear_of_fleet(&mut rig, Setup { awaits_fleet: false, ..unheard() });
        let why = MoveRefusal::Closed;
        assert_eq!(arena.news(&mut rig), [Heard::OfferOver(session, offer.number, why)]);
        assert_eq!((players(&rig), refused(&rig, why)), ([1, 0], 1));
        if !is_order {
            assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, why)]);
        }
        lobby.say(&mut rig, |writer| writer.move_session(&wanted(session)));
        assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, why)]);
        arena.crash(&mut rig);
        lobby.say(&mut rig, |writer| writer.move_session(&wanted(session)));
        let why = MoveRefusal::NoSuchBackend;
        assert_eq!(lobby.news(&mut rig), [Heard::MoveRefused(session, 7, why)]);
        // It keeps its time, and its processes.
        let (mut rig, [_lobby, arena], _player, session, offer) = offered_to_unheard();
        rig.pass(410);
        let why = MoveRefusal::Time;
        assert_eq!(arena.news(&mut rig), [Heard::OfferOver(session, offer.number, why)]);
        let (mut rig, [_lobby, arena], ..) = offered_to_unheard();
        arena.crash(&mut rig);
        rig.turn();
        assert_eq!((players(&rig), refused(&rig, MoveRefusal::NotLinked)), ([1, 0], 1));
    }
}

#[test]
fn who_asks_for_a_backend_before_a_successor_has_heard_of_its_fleet_may_ask_again() {
    let (mut rig, games, _player, session) = two_zones();
    let [lobby, arena] = &games;
    assert_eq!(hand_over_to(&mut rig, unheard()), 0);
    rig.turn();
    for game in &games {
        game.hear(&mut rig);
    }
    for backend in ["arena", "nobody"] {
        lobby.say(&mut rig, |writer| writer.move_session(&Move { backend, ..wanted(session) }));
        let refused = Heard::MoveRefused(session, 7, MoveRefusal::Closed);
        assert_eq!(lobby.news(&mut rig), [refused], "{backend}");
    }
    assert_eq!(arena.news(&mut rig), []);
    hear_of_fleet(&mut rig, zones());
    let offer = offered(&mut rig, &games, &wanted(session));
    say_yes(&mut rig, arena, &offer);
    assert_eq!(arena.guests(&mut rig).len(), 1);
}
