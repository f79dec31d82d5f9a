//! Where the datagrams of a turn come from.

use std::ops::Range;

use crate::elsewhere::Elsewhere;
use crate::ids::{BindId, ListenerId, WorkerId};
use crate::links::loopback::guess_of_loopback;
use crate::roles::{Role, Roles};
use crate::store::table::{Address, Guess};
use ringgate_batch::{LocalIp, RxBatch, RxMeta, SocketId, TxTarget};

/// Where a datagram came from and in through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) address: Address,
    /// Of the address.
    pub(crate) hash: u32,
    pub(crate) bind: BindId,
    pub(crate) socket: SocketId,
    pub(crate) local: LocalIp,
    pub(crate) kernel_ns: u64,
    /// Who received it, where that is not this worker.
    pub(crate) forwarded_by: Option<Elsewhere>,
}

impl Origin {
    /// The worker that forwards what comes from there. A member needs no telling: it hears who has
    /// which address.
    pub(crate) fn steered_by(&self) -> Option<WorkerId> {
        self.forwarded_by.and_then(Elsewhere::worker)
    }

    /// The way back.
    pub(crate) const fn target(&self) -> TxTarget {
        TxTarget { socket: self.socket, peer: Some(self.address.endpoint), source: self.local }
    }
}

/// Where a datagram comes from, as far as that can be known before anything is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// What it came in through.
    pub(crate) role: Role,
    /// Of its address, where it comes from a player's side.
    pub(crate) hash: u32,
    /// The session that it is probably about.
    pub(crate) guess: Guess,
}

/// Neighbours in a batch that one socket has brought.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) role: Role,
    /// Their positions.
    pub(crate) range: Range<usize>,
}

/// Neighbours in a batch that players have sent to one listener.
pub(crate) struct PlayerRun {
    pub(crate) listener: ListenerId,
    /// Their positions.
    pub(crate) range: Range<usize>,
}

impl Run {
    /// The same, if players have sent it.
    #[inline]
    pub(crate) fn of_players(&self) -> Option<PlayerRun> {
        let Role::Player { listener, .. } = self.role else { return None };
        Some(PlayerRun { listener, range: self.range.clone() })
    }
}

/// Finds the runs of a batch.
pub(crate) fn find_runs(runs: &mut Vec<Run>, rx: &RxBatch, roles: &Roles) {
    runs.clear();
    let mut start = 0;
    for run in rx.metas().chunk_by(|one, next| one.socket == next.socket) {
        let end = start + run.len();
        runs.push(Run { role: roles.of(run[0].socket), range: start..end });
        start = end;
    }
}

impl Source {
    /// Of a datagram of a game process: on the udp link, its player can be guessed.
    pub(crate) fn link(role: &Role, local: &LocalIp) -> Self {
        let guess = if *role == Role::UdpLink { guess_of_loopback(local) } else { Guess::NOBODY };
        Self { role: *role, hash: 0, guess }
    }

    /// Everything about the way of a datagram, where that is from a player's side.
    pub(crate) fn origin(&self, meta: &RxMeta) -> Option<Origin> {
        let Role::Player { listener, bind } = self.role else { return None };
        Some(Origin {
            address: Address { listener, endpoint: meta.peer },
            hash: self.hash,
            bind,
            socket: meta.socket,
            local: meta.local,
            kernel_ns: meta.kernel_ns,
            forwarded_by: None,
        })
    }
}
