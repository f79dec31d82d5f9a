//! Their client with a server made of our rules, for one player and without tables.

use std::time::Duration;

use renetcode::{DisconnectReason, NetcodeClient};
use ringgate_core::crypto::{Aead, Job, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::{PrivateToken, mint};
use ringgate_core::proto::netcode::challenge::{self, ChallengeToken};
use ringgate_core::proto::netcode::packet::{
    self, AadTable, Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::request::{Request, RequestParts};
use ringgate_core::proto::netcode::server::{
    GlobalSequence, PendingBinding, SessionPacket, SessionSequence, check_addressed_to,
    pending_packet, session_packet,
};
use ringgate_core::secret::Key;

use crate::netcode_interop::{
    PROTOCOL, SERVER, START_UNIX_S, STEP, address, key, our_token, spec, their_client,
};

struct Rules {
    aad: AadTable,
    aead: Aead,
    challenge_key: Key,
    token: Option<PrivateToken>,
    binding: Option<PendingBinding>,
    global: GlobalSequence,
    challenges: u64,
    session: Option<SessionSequence>,
}

impl Rules {
    fn new() -> Self {
        Self {
            aad: AadTable::new(PROTOCOL),
            aead: Aead::detect(),
            challenge_key: Key::from_bytes([0xc1; 32]),
            token: None,
            binding: None,
            global: GlobalSequence::new(3, 0x0123_4567_89ab_cdef),
            challenges: 100,
            session: None,
        }
    }

    fn open(&mut self, key: &Key, nonce: [u8; 12], aad: &[u8], buf: &mut [u8]) -> bool {
        let mut jobs = [Job::new(key, nonce, aad, buf)];
        self.aead.open(&mut jobs);
        jobs[0].verdict == Verdict::Done
    }

    fn seal(&mut self, kind: PacketKind, sequence: u64, body: &[u8]) -> Vec<u8> {
        let mut out = [0; 1225];
        let (header, len) = encode_packet(kind, sequence, body, &mut out);
        let token = self.token.as_ref().expect("a token was read");
        self.aead.seal(&mut [Job::new(
            &token.server_to_client,
            header.nonce(),
            self.aad.of(header.prefix),
            &mut out[header.body_start()..len],
        )]);
        out[..len].to_vec()
    }

    fn send(&mut self, kind: PacketKind, body: &[u8]) -> Vec<u8> {
        let sequence = self.session.as_mut().expect("connected").take().expect("numbers left");
        self.seal(kind, sequence, body)
    }

    /// Answers a request with a challenge.
    fn request(&mut self, datagram: &mut [u8]) -> Result<Vec<u8>, DropReason> {
        Request::inspect(datagram, PROTOCOL, START_UNIX_S)?;
        let parts = RequestParts::split(datagram).expect("inspected");
        let (token_key, nonce) = ringgate_core::crypto::token::derive(&key(), parts.nonce);
        if !self.open(&token_key, nonce, parts.aad, parts.private) {
            return Err(DropReason::RequestForged);
        }
        let token = PrivateToken::decode(parts.private)?;
        check_addressed_to(&token.addresses, &[address(SERVER).into()])?;
        let challenge = ChallengeToken { client_id: token.client_id, user_data: token.user_data };
        let sequence = self.challenges;
        self.challenges += 1;
        self.binding.get_or_insert(PendingBinding {
            first_challenge_sequence: sequence,
            client_id: token.client_id,
        });
        self.token = Some(token);

        let mut body = [0; challenge::CHALLENGE_BODY_BYTES];
        let place = challenge::encode_body(sequence, &mut body);
        challenge.encode(place);
        self.aead.seal(&mut [Job::new(&self.challenge_key, packet::nonce(sequence), &[], place)]);
        let number = self.global.take();
        Ok(self.seal(PacketKind::Challenge, number, &body))
    }

    /// Opens a packet in place and returns what kind it is and where its body lies.
    fn packet<'d>(
        &mut self,
        datagram: &'d mut [u8],
    ) -> Result<(PacketKind, &'d mut [u8]), DropReason> {
        let token = self.token.as_ref().ok_or(DropReason::UnknownSource)?;
        let header = Header::decode(datagram, Receiver::Server)?;
        let (aad, key) = (*self.aad.of(header.prefix), token.client_to_server.clone());
        let sealed = &mut datagram[header.body_start()..];
        if !self.open(&key, header.nonce(), &aad, sealed) {
            return Err(DropReason::PacketForged);
        }
        let body_bytes = sealed.len() - 16;
        Ok((header.kind, &mut sealed[..body_bytes]))
    }

    /// Answers a response with the first keep-alive.
    fn response(&mut self, datagram: &mut [u8]) -> Result<Vec<u8>, DropReason> {
        let (kind, body) = self.packet(datagram)?;
        let (sequence, token) = pending_packet(kind, body)?;
        let challenge_key = self.challenge_key.clone();
        if !self.open(&challenge_key, packet::nonce(sequence), &[], token) {
            return Err(DropReason::ChallengeForged);
        }
        let token = ChallengeToken::decode(token);
        self.binding.expect("pending").check(sequence, token.client_id)?;
        self.session = Some(SessionSequence::begin(None, 0xffff_ffff_ffff_ffff));
        Ok(self.send(PacketKind::KeepAlive, &KeepAlive { slot: 7, slots: 64 }.encode()))
    }
}

/// Lets time pass until the client sends something.
fn next_datagram(client: &mut NetcodeClient) -> Vec<u8> {
    for _ in 0..200 {
        if let Some((datagram, to)) = client.update(STEP) {
            assert_eq!(to, address(SERVER));
            return datagram.to_vec();
        }
    }
    panic!("the client has fallen silent")
}

#[test]
fn their_client_connects_by_our_rules() {
    let (mut client, mut rules) = (their_client(&our_token(SERVER)), Rules::new());
    let mut challenge = rules.request(&mut next_datagram(&mut client)).expect("a valid request");
    assert_eq!(challenge.len(), 333);
    assert_eq!(client.process_packet(&mut challenge), None);
    let response = next_datagram(&mut client);
    let mut keep_alive = rules.response(&mut response.clone()).expect("a valid response");
    client.process_packet(&mut keep_alive);
    assert!(client.is_connected());

    let (_, up) = client.generate_payload_packet(b"to the server").expect("connected");
    let (kind, body) = rules.packet(up).expect("authentic");
    assert_eq!(session_packet(kind, body), Ok(SessionPacket::Payload(b"to the server")));
    let mut down = rules.send(PacketKind::Payload, b"to the client");
    assert_eq!(client.process_packet(&mut down), Some(&b"to the client"[..]));

    // The same response again means nothing to a session.
    let mut repeated = response;
    let (kind, body) = rules.packet(&mut repeated).expect("authentic");
    assert_eq!(session_packet(kind, body), Err(DropReason::PacketUnexpected));

    let mut keep_alive = next_datagram(&mut client);
    let (kind, body) = rules.packet(&mut keep_alive).expect("authentic");
    assert_eq!(session_packet(kind, body), Ok(SessionPacket::KeepAlive));

    let mut goodbye = rules.send(PacketKind::Disconnect, &[]);
    client.process_packet(&mut goodbye);
    assert_eq!(client.disconnect_reason(), Some(DisconnectReason::DisconnectedByServer));
}

#[test]
fn their_client_says_goodbye_once() {
    let (mut client, mut rules) = (their_client(&our_token(SERVER)), Rules::new());
    let mut challenge = rules.request(&mut next_datagram(&mut client)).expect("a valid request");
    client.process_packet(&mut challenge);
    rules.response(&mut next_datagram(&mut client)).expect("a valid response");
    let (_, goodbye) = client.disconnect().expect("a packet");
    let (kind, body) = rules.packet(goodbye).expect("authentic");
    assert_eq!(session_packet(kind, body), Ok(SessionPacket::Disconnect));
    assert!(client.update(Duration::from_secs(1)).is_none());
}

#[test]
fn a_recorded_handshake_does_not_connect_again() {
    let (mut client, mut rules) = (their_client(&our_token(SERVER)), Rules::new());
    let request = next_datagram(&mut client);
    let mut challenge = rules.request(&mut request.clone()).expect("a valid request");
    client.process_packet(&mut challenge);
    let response = next_datagram(&mut client);
    assert!(rules.response(&mut response.clone()).is_ok());

    // The player is gone; somebody plays the recording from the player's address.
    (rules.token, rules.binding) = (None, None);
    assert_eq!(rules.response(&mut response.clone()), Err(DropReason::UnknownSource));
    assert!(rules.request(&mut request.clone()).is_ok());
    assert_eq!(rules.response(&mut response.clone()), Err(DropReason::ChallengeForeign));
}

#[test]
fn a_response_with_a_damaged_challenge_is_refused() {
    let (mut client, mut rules) = (their_client(&our_token(SERVER)), Rules::new());
    let mut challenge = rules.request(&mut next_datagram(&mut client)).expect("a valid request");
    client.process_packet(&mut challenge);
    let response = next_datagram(&mut client);
    rules.challenge_key = Key::from_bytes([0xc2; 32]);
    assert_eq!(rules.response(&mut response.clone()), Err(DropReason::ChallengeForged));
    let mut forged = response;
    forged[50] ^= 1;
    assert_eq!(rules.response(&mut forged), Err(DropReason::PacketForged));
}

#[test]
fn a_request_under_another_key_is_refused() {
    let token = mint(&spec(SERVER), &Key::from_bytes([1; 32]), START_UNIX_S).expect("random");
    let mut client = their_client(&token);
    let refusal = Rules::new().request(&mut next_datagram(&mut client));
    assert_eq!(refusal, Err(DropReason::RequestForged));
}
