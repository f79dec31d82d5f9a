//! `ringgate allow`: takes a denial back, or leaves an exception within one.

use super::Failure;
use super::deny::{Words, named};
use super::exit::print;
use ringgate_report::text::{Append as _, count};

/// Let addresses or players in again, or except them from a longer denial
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Let addresses or players in again, or except them from a denial around them\n\n\
    What was said about exactly this prefix is forgotten. Where a shorter prefix around it is denied, it stays \
    as an exception, for as long as one is. What was said about longer prefixes within it stays, unless --whole \
    is given."
)]
pub struct Args {
    #[command(flatten)]
    words: Words,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let whom = args.words.whom()?;
    let changed = args.words.ask("allow", &whom)?;
    let (named, span) = (named(&whom), args.words.span());
    let mut text = match (changed.changed, changed.exceptions) {
        (0, 0) => format!("{named} was not denied\n"),
        (_, 0) => format!("{named} may play\n"),
        (_, 1) => {
            format!("{named} may play{span}: an exception, because a prefix around it is denied\n")
        }
        (_, many) => {
            let many = count(many);
            format!(
                "{named} may play{span}; {many} are exceptions, because prefixes around them are denied\n"
            )
        }
    };
    if changed.contrary > 0 {
        let contrary = count(changed.contrary);
        writeln!(text, "denied prefixes within that stay: {contrary} (--whole forgets them)");
    }
    print(&(text + &changed.caveats()))
}
