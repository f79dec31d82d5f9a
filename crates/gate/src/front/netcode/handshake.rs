//! How a session begins (request, challenge, response), which backend it gets, and how it ends.
//!
//! The order of the checks is the reference's (a real client must see no difference); what is
//! stricter is stated where it is checked. Nothing is kept for a request before its token has
//! verified, and nothing is answered before that either.

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::front::cluster::owning::Owning;
use crate::front::netcode::explain::note_opened;
use crate::front::netcode::session::{Beginning, Pending, Session};
use crate::front::netcode::state::NetcodeFront;
use crate::front::rules::Rules;
use crate::ids::{BackendId, ListenerId};
use crate::routing::NoRoom;
use crate::setup::{LinkKind, TokenReuse};
use crate::shared::claims::history::{TokenMac, TokenPast};
use crate::shared::claims::{Claim, Wanted};
use crate::store::entry::Entry;
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_core::crypto::{Job, Verdict, token};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::TAG_BYTES;
use ringgate_core::proto::netcode::UserData;
use ringgate_core::proto::netcode::challenge::{CHALLENGE_BODY_BYTES, ChallengeToken, encode_body};
use ringgate_core::proto::netcode::packet::{Header, PacketKind, nonce};
use ringgate_core::proto::netcode::request::{Request, RequestParts};
use ringgate_core::proto::netcode::server::{
    PendingBinding, SessionSequence, check_addressed_to, names_others, pending_packet,
};
use ringgate_core::proto::netcode::timing::Timeout;
use ringgate_core::proto::netcode::token::PrivateToken;
use ringgate_core::proto::replay::Window;
use ringgate_core::secret::Key;
use zeroize::Zeroize;

impl NetcodeFront {
    /// A connection request whose private token has been opened under the current key, or not.
    pub(crate) fn step_request(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        verdict: Verdict,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        let rules =
            turn.common.setup.listeners[listener].netcode().ok_or(DropReason::UnknownSource)?;
        let expire_s = Request::inspect(bytes, rules.protocol_id, turn.now.unix_s)?.expire_unix_s();
        let mut parts = RequestParts::split(bytes).ok_or(DropReason::RequestLength)?;
        let mac: TokenMac = *parts.private.last_chunk().expect("a private token ends with its tag");
        let key = match verdict {
            Verdict::Done => Some(0),
            _ => open_with_older_keys(turn, listener, &mut parts),
        };
        // A listener that drains may have come from another process, without its keys.
        let is_without_keys = turn.common.is_without_keys(listener);
        let why = if is_without_keys { DropReason::Draining } else { DropReason::RequestForged };
        let key = key.ok_or(why)?;
        let private = RequestParts::split(bytes).ok_or(DropReason::RequestLength)?.private;
        let token = PrivateToken::decode(private);
        // The slot goes back to the kernel, and must not hold a session's keys until the next
        // datagram overwrites it.
        private.zeroize();
        let token = token?;
        turn.common.captures.identify(token.client_id);
        if !turn.common.taps.is_empty() {
            note_opened(turn, origin, &token, (key, expire_s));
        }
        check_addressed_to(&token.addresses, &self.listeners[listener].own)?;
        if turn.common.setup.denied.holds_client(token.client_id) {
            return Err(self.deny(
                turn,
                origin,
                (&token.server_to_client, &mac),
                DropReason::ClientDenied,
            ));
        }
        if let Some(index) = self.sessions.find(origin.hash, &origin.address)
            && !self.is_in_own_way(turn, index, token.client_id)
        {
            // Another one's, or it was connected earlier in this turn.
            return Err(DropReason::RequestAddressConnected);
        }
        let is_connected = turn.common.claims.is_connected(listener, token.client_id);
        let is_fleets = unique_in(turn, listener).is_some();
        // Where the newer login wins, its token has to be another one than that of the session.
        if is_connected && !is_fleets {
            let seated = turn.common.claims.seated(listener, token.client_id);
            let seated = seated.filter(|seated| !seated.is_by(&mac));
            if !seated.is_some_and(|seated| self.may_yield(turn, origin, &seated)) {
                return Err(DropReason::RequestClientConnected);
            }
        }
        self.check_handshakes(turn, origin)?;
        let past =
            turn.common.claims.use_token(&mac, &origin.address.endpoint, expire_s, turn.now)?;
        if past == TokenPast::Spent && !allows_token_reuse(turn, listener) {
            // So that its owner asks for a new one at once, instead of waiting in vain.
            return Err(self.deny(
                turn,
                origin,
                (&token.server_to_client, &mac),
                DropReason::TokenSpent,
            ));
        }
        self.check_room(turn, origin, (&token, &mac), is_connected)?;
        if is_connected && is_fleets {
            // The client asks again, when the session that is in its way has ended.
            if past == TokenPast::Fresh {
                oust_older(turn, listener, token.client_id);
            }
            return Err(DropReason::RequestClientConnected);
        }
        if past != TokenPast::Fresh && self.is_in_other_handshake(turn, origin, &mac) {
            return Err(DropReason::TokenSuperseded);
        }
        self.check_fleet(turn, origin, &token, (mac, expire_s))?;
        self.challenge(turn, origin, &token, (mac, expire_s))?;
        turn.common.counters.handled[PacketKind::Request as usize] += 1;
        Ok(())
    }

    /// Whether a player may have a session, as far as that is known before it proves its address.
    /// Who is to replace one may have its room.
    fn check_room(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        (token, mac): (&PrivateToken, &TokenMac),
        replaces: bool,
    ) -> Result<(), DropReason> {
        let source = &origin.address;
        let listener = source.listener;
        let found = room_for(turn, listener, token.client_id, &token.user_data, replaces);
        if let Err(why) = found {
            return Err(match why {
                NoRoom::BackendStarting => why.at_request(),
                _ => self.deny(turn, origin, (&token.server_to_client, mac), why.at_request()),
            });
        }
        if replaces {
            return Ok(());
        }
        let limits = turn.common.limits(listener);
        let room = turn.common.claims.has_room_for(listener, &source.endpoint, limits);
        room.map_err(|why| self.deny(turn, origin, (&token.server_to_client, mac), why))
    }

    /// Whether a token that other gateways could let in as well is this one's: it names them, or
    /// they have the same address. Asked last: what cannot come in here may still come in there.
    ///
    /// In a cluster the other one is the player's own, as a rule: its request has come here by
    /// another way. A denial would end it; when it asks again, the other one is known.
    fn check_fleet(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        token: &PrivateToken,
        (mac, expire_s): (TokenMac, u64),
    ) -> Result<(), DropReason> {
        let Some(tokens) = &turn.common.setup.fleet_tokens else { return Ok(()) };
        let own = &self.listeners[origin.address.listener].own;
        let is_clustered = turn.common.setup.cluster.is_some();
        if !is_clustered && !names_others(&token.addresses, own) {
            return Ok(());
        }
        let checked = tokens.check(&mac, expire_s, turn.now);
        checked.map_err(|why| match why {
            DropReason::TokenClaimed if !is_clustered => {
                self.deny(turn, origin, (&token.server_to_client, &mac), why)
            }
            _ => why,
        })
    }

    /// Whether a block of addresses may have one more unfinished handshake. Asked before the token
    /// is remembered, so that what is refused here takes no room there either.
    pub(crate) fn check_handshakes(
        &self,
        turn: &mut Turn<'_>,
        origin: &Origin,
    ) -> Result<(), DropReason> {
        if self.pending.find(origin.hash, &origin.address).is_some() {
            return Ok(());
        }
        turn.common.check_handshakes(&origin.address)
    }

    /// Takes an unfinished handshake out of its table, once.
    pub(crate) fn forget_pending(&mut self, turn: &mut Turn<'_>, index: Entry<Pending>) {
        if self.pending.is_live(index) {
            turn.common.newcomers.handshakes.leave(&self.pending.address(index).block());
            self.pending.remove(index);
        }
    }

    /// A session has come to an address, from another port or another gateway. The handshake of
    /// another client there is void: the address is a player's already.
    pub(crate) fn void_handshake(&mut self, turn: &mut Turn<'_>, session: Entry<Session>) {
        let address = *self.sessions.address(session);
        let Some(pending) = self.pending.find(self.pending.hash(&address), &address) else {
            return;
        };
        if self.pending.at(pending).binding.client_id != self.sessions.at(session).client_id {
            self.forget_pending(turn, pending);
        }
    }

    /// Whether an address is in a handshake with another token. The reference lets every request
    /// take the handshake over, so the recorded request of a player's last session, sent again at
    /// the right moment, keeps it out of its next one.
    fn is_in_other_handshake(&self, turn: &mut Turn<'_>, origin: &Origin, mac: &TokenMac) -> bool {
        let found = self.pending.find(origin.hash, &origin.address);
        found.map(|index| self.pending.at(index)).is_some_and(|pending| {
            pending.token_mac != *mac && pending.expire_ns >= turn.now.mono_ns
        })
    }

    /// Remembers the handshake and asks the player to prove its address. A repeated request is
    /// answered again; the client paces itself, and admission bounds those who do not.
    fn challenge(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        token: &PrivateToken,
        (mac, token_expire_s): (TokenMac, u64),
    ) -> Result<(), DropReason> {
        let sequence = self.challenge_sequence;
        // A token without a timeout would wait for its response for ever; it is of no use once it
        // has expired.
        let token_left_ns = token_expire_s.saturating_sub(turn.now.unix_s).saturating_mul(NS_PER_S);
        let token_expire_ns = turn.now.mono_ns.saturating_add(token_left_ns);
        let expire_ns = Timeout::from_seconds(token.timeout_seconds)
            .pending_deadline_ns(turn.now.mono_ns)
            .map_or(token_expire_ns, |deadline_ns| deadline_ns.min(token_expire_ns));
        let fresh = Pending {
            open_key: token.client_to_server.clone(),
            seal_key: token.server_to_client.clone(),
            binding: PendingBinding {
                first_challenge_sequence: sequence,
                client_id: token.client_id,
            },
            timeout_seconds: token.timeout_seconds,
            expire_ns,
            since_ns: turn.now.mono_ns,
            token_mac: mac,
            session: None,
        };
        match self.pending.find(origin.hash, &origin.address) {
            Some(index) => {
                let known = self.pending.at_mut(index);
                if known.token_mac == mac && known.expire_ns >= turn.now.mono_ns {
                    known.expire_ns = expire_ns;
                    // Where it was denied before, it begins again.
                    let first = &mut known.binding.first_challenge_sequence;
                    *first = sequence.min(*first);
                } else {
                    *known = fresh;
                }
            }
            None => {
                let (now_ns, forwarded) = (turn.now.mono_ns, origin.forwarded_by.is_some());
                let begun = self.pending.begin(origin.address, fresh, now_ns, forwarded);
                begun.map_err(|why| why.reason(DropReason::PendingFull))?;
                turn.common.newcomers.handshakes.enter(&origin.address.block());
            }
        }
        self.challenge_sequence += 1;
        let body = self.challenge_body(turn, sequence, token);
        let packet = (PacketKind::Challenge, &body[..]);
        let listener = origin.address.listener;
        self.emit_handshake(turn, listener, &token.server_to_client, packet, origin.target());
        turn.common.trace(&origin.address, Some(token.client_id), Fact::Challenged);
        Ok(())
    }

    fn challenge_body(
        &mut self,
        turn: &mut Turn<'_>,
        sequence: u64,
        token: &PrivateToken,
    ) -> [u8; CHALLENGE_BODY_BYTES] {
        let mut body = [0; CHALLENGE_BODY_BYTES];
        let sealed = encode_body(sequence, &mut body);
        ChallengeToken { client_id: token.client_id, user_data: token.user_data }.encode(sealed);
        turn.common.aead.seal(&mut [Job::new(&self.challenge_key, nonce(sequence), &[], sealed)]);
        body
    }

    /// A packet from a player in the handshake.
    pub(crate) fn step_pending(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Pending>,
        origin: &Origin,
        header: Header,
        verdict: Verdict,
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        if verdict != Verdict::Done {
            return Err(DropReason::PacketForged);
        }
        if !self.pending.is_live(index) {
            // A response earlier in this turn was refused.
            return Err(DropReason::PacketUnexpected);
        }
        if self.pending.at(index).expire_ns < turn.now.mono_ns {
            self.forget_pending(turn, index);
            return Err(DropReason::UnknownSource);
        }
        let body_end = bytes.len() - TAG_BYTES;
        let (sequence, sealed) =
            pending_packet(header.kind, &mut bytes[header.body_start()..body_end])?;
        let mut jobs = [Job::new(&self.challenge_key, nonce(sequence), &[], &mut sealed[..])];
        turn.common.aead.open(&mut jobs);
        if jobs[0].verdict != Verdict::Done {
            return Err(DropReason::ChallengeForged);
        }
        let challenge = ChallengeToken::decode(sealed);
        let binding = self.pending.at(index).binding;
        binding.check(sequence, challenge.client_id).map_err(|why| {
            // Who was denied has said this before it heard so, and has gone on; or has not heard.
            let was_denied = binding.first_challenge_sequence == DENIED;
            if was_denied { self.deny_pending(turn, index, origin, why) } else { why }
        })?;
        self.connect(turn, index, origin, header.sequence, &challenge)?;
        turn.common.counters.handled[PacketKind::Response as usize] += 1;
        Ok(())
    }

    /// The player has proved its address: claim what it needs, or deny it.
    fn connect(
        &mut self,
        turn: &mut Turn<'_>,
        pending: Entry<Pending>,
        origin: &Origin,
        response_sequence: u64,
        challenge: &ChallengeToken,
    ) -> Result<(), DropReason> {
        let listener = origin.address.listener;
        turn.common.trace_player(&origin.address, challenge.client_id);
        let mut rival = None;
        if turn.common.claims.is_connected(listener, challenge.client_id) {
            let mac = &self.pending.at(pending).token_mac;
            rival = turn.common.claims.seated(listener, challenge.client_id);
            rival = rival.filter(|it| !it.is_by(mac) && unique_in(turn, listener).is_none());
            if rival.is_none() {
                return Err(DropReason::ResponseClientConnected);
            }
        }
        if turn.common.setup.denied.holds_client(challenge.client_id) {
            // Since it was challenged.
            return Err(self.deny_pending(turn, pending, origin, DropReason::ClientDenied));
        }
        if !self.sessions.has_rested_place(turn.now.mono_ns) {
            // Before the claim, which would use up a session of the token.
            return Err(self.deny_pending(turn, pending, origin, DropReason::PlacesResting));
        }
        let random = self.random.next();
        let (client_id, user_data) = (challenge.client_id, &challenge.user_data);
        let claimed = room_for(turn, listener, client_id, user_data, rival.is_some())
            .map_err(NoRoom::at_response)
            .and_then(|backend| {
                if let Some(seated) = &rival {
                    // The client answers again, when another worker has ended the session.
                    self.yields(turn, origin, seated, backend)?;
                }
                turn.common.claims.connect(&Wanted {
                    listener: origin.address.listener,
                    client_id: challenge.client_id,
                    backend,
                    sessions_max: turn.common.setup.listeners[listener].sessions_max,
                    source: origin.address.endpoint,
                    limits: turn.common.limits(origin.address.listener),
                    token_mac: &self.pending.at(pending).token_mac,
                    allows_reuse: allows_token_reuse(turn, listener),
                    random,
                })
            });
        let (claim, next_sequence) = match claimed {
            Ok(claimed) => claimed,
            Err(why @ (DropReason::ResponseClientConnected | DropReason::BackendStarting)) => {
                return Err(why);
            }
            Err(why) => return Err(self.deny_pending(turn, pending, origin, why)),
        };
        // A client numbers all its packets in one row. So whatever comes before the response
        // belongs to an earlier session of the same token: late, or recorded and sent again.
        let first_sequence = response_sequence.saturating_add(1);
        let window = Window::closed_before(first_sequence);
        let claimed = (claim, next_sequence);
        let session = self.new_session(turn, pending, origin, claimed, window);
        let since_ns = self.pending.at(pending).since_ns;
        let Ok(index) = self.sessions.insert(origin.address, session, turn.now.mono_ns) else {
            turn.common.claims.leave(&claim);
            let why = DropReason::ResponseSessionsFull;
            return Err(self.deny_pending(turn, pending, origin, why));
        };
        self.forget_pending(turn, pending);
        self.pending.at_mut(pending).session = Some(index);
        let link = &turn.common.setup.backends[claim.backend].link;
        if matches!(link, LinkKind::Bundle { .. }) || turn.common.claims.tells_joins() {
            self.user_data.keep(index, &challenge.user_data);
        }
        let token = self.pending.at(pending).token_mac;
        self.begin_in_cluster(turn, index, &token);
        self.open_connection(turn, index);
        self.note_unique(turn, index);
        let id = self.sessions.id(index);
        turn.common.claims.seat(listener, claim.client_id, (id, false));
        self.note_began(turn, index, since_ns);
        self.welcome(turn, index);
        Ok(())
    }

    fn new_session(
        &self,
        turn: &Turn<'_>,
        pending: Entry<Pending>,
        origin: &Origin,
        (claim, next_sequence): (Claim, SessionSequence),
        window: Window,
    ) -> Session {
        let pending = self.pending.at(pending);
        let timeout_s = u64::try_from(pending.timeout_seconds).unwrap_or(0);
        let beginning = Beginning {
            claim,
            open_key: pending.open_key.clone(),
            seal_key: pending.seal_key.clone(),
            window,
            next_sequence,
            timeout_ms: u32::try_from(timeout_s * MS_PER_S).unwrap_or(u32::MAX),
        };
        Session::new(beginning, origin.socket, origin.local, turn.now.mono_ns)
    }

    /// Tells the player and its backend about a new session, lists it under its address where it
    /// follows port switches, and starts its timer.
    fn welcome(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let address = *self.sessions.address(index);
        if turn.common.setup.listeners[address.listener].follow_port_switch {
            self.make_resident(turn, index);
        }
        if !self.lacks_socket(turn, index) {
            self.emit_keep_alive(turn, index);
        }
        self.announce(turn, index);
        self.arm(turn, index);
    }

    /// Gives back what a session holds and takes it out of the table.
    pub(crate) fn drop_session(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, why: Ended) {
        let address = *self.sessions.address(index);
        let policy = &self.listeners[address.listener].replay;
        let sequence = self.sessions.at(index).window.latest(policy).unwrap_or(0);
        // Of a session that goes on elsewhere, what still comes is no straggler.
        let is_over = why != Ended::Fenced;
        if is_over {
            self.departed.leave(self.sessions.hash(&address), sequence, turn.now.mono_ns);
        }
        self.end_clustered(turn.common, index, why);
        let session = self.sessions.at_mut(index);
        turn.common.trace_end(&address, Some(session.client_id), why);
        turn.common.claims.leave_from(&session.claim(&address), &address.endpoint);
        let (uplink, steered_by) = (session.set_uplink(None), session.steered_by.take());
        if let Some(socket) = uplink {
            turn.common.close_socket(socket);
        }
        if let Some(worker) = steered_by {
            turn.common.unsteer(worker.worker(), address, is_over.then_some(sequence));
        }
        self.port_switches.residents.leave(turn.common.claims.homes(), index);
        self.user_data.forget(index);
        self.connections.close(index);
        if let Some(players) = &turn.common.setup.fleet_players {
            players.ended(self.sessions.id(index));
        }
        if !turn.common.moves.is_empty() {
            turn.end_move(self.sessions.id(index));
        }
        self.sessions.remove(index);
        turn.common.sealing.expire();
        turn.common.counters.sessions_closed[why as usize] += 1;
    }

    /// Has the fleet told of a player who may be in one place of it only.
    fn note_unique(&self, turn: &Turn<'_>, index: Entry<Session>) {
        let listener = self.sessions.address(index).listener;
        let client_id = self.sessions.at(index).client_id;
        let players = turn.common.setup.fleet_players.as_ref();
        if let Some((players, group)) = players.zip(unique_in(turn, listener)) {
            let term = self.sessions.clusters.get(index);
            let term = term.map_or(0, |it| it.tenure.term.get());
            players.began((group, client_id), self.sessions.id(index), (turn.now, term));
        }
    }

    /// Tells who has a token that it is not let in, and why that is. Its client gives up or goes on
    /// to another gateway when it hears it, and says no goodbye: no challenge of the handshake that
    /// it is in may be answered any more.
    fn deny(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        (key, mac): (&Key, &TokenMac),
        why: DropReason,
    ) -> DropReason {
        let found = self.pending.find(origin.hash, &origin.address);
        // Whoever has another token can write this address on its request.
        if let Some(pending) = found.filter(|it| self.pending.at(*it).token_mac == *mac) {
            self.pending.at_mut(pending).binding.first_challenge_sequence = DENIED;
            if matches!(why, DropReason::ClientDenied | DropReason::TokenSpent) {
                self.forget_pending(turn, pending);
            }
        }
        turn.common.trace(&origin.address, None, Fact::Denied);
        let packet = (PacketKind::Denied, &[][..]);
        self.emit_handshake(turn, origin.address.listener, key, packet, origin.target());
        why
    }

    /// The same of one in a handshake.
    fn deny_pending(
        &mut self,
        turn: &mut Turn<'_>,
        pending: Entry<Pending>,
        origin: &Origin,
        why: DropReason,
    ) -> DropReason {
        let Pending { seal_key, token_mac, .. } = self.pending.at(pending);
        let (key, mac) = (seal_key.clone(), *token_mac);
        self.deny(turn, origin, (&key, &mac), why)
    }
}

/// Tries a token under the keys that are being rotated out. Returns which one opens it.
fn open_with_older_keys(
    turn: &mut Turn<'_>,
    listener: ListenerId,
    parts: &mut RequestParts<'_>,
) -> Option<usize> {
    let rules = turn.common.setup.listeners[listener].netcode();
    let keys = rules.iter().flat_map(|rules| &rules.keys).enumerate();
    for (age, key) in keys.skip(1) {
        let (subkey, token_nonce) = token::derive(key, parts.nonce);
        let mut jobs = [Job::new(&subkey, token_nonce, parts.aad, &mut parts.private[..])];
        turn.common.aead.open(&mut jobs);
        if jobs[0].verdict == Verdict::Done {
            return Some(age);
        }
    }
    None
}

pub(super) fn allows_token_reuse(turn: &Turn<'_>, listener: ListenerId) -> bool {
    let rules = turn.common.setup.listeners[listener].netcode();
    rules.is_some_and(|rules| rules.token_reuse == TokenReuse::Allow)
}

/// The backend for a player, and whether there is room; who replaces a session has its room.
fn room_for(
    turn: &Turn<'_>,
    listener: ListenerId,
    client_id: u64,
    user_data: &UserData,
    replaces: bool,
) -> Result<BackendId, NoRoom> {
    let is_open = |backend| turn.common.speaks_for(listener, backend);
    if replaces {
        turn.common.find_backend(listener, client_id, user_data, is_open)
    } else {
        turn.common.find_room(listener, client_id, user_data, is_open)
    }
}

/// The group in which nobody else may have the id of a player of this listener.
pub(super) fn unique_in<'t>(turn: &'t Turn<'_>, listener: ListenerId) -> Option<&'t Arc<str>> {
    turn.common.setup.listeners[listener].netcode()?.unique_in.as_ref()
}

/// Has the session end that is in the way of a newer login, where that one wins.
fn oust_older(turn: &Turn<'_>, listener: ListenerId, client_id: u64) {
    let players = turn.common.setup.fleet_players.as_ref();
    if let Some((players, group)) = players.zip(unique_in(turn, listener)) {
        players.oust_older(group, client_id);
    }
}

/// The first challenge of a handshake that may be answered, where none may: there is none with this
/// number.
const DENIED: u64 = u64::MAX;

const NS_PER_S: u64 = 1_000_000_000;
const MS_PER_S: u64 = 1000;
