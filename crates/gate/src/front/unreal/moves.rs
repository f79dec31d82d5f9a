//! Players whose port has changed. They have done the handshake again to prove who they are.
//!
//! A restart response proves two things: with the new cookie that its sender receives at the new
//! address, and with the original one that it knows the session. The session moves, the game server
//! notices nothing, and each proof moves a session once: a recorded one moves nothing back, nor
//! does one that was held back while the player moved on. A session that was at the new address
//! has none from then on, until its own player has proven where it is ([`swaps`](super::swaps)).
//!
//! Sessions do not change their worker. Where the kernel hashes the new address to another one,
//! that one finds the owner by the cookie, hands the response over, and forwards everything from
//! that address from that moment on: the owner answers the player itself, so the player's next
//! packet may be here before any word of the owner's. An owner that refuses says so, and the
//! address is forgotten again.

use crate::arrivals::Origin;
use crate::front::cluster::owning::Owning;
use crate::front::unreal::datagrams::count_handled;
use crate::front::unreal::opening::ACK_PAUSE_NS;
use crate::front::unreal::response::Response;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::mail::Steering;
use crate::shared::cookies::{By, Resident};
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::cookie::{Cookie, Proof};
use ringgate_core::proto::unreal::handshake::Kind;

impl UnrealFront {
    /// A restart response whose proof holds, from an address with a session or without one.
    pub(crate) fn restart(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        response: Response<'_>,
        original: &Cookie,
    ) -> Result<(), DropReason> {
        let Response { packet, proof, bytes } = response;
        let listener = origin.address.listener;
        if !turn.common.setup.listeners[listener].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let is_here = |index: &Entry<Session>| self.sessions.at(*index).cookie() == Some(original);
        if let Some(index) = known.filter(is_here) {
            if self.sessions.at(index).player_ids.client() != packet.ids.client() {
                return Err(DropReason::UnrealIds);
            }
            self.note_proof(turn, index, &proof);
            self.acknowledge(turn, index, packet, bytes.len())?;
            count_handled(turn, Kind::RestartResponse);
            return Ok(());
        }
        let client_id = packet.ids.client();
        let owner = turn.common.claims.cookies().owner(original, client_id, listener)?;
        if owner.worker != turn.common.worker.id {
            return self.hand_over(turn, known, origin, response, owner);
        }
        let index = self.sessions.live(owner.place).ok_or(DropReason::CookieUnknown)?;
        self.check_outdated(known, &proof)?;
        self.check_outdated(Some(index), &proof)?;
        // What one player takes of the memory of responses is bounded.
        if turn.now.mono_ns < self.sessions.at(index).moved_ns + ACK_PAUSE_NS {
            return Err(DropReason::RestartRateLimited);
        }
        let claims = &turn.common.claims;
        claims.cookies().use_once(&proof.cookie, By::Mover, turn.now.mono_ns)?;
        let before = self.last_address(index);
        let limits = &turn.common.setup.listeners[listener].limits;
        let claim = &mut self.sessions.at_mut(index).claim;
        if let Err(why) = claims.relocate(claim, origin.address.endpoint, limits) {
            claims.cookies().take_back_use(&proof.cookie);
            return Err(why);
        }
        if let Some(other) = known {
            self.displace(turn, other);
        }
        self.sessions.at_mut(index).prove(&proof);
        self.move_session(turn, index, origin, before);
        self.send_ack(turn, index, packet, bytes.len())?;
        count_handled(turn, Kind::RestartResponse);
        Ok(())
    }

    /// Gives a restart response to the worker that has its session, which checks it once more.
    fn hand_over(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        response: Response<'_>,
        owner: Resident,
    ) -> Result<(), DropReason> {
        let Response { proof, bytes, .. } = response;
        self.check_outdated(known, &proof)?;
        // A proof that has done its work, recorded or repeated, changes nothing here; the owner may
        // repeat its answer.
        let is_unused = turn.common.claims.cookies().check_unused(&proof.cookie).is_ok();
        // The player who was at this address is not there any more.
        if let Some(index) = known.filter(|_| is_unused) {
            self.displace(turn, index);
        }
        if origin.steered_by().is_some() {
            // The worker that forwards datagrams from there is told to stop, and finds the owner by
            // itself when the player repeats its response.
            return Err(DropReason::CookieUnknown);
        }
        if is_unused {
            let (address, worker) = (origin.address, owner.worker);
            turn.common.steer(Steering { address, worker, departed_at: None });
        }
        turn.common.forward(origin, owner.worker, true, bytes);
        Ok(())
    }

    /// Whether a proof is older than the last one of a session: then it was held back.
    fn check_outdated(
        &self,
        index: Option<Entry<Session>>,
        proof: &Proof,
    ) -> Result<(), DropReason> {
        let is_outdated = |index| self.sessions.at(index).standing().outdates(proof);
        if index.is_some_and(is_outdated) { Err(DropReason::ResponseReplayed) } else { Ok(()) }
    }

    fn move_session(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
        before: Address,
    ) {
        let session = self.sessions.at_mut(index);
        session.socket = origin.socket;
        session.local = origin.local;
        (session.heard_ns, session.moved_ns) = (turn.now.mono_ns, turn.now.mono_ns);
        let steered_by = std::mem::replace(&mut session.steered_by, origin.steered_by());
        self.sessions.readdress(index, origin.address);
        self.keep_record(turn.common, turn.now, index);
        if let Some(worker) = steered_by {
            turn.common.unsteer(worker, before, None);
        }
        if let Some(worker) = origin.steered_by() {
            turn.common.steer_here(worker, origin.address);
        }
        turn.common.counters.port_switches += 1;
        turn.common.trace(&origin.address, None, Fact::Moved { from: before.endpoint });
    }
}
