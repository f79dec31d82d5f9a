//! What comes from game processes, and the front that it is for.

use crate::common::Common;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::taking::Taking;
use crate::front::face::{Fronts, ask, ask_clustered};
use crate::front::protocol::Front;
use crate::front::rules::{Answers, Rules};
use crate::ids::BackendId;
use crate::links::players::{PlayerOf, Players};
use crate::moves::MoveOrder;
use crate::roles::Role;
use crate::sessions::entry_of;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{Endpoint, RxMeta, SocketId};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{
    Answer, CloseAfter, CloseReason, MessagePart, Move, MoveRefusal, SessionId, Standing,
};
use std::sync::Arc;

impl Fronts {
    /// A datagram from a game process.
    pub(crate) fn handle_link_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        turn.common.counters.link_datagrams_in += 1;
        match turn.common.roles.of(meta.socket) {
            Role::Link(link) => turn.handle_bundle(self, link, meta.truncated, bytes),
            Role::UdpLink => self.handle_udp_answer(turn, meta, bytes),
            Role::SessionLink(place) => self.netcode.handle_own_server(turn, place, bytes),
            Role::LinkListener | Role::Player { .. } | Role::Vacant => {
                turn.common.counters.drops.bump(DropReason::LinkStranger);
            }
        }
    }

    fn handle_udp_answer(&mut self, turn: &mut Turn<'_>, meta: &RxMeta, bytes: &[u8]) {
        let Some(from) = self.backend_behind(turn.common, meta) else {
            return turn.common.counters.drops.bump(DropReason::LinkStranger);
        };
        turn.common.links.backends[from].come_back();
        ask!(self, turn.common.server_front(from), .handle_server(turn, from, meta, bytes));
    }

    /// The backend that a datagram on the udp link comes from: nearly always that of the player
    /// whom it is for, so on a host with hundreds of them not all are asked.
    fn backend_behind(&self, common: &Common, meta: &RxMeta) -> Option<BackendId> {
        let backends = &common.links.backends;
        // A player who has gone over and waits to be told of is nobody's.
        let is_from = |backend: &BackendId| {
            backends.get(*backend).is_some_and(|it| it.address == Some(meta.peer))
        };
        let players = self.backends_of_loopback(&meta.local).find(is_from);
        players.or_else(|| backends.ids().find(is_from))
    }

    /// An operator wants players to play elsewhere.
    pub(crate) fn obey_moves(&self, turn: &mut Turn<'_>, orders: &[Arc<MoveOrder>]) {
        let own = turn.common.worker.id.index();
        for order in orders.iter().filter(|order| order.session.worker() == own) {
            let has = |it: &&Front| ask!(self, **it, .sessions().named(order.session).is_some());
            let tried = match Front::ALL.iter().find(has) {
                Some(Front::Netcode) => self.netcode.try_order(turn, order),
                Some(_) => Err(MoveRefusal::Front),
                None => Err(MoveRefusal::SessionOver),
            };
            if let Err(why) = tried {
                turn.common.counters.moves_refused[why as usize] += 1;
                order.settle(Err(why));
            }
        }
    }

    /// The kernel says that no process listens where a udp backend should.
    pub(crate) fn lose_udp_backend(
        &mut self,
        turn: &mut Turn<'_>,
        socket: SocketId,
        peer: &Endpoint,
    ) {
        let lost = match turn.common.roles.of(socket) {
            Role::SessionLink(place) => self.backend_of_socket(place),
            Role::UdpLink => {
                let mut backends = turn.common.links.backends.pairs();
                backends.find_map(|(id, state)| (state.address == Some(*peer)).then_some(id))
            }
            // An attacker could make us send to an address at which no process listens.
            Role::Link(_) | Role::LinkListener | Role::Player { .. } | Role::Vacant => None,
        };
        if let Some(backend) = lost {
            turn.common.mark_gone(turn.now, backend);
            self.lose_server(turn, backend);
        }
    }
}

impl Players for Fronts {
    #[inline]
    fn fetch(&self, session: SessionId) {
        // Nearly always they are netcode's players; the others are found without it.
        self.netcode.fetch_player(entry_of(session));
    }

    #[inline]
    fn find(&self, turn: &Turn<'_>, player: PlayerOf) -> Option<u32> {
        let front = turn.common.server_front(player.backend);
        ask!(self, front, .session_for_backend(player).map(Entry::number))
    }

    #[inline]
    fn send(&mut self, turn: &mut Turn<'_>, player: PlayerOf, payload: &[u8]) {
        let front = turn.common.server_front(player.backend);
        ask!(self, front, .send_for_backend(turn, player, payload));
    }

    fn message(&mut self, turn: &mut Turn<'_>, backend: BackendId, message: &MessagePart<'_>) {
        let front = turn.common.server_front(backend);
        ask!(self, front, .send_message_for_backend(turn, backend, message));
    }

    fn tell_quality(&self, turn: &mut Turn<'_>, player: PlayerOf) {
        ask!(self, turn.common.server_front(player.backend), .tell_quality(turn, player));
    }

    fn close_after(&mut self, turn: &mut Turn<'_>, backend: BackendId, close: &CloseAfter<'_>) {
        let front = turn.common.server_front(backend);
        ask!(self, front, .close_after_for_backend(turn, backend, close));
    }

    fn move_session(&mut self, turn: &mut Turn<'_>, backend: BackendId, asked: &Move<'_>) {
        if turn.common.server_front(backend) == Front::Netcode {
            return self.netcode.move_for_backend(turn, backend, asked);
        }
        let player = PlayerOf { backend, session: asked.session };
        turn.refuse_move(player, asked.ticket, MoveRefusal::Front);
    }

    fn answer(&mut self, turn: &mut Turn<'_>, player: PlayerOf, answer: (u64, Answer)) {
        self.netcode.answer_for_backend(turn, player, answer);
    }

    fn confirm(&mut self, turn: &mut Turn<'_>, player: PlayerOf) {
        self.netcode.confirm_for_backend(turn, player);
    }

    fn hear_arbiter(&mut self) {
        self.plain.hear_arbiter();
        self.unreal.hear_arbiter();
    }

    fn hear_standing(&mut self, turn: &mut Turn<'_>, backend: BackendId, said: &Standing<'_>) {
        ask_clustered!(self, turn.common.server_front(backend), .hear_standing(turn, backend, said));
    }

    fn hear_sure(&mut self, turn: &mut Turn<'_>, backend: BackendId, number: u64) {
        ask_clustered!(self, turn.common.server_front(backend), .hear_sure(turn, backend, number));
    }

    fn close(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason) {
        let front = turn.common.server_front(player.backend);
        ask!(self, front, .close_for_backend(turn, player, reason));
    }
}
