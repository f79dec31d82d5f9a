//! What only one gateway may have: a token, a player; and what only one server is promised.

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
    /// In which term of its session that gateway has it: the session may have gone there from
    /// another gateway of its cluster, and keeps its moment. 0 where it goes to none; `None` where
    /// it is not told.
    pub term: Option<u16>,
}

impl Stored for PlayerClaim {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")?;
        check_name(&self.instance, "the instance is no name")
    }
}

/// Where a slot is promised to a client. Its key's lease outlives the promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseClaim {
    /// Which start of a token service has promised it.
    pub service: String,
    /// At which server.
    pub backend: String,
    /// Until when the player may come, in seconds since 1970.
    pub until: u64,
    /// Another start has promised the same client something there, too: this stands until the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl Stored for PromiseClaim {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.service, "the service is no name")?;
        check_name(&self.backend, "the backend is no name")
    }
}

/// How many processes the gateways of a cluster have had: each is one more than the last. It stands
/// for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnations {
    /// The last one's number.
    pub last: u16,
}

impl Stored for Incarnations {
    fn check(&self) -> Result<(), Refused> {
        Ok(())
    }
}

/// Whose the name of a game process is at its host. Its key stands while a process of that user has
/// the name, and through grace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameClaim {
    /// The user, by its number at that host.
    pub uid: u32,
}

impl Stored for NameClaim {
    fn check(&self) -> Result<(), Refused> {
        Ok(())
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
