//! What the first look finds out about a datagram.

use crate::elsewhere::Elsewhere;
use crate::front::netcode::session::{Pending, Session};
use crate::store::entry::Entry;
use ringgate_core::proto::netcode::packet::{Header, PacketKind};

/// What `classify` found out about a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) target: Target,
    pub(crate) header: Header,
}

/// Whom a datagram concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A player of another worker or another member of the cluster.
    Elsewhere(Elsewhere),
    /// An unknown port, but perhaps that of a player who had another one: the number of its trial.
    Mover(u32),
    /// A player whose session's owner is gone.
    Orphan,
    /// A player in the handshake.
    Pending(Entry<Pending>),
    /// A client that asks to be let in with a token.
    Request,
    /// A player.
    Session(Entry<Session>),
    /// Dropped and counted.
    Settled,
    /// Another worker's player.
    Steered,
}

impl Arrival {
    /// Nothing further happens to it here.
    pub(crate) const SETTLED: Self =
        Self { target: Target::Settled, header: Header::new(PacketKind::Request, 0) };
}
