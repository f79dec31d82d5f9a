//! Sessions' own sockets, toward backends that are not on this host's loopback.
//!
//! The worker makes them when it is asked, and may lack a descriptor for the next. A player is not
//! told that it is connected before its socket is there: until then its payloads cannot be passed
//! on. The socket is asked for again for a while, and then the player is told that there is no
//! room, so that it tries another server instead of waiting for a timeout.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::links::loopback::is_shared_socket_backend;
use crate::mail::Request;
use crate::now::Now;
use crate::roles::Role;
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::turn::Turn;
use ringgate_batch::{SocketId, TxTarget};
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::SessionId;

impl NetcodeFront {
    /// Says that `socket` is a session's own, as asked for by [`Request::OpenSessionSocket`].
    pub(crate) fn bind_session_socket(
        &mut self,
        common: &mut Common,
        session: SessionId,
        socket: SocketId,
    ) {
        let Some(index) = self.sessions.named(session) else {
            common.requests.push_back(Request::CloseSocket(socket));
            return;
        };
        let place = self.sessions.place(index);
        let session = self.sessions.at_mut(index);
        session.set_uplink(Some(socket));
        if !session.is_confirmed() {
            self.session_sockets.unwelcomed.push(place);
        }
        common.roles.assign(socket, Role::SessionLink(place));
    }

    /// Says that a socket that [`Request::OpenSessionSocket`] has asked for could not be made.
    pub(crate) fn session_socket_failed(&mut self, now: Now, session: SessionId) {
        let Some(index) = self.sessions.named(session) else { return };
        let place = self.sessions.place(index);
        let queue = &mut self.session_sockets;
        let entry = queue.lacking.entry(index).or_insert((place, now.mono_ns));
        if entry.0 != place {
            *entry = (place, now.mono_ns);
        }
        queue.due_ns = queue.due_ns.min(now.mono_ns + RETRY_NS);
    }

    /// A session's own socket has ended, and is asked for again.
    pub(crate) fn lose_session_socket(&mut self, place: Place) {
        if let Some(index) = self.sessions.live(place) {
            let session = self.sessions.at_mut(index);
            session.set_uplink(None);
            session.announced = 0;
        }
    }

    /// Whether a session cannot reach its backend for want of a socket of its own.
    #[inline]
    pub(crate) fn lacks_socket(&self, turn: &Turn<'_>, index: Entry<Session>) -> bool {
        self.needs_socket(turn.common, index)
    }

    /// The same without a turn.
    #[inline]
    pub(crate) fn needs_socket(&self, common: &Common, index: Entry<Session>) -> bool {
        let session = self.sessions.at(index);
        session.uplink().is_none()
            && match &common.setup.backends[session.backend].link {
                LinkKind::Udp { address } => !is_shared_socket_backend(address),
                LinkKind::Bundle { .. } => false,
            }
    }

    /// Welcomes those whose socket is there, and asks again for those that could not be made.
    pub(crate) fn handle_session_sockets(&mut self, turn: &mut Turn<'_>) {
        while let Some(place) = self.session_sockets.unwelcomed.pop() {
            if let Some(index) = self.sessions.live(place) {
                self.emit_keep_alive(turn, index);
            }
        }
        if turn.now.mono_ns < self.session_sockets.due_ns {
            return;
        }
        self.session_sockets.due_ns = u64::MAX;
        let mut lacking = std::mem::take(&mut self.session_sockets.lacking);
        lacking.retain(|index, (place, since_ns)| {
            let is_lacking =
                self.sessions.live(*place).is_some() && self.lacks_socket(turn, *index);
            if is_lacking && turn.now.mono_ns >= *since_ns + WAIT_NS {
                self.give_up_socketless(turn, *index);
                return false;
            }
            if is_lacking {
                self.ask_for_socket(turn, *index);
            }
            is_lacking
        });
        if !lacking.is_empty() {
            self.session_sockets.due_ns = turn.now.mono_ns + RETRY_NS;
        }
        self.session_sockets.lacking = lacking;
    }

    pub(crate) fn ask_for_socket(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let (session, backend) = (self.sessions.id(index), self.sessions.at(index).backend);
        turn.common.requests.push_back(Request::OpenSessionSocket { session, backend });
    }

    /// A player who does not know yet that it is connected is denied; one who plays is told
    /// goodbye.
    fn give_up_socketless(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let address = *self.sessions.address(index);
        let session = self.sessions.at(index);
        if !session.is_confirmed() {
            let (socket, source) = session.talks_to();
            let target = TxTarget { socket, peer: Some(address.endpoint), source };
            let key = session.seal_key.clone();
            let packet = (PacketKind::Denied, &[][..]);
            self.emit_handshake(turn, address.listener, &key, packet, target);
        }
        self.end(turn, index, Ended::BackendGone);
    }
}

/// How often a socket is asked for that could not be made.
const RETRY_NS: u64 = 250_000_000;

/// For so long. Players who are in the handshake give up after a few seconds of silence by
/// themselves.
const WAIT_NS: u64 = 3_000_000_000;
