//! Servers behind agents: what an agent is told of players, and what passes over its link.
//!
//! An agent gives each session that it is told of a loopback address of its own, and does nothing
//! else to what is sent there: the handshake, the probe and the game's packets pass as they do on
//! this host. A session is announced before its first packet, again on each later link of its
//! server, and told as over when it ends; who asks for the gateway itself has a session without a
//! slot there, which is no player.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::Common;
use crate::front::cluster::doubt::Doubting;
use crate::front::unreal::loopback::OWN_ADDRESS;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, LinkId, WorkerId};
use crate::links::state::Load;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_link::bundle::{
    CloseReason, LONG_PAYLOAD_BYTES_MAX, OpenedPlain, SessionId, VERSION_MESSAGES,
};

impl Common {
    /// The link to a server behind an agent, which speaks for it. A process that can be told whole
    /// messages links our library, and is no server of an Unreal game.
    pub(crate) fn unreal_link(&self, backend: BackendId) -> Option<LinkId> {
        self.plain_link(backend).filter(|link| !self.links.speaks(*link, VERSION_MESSAGES))
    }

    /// How long a packet for a server may be.
    pub(crate) fn unreal_bytes_max(&self, backend: BackendId) -> usize {
        let is_linked = self.links.backends[backend].address.is_none();
        if is_linked { LONG_PAYLOAD_BYTES_MAX } else { UNREAL_BYTES_MAX }
    }
}

impl Turn<'_> {
    /// Tells the agent of a server that a session is over. It may know of it from an earlier link,
    /// or from the process before, and passes over what it does not know.
    pub(crate) fn tell_over(
        &mut self,
        backend: BackendId,
        session: SessionId,
        reason: CloseReason,
    ) {
        if let Some(link) = self.common.unreal_link(backend) {
            self.tell_link(link, |writer| writer.closed(session, reason));
        }
    }

    /// Asks a server over the link that its agent has for it.
    pub(crate) fn ask_over_link(&mut self, backend: BackendId, question: &[u8]) {
        if let Some(link) = self.common.unreal_link(backend) {
            let id = probe_id(self.common.worker.id, backend);
            self.append(link, Load::NONE, |writer| writer.payload(id, question));
        }
    }
}

impl UnrealFront {
    /// A server is asked no more.
    pub(crate) fn forget_probed(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        if self.probed[backend].take().is_some() {
            let session = probe_id(turn.common.worker.id, backend);
            turn.tell_over(backend, session, CloseReason::Finished);
        }
    }

    /// Hands a game packet to the agent of its server, with the server's ids.
    pub(crate) fn deliver_linked(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        framing: &Framing,
        (number, bytes): (Option<u64>, &[u8]),
    ) -> Result<(), DropReason> {
        if self.is_unsure(index) {
            return Err(DropReason::OwnerUnconfirmed);
        }
        let session = self.sessions.at(index);
        let (ids, backend) = (session.server_ids, session.claim.backend);
        let link = turn.common.unreal_link(backend).ok_or(DropReason::LinkDown)?;
        let mut copy = [0; UNREAL_BYTES_MAX];
        let copy = &mut copy[..bytes.len()];
        copy.copy_from_slice(bytes);
        framing.rewrite_ids(copy, ids);
        self.announce(turn, index, link);
        let id = self.sessions.id(index);
        let epoch = turn.common.links.backends[backend].epoch;
        let number = number.filter(|_| self.sessions.clusters.is_told(index, backend, epoch));
        let is_written = turn.append(link, Load::PAYLOAD, |writer| match number {
            Some(number) => writer.numbered(id, number, copy),
            None => writer.payload(id, copy),
        });
        if is_written { Ok(()) } else { Err(DropReason::LinkFull) }
    }

    /// Hands what the handshake says to the agent of a session's server. While there is no link it
    /// is lost, and is said again.
    pub(crate) fn ask_over_link(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        said: &[u8],
    ) {
        let backend = self.sessions.at(index).claim.backend;
        let Some(link) = turn.common.unreal_link(backend) else { return };
        self.announce(turn, index, link);
        let id = self.sessions.id(index);
        turn.append(link, Load::NONE, |writer| writer.payload(id, said));
    }

    /// Tells the agent of a session, once on each link.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, link: LinkId) {
        let (id, address) = (self.sessions.id(index), self.last_address(index));
        let session = self.sessions.at_mut(index);
        let backend = session.claim.backend;
        let epoch = turn.common.links.backends[backend].epoch;
        if std::mem::replace(&mut session.announced, epoch) == epoch
            || self.sessions.clusters.is_told(index, backend, epoch)
        {
            return;
        }
        if let Some(clustered) = self.told_clustered(turn, index, link) {
            turn.tell_link(link, |writer| writer.clustered(&clustered));
        }
        let session = self.sessions.at(index);
        let setup = Arc::clone(&turn.common.setup);
        let opened = OpenedPlain {
            session: id,
            address: address.endpoint.into(),
            slot: Some(session.claim.slot.0),
            slots_max: setup.backends[backend].slots,
            listener: &setup.listeners[address.listener].name,
        };
        turn.tell_link(link, |writer| writer.opened_plain(&opened));
    }

    /// Looks at the link of a server behind an agent: where it has gone since the last look, what
    /// is at the next one's other end may be another process.
    pub(crate) fn look_at_link(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        let state = &turn.common.links.backends[backend];
        let (epoch, is_linked) = (state.epoch, state.address.is_none());
        let Some(probed) = self.probed[backend].as_mut().filter(|_| is_linked) else { return };
        let link = turn.common.unreal_link(backend);
        let now = link.map_or(0, |_| epoch);
        let before = std::mem::replace(&mut probed.epoch, now);
        if before == now {
            return;
        }
        if before != 0 {
            self.note_refused(turn, backend);
        }
        let (Some(link), Some(probed)) = (link, self.probed[backend].as_mut()) else { return };
        probed.due_ns = turn.now.mono_ns;
        let setup = Arc::clone(&turn.common.setup);
        let server = &setup.backends[backend];
        let opened = OpenedPlain {
            session: probe_id(turn.common.worker.id, backend),
            address: SocketAddr::new(OWN_ADDRESS.ip(), 0),
            slot: None,
            slots_max: server.slots,
            // It has come by no listener.
            listener: &server.name,
        };
        turn.tell_link(link, |writer| writer.opened_plain(&opened));
    }
}

/// What agents know a worker itself by where it asks a server: no session has that place.
pub(crate) fn probe_id(worker: WorkerId, backend: BackendId) -> SessionId {
    SessionId::new(worker.index(), (u64::from(backend.0) + 1) << 32 | u64::from(u32::MAX))
}
