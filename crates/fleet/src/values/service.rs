//! A token service as operators and its fellows have to know it.

use serde::{Deserialize, Serialize};

use super::agent::check_gateways;
use super::{Refused, Stored, check_held, check_name, check_text, is_zero};

/// A token service, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Random, for each start of the process.
    pub instance: String,
    /// The host that it runs on.
    pub host: String,
    /// The program's version.
    pub version: String,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// Its clock when it wrote this, in seconds since 1970.
    pub written: u64,
    /// The other services that it knows of: what it promises stands in etcd before it is told.
    /// `None` where it knows of no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Vec<String>>,
    /// The number of what it holds back until an operator confirms it; 0 for nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubt: u64,
    /// What that is about, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

impl Stored for Service {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.instance, "the instance is no name")?;
        check_name(&self.host, "the host is no name")?;
        check_held(&self.held)?;
        check_gateways(self.beside.as_deref().unwrap_or_default())?;
        check_text(&self.version)
    }
}
