//! Between sessions and game processes: payloads and openings out, payloads and commands in, and backends that come and go.

use super::counters::Ended;
use super::links::{
    Link, Probe, Refused, index_of_loopback, is_shared_socket_backend, loopback_of,
};
use super::output::{Exit, Tag};
use super::setup::LinkKind;
use super::{Gate, Now, Request, Role};
use crate::buf::{Endpoint, LocalIp, RxMeta, SendFailure, SocketId, TxBatch, TxTarget};
use crate::drops::DropReason;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::link::bundle::{
    CloseReason, Goodbye, GoodbyeReason, Hello, Opened, RecordError, SessionId, ToGateway,
    USER_DATA_BYTES, VERSION, Welcome, Writer,
};
use crate::proto::netcode::packet::PacketKind;

impl Gate {
    /// Hands a player's payload to its backend.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Now,
        index: u32,
        payload: &[u8],
        kernel_ns: u64,
        exit: &mut Exit<'_>,
    ) {
        self.counters.payloads_up += 1;
        let backend = usize::from(self.sessions.at(index).claim.backend);
        let delivered = match &self.setup.backends[backend].link {
            LinkKind::Bundle { .. } => self.deliver_bundled(now, index, payload, exit),
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {
                let address = Endpoint::from(*address);
                self.deliver_shared(now, index, payload, address, exit)
            }
            LinkKind::Udp { .. } => self.deliver_connected(now, index, payload, exit),
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
        now: Now,
        index: u32,
        payload: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let link = self.link_of(index).ok_or(DropReason::LinkDown)?;
        self.announce(now, index, exit);
        let session = self.session_id(index);
        if self.append(now, link, 1, exit, |writer| writer.payload(session, payload)) {
            Ok(())
        } else {
            Err(DropReason::LinkFull)
        }
    }

    /// Through the worker's one socket, from the player's own loopback address.
    fn deliver_shared(
        &mut self,
        now: Now,
        index: u32,
        payload: &[u8],
        backend: Endpoint,
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let socket = self.udp_link.ok_or(DropReason::LinkDown)?;
        let source = loopback_of(index).ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: Some(backend), source };
        self.send_raw(now, payload, target, Tag::UdpPayload, exit);
        Ok(())
    }

    /// Through the session's own socket.
    fn deliver_connected(
        &mut self,
        now: Now,
        index: u32,
        payload: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let socket = self.sessions.at(index).uplink.ok_or(DropReason::LinkDown)?;
        let target = TxTarget { socket, peer: None, source: LocalIp::UNSPECIFIED };
        self.send_raw(now, payload, target, Tag::UdpPayload, exit);
        Ok(())
    }

    fn send_raw(
        &mut self,
        now: Now,
        bytes: &[u8],
        target: TxTarget,
        tag: Tag,
        exit: &mut Exit<'_>,
    ) {
        self.make_room(now, exit);
        let slot = exit.tx.slot().expect("room was made");
        slot[..bytes.len()].copy_from_slice(bytes);
        exit.tx.commit(bytes.len(), target, tag.encode());
        self.counters.link_datagrams_out += 1;
    }

    /// The link of a session's backend, if there is one and it takes payloads.
    #[inline]
    fn link_of(&self, index: u32) -> Option<u16> {
        self.backends[usize::from(self.sessions.at(index).claim.backend)].link
    }

    /// Tells the backend of a session, if it has not been told on its present link.
    pub(super) fn announce(&mut self, now: Now, index: u32, exit: &mut Exit<'_>) {
        let session = self.sessions.at(index);
        let claim = session.claim;
        let backend = usize::from(claim.backend);
        let epoch = self.backends[backend].epoch;
        if session.announced == epoch || !self.backends[backend].is_up() {
            return;
        }
        match &self.setup.backends[backend].link {
            LinkKind::Bundle { .. } => {
                let Some(link) = self.backends[backend].link else { return };
                self.announce_on(now, index, link, exit);
            }
            LinkKind::Udp { address } if is_shared_socket_backend(address) => {}
            LinkKind::Udp { .. } => {
                let session = self.session_id(index);
                self.requests
                    .push_back(Request::OpenSessionSocket { session, backend: claim.backend });
            }
        }
        self.sessions.at_mut(index).announced = epoch;
    }

    /// Writes the opening record. The user data goes along the first time only; a backend that comes back gets zeros.
    fn announce_on(&mut self, now: Now, index: u32, link: u16, exit: &mut Exit<'_>) {
        let user_data = self.sessions.at_mut(index).user_data.take();
        let user_data = user_data.as_deref().unwrap_or(&[0; USER_DATA_BYTES]);
        let setup = std::sync::Arc::clone(&self.setup);
        let address = *self.sessions.address(index);
        let claim = self.sessions.at(index).claim;
        let opened = Opened {
            session: self.session_id(index),
            client_id: claim.client_id,
            address: address.endpoint.into(),
            slot: claim.slot,
            slots_max: setup.backends[usize::from(claim.backend)].slots,
            user_data,
            listener: &setup.listeners[usize::from(address.listener)].name,
        };
        self.tell_link(now, link, exit, |writer| writer.opened(&opened));
    }

    /// Tells the backend that a session is over, if it knows of it.
    pub(super) fn report_closed(
        &mut self,
        now: Now,
        index: u32,
        reason: CloseReason,
        exit: &mut Exit<'_>,
    ) {
        let session = self.sessions.at(index);
        let backend = &self.backends[usize::from(session.claim.backend)];
        let (Some(link), true) = (backend.link, session.announced == backend.epoch) else { return };
        let session = self.session_id(index);
        self.tell_link(now, link, exit, |writer| writer.closed(session, reason));
    }

    /// Writes a record that must not be lost.
    pub(super) fn tell_link(
        &mut self,
        now: Now,
        link: u16,
        exit: &mut Exit<'_>,
        record: impl Fn(&mut Writer<'_>) -> bool,
    ) {
        if !self.append(now, link, 0, exit, &record)
            && let Some(link) = self.link_mut(link)
        {
            link.owe(record);
        }
    }

    /// Appends a record to a link's bundle, making room where there is none. False when the link has no room at all: then
    /// nothing may overtake what it is owed.
    #[inline]
    fn append(
        &mut self,
        now: Now,
        link: u16,
        payloads: u64,
        exit: &mut Exit<'_>,
        record: impl Fn(&mut Writer<'_>) -> bool,
    ) -> bool {
        // Twice: into the bundle that is open, and into a fresh one after that one was sent or slots were freed.
        for _ in 0..3 {
            let Some(open) = self.link_mut(link).filter(|link| !link.owes()) else { return false };
            if open.append(exit.tx, payloads, &record) {
                return true;
            }
            let is_full = open.is_open();
            if is_full {
                self.commit_bundle(link, exit.tx);
            } else {
                self.submit(now, exit);
            }
        }
        false
    }

    fn commit_bundle(&mut self, link: u16, tx: &mut TxBatch) {
        let tag = Tag::Bundle(link).encode();
        let Some(open) = self.link_mut(link) else { return };
        if open.commit(tx, tag).is_some() {
            self.counters.link_datagrams_out += 1;
        }
    }

    /// Hands over the bundles of all links.
    pub(super) fn commit_bundles(&mut self, tx: &mut TxBatch) {
        for link in 0..self.links.len() as u16 {
            self.commit_bundle(link, tx);
        }
    }

    /// Begins the turn's bundles with what links are owed.
    pub(super) fn pay_debts(&mut self, exit: &mut Exit<'_>) {
        for link in self.links.iter_mut().flatten() {
            link.pay(exit.tx);
        }
    }

    /// A bundle that the socket did not take.
    pub(super) fn settle_refused_bundle(
        &mut self,
        now: Now,
        link: u16,
        bytes: &[u8],
        why: SendFailure,
    ) {
        self.counters.link_datagrams_out -= 1;
        let Some(refused_by) = self.link_mut(link) else { return };
        let Refused { payloads, unresponsive } = refused_by.refuse(bytes);
        self.undeliver(payloads, why);
        if why != SendFailure::Full || unresponsive {
            self.close_link(now, link);
        }
    }

    /// Takes payloads back out of the balance that were counted as handed over.
    pub(super) fn undeliver(&mut self, payloads: u64, why: SendFailure) {
        self.counters.payloads_to_links -= payloads;
        let reason = match why {
            SendFailure::Full => DropReason::LinkFull,
            SendFailure::Gone | SendFailure::Refused => DropReason::LinkDown,
        };
        self.counters.drops.add(reason, payloads);
    }

    /// A datagram from a game process.
    pub(super) fn handle_link_datagram(
        &mut self,
        now: Now,
        meta: &RxMeta,
        bytes: &[u8],
        exit: &mut Exit<'_>,
    ) {
        self.counters.link_datagrams_in += 1;
        match self.role(meta.socket) {
            Role::Link(link) => self.handle_bundle(now, link, meta.truncated, bytes, exit),
            Role::UdpLink => self.handle_udp_answer(now, meta, bytes, exit),
            Role::SessionLink(place) => match self.sessions.live(place) {
                Some(index) => self.send_to_player(now, index, bytes, exit),
                None => self.count_from_link(DropReason::SessionUnknown),
            },
            Role::LinkListener | Role::Player { .. } | Role::Vacant => {
                self.counters.drops.bump(DropReason::LinkStranger);
            }
        }
    }

    fn handle_udp_answer(&mut self, now: Now, meta: &RxMeta, bytes: &[u8], exit: &mut Exit<'_>) {
        let Some(from) = self.backends.iter().position(|state| state.address == Some(meta.peer))
        else {
            return self.counters.drops.bump(DropReason::LinkStranger);
        };
        self.backends[from].gone_since_ns = None;
        self.backends[from].probe_open = false;
        let index = index_of_loopback(&meta.local).filter(|index| {
            let session = self.sessions.get(*index);
            session.is_some_and(|session| usize::from(session.claim.backend) == from)
        });
        match index {
            Some(index) => self.send_to_player(now, index, bytes, exit),
            None => self.count_from_link(DropReason::SessionUnknown),
        }
    }

    fn count_from_link(&mut self, why: DropReason) {
        self.counters.payloads_from_links += 1;
        self.counters.drops.bump(why);
    }

    /// Seals a game process's payload for one player.
    #[inline]
    fn send_to_player(&mut self, now: Now, index: u32, payload: &[u8], exit: &mut Exit<'_>) {
        self.counters.payloads_from_links += 1;
        if let Err(why) = self.try_send_to_player(now, index, payload, exit) {
            self.counters.drops.bump(why);
        } else {
            self.counters.payloads_down += 1;
            self.stamps.downlink_count += 1;
        }
    }

    fn try_send_to_player(
        &mut self,
        now: Now,
        index: u32,
        payload: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(DropReason::PayloadLength);
        }
        if !self.sessions.at(index).confirmed {
            // The player drops payloads until a keep-alive has told it that it is connected, and that one may be lost.
            self.emit_keep_alive(now, index, exit);
        }
        self.emit(now, index, PacketKind::Payload, payload, exit)
    }

    fn handle_bundle(
        &mut self,
        now: Now,
        link: u16,
        truncated: bool,
        bytes: &[u8],
        exit: &mut Exit<'_>,
    ) {
        if truncated {
            return self.refuse_record(now, link, RecordError::DatagramTooLong, exit);
        }
        for record in ToGateway::read(bytes) {
            if self.link_mut(link).is_none() {
                return;
            }
            match record {
                Ok(record) => self.handle_record(now, link, record, exit),
                Err(error) => return self.refuse_record(now, link, error, exit),
            }
        }
    }

    fn handle_record(&mut self, now: Now, link: u16, record: ToGateway<'_>, exit: &mut Exit<'_>) {
        let backend = self.link_mut(link).and_then(|link| link.backend);
        match (record, backend) {
            (ToGateway::Hello(hello), None) => self.greet(now, link, &hello, exit),
            (ToGateway::Hello(_), Some(_)) | (_, None) => {
                self.part(now, link, GoodbyeReason::HelloExpected, None, exit);
            }
            (ToGateway::Payload { session, bytes }, Some(backend)) => {
                self.send_for_backend(now, backend, session, bytes, exit);
            }
            (ToGateway::Multicast { sessions, bytes }, Some(backend)) => {
                for session in sessions.iter() {
                    self.send_for_backend(now, backend, session, bytes, exit);
                }
            }
            (ToGateway::Close { session, reason }, Some(backend)) => {
                if let Some(index) = self.session_for_backend(backend, session) {
                    self.end_session_because(now, index, Ended::ByBackend, reason, exit);
                }
            }
            (ToGateway::Ping { token }, Some(_)) => {
                // A pong is of no use when it comes late: a full link loses it.
                self.append(now, link, 0, exit, |writer| writer.pong(token));
            }
        }
    }

    fn send_for_backend(
        &mut self,
        now: Now,
        backend: u16,
        session: SessionId,
        payload: &[u8],
        exit: &mut Exit<'_>,
    ) {
        match self.session_for_backend(backend, session) {
            Some(index) => self.send_to_player(now, index, payload, exit),
            None => self.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// A session that a backend names, if it is one of its own.
    #[inline]
    fn session_for_backend(&self, backend: u16, session: SessionId) -> Option<u32> {
        self.session_index(session)
            .filter(|index| self.sessions.at(*index).claim.backend == backend)
    }

    /// The first record of a link: who it is, and whether it may be.
    fn greet(&mut self, now: Now, link: u16, hello: &Hello<'_>, exit: &mut Exit<'_>) {
        match self.identify(link, hello) {
            Ok(backend) => {
                let state = &mut self.backends[usize::from(backend)];
                state.link = Some(link);
                state.epoch += 1;
                state.gone_since_ns = None;
                if let Some(link) = self.link_mut(link) {
                    link.backend = Some(backend);
                }
                let welcome = Welcome {
                    version: VERSION,
                    worker: self.worker.index,
                    workers: self.worker.count,
                    incarnation: self.setup.incarnation,
                };
                self.tell_link(now, link, exit, |writer| writer.welcome(&welcome));
            }
            Err(why) => self.part(now, link, why, None, exit),
        }
    }

    fn identify(&self, link: u16, hello: &Hello<'_>) -> Result<u16, GoodbyeReason> {
        if hello.version != VERSION {
            return Err(GoodbyeReason::VersionUnsupported);
        }
        let named = |backend: &&super::Backend| backend.name == hello.name && !backend.retired;
        let (at, allow) = self
            .setup
            .backends
            .iter()
            .enumerate()
            .filter(|(_, backend)| named(backend))
            .find_map(|(at, backend)| match &backend.link {
                LinkKind::Bundle { allow } => Some((at, allow)),
                LinkKind::Udp { .. } => None,
            })
            .ok_or(GoodbyeReason::NameUnknown)?;
        let credentials = self.links[usize::from(link)].as_ref().map(|link| link.credentials);
        if !credentials.is_some_and(|credentials| allow.admits(credentials)) {
            return Err(GoodbyeReason::Unauthorised);
        }
        if self.backends[at].link.is_some() { Err(GoodbyeReason::NameTaken) } else { Ok(at as u16) }
    }

    fn refuse_record(&mut self, now: Now, link: u16, error: RecordError, exit: &mut Exit<'_>) {
        self.counters.drops.bump(DropReason::RecordInvalid);
        self.part(now, link, GoodbyeReason::RecordInvalid, Some(error), exit);
    }

    /// Says why, and closes the link. Only that link: the worker and its other backends do not notice.
    fn part(
        &mut self,
        now: Now,
        link: u16,
        reason: GoodbyeReason,
        error: Option<RecordError>,
        exit: &mut Exit<'_>,
    ) {
        self.counters.links_refused += 1;
        self.append(now, link, 0, exit, |writer| writer.goodbye(Goodbye { reason, error }));
        self.submit(now, exit);
        self.close_link(now, link);
    }

    /// Says goodbye to every link: the gateway is about to go.
    pub(super) fn say_goodbye(&mut self, now: Now, exit: &mut Exit<'_>) {
        let goodbye = Goodbye { reason: GoodbyeReason::Shutdown, error: None };
        for link in 0..self.links.len() as u16 {
            self.append(now, link, 0, exit, |writer| writer.goodbye(goodbye));
        }
    }

    /// Has the worker close a link's socket.
    fn close_link(&mut self, now: Now, link: u16) {
        if let Some(socket) = self.links[usize::from(link)].as_ref().map(|link| link.socket) {
            self.lose_link(now, link);
            self.requests.push_back(Request::CloseSocket(socket));
        }
    }

    /// The link is gone. Its backend may come back within its grace time; the players wait.
    pub(super) fn lose_link(&mut self, now: Now, link: u16) {
        let Some(lost) = self.links[usize::from(link)].take() else { return };
        self.assign(lost.socket, Role::Vacant);
        let unsent = lost.unsent_payloads();
        self.undeliver(unsent, SendFailure::Gone);
        if let Some(backend) = lost.backend {
            let state = &mut self.backends[usize::from(backend)];
            state.link = None;
            state.gone_since_ns = Some(now.mono_ns);
        }
    }

    /// The kernel says that nobody listens where a udp backend should.
    pub(super) fn lose_udp_backend(&mut self, now: Now, socket: SocketId, peer: &Endpoint) {
        let by_session = match self.role(socket) {
            Role::SessionLink(place) => self.sessions.live(place),
            _ => None,
        };
        let session_backend =
            by_session.map(|index| usize::from(self.sessions.at(index).claim.backend));
        let at = session_backend
            .or_else(|| self.backends.iter().position(|state| state.address == Some(*peer)));
        if let Some(at) = at {
            let state = &mut self.backends[at];
            state.gone_since_ns.get_or_insert(now.mono_ns);
            state.probe_open = false;
            state.probed_ns = now.mono_ns;
        }
    }

    /// Looks whether udp backends that were gone are back: an empty datagram that the kernel does not refuse for a while
    /// means that somebody listens again.
    pub(super) fn probe_backends(&mut self, now: Now, exit: &mut Exit<'_>) {
        for at in 0..self.backends.len() {
            let state = &self.backends[at];
            let (false, Some(address)) = (state.is_up(), state.address) else { continue };
            let can_probe = is_shared_socket_backend(&address.into());
            match Probe::next(state, can_probe, now.mono_ns) {
                Probe::Answered => {
                    self.backends[at].probe_open = false;
                    self.backends[at].gone_since_ns = None;
                }
                Probe::Due => {
                    self.backends[at].probe_open = true;
                    self.backends[at].probed_ns = now.mono_ns;
                    self.send_probe(now, address, exit);
                }
                Probe::Wait => {}
            }
        }
    }

    fn send_probe(&mut self, now: Now, address: Endpoint, exit: &mut Exit<'_>) {
        let Some(socket) = self.udp_link else { return };
        let target = TxTarget { socket, peer: Some(address), source: LocalIp::UNSPECIFIED };
        self.send_raw(now, &[], target, Tag::Probe, exit);
    }

    #[inline]
    fn link_mut(&mut self, link: u16) -> Option<&mut Link> {
        self.links.get_mut(usize::from(link))?.as_mut()
    }
}
