//! Connection requests: each check has its reason, and the first that fails decides.

use super::super::token::tests::connect_token;
use super::*;
use crate::proto::netcode::token::token_aad;

const NOW: u64 = 1000;

fn request() -> ([u8; REQUEST_BYTES], ConnectToken) {
    let token = connect_token(1);
    let mut datagram = [0xff; REQUEST_BYTES];
    encode_request(&token, &mut datagram);
    (datagram, token)
}

fn refusal(datagram: &[u8], protocol_id: u64, now_unix_s: u64) -> Option<DropReason> {
    Request::inspect(datagram, protocol_id, now_unix_s).err()
}

#[test]
fn a_request_carries_what_opening_its_token_takes() {
    let (mut datagram, token) = request();
    let request = Request::inspect(&datagram, token.protocol_id, NOW).expect("a valid request");
    assert_eq!(request.expire_unix_s(), token.expire_unix_s);

    let aad = token_aad(token.protocol_id, token.expire_unix_s);
    let parts = RequestParts::split(&mut datagram).expect("its length");
    assert_eq!((*parts.nonce, *parts.aad, *parts.private), (token.nonce, aad, token.private));
}

#[test]
fn each_check_has_its_reason() {
    let (good, token) = request();
    let id = token.protocol_id;
    assert_eq!(refusal(&good[..REQUEST_BYTES - 1], id, NOW), Some(DropReason::RequestLength));
    assert_eq!(refusal(&[&good[..], &[0]].concat(), id, NOW), Some(DropReason::RequestLength));
    let mut bad = good;
    bad[13] = b' ';
    assert_eq!(refusal(&bad, id, NOW), Some(DropReason::RequestVersion));
    assert_eq!(refusal(&good, id ^ 1 << 63, NOW), Some(DropReason::RequestProtocol));
    assert_eq!(refusal(&good, id, token.expire_unix_s), Some(DropReason::RequestExpired));
    assert_eq!(refusal(&good, id, token.expire_unix_s - 1), None);
    assert_eq!(refusal(&[0x10; REQUEST_BYTES], id, NOW), Some(DropReason::PacketType));
    assert_eq!(refusal(&[], id, NOW), Some(DropReason::PacketType));
}

#[test]
fn the_first_failing_check_decides() {
    let (mut bad, token) = request();
    bad[1] ^= 1;
    assert_eq!(refusal(&bad[..500], 0, u64::MAX), Some(DropReason::RequestLength));
    assert_eq!(refusal(&bad, 0, u64::MAX), Some(DropReason::RequestVersion));
    bad[1] ^= 1;
    assert_eq!(refusal(&bad, 0, u64::MAX), Some(DropReason::RequestProtocol));
    assert_eq!(refusal(&bad, token.protocol_id, u64::MAX), Some(DropReason::RequestExpired));
}
