//! Sessions that begin: the gateway in the player's place runs the handshake with the game server.
//!
//! The server sees the player's own loopback address, versions, build and client id, so it decides
//! about the player and not about us. Its cookie goes to the player with the acknowledgement, which
//! is sent only when the server has sent its own: so no packet of the player is lost because the
//! server does not know it yet.

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::front::rules::Rules;
use crate::front::unreal::datagrams::rules_of;
use crate::front::unreal::guard::Guard;
use crate::front::unreal::kinds::kind_index;
use crate::front::unreal::loopback::loopback_of;
use crate::front::unreal::relay::pass_on;
use crate::front::unreal::response::Response;
use crate::front::unreal::session::{Opening, Session, Stage};
use crate::front::unreal::state::UnrealFront;
use crate::output::Tag;
use crate::shared::claims::Claim;
use crate::shared::cookies::By;
use crate::store::entry::Entry;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::TxTarget;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::cookie::{Cookie, Proof};
use ringgate_core::proto::unreal::front::Identity;
use ringgate_core::proto::unreal::handshake::{Base, Body, HANDSHAKE_BYTES_MAX, Handshake, Kind};

impl UnrealFront {
    /// A response has verified: its player gets a session, in place of the one that the address
    /// had.
    pub(crate) fn admit(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        response: Response<'_>,
    ) -> Result<(), DropReason> {
        let Response { packet, proof, bytes } = response;
        if turn.common.takes_nobody(origin.address.listener) {
            return Err(DropReason::Draining);
        }
        turn.common.claims.cookies().check_unused(&proof.cookie)?;
        turn.common.check_handshakes(&origin.address)?;
        if !self.sessions.has_rested_place(turn.now.mono_ns) {
            return Err(DropReason::PlacesResting);
        }
        let claim = self.claim(turn, known, origin, &proof)?;
        let listener = origin.address.listener;
        let profile = Profile {
            framing: self.framing(listener)?,
            client_id: packet.ids.client(),
            base: Base { sent_count: 0, ..packet.base },
        };
        let client = Client::new(&profile, turn.now.mono_ns);
        let opening = Opening {
            client,
            response: *packet,
            response_bytes: bytes.len(),
            since_ns: turn.now.mono_ns,
        };
        let session = Session {
            stage: Stage::Opening(Box::new(opening)),
            player_ids: packet.ids,
            server_ids: packet.ids,
            heard_ns: turn.now.mono_ns,
            socket: origin.socket,
            local: origin.local,
            claim,
            accepted: proof.cookie,
            proven_ns: proof.timestamp.to_ns().unwrap_or(0),
            acknowledged_ns: 0,
            noted_ns: 0,
            moved_ns: 0,
            closed_ns: 0,
            announced: 0,
            is_unsure: false,
            steered_by: origin.steered_by(),
        };
        let (now_ns, forwarded) = (turn.now.mono_ns, origin.forwarded_by.is_some());
        let begun = self.sessions.begin(origin.address, session, now_ns, forwarded);
        let index = begun.map_err(|why| {
            turn.common.claims.leave(&claim);
            turn.common.claims.cookies().take_back_use(&proof.cookie);
            why.reason(DropReason::ResponseSessionsFull)
        })?;
        self.opening_count += 1;
        turn.common.newcomers.handshakes.enter(&origin.address.block());
        if let Some(worker) = origin.steered_by() {
            turn.common.steer_here(worker, origin.address);
        }
        turn.common.trace(&origin.address, None, Fact::Waits { backend: claim.backend });
        self.ask_server(turn, index);
        Ok(())
    }

    /// Claims a place for a player. One who comes back takes its own again: no other player can
    /// have it in between, a server that is full has room for it, and it comes to the server where
    /// it was.
    fn claim(
        &mut self,
        turn: &mut Turn<'_>,
        known: Option<Entry<Session>>,
        origin: &Origin,
        proof: &Proof,
    ) -> Result<Claim, DropReason> {
        let listener = origin.address.listener;
        if let Some(index) = known {
            let claim = self.sessions.at(index).claim;
            let backends = &turn.common.setup.listeners[listener].backends;
            if backends.contains(&claim.backend)
                && turn.common.takes_players(claim.backend)
                && self.is_open_to(listener, claim.backend)
            {
                use_once(turn, proof, origin)?;
                return Ok(self.release(turn, index, Ended::Replaced.into()));
            }
            // Before the claim, because the session that goes may hold the last slot.
            self.end(turn, index, Ended::Replaced);
        }
        let client_id = self.sessions.next_client_id();
        let key = origin.address.endpoint.ip_key();
        let is_open = |backend| self.is_open_to(listener, backend);
        let claim = turn.common.claim_place(
            listener,
            (client_id, key),
            origin.address.endpoint,
            is_open,
        )?;
        // Only now: a player who finds a server full asks again with the same response, until there
        // is room.
        if let Err(why) = use_once(turn, proof, origin) {
            turn.common.claims.leave(&claim);
            return Err(why);
        }
        Ok(claim)
    }

    /// Sends the server what the handshake has to say now, and notes when to look again.
    pub(crate) fn ask_server(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let session = self.sessions.at_mut(index);
        let Stage::Opening(opening) = &mut session.stage else { return };
        let peer = turn.common.links.backends[session.claim.backend].address;
        let due_ns = opening.client.poll_timeout();
        if due_ns.is_none_or(|due_ns| turn.now.mono_ns < due_ns) {
            return self.sessions.arm(index, due_ns.unwrap_or(turn.now.mono_ns));
        }
        let mut said = [0; HANDSHAKE_BYTES_MAX];
        let tail = self.tail();
        let Stage::Opening(opening) = &mut self.sessions.at_mut(index).stage else { return };
        let len = opening.client.poll_transmit(turn.now.mono_ns, &tail, &mut said);
        let due_ns = opening.client.poll_timeout();
        self.sessions.arm(index, due_ns.unwrap_or(turn.now.mono_ns));
        let Some(said) = len.map(|len| &said[..len]) else { return };
        match (peer, turn.common.links.udp, loopback_of(index)) {
            (None, ..) => self.ask_over_link(turn, index, said),
            (Some(_), Some(socket), Some(source)) => {
                turn.send_raw(said, TxTarget { socket, peer, source }, Tag::Handshake);
            }
            (Some(_), ..) => {}
        }
    }

    /// A handshake packet from the server of a session that waits for it.
    pub(crate) fn step_opening(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let address = self.sessions.address(index).endpoint;
        let Stage::Opening(opening) = &mut self.sessions.at_mut(index).stage else {
            return Err(DropReason::PacketUnexpected);
        };
        match opening.client.handle_datagram(turn.now.mono_ns, bytes)? {
            Event::Challenged => self.ask_server(turn, index),
            // Since it was asked for.
            Event::Connected(_) if turn.common.setup.denied.holds(&address) => {
                self.end(turn, index, Ended::Denied);
            }
            Event::Connected(cookie) => self.open(turn, index, cookie),
            Event::WrongVersion => self.pass_upgrade_on(turn, index, bytes),
            Event::Game | Event::Reconnected | Event::Restarting => {}
        }
        Ok(())
    }

    /// The server has let the player in: the player is told, with the server's cookie.
    fn open(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, cookie: Cookie) {
        let address = *self.sessions.address(index);
        let listener = address.listener;
        let Ok(rules) = rules_of(turn.common, listener) else { return };
        let guard = Guard::new(rules.duplicates, &cookie, turn.now.mono_ns);
        let session = self.sessions.at_mut(index);
        let stage = std::mem::replace(&mut session.stage, Stage::Open { cookie, guard });
        let Stage::Opening(opening) = stage else { return };
        session.server_ids = opening.client.ids();
        session.heard_ns = turn.now.mono_ns;
        self.opening_count -= 1;
        turn.common.newcomers.handshakes.leave(&address.block());
        self.note_began(turn, index, opening.since_ns);
        if turn.common.setup.listeners[listener].follow_port_switch {
            let client_id = opening.response.ids.client();
            turn.common.claims.cookies().settle(&cookie, client_id, self.resident(turn, index));
        }
        self.begin_in_cluster(turn, index);
        let _ = self.send_ack(turn, index, &opening.response, opening.response_bytes);
    }

    /// The player's response has come again, or another one: the acknowledgement must have been
    /// lost, unless it is still to come.
    pub(crate) fn acknowledge(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        packet: &Handshake,
        bytes: usize,
    ) -> Result<(), DropReason> {
        let session = self.sessions.at_mut(index);
        match &mut session.stage {
            Stage::Opening(opening) => {
                opening.response = *packet;
                opening.response_bytes = bytes;
                session.heard_ns = turn.now.mono_ns;
                Ok(())
            }
            Stage::Open { .. } if turn.now.mono_ns < session.acknowledged_ns + ACK_PAUSE_NS => {
                Ok(())
            }
            Stage::Open { .. } => self.send_ack(turn, index, packet, bytes),
        }
    }

    /// Acknowledges a response with the cookie that player and server share.
    pub(crate) fn send_ack(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        packet: &Handshake,
        bytes_max: usize,
    ) -> Result<(), DropReason> {
        let address = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        let cookie = *session.cookie().ok_or(DropReason::PacketUnexpected)?;
        session.acknowledged_ns = turn.now.mono_ns;
        let target = session.target(address.endpoint);
        let backend = session.claim.backend;
        let known = self.probed[backend].as_ref().and_then(|probed| probed.identity);
        let unknown = Identity { session: 0, base: packet.base };
        let identity = Identity { session: packet.ids.session(), ..known.unwrap_or(unknown) };
        let ack = identity.answer(packet, Body::Ack(cookie));
        self.send_handshake(turn, address.listener, &ack, bytes_max, target)
    }

    /// The server does not speak the player's version, and says so: the player is told, and there
    /// is no session.
    fn pass_upgrade_on(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, bytes: &[u8]) {
        let address = *self.sessions.address(index);
        let session = self.sessions.at(index);
        let Stage::Opening(opening) = &session.stage else { return };
        let (ids, target) = (session.player_ids, session.target(address.endpoint));
        // As with every answer: never longer than what it answers.
        let is_short = bytes.len() <= opening.response_bytes;
        if let (Ok(framing), true) = (self.framing(address.listener), is_short) {
            pass_on(turn, &framing, bytes, ids, (target, Tag::Player));
            turn.count_out(address.listener, kind_index(Kind::VersionUpgrade), bytes.len());
        }
        self.end(turn, index, Ended::ByBackend);
    }
}

fn use_once(turn: &Turn<'_>, proof: &Proof, origin: &Origin) -> Result<(), DropReason> {
    let by = By::Newcomer(origin.address.endpoint);
    turn.common.claims.cookies().use_once(&proof.cookie, by, turn.now.mono_ns)
}

/// A lost acknowledgement is repeated about once a second, as often as the engine asks; a little
/// less, because the network may bring the next response early.
pub(crate) const ACK_PAUSE_NS: u64 = 900_000_000;

/// How long a server has to let a player in.
pub(crate) const OPENING_NS: u64 = 10_000_000_000;
