//! The command line: the commands that serve or play, a file each, beside those of
//! `ringgate_commands` that ask. `exit` there turns what each of them returns into what the
//! terminal and the shell see.

#[cfg(feature = "agent")]
mod agent;
mod demo;
mod echo;
mod first;
mod probe;
mod run;
mod signal;
mod size;
#[cfg(feature = "tokens")]
mod tokens;

#[cfg(not(feature = "agent"))]
left_out!(agent);
#[cfg(not(feature = "tokens"))]
left_out!(tokens);

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(not(all(feature = "agent", feature = "tokens")))]
use ringgate_commands::left_out;
pub use ringgate_commands::{Failure, logging};
use ringgate_commands::{admin, config_file, doctor, exit, files, token};
use ringgate_report::text::Append as _;

/// A gateway in front of fleets of game servers.
#[derive(Debug, Parser)]
#[command(version, long_version = ringgate_commands::LONG_VERSION.as_str(), help_template = HELP.as_str())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Args),
    Demo(demo::Args),
    Echo(echo::Args),
    Probe(Box<probe::Args>),
    Run(run::Args),
    Size(size::Args),
    Tokens(tokens::Args),
    #[command(flatten)]
    Other(ringgate_commands::Command),
}

/// Commands by what they are for, for those who look for one.
const GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["run", "agent", "check"]),
    (
        "Look",
        &["status", "top", "sessions", "cluster", "trace", "capture", "hist", "doctor", "support"],
    ),
    ("Change", &["reload", "upgrade", "drain", "undrain", "kick", "move"]),
    ("Keep out", &["deny", "allow", "denied"]),
    ("Fleet", &["fleet", "tokens"]),
    ("Keys and tokens", &["keygen", "token"]),
    ("Test", &["demo", "size", "probe", "echo"]),
    ("More", &["generate", "help"]),
];

/// What `ringgate --help` prints.
static HELP: LazyLock<String> = LazyLock::new(|| {
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    let commands = Command::augment_subcommands(clap::Command::new("ringgate"));
    for (group, names) in GROUPS {
        writeln!(text, "\n{group}:");
        for name in *names {
            let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map_or_else(|| "Explain a command".to_owned(), ToString::to_string);
            writeln!(text, "  {name:<9} {about}");
        }
    }
    text + "\nOptions:\n{options}"
});

/// Runs the command that the arguments name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let result = match Cli::try_parse_from(args) {
        Ok(Cli { command }) => match command {
            Command::Agent(args) => agent::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Echo(args) => echo::run(&args),
            Command::Probe(args) => probe::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Size(args) => size::run(&args),
            Command::Tokens(args) => tokens::run(&args),
            Command::Other(command) => command.run(Cli::command),
        },
        Err(error) => Err(Failure::from(error)),
    };
    exit::code(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let all = Command::augment_subcommands(clap::Command::new("ringgate"));
        let mut there: Vec<_> = all
            .get_subcommands()
            .filter(|it| !it.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        there.push("help");
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        there.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, there);
        Cli::command().debug_assert();
    }

    #[test]
    fn what_a_whole_gateway_does_is_asked_of_no_backend() {
        for of_gateway in ["--hand-over", "--wait"] {
            for backend in [&["arena-1"][..], &["--backend", "arena-1"]] {
                let words = [&["ringgate", "drain", of_gateway], backend].concat();
                assert!(Cli::try_parse_from(&words).is_err(), "{words:?}");
            }
        }
    }
}
