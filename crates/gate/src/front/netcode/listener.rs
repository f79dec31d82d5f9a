//! What every packet of a listener is checked by.

use crate::setup::Listener;
use ringgate_batch::Endpoint;
use ringgate_core::proto::netcode::packet::AadTable;
use ringgate_core::proto::replay::Policy;

pub(crate) struct ListenerRules {
    pub(crate) aads: AadTable,
    /// The addresses that players know it by.
    pub(crate) own: Vec<Endpoint>,
    /// Invariant: its size never changes, because it says where the bits of live windows lie.
    pub(crate) replay: Policy,
}

impl ListenerRules {
    pub(crate) fn new(listener: &Listener) -> Self {
        let rules = listener.netcode();
        Self {
            aads: AadTable::new(rules.map_or(0, |rules| rules.protocol_id)),
            own: Vec::new(),
            replay: rules.map_or(Policy::NETCODE, |rules| rules.replay),
        }
    }

    /// Takes in what a new setup says about it.
    pub(crate) fn adopt(&mut self, listener: &Listener) {
        self.own = listener.public.iter().copied().map(Endpoint::from).collect();
        let gap_limit = listener.netcode().map_or(0, |rules| rules.replay.gap_limit());
        self.replay = Policy::new(self.replay.size_bits(), gap_limit).unwrap_or(self.replay);
    }
}
