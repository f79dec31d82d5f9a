//! The stand-in's players, to be found by address and by cookie.

use std::collections::HashMap;

use ringgate_core::endpoint::Endpoint;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::cookie::Cookie;
use ringgate_core::proto::unreal::handshake::Base;
use ringgate_core::proto::unreal::prefix::Ids;

use super::peer::Peer;

/// One player.
#[derive(Debug)]
pub struct Connection {
    /// Where the player is.
    pub address: Endpoint,
    /// What its packets begin with.
    pub ids: Ids,
    /// What the connection was opened with.
    pub cookie: Cookie,
    pub(super) base: Base,
    pub(super) peer: Peer,
    pub(super) seen: Box<Seen>,
    pub(super) sent_ns: u64,
    pub(super) heard_ns: u64,
}

impl Connection {
    /// The build that the player said it has.
    pub const fn network_version(&self) -> u32 {
        self.base.network_version
    }
}

/// Which numbers have arrived, in the half of the range that is not ahead.
#[derive(Debug)]
pub(super) struct Seen([u64; 256]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Seen {
    pub(super) const fn contains(&self, sequence: PacketSeq) -> bool {
        self.0[sequence.value() as usize / 64] >> (sequence.value() % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, sequence: PacketSeq) {
        self.0[sequence.value() as usize / 64] |= 1 << (sequence.value() % 64);
    }

    /// Forgets what is half a range away now, and remembers the newest.
    pub(super) fn advance(&mut self, before: PacketSeq, to: PacketSeq) {
        let steps = to.distance_from(before).unsigned_abs();
        for step in 1..=steps {
            let ahead = before.wrapping_add(step + HALF_RANGE - 1);
            self.0[ahead.value() as usize / 64] &= !(1 << (ahead.value() % 64));
        }
        self.insert(to);
    }
}

/// Half of all numbers.
pub(super) const HALF_RANGE: u64 = 0x2000;

/// All players of a server.
#[derive(Debug)]
pub(super) struct Connections {
    list: Vec<Connection>,
    /// Invariant: where each connection's address is in the list.
    by_address: HashMap<Endpoint, usize>,
    /// Invariant: where each connection's cookie is in the list. No two connections have the same
    /// one: it is the MAC of an address and a time.
    by_cookie: HashMap<Cookie, usize>,
    capacity: usize,
}

impl Connections {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            list: Vec::with_capacity(capacity),
            by_address: HashMap::with_capacity(capacity),
            by_cookie: HashMap::with_capacity(capacity),
            capacity,
        }
    }

    pub(super) fn as_slice(&self) -> &[Connection] {
        &self.list
    }

    pub(super) const fn is_full(&self) -> bool {
        self.list.len() == self.capacity
    }

    pub(super) fn at_address(&self, address: Endpoint) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    pub(super) fn with_cookie(&self, cookie: &Cookie) -> Option<usize> {
        self.by_cookie.get(cookie).copied()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Connection {
        &mut self.list[index]
    }

    /// Adds a client whose address and cookie no connection has.
    pub(super) fn insert(&mut self, connection: Connection) {
        let index = self.list.len();
        self.by_address.insert(connection.address, index);
        self.by_cookie.insert(connection.cookie, index);
        self.list.push(connection);
    }

    /// Forgets one; the last of the list takes its place.
    pub(super) fn remove(&mut self, index: usize) {
        let gone = self.list.swap_remove(index);
        self.by_address.remove(&gone.address);
        self.by_cookie.remove(&gone.cookie);
        if let Some(moved) = self.list.get(index) {
            self.by_address.insert(moved.address, index);
            self.by_cookie.insert(moved.cookie, index);
        }
    }

    /// Gives a connection another address, which no other connection has.
    pub(super) fn readdress(&mut self, index: usize, to: Endpoint) {
        let connection = &mut self.list[index];
        self.by_address.remove(&std::mem::replace(&mut connection.address, to));
        self.by_address.insert(to, index);
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.by_address.clear();
        self.by_cookie.clear();
    }
}

#[cfg(test)]
impl Connections {
    /// Whether the invariants hold.
    pub(super) fn assert_consistent(&self) {
        for (index, player) in self.list.iter().enumerate() {
            assert_eq!(self.by_address.get(&player.address), Some(&index));
            assert_eq!(self.by_cookie.get(&player.cookie), Some(&index));
        }
        assert_eq!(
            (self.by_address.len(), self.by_cookie.len()),
            (self.list.len(), self.list.len())
        );
    }
}
