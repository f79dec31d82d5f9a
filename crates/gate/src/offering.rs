//! What game processes and operators want of players who are to be moved, and what both processes
//! are told of it.

use std::sync::Arc;

use crate::common::Common;
use crate::front::Front;
use crate::ids::{BackendId, LinkId, ListenerId};
use crate::links::players::PlayerOf;
use crate::moves::{Asker, MoveOrder, Side, Stage, UnderWay};
use crate::now::NS_PER_MS;
use crate::setup::LinkKind;
use crate::turn::Turn;
use ringgate_link::bundle::{
    Channel, MOVE_MS_MAX, Move, MoveRefusal, Offered, SessionId, VERSION_MOVES,
};

/// What is wanted of a player, by whoever may.
pub(crate) struct Asked<'a> {
    pub(crate) player: PlayerOf,
    pub(crate) listener: ListenerId,
    pub(crate) to: BackendId,
    pub(crate) ticket: u64,
    pub(crate) time_ms: u32,
    pub(crate) confirms: bool,
    pub(crate) message: Option<(Channel, &'a [u8])>,
    pub(crate) data: &'a [u8],
    /// Of an operator, who may move players anywhere.
    pub(crate) order: Option<Arc<MoveOrder>>,
}

/// What the process that is asked is told of a player.
pub(crate) struct Face<'a> {
    pub(crate) client_id: u64,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) user_data: &'a [u8; 256],
    pub(crate) delivers: bool,
}

impl Common {
    /// The backend of a name, for a game process that wants to move a player there. Those that its
    /// listener's players may be moved to are looked at first, so that few are looked at.
    pub(crate) fn named_for_move(
        &self,
        listener: ListenerId,
        asked: &Move<'_>,
    ) -> Result<BackendId, MoveRefusal> {
        let rules = self.setup.listeners[listener].netcode();
        let allowed = rules.iter().flat_map(|rules| &rules.moves).copied();
        let backends = &self.setup.backends;
        let is_it = |id: &BackendId| {
            backends.get(*id).is_some_and(|it| it.name == asked.backend && !it.retired)
        };
        if let Some(found) = allowed.clone().find(is_it) {
            return Ok(found);
        }
        let mut all = backends.pairs();
        let is_away = all.any(|(id, it)| it.name == asked.backend && self.is_away(id));
        Err(match backends.ids().any(|id| is_it(&id)) {
            true => MoveRefusal::NotAllowed,
            // It may be the fleet's: who asks again soon hears how it is.
            false if self.setup.awaits_fleet || is_away => MoveRefusal::Closed,
            false => MoveRefusal::NoSuchBackend,
        })
    }

    /// Whether a backend's registration is away, though its process is there.
    fn is_away(&self, backend: BackendId) -> bool {
        self.setup.backends[backend].retired && self.links.live(backend).is_some()
    }

    /// Whether a player may be moved from one backend to another now.
    fn check_move(
        &self,
        listener: ListenerId,
        from: BackendId,
        to: BackendId,
        is_order: bool,
    ) -> Result<LinkId, MoveRefusal> {
        let Some(rules) = self.setup.listeners[listener].netcode() else {
            return Err(MoveRefusal::Front);
        };
        let is_bundle = |backend: BackendId| {
            matches!(self.setup.backends[backend].link, LinkKind::Bundle { .. })
        };
        let target = self.setup.backends.get(to).ok_or(MoveRefusal::NoSuchBackend)?;
        // What was decided of it by the process before holds until the fleet is heard of.
        let is_unheard = target.retired && self.setup.awaits_fleet;
        if target.retired && !is_unheard {
            let is_away = self.is_away(to);
            return Err(if is_away { MoveRefusal::Closed } else { MoveRefusal::NoSuchBackend });
        }
        if from == to {
            return Err(MoveRefusal::Itself);
        }
        let speaks_netcode = is_unheard || self.server_front(to) == Front::Netcode;
        if !is_bundle(from) || !is_bundle(to) || !speaks_netcode {
            return Err(MoveRefusal::Front);
        }
        if !is_order && !is_unheard && !rules.moves.contains(&to) {
            return Err(MoveRefusal::NotAllowed);
        }
        let link = self.links.live(to).ok_or(MoveRefusal::NotLinked)?;
        if !self.links.speaks(link, VERSION_MOVES) {
            return Err(MoveRefusal::Version);
        }
        if self.life.draining_until_ns.is_some() || !self.is_open(to) {
            return Err(MoveRefusal::Closed);
        }
        Ok(link)
    }

    /// Nobody comes into a slot that was kept.
    fn give_kept(&self, it: &UnderWay) {
        if it.is_kept {
            self.claims.give_reserved(it.to.backend, it.slot);
        }
    }

    /// A process as it is now, as one of the two.
    fn side(&self, backend: BackendId) -> Side {
        Side { backend, epoch: self.links.backends[backend].epoch }
    }

    /// The link of one of the two, if it is still the same.
    pub(crate) fn link_of(&self, side: Side) -> Option<LinkId> {
        let state = self.links.backends.get(side.backend)?;
        self.links.live(side.backend).filter(|_| state.epoch == side.epoch)
    }
}

impl Turn<'_> {
    /// Offers a player to another game process, if that may be. The player plays on meanwhile.
    pub(crate) fn offer(&mut self, asked: &Asked<'_>, face: &Face<'_>) -> Result<(), MoveRefusal> {
        let Asked { player: PlayerOf { backend: from, session }, listener, to, .. } = *asked;
        if self.common.moves.all.contains_key(&session) {
            return Err(MoveRefusal::Busy);
        }
        let link = self.common.check_move(listener, from, to, asked.order.is_some())?;
        let slot = self.common.claims.reserve(to)?;
        self.common.claims.note_spoken(to, Front::Netcode as u8);
        self.common.moves.serial += 1;
        let offer = self.common.moves.serial;
        let time_ms = asked.time_ms.min(MOVE_MS_MAX);
        let setup = Arc::clone(&self.common.setup);
        let offered = Offered {
            session,
            offer,
            ticket: asked.ticket,
            client_id: face.client_id,
            address: face.address,
            slot: slot.0,
            slots_max: setup.backends[to].slots,
            left_ms: time_ms,
            delivers: face.delivers,
            user_data: face.user_data,
            listener: &setup.listeners[listener].name,
            from: &setup.backends[from].name,
            data: asked.data,
        };
        let time_ns = u64::from(time_ms) * NS_PER_MS;
        let it = UnderWay {
            from: self.common.side(from),
            to: self.common.side(to),
            slot,
            is_kept: true,
            ticket: asked.ticket,
            offer,
            confirms: asked.confirms,
            message: asked.message.map(|(channel, bytes)| (channel, Box::from(bytes))),
            until_ns: self.now.mono_ns + time_ns,
            time_ns,
            stage: Stage::Offered,
            asker: asked.order.clone().map_or(Asker::Process, Asker::Outside),
        };
        self.common.moves.insert(session, it);
        self.common.counters.moves_offered += 1;
        self.tell_link(link, |writer| writer.offered(&offered));
        Ok(())
    }

    /// A player is not moved who was to be, and no offer was made.
    pub(crate) fn refuse_move(&mut self, player: PlayerOf, ticket: u64, why: MoveRefusal) {
        self.common.counters.moves_refused[why as usize] += 1;
        let Some(link) = self.common.links.live(player.backend) else { return };
        if self.common.links.speaks(link, VERSION_MOVES) {
            self.tell_link(link, |writer| writer.move_refused(player.session, ticket, why));
        }
    }

    /// The offer that a process answers, if it stands and is that process's.
    pub(crate) fn is_offered(&self, player: PlayerOf, offer: u64) -> bool {
        let it = self.common.moves.all.get(&player.session);
        it.is_some_and(|it| {
            let is_its = it.to == self.common.side(player.backend);
            it.stage == Stage::Offered && it.offer == offer && is_its
        })
    }

    /// Why a move that is under way cannot go on, if it cannot.
    pub(crate) fn why_over(&self, session: SessionId, listener: ListenerId) -> Option<MoveRefusal> {
        let it = self.common.moves.all.get(&session)?;
        let is_order = !matches!(it.asker, Asker::Process);
        if self.common.link_of(it.from).is_none() {
            return Some(MoveRefusal::SourceGone);
        }
        let (from, to) = (it.from.backend, it.to.backend);
        match self.common.check_move(listener, from, to, is_order) {
            Err(why) => Some(why),
            Ok(_) if self.common.link_of(it.to).is_none() => Some(MoveRefusal::NotLinked),
            Ok(_) if !it.is_kept => Some(MoveRefusal::Full),
            Ok(_) if self.now.mono_ns >= it.until_ns => Some(MoveRefusal::Time),
            Ok(_) => None,
        }
    }

    /// Ends an offer that was refused: the player plays on where it is.
    pub(crate) fn refuse_offer(&mut self, session: SessionId, why: MoveRefusal) {
        self.end(session, why, false);
    }

    /// Ends an offer. The process that was asked is told, too.
    pub(crate) fn end_offer(&mut self, session: SessionId, why: MoveRefusal) {
        self.end(session, why, true);
    }

    fn end(&mut self, session: SessionId, why: MoveRefusal, tells_both: bool) {
        let is_offer = self.common.moves.all.get(&session).map(|it| it.stage);
        if is_offer != Some(Stage::Offered) {
            return;
        }
        let Some(it) = self.common.moves.remove(session) else { return };
        self.common.give_kept(&it);
        if tells_both && let Some(link) = self.common.link_of(it.to) {
            self.tell_link(link, |writer| writer.offer_over(session, it.offer, why));
        }
        match it.asker {
            Asker::Outside(order) => {
                self.common.counters.moves_refused[why as usize] += 1;
                order.settle(Err(why));
            }
            Asker::Process if self.common.link_of(it.from).is_some() => {
                let player = PlayerOf { backend: it.from.backend, session };
                self.refuse_move(player, it.ticket, why);
            }
            Asker::Process | Asker::Nobody => {
                self.common.counters.moves_refused[why as usize] += 1;
            }
        }
    }

    /// A session is over: nobody is moved any more, and who was asked or waits hears of it. The
    /// process that has lost the player is told otherwise.
    pub(crate) fn end_move(&mut self, session: SessionId) {
        let Some(it) = self.common.moves.remove(session) else { return };
        let why = MoveRefusal::SessionOver;
        if it.stage == Stage::Offered {
            self.common.give_kept(&it);
            self.common.counters.moves_refused[why as usize] += 1;
            if let Asker::Outside(order) = it.asker {
                order.settle(Err(why));
            }
        }
        if let Some(link) = self.common.link_of(it.to) {
            self.tell_link(link, |writer| writer.offer_over(session, it.offer, why));
        }
    }

    /// A player goes over: what its front has to know of the move, which is not under way any more.
    pub(crate) fn take_move(&mut self, session: SessionId) -> Option<UnderWay> {
        self.common.moves.remove(session)
    }

    /// A player has gone over. Where the process that it has left has to hear of it first, the move
    /// goes on until then. Returns whether it does.
    pub(crate) fn note_cut(&mut self, session: SessionId, mut it: UnderWay, is_told: bool) -> bool {
        self.common.counters.moves += 1;
        self.common.links.backends[it.from.backend].moves.moved_out += 1;
        self.common.links.backends[it.to.backend].moves.moved_in += 1;
        if let Asker::Outside(order) = &it.asker {
            order.settle(Ok(()));
        }
        let waits = it.confirms && is_told;
        if waits {
            it.stage = Stage::Unheard;
            it.until_ns = self.now.mono_ns + it.time_ns;
            self.common.moves.insert(session, it);
        }
        waits
    }

    /// Whether a player who has gone over may be opened now: the process that it has left has heard
    /// of it, or never will.
    pub(crate) fn may_open(&self, session: SessionId) -> bool {
        self.common.moves.all.get(&session).is_some_and(|it| {
            let is_over = self.common.link_of(it.from).is_none();
            it.stage == Stage::Unheard && (is_over || self.now.mono_ns >= it.until_ns)
        })
    }

    /// The process that has lost a player has heard of it. Whether somebody has waited for that.
    pub(crate) fn note_heard(&mut self, player: PlayerOf) -> bool {
        if let Some(link) = self.common.links.backends[player.backend].link
            && let Some(link) = self.common.links.get_mut(link)
        {
            link.departed.remove(&player.session);
        }
        let it = self.common.moves.all.get(&player.session);
        it.is_some_and(|it| {
            it.stage == Stage::Unheard && it.from == self.common.side(player.backend)
        })
    }
}

impl Common {
    /// Everything has come: offers keep their slots again, as far as those are free. What cannot go
    /// on ends by name, once that can be said.
    pub(crate) fn settle_moves(&mut self) {
        for it in self.moves.all.values_mut().filter(|it| it.stage == Stage::Offered) {
            it.is_kept = self.claims.reserve_again(it.to.backend, it.slot);
        }
        self.moves.doubt();
    }
}
