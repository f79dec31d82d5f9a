//! `ringgate fleet confirm`: an operator believes what a gateway holds back.

use serde::Deserialize;

use super::super::Failure;
use super::super::admin::{Answer, Place};
use super::super::exit::print;

/// Have a gateway obey the news of its fleet that it holds back
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of what is held back, as `ringgate status` and the log tell it
    #[arg(value_name = "NUMBER")]
    doubt: u64,
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Outcome {
    confirmed: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let number = args.doubt;
    let Answer { status, body } = admin.post(&format!("/fleet/confirm?doubt={number}"))?;
    match (status, serde_json::from_str(&body)) {
        (200, Ok(Outcome { confirmed: true })) => {
            print(&format!("confirmed {number}: the gateway obeys what etcd tells\n"))
        }
        (200, Ok(Outcome { confirmed: false })) => Err(Failure::bad_input(format_args!(
            "the gateway does not hold back anything under the number {number}"
        ))),
        (404, _) => {
            Err(Failure::bad_input("the gateway is in no fleet: its config has no [fleet]"))
        }
        (400 | 409, _) => Err(Failure::bad_input(body.trim_end())),
        _ => Err(admin.unexpected(status, &body)),
    }
}
