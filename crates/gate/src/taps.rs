//! Who watches a worker decide. While nobody does, a batch costs one branch, and so does a datagram
//! that is dropped.

use std::sync::Arc;

use crate::ids::WorkerId;
use crate::store::table::Address;
use crate::trace::{Detail, Fact, Record, Trace, Watched};
use ringgate_core::drops::DropReason;

/// The watchers of one worker.
pub(crate) struct Taps {
    worker: WorkerId,
    traces: Vec<Arc<Trace>>,
    now_ns: u64,
    /// What is known of the datagram at hand.
    at_hand: Option<AtHand>,
}

/// What was found out about a datagram, in case that it goes no further.
#[derive(Clone, Copy)]
struct AtHand {
    address: Address,
    client_id: u64,
    detail: Detail,
}

impl Taps {
    pub(crate) const fn new(worker: WorkerId) -> Self {
        Self { worker, traces: Vec::new(), now_ns: 0, at_hand: None }
    }

    /// Whether nobody watches.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if !self.is_empty() {
            self.clean_up(now_ns);
        }
    }

    #[cold]
    fn clean_up(&mut self, now_ns: u64) {
        (self.now_ns, self.at_hand) = (now_ns, None);
        self.traces.retain(|trace| !trace.is_over(now_ns));
    }

    /// Somebody wants to know.
    pub(crate) fn watch(&mut self, trace: Arc<Trace>, now_ns: u64) {
        self.now_ns = now_ns;
        self.traces.push(trace);
    }

    /// What is decided about the datagram at hand from here on is about this player.
    #[cold]
    pub(crate) fn set_player(&mut self, address: &Address, client_id: u64, detail: Detail) {
        self.at_hand = Some(AtHand { address: *address, client_id, detail });
    }

    /// A datagram goes no further.
    #[cold]
    pub(crate) fn note_drop(
        &mut self,
        address: &Address,
        client_id: Option<u64>,
        why: DropReason,
        detail: Detail,
    ) {
        let at_hand = self.at_hand.take().filter(|it| it.address == *address);
        let client_id = at_hand.map(|it| it.client_id).or(client_id);
        let detail = match (detail, why) {
            (Detail::Nothing, DropReason::TokenNotForUs) => at_hand.map_or(detail, |it| it.detail),
            _ => detail,
        };
        // The address of a session that is over says nothing of who is there now.
        if client_id.is_none() && why != DropReason::SessionEnded {
            for trace in self.traces.iter().filter(|trace| trace.is_about_a_client()) {
                trace.note_nameless(why);
            }
        }
        self.note(address, client_id, Fact::Dropped { why, detail });
    }

    /// Something was decided.
    #[cold]
    pub(crate) fn note(&self, address: &Address, client_id: Option<u64>, fact: Fact) {
        let at_hand = self.at_hand.filter(|it| it.address == *address);
        let client_id = client_id.or_else(|| at_hand.map(|it| it.client_id));
        for trace in self.traces.iter().filter(|trace| trace.wants(address, client_id)) {
            trace.note(Record {
                at_ns: self.now_ns,
                worker: self.worker,
                listener: address.listener,
                address: address.endpoint,
                client_id,
                fact,
            });
        }
    }

    /// A datagram has come in.
    #[cold]
    pub(crate) fn note_seen(&self, address: &Address, client_id: Option<u64>) {
        for trace in self.traces.iter().filter(|trace| trace.wants(address, client_id)) {
            trace.note_seen(1);
        }
    }

    /// A datagram has come in by mail, and was seen by the worker that had received it.
    #[cold]
    pub(crate) fn note_mailed(&self, client_id: u64) {
        for trace in self.traces.iter().filter(|trace| trace.watched == Watched::Client(client_id))
        {
            trace.note_seen(1);
        }
    }
}

impl Trace {
    const fn is_about_a_client(&self) -> bool {
        matches!(self.watched, Watched::Client(_))
    }

    fn wants(&self, address: &Address, client_id: Option<u64>) -> bool {
        match self.watched {
            Watched::Client(wanted) => client_id == Some(wanted),
            Watched::Addresses(prefix) => prefix.holds(address.endpoint.ip_bytes()),
        }
    }
}
