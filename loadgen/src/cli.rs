//! The command line: one file for each command. 0: done. 1: it could not be done. 2: the input is
//! wrong. 3: a condition of `--require` was missed. 4: books do not balance or cannot be compared,
//! which makes every other figure doubtful. 5: it proves nothing, because players stayed outside or
//! nothing was measured. 130 and 143: interrupted by SIGINT or SIGTERM. Where several hold, the
//! reason that spoils most decides, and all are said.

mod attack;
mod bare;
mod delivery;
mod floor;
mod generate;
mod impair;
mod ladder;
mod live;
mod outcome;
mod plain;
mod players;
mod report;
mod run;
mod serve;
mod table;
mod unreal;
mod values;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ringgate_os::signals;

use self::outcome::Failure;

/// Load for ringgate: fleets of players on one machine, with latencies that hide nothing.
#[derive(Debug, Parser)]
#[command(name = "ringgate-loadgen", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Attack(attack::Args),
    #[command(hide = true)]
    BareEcho(bare::Args),
    Floor(floor::Args),
    Generate(generate::Args),
    Impair(impair::Args),
    Ladder(ladder::Args),
    Report(report::Args),
    Run(run::Args),
    Serve(serve::Args),
}

/// The commands, with what they say of themselves.
pub fn commands() -> clap::Command {
    Cli::command()
}

/// Runs the command that the arguments name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let command = match Cli::try_parse_from(args) {
        Ok(Cli { command }) => command,
        Err(error) => {
            // Nothing is left to be done when stderr or stdout are gone.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // From here on an interrupt ends a run as its plan would have.
    if let Err(why) = signals::keep_first() {
        let _ = writeln!(io::stderr(), "ringgate-loadgen: cannot catch signals: {why}");
        return ExitCode::from(1);
    }
    let result = match command {
        Command::Attack(args) => attack::run(&args),
        Command::BareEcho(args) => bare::run(&args),
        Command::Floor(args) => floor::run(&args),
        Command::Generate(args) => generate::run(&args, commands()),
        Command::Impair(args) => impair::run(&args),
        Command::Ladder(args) => ladder::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(&args),
    };
    let (code, lines) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::BadInput(why)) => (2, vec![why]),
        Err(Failure::Failed(why)) => (1, vec![why]),
        Err(Failure::Missed(missed)) => (3, missed),
        Err(Failure::Unbalanced(books)) => (4, books),
        Err(Failure::Unproven(why)) => (5, why),
        Err(Failure::Interrupted(signal, why)) => (128 + signal as u8, why),
    };
    for line in lines {
        let _ = writeln!(io::stderr(), "ringgate-loadgen: {line}");
    }
    ExitCode::from(code)
}
