//! What a batch will touch is fetched before anything looks at it: all first lines, then all that
//! they lead to.
//!
//! With a million players nearly every packet is for a session that is in no cache. Looked at one
//! after the other, each packet costs three or four waits for memory; fetched together, the whole
//! batch costs about as many as one packet. Where everything is in a cache already, this costs a
//! few nanoseconds (benches/turn.rs).
//!
//! What bounds this is how many walks of page tables the CPU has under way, so the worker asks for
//! huge pages ([`Gate::large_tables`](crate::Gate::large_tables)).

use crate::arrivals::Source;
use crate::front::netcode::session::{SEALING_LINES, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::store::entry::Entry;

impl NetcodeFront {
    /// Has the sessions fetched that were guessed already.
    pub(crate) fn fetch_guessed(&self, sources: &[Source]) {
        for source in sources {
            self.fetch_player(source.guess.entry());
        }
    }

    /// Has the lines fetched that a packet for a player touches.
    #[inline]
    pub(crate) fn fetch_player(&self, index: Entry<Session>) {
        for lines in SEALING_LINES {
            self.sessions.prefetch(index, lines);
        }
    }
}
