//! Plain players on bundle links: what their game process is told of them, and what it asks for.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::plain::session::Session;
use crate::front::plain::state::PlainFront;
use crate::ids::{BackendId, LinkId};
use crate::links::players::session_id;
use crate::links::state::Load;
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{CloseReason, OpenedPlain, SessionId, VERSION_PLAIN};

impl Common {
    /// Whether a backend can be told of players without a client id: on a udp link there is nothing
    /// to tell, and a bundle link needs a version that has the words.
    pub(crate) fn speaks_plain(&self, backend: BackendId) -> bool {
        match &self.setup.backends[backend].link {
            LinkKind::Udp { .. } => true,
            LinkKind::Bundle { .. } => self.plain_link(backend).is_some(),
        }
    }

    /// The link of a backend, if it has one that can be told of plain players.
    fn plain_link(&self, backend: BackendId) -> Option<LinkId> {
        let link = self.links.live(backend)?;
        let version = self.links.all[link].as_ref()?.version;
        (version >= VERSION_PLAIN).then_some(link)
    }
}

impl PlainFront {
    /// Hands a payload to a game process on a bundle link.
    pub(crate) fn deliver_bundled(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let backend = self.sessions.at(index).backend;
        let link = turn.common.plain_link(backend).ok_or(DropReason::LinkDown)?;
        self.announce(turn, index, link);
        let session = self.session_id(index);
        if turn.append(link, Load::PAYLOAD, |writer| writer.payload(session, payload)) {
            Ok(())
        } else {
            Err(DropReason::LinkFull)
        }
    }

    /// Tells the game process of a session, and again when it has its slot.
    fn announce(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, link: LinkId) {
        let id = self.session_id(index);
        let address = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        let epoch = turn.common.links.backends[session.backend].epoch;
        if session.announced == epoch && session.slot_told == session.is_open() {
            return;
        }
        session.announced = epoch;
        session.slot_told = session.is_open();
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let opened = OpenedPlain {
            session: id,
            address: address.endpoint.into(),
            slot: session.is_open().then_some(session.claim.slot.0),
            slots_max: setup.backends[session.backend].slots,
            listener: &setup.listeners[address.listener].name,
        };
        turn.tell_link(link, |writer| writer.opened_plain(&opened));
    }

    /// What links know a session by.
    pub(crate) fn session_id(&self, index: Entry<Session>) -> SessionId {
        session_id(self.worker, self.sessions.place(index))
    }

    /// A session that a backend names, if it is one of its own.
    pub(crate) fn session_for_backend(
        &self,
        backend: BackendId,
        session: SessionId,
    ) -> Option<Entry<Session>> {
        let index = Entry::numbered(session.as_u64() as u32);
        let known = self.sessions.get(index).filter(|_| self.session_id(index) == session)?;
        (known.backend == backend && !known.is_barred()).then_some(index)
    }

    /// Passes a payload on to the player that a backend names.
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
            self.end_because(turn, index, Ended::ByBackend, reason);
        }
    }
}
