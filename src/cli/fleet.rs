//! `ringgate fleet`: what all gateways, game servers and token services of a fleet agree on, as it
//! stands in etcd. Only `confirm` speaks with a gateway: what is held back is held back there.

mod confirm;
mod deny;
mod doctor;
mod events;
mod keys;
mod status;
mod survey;
mod target;
#[cfg(test)]
mod tests;
mod top;
mod wait;

use clap::Subcommand;

use super::Failure;

/// Look at a fleet, rotate its keys and deny players in it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Allow(deny::AllowArgs),
    Confirm(confirm::Args),
    Denied(deny::DeniedArgs),
    Deny(deny::DenyArgs),
    Doctor(doctor::Args),
    Events(events::Args),
    Init(keys::InitArgs),
    /// Make and show the keys of listeners
    #[command(subcommand)]
    Keys(Keys),
    Status(status::Args),
    Top(top::Args),
}

#[derive(Debug, Subcommand)]
enum Keys {
    List(keys::ListArgs),
    Rotate(keys::RotateArgs),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Allow(args) => deny::allow(args),
        Command::Confirm(args) => confirm::run(args),
        Command::Denied(args) => deny::denied(args),
        Command::Deny(args) => deny::deny(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Events(args) => events::run(args),
        Command::Init(args) => keys::init(args),
        Command::Keys(Keys::List(args)) => keys::list(args),
        Command::Keys(Keys::Rotate(args)) => keys::rotate(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
    }
}
