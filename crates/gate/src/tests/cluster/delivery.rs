//! Players who get whole messages: where the agent can deliver them, their sessions go on at
//! another gateway as others do.

use super::super::clients::Scribe;
use super::super::games::Game;
use super::super::rig::{OUR_USER, Rig, home, netcode_rules};
use super::Pair;
use super::agent::{Agent, arbitrates};
use super::takeover::{A, B, Scene, incarnation, setup, tenure};
use crate::counters::Ended;
use crate::ids::BackendId;
use crate::mail::Mail;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{AgentDelivery, Hello};

fn delivering() -> Setup {
    let mut setup = setup();
    netcode_rules(&mut setup).delivers = true;
    setup
}

fn closed(rig: &mut Rig, why: Ended) -> u64 {
    rig.counters().sessions_closed[why as usize]
}

#[test]
fn a_session_whose_messages_the_agent_delivers_goes_on_at_its_standby() {
    let mut scene = Scene::with(delivering(), 100);
    let _stay = scene.pair.stay();
    // What its player says is the agent's to understand, and comes as it is.
    assert_eq!(scene.agent.handed, [b"five".to_vec()]);
    let begins = AgentDelivery { keep_alive_ms: 100, begins: true };
    assert_eq!(scene.agent.delivers, [(scene.id, begins)]);
    scene.stand();
    scene.kill();
    scene.at(B, 6, b"six");
    scene.pair.rig(B).turn();
    assert_eq!(scene.sent(B), [(tenure(2, B), PacketKind::KeepAlive)]);
    scene.at(B, 7, b"seven");
    assert_eq!(scene.agent.handed, [b"five".to_vec(), b"seven".to_vec()]);
    let goes_on = AgentDelivery { keep_alive_ms: 100, begins: false };
    assert_eq!(scene.agent.delivers[1..], [(scene.id, goes_on)]);
    assert_eq!(scene.agent.there.last(), Some(&scene.id), "its player is known to be there");
    // What the agent sends goes out as it is, and counts as a sign of life: the gateway's own
    // comes a quarter of the interval later.
    scene.sent(B);
    let session = *scene.agent.lanes[&(B, 0)].sessions.keys().next().expect("one");
    for _ in 0..5 {
        scene.agent.lanes[&(B, 0)].game.push(scene.pair.rig(B), |it| it.payload(session, b"p"));
        scene.pair.rig(B).pass(100);
    }
    let kinds: Vec<_> = scene.sent(B).into_iter().map(|it| it.1).collect();
    assert_eq!(kinds, [PacketKind::Payload; 5]);
    scene.pair.rig(B).pass(130);
    assert_eq!(scene.sent(B).last().map(|it| it.1), Some(PacketKind::KeepAlive));
}

#[test]
fn a_player_is_there_with_its_first_keep_alive() {
    let mut pair = Pair::new(delivering(), 1);
    let mut agent = Agent::new(100);
    agent.join((A, 0), pair.rig(A), incarnation(A));
    pair.standbys(A).set_incarnation(incarnation(A));
    let scribe = Scribe::new(&pair.rig(A).token(1));
    scribe.connect(pair.rig(A), home(1));
    agent.hear((A, 0), pair.rig(A));
    assert_eq!((agent.delivers.len(), agent.there.len()), (1, 0));
    for number in [5, 6] {
        pair.rig(A).deliver(home(1), &scribe.keep_alive(number));
        agent.hear((A, 0), pair.rig(A));
        assert_eq!(agent.there.len(), 1, "it is said once");
    }
}

/// With an earlier agent, and where games move their players, the gateway delivers, and the session
/// ends with it.
#[test]
fn what_no_agent_delivers_is_delivered_here() {
    let mut moving = delivering();
    netcode_rules(&mut moving).moves = vec![BackendId(0)];
    for (setup, is_earlier) in [(delivering(), true), (moving, false)] {
        let mut pair = Pair::new(setup, 1);
        pair.standbys(A).set_incarnation(incarnation(A));
        let mut agent = Agent::new(100);
        if is_earlier {
            let game = Game::connect(pair.rig(A), OUR_USER);
            game.say(pair.rig(A), |it| it.hello(&Hello::new(1, "arena")) && arbitrates(it));
        } else {
            agent.join((A, 0), pair.rig(A), incarnation(A));
        }
        let scribe = Scribe::new(&pair.rig(A).token(1));
        scribe.connect(pair.rig(A), home(1));
        pair.rig(A).provokes(DropReason::DeliveryFault, |rig| {
            rig.deliver(home(1), &scribe.payload(5, b"no packet"));
        });
        assert_eq!((closed(pair.rig(A), Ended::DeliveryMalformed), agent.delivers.len()), (1, 0));
        assert_eq!(pair.standbys(A).counts().owned, 0);
    }
}

/// The agent has no room for the session, and nothing was said in it.
#[test]
fn what_the_agent_has_no_room_for_is_delivered_here() {
    let mut scene = Scene::with(delivering(), 0);
    scene.at(A, 6, b"no packet");
    assert_eq!(scene.agent.handed, [b""; 0]);
    assert_eq!(closed(scene.pair.rig(A), Ended::DeliveryMalformed), 1);
}

/// A reload is for sessions that begin later, also where the process is replaced, and where another
/// agent comes that begins anew.
#[test]
fn a_listener_that_delivers_from_now_on_or_no_more_changes_no_session_that_is_there() {
    for delivers in [true, false] {
        for is_replaced in [false, true] {
            let mut then = delivering();
            netcode_rules(&mut then).delivers = delivers;
            let mut scene = Scene::with(then, 100);
            let mut now = (*scene.pair.rig(A).host.gate().common.setup).clone();
            now.revision += 1;
            netcode_rules(&mut now).delivers = !delivers;
            scene.pair.rig(A).mail(Mail::Setup(now.into()));
            scene.pair.rig(A).turn();
            if is_replaced {
                scene.pair.rig(A).hand_over();
            }
            scene.at(A, 6, b"six");
            assert_eq!(scene.agent.handed.last(), Some(&b"six".to_vec()));
            let told = scene.agent.delivers.len();
            assert_eq!(told > 0, delivers);
            for (_, lane) in scene.agent.lose(A) {
                lane.game.crash(scene.pair.rig(A));
            }
            scene.pair.rig(A).pass(50);
            scene.agent.join((A, 0), scene.pair.rig(A), incarnation(A));
            scene.at(A, 7, b"seven");
            assert_eq!(scene.agent.handed.last(), Some(&b"seven".to_vec()));
            let told = &scene.agent.delivers[told..];
            assert_eq!((told.len(), scene.pair.rig(A).sessions()), (delivers.into(), 1));
        }
    }
}

/// What was said in the session was known to the agent alone, and another one has come.
#[test]
fn a_session_ends_where_its_agent_does_not_deliver_any_more() {
    let mut scene = Scene::with(delivering(), 100);
    for (_, lane) in scene.agent.lose(A) {
        lane.game.crash(scene.pair.rig(A));
    }
    scene.pair.rig(A).pass(50);
    assert_eq!(scene.pair.rig(A).sessions(), 1, "it waits");
    let game = Game::connect(scene.pair.rig(A), OUR_USER);
    game.say(scene.pair.rig(A), |it| it.hello(&Hello::new(1, "arena")) && arbitrates(it));
    scene.pair.rig(A).pass(300);
    assert_eq!(closed(scene.pair.rig(A), Ended::BackendGone), 1);
}
