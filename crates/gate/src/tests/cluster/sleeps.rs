//! A gateway that has slept asks the agent before it speaks again.

use super::super::rig::home;
use super::OTHER;
use super::takeover::{A, B, Scene, incarnation, tenure};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::CloseReason;

impl Scene {
    /// The first gateway takes no turns for so long, while players and game processes send.
    fn sleep(&mut self, ms: u64) {
        self.sent(A);
        self.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(ms));
    }

    fn game_says(&mut self, bytes: &[u8]) {
        let Some(((A, 0), session)) = self.agent.home(self.id) else { panic!("the first has it") };
        let lane = &self.agent.lanes[&(A, 0)];
        lane.game.push(self.pair.rig(A), |writer| writer.payload(session, bytes));
    }

    /// What the agent has heard is answered.
    fn hear(&mut self, at: usize) {
        self.agent.hear((at, 0), self.pair.rig(at));
        self.agent.speak((at, 0), self.pair.rig(at));
        self.pair.rig(at).turn();
    }

    /// Has the second go on with what the first has.
    fn take_over(&mut self) {
        let now_ns = self.pair.rig(B).now.mono_ns;
        self.pair.standbys(B).set_gone(OTHER[B], now_ns);
        self.pair.whereabouts(B).forget(OTHER[B]);
        self.at(B, 6, b"six");
        assert_eq!(self.pair.sessions(), [1, 1]);
    }
}

fn ready() -> Scene {
    let mut scene = Scene::new();
    scene.stays = Some(scene.pair.stay());
    scene.stand();
    scene.pair.pass(500);
    scene.agent.hear((A, 0), scene.pair.rig(A));
    scene
}

#[test]
fn an_owner_that_has_slept_says_nothing_before_it_hears_that_it_is_one() {
    let mut scene = ready();
    scene.sleep(300);
    scene.game_says(b"down");
    let packet = scene.scribe.payload(7, b"seven");
    scene.pair.rig(A).push(home(1), &packet);
    let unconfirmed = |scene: &mut Scene| scene.pair.rig(A).drops(DropReason::OwnerUnconfirmed);
    scene.pair.rig(A).turn();
    assert_eq!((scene.sent(A), unconfirmed(&mut scene)), (vec![], 1));
    scene.agent.is_mute = true;
    for _ in 0..100 {
        scene.pair.pass(10);
        scene.agent.hear((A, 0), scene.pair.rig(A));
    }
    assert_eq!((scene.sent(A), scene.agent.handed.len()), (vec![], 1));
    // It asks again.
    scene.agent.is_mute = false;
    scene.pair.pass(250);
    scene.hear(A);
    scene.pair.pass(100);
    scene.game_says(b"down");
    scene.pair.rig(A).turn();
    let sent = scene.sent(A);
    assert!(sent.contains(&(tenure(1, A), PacketKind::KeepAlive)), "{sent:?}");
    assert!(sent.contains(&(tenure(1, A), PacketKind::Payload)), "{sent:?}");
    scene.at(A, 8, b"eight");
    assert_eq!((scene.agent.handed.len(), scene.pair.sessions()), (2, [1, 0]));
}

#[test]
fn an_owner_that_wakes_fenced_forgets_the_session_and_has_said_nothing() {
    for is_lost in [false, true] {
        let mut scene = ready();
        scene.sleep(300);
        scene.game_says(b"down");
        scene.take_over();
        if is_lost {
            // Its connection was given up meanwhile.
            for (_, lane) in scene.agent.lose(A) {
                lane.game.crash(scene.pair.rig(A));
            }
            scene.agent.join((A, 0), scene.pair.rig(A), incarnation(A));
        }
        let packet = scene.scribe.payload(7, b"seven");
        scene.pair.rig(A).push(home(1), &packet);
        scene.pair.rig(A).turn();
        for _ in 0..60 {
            scene.hear(A);
            scene.pair.pass(10);
        }
        assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [0, 1]), "{is_lost}");
        assert_eq!(scene.agent.handed, [b"five".to_vec()]);
        let closed = &scene.pair.rig(A).counters().sessions_closed;
        assert_eq!(closed[Ended::Fenced as usize], 1);
    }
}

#[test]
fn an_owner_that_has_slept_for_longer_than_a_timeout_times_nobody_out_before_it_is_sure() {
    let mut scene = ready();
    scene.sleep(60_000);
    scene.take_over();
    scene.pair.rig(A).turn();
    assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [1, 1]));
    scene.hear(A);
    let closed = &scene.pair.rig(A).counters().sessions_closed;
    assert_eq!(closed[Ended::Fenced as usize], 1);
}

#[test]
fn a_game_process_ends_a_session_while_it_is_asked_whose_that_is() {
    let mut scene = ready();
    scene.sleep(300);
    let Some((_, session)) = scene.agent.home(scene.id) else { panic!("the first has it") };
    let lane = &scene.agent.lanes[&(A, 0)];
    lane.game.push(scene.pair.rig(A), |writer| writer.close(session, CloseReason::Kicked));
    scene.pair.rig(A).turn();
    assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [0, 0]));
    scene.hear(A);
    assert_eq!(scene.agent.closed, [scene.id]);
}

#[test]
fn the_next_process_asks_what_the_one_before_has_not_heard() {
    let mut scene = ready();
    scene.sleep(300);
    scene.pair.rig(A).turn();
    scene.stays = None;
    scene.pair.fleets[A].hand_over();
    scene.pair.rig(A).turn();
    scene.game_says(b"down");
    scene.pair.rig(A).turn();
    assert_eq!(scene.sent(A), []);
    scene.hear(A);
    scene.game_says(b"down");
    scene.pair.rig(A).turn();
    assert!(!scene.sent(A).is_empty());
}
