//! What is answered without remembering anything (challenges, and requests to restart), and which
//! responses pass.
//!
//! The cheapest check comes first: size, magic, type, filler (in `classify`), version and build,
//! the cookie's time, the rate of the source, and only then a MAC.

use crate::arrivals::Origin;
use crate::front::protocol::Front;
use crate::front::unreal::datagrams::{count_handled, rules_of};
use crate::front::unreal::kinds::{UNREAL_GAME, kind_index};
use crate::front::unreal::opening::ACK_PAUSE_NS;
use crate::front::unreal::response::Response;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::ids::ListenerId;
use crate::setup::Duplicates;
use crate::shared::cookies::{By, Keyring};
use crate::store::admission::Rate;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::cookie::Proof;
use ringgate_core::proto::unreal::front::{Identity, InSession, Standing, in_session};
use ringgate_core::proto::unreal::handshake::{Body, Handshake, Kind, TAIL_BYTES_MIN};
use ringgate_core::proto::unreal::notify::Header;
use ringgate_core::proto::unreal::prefix::Ids;

impl UnrealFront {
    /// A handshake packet from an address with a session or without one.
    pub(crate) fn step_handshake(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        packet: &Handshake,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        if let Err(why) = self.check_served(turn, origin.address.listener, packet) {
            if known.is_none() {
                self.refuse_version(turn, origin, packet, bytes.len());
            }
            return Err(why);
        }
        let standing = known.map(|index| self.standing(index));
        match in_session(packet, standing.as_ref())? {
            InSession::Acknowledge => {
                let index = known.ok_or(DropReason::CookieForged)?;
                self.acknowledge(turn, index, packet, bytes.len())?;
            }
            InSession::AcknowledgeProven(proof) => {
                let index = known.ok_or(DropReason::CookieForged)?;
                self.check_proof(turn, origin, packet, &proof)?;
                self.note_proof(turn, index, &proof);
                self.acknowledge(turn, index, packet, bytes.len())?;
            }
            InSession::Challenge => {
                self.challenge(turn, origin, packet, bytes.len())?;
            }
            InSession::Replace(proof) => {
                self.check_proof(turn, origin, packet, &proof)?;
                self.admit(turn, known, origin, Response { packet, proof, bytes })?;
            }
            InSession::Restart(proof, original) => {
                if let Err(why) = self.check_proof(turn, origin, packet, &proof) {
                    self.challenge_instead(turn, known, origin, packet, (bytes.len(), why))?;
                    count_handled(turn, packet.body.kind());
                    return Ok(());
                }
                let response = Response { packet, proof, bytes };
                return self.restart(turn, known, origin, response, &original);
            }
            InSession::Stale(proof) => {
                self.check_proof(turn, origin, packet, &proof)?;
                return Err(DropReason::ResponseReplayed);
            }
        }
        count_handled(turn, packet.body.kind());
        Ok(())
    }

    /// What further handshake packets from the address of a session are checked against.
    fn standing(&self, index: Entry<Session>) -> Standing {
        let session = self.sessions.at(index);
        Standing { over_ns: self.over_since_ns(session), ..session.standing() }
    }

    fn check_served(
        &self,
        turn: &Turn<'_>,
        listener: ListenerId,
        packet: &Handshake,
    ) -> Result<(), DropReason> {
        let rules = rules_of(turn.common, listener)?;
        rules.served().check(&self.framing(listener)?, &packet.base)
    }

    /// Tells a client that asks to be let in, in a version or with a build that is not served here,
    /// that this is why, where the server behind us would: such clients report it to their players
    /// instead of asking in vain.
    fn refuse_version(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        packet: &Handshake,
        bytes: usize,
    ) {
        let face = self.faces[origin.address.listener];
        let speaks = |identity: &Identity| identity.base.version >= UPGRADE_VERSION_MIN;
        let Some(identity) = face.identity.filter(speaks) else { return };
        let is_asking = matches!(packet.body, Body::Initial { .. });
        if is_asking
            && self.admit_request(turn, &origin.address).is_ok()
            && turn.common.claims.cookies().upgrades.admit(turn.now.mono_ns)
        {
            let answer = identity.answer(packet, Body::VersionUpgrade);
            // Where it would be longer than the question, it is not sent.
            let _ = self.answer(turn, origin, &answer, bytes);
        }
    }

    /// Asks a client that claims to be at an address to prove it. Nothing is kept, and no byte more
    /// goes back than came.
    fn challenge(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        packet: &Handshake,
        bytes: usize,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        let endpoint = origin.address.endpoint;
        // A player whose port has changed begins as a newcomer does, and that one is refused later.
        if turn.common.takes_nobody(listener) && !may_have_moved(turn, listener) {
            return Err(DropReason::Draining);
        }
        let face = self.faces[listener];
        // Who has a session has a server, which may be one that nobody else is sent to.
        let is_newcomer = matches!(packet.body, Body::Initial { is_restart: false });
        let identity = if is_newcomer { face.identity } else { face.last };
        let identity = identity.ok_or(DropReason::RequestBackendDown)?;
        self.admit_request(turn, &origin.address)?;
        let client_id = packet.ids.client();
        let now_ns = turn.now.mono_ns;
        let proof = self.keyring(turn)?.challenge(now_ns, endpoint, client_id, face.called);
        let answer = identity.answer(packet, Body::Challenge(proof));
        self.answer(turn, origin, &answer, bytes)?;
        turn.common.trace(&origin.address, None, Fact::Challenged);
        Ok(())
    }

    /// A restart response from the address of a session does not verify here. Where it names that
    /// session, another gateway of the cluster has challenged its player, before it had heard
    /// whose the address is. Then this one does.
    #[cold]
    fn challenge_instead(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        packet: &Handshake,
        (bytes, why): (usize, DropReason),
    ) -> Result<(), DropReason> {
        let Body::RestartResponse { original, .. } = &packet.body else { return Err(why) };
        let is_its = |it: &Session| it.cookie() == Some(original) && it.player_ids == packet.ids;
        let is_known = known.is_some_and(|index| is_its(self.sessions.at(index)));
        if !is_known || turn.common.claims.whereabouts().is_none() {
            return Err(why);
        }
        self.challenge(turn, origin, packet, bytes)
    }

    /// Whether a response answers one of our challenges.
    pub(crate) fn check_proof(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        packet: &Handshake,
        proof: &Proof,
    ) -> Result<(), DropReason> {
        self.admit_request(turn, &origin.address)?;
        let endpoint = origin.address.endpoint;
        let (client_id, called) = (packet.ids.client(), self.faces[origin.address.listener].called);
        self.keyring(turn)?.verify(turn.now.mono_ns, proof, endpoint, client_id, called)
    }

    /// A proof that was not needed, because its player has a session already: it is noted as used,
    /// so that it opens nothing later. One in a second: what one player takes of the memory is
    /// bounded.
    pub(crate) fn note_proof(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, proof: &Proof) {
        let by = By::Newcomer(self.sessions.address(index).endpoint);
        let now_ns = turn.now.mono_ns;
        let session = self.sessions.at_mut(index);
        session.prove(proof);
        if now_ns >= session.noted_ns + ACK_PAUSE_NS {
            // It may have been noted before. Where there is no room, no response opens anything.
            let cookies = turn.common.claims.cookies();
            if cookies.use_once(&proof.cookie, by, now_ns).is_ok() {
                session.noted_ns = now_ns;
            }
        }
    }

    fn keyring(&mut self, turn: &Turn<'_>) -> Result<&Keyring, DropReason> {
        Keyring::refresh(&mut self.keyring, turn.common.claims.cookies());
        self.keyring.as_ref().ok_or(DropReason::RequestBackendDown)
    }

    /// Whether the player of an Unreal game who may be at a new port is asked to restart its
    /// handshake now.
    fn may_restart(&mut self, turn: &mut Turn<'_>, source: &Address) -> bool {
        let rate = Rate::new(turn.common.limits(source.listener).restarts_per_block, 1);
        self.restarts.admit(&source.block(), rate, turn.now.mono_ns)
            || self.admit_own(turn, source, (0, rate))
    }

    /// Whether the source of a handshake packet may ask for one thing more that costs a MAC.
    fn admit_request(&mut self, turn: &mut Turn<'_>, source: &Address) -> Result<(), DropReason> {
        let rate = Rate::new(turn.common.limits(source.listener).requests_per_block, 1);
        let admitted = turn.common.admit_request(turn.now, source);
        admitted.or_else(|why| self.admit_own(turn, source, (1, rate)).then_some(()).ok_or(why))
    }

    /// Whether it may because it has sessions here: whoever writes other addresses of its block on
    /// datagrams uses up nothing of its own.
    fn admit_own(&mut self, turn: &Turn<'_>, source: &Address, (of, rate): (usize, Rate)) -> bool {
        turn.common.claims.has_player_at(source)
            && self.own[of].admit(&source.area(), rate, turn.now.mono_ns)
    }

    /// A game packet from an unknown address, perhaps of a player whose port has changed: asks for
    /// a restart of the handshake.
    pub(crate) fn ask_to_restart(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        (ids, reader): (Ids, BitReader<'_>),
        bytes: usize,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        if !turn.common.setup.listeners[listener].follow_port_switch {
            return Err(DropReason::UnknownSource);
        }
        let rules = rules_of(turn.common, listener)?;
        if rules.duplicates == Duplicates::Notify {
            Header::read(reader)?;
        }
        let face = &self.faces[listener];
        let request = face.restart_request(ids, &rules.versions)?;
        let bytes_min = Kind::RestartRequest
            .packet_bytes(&face.framing, request.base.version, TAIL_BYTES_MIN)
            .ok_or(DropReason::RestartRateLimited)?;
        let is_small = bytes < bytes_min;
        let endpoint = origin.address.endpoint;
        if is_small && self.credits.earn(&endpoint, bytes) < bytes_min
            || !self.may_restart(turn, &origin.address)
        {
            return Err(DropReason::RestartRateLimited);
        }
        if is_small {
            self.credits.spend(&endpoint, bytes_min);
        }
        self.answer(turn, origin, &request, bytes.max(bytes_min))?;
        turn.common.counters.handled[UNREAL_GAME] += 1;
        turn.common.trace(&origin.address, None, Fact::AskedToRestart);
        Ok(())
    }
}

/// Whether a handshake may be that of a player of this listener whose port has changed.
fn may_have_moved(turn: &Turn<'_>, listener: ListenerId) -> bool {
    let is_followed = turn.common.setup.listeners[listener].follow_port_switch;
    is_followed && turn.common.claims.sessions(listener) > 0
}

/// The first handshake version that has a packet for "your version is not served".
const UPGRADE_VERSION_MIN: u8 = 4;

// Every type of both protocols has a counter of its own.
const _: () =
    assert!(kind_index(Kind::VersionUpgrade) + 1 == UNREAL_GAME + Front::Unreal.kind_names().len());
