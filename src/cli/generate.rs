//! `ringgate generate`: what packages ship beside the program, made from the same description of
//! commands that the program reads its arguments by.

use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell;

use super::Failure;
use super::exit::print;

/// Print completions for a shell, or write man pages
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
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
            clap_complete::generate(*shell, &mut command, "ringgate", &mut text);
            print(&String::from_utf8_lossy(&text))
        }
        What::Man { out } => {
            let failed = |why| {
                Failure::failed(format_args!("cannot write man pages to {}: {why}", out.display()))
            };
            std::fs::create_dir_all(out).map_err(failed)?;
            clap_mangen::generate_to(command, out).map_err(failed)
        }
    }
}
