//! Game processes' payloads on their way to players.

use crate::counters::Ended;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::ids::BackendId;
use crate::links::players::session_id;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::turn::Turn;
use ringgate_batch::RxMeta;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{CloseReason, SessionId};

impl NetcodeFront {
    /// What links know a session by.
    pub(crate) fn session_id(&self, index: Entry<Session>) -> SessionId {
        session_id(self.worker, self.sessions.place(index))
    }

    /// The live session that a link means.
    #[inline]
    pub(crate) fn session_index(&self, session: SessionId) -> Option<Entry<Session>> {
        let index = entry_of(session);
        (self.sessions.is_live(index) && self.session_id(index) == session).then_some(index)
    }

    /// A session that a backend names, if it is one of its own.
    #[inline]
    pub(crate) fn session_for_backend(
        &self,
        backend: BackendId,
        session: SessionId,
    ) -> Option<Entry<Session>> {
        self.session_index(session).filter(|index| self.sessions.at(*index).owner() == backend)
    }

    /// Sends a payload to the player that a backend names.
    pub(crate) fn send_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        session: SessionId,
        payload: &[u8],
    ) {
        match self.session_for_backend(backend, session) {
            Some(index) => self.send_to_player(turn, index, payload),
            None => turn.common.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// Ends the session that a backend names.
    pub(crate) fn close_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        session: SessionId,
        reason: CloseReason,
    ) {
        if let Some(index) = self.session_for_backend(backend, session) {
            self.end_session_because(turn, index, Ended::ByBackend, reason);
        }
    }

    /// Ends sessions whose players have logged in again elsewhere.
    pub(crate) fn oust(&mut self, turn: &mut Turn<'_>, sessions: &[SessionId]) {
        let own = turn.common.worker.id.index();
        for &session in sessions.iter().filter(|session| session.worker() == own) {
            if let Some(index) = self.session_index(session) {
                self.end_session(turn, index, Ended::NewerLogin);
            }
        }
    }

    /// A datagram for a player of netcode.
    pub(crate) fn handle_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: BackendId,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        match self.session_of_loopback(&meta.local, from) {
            Some(index) => self.send_to_player(turn, index, bytes),
            None => turn.common.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// A datagram on a session's own socket.
    pub(crate) fn handle_own_server(&mut self, turn: &mut Turn<'_>, place: Place, bytes: &[u8]) {
        match self.sessions.live(place) {
            Some(index) => {
                let backend = self.sessions.at(index).backend;
                turn.common.links.backends[backend].come_back();
                self.send_to_player(turn, index, bytes);
            }
            None => turn.common.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// Seals a game process's payload for one player.
    #[inline]
    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, payload: &[u8]) {
        turn.common.counters.payloads_from_links += 1;
        let backend = self.sessions.at(index).owner();
        if let Err(why) = self.try_send_to_player(turn, index, payload) {
            turn.common.drop_payload(backend, why);
        } else {
            turn.common.links.backends[backend].traffic.note_down(payload.len());
            turn.common.counters.payloads_down += 1;
            turn.common.stamps.downlink_count += 1;
        }
    }

    fn try_send_to_player(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(DropReason::PayloadLength);
        }
        if self.connections.has(index) {
            return self.send_payload_as_message(index, payload);
        }
        if !self.sessions.at(index).is_confirmed() {
            // The player drops payloads until a keep-alive has told it that it is connected, and
            // that one may be lost.
            self.emit_keep_alive(turn, index);
        }
        self.emit(turn, index, PacketKind::Payload, payload)
    }
}

/// The entry of the session that a link means, if it is there.
#[inline]
pub(crate) const fn entry_of(session: SessionId) -> Entry<Session> {
    Entry::numbered(session.as_u64() as u32)
}
