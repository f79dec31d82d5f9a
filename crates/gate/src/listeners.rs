//! What a gate needs of each listener at every datagram.

use crate::front::protocol::Front;
use ringgate_batch::{Endpoint, SocketId};
use ringgate_core::proto::netcode::packet::AadTable;
use ringgate_core::proto::replay::Policy;

pub(crate) struct ListenerState {
    pub(crate) front: Front,
    pub(crate) aads: AadTable,
    /// The addresses that players know it by.
    pub(crate) own: Vec<Endpoint>,
    /// Our sockets, by the position of their address in the listener's list.
    pub(crate) sockets: Vec<SocketId>,
    /// Invariant: its size never changes, because it says where the bits of live windows lie.
    pub(crate) replay: Policy,
}
