//! Our netcode against the crate `renetcode`, in memory: tokens here, our client with its server
//! and its client with our rules in the two modules beside this one.
//!
//! Where `renetcode` departs from the reference (sequence 0 in zero bytes, payloads up to 1300
//! bytes, one disconnect packet, IPv6 addresses in network order), the tests pin down what becomes
//! of it.

use std::net::SocketAddr;
use std::time::Duration;

use renetcode::{
    ClientAuthentication, NetcodeClient, NetcodeServer, ServerAuthentication, ServerConfig,
    ServerResult,
};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::{ConnectToken, TokenSpec, mint, open_private, user_data};
use ringgate_core::proto::netcode::server::check_addressed_to;
use ringgate_core::secret::Key;

pub(crate) const PROTOCOL: u64 = 0x1122_3344_5566_7788;
pub(crate) const START_UNIX_S: u64 = 1_700_000_000;
pub(crate) const SERVER: &str = "192.0.2.1:40000";
pub(crate) const PLAYER: &str = "198.51.100.7:1234";
pub(crate) const CLIENT_ID: u64 = 42;
pub(crate) const STEP: Duration = Duration::from_millis(10);

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("literal")
}

pub(crate) fn key() -> Key {
    Key::from_bytes([0x5a; 32])
}

pub(crate) fn spec(servers: &str) -> TokenSpec {
    TokenSpec {
        user_data: user_data(b"arena-1").expect("short"),
        ..TokenSpec::new(PROTOCOL, CLIENT_ID, servers.parse().expect("literal"))
    }
}

pub(crate) fn our_token(servers: &str) -> ConnectToken {
    mint(&spec(servers), &key(), START_UNIX_S).expect("random bytes")
}

pub(crate) fn their_token(servers: &[&str]) -> renetcode::ConnectToken {
    renetcode::ConnectToken::generate(
        Duration::from_secs(START_UNIX_S),
        PROTOCOL,
        30,
        CLIENT_ID,
        5,
        servers.iter().map(|text| address(text)).collect(),
        Some(&spec(SERVER).user_data),
        key().as_bytes(),
    )
    .expect("a token")
}

/// A token of theirs in the standard's form: theirs begins with the client id and lacks the
/// padding.
pub(crate) fn standard_form(token: &renetcode::ConnectToken) -> Vec<u8> {
    let mut file = Vec::new();
    token.write(&mut file).expect("memory");
    let mut bytes = file.split_off(8);
    bytes.resize(2048, 0);
    bytes
}

pub(crate) fn server(clients_max: usize) -> NetcodeServer {
    NetcodeServer::new(ServerConfig {
        current_time: Duration::from_secs(START_UNIX_S),
        max_clients: clients_max,
        protocol_id: PROTOCOL,
        public_addresses: vec![address(SERVER)],
        authentication: ServerAuthentication::Secure { private_key: *key().as_bytes() },
    })
}

/// Makes a client of theirs from a token of ours.
pub(crate) fn their_client(token: &ConnectToken) -> NetcodeClient {
    let mut file = CLIENT_ID.to_le_bytes().to_vec();
    file.extend(token.to_bytes());
    let connect_token = renetcode::ConnectToken::read(&mut &file[..]).expect("a standard token");
    let start = Duration::from_secs(START_UNIX_S);
    NetcodeClient::new(start, ClientAuthentication::Secure { connect_token }).expect("a client")
}

#[test]
fn their_tokens_open_here() {
    let theirs = their_token(&[SERVER, "198.51.100.1:7"]);
    let token = ConnectToken::decode(&standard_form(&theirs)).expect("a standard token");
    assert_eq!(token.addresses.to_string(), format!("{SERVER},198.51.100.1:7"));
    assert_eq!((token.protocol_id, token.timeout_seconds), (PROTOCOL, 5));
    assert_eq!((token.create_unix_s, token.expire_unix_s), (START_UNIX_S, START_UNIX_S + 30));
    let private = open_private(&token, &key()).expect("the same key");
    assert_eq!((private.client_id, private.user_data), (CLIENT_ID, spec(SERVER).user_data));
    assert_eq!(private.addresses, token.addresses);
    assert_eq!(*private.client_to_server.as_bytes(), theirs.client_to_server_key);
}

#[test]
fn their_ipv6_tokens_name_us_in_network_order() {
    let theirs = their_token(&["[2001:db8::1]:40000"]);
    let token = ConnectToken::decode(&standard_form(&theirs)).expect("a standard token");
    assert_eq!(token.addresses.to_string(), "[120:b80d::100]:40000");
    let private = open_private(&token, &key()).expect("the same key");
    let own = |text| [address(text).into()];
    assert_eq!(check_addressed_to(&private.addresses, &own("[2001:db8::1]:40000")), Ok(()));
    assert_eq!(
        check_addressed_to(&private.addresses, &own("[2001:db8::2]:40000")),
        Err(DropReason::TokenNotForUs)
    );
}

#[test]
fn our_tokens_open_there() {
    let (mut client, mut server) = (their_client(&our_token(SERVER)), server(4));
    for _ in 0..200 {
        server.update(STEP);
        let Some((datagram, _)) = client.update(STEP) else { continue };
        if let ServerResult::PacketToSend { payload, .. }
        | ServerResult::ClientConnected { payload, .. } =
            server.process_packet(address(PLAYER), datagram)
        {
            client.process_packet(payload);
        }
    }
    assert!(client.is_connected() && server.is_client_connected(CLIENT_ID));
    assert_eq!(server.user_data(CLIENT_ID), Some(spec(SERVER).user_data));
}
