//! Packets of open sessions, in both directions, and what else a game server says.
//!
//! A packet passes if its ids are the session's and the guard lets it; then its bytes go on as they
//! are, with the other side's ids. What comes from the game server is trusted to be from it, and is
//! filtered all the same: a copy is a copy.

use crate::arrivals::Origin;
use crate::counters::{Ended, Ending};
use crate::elsewhere::Elsewhere;
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::takeovers::drop_early;
use crate::front::cluster::taking::Taking;
use crate::front::rules::{Answers, Rules};
use crate::front::unreal::datagrams::rules_of;
use crate::front::unreal::guard::Passed;
use crate::front::unreal::kinds::UNREAL_GAME;
use crate::front::unreal::links::probe_id;
use crate::front::unreal::loopback::{entry_of_loopback, is_own_address, loopback_of};
use crate::front::unreal::session::{Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::ids::BackendId;
use crate::links::players::PlayerOf;
use crate::output::Tag;
use crate::shared::claims::Claim;
use crate::shared::cookies::Resident;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_batch::{LocalIp, RxMeta, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::front::{Classified, FromServer, classify, from_server};
use ringgate_core::proto::unreal::handshake::Receiver;
use ringgate_core::proto::unreal::notify::{Gaps, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Ids};
use ringgate_link::bundle::CloseReason;

impl UnrealFront {
    /// A game packet from the address of a session.
    pub(crate) fn relay_up(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
        game: (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let passed = self.pass_up(turn, index, origin, game, bytes);
        passed.or_else(|why| self.doubt(turn, index, origin, game, (bytes, why)))
    }

    fn pass_up(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let rules = rules_of(turn.common, origin.address.listener)?;
        let (framing, limit) = (rules.framing, rules.gap_limit);
        let Self { sessions, hash, .. } = self;
        let session = sessions.at_mut(index);
        if bytes.len() > turn.common.unreal_bytes_max(session.claim.backend) {
            return Err(DropReason::TooLong);
        }
        let Stage::Open { guard, .. } = &mut session.stage else {
            return Err(DropReason::PacketUnexpected);
        };
        if ids != session.player_ids {
            return Err(DropReason::UnrealIds);
        }
        let gaps = Gaps { now_ns: turn.now.mono_ns, limit };
        match guard.pass(Sender::Client, reader, bytes, *hash, gaps) {
            Ok(Passed::Closing) => session.closed_ns = turn.now.mono_ns,
            Ok(Passed::Playing) => {}
            Err(DropReason::TakeoverAwaited) if guard.keep(bytes) => {
                session.heard_ns = turn.now.mono_ns;
                turn.common.counters.early_kept += 1;
                return Ok(());
            }
            Err(why) => {
                if why == DropReason::SequenceGap {
                    self.end(turn, index, Ended::SequenceGap);
                }
                return Err(why);
            }
        }
        session.heard_ns = turn.now.mono_ns;
        let (backend, number) = (session.claim.backend, guard.full(reader));
        turn.common.counters.handled[UNREAL_GAME] += 1;
        turn.common.counters.payloads_up += 1;
        if self.sessions.clusters.get(index).is_some() {
            self.note_newest(turn, index, origin.forwarded_by.and_then(Elsewhere::member));
        }
        match self.deliver(turn, index, &framing, (number, bytes)) {
            Ok(()) => turn.common.note_up(backend, bytes.len(), origin.kernel_ns),
            Err(why) => turn.common.drop_uplink(&origin.address, None, (backend, why)),
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        framing: &Framing,
        (number, bytes): (Option<u64>, &[u8]),
    ) -> Result<(), DropReason> {
        let session = self.sessions.at(index);
        let (ids, backend) =
            (session.server_ids, &turn.common.links.backends[session.claim.backend]);
        let (peer, is_up) = (backend.address, backend.is_up());
        if peer.is_none() {
            return self.deliver_linked(turn, index, framing, (number, bytes));
        }
        let (Some(socket), Some(source), true) = (turn.common.links.udp, loopback_of(index), is_up)
        else {
            return Err(DropReason::LinkDown);
        };
        let target = TxTarget { socket, peer, source };
        pass_on(turn, framing, bytes, ids, (target, Tag::UdpPayload));
        turn.common.counters.link_datagrams_out += 1;
        Ok(())
    }

    fn step_answer(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let framing = self.server_framing(index).ok_or(DropReason::SessionUnknown)?;
        match classify(bytes, &framing, Receiver::Client)? {
            Classified::Game(ids, reader) => self.relay_down(turn, index, (ids, reader), bytes),
            Classified::Handshake(_) if self.sessions.at(index).is_opening() => {
                self.step_opening(turn, index, bytes)
            }
            Classified::Handshake(packet) => {
                if from_server(&packet)? == FromServer::Lost {
                    self.end(turn, index, Ended::BackendGone);
                }
                Ok(())
            }
        }
    }

    fn relay_down(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let session = self.sessions.at_mut(index);
        let early = match &mut session.stage {
            Stage::Open { guard, .. } if ids == session.server_ids => {
                guard.resume(reader, turn.now.mono_ns)?
            }
            _ => Vec::new(),
        };
        let passed = self.pass_down(turn, index, (ids, reader), bytes);
        if !early.is_empty() {
            let session = self.sessions.at(index);
            let way = (*self.sessions.address(index), session.socket, session.local);
            self.take_early(turn, way, early);
        }
        passed
    }

    fn pass_down(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Self { sessions, hash, .. } = self;
        let address = *sessions.address(index);
        let session = sessions.at_mut(index);
        let Stage::Open { guard, .. } = &mut session.stage else {
            return Err(DropReason::PacketUnexpected);
        };
        if ids != session.server_ids {
            return Err(DropReason::UnrealIds);
        }
        // Packets that are lost on loopback were lost by the host: no reason to end a session.
        let gaps = Gaps { now_ns: turn.now.mono_ns, limit: 0 };
        if guard.pass(Sender::Server, reader, bytes, *hash, gaps)? == Passed::Closing {
            session.closed_ns = turn.now.mono_ns;
        }
        if self.is_displaced(index) {
            return Err(DropReason::SourcePaused);
        }
        let session = self.sessions.at(index);
        let (player_ids, target) = (session.player_ids, session.target(address.endpoint));
        let backend = session.claim.backend;
        let framing = self.framing(address.listener)?;
        pass_on(turn, &framing, bytes, player_ids, (target, Tag::Player));
        turn.count_out(address.listener, UNREAL_GAME, bytes.len());
        turn.common.counters.payloads_from_links += 1;
        turn.common.note_down(address.listener, backend, bytes.len());
        Ok(())
    }

    /// Ends a session whose place goes to another one.
    pub(crate) fn release(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        Ending { why, reason }: Ending,
    ) -> Claim {
        let address = *self.sessions.address(index);
        let resident = self.resident(turn, index);
        // Its server goes on with it elsewhere.
        if why != Ended::Fenced {
            turn.tell_over(self.sessions.at(index).claim.backend, self.sessions.id(index), reason);
        }
        self.end_clustered(turn.common, index, why);
        if let Stage::Open { guard, .. } = &mut self.sessions.at_mut(index).stage {
            drop_early(turn.common, &address, guard.take_early(), DropReason::TakeoverAwaited);
        }
        turn.common.trace_end(&self.last_address(index), None, why);
        let session = self.sessions.at_mut(index);
        let claim = session.claim;
        if let Some(cookie) = session.cookie() {
            turn.common.claims.cookies().unsettle(cookie, &resident);
            turn.common.counters.sessions_closed[why as usize] += 1;
        } else {
            self.opening_count -= 1;
            turn.common.newcomers.handshakes.leave(&address.block());
        }
        if let Some(worker) = session.steered_by.take() {
            turn.common.unsteer(worker, address, None);
        }
        self.sessions.remove(index);
        claim
    }

    pub(crate) fn resident(&self, turn: &Turn<'_>, index: Entry<Session>) -> Resident {
        Resident {
            worker: turn.common.worker.id,
            listener: self.sessions.address(index).listener,
            place: self.sessions.place(index),
        }
    }
}

impl Answers for UnrealFront {
    fn at_loopback(&self, local: &LocalIp) -> Option<Entry<Session>> {
        entry_of_loopback(local)
    }

    fn handle_server(&mut self, turn: &mut Turn<'_>, from: BackendId, meta: &RxMeta, bytes: &[u8]) {
        if is_own_address(&meta.local) {
            return self.handle_probe_answer(turn, from, bytes);
        }
        self.handle_players_server(turn, from, meta, bytes);
    }

    fn close_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason) {
        let index = self.session_for_backend(player).or_else(|| self.unsure_for_backend(player));
        if let Some(index) = index {
            self.end_once_sure(turn, index, Ending { why: Ended::ByBackend, reason });
        }
    }

    fn send_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, payload: &[u8]) {
        match self.session_for_backend(player) {
            Some(index) => self.send_to_player(turn, index, payload),
            None if player.session == probe_id(turn.common.worker.id, player.backend) => {
                self.handle_probe_answer(turn, player.backend, payload);
            }
            None => turn.common.count_for_nobody(player),
        }
    }

    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, bytes: &[u8]) {
        let backend = self.sessions.at(index).claim.backend;
        if let Err(why) = self.step_answer(turn, index, bytes) {
            let why = match why {
                DropReason::ReplayDuplicate => DropReason::ServerDuplicate,
                DropReason::SourcePaused => DropReason::SourcePaused,
                _ => DropReason::ServerPacketInvalid,
            };
            turn.common.counters.payloads_from_links += 1;
            turn.common.drop_payload(backend, why);
        }
    }

    fn lose_server(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        self.note_refused(turn, backend);
    }

    fn forget_server(&mut self, backend: BackendId) {
        if let Some(probed) = self.probed.get_mut(backend) {
            *probed = None;
        }
    }

    fn is_answering(&self, backend: BackendId) -> bool {
        self.probed.get(backend).and_then(Option::as_ref).is_none_or(|probed| probed.is_answering)
    }
}

/// Copies a packet out as it is, but for the ids.
pub(crate) fn pass_on(
    turn: &mut Turn<'_>,
    framing: &Framing,
    bytes: &[u8],
    ids: Ids,
    (target, tag): (TxTarget, Tag),
) {
    let room = turn.room();
    let copy = &mut room.slot[..bytes.len()];
    copy.copy_from_slice(bytes);
    framing.rewrite_ids(copy, ids);
    room.send(bytes.len(), target, tag.encode());
}
