//! `ringgate reload`: has a running gateway, or agent, read its config again.

use serde::Deserialize;

use super::Failure;
use super::admin::{Answer, FilePlace};
use super::exit::print;
use ringgate_report::text::Append as _;

/// Have a running gateway or agent read its config and keys again
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: FilePlace,
    /// Only say what would change, or why it would be refused
    #[arg(long)]
    dry_run: bool,
}

/// One of the two is there.
#[derive(Deserialize)]
struct Reloaded {
    #[serde(default)]
    changes: Vec<String>,
    #[serde(default)]
    mistakes: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let path = if args.dry_run { "/reload?dry_run=1" } else { "/reload" };
    let Answer { status, body } = admin.post(path)?;
    let unexpected = || admin.unexpected(status, &body);
    let Reloaded { changes, mistakes } = serde_json::from_str(&body).map_err(|_| unexpected())?;
    match status {
        200 if args.dry_run && changes.is_empty() => print("a reload would change nothing\n"),
        200 if args.dry_run => print(&lines("a reload would change", &changes)),
        200 if changes.is_empty() => print("reloaded; nothing has changed\n"),
        200 => print(&lines("reloaded", &changes)),
        422 if args.dry_run => {
            Err(Failure::bad_input(lines("a reload would be refused", &mistakes).trim_end()))
        }
        422 => Err(Failure::bad_input(lines("nothing was changed", &mistakes).trim_end())),
        _ => Err(unexpected()),
    }
}

fn lines(head: &str, list: &[String]) -> String {
    list.iter().fold(format!("{head}:\n"), |mut text, line| {
        writeln!(text, "  {line}");
        text
    })
}
