//! `ringgate deny`: keeps addresses and players out of a running gateway. What it has in common
//! with `ringgate allow` stands here.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Place};
use super::exit::print;
use ringgate_config::values;
use ringgate_gate::Prefix;
use ringgate_os::utc;
use ringgate_report::text::{Append as _, count};
use ringgate_state::Whom;
use ringgate_state::denylist::client_id;

/// Keep addresses or players out of a running gateway, and end their sessions
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    words: Words,
}

/// Whom a command is about, and for how long.
#[derive(Debug, clap::Args)]
pub(super) struct Words {
    /// Client ids, and addresses and prefixes such as 203.0.113.7 or `2001:db8::/32`
    #[arg(value_name = "PLAYER", value_parser = whom)]
    whom: Vec<Whom>,
    /// A player of a netcode listener, by the client id in its token; may be given more than once
    #[arg(long, alias = "client", value_name = "ID", value_parser = client)]
    client_id: Vec<u64>,
    /// More of them, one on each line: a prefix, or `client ID`; - reads the standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// For so long, such as 30m or 12h [default: until told otherwise]
    #[arg(long = "for", value_name = "TIME", value_parser = lasts)]
    lasts: Option<Duration>,
    /// Forget what was said about longer prefixes within them
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    place: Place,
}

/// What the gateway answers, summed over all requests.
#[derive(Deserialize)]
pub(super) struct Outcome {
    pub(super) changed: u64,
    pub(super) exceptions: u64,
    pub(super) contrary: u64,
    pub(super) ended: u64,
    complete: bool,
    not_kept_because: Option<String>,
}

pub(super) fn whom(text: &str) -> Result<Whom, String> {
    client_id(text).map_or_else(|| prefix(text).map(Whom::Prefix), |id| Ok(Whom::Client(id)))
}

pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse().map_err(|why| format!("found {text:?}, {why}"))
}

/// A client id, as an argument gives it.
pub(super) fn client(text: &str) -> Result<u64, String> {
    client_id(text).ok_or_else(|| format!("found {text:?}, expected a client id"))
}

fn lasts(text: &str) -> Result<Duration, String> {
    values::time_within(text, MS..=TEN_YEARS, "a time such as 30m or 12h, ten years at most")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let whom = args.words.whom()?;
    let changed = args.words.ask("deny", &whom)?;
    let (named, span) = (named(&whom), args.words.span());
    let ended = count(changed.ended);
    let mut text = format!("{named} may not play{span}; ended {ended} sessions\n");
    if changed.contrary > 0 {
        let contrary = count(changed.contrary);
        writeln!(text, "exceptions within that stay: {contrary} (--whole forgets them)");
    }
    print(&(text + &changed.caveats()))
}

impl Words {
    /// Everybody who was named.
    pub(super) fn whom(&self) -> Result<Vec<Whom>, Failure> {
        let clients = self.client_id.iter().map(|id| Whom::Client(*id));
        let mut whom: Vec<Whom> = self.whom.iter().copied().chain(clients).collect();
        if let Some(file) = &self.file {
            whom.extend(listed(file)?);
        } else if whom.is_empty() {
            return Err(Failure::bad_input(
                "expected an address, a prefix, a client id or --file FILE",
            ));
        }
        Ok(whom)
    }

    /// Asks for it, as many at a time as a request may name.
    pub(super) fn ask(&self, path: &str, whom: &[Whom]) -> Result<Outcome, Failure> {
        let admin = self.place.find()?;
        let mut sum = Outcome {
            changed: 0,
            exceptions: 0,
            contrary: 0,
            ended: 0,
            complete: true,
            not_kept_because: None,
        };
        let mut start = format!("/{path}?whole={}", self.whole);
        admin::say(&mut start, "for_ms", self.lasts.map(|lasts| lasts.as_millis()));
        let mut done = 0;
        for part in parts(whom, admin.names_bytes_max()) {
            match admin.change(&(start.clone() + &part), &[400, 409]) {
                Ok(outcome) => sum.add(outcome),
                Err(why) if done == 0 => return Err(why),
                Err(why) => {
                    let (done, all) = (count(done), count(whom.len() as u64));
                    let ended = count(sum.ended);
                    return Err(why.after(format_args!(
                        "done before that: the first {done} of {all}; ended {ended} sessions"
                    )));
                }
            }
            done += part.matches('&').count() as u64;
        }
        Ok(sum)
    }

    /// ` for 12 h`, where it ends.
    pub(super) fn span(&self) -> String {
        self.lasts.map_or(String::new(), |lasts| format!(" for {}", utc::span(lasts.as_secs())))
    }
}

/// As requests name them, so many together as fit into one.
fn parts(whom: &[Whom], bytes_max: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for whom in whom {
        let field = match whom {
            Whom::Prefix(prefix) => format!("&prefix={prefix}"),
            Whom::Client(id) => format!("&client={id}"),
        };
        match parts.last_mut() {
            Some(last) if last.len() + field.len() <= bytes_max => last.push_str(&field),
            _ => parts.push(field),
        }
    }
    parts
}

impl Outcome {
    fn add(&mut self, part: Self) {
        self.changed += part.changed;
        self.exceptions += part.exceptions;
        self.contrary += part.contrary;
        self.ended += part.ended;
        self.complete &= part.complete;
        self.not_kept_because = self.not_kept_because.take().or(part.not_kept_because);
    }

    /// What an operator should know besides.
    pub(super) fn caveats(&self) -> String {
        let mut text = unfinished(self.complete).to_owned();
        if let Some(why) = &self.not_kept_because {
            writeln!(text, "this lasts until the gateway restarts: {why}");
        }
        text
    }
}

/// What there is to say where not every worker has said how many sessions it has ended.
pub(super) const fn unfinished(complete: bool) -> &'static str {
    if complete {
        ""
    } else {
        "a worker has not answered in time; its sessions are still being ended\n"
    }
}

/// `203.0.113.0/24`, or how many they are.
pub(super) fn named(whom: &[impl ToString]) -> String {
    match whom {
        [one] => one.to_string(),
        many => format!("{} prefixes and players", count(many.len() as u64)),
    }
}

/// One on each line. Empty lines, and what follows a `#`, are for people.
fn listed(file: &Path) -> Result<Vec<Whom>, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|all| text = all)
    };
    let name = file.display();
    read.map_err(|why| Failure::bad_input(format_args!("cannot read {name}: {why}")))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(at, line)| {
            let line_number = at + 1;
            line.parse().map_err(|why| {
                Failure::bad_input(format_args!("{name}:{line_number}: found {line:?}, {why}"))
            })
        })
        .collect()
}

const MS: Duration = Duration::from_millis(1);
const TEN_YEARS: Duration = Duration::from_hours(10 * 365 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_one_on_each_line() {
        let path = std::env::temp_dir().join(format!("ringgate-deny-{}", std::process::id()));
        std::fs::write(&path, "# botnet\n203.0.113.0/24 # seen twice\n\nclient 42\n::1\n")
            .expect("temporary files can be written");
        let whom = listed(&path).expect("good");
        let texts: Vec<_> = whom.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["203.0.113.0/24", "client 42", "::1/128"]);
        std::fs::write(&path, "::1\nlocalhost\n").expect("ours");
        let why = listed(&path).expect_err("no names").to_string();
        assert!(why.contains(":2: found \"localhost\", expected an address"), "{why}");
        std::fs::remove_file(&path).expect("ours");
    }
}
