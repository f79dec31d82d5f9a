//! What a gateway has ended stays ended, though the agent was away.

use std::sync::Arc;

use super::super::rig::{home, netcode_rules};
use super::OTHER;
use super::takeover::{A, B, Scene, incarnation, setup, tenure};
use crate::counters::Ended;
use crate::front::cluster::over::Burying;
use crate::front::cluster::overs::{Over, Player, WAITING_MAX};
use crate::ids::BackendId;
use crate::mail::Mail;
use crate::survey::{Survey, Wanted};
use ringgate_cluster::SessionId;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;

impl Scene {
    /// The first gateway has no link to the agent, and the second one none to the first.
    fn cut_off(&mut self) {
        for (_, lane) in self.agent.lose(A) {
            lane.game.crash(self.pair.rig(A));
        }
        let now_ns = self.pair.rig(B).now.mono_ns;
        self.pair.standbys(B).set_gone(OTHER[B], now_ns);
        self.pair.whereabouts(B).forget(OTHER[B]);
    }

    /// The first gateway has a link to the agent again.
    fn join_again(&mut self) {
        self.agent.join((A, 0), self.pair.rig(A), incarnation(A));
        self.pair.pass(250);
        self.agent.hear((A, 0), self.pair.rig(A));
        for at in [A, B] {
            self.agent.speak((at, 0), self.pair.rig(at));
            self.pair.rig(at).turn();
        }
    }

    /// As many sessions have ended at the first gateway as may wait for the agent.
    fn fill(&mut self, player: Player) {
        let gate = self.pair.rig(A).host.gate_mut();
        let over = Over { backend: BackendId(0), tenure: tenure(1, A) };
        for number in 0..WAITING_MAX as u128 {
            let name = (player, SessionId(number.to_be_bytes()));
            gate.fronts.netcode.note_over(&gate.common, name, over);
        }
        assert_eq!(self.untold(), 0);
    }

    fn untold(&self) -> u64 {
        self.pair.standbys(A).counts().ends_untold
    }

    /// Whether the first gateway tells the agent that the session is over.
    fn tells(&mut self, player: Player) -> bool {
        let overs = &self.pair.rig(A).host.gate().fronts.netcode.sessions.clusters.overs;
        assert_eq!(overs.len(), WAITING_MAX);
        overs.waiting.contains_key(&(player, self.id))
    }

    /// An operator has all sessions of a gateway end.
    pub(super) fn kick(&mut self, at: usize, why: Ended) {
        let survey = Survey::new(Wanted::default(), Some(why), 0, 1);
        self.pair.rig(at).mail(Mail::Survey(Arc::new(survey)));
        (0..5).for_each(|_| self.pair.rig(at).turn());
    }
}

/// A session that ends at the first gateway while that is cut off.
fn ended_while_cut_off(goes_on: bool, is_kicked: bool, is_upgraded: bool) -> Scene {
    let mut scene = Scene::new();
    scene.stand();
    scene.cut_off();
    scene.stays = Some(scene.pair.stay());
    if goes_on {
        scene.at(B, 6, b"six");
    }
    assert_eq!(scene.pair.sessions(), [1, usize::from(goes_on)]);
    if is_kicked {
        scene.kick(A, Ended::ByOperator);
    } else {
        scene.pair.rig(A).deliver(home(1), &scene.scribe.disconnect(7));
    }
    if is_upgraded {
        scene.pair.fleets[A].hand_over();
    }
    assert_eq!(scene.pair.sessions(), [0, usize::from(goes_on)]);
    scene
}

#[test]
fn a_session_that_ends_while_the_agent_is_away_is_over_wherever_it_has_gone_on() {
    for case in 0..8 {
        let (goes_on, is_kicked, is_upgraded) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let mut scene = ended_while_cut_off(goes_on, is_kicked, is_upgraded);
        scene.join_again();
        assert_eq!(scene.agent.closed, [scene.id], "case {case}");
        assert_eq!(scene.pair.sessions(), [0, 0], "case {case}");
        scene.pair.pass(100);
        let before = scene.agent.handed.len();
        scene.at(B, 9, b"nine");
        scene.at(B, 10, b"ten");
        assert_eq!((scene.pair.sessions(), scene.agent.handed.len()), ([0, 0], before));
        // The arbiter has heard it, and hears it no more.
        scene.pair.rig(A).sent.clear();
        scene.pair.pass(1000);
        assert!(scene.pair.rig(A).sent.is_empty(), "case {case}");
    }
}

#[test]
fn a_session_whose_player_is_silent_at_one_gateway_goes_on_at_the_other() {
    let mut scene = Scene::new();
    scene.stand();
    scene.cut_off();
    scene.stays = Some(scene.pair.stay());
    scene.at(B, 6, b"six");
    for number in 7..200 {
        scene.at(B, number, &number.to_le_bytes());
        scene.pair.pass(100);
    }
    assert_eq!(scene.pair.sessions(), [0, 1], "it has timed out at the first");
    scene.join_again();
    assert_eq!((scene.pair.sessions(), scene.agent.closed.len()), ([0, 1], 0));
}

/// The router has had the player's packets go elsewhere for a while, and has them come again.
#[test]
fn a_gap_that_a_session_has_only_where_it_was_ends_it_there_alone() {
    let mut setup = setup();
    netcode_rules(&mut setup).replay = Policy::new(256, 100).expect("a power of two");
    let mut scene = Scene::with(setup, 100);
    scene.stand();
    scene.cut_off();
    scene.stays = Some(scene.pair.stay());
    for number in (50..300).step_by(45) {
        scene.at(B, number, b"elsewhere");
    }
    let packet = scene.scribe.payload(300, b"again");
    scene.pair.rig(A).provokes(DropReason::SequenceGap, |rig| rig.deliver(home(1), &packet));
    scene.join_again();
    assert_eq!((scene.pair.sessions(), scene.agent.closed.len()), ([0, 1], 0));
}

#[test]
fn an_end_that_no_agent_is_told_of_is_counted() {
    use Player::{HasLeft, MayPlayOn};
    for (filled, is_kicked, is_told) in
        [(HasLeft, true, true), (MayPlayOn, true, false), (MayPlayOn, false, false)]
    {
        let mut scene = Scene::new();
        scene.cut_off();
        scene.stays = Some(scene.pair.stay());
        scene.fill(filled);
        let player = if is_kicked {
            scene.kick(A, Ended::ByOperator);
            MayPlayOn
        } else {
            scene.pair.rig(A).deliver(home(1), &scene.scribe.disconnect(7));
            HasLeft
        };
        assert_eq!((scene.untold(), scene.tells(player)), (1, is_told));
        scene.stays = None;
        scene.pair.fleets[A].hand_over();
        assert_eq!(scene.tells(player), is_told, "the next process goes on with all of them");
    }
}
