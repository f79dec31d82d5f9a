//! Connect tokens, public and private part: both round trips, every fault, and bytes that are no
//! token.

use proptest::prelude::*;

use super::*;
use crate::proto::netcode::address::SERVERS_MAX;

fn addresses(count: usize) -> ServerAddresses {
    let list: Vec<_> = (0..count).map(|i| format!("[2001:db8::{i:x}]:{}", 40000 + i)).collect();
    list.join(",").parse().expect("valid addresses")
}

pub(in crate::proto::netcode) fn private_token(count: usize) -> PrivateToken {
    PrivateToken {
        client_id: 7,
        timeout_seconds: -1,
        addresses: addresses(count),
        client_to_server: Key::from_bytes([1; 32]),
        server_to_client: Key::from_bytes([2; 32]),
        user_data: [3; USER_DATA_BYTES],
    }
}

pub(in crate::proto::netcode) fn connect_token(count: usize) -> ConnectToken {
    ConnectToken {
        protocol_id: 0x1122_3344_5566_7788,
        create_unix_s: 1000,
        expire_unix_s: 1030,
        nonce: [4; TOKEN_NONCE_BYTES],
        private: [5; PRIVATE_TOKEN_BYTES],
        timeout_seconds: 5,
        addresses: addresses(count),
        client_to_server: Key::from_bytes([1; 32]),
        server_to_client: Key::from_bytes([2; 32]),
    }
}

/// Where the address list of each form begins.
const PRIVATE_LIST_START: usize = 8 + 4;
const PUBLIC_LIST_START: usize = 13 + 8 + 8 + 8 + 24 + 1024 + 4;

#[test]
fn both_forms_come_back_with_one_address_and_with_all() {
    for count in [1, 2, SERVERS_MAX] {
        let mut bytes = [0xff; PRIVATE_TOKEN_BYTES];
        private_token(count).encode(&mut bytes);
        assert_eq!(PrivateToken::decode(&bytes), Ok(private_token(count)));

        let mut bytes = [0xff; CONNECT_TOKEN_BYTES];
        connect_token(count).encode(&mut bytes);
        assert_eq!(ConnectToken::decode(&bytes), Ok(connect_token(count)));
    }
}

#[test]
fn a_private_token_with_a_bad_address_list_is_unreadable() {
    let mut good = [0; PRIVATE_TOKEN_BYTES];
    private_token(2).encode(&mut good);
    for (offset, byte) in [(0, 0), (0, 33), (3, 1), (4, 0), (4, 3), (4 + 19, 0)] {
        let mut bad = good;
        bad[PRIVATE_LIST_START + offset] = byte;
        assert_eq!(PrivateToken::decode(&bad), Err(DropReason::TokenUnreadable), "{offset}");
    }
}

#[test]
fn each_fault_of_a_connect_token_has_its_own_error() {
    let mut good = [0; CONNECT_TOKEN_BYTES];
    connect_token(2).encode(&mut good);
    let with = |offset: usize, byte| {
        let mut bad = good;
        bad[offset] = byte;
        ConnectToken::decode(&bad).map(drop)
    };
    assert_eq!(with(0, b'n'), Err(TokenError::Version));
    assert_eq!(with(12, b' '), Err(TokenError::Version));
    assert_eq!(with(PUBLIC_LIST_START, 0), Err(TokenError::Addresses));
    assert_eq!(with(PUBLIC_LIST_START, 33), Err(TokenError::Addresses));
    assert_eq!(with(PUBLIC_LIST_START + 4, 0), Err(TokenError::Addresses));
    assert_eq!(with(13 + 8 + 7, 1), Err(TokenError::Dates));
    assert_eq!(ConnectToken::decode(&good[..2047]).map(drop), Err(TokenError::Length));
    assert_eq!(
        ConnectToken::decode(&[&good[..], &[0]].concat()).map(drop),
        Err(TokenError::Length)
    );
}

#[test]
fn a_token_may_expire_the_moment_it_is_made() {
    let mut token = connect_token(1);
    token.create_unix_s = token.expire_unix_s;
    let mut bytes = [0; CONNECT_TOKEN_BYTES];
    token.encode(&mut bytes);
    assert_eq!(ConnectToken::decode(&bytes), Ok(token));
}

#[test]
fn printing_a_token_shows_no_key() {
    let text = format!("{:?} {:?}", private_token(1), connect_token(1));
    assert_eq!(text.matches("Key(..)").count(), 4);
}

proptest! {
    /// Whatever decodes, encodes to something that decodes to the same.
    #[test]
    fn decoding_and_encoding_agree(seed in proptest::collection::vec(any::<u8>(), PRIVATE_TOKEN_BYTES), count in 1_u32..=32, v6: u32) {
        let mut bytes: [u8; PRIVATE_TOKEN_BYTES] = seed.try_into().expect("its length");
        bytes[PRIVATE_LIST_START..][..4].copy_from_slice(&count.to_le_bytes());
        let mut offset = PRIVATE_LIST_START + 4;
        for index in 0..count {
            let is_v6 = v6 >> index & 1 == 1;
            bytes[offset] = 1 + u8::from(is_v6);
            offset += if is_v6 { 19 } else { 7 };
        }
        let token = PrivateToken::decode(&bytes).expect("a list made to be valid");
        let mut again = [0; PRIVATE_TOKEN_BYTES];
        token.encode(&mut again);
        let text_end = offset + 64 + USER_DATA_BYTES;
        prop_assert_eq!(&again[..text_end], &bytes[..text_end]);
        prop_assert!(again[text_end..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn no_bytes_make_decoding_panic(seed in proptest::collection::vec(any::<u8>(), CONNECT_TOKEN_BYTES), head in 0_usize..=64) {
        let mut bytes = [0; CONNECT_TOKEN_BYTES];
        connect_token(1).encode(&mut bytes);
        bytes[head..].copy_from_slice(&seed[head..]);
        let _ = ConnectToken::decode(&bytes);
        let _ = PrivateToken::decode(seed[..PRIVATE_TOKEN_BYTES].try_into().expect("its length"));
    }
}
