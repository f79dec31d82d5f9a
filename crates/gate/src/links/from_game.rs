//! From game processes on bundle links: who a process is, and what it asks for.
//!
//! A process can name its own players only, and a record that breaks the format ends its link and
//! nothing else.

use crate::common::Common;
use crate::counters::LinkRefusal;
use crate::ids::{BackendId, LinkId};
use crate::links::backlog::{Progress, Reached};
use crate::links::players::{PlayerOf, Players};
use crate::links::state::Load;
use crate::setup::LinkKind;
use crate::turn::Turn;
use ringgate_batch::Credentials;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{
    Arbitrated, Frame, FromArbiter, Goodbye, GoodbyeReason, Hello, MessagePart, RecordError,
    ToGateway, VERSION_FAREWELL, VERSION_MESSAGES, VERSION_MOVES, Welcome,
};

impl Turn<'_> {
    /// Deals with one record, a multicast as far as its link's allowance goes, and notes how far
    /// that is.
    pub(crate) fn take_record(
        &mut self,
        players: &mut impl Players,
        link: LinkId,
        frame: Frame<'_>,
        progress: &mut Progress,
    ) -> Result<(), RecordError> {
        let backend = self.common.links.get_mut(link).and_then(|link| link.backend);
        let is_done = match (frame.as_payload(), backend) {
            (Some((session, bytes)), Some(backend)) => {
                players.send(self, PlayerOf { backend, session }, bytes);
                true
            }
            _ => self.take_other_record(players, (link, backend), frame, progress)?,
        };
        if is_done {
            let at = progress.reached.at + frame.bytes().len();
            progress.reached = Reached { at, ..Reached::default() };
        }
        Ok(())
    }

    /// Deals with a record that is no payload, or whose link is nobody's yet. Returns whether it is
    /// done.
    #[inline(never)]
    fn take_other_record(
        &mut self,
        players: &mut impl Players,
        (link, backend): (LinkId, Option<BackendId>),
        frame: Frame<'_>,
        progress: &mut Progress,
    ) -> Result<bool, RecordError> {
        match (&ToGateway::decode(frame)?, backend) {
            (ToGateway::Hello(hello), None) => self.greet(link, hello),
            (ToGateway::Hello(_), Some(_)) | (_, None) => {
                self.refuse_link(link, GoodbyeReason::HelloExpected, None);
            }
            (&ToGateway::Multicast { sessions, bytes }, Some(backend)) => {
                return Ok(self.take_multicast(players, backend, (sessions, bytes), progress));
            }
            (ToGateway::Message(_) | ToGateway::AskQuality { .. }, _)
                if !self.common.links.speaks(link, VERSION_MESSAGES) =>
            {
                self.refuse_record(link, RecordError::KindUnknown);
            }
            (ToGateway::Message(part), Some(backend)) => {
                self.take_message(players, (link, backend), part);
            }
            (&ToGateway::AskQuality { session }, Some(backend)) => {
                players.tell_quality(self, PlayerOf { backend, session });
            }
            (&ToGateway::Close { session, reason }, Some(backend)) => {
                players.close(self, PlayerOf { backend, session }, reason);
            }
            (ToGateway::CloseAfter(close), Some(backend)) => {
                // On an earlier version's link it is a record of a later one.
                if self.common.links.speaks(link, VERSION_FAREWELL) {
                    players.close_after(self, backend, close);
                }
            }
            (
                ToGateway::Move(_) | ToGateway::Answer { .. } | ToGateway::Confirm { .. },
                Some(backend),
            ) => {
                // On an earlier version's link they are records of a later one.
                if self.common.links.speaks(link, VERSION_MOVES) {
                    self.take_move_record(players, backend, frame, progress);
                }
            }
            (ToGateway::Unknown(frame), Some(backend)) => {
                self.take_arbiters_record(players, (link, backend), *frame, progress);
            }
            // It was taken as such.
            (ToGateway::Payload { .. }, Some(_)) => {}
            (&ToGateway::Ping { token }, Some(_)) => {
                // A pong is of no use when it comes late: a full link loses it.
                self.append(link, Load::NONE, |writer| writer.pong(token));
            }
            (&ToGateway::Intake { is_open }, Some(backend)) => {
                self.common.links.backends[backend].is_closed = !is_open;
                self.common.moves.doubt();
            }
        }
        Ok(true)
    }

    /// What an arbiter says. Any other record of a later version can be skipped, and no payload is
    /// lost by it.
    fn take_arbiters_record(
        &mut self,
        players: &mut impl Players,
        (link, backend): (LinkId, BackendId),
        frame: Frame<'_>,
        progress: &mut Progress,
    ) {
        match FromArbiter::decode(frame) {
            Some(FromArbiter::Arbitrates(which)) => {
                if let Some(link) = self.common.links.get_mut(link) {
                    link.arbitrates[which as usize] = true;
                }
                if which == Arbitrated::Plain {
                    players.hear_arbiter();
                }
            }
            Some(FromArbiter::Crowded(is_crowded)) => {
                if let Some(link) = self.common.links.get_mut(link) {
                    link.is_crowded = is_crowded;
                }
            }
            Some(FromArbiter::Standing(standing)) => {
                progress.left = progress.left.saturating_sub(STANDING_ANSWERS);
                players.hear_standing(self, backend, &standing);
            }
            Some(FromArbiter::Sure(number)) => players.hear_sure(self, backend, number),
            None => {}
        }
    }

    /// What a process says about players who are moved. Each counts as several answers.
    fn take_move_record(
        &mut self,
        players: &mut impl Players,
        backend: BackendId,
        frame: Frame<'_>,
        progress: &mut Progress,
    ) {
        progress.left = progress.left.saturating_sub(MOVE_ANSWERS);
        match ToGateway::decode(frame) {
            Ok(ToGateway::Move(asked)) => players.move_session(self, backend, &asked),
            Ok(ToGateway::Answer { session, offer, answer }) => {
                players.answer(self, PlayerOf { backend, session }, (offer, answer));
            }
            Ok(ToGateway::Confirm { session }) => {
                players.confirm(self, PlayerOf { backend, session });
            }
            _ => {}
        }
    }

    /// A message for a player, or a part of one.
    fn take_message(
        &mut self,
        players: &mut impl Players,
        (link, backend): (LinkId, BackendId),
        part: &MessagePart<'_>,
    ) {
        let Some(from) = self.common.links.get_mut(link) else { return };
        if from.assembly.is_passed_by(part) {
            return players.message(self, backend, part);
        }
        let token = if part.is_first { part.token } else { from.assembly.token() };
        match from.assembly.take(part) {
            Ok(false) => {}
            Ok(true) => {
                // Its memory goes back for the next one, unless the link has ended meanwhile.
                let assembly = std::mem::take(&mut from.assembly);
                let bytes = assembly.message();
                players.message(self, backend, &MessagePart { token, bytes, ..*part });
                if let Some(from) = self.common.links.get_mut(link) {
                    from.assembly = assembly;
                }
            }
            Err(error) => self.refuse_record(link, error),
        }
    }

    /// The first record of a link: who it is, and whether it may be.
    fn greet(&mut self, link: LinkId, hello: &Hello<'_>) {
        match self.common.identify(link, hello) {
            Ok((backend, version)) => {
                self.common.forget_predecessor(self.now, backend);
                let state = &mut self.common.links.backends[backend];
                state.link = Some(link);
                state.epoch += 1;
                state.is_closed = false;
                state.come_back();
                if let Some(link) = self.common.links.get_mut(link) {
                    link.backend = Some(backend);
                    link.version = version;
                }
                let welcome = Welcome {
                    version,
                    worker: self.common.worker.id.0,
                    workers: self.common.worker.count,
                    incarnation: self.common.setup.incarnation,
                };
                self.tell_link(link, |writer| writer.welcome(&welcome));
                self.tell_players(link, backend);
                self.tell_draining(link);
            }
            Err(why) => self.refuse_link(link, why, None),
        }
    }

    pub(crate) fn refuse_record(&mut self, link: LinkId, error: RecordError) {
        self.common.counters.drops.bump(DropReason::RecordInvalid);
        self.refuse_link(link, GoodbyeReason::RecordInvalid, Some(error));
    }

    /// Says why, and closes the link. Only that link: the worker and its other backends do not
    /// notice.
    pub(crate) fn refuse_link(
        &mut self,
        link: LinkId,
        reason: GoodbyeReason,
        error: Option<RecordError>,
    ) {
        let credentials = self.common.links.get_mut(link).map(|link| link.credentials);
        self.common.count_refusal(LinkRefusal::of(reason), credentials);
        self.append(link, Load::NONE, |writer| writer.goodbye(Goodbye { reason, error }));
        self.submit();
        self.common.lose_link(self.now, link);
    }
}

impl Common {
    /// Which backend it is, and the version that is spoken with it.
    fn identify(&self, link: LinkId, hello: &Hello<'_>) -> Result<(BackendId, u16), GoodbyeReason> {
        let version = hello.common_version().ok_or(GoodbyeReason::VersionUnsupported)?;
        let named = |backend: &crate::Backend| backend.name == hello.name && !backend.retired;
        let (backend, allow) = self
            .setup
            .backends
            .pairs()
            .filter(|(_, backend)| named(backend))
            .find_map(|(id, backend)| match &backend.link {
                LinkKind::Bundle { allow } => Some((id, allow)),
                LinkKind::Udp { .. } => None,
            })
            .ok_or(GoodbyeReason::NameUnknown)?;
        // A front that asks its servers itself has no processes with our library.
        if self.server_front(backend).asks_servers() && version >= VERSION_MESSAGES {
            return Err(GoodbyeReason::VersionUnsupported);
        }
        let credentials = self.links.all[link].as_ref().map(|link| link.credentials);
        if !credentials.is_some_and(|credentials| allow.admits(credentials)) {
            return Err(GoodbyeReason::Unauthorised);
        }
        if self.links.live(backend).is_some() {
            return Err(GoodbyeReason::NameTaken);
        }
        Ok((backend, version))
    }

    pub(crate) fn count_refusal(&mut self, why: LinkRefusal, whose: Option<Credentials>) {
        self.counters.links_refused += 1;
        self.counters.link_refusals[why as usize] += 1;
        self.links.last_refused[why as usize] = whose;
    }
}

/// What the word of an arbiter counts as among the answers of a turn: a session may follow from it.
const STANDING_ANSWERS: u32 = 8;

/// What a record about a move counts as among the answers of a turn: it takes a lock, names are
/// compared, and long records are written.
const MOVE_ANSWERS: u32 = 8;
