//! How far a swarm has come with its plan.

use std::collections::VecDeque;

use super::scenario::{Plan, Step};

/// How far the plan has come.
#[derive(Debug)]
pub(super) struct Population {
    pub(super) plan: Plan,
    pub(super) step: usize,
    /// Players who come or go in this step, so far.
    pub(super) changed: u32,
    /// When the next player is replaced.
    pub(super) churn_at_ns: u64,
    /// Whether this step's traffic and reconnection have been acted upon.
    pub(super) is_entered: bool,
    /// Players in the order in which they came, with their session, because places are used again.
    pub(super) present: VecDeque<(u32, u32)>,
    /// Players who should be here and are not yet: the moment they were to connect, and how many of
    /// them.
    pub(super) owed: VecDeque<(u64, u32)>,
    /// When to look again for a place or a token.
    pub(super) retry_at_ns: u64,
    /// It was a token that was not there when it was looked last.
    pub(super) awaits_token: bool,
    pub(super) next_goodbye_ns: u64,
    pub(super) is_over: bool,
}

impl Population {
    pub(super) const fn new(plan: Plan) -> Self {
        Self {
            plan,
            step: 0,
            changed: 0,
            churn_at_ns: u64::MAX,
            is_entered: false,
            present: VecDeque::new(),
            owed: VecDeque::new(),
            retry_at_ns: 0,
            awaits_token: false,
            next_goodbye_ns: 0,
            is_over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over && self.present.is_empty()
    }

    pub(super) fn current(&self) -> Option<&Step> {
        self.plan.steps.get(self.step)
    }

    /// Whether nobody is to come or go.
    pub(super) fn is_hold(&self) -> bool {
        self.is_entered && self.current().is_some_and(Step::is_hold)
    }

    pub(super) fn poll_timeout(&self) -> u64 {
        let owed = self.owed.front().map_or(u64::MAX, |(at_ns, _)| self.retry_at_ns.max(*at_ns));
        self.poll_change().min(owed)
    }

    /// When the plan asks for something next.
    pub(super) fn poll_change(&self) -> u64 {
        let Some(step) = self.current() else {
            return if self.present.is_empty() { u64::MAX } else { self.next_goodbye_ns };
        };
        if !self.is_entered {
            return step.start_ns;
        }
        let has_change = self.changed < step.to.abs_diff(step.from);
        let change = if has_change { step.change_at_ns(self.changed + 1) } else { u64::MAX };
        change.min(self.churn_at_ns).min(step.end_ns)
    }
}
