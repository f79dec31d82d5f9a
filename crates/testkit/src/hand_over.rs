//! Hand-overs of a simulated gateway: how many there were, and the one that is under way.

use crate::plan::Plan;
use crate::random::Random;
use crate::rehearsal::Rehearsal;

/// Hand-overs of a world.
pub(crate) struct HandOver {
    pub(crate) is_planned: bool,
    /// Of its own, so that worlds without hand-overs are what they were.
    pub(crate) random: Random,
    pub(crate) under_way: Option<UnderWay>,
    /// How many have succeeded.
    pub(crate) count: u64,
}

/// One that is under way.
pub(crate) struct UnderWay {
    pub(crate) rehearsal: Rehearsal,
    /// Steps until the barrier.
    pub(crate) steps_left: u64,
}

impl HandOver {
    pub(crate) fn new(plan: &Plan) -> Self {
        let random = Random::new(plan.seed ^ 0x6861_6e64);
        Self { is_planned: plan.hand_overs, random, under_way: None, count: 0 }
    }
}
