//! Sockets that are handed over: what each is, by the number that it has in the predecessor.

use crate::gate::Gate;
use crate::ids::{BindId, ListenerId};
use crate::roles::Role;
use ringgate_batch::SocketId;
use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};

/// What a socket is that has to be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketUse {
    /// A listener's, at a position of its addresses.
    Player(ListenerId, BindId),
    /// The one that carries players to udp backends on loopback.
    UdpLink,
    /// Accepts links.
    LinkListener,
    /// A link.
    Link,
    /// One session's own.
    Session,
}

impl Gate {
    /// The sockets that have to be handed over, and what each is.
    pub fn sockets(&self) -> impl Iterator<Item = (SocketId, SocketUse)> + '_ {
        self.common.roles.all().filter_map(|(socket, role)| {
            let is = match role {
                Role::Link(_) => SocketUse::Link,
                Role::LinkListener => SocketUse::LinkListener,
                Role::Player { listener, bind } => SocketUse::Player(listener, bind),
                Role::SessionLink(_) => SocketUse::Session,
                Role::UdpLink => SocketUse::UdpLink,
                Role::Vacant => return None,
            };
            Some((socket, is))
        })
    }
}

/// A socket that was bound before the first turn.
pub(crate) struct Bound {
    /// Its number in the predecessor.
    socket: u32,
    is: SocketUse,
}

/// Those of a gate, each listener's in the order of its addresses.
pub(crate) fn bound(gate: &Gate) -> Vec<Bound> {
    let all = gate.sockets().map(|(socket, is)| Bound { socket: socket.0, is });
    let mut all: Vec<_> =
        all.filter(|it| !matches!(it.is, SocketUse::Link | SocketUse::Session)).collect();
    all.sort_unstable_by_key(|bound| bound.is);
    all
}

/// Binds a socket of the predecessor. Those of a listener that is not here are left out.
pub(crate) fn bind(gate: &mut Gate, bound: &Bound, maps: &Maps) -> Result<(), Broken> {
    let socket = maps.sockets.get(&bound.socket).copied().map(SocketId);
    match bound.is {
        SocketUse::Player(listener, bind) => {
            let map = maps.listeners.get(listener.index()).copied().flatten();
            let Some(listener) = map.map(ListenerId) else { return Ok(()) };
            let next = gate.common.listeners[listener].sockets.len();
            if next != bind.index() {
                return Err(Broken::Invalid("order of addresses"));
            }
            gate.bind_player_socket(socket.ok_or(Broken::Foreign)?, listener, bind);
        }
        SocketUse::UdpLink => gate.bind_udp_link(socket.ok_or(Broken::Foreign)?),
        SocketUse::LinkListener => gate.bind_link_listener(socket.ok_or(Broken::Foreign)?),
        SocketUse::Link | SocketUse::Session => {}
    }
    Ok(())
}

/// By the predecessor's numbers, which are mapped when the socket is bound.
impl Carry for Bound {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { socket, is } = self;
        socket.write(out);
        let (number, listener, bind): (u8, u16, u16) = match *is {
            SocketUse::Player(listener, bind) => (0, listener.0, bind.0),
            SocketUse::UdpLink => (1, 0, 0),
            SocketUse::LinkListener => (2, 0, 0),
            SocketUse::Link => (3, 0, 0),
            SocketUse::Session => (4, 0, 0),
        };
        number.write(out);
        [listener, bind].write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (socket, number) = <(u32, u8)>::read(from)?;
        let [listener, bind] = <[u16; 2]>::read(from)?;
        let is = match number {
            0 => SocketUse::Player(ListenerId(listener), BindId(bind)),
            1 => SocketUse::UdpLink,
            2 => SocketUse::LinkListener,
            _ => return Err(Broken::Invalid("socket")),
        };
        Ok(Self { socket, is })
    }
}
