//! Players: our own client and renetcode's behind one face, and packets made by hand.

use std::time::Duration;

use ringgate_batch::Endpoint;
use ringgate_core::crypto::{Aead, Job};
use ringgate_core::netcode::{Client, ConnectToken, Notice, Options};
use ringgate_core::proto::netcode::challenge::CHALLENGE_BODY_BYTES;
use ringgate_core::proto::netcode::packet::{
    AadTable, Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::request::{REQUEST_BYTES, encode_request};

use super::rig::{PROTOCOL, Rig};
use crate::ids::ListenerId;

/// A client library, as far as the tests need one.
pub(super) trait Library {
    /// Whatever is due now.
    fn poll(&mut self, now_ns: u64) -> Vec<Vec<u8>>;
    /// Takes a datagram; returns the payload if it was one.
    fn take(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Vec<u8>>;
    fn payload(&mut self, now_ns: u64, payload: &[u8]) -> Vec<u8>;
    fn is_connected(&self) -> bool;
    fn is_over(&self) -> bool;
    fn leave(&mut self, now_ns: u64) -> Vec<Vec<u8>>;
}

impl Library for Client {
    fn poll(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut buf = [0; 2048];
        let _ = self.handle_timeout(now_ns);
        let mut due = Vec::new();
        while let Some((_, datagram)) = self.poll_transmit(now_ns, &mut buf) {
            due.push(datagram.to_vec());
        }
        due
    }

    fn take(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut copy = bytes.to_vec();
        match self.handle_datagram(now_ns, self.server(), &mut copy) {
            Ok(Some(Notice::Payload(payload))) => Some(payload.to_vec()),
            _ => None,
        }
    }

    fn payload(&mut self, now_ns: u64, payload: &[u8]) -> Vec<u8> {
        let mut buf = [0; 2048];
        self.write_payload(now_ns, payload, &mut buf).expect("connected").1.to_vec()
    }

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    fn is_over(&self) -> bool {
        self.state().is_closed()
    }

    fn leave(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        self.disconnect();
        self.poll(now_ns)
    }
}

/// renetcode's client, which reads no clock either but is told durations.
pub(super) struct Renetcode {
    inner: renetcode::NetcodeClient,
    now_ns: u64,
}

impl Renetcode {
    pub(super) fn new(token: &ConnectToken, now_ns: u64, client_id: u64) -> Self {
        let mut file = client_id.to_le_bytes().to_vec();
        file.extend(token.to_bytes());
        let connect_token = renetcode::ConnectToken::read(&mut &file[..]).expect("our token");
        let start = Duration::from_nanos(now_ns);
        let secure = renetcode::ClientAuthentication::Secure { connect_token };
        Self { inner: renetcode::NetcodeClient::new(start, secure).expect("a server"), now_ns }
    }
}

impl Library for Renetcode {
    fn poll(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let elapsed = Duration::from_nanos(now_ns - self.now_ns);
        self.now_ns = now_ns;
        self.inner.update(elapsed).map(|(packet, _)| packet.to_vec()).into_iter().collect()
    }

    fn take(&mut self, _: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.inner.process_packet(&mut bytes.to_vec()).map(<[u8]>::to_vec)
    }

    fn payload(&mut self, _: u64, payload: &[u8]) -> Vec<u8> {
        self.inner.generate_payload_packet(payload).expect("connected").1.to_vec()
    }

    fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    fn is_over(&self) -> bool {
        self.inner.is_disconnected()
    }

    fn leave(&mut self, _: u64) -> Vec<Vec<u8>> {
        vec![self.inner.disconnect().expect("a packet").1.to_vec()]
    }
}

/// Somebody at an address with a client library.
pub(super) struct Player<L> {
    pub(super) home: Endpoint,
    pub(super) library: L,
    /// Payloads that have arrived.
    pub(super) got: Vec<Vec<u8>>,
}

impl Player<Client> {
    pub(super) fn new(rig: &Rig, home: Endpoint, token: &ConnectToken) -> Self {
        let options = Options { first_sequence: 0, answers_at_once: true };
        let library = Client::with_options(token, rig.now.mono_ns, options);
        Self { home, library, got: Vec::new() }
    }

    /// A player who is connected.
    pub(super) fn connected(rig: &mut Rig, home: Endpoint, client_id: u64) -> Self {
        let token = rig.token(client_id);
        let mut player = Self::new(rig, home, &token);
        player.connect(rig);
        player
    }
}

impl Player<Renetcode> {
    pub(super) fn renetcode(rig: &Rig, home: Endpoint, token: &ConnectToken, id: u64) -> Self {
        let library = Renetcode::new(token, rig.now.mono_ns, id);
        Self { home, library, got: Vec::new() }
    }
}

impl<L: Library> Player<L> {
    /// Sends what is due, has the gate look at it, and takes what comes back.
    pub(super) fn exchange(&mut self, rig: &mut Rig) {
        for datagram in self.library.poll(rig.now.mono_ns) {
            rig.push(self.home, &datagram);
        }
        rig.turn();
        self.receive(rig);
    }

    pub(super) fn receive(&mut self, rig: &mut Rig) {
        for datagram in rig.take_for(self.home) {
            self.got.extend(self.library.take(rig.now.mono_ns, &datagram));
        }
    }

    /// Lets time pass while the player lives.
    pub(super) fn live(&mut self, rig: &mut Rig, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            rig.jump(10);
            self.exchange(rig);
        }
    }

    pub(super) fn connect(&mut self, rig: &mut Rig) {
        for _ in 0..100 {
            self.exchange(rig);
            if self.library.is_connected() {
                // One more, so that the gate has heard a keep-alive.
                return self.live(rig, 300);
            }
            rig.jump(10);
        }
        panic!("not connected within a second: {:?}", rig.counters().drops);
    }

    pub(super) fn send(&mut self, rig: &mut Rig, payload: &[u8]) {
        let datagram = self.library.payload(rig.now.mono_ns, payload);
        rig.deliver(self.home, &datagram);
        self.receive(rig);
    }

    pub(super) fn leave(&mut self, rig: &mut Rig) {
        for datagram in self.library.leave(rig.now.mono_ns) {
            rig.push(self.home, &datagram);
        }
        rig.turn();
    }
}

/// Writes the packets of a token's owner, whatever they say.
pub(super) struct Scribe {
    token: ConnectToken,
    aad: Box<AadTable>,
}

impl Scribe {
    pub(super) fn new(token: &ConnectToken) -> Self {
        Self { token: token.clone(), aad: Box::new(AadTable::new(PROTOCOL)) }
    }

    pub(super) fn request(&self) -> Vec<u8> {
        let mut request = [0; REQUEST_BYTES];
        encode_request(&self.token, &mut request);
        request.to_vec()
    }

    pub(super) fn packet(&self, kind: PacketKind, sequence: u64, body: &[u8]) -> Vec<u8> {
        let mut packet = [0; 2048];
        let (header, len) = encode_packet(kind, sequence, body, &mut packet);
        let key = &self.token.client_to_server;
        let aad = self.aad.of(header.prefix);
        let sealed = &mut packet[header.body_start()..len];
        Aead::detect().seal(&mut [Job::new(key, header.nonce(), aad, sealed)]);
        packet[..len].to_vec()
    }

    pub(super) fn keep_alive(&self, sequence: u64) -> Vec<u8> {
        self.packet(PacketKind::KeepAlive, sequence, &KeepAlive::default().encode())
    }

    pub(super) fn payload(&self, sequence: u64, payload: &[u8]) -> Vec<u8> {
        self.packet(PacketKind::Payload, sequence, payload)
    }

    pub(super) fn disconnect(&self, sequence: u64) -> Vec<u8> {
        self.packet(PacketKind::Disconnect, sequence, &[])
    }

    /// The challenge that the gate has sent, as the response's body.
    pub(super) fn challenge(&self, rig: &mut Rig, home: Endpoint) -> [u8; CHALLENGE_BODY_BYTES] {
        let datagrams = rig.take_for(home);
        let mut newest_first = datagrams.iter().rev().filter_map(|datagram| self.open(datagram));
        let newest = newest_first.find(|(kind, _)| *kind == PacketKind::Challenge);
        newest.expect("a challenge").1.try_into().expect("308 bytes")
    }

    /// Opens a packet of the gate.
    pub(super) fn open(&self, datagram: &[u8]) -> Option<(PacketKind, Vec<u8>)> {
        let header = Header::decode(datagram, Receiver::Client).ok()?;
        let mut copy = datagram.to_vec();
        let key = &self.token.server_to_client;
        let body = &mut copy[header.body_start()..];
        let mut jobs = [Job::new(key, header.nonce(), self.aad.of(header.prefix), body)];
        Aead::detect().open(&mut jobs);
        let is_open = jobs[0].verdict == ringgate_core::crypto::Verdict::Done;
        is_open.then(|| (header.kind, copy[header.body_start()..copy.len() - 16].to_vec()))
    }

    /// What the gate has sent there, opened: kinds only.
    pub(super) fn kinds(&self, rig: &mut Rig, home: Endpoint) -> Vec<PacketKind> {
        let datagrams = rig.take_for(home);
        datagrams.iter().map(|datagram| self.open(datagram).expect("ours").0).collect()
    }

    /// Connects by hand, with sequence 1 for the response.
    pub(super) fn connect(&self, rig: &mut Rig, home: Endpoint) {
        self.connect_at(rig, ListenerId(0), home);
    }

    /// The same at the `listener`th listener.
    pub(super) fn connect_at(&self, rig: &mut Rig, listener: ListenerId, home: Endpoint) {
        rig.deliver_at(listener, home, &self.request());
        let challenge = self.challenge(rig, home);
        rig.deliver_at(listener, home, &self.packet(PacketKind::Response, 1, &challenge));
    }
}

/// The same packet with a bit of its tag changed.
pub(super) fn forged(mut packet: Vec<u8>) -> Vec<u8> {
    *packet.last_mut().expect("not empty") ^= 1;
    packet
}
