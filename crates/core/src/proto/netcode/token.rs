//! Connect tokens: what a token service gives to a client, and the private part that only servers
//! can read.
//!
//! The private part is sealed as one AEAD message whose associated data is the protocol id and the
//! expiry, so a client can neither read nor move it. Timeout, addresses and keys stand in both
//! parts: the public ones are for the client, the private ones for the server. The two address
//! lists may differ, where servers know themselves by an internal address.
//!
//! The codecs write plain text; sealing is the caller's, with the nonce and associated data given
//! here.

use super::address::ServerAddresses;
use super::wire::{Reader, Writer};
use super::{USER_DATA_BYTES, UserData, VERSION_INFO};
use crate::drops::DropReason;
use crate::limits::TAG_BYTES;
use crate::secret::Key;

/// A connect token, as files and web services carry it.
pub const CONNECT_TOKEN_BYTES: usize = 2048;

/// The sealed private part, tag included.
pub const PRIVATE_TOKEN_BYTES: usize = 1024;

/// Nonce of the private part (XChaCha20-Poly1305).
pub const TOKEN_NONCE_BYTES: usize = 24;

/// Associated data of the private part.
pub const TOKEN_AAD_BYTES: usize = VERSION_INFO.len() + 8 + 8;

/// The associated data under which a private part is sealed.
pub fn token_aad(protocol_id: u64, expire_unix_s: u64) -> [u8; TOKEN_AAD_BYTES] {
    let mut aad = [0; TOKEN_AAD_BYTES];
    let mut out = Writer::new(&mut aad);
    out.put(VERSION_INFO);
    out.put(&protocol_id.to_le_bytes());
    out.put(&expire_unix_s.to_le_bytes());
    aad
}

/// What a token service tells the server about a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateToken {
    /// Who the player is, unique among those connected.
    pub client_id: u64,
    /// Seconds without a packet until either side gives up; negative means never.
    pub timeout_seconds: i32,
    /// The servers that may accept the token, by the addresses they know themselves by.
    pub addresses: ServerAddresses,
    /// Seals what the client sends.
    pub client_to_server: Key,
    /// Seals what the server sends.
    pub server_to_client: Key,
    /// Whatever the token service has to tell the game server.
    pub user_data: UserData,
}

impl PrivateToken {
    /// Writes the plain text, zero-padded. The last 16 bytes are left for the tag.
    pub fn encode(&self, out: &mut [u8; PRIVATE_TOKEN_BYTES]) {
        let mut out = Writer::new(out);
        out.put(&self.client_id.to_le_bytes());
        Terms::encode(
            self.timeout_seconds,
            &self.addresses,
            &self.client_to_server,
            &self.server_to_client,
            &mut out,
        );
        out.put(&self.user_data);
        out.pad();
    }

    /// Reads an opened private part. The padding and the tag's place are not looked at.
    ///
    /// The only refusal is [`DropReason::TokenUnreadable`].
    pub fn decode(plain: &[u8; PRIVATE_TOKEN_BYTES]) -> Result<Self, DropReason> {
        let text = &plain[..PRIVATE_TOKEN_BYTES - TAG_BYTES];
        Self::read(&mut Reader::new(text)).ok_or(DropReason::TokenUnreadable)
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let client_id = input.u64()?;
        let terms = Terms::read(input)?;
        Some(Self {
            client_id,
            timeout_seconds: terms.timeout_seconds,
            addresses: terms.addresses,
            client_to_server: terms.client_to_server,
            server_to_client: terms.server_to_client,
            user_data: *input.array::<USER_DATA_BYTES>()?,
        })
    }
}

/// What a token service gives to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectToken {
    /// Which game, and which version of it.
    pub protocol_id: u64,
    /// When the token was made, in seconds of the Unix epoch by the token service's clock.
    pub create_unix_s: u64,
    /// From when on servers refuse it.
    pub expire_unix_s: u64,
    /// The nonce under which the private part is sealed.
    pub nonce: [u8; TOKEN_NONCE_BYTES],
    /// The sealed private part.
    pub private: [u8; PRIVATE_TOKEN_BYTES],
    /// Seconds without a packet until either side gives up; 0 and less means never.
    pub timeout_seconds: i32,
    /// The servers to try, in this order.
    pub addresses: ServerAddresses,
    /// Seals what the client sends.
    pub client_to_server: Key,
    /// Seals what the server sends.
    pub server_to_client: Key,
}

impl ConnectToken {
    /// Writes the token, zero-padded. It holds two session keys: the buffer is the caller's to
    /// protect.
    pub fn encode(&self, out: &mut [u8; CONNECT_TOKEN_BYTES]) {
        let mut out = Writer::new(out);
        out.put(VERSION_INFO);
        out.put(&self.protocol_id.to_le_bytes());
        out.put(&self.create_unix_s.to_le_bytes());
        out.put(&self.expire_unix_s.to_le_bytes());
        out.put(&self.nonce);
        out.put(&self.private);
        Terms::encode(
            self.timeout_seconds,
            &self.addresses,
            &self.client_to_server,
            &self.server_to_client,
            &mut out,
        );
        out.pad();
    }

    /// The token's 2048 bytes.
    pub fn to_bytes(&self) -> [u8; CONNECT_TOKEN_BYTES] {
        let mut bytes = [0; CONNECT_TOKEN_BYTES];
        self.encode(&mut bytes);
        bytes
    }

    /// Reads a token.
    pub fn decode(bytes: &[u8]) -> Result<Self, TokenError> {
        if bytes.len() != CONNECT_TOKEN_BYTES {
            return Err(TokenError::Length);
        }
        if !bytes.starts_with(VERSION_INFO) {
            return Err(TokenError::Version);
        }
        let token = Self::read(&mut Reader::new(bytes)).ok_or(TokenError::Addresses)?;
        if token.create_unix_s > token.expire_unix_s {
            return Err(TokenError::Dates);
        }
        Ok(token)
    }

    /// Only the address list can fail here: a token of full length has room for the longest one.
    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let _version = input.array::<{ VERSION_INFO.len() }>()?;
        let protocol_id = input.u64()?;
        let create_unix_s = input.u64()?;
        let expire_unix_s = input.u64()?;
        let nonce = *input.array()?;
        let private = *input.array()?;
        let terms = Terms::read(input)?;
        Some(Self {
            protocol_id,
            create_unix_s,
            expire_unix_s,
            nonce,
            private,
            timeout_seconds: terms.timeout_seconds,
            addresses: terms.addresses,
            client_to_server: terms.client_to_server,
            server_to_client: terms.server_to_client,
        })
    }
}

crate::told! {
    /// Why a connect token cannot be used. Tokens come from files and web services, not off the
    /// wire, so this is not a [`DropReason`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TokenError;
    /// The address list has 0 or more than 32 entries, or an address of an unknown type.
    Addresses = "the connect token's list of server addresses is damaged",
    /// It expires before it was made.
    Dates = "the connect token expires before it was created",
    /// Not 2048 bytes.
    Length = "a connect token has exactly 2048 bytes",
    /// Not a netcode 1.02 token at all.
    Version = "this is not a netcode 1.02 connect token",
}

/// What both parts of a token say, in the same layout.
struct Terms {
    timeout_seconds: i32,
    addresses: ServerAddresses,
    client_to_server: Key,
    server_to_client: Key,
}

impl Terms {
    fn encode(
        timeout_seconds: i32,
        addresses: &ServerAddresses,
        client_to_server: &Key,
        server_to_client: &Key,
        out: &mut Writer<'_>,
    ) {
        out.put(&timeout_seconds.to_le_bytes());
        addresses.encode(out);
        out.put(client_to_server.as_bytes());
        out.put(server_to_client.as_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            timeout_seconds: input.i32()?,
            addresses: ServerAddresses::decode(input)?,
            client_to_server: Key::from_bytes(*input.array()?),
            server_to_client: Key::from_bytes(*input.array()?),
        })
    }
}

const TERMS_BYTES_MAX: usize =
    4 + 4 + super::address::SERVERS_MAX * super::address::ADDRESS_BYTES_MAX + 2 * 32;
const _: () = assert!(8 + TERMS_BYTES_MAX + USER_DATA_BYTES <= PRIVATE_TOKEN_BYTES - TAG_BYTES);
const _: () = assert!(
    VERSION_INFO.len() + 24 + TOKEN_NONCE_BYTES + PRIVATE_TOKEN_BYTES + TERMS_BYTES_MAX
        <= CONNECT_TOKEN_BYTES
);

#[cfg(test)]
pub(super) mod tests;
