//! `ringgate kick`: ends sessions of a running gateway.

use serde::Deserialize;

use super::Failure;
use super::admin::Place;
use super::exit::print;

/// End the sessions of a player at a running gateway
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    place: Place,
}

/// Whose sessions are meant.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whom").required(true))]
pub(super) struct Whom {
    /// The player's client id, decimal or 0x…
    #[arg(value_name = "CLIENT_ID", group = "whom")]
    player: Option<String>,
    /// The same
    #[arg(long, alias = "client", value_name = "ID", group = "whom")]
    client_id: Option<String>,
    /// One session, as `ringgate sessions` names it
    #[arg(long, value_name = "ID", group = "whom")]
    pub(super) session: Option<String>,
}

impl Whom {
    /// What a gateway is asked.
    pub(super) fn query(&self) -> String {
        let (name, whom) = self.named();
        format!("{name}={whom}")
    }

    /// The same for people.
    pub(super) fn named(&self) -> (&'static str, &str) {
        match (self.player.as_ref().or(self.client_id.as_ref()), &self.session) {
            (Some(client), _) => ("client", client),
            (None, session) => ("session", session.as_ref().expect("clap wants one of them")),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Kicked {
    pub(super) ended: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let (name, whom) = args.whom.named();
    match admin.change(&format!("/kick?{}", args.whom.query()), &[400])? {
        Kicked { ended: 0 } => {
            Err(Failure::failed(format_args!("{name} {whom} has no session here")))
        }
        Kicked { ended } => print(&format!("ended {ended} sessions of {name} {whom}\n")),
    }
}
