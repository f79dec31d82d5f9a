//! A listener's key of one epoch, sealed. Who may read etcd cannot read it.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, check};
use crate::epochs::Validity;

/// A sealed key. `seal` opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerKey {
    /// When tokens may be minted with it, and until when they are accepted.
    #[serde(flatten)]
    pub validity: Validity,
    /// Nonce and ciphertext, base64.
    pub sealed: String,
}

impl Stored for ListenerKey {
    fn check(&self) -> Result<(), Refused> {
        let Validity { from, mint_until, accept_until } = self.validity;
        check(from < mint_until && mint_until <= accept_until, "the key is never valid")?;
        check(self.sealed.len() <= SEALED_TEXT_MAX, "the sealed key is too long")
    }
}

/// Base64 of a nonce, a key and a tag is shorter than this.
const SEALED_TEXT_MAX: usize = 128;
