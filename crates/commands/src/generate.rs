//! `ringgate generate`: what packages ship beside the program, made from the same description of
//! commands that the program reads its arguments by.

use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell;

use super::Failure;
use super::admin::Place;
use super::exit::print;
use ringgate_report::text::Append as _;

/// Print completions for a shell, or write man pages
#[derive(Debug, clap::Args)]
pub struct Args {
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
    /// The names that a running gateway knows, for completions
    #[command(hide = true)]
    Names {
        /// Which of them: backends or listeners
        of: String,
        #[command(flatten)]
        place: Place,
    },
}

pub(super) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    match &args.what {
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "ringgate", &mut text);
            print(&with_names(*shell, &String::from_utf8_lossy(&text)))
        }
        What::Names { of, place } => print(&names(of, place).unwrap_or_default()),
        What::Man { out } => {
            let failed = |why| {
                Failure::failed(format_args!("cannot write man pages to {}: {why}", out.display()))
            };
            std::fs::create_dir_all(out).map_err(failed)?;
            clap_mangen::generate_to(command, out).map_err(failed)
        }
    }
}

/// One on each line; `None` where nobody answers.
fn names(of: &str, place: &Place) -> Option<String> {
    let page = place.find().ok()?.get("/status").ok()?;
    let page: serde_json::Value = serde_json::from_str(&page).ok()?;
    let named = page.get(of)?.as_array()?.iter().filter_map(|it| it.get("name")?.as_str());
    Some(named.fold(String::new(), |text, name| text + name + "\n"))
}

/// Has the shell ask a running gateway for the names of backends and listeners. What is made from
/// the description of commands knows only that there is a name.
fn with_names(shell: Shell, script: &str) -> String {
    let ask = |of: &str| format!("$(ringgate generate names {of} 2>/dev/null)");
    let mut done = String::with_capacity(script.len());
    let (mut names_backend, mut option) = (false, "");
    for line in script.lines() {
        let mut line = line.to_owned();
        match shell {
            Shell::Bash => {
                let label = line.trim();
                if label.ends_with(')') && label.starts_with("ringgate__subcmd__") {
                    names_backend = label.ends_with("__drain)") || label.ends_with("__undrain)");
                } else if label.starts_with("opts=") && names_backend {
                    line.truncate(line.len() - 1);
                    line = format!("{line} {}\"", ask("backends"));
                } else if label.starts_with("--") {
                    option = [("--backend)", "backends"), ("--listener)", "listeners")]
                        .into_iter()
                        .find_map(|(name, of)| (name == label).then_some(of))
                        .unwrap_or_default();
                } else if label.contains("compgen -f") && !option.is_empty() {
                    let names = format!("compgen -W \"{}\" --", ask(option));
                    line = line.replace("compgen -f", &names);
                }
            }
            Shell::Zsh => {
                for (mark, of) in [
                    (":BACKEND:_default'", "backends"),
                    (":LISTENER:_default'", "listeners"),
                    ("not the whole gateway:_default'", "backends"),
                ] {
                    let asks = format!("{{compadd -- {}}}'", ask(of));
                    line = line.replace(mark, &mark.replace("_default'", &asks));
                }
            }
            Shell::Fish => {
                for (mark, of) in [(" -l backend -d", "backends"), (" -l listener -d", "listeners")]
                {
                    if line.contains(mark) {
                        let asks = ask(of);
                        write!(line, " -f -a \"{}\"", &asks[1..]);
                    }
                }
            }
            _ => {}
        }
        done.push_str(&line);
        done.push('\n');
    }
    if shell == Shell::Fish {
        done.push_str(
            "complete -c ringgate -n \"__fish_seen_subcommand_from drain undrain\" -f -a ",
        );
        writeln!(done, "\"{}\"", &ask("backends")[1..]);
    }
    done
}
