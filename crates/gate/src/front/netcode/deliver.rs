//! Players' payloads on their way to game processes, and what a process on a bundle link is told of
//! its players.

use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::ids::LinkId;
use crate::links::loopback::{is_shared_socket_backend, loopback_of};
use crate::links::state::Load;
use crate::output::Tag;
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{Endpoint, LocalIp, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{self, Arbitrated, Opened, VERSION_DELIVERS};

impl NetcodeFront {
    /// Hands a player's payload to its backend.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (number, payload): (u64, &[u8]),
        kernel_ns: u64,
    ) {
        turn.common.counters.payloads_up += 1;
        let backend = self.sessions.at(index).backend;
        let delivered = match &turn.common.setup.backends[backend].link {
            LinkKind::Bundle { .. } => self.deliver_bundled(turn, index, (number, payload)),
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {
                let address = Endpoint::from(*address);
                self.deliver_shared(turn, index, payload, address)
            }
            LinkKind::Udp { .. } => self.deliver_connected(turn, index, payload),
        };
        match delivered {
            Ok(()) => turn.common.note_up(backend, payload.len(), kernel_ns),
            Err(why) => {
                let address = self.sessions.address(index);
                let client_id = self.sessions.at(index).client_id;
                turn.common.drop_uplink(address, Some(client_id), (backend, why));
            }
        }
    }

    fn deliver_bundled(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (number, payload): (u64, &[u8]),
    ) -> Result<(), DropReason> {
        let backend = self.sessions.at(index).backend;
        let link = turn.common.links.live(backend).ok_or(DropReason::LinkDown)?;
        if !self.announce(turn, index) {
            return Err(DropReason::MoveUnconfirmed);
        }
        if !self.sessions.clusters.is_empty() {
            return self.deliver_in_cluster(turn, (index, link), (number, payload));
        }
        let session = self.sessions.id(index);
        if turn.append(link, Load::PAYLOAD, |writer| writer.payload(session, payload)) {
            Ok(())
        } else {
            Err(DropReason::LinkFull)
        }
    }

    /// The same where some sessions are a cluster's: their arbiter is told the packet's number.
    #[inline(never)]
    fn deliver_in_cluster(
        &mut self,
        turn: &mut Turn<'_>,
        (index, link): (Entry<Session>, LinkId),
        (number, payload): (u64, &[u8]),
    ) -> Result<(), DropReason> {
        let backend = self.sessions.at(index).backend;
        if self.is_unsure(index) {
            return Err(DropReason::OwnerUnconfirmed);
        }
        let session = self.sessions.id(index);
        let epoch = turn.common.links.backends[backend].epoch;
        let is_numbered = turn.common.links.arbitrates(link, Arbitrated::Netcode)
            && self.sessions.clusters.is_told(index, backend, epoch);
        let is_written = turn.append(link, Load::PAYLOAD, |writer| {
            if is_numbered {
                writer.numbered(session, number, payload)
            } else {
                writer.payload(session, payload)
            }
        });
        if is_written { Ok(()) } else { Err(DropReason::LinkFull) }
    }

    /// Through the worker's one socket, from the player's own loopback address.
    fn deliver_shared(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        payload: &[u8],
        backend: Endpoint,
    ) -> Result<(), DropReason> {
        self.check_udp_backend(turn, index)?;
        let socket = turn.common.links.udp.ok_or(DropReason::LinkDown)?;
        let source = loopback_of(index).ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: Some(backend), source };
        turn.send_raw(payload, target, Tag::UdpPayload);
        Ok(())
    }

    /// Through the session's own socket.
    fn deliver_connected(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        self.check_udp_backend(turn, index)?;
        let socket = self.sessions.at(index).uplink().ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: None, source: LocalIp::UNSPECIFIED };
        turn.send_raw(payload, target, Tag::UdpPayload);
        Ok(())
    }

    /// Refuses payloads for a backend that is gone: the kernel would take them, but they would not
    /// arrive, and must not count as handed over.
    #[inline]
    fn check_udp_backend(&self, turn: &Turn<'_>, index: Entry<Session>) -> Result<(), DropReason> {
        let backend = self.sessions.at(index).backend;
        if turn.common.links.backends[backend].is_up() { Ok(()) } else { Err(DropReason::LinkDown) }
    }

    /// Tells the backend of a session, if it has not been told on its present link. False where it
    /// may not be told yet.
    #[inline]
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) -> bool {
        let session = self.sessions.at(index);
        let state = &turn.common.links.backends[session.backend];
        if session.announced != state.epoch && state.is_up() {
            return self.announce_now(turn, index, None);
        }
        true
    }

    /// Tells the backend that it has a player who was moved there.
    pub(crate) fn announce_moved(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        ticket: u64,
    ) {
        self.announce_now(turn, index, Some(ticket));
        self.connections.touch(index);
    }

    #[cold]
    fn announce_now(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        ticket: Option<u64>,
    ) -> bool {
        if turn.common.moves.is_unheard(self.sessions.id(index))
            || self.has_lost_its_agent(turn.common, index)
        {
            return false;
        }
        let backend = self.sessions.at(index).backend;
        let epoch = turn.common.links.backends[backend].epoch;
        match &turn.common.setup.backends[backend].link {
            LinkKind::Bundle { .. } => {
                let Some(link) = turn.common.links.live(backend) else { return true };
                self.announce_on(turn, index, link, ticket);
            }
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {}
            LinkKind::Udp { .. } => self.ask_for_socket(turn, index),
        }
        self.sessions.at_mut(index).announced = epoch;
        true
    }

    /// Writes the opening record.
    fn announce_on(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        link: LinkId,
        ticket: Option<u64>,
    ) {
        let is_arbitrated = turn.common.links.arbitrates(link, Arbitrated::Netcode);
        let its = self.sessions.clusters.get_mut(index);
        let ticket = its.map_or(ticket, |it| it.opens_with(ticket));
        let clustered = self.tell_clustered(turn, index, is_arbitrated);
        let delivery = self.delivery_of_agent(turn.common, index);
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let address = *self.sessions.address(index);
        let claim = self.sessions.at(index).claim(&address);
        let opened = Opened {
            session: self.sessions.id(index),
            client_id: claim.client_id,
            address: address.endpoint.into(),
            slot: claim.slot.0,
            slots_max: setup.backends[claim.backend].slots,
            delivers: (delivery.is_some() || self.connections.has(index))
                && turn.common.links.speaks(link, VERSION_DELIVERS),
            ticket,
            user_data: &self.user_data.whole(index),
            listener: &setup.listeners[address.listener].name,
        };
        let timeout_ms = self.sessions.at(index).timeout_ms;
        if let Some(clustered) = clustered.map(|it| it.told_as(opened.session, timeout_ms)) {
            let clustered = bundle::Clustered { delivery, ..clustered };
            turn.tell_link(link, |writer| writer.clustered(&clustered));
        }
        turn.tell_link(link, |writer| writer.opened(&opened));
        if self.sessions.at(index).is_confirmed() && delivery.is_some() {
            let session = self.sessions.id(index);
            turn.tell_link(link, |writer| writer.there(session));
        }
    }
}
