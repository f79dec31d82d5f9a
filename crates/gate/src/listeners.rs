//! What a gate needs of each listener at every datagram.

use crate::front::Front;
use crate::ids::{BindId, IdVec};
use crate::setup::Listener;
use crate::traffic::{DeliveryTraffic, ListenerTraffic};
use ringgate_batch::SocketId;

pub(crate) struct ListenerState {
    pub(crate) front: Front,
    /// Our sockets, one for each of its addresses.
    pub(crate) sockets: IdVec<BindId, SocketId>,
    pub(crate) traffic: ListenerTraffic,
    pub(crate) delivery: DeliveryTraffic,
}

impl ListenerState {
    /// Without sockets.
    pub(crate) fn new(listener: &Listener) -> Self {
        let front = Front::of(&listener.protocol);
        let (traffic, delivery) = (ListenerTraffic::default(), DeliveryTraffic::default());
        Self { front, sockets: IdVec::new(), traffic, delivery }
    }
}
