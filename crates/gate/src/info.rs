//! What a gate tells about itself: for inspection, not for every turn.

use crate::ids::{BackendId, ListenerId, Slot};
use crate::shared::claims::Claim;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::proto::unreal::front::Identity;

/// What is worth knowing about a session from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// What links know it by.
    pub id: u64,
    /// Who the player is.
    pub client_id: u64,
    /// The listener that it plays through.
    pub listener: ListenerId,
    /// Where it is.
    pub address: Endpoint,
    /// Where it plays.
    pub backend: BackendId,
    /// Its index there.
    pub slot: Slot,
    /// The address that its udp server sees, without the port.
    pub link_address: Option<LocalIp>,
    /// When it was last heard.
    pub heard_ns: u64,
    /// Silence after which it is given up; 0 for never.
    pub timeout_ns: u64,
}

impl SessionInfo {
    /// For fronts that know little more of a session than its claim.
    pub(crate) fn of_claim(
        claim: &Claim,
        (id, link_address): (u64, Option<LocalIp>),
        address: Endpoint,
        heard_ns: u64,
        timeout_ns: u64,
    ) -> Self {
        let &Claim { client_id, listener, backend, slot, .. } = claim;
        Self { id, client_id, listener, address, backend, slot, link_address, heard_ns, timeout_ns }
    }
}

/// What a game server of an Unreal game says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Whether it has answered lately.
    pub is_answering: bool,
    /// What it said, if it ever answered.
    pub identity: Option<Identity>,
}
