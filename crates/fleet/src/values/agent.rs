//! An agent as gateways and operators have to know it: a process on a host with game processes, by
//! which gateways elsewhere reach them.

use serde::{Deserialize, Serialize};

use super::{LIST_MAX, Refused, Stored, check, check_held, check_name, check_text, is_zero};

/// An agent, under its lease. Its name is that of its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Random, for each start of the process.
    pub instance: String,
    /// The host that it runs on.
    pub host: String,
    /// Where it stands, as the operator calls it.
    pub region: String,
    /// The program's version.
    pub version: String,
    /// The gateways of the fleet that it connects to: only these take the backends behind it.
    #[serde(default)]
    pub gateways: Vec<String>,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// Its clock when it wrote this, in seconds since 1970.
    pub written: u64,
    /// The number of what it holds back until an operator confirms it; 0 for nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubt: u64,
    /// What that is about, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// What may go on at another gateway of a cluster behind it: sessions of these protocols, and
    /// [`DELIVERY`]. Nothing from a release that does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arbitrates: Vec<String>,
}

/// Among what an agent arbitrates: whole messages, which it delivers itself.
pub const DELIVERY: &str = "delivery";

impl Stored for Agent {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.instance, "the instance is no name")?;
        check_name(&self.host, "the host is no name")?;
        check_name(&self.region, "the region is no name")?;
        check_held(&self.held)?;
        check_text(&self.version)?;
        check(self.arbitrates.len() <= LIST_MAX, "it arbitrates too much")?;
        self.arbitrates
            .iter()
            .try_for_each(|it| check_name(it, "what it arbitrates is no name"))?;
        check_gateways(&self.gateways)
    }
}

/// Names of gateways, not too many.
pub(super) fn check_gateways(names: &[String]) -> Result<(), Refused> {
    check(names.len() <= LIST_MAX, "there are too many gateways")?;
    names.iter().try_for_each(|name| check_name(name, "a gateway's name is no name"))
}
