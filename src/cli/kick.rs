//! `ringgate kick`: ends sessions of a running gateway.

use serde::Deserialize;

use super::Failure;
use super::admin::{Answer, Place};
use super::exit::print;

/// End the sessions of a player at a running gateway
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whom").required(true))]
pub(super) struct Args {
    /// The player's client id, decimal or 0x…
    #[arg(value_name = "CLIENT_ID", group = "whom")]
    player: Option<String>,
    /// The same
    #[arg(long, alias = "client", value_name = "ID", group = "whom")]
    client_id: Option<String>,
    /// One session, as `ringgate sessions` names it
    #[arg(long, value_name = "ID", group = "whom")]
    session: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Kicked {
    ended: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let (name, whom) = match (args.player.as_ref().or(args.client_id.as_ref()), &args.session) {
        (Some(client), _) => ("client", client),
        (None, session) => ("session", session.as_ref().expect("clap wants one of them")),
    };
    let Answer { status, body } = admin.post(&format!("/kick?{name}={whom}"))?;
    match (status, serde_json::from_str(&body)) {
        (200, Ok(Kicked { ended: 0 })) => {
            Err(Failure::failed(format_args!("{name} {whom} has no session here")))
        }
        (200, Ok(Kicked { ended })) => print(&format!("ended {ended} sessions of {name} {whom}\n")),
        (400, _) => Err(Failure::bad_input(body.trim_end())),
        _ => Err(admin.unexpected(status, &body)),
    }
}
