//! Players whose port has changed, and who have done the handshake again to show that they are the
//! same.
//!
//! A restart response proves two things: with the new cookie that its sender receives at the new
//! address, and with the original one that it knows the session. The session moves, the game server
//! notices nothing, and each proof moves a session once: a recorded one moves nothing back, nor
//! does one that was held back while the player moved on.
//!
//! Sessions do not change their worker. Where the kernel hashes the new address to another one,
//! that one finds the owner by the cookie, hands the response over, and forwards everything from
//! that address from that moment on: the owner answers the player itself, so the player's next
//! packet may be here before any word of the owner's. An owner that refuses says so, and the
//! address is forgotten again.

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::gate::Gate;
use crate::mail::{Steering, forget_steering, steer_to};
use crate::shared::cookies::Resident;
use crate::turn::{Now, Turn};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::cookie::{Cookie, Proof};
use ringgate_core::proto::unreal::front::{Classified, classify};
use ringgate_core::proto::unreal::handshake::{Body, Handshake, Kind, Receiver};

impl Gate {
    /// A restart response whose proof holds, from an address with a session or without one.
    pub(crate) fn restart(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<u32>,
        origin: &Origin,
        packet: &Handshake,
        (proof, original): (Proof, Cookie),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        if !self.setup.listeners[usize::from(listener)].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let is_here = |index: &u32| self.unreal.sessions.at(*index).cookie() == Some(&original);
        if let Some(index) = known.filter(is_here) {
            if self.unreal.sessions.at(index).player_ids.client() != packet.ids.client() {
                return Err(DropReason::UnrealIds);
            }
            self.note_proof(turn.now, index, &proof);
            self.acknowledge(turn, index, packet, bytes.len())?;
            self.count_unreal_handled(Kind::RestartResponse);
            return Ok(());
        }
        let client_id = packet.ids.client();
        let owner = self.claims.cookies().owner(&original, client_id, listener)?;
        if owner.worker != self.worker.index {
            return self.hand_over(known, origin, owner, &proof, bytes);
        }
        let index = self.unreal.sessions.live(owner.place).ok_or(DropReason::CookieUnknown)?;
        self.check_outdated(known, &proof)?;
        self.check_outdated(Some(index), &proof)?;
        self.claims.cookies().check_unused(&proof.cookie)?;
        if let Some(other) = known {
            self.end_unreal(other, Ended::Replaced);
        }
        let limits = &self.setup.listeners[usize::from(listener)].limits;
        let claim = &mut self.unreal.sessions.at_mut(index).claim;
        self.claims.relocate(claim, origin.address.endpoint, limits)?;
        self.claims.cookies().use_once(&proof.cookie, turn.now.mono_ns)?;
        self.unreal.sessions.at_mut(index).prove(&proof);
        self.move_unreal(turn.now, index, origin);
        self.send_ack(turn, index, packet, bytes.len())?;
        self.count_unreal_handled(Kind::RestartResponse);
        Ok(())
    }

    /// Gives a restart response to the worker that has its session, which judges once more.
    fn hand_over(
        &mut self,
        known: Option<u32>,
        origin: &Origin,
        owner: Resident,
        proof: &Proof,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        if origin.forwarded_by.is_some() {
            return Err(DropReason::CookieUnknown);
        }
        self.check_outdated(known, proof)?;
        // A proof that has done its work, recorded or repeated, changes nothing here; the owner may
        // repeat its answer.
        if self.claims.cookies().check_unused(&proof.cookie).is_ok() {
            // Whoever was at this address is not there any more.
            if let Some(index) = known {
                self.end_unreal(index, Ended::Replaced);
            }
            let (address, worker) = (origin.address, owner.worker);
            self.steer(Steering { address, worker, departed_at: None });
        }
        self.forward(origin, owner.worker, true, bytes);
        Ok(())
    }

    /// Whether a proof is from before what a session stands on: somebody has held it back.
    fn check_outdated(&self, index: Option<u32>, proof: &Proof) -> Result<(), DropReason> {
        let is_outdated = |index| self.unreal.sessions.at(index).standing().outdates(proof);
        if index.is_some_and(is_outdated) { Err(DropReason::ResponseReplayed) } else { Ok(()) }
    }

    fn move_unreal(&mut self, now: Now, index: u32, origin: &Origin) {
        let old = *self.unreal.sessions.address(index);
        let session = self.unreal.sessions.at_mut(index);
        session.socket = origin.socket;
        session.local = origin.local;
        session.heard_ns = now.mono_ns;
        let steered_by = std::mem::replace(&mut session.steered_by, origin.forwarded_by);
        self.unreal.sessions.readdress(index, origin.address);
        if let Some(worker) = steered_by {
            self.neighbours.mail_out.push((worker, forget_steering(old, self.worker.index)));
        }
        if let Some(worker) = origin.forwarded_by {
            self.neighbours.mail_out.push((worker, steer_to(origin.address, self.worker.index)));
        }
        self.counters.port_switches += 1;
    }

    /// A datagram that another worker has received, for a session of ours or one that may be.
    pub(crate) fn step_unreal_forwarded(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        from_worker: u16,
        is_lost: bool,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let known = self.unreal_session(origin);
        match (classify(bytes, &framing, Receiver::Server)?, known) {
            (Classified::Game(ids, reader), Some(index)) => {
                self.relay_up(turn, index, origin, (ids, reader), bytes)
            }
            (Classified::Handshake(packet), _) if known.is_some() || is_lost => {
                let is_restart = matches!(packet.body, Body::RestartResponse { .. });
                if known.is_none() && !is_restart {
                    return Err(DropReason::UnknownSource);
                }
                if is_lost && let Some(index) = known {
                    // Its mailbox was full when it was told.
                    self.unreal.sessions.at_mut(index).steered_by = Some(from_worker);
                    self.neighbours
                        .mail_out
                        .push((from_worker, steer_to(origin.address, self.worker.index)));
                }
                let outcome = self.step_unreal_handshake(turn, known, origin, &packet, bytes);
                if self.unreal_session(origin).is_none() {
                    // It was steered here when it was handed over, and has not moved.
                    self.forget_at(from_worker, origin);
                }
                outcome
            }
            _ => {
                // The session is over and the other worker has not heard yet.
                self.forget_at(from_worker, origin);
                Err(DropReason::UnknownSource)
            }
        }
    }

    /// Tells another worker that datagrams from an address are not ours.
    fn forget_at(&mut self, worker: u16, origin: &Origin) {
        self.neighbours.mail_out.push((worker, forget_steering(origin.address, self.worker.index)));
    }
}
