//! arguments -> command; nothing else.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: ringgate_os::wiping::Wiping = ringgate_os::wiping::Wiping;

fn main() -> ExitCode {
    ringgate::cli::run(std::env::args_os())
}
