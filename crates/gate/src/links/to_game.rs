//! Toward game processes: players' payloads, and what a process on a bundle link is told of its
//! players.

use crate::gate::Gate;
use crate::ids::LinkId;
use crate::links::loopback::{is_shared_socket_backend, loopback_of};
use crate::links::state::payloads_in;
use crate::output::Tag;
use crate::setup::LinkKind;
use crate::turn::{Now, Turn};
use ringgate_batch::{Endpoint, LocalIp, SendFailure, TxBatch, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{CloseReason, Opened, USER_DATA_BYTES, Writer};

impl Gate {
    /// Hands a player's payload to its backend.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        payload: &[u8],
        kernel_ns: u64,
    ) {
        self.counters.payloads_up += 1;
        let backend = usize::from(self.netcode.sessions.at(index).backend);
        let delivered = match &self.setup.backends[backend].link {
            LinkKind::Bundle { .. } => self.deliver_bundled(turn, index, payload),
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {
                let address = Endpoint::from(*address);
                self.deliver_shared(turn, index, payload, address)
            }
            LinkKind::Udp { .. } => self.deliver_connected(turn, index, payload),
        };
        match delivered {
            Ok(()) => {
                self.counters.payloads_to_links += 1;
                self.stamps.uplink_kernel_ns.push(kernel_ns);
            }
            Err(why) => self.counters.drops.bump(why),
        }
    }

    fn deliver_bundled(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let backend = usize::from(self.netcode.sessions.at(index).backend);
        let link = self.links.live(backend).ok_or(DropReason::LinkDown)?;
        self.announce(turn, index);
        let session = self.session_id(index);
        if self.append(turn, link, 1, |writer| writer.payload(session, payload)) {
            Ok(())
        } else {
            Err(DropReason::LinkFull)
        }
    }

    /// Through the worker's one socket, from the player's own loopback address.
    fn deliver_shared(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        payload: &[u8],
        backend: Endpoint,
    ) -> Result<(), DropReason> {
        self.check_udp_backend(index)?;
        let socket = self.links.udp.ok_or(DropReason::LinkDown)?;
        let source = loopback_of(index).ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: Some(backend), source };
        self.send_raw(turn, payload, target, Tag::UdpPayload);
        Ok(())
    }

    /// Through the session's own socket.
    fn deliver_connected(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        self.check_udp_backend(index)?;
        let socket = self.netcode.sessions.at(index).uplink.ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: None, source: LocalIp::UNSPECIFIED };
        self.send_raw(turn, payload, target, Tag::UdpPayload);
        Ok(())
    }

    /// What the kernel would take and the host then refuse does not count as handed over.
    #[inline]
    fn check_udp_backend(&self, index: u32) -> Result<(), DropReason> {
        let backend = usize::from(self.netcode.sessions.at(index).backend);
        if self.links.backends[backend].is_up() { Ok(()) } else { Err(DropReason::LinkDown) }
    }

    pub(crate) fn send_raw(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &[u8],
        target: TxTarget,
        tag: Tag,
    ) {
        let room = self.room(turn);
        room.slot[..bytes.len()].copy_from_slice(bytes);
        room.send(bytes.len(), target, tag.encode());
        self.counters.link_datagrams_out += 1;
    }

    /// Tells the backend of a session, if it has not been told on its present link.
    #[inline]
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, index: u32) {
        let session = self.netcode.sessions.at(index);
        let state = &self.links.backends[usize::from(session.backend)];
        if session.announced != state.epoch && state.is_up() {
            self.announce_now(turn, index);
        }
    }

    #[cold]
    fn announce_now(&mut self, turn: &mut Turn<'_>, index: u32) {
        let backend = usize::from(self.netcode.sessions.at(index).backend);
        let epoch = self.links.backends[backend].epoch;
        match &self.setup.backends[backend].link {
            LinkKind::Bundle { .. } => {
                let Some(link) = self.links.live(backend) else { return };
                self.announce_on(turn, index, link);
            }
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {}
            LinkKind::Udp { .. } => self.ask_for_socket(index),
        }
        self.netcode.sessions.at_mut(index).announced = epoch;
    }

    /// Writes the opening record. The user data goes along the first time only; a backend that
    /// comes back gets zeros.
    fn announce_on(&mut self, turn: &mut Turn<'_>, index: u32, link: LinkId) {
        let user_data = self.netcode.sessions.at_mut(index).user_data.take();
        let user_data = user_data.as_deref().unwrap_or(&[0; USER_DATA_BYTES]);
        let setup = std::sync::Arc::clone(&self.setup);
        let address = *self.netcode.sessions.address(index);
        let claim = self.netcode.sessions.at(index).claim(&address);
        let opened = Opened {
            session: self.session_id(index),
            client_id: claim.client_id,
            address: address.endpoint.into(),
            slot: claim.slot,
            slots_max: setup.backends[usize::from(claim.backend)].slots,
            user_data,
            listener: &setup.listeners[usize::from(address.listener)].name,
        };
        self.tell_link(turn, link, |writer| writer.opened(&opened));
    }

    /// Tells the backend that a session is over, if it knows of it.
    pub(crate) fn report_closed(&mut self, turn: &mut Turn<'_>, index: u32, reason: CloseReason) {
        let session = self.netcode.sessions.at(index);
        let backend = &self.links.backends[usize::from(session.backend)];
        let (Some(link), true) = (backend.link, session.announced == backend.epoch) else { return };
        let session = self.session_id(index);
        self.tell_link(turn, link, |writer| writer.closed(session, reason));
    }

    /// Writes a record that must not be lost.
    pub(crate) fn tell_link(
        &mut self,
        turn: &mut Turn<'_>,
        link: LinkId,
        record: impl Fn(&mut Writer<'_>) -> bool,
    ) {
        if self.append(turn, link, 0, &record) {
            return;
        }
        self.links.has_unsettled = true;
        let Some(full) = self.links.get_mut(link) else { return };
        full.defer(record);
        if full.is_unresponsive() {
            self.lose_link(turn.now, link);
        }
    }

    /// Appends a record to a link's bundle, making room where there is none. False when the link
    /// has no room at all: then nothing may overtake what is deferred.
    #[inline]
    pub(crate) fn append(
        &mut self,
        turn: &mut Turn<'_>,
        link: LinkId,
        payloads: u64,
        record: impl Fn(&mut Writer<'_>) -> bool,
    ) -> bool {
        // Twice: into the bundle that is open, and into a fresh one after that one was sent or
        // slots were freed.
        for _ in 0..3 {
            let Some(open) = self.links.get_mut(link).filter(|link| !link.has_deferred()) else {
                return false;
            };
            let was_open = open.is_open();
            let is_written = open.append(turn.tx, payloads, &record);
            let is_full = open.is_open();
            if is_full && !was_open {
                self.links.open.push(link);
            }
            if is_written {
                return true;
            }
            if is_full {
                self.commit_bundle(link, turn.tx);
            } else {
                self.submit(turn);
            }
        }
        false
    }

    fn commit_bundle(&mut self, link: LinkId, tx: &mut TxBatch) {
        let tag = Tag::Bundle(link).encode();
        let Some(open) = self.links.get_mut(link) else { return };
        if open.commit(tx, tag).is_some() {
            self.counters.link_datagrams_out += 1;
        }
    }

    /// Hands over all bundles. Nobody is asked who has none: a host may have hundreds of game
    /// processes.
    pub(crate) fn commit_bundles(&mut self, tx: &mut TxBatch) {
        let mut open_links = std::mem::take(&mut self.links.open);
        for link in open_links.drain(..) {
            self.commit_bundle(link, tx);
        }
        self.links.open = open_links;
    }

    /// Begins the turn's bundles with what was deferred.
    pub(crate) fn flush_deferred(&mut self, turn: &mut Turn<'_>) {
        if !self.links.has_unsettled {
            return;
        }
        for at in self.links.all.ids() {
            let Some(link) = self.links.all[at].as_mut().filter(|link| link.has_deferred()) else {
                continue;
            };
            link.write_deferred(turn.tx);
            self.links.open.push(at);
        }
    }

    /// A bundle that the socket did not take. What must not be lost goes back to its link at once,
    /// before anything else is written to it; a link that is gone stays until the end of the stage.
    pub(crate) fn note_refused_bundle(&mut self, link: LinkId, bytes: &[u8], why: SendFailure) {
        self.counters.link_datagrams_out -= 1;
        self.links.has_unsettled = true;
        let Some(refused_by) = self.links.get_mut(link) else {
            // Its link has ended meanwhile.
            return self.undeliver(payloads_in(bytes), why);
        };
        let payloads_lost = refused_by.take_back(bytes);
        let must_close = why != SendFailure::Full || refused_by.is_unresponsive();
        self.undeliver(payloads_lost, why);
        if must_close {
            self.links.broken.push(link);
        }
    }

    /// Gives up the links to which a flush of this stage could not send.
    pub(crate) fn give_up_broken_links(&mut self, now: Now) {
        while let Some(link) = self.links.broken.pop() {
            self.lose_link(now, link);
        }
    }

    /// Takes payloads back out of the balance that were counted as handed over.
    pub(crate) fn undeliver(&mut self, payloads: u64, why: SendFailure) {
        self.counters.payloads_to_links -= payloads;
        let reason = match why {
            SendFailure::Full => DropReason::LinkFull,
            SendFailure::Gone | SendFailure::Refused => DropReason::LinkDown,
        };
        self.counters.drops.add(reason, payloads);
    }
}
