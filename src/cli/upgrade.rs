//! `ringgate upgrade`: has a running gateway start the next release and hand over to it.

use serde::Deserialize;

use super::Failure;
use super::admin::{Answer, Place};
use super::exit::print;

/// Have a running gateway hand its players to the release that is installed now
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
}

#[derive(Deserialize)]
struct Outcome {
    upgraded: bool,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    pause_us: u64,
    #[serde(default)]
    why: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let Answer { status, body } = admin.post("/upgrade")?;
    let unexpected = || admin.unexpected(status, &body);
    let Outcome { upgraded, pid, pause_us, why } =
        serde_json::from_str(&body).map_err(|_| unexpected())?;
    match (status, upgraded) {
        (200, true) => {
            let (ms, tenths) = (pause_us / 1000, pause_us % 1000 / 100);
            print(&format!("upgraded: process {pid} goes on; players waited {ms}.{tenths} ms\n"))
        }
        (409, false) => Err(Failure::failed(format_args!("the gateway goes on as it is: {why}"))),
        _ => Err(unexpected()),
    }
}
