//! What a gate needs of each listener at every datagram.

use crate::front::Front;
use crate::ids::{BindId, IdVec};
use crate::setup::Listener;
use crate::traffic::{DeliveryTraffic, ListenerTraffic};
use ringgate_batch::SocketId;
use ringgate_core::drops::DropCounts;

pub(crate) struct ListenerState {
    pub(crate) front: Front,
    /// Our sockets, one for each of its addresses.
    pub(crate) sockets: IdVec<BindId, SocketId>,
    pub(crate) traffic: ListenerTraffic,
    pub(crate) delivery: DeliveryTraffic,
    /// Datagrams from its sockets that went no further.
    pub(crate) drops: DropCounts,
}

impl ListenerState {
    /// Without sockets.
    pub(crate) fn new(listener: &Listener) -> Self {
        let front = Front::of(&listener.protocol);
        let (traffic, delivery) = (ListenerTraffic::default(), DeliveryTraffic::default());
        Self { front, sockets: IdVec::new(), traffic, delivery, drops: DropCounts::new() }
    }
}
