//! The private part of a token, as it is after decryption: an authentic token of a faulty service
//! must not harm us, and what can be read is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::drops::DropReason;
use ringgate_core::endpoint::Endpoint;
use ringgate_core::limits::TAG_BYTES;
use ringgate_core::netcode::PrivateToken;
use ringgate_core::proto::netcode::server::check_addressed_to;
use ringgate_core::proto::netcode::token::PRIVATE_TOKEN_BYTES;

fuzz_target!(|data: &[u8]| {
    let mut plain = [0; PRIVATE_TOKEN_BYTES];
    let len = data.len().min(plain.len());
    plain[..len].copy_from_slice(&data[..len]);

    let token = match PrivateToken::decode(&plain) {
        Ok(token) => token,
        Err(why) => return assert_eq!(why, DropReason::TokenUnreadable),
    };
    let mut again = [0xff; PRIVATE_TOKEN_BYTES];
    token.encode(&mut again);
    assert_eq!(PrivateToken::decode(&again).as_ref(), Ok(&token));

    // Everything but the padding is as it was, and the padding is zero.
    let text_bytes = 8 + 8 + token.addresses.iter().map(address_bytes).sum::<usize>() + 64 + 256;
    assert!(text_bytes <= PRIVATE_TOKEN_BYTES - TAG_BYTES);
    assert_eq!(again[..text_bytes], plain[..text_bytes]);
    assert!(again[text_bytes..].iter().all(|&byte| byte == 0));

    let own: Vec<_> = token.addresses.iter().map(|&address| Endpoint::from(address)).collect();
    for index in 0..own.len() {
        assert_eq!(check_addressed_to(&token.addresses, &own[index..=index]), Ok(()));
    }
});

fn address_bytes(address: &std::net::SocketAddr) -> usize {
    if address.is_ipv4() { 7 } else { 19 }
}
