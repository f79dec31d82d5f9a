//! `ringgate-loadgen report`: the HTML report of recorded runs, alone or compared.

use std::path::PathBuf;

use super::outcome::{Failure, print, write};
use crate::report;

/// Makes an HTML report of one run, or compares several.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directories that `run --out` has written
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runs: Result<Vec<_>, _> = args.runs.iter().map(|path| report::read(path)).collect();
    write(&args.html, &report::html(&runs.map_err(Failure::BadInput)?))?;
    print(&format!("{}\n", args.html.display()))
}
