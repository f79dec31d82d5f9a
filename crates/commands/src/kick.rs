//! `ringgate kick`: ends sessions of a running gateway.

use serde::Deserialize;

use super::admin::Place;
use super::exit::print;
use super::{Failure, deny};

/// End the sessions of a player at a running gateway
#[derive(Debug, clap::Args)]
pub struct Args {
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
    ended: u64,
    complete: bool,
}

impl Kicked {
    /// What has become of it; `None` where there is no such session.
    pub(super) fn told(&self, (name, whom): (&str, &str)) -> Option<String> {
        let Self { ended, complete } = *self;
        let rest = deny::unfinished(complete);
        (ended > 0 || !complete).then(|| format!("ended {ended} sessions of {name} {whom}\n{rest}"))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let (name, whom) = args.whom.named();
    let kicked: Kicked = admin.change(&format!("/kick?{}", args.whom.query()), &[400])?;
    match kicked.told((name, whom)) {
        None => Err(Failure::failed(format_args!("{name} {whom} has no session here"))),
        Some(text) => print(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_not_answered_is_said_and_may_have_had_the_player() {
        let told = |ended: u64, complete: bool| {
            let answer = format!(r#"{{"ended":{ended},"complete":{complete}}}"#);
            let kicked: Kicked = serde_json::from_str(&answer).expect("as a gateway says it");
            kicked.told(("client", "7"))
        };
        let rest = "a worker has not answered in time; its sessions are still being ended\n";
        assert_eq!(told(0, true), None);
        assert_eq!(told(2, true).as_deref(), Some("ended 2 sessions of client 7\n"));
        for ended in [0, 2] {
            let expected = format!("ended {ended} sessions of client 7\n{rest}");
            assert_eq!(told(ended, false), Some(expected));
        }
    }
}
