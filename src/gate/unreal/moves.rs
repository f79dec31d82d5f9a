//! Players whose port has changed, and who have done the handshake again to show that they are the same.
//!
//! A restart response proves two things: with the new cookie that its sender receives at the new address, and with the
//! original one that it knows the session. The session moves, the game server notices nothing, and each proof moves a session
//! once: a recorded one moves nothing back.
//!
//! Sessions do not change their worker. Where the kernel hashes the new address to another one, that one finds the owner by
//! the cookie, hands the response over, and forwards everything from that address from then on, as it does for netcode.

use crate::drops::DropReason;
use crate::gate::claims::Resident;
use crate::gate::counters::Ended;
use crate::gate::output::Exit;
use crate::gate::players::Origin;
use crate::gate::strangers::{forget_steering, steer_to};
use crate::gate::{Gate, Now};
use crate::proto::unreal::cookie::{Cookie, Proof};
use crate::proto::unreal::front::{Classified, classify};
use crate::proto::unreal::handshake::{Body, Handshake, Kind, Receiver};

impl Gate {
    /// A restart response whose proof holds, from an address with a session or without one.
    #[expect(clippy::too_many_arguments, reason = "one datagram's facts, each used once")]
    pub(super) fn restart(
        &mut self,
        now: Now,
        known: Option<u32>,
        origin: &Origin,
        packet: &Handshake,
        (proof, original): (Proof, Cookie),
        bytes: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        if !self.setup.listeners[usize::from(listener)].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let is_here = |index: &u32| self.unreal.sessions.at(*index).cookie() == Some(&original);
        if let Some(index) = known.filter(is_here) {
            self.acknowledge(now, index, packet, bytes.len(), exit)?;
            self.count_unreal_handled(Kind::RestartResponse);
            return Ok(());
        }
        let owner =
            self.claims.cookies().owner(&original, listener).ok_or(DropReason::CookieUnknown)?;
        if owner.worker != self.worker.index {
            if origin.forwarded_by.is_some() {
                return Err(DropReason::CookieUnknown);
            }
            // Its owner judges once more, and moves it. Whoever was at this address is not there any more.
            if let Some(index) = known {
                self.end_unreal(index, Ended::Replaced);
            }
            self.forward(origin, owner.worker, Some(owner), bytes);
            return Ok(());
        }
        let index = self.unreal.sessions.live(owner.place).ok_or(DropReason::CookieUnknown)?;
        self.claims.cookies().use_once(&proof.cookie, now.mono_ns)?;
        if let Some(other) = known {
            self.end_unreal(other, Ended::Replaced);
        }
        self.move_unreal(now, index, origin);
        self.send_ack(now, index, packet, bytes.len(), exit)?;
        self.count_unreal_handled(Kind::RestartResponse);
        Ok(())
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
            self.mail_out.push((worker, forget_steering(old, self.worker.index)));
        }
        if let Some(worker) = origin.forwarded_by {
            self.mail_out.push((worker, steer_to(origin.address, self.worker.index)));
        }
        self.counters.port_switches += 1;
    }

    /// A datagram that another worker has received, for a session of ours or one that may be.
    pub(in crate::gate) fn step_unreal_forwarded(
        &mut self,
        now: Now,
        origin: &Origin,
        from_worker: u16,
        candidate: Option<Resident>,
        bytes: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let framing = self.framing(origin.address.listener)?;
        let known = self.unreal_session(origin);
        match (classify(bytes, &framing, Receiver::Server)?, known) {
            (Classified::Game(ids, reader), Some(index)) => {
                self.relay_up(now, index, origin, (ids, reader), bytes, exit)
            }
            (Classified::Handshake(packet), _) if known.is_some() || candidate.is_some() => {
                let is_restart = matches!(packet.body, Body::RestartResponse { .. });
                if known.is_none() && !is_restart {
                    return Err(DropReason::UnknownSource);
                }
                if candidate.is_some()
                    && let Some(index) = known
                {
                    // Its mailbox was full when it was told.
                    self.unreal.sessions.at_mut(index).steered_by = Some(from_worker);
                    self.mail_out.push((from_worker, steer_to(origin.address, self.worker.index)));
                }
                self.step_unreal_handshake(now, known, origin, &packet, bytes, exit)
            }
            _ => {
                // The session is over and the other worker has not heard yet.
                let forget = forget_steering(origin.address, self.worker.index);
                self.mail_out.push((from_worker, forget));
                Err(DropReason::UnknownSource)
            }
        }
    }
}
