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
    /// When that began, in seconds since 1970: where a login could not be told at once, the later
    /// one of two wins by this.
    #[serde(default)]
    pub since: u64,
}

impl Stored for PlayerClaim {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")?;
        check_name(&self.instance, "the instance is no name")
    }
}

/// Tells a gateway that a newer session of a player is elsewhere. Its key's lease ends soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ousted {
    /// Which of its sessions is to end.
    pub session: u64,
    /// Where the newer one is.
    pub gateway: String,
}

impl Stored for Ousted {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")
    }
}
