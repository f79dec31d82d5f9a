//! The sequence guards of sessions, beside their table: listeners without them pay nothing.

use crate::front::plain::session::Session;
use crate::store::entry::Entry;
use ringgate_core::proto::plain::Guard;
use ringgate_core::proto::replay::Policy;

/// One direction's guards, by entry.
pub(crate) struct Guards(Vec<Guard>);

impl Guards {
    /// For a table of so many places.
    pub(crate) fn new(places: usize) -> Self {
        Self(Vec::with_capacity(places))
    }

    /// Begins with the first number of a session.
    pub(crate) fn start(&mut self, entry: Entry<Session>, first: u32, policy: &Policy) {
        let at = entry.index();
        if at >= self.0.len() {
            self.0.resize_with(at + 1, Guard::default);
        }
        self.0[at] = Guard::starting_with(first, policy);
    }

    /// The same where the rules have changed: what was a number before is none now.
    pub(crate) fn start_again(&mut self, entry: Entry<Session>, first: u32, policy: &Policy) {
        match self.get(entry).map(|guard| guard.starting_again(first, policy)) {
            Some(guard) => self.put(entry, guard),
            None => self.start(entry, first, policy),
        }
    }

    /// The guard of a session for which one was started.
    #[inline]
    pub(crate) fn of(&mut self, entry: Entry<Session>) -> &mut Guard {
        &mut self.0[entry.index()]
    }
}

impl Guards {
    /// The guard of an entry, if one was ever started there.
    pub(crate) fn get(&self, entry: Entry<Session>) -> Option<&Guard> {
        self.0.get(entry.index())
    }

    /// Gives an entry the guard that it had in another process.
    pub(crate) fn put(&mut self, entry: Entry<Session>, guard: Guard) {
        let at = entry.index();
        if at >= self.0.len() {
            self.0.resize_with(at + 1, Guard::default);
        }
        self.0[at] = guard;
    }
}
