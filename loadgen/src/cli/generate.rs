//! `ringgate-loadgen generate`: completions and man pages, made from the description of commands.

use std::path::PathBuf;

use clap_complete::Shell;

use super::outcome::{Failure, print};

/// Prints completions for a shell, or writes man pages.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Completions for a shell, on stdout
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// A man page for each command
    Man {
        /// The directory to write them to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

pub(super) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    match &args.what {
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "ringgate-loadgen", &mut text);
            print(&String::from_utf8_lossy(&text))
        }
        What::Man { out } => {
            let made = std::fs::create_dir_all(out);
            let made = made.and_then(|()| clap_mangen::generate_to(command, out));
            let why = |why| format!("cannot write man pages to {}: {why}", out.display());
            made.map_err(|it| Failure::Failed(why(it)))
        }
    }
}
