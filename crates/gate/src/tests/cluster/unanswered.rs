//! A gateway asks for a session, and its link to the arbiter is over before it hears the answer.

use super::super::denied::{denied, deny};
use super::super::rig::home;
use super::OTHER;
use super::agent::standing;
use super::takeover::{A, B, Scene, here, incarnation, tenure};
use ringgate_cluster::{Answer, Asked, Question, Record, Reply, Wake};

/// The second gateway finds the first one silent for a moment and asks for its session, and its
/// link ends before the agent has read that.
fn ask_in_vain(scene: &mut Scene) {
    let standbys = scene.pair.standbys(B);
    standbys.set_gone(OTHER[B], scene.pair.rig(B).now.mono_ns);
    scene.pair.rig(B).deliver(home(1), &scene.scribe.payload(6, b"six"));
    standbys.set_back(OTHER[B], incarnation(A));
    for (_, lane) in scene.agent.lose(B) {
        lane.game.crash(scene.pair.rig(B));
    }
}

/// An agent that was stopped reads what links brought that are over by now.
#[test]
fn what_an_arbiter_grants_on_a_link_that_is_over_is_found_again() {
    for (is_noticed_first, is_replaced) in [(true, false), (true, true), (false, false)] {
        let mut scene = Scene::new();
        let _stay = scene.pair.stay();
        scene.stand();
        ask_in_vain(&mut scene);
        let notice = |scene: &mut Scene| {
            scene.pair.rig(B).pass(210);
            assert_eq!(scene.refused(), ["link_down"]);
        };
        if is_noticed_first {
            notice(&mut scene);
        }
        let (session, asked) = (scene.id, Asked::Claim { over: tenure(1, A) });
        let question = Question { session, tenure: tenure(2, B), wake: Wake(0), asked };
        scene.agent.arbiter.answer(&question);
        scene.agent.arbiter.handle_lost(incarnation(B));
        if is_replaced {
            scene.pair.rig(B).hand_over();
        }
        // The owner is fenced, and has the other know that it has given the session up.
        let reply = Reply::Fenced { holder: tenure(2, B) };
        let answer = Answer { session, tenure: tenure(1, A), wake: Wake(0), reply };
        scene.agent.lanes[&(A, 0)].game.push_bytes(scene.pair.rig(A), &standing(&answer));
        scene.pair.rig(A).turn();
        assert_eq!(scene.pair.rig(A).sessions(), 0);
        scene.stand();
        if !is_noticed_first {
            notice(&mut scene);
        }
        scene.agent.join((B, 0), scene.pair.rig(B), incarnation(B));
        scene.at(B, 7, b"seven");
        scene.at(B, 8, b"eight");
        scene.at(B, 9, b"nine");
        let at = (is_noticed_first, is_replaced);
        assert_eq!(scene.pair.rig(B).sessions(), 1, "{at:?}");
        assert_eq!(scene.agent.handed.last(), Some(&b"nine".to_vec()), "{at:?}");
        assert_eq!(scene.pair.standbys(B).counts().standing, 0, "{at:?}");
    }
}

/// Where the arbiter has not read it, the owner has it as ever.
#[test]
fn what_an_arbiter_was_asked_for_in_vain_stays_its_owners() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let standbys = scene.pair.standbys(B);
    let now_ns = scene.pair.rig(B).now.mono_ns;
    ask_in_vain(&mut scene);
    scene.pair.rig(B).pass(210);
    // Another member stands by for it now: a packet that comes here has the arbiter asked whether
    // it is this gateway's. Where that cannot be, it goes to its owner.
    standbys.stand_down(OTHER[B], scene.id, now_ns);
    scene.pair.rig(B).deliver(home(1), &scene.scribe.payload(7, b"seven"));
    let sent_on = scene.pair.rig(B).host.take_for_members();
    assert_eq!(sent_on.into_iter().map(|(to, _)| to).collect::<Vec<_>>(), [OTHER[B]]);
    scene.agent.join((B, 0), scene.pair.rig(B), incarnation(B));
    scene.at(B, 8, b"eight");
    assert_eq!(scene.refused(), ["fenced", "link_down"]);
    assert_eq!((scene.pair.rig(A).sessions(), scene.pair.rig(B).sessions()), (1, 0));
    // This one stands by again, for the owner's later record and the one before it alike.
    for is_later in [false, true] {
        standbys.note_unanswered(here(), &record_of(&scene), tenure(2, B), now_ns);
        assert!(standbys.awaits(&here()));
        let mut given = record_of(&scene);
        given.revision += u32::from(is_later);
        assert!(standbys.stand_by(OTHER[B], here(), given).is_ok());
        assert!(!standbys.awaits(&here()));
        // What this process has asked for is not forgotten by that.
        standbys.stand_down(OTHER[B], scene.id, now_ns);
        assert!(standbys.awaits(&here()));
    }
}

/// Its owner lives, and has given the session anew while the arbiter was asked for it.
#[test]
fn what_an_owner_has_given_since_is_kept_where_its_arbiter_refuses() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    let standbys = scene.pair.standbys(B);
    let now_ns = scene.pair.rig(B).now.mono_ns;
    standbys.note_unanswered(here(), &record_of(&scene), tenure(2, B), now_ns);
    standbys.stand_down(OTHER[B], scene.id, now_ns);
    scene.agent.is_mute = true;
    scene.at(B, 6, b"six");
    assert!(standbys.stand_by(OTHER[B], here(), record_of(&scene)).is_ok());
    scene.agent.is_mute = false;
    scene.pair.rig(B).pass(210);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    assert_eq!((scene.refused(), standbys.counts().standing), (vec!["fenced"], 1));
    scene.kill();
    scene.at(B, 7, b"seven");
    scene.at(B, 8, b"eight");
    assert_eq!(scene.agent.handed.last(), Some(&b"eight".to_vec()));
}

/// What the operator denies meanwhile is looked for among sessions, and this is none yet.
#[test]
fn who_is_denied_while_an_arbiter_is_asked_for_his_session_has_none() {
    let mut scene = Scene::new();
    let _stay = scene.pair.stay();
    scene.stand();
    scene.kill();
    scene.agent.is_mute = true;
    scene.at(B, 6, b"six");
    assert_eq!(deny(scene.pair.rig(B), &denied(&[], &[1])), 0);
    scene.agent.is_mute = false;
    scene.pair.rig(B).pass(210);
    scene.agent.hear((B, 0), scene.pair.rig(B));
    scene.pair.rig(B).turn();
    scene.agent.hear((B, 0), scene.pair.rig(B));
    assert_eq!((scene.refused(), scene.pair.rig(B).sessions()), (vec!["denied"], 0));
    assert_eq!(scene.agent.closed, [scene.id]);
}

/// What the first gateway would give of its session.
fn record_of(scene: &Scene) -> Record {
    let own = scene.pair.standbys(A).with_own(scene.id, |_, record| record.clone());
    own.expect("it has it")
}
