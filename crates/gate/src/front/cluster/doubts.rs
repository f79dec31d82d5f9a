//! What is asked of arbiters by a worker that has slept (`doubt`).

use crate::front::cluster::takeovers::ASK_EVERY_NS;
use crate::ids::BackendId;

/// What is asked, and when the worker was last awake.
pub(crate) struct Doubt {
    /// When it was noticed: the name of the question.
    pub(crate) since_ns: u64,
    /// Whose arbiters have not answered.
    pub(crate) backends: Vec<BackendId>,
    pub(crate) asked_ns: u64,
    /// When there is a turn, though nothing comes. So a long time without one is a sleep.
    pub(crate) beat_ns: u64,
    /// The process before has not had its answer.
    pub(crate) is_inherited: bool,
}

impl Doubt {
    pub(crate) const NONE: Self =
        Self { since_ns: 0, backends: Vec::new(), asked_ns: 0, beat_ns: 0, is_inherited: false };

    pub(crate) fn due_ns(&self) -> u64 {
        let ask_ns = if self.backends.is_empty() { u64::MAX } else { self.asked_ns + ASK_EVERY_NS };
        self.beat_ns.min(ask_ns)
    }
}
