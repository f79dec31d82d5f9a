//! What a gate needs of each listener at every datagram.

use crate::front::Front;
use crate::ids::{BindId, IdVec};
use crate::traffic::ListenerTraffic;
use ringgate_batch::SocketId;

pub(crate) struct ListenerState {
    pub(crate) front: Front,
    /// Our sockets, one for each of its addresses.
    pub(crate) sockets: IdVec<BindId, SocketId>,
    pub(crate) traffic: ListenerTraffic,
}
