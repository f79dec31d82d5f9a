//! Which player lives at which address.
//!
//! On loopback a thread needs a few sockets for all its players: a socket that is bound to the
//! wildcard address sends from any 127.x.y.z and learns from the control message which of them an
//! answer was for. So a player's address is its index, and finding it costs a subtraction.
//! The same goes for any other block of addresses that are all this host's. Elsewhere every player
//! has a socket of its own, out of the machine's port range.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use ringgate_batch::{Endpoint, LocalIp, RxMeta, SocketId, TxTarget};

/// The addresses of one thread's players.
#[derive(Debug)]
pub enum Addresses {
    /// An address for each, all of them this host's.
    Shared {
        /// One for each port; more than one for players whose NAT changes its mind.
        sockets: Vec<SocketId>,
        /// The address of player 0.
        first: u32,
    },
    /// A socket for each.
    Sockets {
        /// By player, and for each player by port.
        sockets: Vec<SocketId>,
        /// Sockets of each player: more than one where a NAT changes its mind.
        ports: u32,
        /// Players by socket.
        players: HashMap<SocketId, u32>,
    },
}

impl Addresses {
    /// Loopback addresses of a thread: 127.16.0.0 and up, a million for each.
    pub const fn loopback(sockets: Vec<SocketId>, thread: u32) -> Self {
        assert!(thread < THREADS_MAX, "127.0.0.0/8 has room for 15 threads");
        Self::Shared { sockets, first: FIRST_PLAYER + (thread << 20) }
    }

    /// Addresses of a thread in another block, which begins at `first`.
    pub const fn block(sockets: Vec<SocketId>, first: Ipv4Addr, thread: u32) -> Self {
        assert!(thread < THREADS_MAX, "as many as on loopback");
        Self::Shared { sockets, first: first.to_bits().saturating_add(thread << 20) }
    }

    /// Sockets for each player, one for each port.
    pub fn sockets(sockets: Vec<SocketId>, ports: u32) -> Self {
        let numbered = sockets.iter().zip(0..);
        let players = numbered.map(|(socket, number)| (*socket, number / ports)).collect();
        Self::Sockets { sockets, ports, players }
    }

    /// How many players there can be.
    pub fn players_max(&self) -> u32 {
        match self {
            Self::Shared { .. } => PLAYERS_MAX,
            Self::Sockets { sockets, ports, .. } => sockets.len() as u32 / ports,
        }
    }

    /// From where a player sends. `port` counts how often its port has changed.
    #[inline]
    pub fn target(&self, player: u32, port: u32, to: Endpoint) -> TxTarget {
        match self {
            Self::Shared { sockets, first } => TxTarget {
                socket: sockets[port as usize % sockets.len()],
                peer: Some(to),
                source: LocalIp::v4(loopback_address(*first, player).to_be_bytes(), 0),
            },
            Self::Sockets { sockets, ports, .. } => TxTarget {
                socket: sockets[(player * ports + port % ports) as usize],
                peer: None,
                source: LocalIp::UNSPECIFIED,
            },
        }
    }

    /// Whether a datagram came to the port that a player has now. `port` counts how often it has
    /// changed.
    #[inline]
    pub fn is_at(&self, port: u32, meta: &RxMeta) -> bool {
        match self {
            Self::Shared { sockets, .. } => sockets[port as usize % sockets.len()] == meta.socket,
            Self::Sockets { sockets, ports, players } => {
                let player = players.get(&meta.socket).copied().unwrap_or_default();
                sockets[(player * ports + port % ports) as usize] == meta.socket
            }
        }
    }

    /// Whom a datagram is for.
    #[inline]
    pub fn player_of(&self, meta: &RxMeta) -> Option<u32> {
        match self {
            Self::Shared { first, .. } => match meta.local.ip() {
                IpAddr::V4(ip) => player_of_loopback(*first, ip.into()),
                IpAddr::V6(_) => None,
            },
            Self::Sockets { players, .. } => players.get(&meta.socket).copied(),
        }
    }
}

/// The loopback address of a player. Those who come one after the other live in different networks
/// of 256 addresses, as players of a fleet do: a gateway that grants each network only so much must
/// not take them for one household.
#[inline]
pub const fn loopback_address(first: u32, player: u32) -> u32 {
    first.wrapping_add((player << 8 | player >> 12) & (PLAYERS_MAX - 1))
}

const fn player_of_loopback(first: u32, address: u32) -> Option<u32> {
    match address.checked_sub(first) {
        Some(place @ 0..PLAYERS_MAX) => Some((place << 12 | place >> 8) & (PLAYERS_MAX - 1)),
        _ => None,
    }
}

/// 127.16.0.0, the address of the first thread's first player. What lies below is the attackers'.
pub const FIRST_PLAYER: u32 = 0x7f10_0000;

/// Threads that 127.16.0.0 to 127.255.255.255 have room for.
pub const THREADS_MAX: u32 = 15;

/// Addresses of one thread.
const PLAYERS_MAX: u32 = 1 << 20;

const _: () = assert!(0x10_0000 + THREADS_MAX * PLAYERS_MAX <= 0x100_0000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_map_both_ways_and_neighbours_live_apart() {
        let first = FIRST_PLAYER + (3 << 20);
        for player in [0, 1, 255, 256, 4095, 4096, 70_000, PLAYERS_MAX - 1] {
            let address = loopback_address(first, player);
            assert_eq!(player_of_loopback(first, address), Some(player), "{address:x}");
            assert_eq!(player_of_loopback(first + PLAYERS_MAX, address), None);
            assert_eq!(player_of_loopback(first - PLAYERS_MAX, address), None);
        }
        let block = Addresses::block(vec![SocketId(0)], Ipv4Addr::new(10, 80, 0, 0), 2);
        let target = block.target(4097, 0, Endpoint::v4([10, 77, 1, 1], 9));
        assert_eq!(target.source, LocalIp::v4([10, 112, 1, 1], 0));
        let network = |player| loopback_address(first, player) >> 8;
        assert!((1..4096).all(|player| network(player) != network(0)));
        assert_eq!(network(4096), network(0));
    }
}
