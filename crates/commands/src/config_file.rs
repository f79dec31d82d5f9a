//! Which config file a command is about: the one that is named, or else the one of this host.

use std::path::{Path, PathBuf};

use super::{Failure, exit};
use ringgate_config::LoadError;

/// A config file, in either of two ways.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigFile {
    /// The config file [default: what `RINGGATE_CONFIG` names, or else the one in /etc/ringgate]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    /// The file, or else the one of this host.
    pub fn or(&self, default: &str) -> PathBuf {
        self.named().or_else(from_environment).unwrap_or_else(|| default.into())
    }

    /// The file, or else the one of this host's gateway, where there is one.
    pub(super) fn of_host(&self) -> Option<PathBuf> {
        self.named().or_else(of_host)
    }

    /// The file, if one is named.
    pub(super) fn named(&self) -> Option<PathBuf> {
        self.file.clone().or_else(|| self.config.clone())
    }
}

/// The file of a role that has one of its own kind.
#[derive(Debug, clap::Args)]
pub struct RoleFile {
    #[command(flatten)]
    config: ConfigFile,
    /// Only look whether the file is right
    #[arg(long)]
    check: bool,
    /// Print every field of such a file with its meaning
    #[arg(long, conflicts_with_all = ["file", "config"])]
    explain: bool,
}

impl RoleFile {
    /// The file to serve by; `None` where it was only to be looked at, which is done.
    pub fn to_serve<C>(
        &self,
        default: &str,
        explain: impl FnOnce() -> String,
        load: impl FnOnce(&Path) -> Result<C, LoadError>,
    ) -> Result<Option<PathBuf>, Failure> {
        let file = self.config.or(default);
        if self.explain {
            exit::print(&explain())?;
        } else if self.check {
            load(&file)?;
            exit::print(&format!("{}: ok\n", file.display()))?;
        } else {
            return Ok(Some(file));
        }
        Ok(None)
    }
}

/// What the environment says.
pub(super) fn from_environment() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|it| !it.is_empty()).map(PathBuf::from)
}

/// The file that the environment names, or else the one of this host's gateway, where there is one.
pub(super) fn of_host() -> Option<PathBuf> {
    from_environment().or_else(of_gateway)
}

/// The file of this host's gateway, where it is at its usual place.
pub(super) fn of_gateway() -> Option<PathBuf> {
    Some(PathBuf::from(GATEWAY)).filter(|it| it.exists())
}

/// What names it.
pub(super) const VARIABLE: &str = "RINGGATE_CONFIG";

/// Where a gateway's file is if nobody says otherwise.
pub const GATEWAY: &str = "/etc/ringgate/gate.toml";

/// The same of an agent.
pub const AGENT: &str = "/etc/ringgate/agent.toml";

/// The same of a token service.
pub const TOKENS: &str = "/etc/ringgate/tokens.toml";
