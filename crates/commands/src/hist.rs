//! `ringgate hist`: what to do with the histogram files of gateways and load generators. All
//! commands read any `HdrHistogram` interval log whose values are nanoseconds.

mod diff;
mod files;
mod merge;
mod moment;
mod plot;
mod show;
mod slots;

use clap::Subcommand;

use super::Failure;

/// Show, compare, plot and merge histogram files
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: HistCommand,
}

#[derive(Debug, Subcommand)]
enum HistCommand {
    Diff(diff::Args),
    Merge(merge::Args),
    Plot(plot::Args),
    Show(show::Args),
}

/// The percentiles of a file, as `show` prints them.
pub(super) fn table(file: &std::path::Path) -> Result<String, Failure> {
    Ok(show::render(&[files::load(file)?]))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        HistCommand::Diff(args) => diff::run(args),
        HistCommand::Merge(args) => merge::run(args),
        HistCommand::Plot(args) => plot::run(args),
        HistCommand::Show(args) => show::run(args),
    }
}
