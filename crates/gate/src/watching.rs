//! What fronts tell who watches. Each of these costs one branch while nobody does, and none of them
//! stands on the way of every datagram.

use crate::common::Common;
use crate::counters::Ended;
use crate::ids::BackendId;
use crate::store::table::Address;
use crate::trace::{Detail, Fact};
use ringgate_core::drops::DropReason;

impl Common {
    /// Something was decided about a datagram, or a session.
    #[inline]
    pub(crate) fn trace(&self, address: &Address, client_id: Option<u64>, fact: Fact) {
        if !self.taps.is_empty() {
            self.taps.note(address, client_id, fact);
        }
    }

    /// What is decided about the datagram at hand is about this player.
    #[inline]
    pub(crate) fn trace_player(&mut self, address: &Address, client_id: u64) {
        if !self.taps.is_empty() {
            self.taps.set_player(address, client_id, Detail::Nothing);
        }
    }

    /// The same of a session that ends: what ended it is about its player, too.
    #[inline]
    pub(crate) fn trace_end(&mut self, address: &Address, client_id: Option<u64>, why: Ended) {
        if !self.taps.is_empty() {
            self.taps.note(address, client_id, Fact::Ended { why });
            if let Some(client_id) = client_id {
                self.taps.set_player(address, client_id, Detail::Nothing);
            }
        }
    }

    /// A payload of a player's goes no further.
    #[cold]
    pub(crate) fn drop_uplink(
        &mut self,
        address: &Address,
        client_id: Option<u64>,
        (backend, why): (BackendId, DropReason),
    ) {
        self.drop_payload(backend, why);
        self.trace(address, client_id, Fact::Dropped { why, detail: Detail::Nothing });
    }
}
