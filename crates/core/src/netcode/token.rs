//! Making connect tokens, and reading what is private in them.

use zeroize::Zeroizing;

use crate::crypto::{Aead, Job, Verdict, token};
use crate::proto::netcode::address::ServerAddresses;
use crate::proto::netcode::token::{
    ConnectToken, PRIVATE_TOKEN_BYTES, PrivateToken, TOKEN_NONCE_BYTES, token_aad,
};
use crate::proto::netcode::{USER_DATA_BYTES, UserData};
use crate::secret::Key;

/// What a token is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// Which game, and which version of it; must be the listener's.
    pub protocol_id: u64,
    /// Who the player is. No other player with this id can be connected at the same time.
    pub client_id: u64,
    /// The servers for the client to try, in this order.
    pub servers: ServerAddresses,
    /// The addresses by which servers know themselves, where these differ from what clients dial.
    pub internal_servers: Option<ServerAddresses>,
    /// Seconds during which the token can be used; `None` means without end.
    pub lifetime_seconds: Option<u64>,
    /// Seconds without a packet until either side gives up; negative means never.
    pub timeout_seconds: i32,
    /// Whatever the game server is to know of the player.
    pub user_data: UserData,
}

impl TokenSpec {
    /// A token that can be used for 30 seconds, with a timeout of 5 seconds and without user data.
    pub const fn new(protocol_id: u64, client_id: u64, servers: ServerAddresses) -> Self {
        Self {
            protocol_id,
            client_id,
            servers,
            internal_servers: None,
            lifetime_seconds: Some(30),
            timeout_seconds: 5,
            user_data: [0; USER_DATA_BYTES],
        }
    }
}

/// Bytes as user data, padded with zeros; `None` where they are more than 256.
pub fn user_data(bytes: &[u8]) -> Option<UserData> {
    let mut data = [0; USER_DATA_BYTES];
    data.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(data)
}

/// The random part of a token.
#[derive(Clone, Debug)]
pub struct TokenSecrets {
    /// Nonce of the private part; never used twice under a listener's key.
    pub nonce: [u8; TOKEN_NONCE_BYTES],
    /// Seals what the client sends.
    pub client_to_server: Key,
    /// Seals what the server sends.
    pub server_to_client: Key,
}

impl TokenSecrets {
    /// From the operating system's generator.
    #[cfg(feature = "random")]
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut nonce = [0; TOKEN_NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        Ok(Self { nonce, client_to_server: Key::generate()?, server_to_client: Key::generate()? })
    }
}

/// Makes a token under a listener's key.
#[cfg(feature = "random")]
pub fn mint(
    spec: &TokenSpec,
    key: &Key,
    now_unix_s: u64,
) -> Result<ConnectToken, getrandom::Error> {
    Ok(mint_with(spec, key, now_unix_s, TokenSecrets::generate()?))
}

/// Makes a token from secrets of the caller's, which must never be used for another one.
pub fn mint_with(
    spec: &TokenSpec,
    key: &Key,
    now_unix_s: u64,
    secrets: TokenSecrets,
) -> ConnectToken {
    let TokenSecrets { nonce, client_to_server, server_to_client } = secrets;
    let expire_unix_s =
        spec.lifetime_seconds.map_or(u64::MAX, |lifetime| now_unix_s.saturating_add(lifetime));
    let private = PrivateToken {
        client_id: spec.client_id,
        timeout_seconds: spec.timeout_seconds,
        addresses: spec.internal_servers.as_ref().unwrap_or(&spec.servers).clone(),
        client_to_server: client_to_server.clone(),
        server_to_client: server_to_client.clone(),
        user_data: spec.user_data,
    };
    ConnectToken {
        protocol_id: spec.protocol_id,
        create_unix_s: now_unix_s,
        expire_unix_s,
        nonce,
        private: seal_private(&private, spec.protocol_id, expire_unix_s, &nonce, key),
        timeout_seconds: spec.timeout_seconds,
        addresses: spec.servers.clone(),
        client_to_server,
        server_to_client,
    }
}

/// Seals the private part of a token.
pub fn seal_private(
    private: &PrivateToken,
    protocol_id: u64,
    expire_unix_s: u64,
    nonce: &[u8; TOKEN_NONCE_BYTES],
    key: &Key,
) -> [u8; PRIVATE_TOKEN_BYTES] {
    let mut sealed = [0; PRIVATE_TOKEN_BYTES];
    private.encode(&mut sealed);
    let (key, nonce) = token::derive(key, nonce);
    let aad = token_aad(protocol_id, expire_unix_s);
    Aead::detect().seal(&mut [Job::new(&key, nonce, &aad, &mut sealed)]);
    sealed
}

/// Reads the private part of a token, which takes the listener's key.
pub fn open_private(token: &ConnectToken, key: &Key) -> Result<PrivateToken, OpenError> {
    let mut plain = Zeroizing::new(token.private);
    let (key, nonce) = token::derive(key, &token.nonce);
    let aad = token_aad(token.protocol_id, token.expire_unix_s);
    let mut jobs = [Job::new(&key, nonce, &aad, &mut plain[..])];
    Aead::detect().open(&mut jobs);
    if jobs[0].verdict != Verdict::Done {
        return Err(OpenError::WrongKey);
    }
    PrivateToken::decode(&plain).map_err(|_| OpenError::Unreadable)
}

crate::told! {
    /// Why the private part of a token cannot be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OpenError;
    /// It opened, but its address list is not valid: a faulty token service has made it.
    Unreadable = "the private part of the connect token is not valid",
    /// It was sealed under another key, or protocol id, expiry, nonce or the part itself were
    /// changed.
    WrongKey = "the connect token was made under another key, or was changed",
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn spec() -> TokenSpec {
        TokenSpec::new(7, 42, "192.0.2.1:5,[2001:db8::1]:6".parse().expect("literal"))
    }

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; 32])
    }

    #[test]
    fn a_token_says_what_it_was_told_in_both_parts() {
        let spec = TokenSpec {
            internal_servers: Some("10.0.0.1:5".parse().expect("literal")),
            timeout_seconds: -1,
            user_data: user_data(b"arena-1").expect("short"),
            ..spec()
        };
        let token = mint(&spec, &key(1), NOW).expect("random bytes");
        assert_eq!((token.create_unix_s, token.expire_unix_s), (NOW, NOW + 30));
        assert_eq!((token.timeout_seconds, &token.addresses), (-1, &spec.servers));
        let private = open_private(&token, &key(1)).expect("our own");
        assert_eq!((private.client_id, private.timeout_seconds), (42, -1));
        assert_eq!(Some(private.addresses), spec.internal_servers);
        assert_eq!(private.user_data, spec.user_data);
        assert_eq!(private.client_to_server, token.client_to_server);
        assert_eq!(private.server_to_client, token.server_to_client);
        assert_ne!(token.client_to_server, token.server_to_client);
    }

    #[test]
    fn a_token_without_end_never_expires() {
        let spec = TokenSpec { lifetime_seconds: None, ..spec() };
        let token = mint(&spec, &key(1), NOW).expect("random bytes");
        assert_eq!(token.expire_unix_s, u64::MAX);
        let spec = TokenSpec { lifetime_seconds: Some(u64::MAX), ..spec };
        assert_eq!(mint(&spec, &key(1), NOW).expect("random bytes").expire_unix_s, u64::MAX);
    }

    #[test]
    fn what_the_private_part_vouches_for_cannot_be_changed() {
        let token = mint(&spec(), &key(1), NOW).expect("random bytes");
        assert_eq!(open_private(&token, &key(2)), Err(OpenError::WrongKey));
        let refused = |change: fn(&mut ConnectToken)| {
            let mut changed = token.clone();
            change(&mut changed);
            assert_eq!(open_private(&changed, &key(1)), Err(OpenError::WrongKey));
        };
        refused(|token| token.protocol_id ^= 1);
        refused(|token| token.expire_unix_s += 1);
        refused(|token| token.nonce[23] ^= 1);
        refused(|token| token.private[0] ^= 1);
        refused(|token| token.private[1023] ^= 1);
    }

    #[test]
    fn an_authentic_private_part_can_still_be_unreadable() {
        let mut token = mint(&spec(), &key(1), NOW).expect("random bytes");
        token.private = [0; PRIVATE_TOKEN_BYTES];
        let (subkey, nonce) = token::derive(&key(1), &token.nonce);
        let aad = token_aad(token.protocol_id, token.expire_unix_s);
        Aead::detect().seal(&mut [Job::new(&subkey, nonce, &aad, &mut token.private)]);
        assert_eq!(open_private(&token, &key(1)), Err(OpenError::Unreadable));
    }

    #[test]
    fn user_data_is_padded_and_bounded() {
        assert_eq!(user_data(b"ab").map(|data| (data[1], data[2])), Some((b'b', 0)));
        assert_eq!(user_data(&[1; 256]), Some([1; 256]));
        assert_eq!(user_data(&[1; 257]), None);
    }
}
