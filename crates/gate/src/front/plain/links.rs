//! Plain players on bundle links: what their game process is told of them, and what it asks for.

use crate::common::Common;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::plain::clustering::timeout_ms;
use crate::front::plain::session::Session;
use crate::front::plain::state::PlainFront;
use crate::ids::{BackendId, LinkId};
use crate::links::state::Load;
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Arbitrated, OpenedPlain, VERSION_PLAIN};

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
    pub(crate) fn plain_link(&self, backend: BackendId) -> Option<LinkId> {
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
        (number, payload): (Option<u32>, &[u8]),
    ) -> Result<(), DropReason> {
        if self.is_unsure(index) {
            return Err(DropReason::OwnerUnconfirmed);
        }
        let backend = self.sessions.at(index).backend;
        let link = turn.common.plain_link(backend).ok_or(DropReason::LinkDown)?;
        self.announce(turn, index, link);
        let session = self.sessions.id(index);
        let epoch = turn.common.links.backends[backend].epoch;
        let is_told = self.sessions.clusters.is_told(index, backend, epoch);
        let number = if is_told { self.full_number(turn, index, number) } else { None };
        let is_written = turn.append(link, Load::PAYLOAD, |writer| match number {
            Some(number) => writer.numbered(session, number, payload),
            None => writer.payload(session, payload),
        });
        if is_written { Ok(()) } else { Err(DropReason::LinkFull) }
    }

    /// Tells the game process of a session, and again when it has its slot.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, link: LinkId) {
        let id = self.sessions.id(index);
        let address = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        let epoch = turn.common.links.backends[session.backend].epoch;
        if session.announced == epoch && session.slot_told == session.is_open() {
            return;
        }
        session.announced = epoch;
        session.slot_told = session.is_open();
        let is_arbitrated = turn.common.links.arbitrates(link, Arbitrated::Plain);
        let clustered =
            if session.is_open() { self.tell_clustered(turn, index, is_arbitrated) } else { None };
        let plays = is_arbitrated.then(|| self.plays(turn.common, index)).flatten();
        let session = self.sessions.at(index);
        let setup = std::sync::Arc::clone(&turn.common.setup);
        let opened = OpenedPlain {
            session: id,
            address: address.endpoint.into(),
            slot: session.is_open().then_some(session.claim.slot.0),
            slots_max: setup.backends[session.backend].slots,
            listener: &setup.listeners[address.listener].name,
        };
        let timeout_ms = setup.listeners[address.listener].plain().map_or(0, timeout_ms);
        if let Some(plays) = plays {
            turn.tell_link(link, |writer| writer.plays(&plays));
        }
        if let Some(clustered) = clustered.map(|it| it.told_as(id, timeout_ms)) {
            turn.tell_link(link, |writer| writer.clustered(&clustered));
        }
        turn.tell_link(link, |writer| writer.opened_plain(&opened));
    }
}
