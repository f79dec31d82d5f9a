//! Connection requests, the only packets that a stranger can make us look at: as datagrams of any
//! kind, and as what a client makes of a token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::ConnectToken;
use ringgate_core::proto::netcode::request::{
    REQUEST_BYTES, Request, RequestParts, encode_request,
};
use ringgate_core::proto::netcode::token::token_aad;
use ringgate_core::secret::Key;

/// The protocol id and the expiry of the seeds.
const PROTOCOL: u64 = 8_241_984_715_966_477_413;
const EXPIRE_UNIX_S: u64 = 4_000_000_000;

fuzz_target!(|data: &[u8]| {
    inspect(data);
    round_trip(data);
});

fn inspect(data: &[u8]) {
    let now_unix_s = EXPIRE_UNIX_S - 1;
    let request = match Request::inspect(data, PROTOCOL, now_unix_s) {
        Ok(request) => request,
        Err(why) => {
            assert_eq!(why != DropReason::PacketType, Request::is_claimed_by(data));
            assert!(
                RequestParts::split(&mut data.to_vec()).is_none() || data.len() == REQUEST_BYTES
            );
            return;
        }
    };
    assert_eq!(data.len(), REQUEST_BYTES);
    assert!(request.expire_unix_s() > now_unix_s);
    let at_expiry = Request::inspect(data, PROTOCOL, request.expire_unix_s()).map(drop);
    assert_eq!(at_expiry, Err(DropReason::RequestExpired));

    let mut copy = data.to_vec();
    let parts = RequestParts::split(&mut copy).expect("inspected");
    assert_eq!(*parts.aad, token_aad(PROTOCOL, request.expire_unix_s()));
    assert_eq!(*parts.private, data[data.len() - parts.private.len()..]);
}

/// Takes the fields of a token from the data, and finds them again in the request.
fn round_trip(data: &[u8]) {
    let mut fields = data.iter().copied().chain(std::iter::repeat(0));
    let mut array = || -> [u8; 24] { std::array::from_fn(|_| fields.next().unwrap_or_default()) };
    let head = array();
    let number =
        |start: usize| u64::from_le_bytes(head[start..start + 8].try_into().expect("8 bytes"));
    let (protocol_id, expire_unix_s) = (number(0), number(8));
    let mut private = [0; 1024];
    let len = data.len().min(private.len());
    private[..len].copy_from_slice(&data[..len]);
    let token = ConnectToken {
        protocol_id,
        create_unix_s: 0,
        expire_unix_s,
        nonce: array(),
        private,
        timeout_seconds: 5,
        addresses: "192.0.2.1:1".parse().expect("literal"),
        client_to_server: Key::from_bytes([1; 32]),
        server_to_client: Key::from_bytes([2; 32]),
    };
    let mut datagram = [0xff; REQUEST_BYTES];
    encode_request(&token, &mut datagram);
    let Some(before) = expire_unix_s.checked_sub(1) else { return };
    let request = Request::inspect(&datagram, protocol_id, before).expect("valid");
    assert_eq!(request.expire_unix_s(), expire_unix_s);
    let parts = RequestParts::split(&mut datagram).expect("inspected");
    assert_eq!((*parts.nonce, *parts.private), (token.nonce, token.private));
}
