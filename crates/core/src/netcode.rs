//! netcode 1.02 ready to use: tokens for token services, a client for games.
//!
//! `proto` describes what is to be sealed and opened, `crypto` does it; here both are joined for
//! programs that handle one token or one connection at a time. (The gateway and the load generator
//! join them themselves, in batches.) There is still no socket and no clock here: time comes in as
//! nanoseconds since any instant that the caller likes, or as seconds of the Unix epoch where
//! tokens are concerned.
//!
//! A token service makes a token and sends it to the player over HTTPS:
//!
//! ```
//! use ringgate_core::netcode::{self, TokenSpec};
//! use ringgate_core::secret::Key;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let now_unix_s = 1_700_000_000;
//! let key = Key::generate()?; // in practice: the key that the gateway's listener has
//! let spec = TokenSpec {
//!     user_data: netcode::user_data(b"arena-1").ok_or("too long")?,
//!     ..TokenSpec::new(0x1122_3344_5566_7788, 42, "203.0.113.9:40000".parse()?)
//! };
//! let token = netcode::mint(&spec, &key, now_unix_s)?;
//! let for_the_player: [u8; 2048] = token.to_bytes();
//!
//! assert_eq!(netcode::open_private(&token, &key)?.client_id, 42);
//! # assert_eq!(netcode::ConnectToken::decode(&for_the_player)?, token);
//! # Ok(())
//! # }
//! ```
//!
//! The player's game connects with it ([`Client`] has the loop).

mod cipher;
mod client;
mod token;

pub use cipher::Cipher;
pub use client::{Client, Notice};
#[cfg(feature = "random")]
pub use token::mint;
pub use token::{
    OpenError, TokenSecrets, TokenSpec, mint_with, open_private, seal_private, user_data,
};

pub use crate::proto::netcode::address::{AddressError, ServerAddresses};
pub use crate::proto::netcode::client::{Options, State};
pub use crate::proto::netcode::destination;
pub use crate::proto::netcode::token::{ConnectToken, PrivateToken, TokenError};
pub use crate::proto::netcode::{USER_DATA_BYTES, UserData};
