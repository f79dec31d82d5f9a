//! What only one gateway may have: a token, a player.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, check_name};

/// A token that was used. Its key's lease ends when the token does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaim {
    /// At which gateway.
    pub gateway: String,
    /// Which start of it.
    pub instance: String,
}

impl Stored for TokenClaim {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")?;
        check_name(&self.instance, "the instance is no name")
    }
}

/// Where a player is. The newer login wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayerClaim {
    /// At which gateway.
    pub gateway: String,
    /// Which start of it.
    pub instance: String,
    /// Which of its sessions.
    pub session: u64,
}

impl Stored for PlayerClaim {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")?;
        check_name(&self.instance, "the instance is no name")
    }
}
