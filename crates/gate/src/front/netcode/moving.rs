//! netcode players who go from one game process to another, with everything that was said to them
//! and by them.
//!
//! *The cut* is where the process that was asked says yes. What the player had sent by then has
//! gone to the process that it leaves; a message of several parts of which one is missing goes to
//! the other, whole. What the process that it leaves had queued for the player stays in the queue,
//! before everything of the other one; what becomes of that is reported to whom it was for.

use std::sync::Arc;

use crate::common::Common;
use crate::front::cluster::doubt::Doubting;
use crate::front::netcode::former::Former;
use crate::front::netcode::messages::channel_of;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Answers;
use crate::ids::BackendId;
use crate::links::players::PlayerOf;
use crate::moves::{MoveOrder, Side, UnderWay};
use crate::offering::{Asked, Face};
use crate::setup::LinkKind;
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Answer, CloseReason, Move, MoveRefusal, SessionId, VERSION_MOVES};

impl NetcodeFront {
    /// A game process wants one of its players to play elsewhere.
    pub(crate) fn move_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        asked: &Move<'_>,
    ) {
        let player = PlayerOf { backend, session: asked.session };
        if let Err(why) = self.try_move(turn, player, asked) {
            turn.refuse_move(player, asked.ticket, why);
        }
    }

    fn try_move(
        &self,
        turn: &mut Turn<'_>,
        player: PlayerOf,
        asked: &Move<'_>,
    ) -> Result<(), MoveRefusal> {
        let index = self.session_for_backend(player).ok_or(MoveRefusal::SessionOver)?;
        let listener = self.sessions.address(index).listener;
        let to = turn.common.named_for_move(listener, asked)?;
        let Move { ticket, time_ms, confirms, message, data, .. } = *asked;
        let order = None;
        self.offer_player(
            turn,
            index,
            &Asked { player, listener, to, ticket, time_ms, confirms, message, data, order },
        )
    }

    /// An operator wants a player to play elsewhere.
    pub(crate) fn try_order(
        &self,
        turn: &mut Turn<'_>,
        order: &Arc<MoveOrder>,
    ) -> Result<(), MoveRefusal> {
        let MoveOrder { session, to, ticket, time_ms, confirms, data, .. } = &**order;
        let index = self.sessions.named(*session).ok_or(MoveRefusal::SessionOver)?;
        let listener = self.sessions.address(index).listener;
        let player = PlayerOf { backend: self.sessions.at(index).backend, session: *session };
        self.offer_player(
            turn,
            index,
            &Asked {
                player,
                listener,
                to: *to,
                ticket: *ticket,
                time_ms: *time_ms,
                confirms: *confirms,
                message: None,
                data,
                order: Some(Arc::clone(order)),
            },
        )
    }

    fn offer_player(
        &self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        asked: &Asked<'_>,
    ) -> Result<(), MoveRefusal> {
        let delivers = self.connections.has(index);
        if self.is_lingering(index) || self.ending_of(index).is_some() {
            return Err(MoveRefusal::SessionOver);
        }
        if self.may_be_anothers(turn.now.mono_ns, index) {
            return Err(MoveRefusal::Busy);
        }
        // What was said to it is at its agent, for that process alone.
        let stays = self.is_delivered_by_agent(index);
        if stays || asked.message.is_some() && !delivers {
            return Err(MoveRefusal::Front);
        }
        if self.has_no_link(turn, index) {
            return Err(MoveRefusal::SourceGone);
        }
        let face = Face {
            client_id: self.sessions.at(index).client_id,
            address: self.sessions.address(index).endpoint.into(),
            user_data: &self.user_data.whole(index),
            delivers,
        };
        turn.offer(asked, &face)
    }

    /// Whether the process that a session's player plays with has not heard of it, or is gone. One
    /// on a udp link never hears.
    fn has_no_link(&self, turn: &Turn<'_>, index: Entry<Session>) -> bool {
        let session = self.sessions.at(index);
        let LinkKind::Bundle { .. } = turn.common.setup.backends[session.backend].link else {
            return false;
        };
        let state = &turn.common.links.backends[session.backend];
        session.announced != state.epoch || turn.common.links.live(session.backend).is_none()
    }

    /// A game process says whether a player may come.
    pub(crate) fn answer_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        player: PlayerOf,
        (offer, answer): (u64, Answer),
    ) {
        let index = self.sessions.named(player.session);
        let (Some(index), true) = (index, turn.is_offered(player, offer)) else {
            return turn.common.counters.drops.bump(DropReason::OfferUnknown);
        };
        match answer {
            Answer::Yes => self.cut(turn, index),
            Answer::No => turn.refuse_offer(player.session, MoveRefusal::Denied),
            Answer::Full => turn.refuse_offer(player.session, MoveRefusal::Full),
            Answer::Cannot => turn.refuse_offer(player.session, MoveRefusal::Front),
        }
    }

    /// A game process has heard that it has lost a player.
    pub(crate) fn confirm_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf) {
        if turn.note_heard(player) {
            self.open_moved(turn, player.session);
        }
    }

    /// Looks after moves that may have to end, or to go on.
    pub(crate) fn look_after_moves(&mut self, turn: &mut Turn<'_>) {
        if turn.common.moves.is_empty() {
            return;
        }
        for session in turn.common.moves.take_doubtful(turn.now.mono_ns) {
            let Some(index) = self.sessions.named(session) else {
                turn.end_move(session);
                continue;
            };
            if turn.common.moves.is_unheard(session) {
                if turn.may_open(session) {
                    self.open_moved(turn, session);
                }
                continue;
            }
            let listener = self.sessions.address(index).listener;
            if let Some(why) = turn.why_over(session, listener) {
                turn.end_offer(session, why);
            }
        }
    }

    /// The other process takes the player: from here on it is that one's.
    fn cut(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let session = self.sessions.id(index);
        let address = *self.sessions.address(index);
        let why_not = turn.why_over(session, address.listener);
        let may_be_anothers = self.may_be_anothers(turn.now.mono_ns, index);
        let why_not = why_not.or_else(|| may_be_anothers.then_some(MoveRefusal::Busy));
        let why_not = why_not.or_else(|| self.say_between(turn, index).err());
        if let Some(why) = why_not {
            return turn.end_offer(session, why);
        }
        let Some(it) = turn.take_move(session) else { return };
        let ticket = it.ticket;
        if let Some(mut connection) = self.connections.take(index) {
            self.tell_news(turn, index, &mut connection);
            connection.change_sender(it.from, &mut self.random);
            connection.is_full = false;
            self.connections.put_back(index, connection);
            self.connections.touch(index);
        }
        let hears = self.tell_moved(turn, index, &it);
        let claim = self.sessions.at(index).claim(&address);
        turn.common.claims.go_over(&claim, it.to.backend);
        let (to, slot) = (it.to.backend, it.slot);
        let waits = turn.note_cut(session, it, hears);
        self.sessions.at_mut(index).go_to(to, slot, waits);
        let fact = Fact::WentOver { from: claim.backend, to, slot };
        turn.common.trace(&address, Some(claim.client_id), fact);
        if !waits {
            self.announce_moved(turn, index, ticket);
        }
    }

    /// Queues what the player is to be sent in between.
    fn say_between(&mut self, turn: &Turn<'_>, index: Entry<Session>) -> Result<(), MoveRefusal> {
        let Some((channel, bytes)) = turn.common.moves.message_of(self.sessions.id(index)) else {
            return Ok(());
        };
        let connection = self.connections.get_mut(index).ok_or(MoveRefusal::Front)?;
        let sent = connection.end.send(channel_of(channel), bytes, None);
        sent.map_err(|_| MoveRefusal::PlayerFull)
    }

    /// Tells the process that a player leaves. Whether it will say that it has heard.
    fn tell_moved(&self, turn: &mut Turn<'_>, index: Entry<Session>, it: &UnderWay) -> bool {
        let Some(link) = turn.common.link_of(it.from) else { return false };
        let session = self.sessions.id(index);
        let knows = turn.common.links.speaks(link, VERSION_MOVES);
        if let Some(link) = turn.common.links.get_mut(link) {
            link.note_departed(session, turn.now.mono_ns);
        }
        let ticket = it.ticket;
        turn.tell_link(link, |writer| {
            if knows {
                writer.moved(session, ticket)
            } else {
                writer.closed(session, CloseReason::Moved)
            }
        });
        knows
    }

    /// A player who has gone over is the other process's now, to be said at once.
    fn open_moved(&mut self, turn: &mut Turn<'_>, session: SessionId) {
        let Some(it) = turn.take_move(session) else { return };
        let Some(index) = self.sessions.named(session) else { return };
        let slot = self.sessions.at(index).slot;
        self.sessions.at_mut(index).go_to(it.to.backend, slot, false);
        if turn.common.link_of(it.to).is_some() {
            self.announce_moved(turn, index, it.ticket);
        } else {
            self.announce(turn, index);
        }
    }
}

impl NetcodeFront {
    /// Writes who wants reports of messages that an earlier process has sent, if anybody does.
    pub(crate) fn hand_over_former(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        let connection = self.connections.get(entry);
        let Some(Former(former)) = connection.and_then(|it| it.former.as_deref()) else { return };
        self.sessions.place(entry).write(out);
        (former.len() as u32).write(out);
        for (name, (side, token)) in former {
            (*name, *token).write(out);
            side.write(out);
        }
    }

    /// Goes on with it. One of a process that is not there any more hears nothing.
    pub(crate) fn take_former(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let place = Place::read(from)?;
        let mut former = Former::default();
        for _ in 0..u32::read(from)? {
            let (name, token) = <(u64, u64)>::read(from)?;
            former.0.insert(name, (Side::read_known(from)?, token));
        }
        let entry = self.sessions.live(place);
        if let Some(connection) = entry.and_then(|entry| self.connections.get_mut(entry)) {
            connection.former = Some(Box::new(former));
        }
        Ok(())
    }

    /// Everything has come: players who have gone over, and are not to be told of yet, are
    /// nobody's.
    pub(crate) fn settle_moving(&mut self, common: &mut Common) {
        common.settle_moves();
        for session in common.moves.sessions().collect::<Vec<_>>() {
            let index = self.sessions.named(session).filter(|_| common.moves.is_unheard(session));
            if let Some(index) = index {
                let Session { backend, slot, .. } = *self.sessions.at(index);
                self.sessions.at_mut(index).go_to(backend, slot, true);
            }
        }
    }
}
