//! arguments -> command; nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringgate::cli::run(std::env::args_os())
}
