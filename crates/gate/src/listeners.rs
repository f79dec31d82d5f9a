//! What a gate needs of each listener at every datagram.

use crate::front::Front;
use ringgate_batch::SocketId;

pub(crate) struct ListenerState {
    pub(crate) front: Front,
    /// Our sockets, by the position of their address in the listener's list.
    pub(crate) sockets: Vec<SocketId>,
}
