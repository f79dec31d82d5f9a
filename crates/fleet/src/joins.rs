//! Players who have come to a backend, on the way to etcd: a value has room for some of them, so
//! several values tell them, one after the other. What is told too late settles a promise later;
//! what is told before its player is counted would have a slot promised twice, so callers note the
//! players who have come before they count.

use std::collections::VecDeque;

use ringgate_core::netcode::destination::Join;

use crate::values::joined::{JOINED_MAX, Joined};

/// Those of one backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joins {
    shown: Joined,
    waiting: VecDeque<Join>,
}

impl Joins {
    /// This one has come. Of more than can wait the first ones go: promises of theirs last until
    /// their tokens end.
    pub fn note(&mut self, join: Join) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(join);
    }

    /// Whether there are some that were never shown.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What is told.
    pub const fn shown(&self) -> &Joined {
        &self.shown
    }

    /// What was told before is on its way: the next ones are shown too, as many as there is room
    /// for, and of the earlier ones the last.
    pub fn show_next(&mut self) {
        let next = self.waiting.len().min(JOINED_MAX);
        if next > 0 {
            let all: Vec<_> =
                self.shown.all().iter().copied().chain(self.waiting.drain(..next)).collect();
            self.shown = Joined::new(&all);
        }
    }

    /// All of them, for a process that goes on.
    pub fn all(&self) -> Vec<u64> {
        self.shown.all().iter().chain(&self.waiting).map(|it| it.0).collect()
    }

    /// Those of another process. They are told again, which settles nothing twice.
    pub fn go_on(&mut self, all: &[u64]) {
        for number in all {
            self.note(Join(*number));
        }
    }
}

/// Some seconds of the fullest server's.
const WAITING_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(joins: &Joins) -> Vec<u64> {
        joins.shown().all().iter().map(|it| it.0).collect()
    }

    #[test]
    fn each_join_is_shown_once_at_least_however_many_come() {
        let mut joins = Joins::default();
        (0..600).for_each(|at| joins.note(Join(at)));
        let mut heard = std::collections::BTreeSet::new();
        while joins.is_waiting() {
            joins.show_next();
            assert!(shown(&joins).len() <= JOINED_MAX);
            heard.extend(shown(&joins));
        }
        assert_eq!(heard.len(), 600);
        assert_eq!(shown(&joins), (344..600).collect::<Vec<_>>());
        let before = joins.clone();
        joins.show_next();
        assert_eq!(joins, before);
        (0..10_000).for_each(|at| joins.note(Join(at)));
        assert_eq!(joins.all().len(), JOINED_MAX + WAITING_MAX);
        let mut next = Joins::default();
        next.go_on(&before.all());
        next.show_next();
        assert_eq!(next, before);
    }
}
