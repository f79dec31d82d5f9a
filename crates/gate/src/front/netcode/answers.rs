//! Game processes' payloads on their way to players.

use crate::counters::{Ended, Ending};
use crate::front::cluster::doubt::Doubting;
use crate::front::netcode::connection::Linger;
use crate::front::netcode::messages::{channel_of, quality};
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::{Answers, Rules};
use crate::ids::BackendId;
use crate::links::loopback::entry_of_loopback;
use crate::links::players::PlayerOf;
use crate::links::state::Load;
use crate::now::NS_PER_MS;
use crate::party::Party;
use crate::sessions::Kept;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::turn::Turn;
use ringgate_batch::LocalIp;
use ringgate_core::delivery::SendError;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{
    CloseAfter, CloseReason, LINGER_MS_MAX, MessagePart, MoveRefusal, SessionId,
};

impl Answers for NetcodeFront {
    fn at_loopback(&self, local: &LocalIp) -> Option<Entry<Session>> {
        entry_of_loopback(local)
    }

    /// Seals it.
    #[inline]
    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, payload: &[u8]) {
        turn.common.counters.payloads_from_links += 1;
        let backend = self.sessions.at(index).at_backend();
        if let Err(why) = self.try_send_to_player(turn, index, payload) {
            turn.common.drop_payload(backend, why);
        } else {
            let listener = self.sessions.address(index).listener;
            turn.common.note_down(listener, backend, payload.len());
        }
    }

    fn send_message_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        part: &MessagePart<'_>,
    ) {
        turn.common.counters.messages_from_links += 1;
        let index = self.session_for_backend(PlayerOf { backend, session: part.session });
        let index = index.filter(|index| !self.has_lost_its_link(turn, *index));
        let connection = index.and_then(|index| self.connections.get_mut(index));
        let (Some(index), Some(connection)) = (index, connection) else {
            let is_over = turn.common.has_departed(PlayerOf { backend, session: part.session });
            let why =
                if is_over { DropReason::MessageAfterMove } else { DropReason::MessageUnknown };
            return turn.common.drop_payload(backend, why);
        };
        let token = (part.token != 0).then_some(part.token);
        if connection.former.is_some() {
            connection.make_room_for(part.token, &mut self.random);
        }
        match connection.end.send(channel_of(part.channel), part.bytes, token) {
            Ok(()) => {
                turn.common.counters.messages_down += 1;
                turn.common.links.backends[backend].traffic.note_down(part.bytes.len());
                let listener = self.sessions.address(index).listener;
                turn.common.listeners[listener].delivery.messages_out += 1;
                turn.common.stamps.downlinks[Party::of(listener).index()] += 1;
                self.connections.touch(index);
            }
            Err(SendError::Full) => {
                turn.common.drop_payload(backend, DropReason::MessageOverflow);
                self.end(turn, index, Ended::DeliveryOverflow);
            }
            Err(SendError::Closed | SendError::Empty | SendError::TooLong) => {
                turn.common.drop_payload(backend, DropReason::MessageUnknown);
            }
        }
    }

    fn tell_quality(&self, turn: &mut Turn<'_>, player: PlayerOf) {
        let Some(index) = self.session_for_backend(player) else { return };
        let Some(connection) = self.connections.get(index) else { return };
        let Some(link) = turn.common.message_link(player.backend) else { return };
        let quality = quality(&connection.end);
        // Of no use when it comes late: a full link loses it.
        turn.append(link, Load::NONE, |writer| writer.quality(player.session, &quality));
    }

    fn close_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason) {
        let index = self.session_for_backend(player).or_else(|| self.unsure_for_backend(player));
        if let Some(index) = index {
            self.end_when_sure(turn, index, Ending { why: Ended::ByBackend, reason });
        }
    }

    fn close_after_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        close: &CloseAfter<'_>,
    ) {
        let player = PlayerOf { backend, session: close.session };
        let index = self.session_for_backend(player).or_else(|| self.unsure_for_backend(player));
        let Some(index) = index else { return };
        let Some(connection) = self.connections.get_mut(index) else {
            // What was sent to it is under way, and nothing is known of it.
            let ending = Ending { why: Ended::ByBackend, reason: close.reason };
            return self.end_when_sure(turn, index, ending);
        };
        let linger_ns = u64::from(close.linger_ms.min(LINGER_MS_MAX)) * NS_PER_MS;
        let until_ns = turn.now.mono_ns + linger_ns;
        match &mut connection.linger {
            // The first one was told; the next can only hurry.
            Some(linger) => linger.until_ns = linger.until_ns.min(until_ns),
            None => {
                connection.end.say_farewell(close.reason.as_u8(), close.text);
                connection.linger = Some(Linger { until_ns, reason: close.reason });
            }
        }
        turn.end_offer(close.session, MoveRefusal::SessionOver);
        self.connections.touch(index);
    }
}

impl NetcodeFront {
    /// Ends sessions whose players have logged in again elsewhere.
    pub(crate) fn oust(&mut self, turn: &mut Turn<'_>, sessions: &[SessionId]) {
        let own = turn.common.worker.id.index();
        for &session in sessions.iter().filter(|session| session.worker() == own) {
            if let Some(index) = self.sessions.named(session) {
                self.end(turn, index, Ended::NewerLogin);
            }
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
            None => turn.common.count_from_nobody(DropReason::SessionUnknown),
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
