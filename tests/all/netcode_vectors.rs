//! Known answers for every token and packet of netcode 1.02, made with the reference
//! implementation, in both directions.

use ringgate_core::crypto::{Aead, Job, Verdict};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::TAG_BYTES;
use ringgate_core::netcode::{self, ConnectToken, PrivateToken, TokenSecrets, TokenSpec};
use ringgate_core::proto::netcode::UserData;
use ringgate_core::proto::netcode::challenge::{self, ChallengeToken};
use ringgate_core::proto::netcode::packet::{
    self, AadTable, Header, KeepAlive, PacketKind, Receiver, encode_packet,
};
use ringgate_core::proto::netcode::request::{
    REQUEST_BYTES, Request, RequestParts, encode_request,
};
use ringgate_core::secret::Key;
use serde_json::Value;

/// The file's values, by name.
struct Vectors(Value);

impl Vectors {
    fn load() -> Self {
        let text = include_str!("../vectors/netcode.json");
        Self(serde_json::from_str(text).expect("valid JSON"))
    }

    fn number(&self, name: &str) -> u64 {
        number(&self.0[name])
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        unhex(&self.0[name])
    }

    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.bytes(name).try_into().expect("the field's length")
    }

    fn key(&self, name: &str) -> Key {
        Key::from_bytes(self.array(name))
    }

    fn user_data(&self) -> UserData {
        self.array("user_data")
    }

    fn secrets(&self) -> TokenSecrets {
        TokenSecrets {
            nonce: self.array("token_nonce"),
            client_to_server: self.key("client_to_server_key"),
            server_to_client: self.key("server_to_client_key"),
        }
    }

    fn spec(&self) -> TokenSpec {
        let servers = self.0["server_addresses"].as_array().expect("a list");
        let servers: Vec<_> = servers.iter().map(|text| text.as_str().expect("text")).collect();
        TokenSpec {
            lifetime_seconds: Some(
                self.number("expire_timestamp") - self.number("create_timestamp"),
            ),
            timeout_seconds: self.0["timeout_seconds"].as_i64().expect("a number") as i32,
            user_data: self.user_data(),
            ..TokenSpec::new(
                self.number("protocol_id"),
                self.number("client_id"),
                servers.join(",").parse().expect("addresses"),
            )
        }
    }

    fn private_token(&self) -> PrivateToken {
        let (spec, secrets) = (self.spec(), self.secrets());
        PrivateToken {
            client_id: spec.client_id,
            timeout_seconds: spec.timeout_seconds,
            addresses: spec.servers,
            client_to_server: secrets.client_to_server,
            server_to_client: secrets.server_to_client,
            user_data: spec.user_data,
        }
    }

    fn connect_token(&self) -> ConnectToken {
        let key = self.key("private_key");
        netcode::mint_with(&self.spec(), &key, self.number("create_timestamp"), self.secrets())
    }
}

/// Numbers that JSON readers would round stand as text.
fn number(value: &Value) -> u64 {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.expect("a number")
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("hex digits");
    let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn open(key: &Key, nonce: [u8; 12], aad: &[u8], buf: &mut [u8]) -> Verdict {
    let mut jobs = [Job::new(key, nonce, aad, buf)];
    Aead::detect().open(&mut jobs);
    jobs[0].verdict
}

fn seal(key: &Key, nonce: [u8; 12], aad: &[u8], buf: &mut [u8]) {
    Aead::detect().seal(&mut [Job::new(key, nonce, aad, buf)]);
}

#[test]
fn the_private_token_is_written_and_read_as_known() {
    let vectors = Vectors::load();
    let plain: [u8; 1024] = vectors.array("private_token_plain");
    let mut written = [0xff; 1024];
    vectors.private_token().encode(&mut written);
    assert_eq!(written[..1008], plain[..1008]);
    assert_eq!(PrivateToken::decode(&plain), Ok(vectors.private_token()));
}

#[test]
fn the_private_token_is_sealed_and_opened_as_known() {
    let vectors = Vectors::load();
    let token = vectors.connect_token();
    assert_eq!(token.private[..], vectors.bytes("private_token_encrypted"));
    let opened = netcode::open_private(&token, &vectors.key("private_key"));
    assert_eq!(opened, Ok(vectors.private_token()));
}

#[test]
fn the_connect_token_is_written_and_read_as_known() {
    let vectors = Vectors::load();
    let known = vectors.bytes("connect_token");
    assert_eq!(vectors.connect_token().to_bytes()[..], known);
    assert_eq!(ConnectToken::decode(&known), Ok(vectors.connect_token()));
}

#[test]
fn the_request_is_written_and_opened_as_known() {
    let vectors = Vectors::load();
    let mut known = vectors.bytes("connection_request_packet");
    let mut written = [0xff; REQUEST_BYTES];
    encode_request(&vectors.connect_token(), &mut written);
    assert_eq!(written[..], known);

    let expire_unix_s = vectors.number("expire_timestamp");
    let inspect = |protocol_id, now| Request::inspect(&known, protocol_id, now);
    let request = inspect(vectors.number("protocol_id"), expire_unix_s - 1).expect("valid");
    assert_eq!(request.expire_unix_s(), expire_unix_s);
    let expired = inspect(vectors.number("protocol_id"), expire_unix_s).map(drop);
    assert_eq!(expired, Err(DropReason::RequestExpired));

    let parts = RequestParts::split(&mut known).expect("its length");
    assert_eq!(*parts.nonce, vectors.secrets().nonce);
    let (key, nonce) =
        ringgate_core::crypto::token::derive(&vectors.key("private_key"), parts.nonce);
    assert_eq!(open(&key, nonce, parts.aad, parts.private), Verdict::Done);
    assert_eq!(PrivateToken::decode(parts.private), Ok(vectors.private_token()));
}

#[test]
fn the_challenge_token_is_written_and_read_as_known() {
    let vectors = Vectors::load();
    let key = vectors.key("challenge_key");
    let nonce = packet::nonce(vectors.number("challenge_sequence"));
    let token =
        ChallengeToken { client_id: vectors.number("client_id"), user_data: vectors.user_data() };

    let mut bytes = [0xff; 300];
    token.encode(&mut bytes);
    assert_eq!(bytes[..284], vectors.bytes("challenge_token_plain")[..284]);
    seal(&key, nonce, &[], &mut bytes);
    assert_eq!(bytes[..], vectors.bytes("challenge_token_encrypted"));
    assert_eq!(open(&key, nonce, &[], &mut bytes), Verdict::Done);
    assert_eq!(ChallengeToken::decode(&bytes), token);
}

/// One entry of the list of packets.
struct Known {
    kind: PacketKind,
    sequence: u64,
    is_for_server: bool,
    body: Vec<u8>,
    packet: Vec<u8>,
}

impl Known {
    fn all(vectors: &Vectors) -> Vec<Self> {
        let list = vectors.0["packets"].as_array().expect("a list");
        list.iter().map(Self::read).collect()
    }

    fn read(entry: &Value) -> Self {
        let kind = entry["type"].as_u64().expect("a number") as u8;
        Self {
            kind: PacketKind::of_prefix(kind).expect("a kind"),
            sequence: number(&entry["sequence"]),
            is_for_server: entry["key"] == "client_to_server_key",
            body: unhex(&entry["body"]),
            packet: unhex(&entry["packet"]),
        }
    }

    fn key<'v>(&self, secrets: &'v TokenSecrets) -> &'v Key {
        if self.is_for_server { &secrets.client_to_server } else { &secrets.server_to_client }
    }
}

#[test]
fn every_packet_is_written_as_known() {
    let vectors = Vectors::load();
    let (secrets, aad) = (vectors.secrets(), AadTable::new(vectors.number("protocol_id")));
    for known in Known::all(&vectors) {
        let mut out = [0xff; 1225];
        let (header, len) = encode_packet(known.kind, known.sequence, &known.body, &mut out);
        let sealed = &mut out[header.body_start()..len];
        seal(known.key(&secrets), header.nonce(), aad.of(header.prefix), sealed);
        assert_eq!(out[..len], known.packet, "{:?} {}", known.kind, known.sequence);
    }
}

#[test]
fn every_packet_is_read_as_known() {
    let vectors = Vectors::load();
    let (secrets, aad) = (vectors.secrets(), AadTable::new(vectors.number("protocol_id")));
    let mut kinds_seen = [0; 7];
    for known in Known::all(&vectors) {
        let header = read_header(&known);
        assert_eq!((header.kind, header.sequence), (known.kind, known.sequence));
        let key = known.key(&secrets);
        let mut packet = known.packet.clone();
        let sealed = &mut packet[header.body_start()..];
        assert_eq!(open(key, header.nonce(), aad.of(header.prefix), sealed), Verdict::Done);
        let body = &mut sealed[..known.body.len()];
        assert_eq!(*body, known.body);
        assert_eq!(known.kind.check_body(body.len()), Ok(()));
        check_body(&vectors, known.kind, body);
        kinds_seen[known.kind as usize] += 1;
    }
    assert!(kinds_seen[1..].iter().all(|&count| count > 0), "{kinds_seen:?}");
}

fn read_header(known: &Known) -> Header {
    let receiver = if known.is_for_server { Receiver::Server } else { Receiver::Client };
    assert!(!Request::is_claimed_by(&known.packet));
    Header::decode(&known.packet, receiver).expect("valid")
}

fn check_body(vectors: &Vectors, kind: PacketKind, body: &mut [u8]) {
    match kind {
        PacketKind::KeepAlive => {
            let keep_alive = KeepAlive::decode(body).expect("its length");
            assert_eq!(keep_alive.encode()[..], *body);
            assert_ne!(keep_alive.slots, 0);
        }
        PacketKind::Challenge | PacketKind::Response => {
            let (sequence, token) = challenge::split_body(body).expect("its length");
            assert_eq!(sequence, vectors.number("challenge_sequence"));
            assert_eq!(token[..], vectors.bytes("challenge_token_encrypted"));
            let mut again = [0; challenge::CHALLENGE_BODY_BYTES];
            challenge::encode_body(sequence, &mut again).copy_from_slice(token);
            assert_eq!(again[..], *body);
        }
        _ => {}
    }
}

#[test]
fn every_packet_with_one_bit_flipped_is_refused() {
    let vectors = Vectors::load();
    let (secrets, aad) = (vectors.secrets(), AadTable::new(vectors.number("protocol_id")));
    for known in Known::all(&vectors).into_iter().filter(|known| known.packet.len() <= 400) {
        let receiver = if known.is_for_server { Receiver::Server } else { Receiver::Client };
        for bit in 0..known.packet.len() * 8 {
            let mut bad = known.packet.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Ok(header) = Header::decode(&bad, receiver) else { continue };
            let before = bad.clone();
            let sealed = &mut bad[header.body_start()..];
            assert!(sealed.len() >= TAG_BYTES);
            let verdict = open(known.key(&secrets), header.nonce(), aad.of(header.prefix), sealed);
            assert_eq!(verdict, Verdict::Forged, "bit {bit} of {:?}", known.kind);
            assert_eq!(bad, before);
        }
    }
}
