//! A gateway of a few lines, out of the protocol's own pieces: it lets everybody with a valid token
//! in and echoes.
//!
//! Sans-IO like the real one, so that tests decide what gets lost on the way, and when.

use std::collections::HashMap;

use ringgate_batch::Endpoint;
use ringgate_core::crypto::{Aead, Job, Verdict, token};
use ringgate_core::proto::netcode::challenge::CHALLENGE_BODY_BYTES;
use ringgate_core::proto::netcode::packet::{
    AadTable, Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::request::{Request, RequestParts};
use ringgate_core::proto::netcode::token::PrivateToken;
use ringgate_core::secret::Key;

pub(crate) const PROTOCOL_ID: u64 = 7;

/// See the module's documentation.
pub(crate) struct FakeGateway {
    key: Key,
    aad: AadTable,
    aead: Aead,
    sessions: HashMap<Endpoint, Session>,
    /// Payloads that came in.
    pub(crate) payloads: u64,
    /// Sessions that said goodbye.
    pub(crate) goodbyes: u64,
}

struct Session {
    open: Key,
    seal: Key,
    sequence: u64,
    is_gone: bool,
}

impl FakeGateway {
    pub(crate) fn new(key: Key) -> Self {
        let aad = AadTable::new(PROTOCOL_ID);
        Self { key, aad, aead: Aead::detect(), sessions: HashMap::new(), payloads: 0, goodbyes: 0 }
    }

    /// Sessions that are in.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.values().filter(|session| !session.is_gone).count()
    }

    /// What a datagram provokes.
    pub(crate) fn handle(&mut self, from: Endpoint, datagram: &mut [u8]) -> Option<Vec<u8>> {
        if Request::is_claimed_by(datagram) {
            return self.handle_request(from, datagram);
        }
        let header = Header::decode(datagram, Receiver::Server).ok()?;
        let session = self.sessions.get(&from)?;
        let mut job = [Job::new(
            &session.open,
            header.nonce(),
            self.aad.of(header.prefix),
            &mut datagram[header.body_start()..],
        )];
        self.aead.open(&mut job);
        if job[0].verdict != Verdict::Done {
            return None;
        }
        let body = &datagram[header.body_start()..datagram.len() - 16];
        match header.kind {
            PacketKind::Response => {
                let body = KeepAlive { slot: 1, slots: 64 }.encode();
                self.answer(from, PacketKind::KeepAlive, &body)
            }
            PacketKind::Payload => {
                self.payloads += 1;
                let body = body.to_vec();
                self.answer(from, PacketKind::Payload, &body)
            }
            PacketKind::Disconnect => {
                let session = self.sessions.get_mut(&from)?;
                self.goodbyes += u64::from(!session.is_gone);
                session.is_gone = true;
                None
            }
            _ => None,
        }
    }

    fn handle_request(&mut self, from: Endpoint, datagram: &mut [u8]) -> Option<Vec<u8>> {
        Request::inspect(datagram, PROTOCOL_ID, 0).ok()?;
        let parts = RequestParts::split(datagram)?;
        let (key, nonce) = token::derive(&self.key, parts.nonce);
        let mut job = [Job::new(&key, nonce, parts.aad, &mut parts.private[..])];
        self.aead.open(&mut job);
        if job[0].verdict != Verdict::Done {
            return None;
        }
        let token = PrivateToken::decode(parts.private).ok()?;
        if self.sessions.get(&from).is_none_or(|session| session.is_gone) {
            let session = Session {
                open: token.client_to_server,
                seal: token.server_to_client,
                sequence: 1 << 40,
                is_gone: false,
            };
            self.sessions.insert(from, session);
        }
        self.answer(from, PacketKind::Challenge, &[9; CHALLENGE_BODY_BYTES])
    }

    /// Ends a session without a word.
    #[allow(dead_code, reason = "one of two crates that share this file uses it")]
    pub(crate) fn forget(&mut self, from: Endpoint) {
        self.sessions.remove(&from);
    }

    /// A packet for a session.
    pub(crate) fn answer(
        &mut self,
        to: Endpoint,
        kind: PacketKind,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        let session = self.sessions.get_mut(&to)?;
        session.sequence += 1;
        let mut packet = vec![0; 1300];
        let (header, len) = encode_packet(kind, session.sequence, body, &mut packet);
        packet.truncate(len);
        let sealed = &mut packet[header.body_start()..];
        self.aead.seal(&mut [Job::new(
            &session.seal,
            header.nonce(),
            self.aad.of(header.prefix),
            sealed,
        )]);
        Some(packet)
    }
}
