//! How far the receiving from one socket is, and how much of it the socket deserves.

use super::op::Handle;
use crate::interface::SocketKind;

/// How far the receiving from a socket is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiving {
    pub(super) state: State,
    pub(super) handle: Handle,
    /// Datagrams in this turn.
    pub(super) count: u32,
    /// Nothing is asked for: see `Driver::hold`.
    pub(super) is_held: bool,
    /// Receives in a turn. Each ends after [`RECEIVE_MAX`] datagrams even when there are more.
    pub(super) receives: u8,
    /// Turns in a row that brought nothing.
    pub(super) idle_turns: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Armed,
    Drained,
    Ended,
    /// Neither drained nor armed, until it is held no longer.
    Held,
}

impl Receiving {
    pub(super) const fn new(handle: Handle) -> Self {
        let state = State::Drained;
        Self { state, handle, count: 0, is_held: false, receives: 1, idle_turns: 0 }
    }

    /// Digests a turn's count. Returns whether the socket remains drained.
    pub(super) fn judge(&mut self, patience: u8) -> bool {
        let room = u32::from(self.receives) * RECEIVE_MAX;
        if self.count >= room {
            self.receives = (2 * self.receives).min(RECEIVES_MAX);
        } else if self.count < room / 2 {
            self.receives = (self.receives / 2).max(1);
        }
        self.idle_turns = if self.count == 0 { self.idle_turns.saturating_add(1) } else { 0 };
        self.idle_turns <= patience
    }
}

/// Turns without a datagram before a socket is armed, where so many are asked turn by turn. Being
/// asked in vain costs less than arming and being woken. A link's answers come a few turns after
/// what it was sent, so it is worth asking for some turns too; but links may be many, and then
/// those that carry a bundle per tick had better be armed at once.
pub(super) const fn patience(kind: SocketKind, drained: usize) -> u8 {
    match kind {
        SocketKind::Datagram => 8,
        SocketKind::Link if drained <= FEW => 4,
        SocketKind::ConnectedDatagram | SocketKind::Link | SocketKind::LinkListener => 0,
    }
}

/// So many sockets can be asked in every turn without anybody noticing.
const FEW: usize = 8;

/// A multishot receive ends after this many datagrams, to let others have a turn
/// (`MULTISHOT_MAX_RETRY` in `io_uring/net.c`).
const RECEIVE_MAX: u32 = 32;

/// With this many receives in a turn, one busy socket can fill all slots that a driver usually has.
const RECEIVES_MAX: u8 = 2;
