//! Connect tokens as files and web services bring them, and a client that lives on one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::{Client, ConnectToken, Options, State, TokenError};
use ringgate_core::proto::netcode::request::Request;
use ringgate_core::proto::netcode::token::CONNECT_TOKEN_BYTES;

fuzz_target!(|data: &[u8]| {
    if data.len() != CONNECT_TOKEN_BYTES {
        assert_eq!(ConnectToken::decode(data), Err(TokenError::Length));
    }
    let mut bytes = [0; CONNECT_TOKEN_BYTES];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    let Ok(token) = ConnectToken::decode(&bytes) else { return };

    let again = token.to_bytes();
    assert_eq!(ConnectToken::decode(&again), Ok(token.clone()));
    let text_bytes = again.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    assert_eq!(again[..text_bytes], bytes[..text_bytes]);
    live(&token);
});

/// Runs a client to its end, with nobody answering. Every datagram is a request for the token.
fn live(token: &ConnectToken) {
    let mut client = Client::with_options(token, 0, Options::default());
    let mut out = [0; DATAGRAM_BYTES_MAX];
    // A token may live for ages; a thousand wake-ups show what there is to see.
    for _ in 0..1000 {
        let Some(now_ns) = client.poll_timeout() else { break };
        client.handle_timeout(now_ns);
        while let Some((to, datagram)) = client.poll_transmit(now_ns, &mut out) {
            assert!(token.addresses.iter().any(|&named| same(named, to)));
            let request = Request::inspect(datagram, token.protocol_id, 0).map(drop);
            assert_eq!(request.is_ok(), token.expire_unix_s > 0);
        }
        if now_ns == u64::MAX {
            break;
        }
    }
    let final_states = [State::RequestTimedOut, State::TokenExpired];
    assert!(client.poll_timeout().is_some() || final_states.contains(&client.state()));
}

/// Whether two addresses are the same to a socket, which takes IPv4-mapped IPv6 for IPv4.
fn same(a: std::net::SocketAddr, b: std::net::SocketAddr) -> bool {
    ringgate_core::endpoint::Endpoint::from(a) == ringgate_core::endpoint::Endpoint::from(b)
}
