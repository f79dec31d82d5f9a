//! From game processes: answers for players, and what a process on a bundle link may ask for.
//!
//! A process can name its own players only, and a record that breaks the format ends its link and
//! nothing else.

use crate::counters::{Ended, LinkRefusal};
use crate::gate::Gate;
use crate::ids::LinkId;
use crate::links::backlog::Progress;
use crate::roles::Role;
use crate::setup::LinkKind;
use crate::turn::Turn;
use ringgate_batch::{Credentials, RxMeta};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_link::bundle::{
    Goodbye, GoodbyeReason, Hello, RecordError, SessionId, ToGateway, Welcome,
};

impl Gate {
    /// A datagram from a game process.
    pub(crate) fn handle_link_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        self.counters.link_datagrams_in += 1;
        match self.roles.of(meta.socket) {
            Role::Link(link) => self.handle_bundle(turn, link, meta.truncated, bytes),
            Role::UdpLink => self.handle_udp_answer(turn, meta, bytes),
            Role::SessionLink(place) => match self.netcode.sessions.live(place) {
                Some(index) => {
                    let backend = self.netcode.sessions.at(index).backend;
                    self.links.backends[usize::from(backend)].come_back();
                    self.send_to_player(turn, index, bytes);
                }
                None => self.count_from_link(DropReason::SessionUnknown),
            },
            Role::LinkListener | Role::Player { .. } | Role::Vacant => {
                self.counters.drops.bump(DropReason::LinkStranger);
            }
        }
    }

    fn handle_udp_answer(&mut self, turn: &mut Turn<'_>, meta: &RxMeta, bytes: &[u8]) {
        let Some(from) = self.backend_behind(meta) else {
            return self.counters.drops.bump(DropReason::LinkStranger);
        };
        self.links.backends[from].come_back();
        self.handle_server(turn, from, meta, bytes);
    }

    /// The backend that a datagram on the udp link comes from: nearly always that of the player
    /// whom it is for, so on a host with hundreds of them not all are asked.
    fn backend_behind(&self, meta: &RxMeta) -> Option<usize> {
        let is_from = |backend: &usize| self.links.backends[*backend].address == Some(meta.peer);
        let players = self.backends_of_loopback(&meta.local).find(is_from);
        players.or_else(|| (0..self.links.backends.len()).find(is_from))
    }

    /// A datagram for a player of netcode.
    pub(crate) fn handle_netcode_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: usize,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        match self.netcode.session_of_loopback(&meta.local, from) {
            Some(index) => self.send_to_player(turn, index, bytes),
            None => self.count_from_link(DropReason::SessionUnknown),
        }
    }

    pub(crate) fn count_from_link(&mut self, why: DropReason) {
        self.counters.payloads_from_links += 1;
        self.counters.drops.bump(why);
    }

    /// Seals a game process's payload for one player.
    #[inline]
    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: u32, payload: &[u8]) {
        self.counters.payloads_from_links += 1;
        if let Err(why) = self.try_send_to_player(turn, index, payload) {
            self.counters.drops.bump(why);
        } else {
            self.counters.payloads_down += 1;
            self.stamps.downlink_count += 1;
        }
    }

    fn try_send_to_player(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(DropReason::PayloadLength);
        }
        if !self.netcode.sessions.at(index).is_confirmed() {
            // The player drops payloads until a keep-alive has told it that it is connected, and
            // that one may be lost.
            self.emit_keep_alive(turn, index);
        }
        self.emit(turn, index, PacketKind::Payload, payload)
    }

    /// Deals with one record, a multicast as far as its link's allowance goes. Returns whether it
    /// is done.
    pub(crate) fn handle_record(
        &mut self,
        turn: &mut Turn<'_>,
        link: LinkId,
        record: ToGateway<'_>,
        progress: &mut Progress,
    ) -> bool {
        let backend = self.links.get_mut(link).and_then(|link| link.backend);
        match (record, backend) {
            (ToGateway::Hello(hello), None) => self.greet(turn, link, &hello),
            (ToGateway::Hello(_), Some(_)) | (_, None) => {
                self.refuse_link(turn, link, GoodbyeReason::HelloExpected, None);
            }
            (ToGateway::Payload { session, bytes }, Some(backend)) => {
                self.send_for_backend(turn, backend, session, bytes);
            }
            (ToGateway::Multicast { sessions, bytes }, Some(backend)) => {
                return self.take_multicast(turn, backend, (sessions, bytes), progress);
            }
            (ToGateway::Close { session, reason }, Some(backend)) => {
                if let Some(index) = self.session_for_backend(backend, session) {
                    self.end_session_because(turn, index, Ended::ByBackend, reason);
                }
            }
            // What only a later version knows, and no payload's loss.
            (ToGateway::Unknown(_), Some(_)) => {}
            (ToGateway::Ping { token }, Some(_)) => {
                // A pong is of no use when it comes late: a full link loses it.
                self.append(turn, link, 0, |writer| writer.pong(token));
            }
        }
        true
    }

    pub(crate) fn send_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: u16,
        session: SessionId,
        payload: &[u8],
    ) {
        match self.session_for_backend(backend, session) {
            Some(index) => self.send_to_player(turn, index, payload),
            None => self.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// A session that a backend names, if it is one of its own.
    #[inline]
    pub(crate) fn session_for_backend(&self, backend: u16, session: SessionId) -> Option<u32> {
        self.session_index(session)
            .filter(|index| self.netcode.sessions.at(*index).backend == backend)
    }

    /// The first record of a link: who it is, and whether it may be.
    fn greet(&mut self, turn: &mut Turn<'_>, link: LinkId, hello: &Hello<'_>) {
        match self.identify(link, hello) {
            Ok((backend, version)) => {
                self.forget_predecessor(turn.now, backend);
                let state = &mut self.links.backends[usize::from(backend)];
                state.link = Some(link);
                state.epoch += 1;
                state.come_back();
                if let Some(link) = self.links.get_mut(link) {
                    link.backend = Some(backend);
                }
                let welcome = Welcome {
                    version,
                    worker: self.worker.index,
                    workers: self.worker.count,
                    incarnation: self.setup.incarnation,
                };
                self.tell_link(turn, link, |writer| writer.welcome(&welcome));
                self.tell_draining(turn, link);
            }
            Err(why) => self.refuse_link(turn, link, why, None),
        }
    }

    /// Which backend it is, and the version that is spoken with it.
    fn identify(&self, link: LinkId, hello: &Hello<'_>) -> Result<(u16, u16), GoodbyeReason> {
        let version = hello.common_version().ok_or(GoodbyeReason::VersionUnsupported)?;
        let named = |backend: &&crate::Backend| backend.name == hello.name && !backend.retired;
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
        let credentials = self.links.all[link].as_ref().map(|link| link.credentials);
        if !credentials.is_some_and(|credentials| allow.admits(credentials)) {
            return Err(GoodbyeReason::Unauthorised);
        }
        if self.links.live(at).is_some() {
            return Err(GoodbyeReason::NameTaken);
        }
        Ok((at as u16, version))
    }

    pub(crate) fn refuse_record(&mut self, turn: &mut Turn<'_>, link: LinkId, error: RecordError) {
        self.counters.drops.bump(DropReason::RecordInvalid);
        self.refuse_link(turn, link, GoodbyeReason::RecordInvalid, Some(error));
    }

    /// Says why, and closes the link. Only that link: the worker and its other backends do not
    /// notice.
    pub(crate) fn refuse_link(
        &mut self,
        turn: &mut Turn<'_>,
        link: LinkId,
        reason: GoodbyeReason,
        error: Option<RecordError>,
    ) {
        let credentials = self.links.get_mut(link).map(|link| link.credentials);
        self.count_refusal(LinkRefusal::of(reason), credentials);
        self.append(turn, link, 0, |writer| writer.goodbye(Goodbye { reason, error }));
        self.submit(turn);
        self.lose_link(turn.now, link);
    }

    pub(crate) fn count_refusal(&mut self, why: LinkRefusal, whose: Option<Credentials>) {
        self.counters.links_refused += 1;
        self.counters.link_refusals[why as usize] += 1;
        self.links.last_refused[why as usize] = whose;
    }
}
