//! `ringgate-loadgen report`: the HTML report of recorded runs or ladders, alone or compared.

use std::path::{Path, PathBuf};

use super::outcome::{Failure, print, write};
use crate::report;

/// Makes an HTML report of one run or ladder, or compares several.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directories that `run --out`, or that `ladder --out`, has written
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let page = match args.runs.iter().filter(|path| report::is_curve(path)).count() {
        0 => read_all(&args.runs, report::read).map(|runs| report::html(&runs)),
        all if all == args.runs.len() => {
            read_all(&args.runs, report::read_curve).map(|curves| report::curve::html(&curves))
        }
        _ => Err("a run and a ladder cannot be compared".into()),
    };
    write(Some(&args.html), &page.map_err(Failure::BadInput)?)?;
    print(&format!("{}\n", args.html.display()))
}

fn read_all<T>(paths: &[PathBuf], read: fn(&Path) -> Result<T, String>) -> Result<Vec<T>, String> {
    paths.iter().map(|path| read(path)).collect()
}
