//! `ringgate token`: connect tokens by hand, for tests and for looking at what a token service
//! makes.

mod inspect;
mod mint;

use clap::Subcommand;

pub use inspect::read;

use super::Failure;
use ringgate_config::keys;
use ringgate_core::secret::SharedKey;

/// Make and explain netcode connect tokens
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Addresses and user data are 1.3 KiB inline.
    Mint(Box<mint::Args>),
    Inspect(inspect::Args),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Mint(args) => mint::run(args),
        Command::Inspect(args) => inspect::run(args),
    }
}

/// The key that `--key` names.
pub fn key(text: &str) -> Result<SharedKey, Failure> {
    keys::hex_or_file(text).map_err(|error| Failure::bad_input(format_args!("--key: {error}")))
}

/// What `--timeout` and the field of that name mean.
fn timeout(seconds: i32) -> String {
    if seconds > 0 { format!("{seconds} s") } else { "none".to_owned() }
}
