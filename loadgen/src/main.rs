//! The load generator's command line.

fn main() -> std::process::ExitCode {
    eprintln!("ringgate-loadgen: not built yet");
    std::process::ExitCode::from(2)
}
