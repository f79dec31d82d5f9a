//! Sessions between their asking for a socket of their own and having one.

use std::collections::BTreeMap;

use crate::front::netcode::session::Session;
use crate::store::entry::Entry;
use crate::store::table::Place;

/// Sessions between their asking for a socket and having one.
pub(crate) struct SocketQueue {
    /// Those whose socket could not be made, by entry: which session that is, and since when.
    /// Ordered, so that every run of the simulator asks in the same order.
    pub(crate) lacking: BTreeMap<Entry<Session>, (Place, u64)>,
    /// When they are asked for again.
    pub(crate) due_ns: u64,
    /// Those whose player waits to hear that it is connected.
    pub(crate) unwelcomed: Vec<Place>,
    /// Whether sessions have come from another process that have a socket of their own or need one.
    pub(crate) have_come: bool,
}

impl SocketQueue {
    pub(crate) const fn new() -> Self {
        Self {
            lacking: BTreeMap::new(),
            due_ns: u64::MAX,
            unwelcomed: Vec::new(),
            have_come: false,
        }
    }

    /// When to look again.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let due_ns = if self.unwelcomed.is_empty() { self.due_ns } else { 0 };
        (due_ns < u64::MAX).then_some(due_ns)
    }
}
