//! Server addresses as an operator types them: what is accepted means the same after it was
//! printed, and after it went through a token.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::netcode::{ConnectToken, ServerAddresses, TokenSpec, mint, open_private};
use ringgate_core::secret::Key;

fuzz_target!(|text: &str| {
    let Ok(addresses) = text.parse::<ServerAddresses>() else { return };
    assert!((1..=32).contains(&addresses.len()));
    assert!(addresses.iter().all(|address| address.port() != 0));
    assert_eq!(addresses.to_string().parse(), Ok(addresses.clone()));
    assert_eq!(ServerAddresses::new(&addresses), Ok(addresses.clone()));

    let key = Key::from_bytes([1; 32]);
    let token = mint(&TokenSpec::new(1, 2, addresses.clone()), &key, 3).expect("random bytes");
    let read = ConnectToken::decode(&token.to_bytes()).expect("a token of our own");
    assert_eq!(read.addresses, addresses);
    assert_eq!(open_private(&read, &key).expect("our key").addresses, addresses);
});
