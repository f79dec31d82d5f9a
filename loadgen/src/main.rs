//! The load generator's command line.

fn main() -> std::process::ExitCode {
    ringgate_loadgen::cli::run(std::env::args_os())
}
