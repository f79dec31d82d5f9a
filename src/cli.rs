//! The command line: one file for each command, with its arguments and a `run` that either succeeds
//! or says in one sentence why not. `exit` turns that into what the terminal and the shell see, the
//! same way for all commands.

#[macro_use]
mod left_out;

mod admin;
#[cfg(feature = "agent")]
mod agent;
mod allow;
mod build;
mod capture;
mod check;
mod cluster;
mod config_file;
mod demo;
mod denied;
mod deny;
mod doctor;
mod drain;
mod echo;
mod exit;
mod files;
mod first;
#[cfg(feature = "fleet")]
mod fleet;
mod generate;
mod hist;
mod keygen;
mod kick;
pub mod logging;
mod moving;
mod probe;
mod reload;
mod run;
mod sessions;
mod signal;
mod size;
mod status;
mod support;
mod token;
#[cfg(feature = "tokens")]
mod tokens;
#[cfg(feature = "top")]
mod top;
mod trace;
mod undrain;
mod upgrade;

#[cfg(not(feature = "agent"))]
left_out!(agent);
#[cfg(not(feature = "fleet"))]
left_out!(fleet);
#[cfg(not(feature = "tokens"))]
left_out!(tokens);
#[cfg(not(feature = "top"))]
left_out!(top);

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};

pub use exit::Failure;
use ringgate_report::text::Append as _;

/// A gateway in front of fleets of game servers.
#[derive(Debug, Parser)]
#[command(version, long_version = build::LONG_VERSION.as_str(), help_template = HELP.as_str())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Args),
    #[command(alias = "unban")]
    Allow(allow::Args),
    Capture(capture::Args),
    #[command(alias = "validate")]
    Check(check::Args),
    Cluster(cluster::Args),
    Demo(demo::Args),
    Denied(denied::Args),
    #[command(alias = "ban")]
    Deny(deny::Args),
    Doctor(doctor::Args),
    #[command(alias = "stop")]
    Drain(drain::Args),
    Echo(echo::Args),
    Fleet(Box<fleet::Args>),
    Generate(generate::Args),
    Hist(hist::Args),
    Keygen(keygen::Args),
    Kick(kick::Args),
    Move(moving::Args),
    Probe(Box<probe::Args>),
    Reload(reload::Args),
    Run(run::Args),
    Sessions(sessions::Args),
    Size(size::Args),
    Status(status::Args),
    Support(support::Args),
    Token(token::Args),
    Tokens(tokens::Args),
    Top(top::Args),
    Trace(trace::Args),
    Undrain(undrain::Args),
    Upgrade(upgrade::Args),
    /// Print version, commit and kind of build
    #[command(hide = true)]
    Version,
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
            Command::Allow(args) => allow::run(&args),
            Command::Capture(args) => capture::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Cluster(args) => cluster::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Denied(args) => denied::run(&args),
            Command::Deny(args) => deny::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Drain(args) => drain::run(&args),
            Command::Echo(args) => echo::run(&args),
            Command::Fleet(args) => fleet::run(&args),
            Command::Generate(args) => generate::run(&args, Cli::command()),
            Command::Hist(args) => hist::run(&args),
            Command::Keygen(args) => keygen::run(&args),
            Command::Kick(args) => kick::run(&args),
            Command::Move(args) => moving::run(&args),
            Command::Probe(args) => probe::run(&args),
            Command::Reload(args) => reload::run(&args),
            Command::Run(args) => run::run(&args),
            Command::Sessions(args) => sessions::run(&args),
            Command::Size(args) => size::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Support(args) => support::run(&args),
            Command::Token(args) => token::run(&args),
            Command::Tokens(args) => tokens::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Undrain(args) => undrain::run(&args),
            Command::Upgrade(args) => upgrade::run(&args),
            Command::Version => exit::print(&format!("ringgate {}\n", *build::LONG_VERSION)),
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
