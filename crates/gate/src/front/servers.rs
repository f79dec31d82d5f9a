//! What comes from game processes, and the front that it is for.

use crate::common::Common;
use crate::front::face::Fronts;
use crate::front::netcode::answers::entry_of;
use crate::front::protocol::Front;
use crate::ids::BackendId;
use crate::links::players::Players;
use crate::roles::Role;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{Endpoint, RxMeta, SocketId};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{CloseAfter, CloseReason, MessagePart, SessionId};

impl Fronts {
    /// A datagram from a game process.
    pub(crate) fn handle_link_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        turn.common.counters.link_datagrams_in += 1;
        match turn.common.roles.of(meta.socket) {
            Role::Link(link) => turn.handle_bundle(self, link, meta.truncated, bytes),
            Role::UdpLink => self.handle_udp_answer(turn, meta, bytes),
            Role::SessionLink(place) => self.netcode.handle_own_server(turn, place, bytes),
            Role::LinkListener | Role::Player { .. } | Role::Vacant => {
                turn.common.counters.drops.bump(DropReason::LinkStranger);
            }
        }
    }

    fn handle_udp_answer(&mut self, turn: &mut Turn<'_>, meta: &RxMeta, bytes: &[u8]) {
        let Some(from) = self.backend_behind(turn.common, meta) else {
            return turn.common.counters.drops.bump(DropReason::LinkStranger);
        };
        turn.common.links.backends[from].come_back();
        self.handle_server(turn, from, meta, bytes);
    }

    /// The backend that a datagram on the udp link comes from: nearly always that of the player
    /// whom it is for, so on a host with hundreds of them not all are asked.
    fn backend_behind(&self, common: &Common, meta: &RxMeta) -> Option<BackendId> {
        let backends = &common.links.backends;
        let is_from = |backend: &BackendId| backends[*backend].address == Some(meta.peer);
        let players = self.backends_of_loopback(&meta.local).find(is_from);
        players.or_else(|| backends.ids().find(is_from))
    }

    /// The kernel says that no process listens where a udp backend should.
    pub(crate) fn lose_udp_backend(
        &mut self,
        turn: &mut Turn<'_>,
        socket: SocketId,
        peer: &Endpoint,
    ) {
        let lost = match turn.common.roles.of(socket) {
            Role::SessionLink(place) => self.backend_of_socket(place),
            Role::UdpLink => {
                let mut backends = turn.common.links.backends.pairs();
                backends.find_map(|(id, state)| (state.address == Some(*peer)).then_some(id))
            }
            // An attacker could make us send to an address at which no process listens.
            Role::Link(_) | Role::LinkListener | Role::Player { .. } | Role::Vacant => None,
        };
        if let Some(backend) = lost {
            turn.common.mark_gone(turn.now, backend);
            self.lose_server(turn, backend);
        }
    }
}

impl Players for Fronts {
    #[inline]
    fn fetch(&self, session: SessionId) {
        // Nearly always they are netcode's players; the others are found without it.
        self.netcode.fetch_player(entry_of(session));
    }

    #[inline]
    fn find(&self, turn: &Turn<'_>, backend: BackendId, session: SessionId) -> Option<u32> {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.session_for_backend(backend, session).map(Entry::number),
            Front::Unreal => None,
            Front::Plain => self.plain.session_for_backend(backend, session).map(Entry::number),
            #[cfg(test)]
            Front::Third => None,
        }
    }

    #[inline]
    fn send(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        session: SessionId,
        payload: &[u8],
    ) {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.send_for_backend(turn, backend, session, payload),
            Front::Unreal => turn.common.count_from_link(DropReason::SessionUnknown),
            Front::Plain => self.plain.send_for_backend(turn, backend, session, payload),
            #[cfg(test)]
            Front::Third => turn.common.count_from_link(DropReason::SessionUnknown),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_>, backend: BackendId, message: &MessagePart<'_>) {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.send_message_for_backend(turn, backend, message),
            Front::Unreal | Front::Plain => turn.common.refuse_message(backend),
            #[cfg(test)]
            Front::Third => turn.common.refuse_message(backend),
        }
    }

    fn tell_quality(&self, turn: &mut Turn<'_>, backend: BackendId, session: SessionId) {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.tell_quality(turn, backend, session),
            Front::Unreal | Front::Plain => {}
            #[cfg(test)]
            Front::Third => {}
        }
    }

    fn close_after(&mut self, turn: &mut Turn<'_>, backend: BackendId, close: &CloseAfter<'_>) {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.close_after_for_backend(turn, backend, close),
            // What was sent is under way, and nothing is known of it.
            Front::Unreal | Front::Plain => {
                self.close(turn, backend, close.session, close.reason);
            }
            #[cfg(test)]
            Front::Third => {}
        }
    }

    fn close(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        session: SessionId,
        reason: CloseReason,
    ) {
        match turn.common.server_front(backend) {
            Front::Netcode => self.netcode.close_for_backend(turn, backend, session, reason),
            Front::Unreal => {}
            Front::Plain => self.plain.close_for_backend(turn, backend, session, reason),
            #[cfg(test)]
            Front::Third => {}
        }
    }
}
