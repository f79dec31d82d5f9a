//! The client as a state machine: no socket, no clock, no cipher.
//!
//! It behaves as the reference's client does, which games ship: ten states, ten packets a second
//! while nothing else leaves, the next server of the token when one denies, falls silent or says
//! goodbye. The caller owns time and transport:
//!
//! 1. A datagram arrived: [`Client::handle_datagram`] says whether and how to open it and changes
//!    nothing. Open it with [`Client::open_key`], then [`Client::handle_opened`] moves the state.
//!    Several datagrams may be opened in one batch.
//! 2. Time passed: [`Client::handle_timeout`].
//! 3. After either, [`Client::poll_transmit`] until it returns `None`; seal what it says with
//!    [`Client::seal_key`].
//! 4. [`Client::poll_timeout`] says when to come back.
//!
//! A connected client with no further server to try is 328 bytes and owns no heap memory (one that
//! is connecting owns 1.5 KB more), so one process can hold a hundred thousand. From which address
//! the client sends is the caller's business; it may change at any time.

use std::ops::Range;

use super::challenge::CHALLENGE_BODY_BYTES;
use super::packet::{Header, KeepAlive, PacketKind, Receiver, encode_packet};
use super::request::{REQUEST_BYTES, encode_request};
use super::timing::{DISCONNECT_COUNT, SEND_INTERVAL_NS, Timeout, seconds_to_ns};
use super::token::ConnectToken;
use crate::drops::DropReason;
use crate::endpoint::Endpoint;
use crate::limits::{PAYLOAD_BYTES_MAX, TAG_BYTES};
use crate::proto::replay::{Policy, Window};
use crate::secret::Key;

/// Where a client stands, with the reference's numbers. What is 0 or below is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum State {
    /// The token's lifetime passed before a server took the client in.
    TokenExpired = -6,
    /// The token contradicts itself.
    InvalidToken = -5,
    /// Nothing was heard from the server for the token's timeout.
    ConnectionTimedOut = -4,
    /// No server took the challenge's answer.
    ResponseTimedOut = -3,
    /// No server answered the request.
    RequestTimedOut = -2,
    /// Every server was full.
    Denied = -1,
    /// Either side said goodbye.
    Disconnected = 0,
    /// Asking to be let in.
    SendingRequest = 1,
    /// Answering the challenge.
    SendingResponse = 2,
    /// In.
    Connected = 3,
}

impl State {
    /// Whether the client has ended and will not send or take anything but its goodbye.
    #[inline]
    pub const fn is_closed(self) -> bool {
        (self as i8) <= Self::Disconnected as i8
    }

    /// A few words for tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenExpired => "connect token expired",
            Self::InvalidToken => "invalid connect token",
            Self::ConnectionTimedOut => "connection timed out",
            Self::ResponseTimedOut => "response timed out",
            Self::RequestTimedOut => "request timed out",
            Self::Denied => "denied",
            Self::Disconnected => "disconnected",
            Self::SendingRequest => "sending request",
            Self::SendingResponse => "sending response",
            Self::Connected => "connected",
        }
    }
}

/// Where a client may deviate from the reference. The default does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The first sequence number. Starting at random keeps nonces apart when a token is used twice;
    /// servers take any start, but packets grow by the bytes that the number needs.
    pub first_sequence: u64,
    /// Answers a challenge when it arrives, not at the next of the ten slots per second.
    pub answers_at_once: bool,
}

/// What the caller may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is over; [`Client::state`] says why.
    Closed,
    /// A server took the client in.
    Connected(KeepAlive),
    /// The server did not take or keep the client; it turns to the token's next one.
    NextServer,
    /// The opened body is a payload for the game.
    Payload,
}

/// A datagram that is worth opening.
#[derive(Clone, Copy, Debug)]
pub struct OpenWork {
    /// Gives the nonce and the prefix of the associated data.
    pub header: Header,
    packet_bytes: u16,
    attempt: u8,
}

impl OpenWork {
    /// Where body and tag lie in the datagram.
    #[inline]
    pub const fn sealed(&self) -> Range<usize> {
        self.header.body_start()..self.packet_bytes as usize
    }

    /// Where the body lies in the datagram.
    #[inline]
    pub const fn body(&self) -> Range<usize> {
        self.header.body_start()..self.packet_bytes as usize - TAG_BYTES
    }
}

/// A datagram that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The server.
    pub to: Endpoint,
    /// How many bytes of the buffer, tag included.
    pub len: usize,
    /// Gives the nonce and the prefix of the associated data; `None` where nothing is to be sealed
    /// (a request).
    pub seal: Option<Header>,
}

impl Transmit {
    /// Where body and tag lie in the buffer; empty where nothing is to be sealed.
    #[inline]
    pub fn sealed(&self) -> Range<usize> {
        self.seal.map_or(self.len, |header| header.body_start())..self.len
    }
}

/// One player's end of a connection.
#[derive(Debug)]
pub struct Client {
    window: Window,
    open_key: Key,
    seal_key: Key,
    server: Endpoint,
    state: State,
    disconnects_owed: u8,
    /// Which of the token's addresses `server` is.
    attempt: u8,
    options: Options,
    timeout: Timeout,
    protocol_id: u64,
    next_sequence: u64,
    heard_ns: u64,
    send_due_ns: u64,
    /// After how much silence of its own a client that is in sends a keep-alive.
    keep_alive_ns: u64,
    /// Invariant: there while connecting, and afterwards as long as the token names another server
    /// to turn to.
    handshake: Option<Box<Handshake>>,
}

/// What is needed only until the last server of the token has taken the client in.
#[derive(Debug)]
struct Handshake {
    servers: Box<[Endpoint]>,
    token_lifetime_ns: u64,
    started_ns: u64,
    request: [u8; REQUEST_BYTES],
    challenge: [u8; CHALLENGE_BODY_BYTES],
}

impl Handshake {
    /// `None` where the token contradicts itself.
    fn new(token: &ConnectToken, now_ns: u64) -> Option<Box<Self>> {
        let lifetime_s = token.expire_unix_s.checked_sub(token.create_unix_s)?;
        let mut request = [0; REQUEST_BYTES];
        encode_request(token, &mut request);
        Some(Box::new(Self {
            servers: token.addresses.iter().copied().map(Endpoint::from).collect(),
            token_lifetime_ns: seconds_to_ns(lifetime_s),
            started_ns: now_ns,
            request,
            challenge: [0; CHALLENGE_BODY_BYTES],
        }))
    }
}

impl Client {
    /// A client that will ask the token's first server at its first
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn new(token: &ConnectToken, now_ns: u64, options: Options) -> Self {
        let handshake = Handshake::new(token, now_ns);
        let is_valid = handshake.is_some();
        Self {
            window: Window::new(),
            open_key: token.server_to_client.clone(),
            seal_key: token.client_to_server.clone(),
            server: token.addresses[0].into(),
            state: if is_valid { State::SendingRequest } else { State::InvalidToken },
            disconnects_owed: 0,
            attempt: 0,
            options,
            timeout: Timeout::from_seconds(token.timeout_seconds),
            protocol_id: token.protocol_id,
            next_sequence: options.first_sequence,
            heard_ns: now_ns,
            send_due_ns: now_ns,
            keep_alive_ns: SEND_INTERVAL_NS,
            handshake,
        }
    }

    /// Where the client stands.
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The server that the client talks to, or last talked to.
    #[inline]
    pub const fn server(&self) -> Endpoint {
        self.server
    }

    /// The protocol id, which the associated data of every packet contains.
    #[inline]
    pub const fn protocol_id(&self) -> u64 {
        self.protocol_id
    }

    /// Which of the token's addresses that is, from 0.
    #[inline]
    pub const fn address_index(&self) -> usize {
        self.attempt as usize
    }

    /// The key that opens what the server sends.
    #[inline]
    pub const fn open_key(&self) -> &Key {
        &self.open_key
    }

    /// The key that seals what the client sends.
    #[inline]
    pub const fn seal_key(&self) -> &Key {
        &self.seal_key
    }

    /// Decides whether a datagram is worth opening. Changes nothing, so no one can harm the client
    /// by forging one.
    #[inline]
    pub fn handle_datagram(&self, from: Endpoint, datagram: &[u8]) -> Result<OpenWork, DropReason> {
        if from != self.server || self.state.is_closed() {
            return Err(DropReason::UnknownSource);
        }
        let header = Header::decode(datagram, Receiver::Client)?;
        if header.kind.is_replay_protected() {
            self.window.check(header.sequence, &Policy::NETCODE)?;
        }
        Ok(OpenWork { header, packet_bytes: datagram.len() as u16, attempt: self.attempt })
    }

    /// Takes in an authentic packet; `body` is without the tag.
    pub fn handle_opened(
        &mut self,
        now_ns: u64,
        work: &OpenWork,
        body: &[u8],
    ) -> Result<Option<Event>, DropReason> {
        if work.attempt != self.attempt || self.state.is_closed() {
            // A packet opened in the same batch has ended this attempt.
            return Err(DropReason::UnknownSource);
        }
        let kind = work.header.kind;
        if kind.is_replay_protected() {
            self.window.commit(work.header.sequence, &Policy::NETCODE)?;
        }
        kind.check_body(body.len())?;
        let event = self.step(now_ns, kind, body)?;
        if self.attempt == work.attempt {
            self.heard_ns = now_ns;
        }
        Ok(event)
    }

    /// Ends an attempt or the connection whose time is up.
    pub fn handle_timeout(&mut self, now_ns: u64) -> Option<Event> {
        if self.token_deadline_ns().is_some_and(|deadline| now_ns >= deadline) {
            return Some(self.close(State::TokenExpired));
        }
        if self.silence_deadline_ns().is_none_or(|deadline| now_ns <= deadline) {
            return None;
        }
        match self.state {
            State::SendingRequest => Some(self.try_next_server(now_ns, State::RequestTimedOut)),
            State::SendingResponse => Some(self.try_next_server(now_ns, State::ResponseTimedOut)),
            State::Connected => Some(self.close(State::ConnectionTimedOut)),
            _ => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_transmit`](Self::poll_transmit) will
    /// next have something to do, if nothing arrives before. An instant that has passed means at
    /// once.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.disconnects_owed > 0 {
            return Some(0);
        }
        if self.state.is_closed() {
            return None;
        }
        let silence = self.silence_deadline_ns().map(|deadline| deadline.saturating_add(1));
        let deadlines = [silence, self.token_deadline_ns()];
        Some(deadlines.into_iter().flatten().fold(self.send_due_ns, u64::min))
    }

    /// Writes the next datagram that is due, if one is.
    ///
    /// # Panics
    /// Where `out` is shorter than [`DATAGRAM_BYTES_MAX`](crate::limits::DATAGRAM_BYTES_MAX).
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<Transmit> {
        if self.disconnects_owed > 0 {
            self.disconnects_owed -= 1;
            return self.write(now_ns, PacketKind::Disconnect, &[], out);
        }
        if now_ns < self.send_due_ns {
            return None;
        }
        match self.state {
            State::SendingRequest => self.write_request(now_ns, out),
            State::SendingResponse => {
                let body = self.handshake.as_ref()?.challenge;
                self.write(now_ns, PacketKind::Response, &body, out)
            }
            State::Connected => {
                let body = KeepAlive::default().encode();
                self.write(now_ns, PacketKind::KeepAlive, &body, out)
            }
            _ => None,
        }
    }

    /// Writes a payload packet.
    ///
    /// # Panics
    /// As [`poll_transmit`](Self::poll_transmit).
    #[inline]
    pub fn write_payload(
        &mut self,
        now_ns: u64,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<Transmit, DropReason> {
        if self.state != State::Connected {
            return Err(DropReason::SessionUnknown);
        }
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(DropReason::PayloadLength);
        }
        self.write(now_ns, PacketKind::Payload, payload, out).ok_or(DropReason::SequenceExhausted)
    }

    /// Has a client that is in send keep-alives after so much silence of its own, from its next
    /// packet on, but no less often than four times in the token's timeout. The reference sends ten
    /// a second; so does a client that has not heard of anything else from its present server.
    pub fn set_keep_alive(&mut self, keep_alive_ns: u64) {
        if self.state == State::Connected {
            let timeout_ns = self.timeout.session_deadline_ns(0).unwrap_or(u64::MAX);
            self.keep_alive_ns = keep_alive_ns.min(timeout_ns / KEEP_ALIVES_PER_TIMEOUT);
        }
    }

    /// Leaves. The goodbye, ten times over, comes out of [`poll_transmit`](Self::poll_transmit).
    pub fn disconnect(&mut self) {
        if !self.state.is_closed() {
            self.close(State::Disconnected);
            self.disconnects_owed = DISCONNECT_COUNT;
        }
    }

    fn step(
        &mut self,
        now_ns: u64,
        kind: PacketKind,
        body: &[u8],
    ) -> Result<Option<Event>, DropReason> {
        match (kind, self.state) {
            (PacketKind::Payload, State::Connected) => Ok(Some(Event::Payload)),
            (PacketKind::KeepAlive, State::Connected) => Ok(None),
            (PacketKind::KeepAlive, State::SendingResponse) => {
                let keep_alive = KeepAlive::decode(body)?;
                self.state = State::Connected;
                if self.next_address().is_none() {
                    self.handshake = None;
                }
                Ok(Some(Event::Connected(keep_alive)))
            }
            (PacketKind::Challenge, State::SendingRequest) => {
                let handshake = self.handshake.as_mut().ok_or(DropReason::PacketUnexpected)?;
                handshake.challenge.copy_from_slice(body);
                self.state = State::SendingResponse;
                if self.options.answers_at_once {
                    self.send_due_ns = now_ns;
                }
                Ok(None)
            }
            (PacketKind::Denied, State::SendingRequest | State::SendingResponse) => {
                Ok(Some(self.try_next_server(now_ns, State::Denied)))
            }
            (PacketKind::Disconnect, State::Connected) => {
                Ok(Some(self.try_next_server(now_ns, State::Disconnected)))
            }
            _ => Err(DropReason::PacketUnexpected),
        }
    }

    fn try_next_server(&mut self, now_ns: u64, otherwise: State) -> Event {
        let Some(address) = self.next_address() else { return self.close(otherwise) };
        self.server = address;
        self.attempt += 1;
        self.state = State::SendingRequest;
        self.window = Window::new();
        self.heard_ns = now_ns;
        self.send_due_ns = now_ns;
        self.keep_alive_ns = SEND_INTERVAL_NS;
        if let Some(handshake) = &mut self.handshake {
            handshake.started_ns = now_ns;
        }
        Event::NextServer
    }

    fn next_address(&self) -> Option<Endpoint> {
        self.handshake.as_ref()?.servers.get(usize::from(self.attempt) + 1).copied()
    }

    fn close(&mut self, state: State) -> Event {
        self.state = state;
        self.handshake = None;
        Event::Closed
    }

    /// The last instant at which silence is forgiven.
    fn silence_deadline_ns(&self) -> Option<u64> {
        self.timeout.session_deadline_ns(self.heard_ns)
    }

    /// When the token is too old to go on connecting. Its lifetime counts from the start of each
    /// attempt, so that the clocks of client and token service need not agree; a running connection
    /// outlives it.
    fn token_deadline_ns(&self) -> Option<u64> {
        if self.state == State::Connected {
            return None;
        }
        let handshake = self.handshake.as_ref()?;
        Some(handshake.started_ns.saturating_add(handshake.token_lifetime_ns))
    }

    /// A request carries no sequence number but spends one, as in the reference.
    fn write_request(&mut self, now_ns: u64, out: &mut [u8]) -> Option<Transmit> {
        out[..REQUEST_BYTES].copy_from_slice(&self.handshake.as_ref()?.request);
        self.take_sequence(now_ns)?;
        Some(Transmit { to: self.server, len: REQUEST_BYTES, seal: None })
    }

    #[inline]
    fn write(
        &mut self,
        now_ns: u64,
        kind: PacketKind,
        body: &[u8],
        out: &mut [u8],
    ) -> Option<Transmit> {
        let sequence = self.take_sequence(now_ns)?;
        let (header, len) = encode_packet(kind, sequence, body, out);
        Some(Transmit { to: self.server, len, seal: Some(header) })
    }

    /// The number of a packet that leaves now; `None` when all are used up.
    #[inline]
    fn take_sequence(&mut self, now_ns: u64) -> Option<u64> {
        // The reference waits for strictly more than the interval.
        self.send_due_ns = now_ns.saturating_add(self.keep_alive_ns).saturating_add(1);
        let sequence = self.next_sequence;
        self.next_sequence = sequence.checked_add(1)?;
        Some(sequence)
    }
}

/// However slow the pace, three in a row can be lost before the server gives up.
const KEEP_ALIVES_PER_TIMEOUT: u64 = 4;

const _: () = assert!(size_of::<Client>() <= 336);

#[cfg(test)]
mod tests;
