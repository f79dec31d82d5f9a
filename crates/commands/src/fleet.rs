//! `ringgate fleet`: what all gateways, game servers and token services of a fleet agree on, as it
//! stands in etcd. `confirm` speaks with a gateway, because what is held back is held back there,
//! and `ask` with all of them, by keys in etcd.

mod ask;
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
#[cfg(feature = "top")]
mod top;
mod wait;

#[cfg(not(feature = "top"))]
left_out!(top);

use clap::Subcommand;

use super::Failure;

/// Look at a fleet, rotate its keys, deny players in it, and ask all its gateways at once
#[derive(Debug, clap::Args)]
pub struct Args {
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
    Drain(ask::DrainArgs),
    Events(events::Args),
    Init(keys::InitArgs),
    /// Make and show the keys of listeners
    #[command(subcommand)]
    Keys(Keys),
    Kick(ask::KickArgs),
    Move(ask::MoveArgs),
    Sessions(ask::SessionsArgs),
    Status(status::Args),
    Top(top::Args),
    Trace(ask::TraceArgs),
    Undrain(ask::UndrainArgs),
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
        Command::Drain(args) => ask::drain(args),
        Command::Events(args) => events::run(args),
        Command::Init(args) => keys::init(args),
        Command::Keys(Keys::List(args)) => keys::list(args),
        Command::Keys(Keys::Rotate(args)) => keys::rotate(args),
        Command::Kick(args) => ask::kick(args),
        Command::Move(args) => ask::move_player(args),
        Command::Sessions(args) => ask::sessions(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Trace(args) => ask::trace(args),
        Command::Undrain(args) => ask::undrain(args),
    }
}
