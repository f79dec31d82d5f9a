//! Packets of open sessions, in both directions, and what else a game server says.
//!
//! A packet passes if its ids are the session's and the guard lets it; then its bytes go on as they
//! are, with the other side's ids. What comes from the game server is trusted to be from it, and is
//! filtered all the same: a copy is a copy.

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::front::netcode::handshake::block_of;
use crate::front::unreal::guard::Passed;
use crate::front::unreal::kinds::UNREAL_GAME;
use crate::front::unreal::loopback::{is_own_address, loopback_of};
use crate::front::unreal::session::Stage;
use crate::front::unreal::state::UnrealFront;
use crate::gate::Gate;
use crate::mail::forget_steering;
use crate::output::Tag;
use crate::shared::claims::Claim;
use crate::shared::cookies::Resident;
use crate::turn::Turn;
use ringgate_batch::{RxMeta, TxTarget};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::front::{Classified, FromServer, classify, from_server};
use ringgate_core::proto::unreal::handshake::Receiver;
use ringgate_core::proto::unreal::notify::{Gaps, Sender};
use ringgate_core::proto::unreal::prefix::{Framing, Ids};

impl Gate {
    /// A game packet from the address of a session.
    pub(crate) fn relay_up(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        origin: &Origin,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let rules = self.unreal_rules(origin.address.listener)?;
        let (framing, limit) = (rules.framing, rules.gap_limit);
        let UnrealFront { sessions, hash, .. } = &mut self.unreal;
        let session = sessions.at_mut(index);
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
            Err(why) => {
                if why == DropReason::SequenceGap {
                    self.end_unreal(index, Ended::SequenceGap);
                }
                return Err(why);
            }
        }
        session.heard_ns = turn.now.mono_ns;
        let server_ids = session.server_ids;
        let backend = &self.links.backends[usize::from(session.claim.backend)];
        let (backend, is_up) = (backend.address, backend.is_up());
        self.counters.handled[UNREAL_GAME] += 1;
        self.counters.payloads_up += 1;
        let (Some(socket), Some(source), true) = (self.links.udp, loopback_of(index), is_up) else {
            self.counters.drops.bump(DropReason::LinkDown);
            return Ok(());
        };
        let target = TxTarget { socket, peer: backend, source };
        self.pass_on(turn, &framing, bytes, server_ids, (target, Tag::UdpPayload));
        self.counters.link_datagrams_out += 1;
        self.counters.payloads_to_links += 1;
        self.stamps.uplink_kernel_ns.push(origin.kernel_ns);
        Ok(())
    }

    /// A datagram from the server of an Unreal game.
    pub(crate) fn handle_unreal_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: usize,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        if is_own_address(&meta.local) {
            return self.handle_probe_answer(turn.now, from, bytes);
        }
        match self.unreal.session_of_loopback(&meta.local, from) {
            Some(index) => self.handle_unreal_answer(turn, index, bytes),
            None => self.count_from_link(DropReason::SessionUnknown),
        }
    }

    /// A datagram that a game server has sent to a player's loopback address.
    pub(crate) fn handle_unreal_answer(&mut self, turn: &mut Turn<'_>, index: u32, bytes: &[u8]) {
        if let Err(why) = self.step_unreal_answer(turn, index, bytes) {
            self.count_from_link(match why {
                DropReason::ReplayDuplicate => DropReason::ServerDuplicate,
                _ => DropReason::ServerPacketInvalid,
            });
        }
    }

    fn step_unreal_answer(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let framing = self.unreal.server_framing(index).ok_or(DropReason::SessionUnknown)?;
        match classify(bytes, &framing, Receiver::Client)? {
            Classified::Game(ids, reader) => self.relay_down(turn, index, (ids, reader), bytes),
            Classified::Handshake(_) if self.unreal.sessions.at(index).is_opening() => {
                self.step_opening(turn, index, bytes)
            }
            Classified::Handshake(packet) => {
                if from_server(&packet)? == FromServer::Lost {
                    self.end_unreal(index, Ended::BackendGone);
                }
                Ok(())
            }
        }
    }

    fn relay_down(
        &mut self,
        turn: &mut Turn<'_>,
        index: u32,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let UnrealFront { sessions, hash, .. } = &mut self.unreal;
        let address = *sessions.address(index);
        let session = sessions.at_mut(index);
        let Stage::Open { guard, .. } = &mut session.stage else {
            return Err(DropReason::PacketUnexpected);
        };
        if ids != session.server_ids {
            return Err(DropReason::UnrealIds);
        }
        // What is lost on loopback is the host's doing, and no reason to end anything.
        let gaps = Gaps { now_ns: turn.now.mono_ns, limit: 0 };
        if guard.pass(Sender::Server, reader, bytes, *hash, gaps)? == Passed::Closing {
            session.closed_ns = turn.now.mono_ns;
        }
        let (player_ids, target) = (session.player_ids, session.target(address.endpoint));
        let framing = self.framing(address.listener)?;
        self.pass_on(turn, &framing, bytes, player_ids, (target, Tag::Player));
        self.count_unreal_out(UNREAL_GAME, bytes.len());
        self.counters.payloads_from_links += 1;
        self.counters.payloads_down += 1;
        self.stamps.downlink_count += 1;
        Ok(())
    }

    /// Copies a packet out as it is, but for the ids.
    pub(crate) fn pass_on(
        &mut self,
        turn: &mut Turn<'_>,
        framing: &Framing,
        bytes: &[u8],
        ids: Ids,
        (target, tag): (TxTarget, Tag),
    ) {
        let room = self.room(turn);
        let copy = &mut room.slot[..bytes.len()];
        copy.copy_from_slice(bytes);
        framing.rewrite_ids(copy, ids);
        room.send(bytes.len(), target, tag.encode());
    }

    /// Ends a session and gives back what it holds. Nobody is told: its player and its server speak
    /// only to each other.
    pub(crate) fn end_unreal(&mut self, index: u32, why: Ended) {
        let claim = self.release_unreal(index, why);
        self.claims.leave(&claim);
    }

    /// Ends a session whose place goes to another one.
    pub(crate) fn release_unreal(&mut self, index: u32, why: Ended) -> Claim {
        let address = *self.unreal.sessions.address(index);
        let resident = self.unreal_resident(index);
        let session = self.unreal.sessions.at_mut(index);
        let claim = session.claim;
        if let Some(cookie) = session.cookie() {
            self.claims.cookies().unsettle(cookie, &resident);
            self.counters.sessions_closed[why as usize] += 1;
        } else {
            self.unreal.opening_count -= 1;
            self.newcomers.handshakes.leave(&block_of(&address));
        }
        if let Some(worker) = session.steered_by.take() {
            self.neighbours.mail_out.push((worker, forget_steering(address, self.worker.index)));
        }
        self.unreal.sessions.remove(index);
        claim
    }

    pub(crate) fn unreal_resident(&self, index: u32) -> Resident {
        Resident {
            worker: self.worker.index,
            listener: self.unreal.sessions.address(index).listener,
            place: self.unreal.sessions.place(index),
        }
    }
}
