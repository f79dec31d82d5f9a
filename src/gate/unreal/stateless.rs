//! What is answered without remembering anything: challenges, and requests to restart; and who gets past them.
//!
//! The order of the checks is their cost: size, magic, type, filler (in [`classify`](super::classify)), version and build, the
//! cookie's time, the rate of the source, and only then a MAC.

use super::cookies::Keyring;
use crate::drops::DropReason;
use crate::gate::output::Exit;
use crate::gate::players::Origin;
use crate::gate::setup::Duplicates;
use crate::gate::{Gate, Now};
use crate::proto::unreal::bits::BitReader;
use crate::proto::unreal::cookie::{Cookie, Proof};
use crate::proto::unreal::front::{InSession, Served, in_session};
use crate::proto::unreal::handshake::{Body, HANDSHAKE_BYTES_MAX, Handshake, Kind};
use crate::proto::unreal::notify::Header;
use crate::proto::unreal::prefix::{Framing, Ids};

use super::kind_index;

impl Gate {
    /// A handshake packet from an address with a session or without one.
    pub(super) fn step_unreal_handshake(
        &mut self,
        now: Now,
        known: Option<u32>,
        origin: &Origin,
        packet: &Handshake,
        bytes: &[u8],
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        self.check_served(origin.address.listener, packet)?;
        let accepted = known.map(|index| self.unreal.sessions.at(index).accepted);
        match in_session(packet, &accepted.unwrap_or(Cookie::ZERO))? {
            InSession::Acknowledge => {
                let index = known.ok_or(DropReason::CookieForged)?;
                self.acknowledge(now, index, packet, bytes.len(), exit)?;
            }
            InSession::Challenge => {
                self.challenge_unreal(now, origin, packet, bytes.len(), exit)?;
            }
            InSession::Replace(proof) => {
                self.check_proof(now, origin, packet, &proof)?;
                self.admit_unreal(now, known, origin, packet, &proof, bytes.len(), exit)?;
            }
            InSession::Restart(proof, original) => {
                self.check_proof(now, origin, packet, &proof)?;
                let restart = (proof, original);
                return self.restart(now, known, origin, packet, restart, bytes, exit);
            }
        }
        self.count_unreal_handled(packet.body.kind());
        Ok(())
    }

    fn check_served(&self, listener: u16, packet: &Handshake) -> Result<(), DropReason> {
        let rules = self.unreal_rules(listener)?;
        let served = Served {
            versions: rules.versions.clone(),
            network_versions: rules.network_versions.as_deref(),
        };
        served.check(&rules.framing, &packet.base)
    }

    /// Asks whoever claims to be at an address to prove it. Nothing is kept, and no byte more goes back than came.
    fn challenge_unreal(
        &mut self,
        now: Now,
        origin: &Origin,
        packet: &Handshake,
        bytes: usize,
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        let endpoint = origin.address.endpoint;
        if self.draining_until_ns.is_some() {
            return Err(DropReason::Draining);
        }
        let face = self.unreal.faces[usize::from(listener)];
        let identity = face.identity.ok_or(DropReason::RequestBackendDown)?;
        if !self.admission.admit(&endpoint, now.mono_ns) {
            return Err(DropReason::RequestRateLimited);
        }
        let client_id = packet.ids.client();
        let proof = self.keyring()?.challenge(now.mono_ns, endpoint, client_id, listener);
        let answer = identity.answer(packet, Body::Challenge(proof));
        self.answer_unreal(now, origin, &answer, bytes, exit)
    }

    /// Whether a response answers one of our challenges.
    pub(super) fn check_proof(
        &mut self,
        now: Now,
        origin: &Origin,
        packet: &Handshake,
        proof: &Proof,
    ) -> Result<(), DropReason> {
        let endpoint = origin.address.endpoint;
        if !self.admission.admit(&endpoint, now.mono_ns) {
            return Err(DropReason::RequestRateLimited);
        }
        let (client_id, listener) = (packet.ids.client(), origin.address.listener);
        self.keyring()?.verify(now.mono_ns, proof, endpoint, client_id, listener)
    }

    fn keyring(&mut self) -> Result<&Keyring, DropReason> {
        Keyring::refresh(&mut self.unreal.keyring, self.claims.cookies());
        self.unreal.keyring.as_ref().ok_or(DropReason::RequestBackendDown)
    }

    /// A game packet from nobody we know, who may be a player whose port has changed: asks for a restart of the handshake.
    pub(super) fn ask_to_restart(
        &mut self,
        now: Now,
        origin: &Origin,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: usize,
        exit: &mut Exit<'_>,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        if !self.setup.listeners[usize::from(listener)].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let rules = self.unreal_rules(listener)?;
        let (framing, duplicates, small) = (rules.framing, rules.duplicates, rules.restart_small);
        if duplicates == Duplicates::Notify {
            Header::read(reader)?;
        }
        let request = self.unreal.faces[usize::from(listener)].restart_request(ids)?;
        let bytes_max = if small { HANDSHAKE_BYTES_MAX } else { bytes };
        if !has_room(&framing, bytes_max)
            || !self.strangers.may_ask(&origin.address.endpoint, now.mono_ns)
        {
            return Err(DropReason::RestartRateLimited);
        }
        self.answer_unreal(now, origin, &request, bytes_max, exit)?;
        self.counters.handled[super::UNREAL_GAME] += 1;
        Ok(())
    }
}

/// Whether a request to restart fits into that many bytes.
fn has_room(framing: &Framing, bytes_max: usize) -> bool {
    Kind::RestartRequest.tail_room(framing, bytes_max).is_some()
}

// Every type of both protocols has a counter of its own.
const _: () = assert!(kind_index(Kind::VersionUpgrade) + 1 == crate::gate::PACKET_KINDS);
