//! The engine's client side of the handshake as a state machine: no socket, no clock, no randomness
//! of its own.
//!
//! It asks, answers the challenge, and is in when the server acknowledges; the acknowledgement's
//! cookie is the connection's. Until then it answers every challenge that comes, as engines do: two
//! requests that both arrive make two answers. Whatever is not answered is repeated each second,
//! and a challenge that is not acknowledged is replaced after 15 seconds. A server that no longer
//! knows the client's address asks it to restart: then it does the same again and hands in the
//! connection's cookie, and the connection goes on. To be asked is cheap to forge, so a client
//! follows only under the conditions of [`Client::may_restart`].
//!
//! The caller owns time and transport: [`Client::handle_datagram`] for what arrives, then
//! [`Client::poll_transmit`] until it returns `None`, and again when [`Client::poll_timeout`] says
//! so. It never gives up by itself. Game packets are recognised and counted as signs of life; their
//! header is for the caller.

use super::cookie::{Cookie, Proof};
use super::handshake::{Base, Body, Handshake, Receiver, Tail};
use super::prefix::{Framing, Ids, Layout, Magic, Prefix};
use super::timing::{COOKIE_LIFETIME_NS_MIN, NS_PER_S, RESEND_INTERVAL_NS};
use crate::drops::DropReason;

/// What a client says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How the game's packets begin.
    pub framing: Framing,
    /// The number of this connection among those of the same client.
    pub client_id: u8,
    /// Versions and build. Its counter is not used.
    pub base: Base,
}

impl Profile {
    /// What an engine says whose handshake has this version, and whose build is `network_version`.
    /// One without network features has the short base.
    pub fn of_engine(magic: Magic, version: u8, is_short: bool, network_version: u32) -> Self {
        let (layout, version_min) = match version {
            0 => (Layout::Original, 0),
            1 | 2 => (Layout::Early, 1),
            _ => (Layout::Versioned, 3),
        };
        let layout = if is_short { layout.short() } else { layout };
        let base = Base { version_min, version, network_version, ..Base::default() };
        Self { framing: Framing { magic, layout }, client_id: 0, base }
    }
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asking to be let in, or back in.
    SendingInitial,
    /// Answering the challenge.
    SendingResponse,
    /// In. Nothing is sent.
    Connected,
    /// The server does not speak the client's version. Final.
    WrongVersion,
}

/// What came of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server asks for a proof; the answer is due.
    Challenged,
    /// The server took the client in; both sides begin with the sequences of this cookie.
    Connected(Cookie),
    /// A game packet of the connection.
    Game,
    /// The server knows the client's new address; the connection goes on.
    Reconnected,
    /// The server does not know the client's address; the handshake begins again.
    Restarting,
    /// It is over.
    WrongVersion,
}

/// One player's side of the handshake.
#[derive(Clone, Debug)]
pub struct Client {
    framing: Framing,
    base: Base,
    /// The session number is the server's, from its first challenge on.
    ids: Ids,
    state: State,
    /// The challenge to answer, and when it came. Invariant: there while responding.
    challenge: Option<(Proof, u64)>,
    /// The cookie of the connection, from its first acknowledgement on; while there is one, a
    /// handshake is a restart.
    authorised: Option<Cookie>,
    due_ns: u64,
    sent_ns: u64,
    asked_to_restart_ns: Option<u64>,
    heard_game_ns: u64,
}

impl Client {
    /// A client that asks at its first [`poll_transmit`](Self::poll_transmit).
    pub fn new(profile: &Profile, now_ns: u64) -> Self {
        Self {
            framing: profile.framing,
            base: Base { sent_count: 0, ..profile.base },
            ids: profile.framing.layout.ids(0, profile.client_id),
            state: State::SendingInitial,
            challenge: None,
            authorised: None,
            due_ns: now_ns,
            sent_ns: now_ns,
            asked_to_restart_ns: None,
            heard_game_ns: now_ns,
        }
    }

    /// Where the client stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// What the client's game packets begin with.
    pub const fn ids(&self) -> Ids {
        self.ids
    }

    /// The cookie of the connection, once there is one.
    pub const fn cookie(&self) -> Option<&Cookie> {
        self.authorised.as_ref()
    }

    /// Takes a datagram from the server.
    pub fn handle_datagram(&mut self, now_ns: u64, datagram: &[u8]) -> Result<Event, DropReason> {
        let (prefix, reader) = self.framing.read(datagram)?;
        if !prefix.is_handshake {
            return self.handle_game(now_ns, prefix);
        }
        let packet = Handshake::decode(&self.framing, prefix, reader, Receiver::Client)?;
        self.check_ids(&packet)?;
        match (packet.body, self.state) {
            (Body::Challenge(proof), State::SendingInitial | State::SendingResponse) => {
                self.handle_challenge(now_ns, packet.ids, proof)
            }
            (Body::Ack(cookie), State::SendingResponse) => Ok(self.handle_ack(cookie)),
            (Body::RestartRequest, State::Connected) => self.handle_restart_request(now_ns),
            (Body::VersionUpgrade, State::SendingInitial | State::SendingResponse)
                if self.authorised.is_none() =>
            {
                self.state = State::WrongVersion;
                Ok(Event::WrongVersion)
            }
            _ => Err(DropReason::PacketUnexpected),
        }
    }

    /// When [`poll_transmit`](Self::poll_transmit) will next have something to send, if nothing
    /// arrives before.
    pub const fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::SendingInitial | State::SendingResponse => Some(self.due_ns),
            State::Connected | State::WrongVersion => None,
        }
    }

    /// Writes the datagram that is due, if one is, and returns its length.
    ///
    /// # Panics
    /// Where the buffer is shorter than
    /// [`HANDSHAKE_BYTES_MAX`](super::handshake::HANDSHAKE_BYTES_MAX).
    pub fn poll_transmit(&mut self, now_ns: u64, tail: &Tail, out: &mut [u8]) -> Option<usize> {
        if self.poll_timeout().is_none_or(|due_ns| now_ns < due_ns) {
            return None;
        }
        let body = self.next_body(now_ns);
        self.base.sent_count = self.base.sent_count.wrapping_add(1);
        self.sent_ns = now_ns;
        self.due_ns = now_ns.saturating_add(RESEND_INTERVAL_NS);
        let packet = Handshake { ids: self.ids, base: self.base, body };
        Some(packet.encode(&self.framing, tail, out))
    }

    /// Whether a request to restart would be followed now.
    ///
    /// A client in the middle of a connection gives nothing on a single packet that anybody can
    /// forge: its last handshake packet is more than 10 seconds old, and unless this is the first
    /// request, either the previous one is more than 1.1 seconds old or the game has been silent
    /// for more than a second.
    pub fn may_restart(&self, now_ns: u64) -> bool {
        let since = |then_ns| now_ns.saturating_sub(then_ns);
        self.state == State::Connected
            && since(self.sent_ns) > RESTART_PAUSE_NS
            && (self.asked_to_restart_ns.is_none_or(|asked_ns| since(asked_ns) > ASKED_PAUSE_NS)
                || since(self.heard_game_ns) > SILENCE_NS)
    }

    fn handle_game(&mut self, now_ns: u64, prefix: Prefix) -> Result<Event, DropReason> {
        if self.authorised.is_none() {
            return Err(DropReason::PacketUnexpected);
        }
        if prefix.ids != self.ids {
            return Err(DropReason::UnrealIds);
        }
        self.heard_game_ns = now_ns;
        Ok(Event::Game)
    }

    /// A server that is met for the first time may have any session number, and says it with its
    /// challenge.
    fn check_ids(&self, packet: &Handshake) -> Result<(), DropReason> {
        let introduces = matches!(packet.body, Body::Challenge(_)) && self.authorised.is_none()
            || matches!(packet.body, Body::VersionUpgrade);
        let is_own = packet.ids.client() == self.ids.client()
            && (introduces || packet.ids.session() == self.ids.session());
        if is_own { Ok(()) } else { Err(DropReason::UnrealIds) }
    }

    fn handle_challenge(
        &mut self,
        now_ns: u64,
        ids: Ids,
        proof: Proof,
    ) -> Result<Event, DropReason> {
        // A time of zero or below is what other types say.
        if proof.timestamp.seconds().is_nan() || proof.timestamp.seconds() <= 0.0 {
            return Err(DropReason::PacketUnexpected);
        }
        self.ids = ids;
        self.challenge = Some((proof, now_ns));
        self.state = State::SendingResponse;
        self.due_ns = now_ns;
        Ok(Event::Challenged)
    }

    fn handle_ack(&mut self, cookie: Cookie) -> Event {
        self.state = State::Connected;
        self.challenge = None;
        match self.authorised.replace(cookie) {
            None => Event::Connected(cookie),
            Some(_) => Event::Reconnected,
        }
    }

    fn handle_restart_request(&mut self, now_ns: u64) -> Result<Event, DropReason> {
        let may_restart = self.may_restart(now_ns);
        self.asked_to_restart_ns = Some(now_ns);
        if !may_restart {
            return Err(DropReason::RestartRateLimited);
        }
        self.state = State::SendingInitial;
        self.due_ns = now_ns;
        Ok(Event::Restarting)
    }

    /// What the client has to send. A challenge answered in vain for too long is forgotten.
    fn next_body(&mut self, now_ns: u64) -> Body {
        let is_fresh = |asked_ns: u64| now_ns.saturating_sub(asked_ns) <= COOKIE_LIFETIME_NS_MIN;
        match (self.challenge.filter(|(_, asked_ns)| is_fresh(*asked_ns)), self.authorised) {
            (None, authorised) => {
                self.challenge = None;
                self.state = State::SendingInitial;
                Body::Initial { is_restart: authorised.is_some() }
            }
            (Some((proof, _)), None) => Body::Response(proof),
            (Some((proof, _)), Some(original)) => Body::RestartResponse { proof, original },
        }
    }
}

crate::carried!(Client {
    framing,
    base,
    ids,
    state,
    challenge,
    authorised,
    due_ns as time,
    sent_ns as time,
    asked_to_restart_ns as maybe_time,
    heard_game_ns as time,
});
crate::carried_by_number!(State {
    SendingInitial = 0,
    SendingResponse = 1,
    Connected = 2,
    WrongVersion = 3,
});

/// No restart earlier than this after the last handshake packet.
const RESTART_PAUSE_NS: u64 = 10 * NS_PER_S;

/// Requests to restart that come faster than this one after the other need another reason.
const ASKED_PAUSE_NS: u64 = 1_100_000_000;

/// The other reason: the game has been silent for longer than this.
const SILENCE_NS: u64 = NS_PER_S;

#[cfg(test)]
mod tests;
