//! What each socket is to a gate.
//!
//! A driver numbers sockets by a dense index and a generation. The table is indexed by the one and
//! remembers the other, so a datagram or an event of a socket that was closed finds nothing instead
//! of its successor.

use crate::ids::{BindId, LinkId, ListenerId};
use crate::store::table::Place;
use ringgate_batch::SocketId;

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Link(LinkId),
    LinkListener,
    Player { listener: ListenerId, bind: BindId },
    SessionLink(Place),
    UdpLink,
    Vacant,
}

/// All sockets of a gate.
pub(crate) struct Roles(Vec<(SocketId, Role)>);

impl Roles {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Gives a socket its role; [`Role::Vacant`] takes it away.
    pub(crate) fn assign(&mut self, socket: SocketId, role: Role) {
        let at = socket.index();
        if self.0.len() <= at {
            self.0.resize(at + 1, (socket, Role::Vacant));
        }
        self.0[at] = (socket, role);
    }

    /// All sockets that have a role.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SocketId, Role)> + '_ {
        self.0.iter().copied().filter(|(_, role)| *role != Role::Vacant)
    }

    /// The role of a socket.
    #[inline]
    pub(crate) fn of(&self, socket: SocketId) -> Role {
        match self.0.get(socket.index()) {
            Some((known, role)) if *known == socket => *role,
            _ => Role::Vacant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_sockets_role_does_not_pass_to_its_successor() {
        let mut roles = Roles::new();
        let [first, second] = [SocketId(7), SocketId(7 | 1 << 16)];
        roles.assign(first, Role::Link(LinkId(3)));
        assert_eq!((roles.of(first), roles.of(second)), (Role::Link(LinkId(3)), Role::Vacant));
        roles.assign(second, Role::UdpLink);
        assert_eq!((roles.of(first), roles.of(second)), (Role::Vacant, Role::UdpLink));
        assert_eq!(
            roles.0.len(),
            8,
            "as long as there are sockets at once, however often they change"
        );
    }
}
