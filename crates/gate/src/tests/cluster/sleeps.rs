//! A gateway that has slept asks the agent before it speaks again.

use super::super::games::{Heard, Offer};
use super::super::rig::home;
use super::OTHER;
use super::agent::standing;
use super::takeover::{A, B, Scene, incarnation, setup, tenure, zones};
use crate::counters::Ended;
use crate::setup::Setup;
use ringgate_cluster::{Answer as Said, Arbiter, Reply, Wake};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{Answer, CloseReason, MoveRefusal};

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

    /// The agent has died, and another one is linked to both, to the first gateway first.
    fn begin_anew(&mut self, sessions_max: usize) {
        for at in [A, B] {
            for (_, lane) in self.agent.lose(at) {
                lane.game.crash(self.pair.rig(at));
            }
        }
        self.agent.arbiter = Arbiter::new(sessions_max);
        for at in [A, B] {
            self.agent.join((at, 0), self.pair.rig(at), incarnation(at));
            self.hear(at);
        }
    }

    fn fenced(&mut self, at: usize) -> u64 {
        self.pair.rig(at).counters().sessions_closed[Ended::Fenced as usize]
    }
}

#[test]
fn an_agent_that_begins_anew_believes_the_later_term_whoever_comes_first() {
    for sessions_max in [0, 100] {
        let mut scene = ready();
        scene.sleep(300);
        scene.take_over();
        // Where there is no room it cannot tell, and members can.
        scene.begin_anew(sessions_max);
        for _ in 0..60 {
            for at in [B, A] {
                scene.hear(at);
            }
            scene.pair.pass(10);
        }
        assert_eq!((scene.pair.sessions(), scene.fenced(A)), ([0, 1], 1), "{sessions_max}");
        let handed = scene.agent.handed.len();
        scene.at(B, 9, b"nine");
        let plain = scene.agent.lanes[&(B, 0)].plain_payloads;
        let passed = (scene.agent.handed.len() - handed, plain);
        assert_eq!(passed, if sessions_max > 0 { (1, 0) } else { (1, 1) });
    }
}

/// As an agent of an earlier release says it that has begun anew.
#[test]
fn an_owner_whose_announcement_is_refused_has_the_session_no_more() {
    let mut scene = ready();
    scene.take_over();
    let session = scene.id;
    let refused = |by| Said {
        session,
        tenure: by,
        wake: Wake(0),
        reply: Reply::Fenced { holder: tenure(1, A) },
    };
    for (by, count) in [(tenure(1, B), 0), (tenure(2, B), 1)] {
        let bundle = standing(&refused(by));
        scene.agent.lanes[&(B, 0)].game.push_bytes(scene.pair.rig(B), &bundle);
        scene.pair.rig(B).turn();
        assert_eq!(scene.fenced(B), count);
    }
}

fn ready() -> Scene {
    ready_with(setup())
}

fn ready_with(setup: Setup) -> Scene {
    let mut scene = Scene::with(setup, 100);
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

/// The first gateway has slept, and the session is ended there before it hears whose that is.
fn wanted_to_end(why: Ended, is_taken_over: bool, is_upgraded: bool) -> Scene {
    let mut scene = ready();
    scene.sleep(300);
    if why == Ended::ByBackend {
        let Some((_, session)) = scene.agent.home(scene.id) else { panic!("the first has it") };
        let lane = &scene.agent.lanes[&(A, 0)];
        lane.game.push(scene.pair.rig(A), |writer| writer.close(session, CloseReason::Kicked));
    }
    if is_taken_over {
        scene.take_over();
    }
    scene.pair.rig(A).turn();
    if why != Ended::ByBackend {
        scene.kick(A, why);
    }
    if is_upgraded {
        scene.stays = None;
        scene.pair.fleets[A].hand_over();
        scene.pair.rig(A).turn();
    }
    assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [1, is_taken_over.into()]));
    scene
}

const WAYS_TO_END: [(Ended, bool); 6] = [
    (Ended::ByBackend, false),
    (Ended::ByBackend, true),
    (Ended::ByOperator, false),
    (Ended::ByOperator, true),
    (Ended::Denied, false),
    (Ended::Denied, true),
];

#[test]
fn a_session_that_is_to_end_while_it_is_asked_whose_it_is_ends_with_a_goodbye() {
    for (why, is_upgraded) in WAYS_TO_END {
        let mut scene = wanted_to_end(why, false, is_upgraded);
        // Who wants it again changes nothing, nor does a second sleep.
        scene.kick(A, Ended::ByOperator);
        scene.sleep(300);
        scene.pair.rig(A).turn();
        assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [1, 0]));
        (0..3).for_each(|_| scene.hear(A));
        let sent = scene.sent(A);
        assert!(sent.contains(&(tenure(1, A), PacketKind::Disconnect)), "{why:?}: {sent:?}");
        assert_eq!((scene.pair.sessions(), &scene.agent.closed[..]), ([0, 0], &[scene.id][..]));
        assert_eq!(scene.pair.rig(A).counters().sessions_closed[why as usize], 1, "{why:?}");
    }
}

#[test]
fn a_session_that_is_to_end_and_is_anothers_by_then_ends_there() {
    for (why, is_upgraded) in WAYS_TO_END {
        let mut scene = wanted_to_end(why, true, is_upgraded);
        scene.sent(B);
        for _ in 0..60 {
            for at in [A, B] {
                scene.hear(at);
            }
            scene.pair.pass(10);
        }
        assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [0, 0]), "{why:?}");
        let sent = scene.sent(B);
        assert!(sent.contains(&(tenure(2, B), PacketKind::Disconnect)), "{why:?}: {sent:?}");
        assert_eq!(scene.agent.closed.first(), Some(&scene.id));
        assert_eq!(scene.pair.rig(A).counters().sessions_closed[why as usize], 1, "{why:?}");
    }
}

#[test]
fn a_yes_that_has_waited_while_an_owner_slept_moves_nobody() {
    for is_taken_over in [false, true] {
        let mut scene = ready_with(zones());
        let (zone, Offer { session, number, .. }) = scene.offer();
        scene.sleep(300);
        zone.push(scene.pair.rig(A), |writer| writer.answer(session, number, Answer::Yes));
        if is_taken_over {
            scene.take_over();
        }
        scene.pair.rig(A).turn();
        let over = Heard::OfferOver(session, number, MoveRefusal::Busy);
        assert_eq!(zone.news(scene.pair.rig(A)), [over]);
        for _ in 0..60 {
            for at in [A, B] {
                scene.hear(at);
            }
            scene.pair.pass(10);
        }
        let sessions = if is_taken_over { [0, 1] } else { [1, 0] };
        assert_eq!((scene.pair.sessions(), &scene.agent.closed[..]), (sessions, &[][..]));
    }
}

#[test]
fn a_session_that_is_to_end_ends_with_its_backend_at_the_latest() {
    let mut scene = wanted_to_end(Ended::ByOperator, false, false);
    for (_, lane) in scene.agent.lose(A) {
        lane.game.crash(scene.pair.rig(A));
    }
    for _ in 0..120 {
        scene.pair.pass(500);
    }
    assert_eq!((scene.sent(A), scene.pair.sessions()), (vec![], [0, 0]));
    let closed = &scene.pair.rig(A).counters().sessions_closed;
    assert_eq!(closed[Ended::ByOperator as usize], 1);
}

#[test]
fn a_session_that_is_alone_after_a_sleep_is_its_game_processs_to_name() {
    let mut scene = ready();
    scene.sleep(300);
    scene.pair.rig(A).turn();
    for (_, lane) in scene.agent.lose(A) {
        lane.game.crash(scene.pair.rig(A));
    }
    scene.agent.arbiter = Arbiter::new(0);
    scene.agent.join((A, 0), scene.pair.rig(A), incarnation(A));
    // Members may say meanwhile that one of them has it.
    for is_sure in [false, true] {
        for _ in 0..60 {
            scene.hear(A);
            scene.pair.pass(10);
        }
        assert_eq!((scene.sent(A).is_empty(), scene.pair.sessions()), (!is_sure, [1, 0]));
    }
    let lane = &scene.agent.lanes[&(A, 0)];
    let session = lane.others.iter().copied().next().expect("it is announced");
    scene.pair.rig(A).take_for(home(1));
    let lane = &scene.agent.lanes[&(A, 0)];
    lane.game.push(scene.pair.rig(A), |writer| writer.payload(session, b"down"));
    scene.pair.rig(A).turn();
    assert!(scene.sent(A).contains(&(tenure(1, A), PacketKind::Payload)));
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
