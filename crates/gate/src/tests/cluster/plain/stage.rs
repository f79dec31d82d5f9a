//! Two gateways with a plain listener each, an agent that both have, and one player of the first.

use std::sync::Arc;

use super::super::super::plain::plain_setup_with;
use super::super::super::rig::{bundle_backend, home};
use super::super::agent::Agent;
use super::super::takeover::incarnation;
use super::super::{OTHER, Pair};
use super::{A, B};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{Plain, Setup};
use crate::shared::claims::Claims;
use crate::shared::standbys::TakeoverRefusal;
use crate::survey::{Survey, Wanted};
use ringgate_cluster::{Proof, Record, SessionId};

pub(super) struct Stage {
    pub(super) pair: Pair,
    pub(super) agent: Agent,
    pub(super) id: SessionId,
    /// Keeps the processes of both, where a test is about what they remember.
    pub(super) stays: Option<[Arc<Claims>; 2]>,
}

pub(super) fn setup(change: impl FnOnce(&mut Plain)) -> Setup {
    let mut setup = plain_setup_with(3, change);
    setup.backends = vec![bundle_backend("arena", 3)].into();
    setup.listeners[ListenerId(0)].backends = vec![BackendId(0)];
    setup
}

impl Stage {
    /// The player plays at the first.
    pub(super) fn new(change: impl FnOnce(&mut Plain)) -> Self {
        Self::playing(setup(change), [b"hello", b"thanks"])
    }

    /// What it says to begin and to open is this.
    pub(super) fn playing(setup: Setup, said: [&[u8]; 2]) -> Self {
        let mut stage = Self::waiting(setup, said[0]);
        stage.game_says(A, b"welcome");
        stage.at(A, said[1]);
        stage.pair.tell();
        stage.id = stage.agent.held().first().copied().unwrap_or(stage.id);
        stage.pair.rig(A).take_for(home(1));
        stage.agent.handed.clear();
        stage
    }

    /// The player has sent once, and its game has not answered.
    pub(super) fn waiting(setup: Setup, said: &[u8]) -> Self {
        let (mut pair, mut agent) = (Pair::new(setup, 1), Agent::new(100));
        for at in [A, B] {
            agent.join((at, 0), pair.rig(at), incarnation(at));
            pair.standbys(at).set_incarnation(incarnation(at));
        }
        let stays = Some(pair.stay());
        let mut stage = Self { pair, agent, id: SessionId([0; 16]), stays };
        stage.at(A, said);
        stage
    }

    /// The player's datagram arrives at a gateway, and the agent hears of it.
    pub(super) fn at(&mut self, at: usize, bytes: &[u8]) {
        self.pair.rig(at).deliver(home(1), bytes);
        self.hear(at);
        self.hear(at);
    }

    /// What a gateway has said is heard and answered.
    pub(super) fn hear(&mut self, at: usize) {
        self.agent.hear((at, 0), self.pair.rig(at));
        self.agent.speak((at, 0), self.pair.rig(at));
        self.pair.rig(at).turn();
    }

    /// The game says something to its player, by the gateway that has it.
    pub(super) fn game_says(&mut self, at: usize, bytes: &[u8]) {
        let lane = &self.agent.lanes[&(at, 0)];
        let session = lane.sessions.keys().chain(&lane.others).next().copied();
        let session = session.expect("the gateway has it");
        lane.game.say(self.pair.rig(at), |writer| writer.payload(session, bytes));
    }

    /// The first gives the other what it may have to go on with.
    pub(super) fn stand(&mut self) {
        self.pair.stand(A);
    }

    /// The first is gone, as far as the other knows.
    pub(super) fn cut(&mut self) {
        let now_ns = self.pair.rig(B).now.mono_ns;
        self.pair.standbys(B).set_gone(OTHER[B], now_ns);
        self.pair.whereabouts(B).forget(OTHER[B]);
    }

    /// It is.
    pub(super) fn kill(&mut self) {
        self.agent.lose(A);
        self.cut();
    }

    /// Its link to the agent is lost as well.
    pub(super) fn cut_off(&mut self) {
        for (_, lane) in self.agent.lose(A) {
            lane.game.crash(self.pair.rig(A));
        }
        self.cut();
    }

    /// It has a link again.
    pub(super) fn join_again(&mut self) {
        self.agent.join((A, 0), self.pair.rig(A), incarnation(A));
        self.pair.pass(250);
        for at in [A, B].into_iter().cycle().take(6) {
            self.hear(at);
        }
    }

    /// It takes no turns for so long.
    pub(super) fn sleep(&mut self, ms: u64) {
        self.pair.fleets.iter_mut().flat_map(|it| &mut it.rigs).for_each(|it| it.jump(ms));
    }

    /// All goes on that has begun.
    pub(super) fn settle(&mut self) {
        for _ in 0..3 {
            for at in [A, B] {
                self.pair.stand(at);
                self.hear(at);
            }
            self.pair.carry();
        }
        self.pair.pass(30);
    }

    /// The player's datagram arrives at a gateway, and all goes on that follows from it.
    pub(super) fn pass_by(&mut self, at: usize, bytes: &[u8]) {
        self.pair.arrive(at, home(1), bytes);
        self.settle();
    }

    /// An operator has all sessions of a gateway end.
    pub(super) fn kick(&mut self, at: usize, why: Ended) {
        let survey = Survey::new(Wanted::default(), Some(why), 0, 1);
        self.pair.rig(at).mail(Mail::Survey(Arc::new(survey)));
        (0..5).for_each(|_| self.pair.rig(at).turn());
    }

    pub(super) fn handed(&self) -> Vec<String> {
        self.agent.handed.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect()
    }

    pub(super) fn refused(&self) -> Vec<&'static str> {
        let counts = self.pair.standbys(B).counts();
        let named = TakeoverRefusal::ALL.into_iter();
        named.filter(|it| counts.refused[*it as usize] > 0).map(TakeoverRefusal::name).collect()
    }

    /// What the first keeps for the other.
    pub(super) fn record(&self) -> Option<Record> {
        self.pair.standbys(A).with_own(self.id, |_, record| record.clone())
    }

    pub(super) fn closed(&mut self, at: usize, why: Ended) -> u64 {
        self.pair.rig(at).counters().sessions_closed[why as usize]
    }
}

/// Whether a record's player is proven, and the highest number that it has had.
pub(super) fn known(record: &Record) -> (bool, u64) {
    let Proof::Plain(proof) = &record.proof else { panic!("it is plain") };
    (proof.is_proven, proof.newest)
}
