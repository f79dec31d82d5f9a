//! The commands of ringgate that serve nobody and play nobody themselves: they ask a daemon by its
//! control socket, a fleet by etcd, or this host, or work on files and keys. One file for each
//! command, with its arguments and a `run` that either succeeds or says in one sentence why not.
//! `exit` turns that into what the terminal and the shell see, the same way for all commands;
//! `admin`, `files`, `config_file` and `logging` are what many of them need.
//!
//! They need neither workers nor a control plane, so a change there builds none of them anew.

#![cfg_attr(
    not(all(feature = "fleet", feature = "top", feature = "xdp")),
    allow(dead_code, unused_imports, reason = "whoever uses it is left out")
)]

#[macro_use]
mod left_out;

pub mod admin;
mod allow;
mod build;
mod capture;
mod check;
mod cluster;
pub mod config_file;
mod denied;
mod deny;
pub mod doctor;
mod drain;
pub mod exit;
pub mod files;
#[cfg(feature = "fleet")]
mod fleet;
mod generate;
mod hist;
mod keygen;
mod kick;
pub mod logging;
mod moving;
mod reload;
pub mod run_args;
mod sessions;
mod status;
mod support;
pub mod token;
#[cfg(feature = "top")]
mod top;
mod trace;
mod undrain;
mod upgrade;

#[cfg(not(feature = "fleet"))]
left_out!(fleet);
#[cfg(not(feature = "top"))]
left_out!(top);

use clap::Subcommand;

pub use build::LONG_VERSION;
pub use exit::Failure;

/// One of them, with its arguments.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "what each does stands with its arguments, for its help")]
pub enum Command {
    #[command(alias = "unban")]
    Allow(allow::Args),
    Capture(capture::Args),
    #[command(alias = "validate")]
    Check(check::Args),
    Cluster(cluster::Args),
    Denied(denied::Args),
    #[command(alias = "ban")]
    Deny(deny::Args),
    Doctor(doctor::Args),
    #[command(alias = "stop")]
    Drain(drain::Args),
    Fleet(Box<fleet::Args>),
    Generate(generate::Args),
    Hist(hist::Args),
    Keygen(keygen::Args),
    Kick(kick::Args),
    Move(moving::Args),
    Reload(reload::Args),
    Sessions(sessions::Args),
    Status(status::Args),
    Support(support::Args),
    Token(token::Args),
    Top(top::Args),
    Trace(trace::Args),
    Undrain(undrain::Args),
    Upgrade(upgrade::Args),
    /// Print version, commit and kind of build
    #[command(hide = true)]
    Version,
}

impl Command {
    /// Runs it. `all` is the whole command line, for those who want it described.
    pub fn run(&self, all: impl FnOnce() -> clap::Command) -> Result<(), Failure> {
        match self {
            Self::Allow(args) => allow::run(args),
            Self::Capture(args) => capture::run(args),
            Self::Check(args) => check::run(args),
            Self::Cluster(args) => cluster::run(args),
            Self::Denied(args) => denied::run(args),
            Self::Deny(args) => deny::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Drain(args) => drain::run(args),
            Self::Fleet(args) => fleet::run(args),
            Self::Generate(args) => generate::run(args, all()),
            Self::Hist(args) => hist::run(args),
            Self::Keygen(args) => keygen::run(args),
            Self::Kick(args) => kick::run(args),
            Self::Move(args) => moving::run(args),
            Self::Reload(args) => reload::run(args),
            Self::Sessions(args) => sessions::run(args),
            Self::Status(args) => status::run(args),
            Self::Support(args) => support::run(args),
            Self::Token(args) => token::run(args),
            Self::Top(args) => top::run(args),
            Self::Trace(args) => trace::run(args),
            Self::Undrain(args) => undrain::run(args),
            Self::Upgrade(args) => upgrade::run(args),
            Self::Version => exit::print(&format!("ringgate {}\n", *LONG_VERSION)),
        }
    }
}
