//! `ringgate support`: what somebody needs who is to help, in one file that can be sent on.
//!
//! Nothing in it is a secret: of the config only what is no key, and players' addresses and ids
//! only where they are asked for. A part that cannot be had says why, because that is news as well.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

use super::admin::{Admin, FilePlace};
use super::exit::print;
use super::files::{Existing, write_private};
use super::{Failure, build, config_file, doctor, hist};
use ringgate_os::{clock, host, utc};
use ringgate_report::text::Append as _;

/// Write what a report about a gateway needs into one file, and say what is in it
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: FilePlace,
    /// The file, which must not be there yet; - for stdout [default: ringgate-support-TIME.txt]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// With players' addresses and client ids, and a list of who is there
    #[arg(long)]
    players: bool,
    /// Events from this file instead of systemd's journal
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let unix_s = clock::unix_seconds();
    let report = Report::of(args, unix_s).text;
    let default = || format!("ringgate-support-{}.txt", utc::stamp(unix_s)).into();
    let out = args.out.clone().unwrap_or_else(default);
    if out == Path::new("-") {
        return print(&report);
    }
    write_private(&out, report.as_bytes(), Existing::Keep(""))?;
    let players = if args.players { "WITH" } else { "without" };
    print(&format!(
        "{}: versions, host, doctor, config without keys, status, metrics, histograms, last events; {players} players' \
         addresses and ids\n",
        out.display()
    ))
}

/// A file that grows.
struct Report {
    text: String,
}

impl Report {
    fn of(args: &Args, unix_s: u64) -> Self {
        let players = if args.players { "with" } else { "without" };
        let head = format!(
            "ringgate support, {}, {players} players' addresses and ids\n",
            utc::date(unix_s)
        );
        let mut report = Self { text: head };
        let file = args.place.config().map(Path::to_owned);
        let file = file.or_else(config_file::of_host);
        let gateway = args.place.find().map_err(|why| why.to_string());
        let page = |path: &str| {
            let asked = gateway.as_ref().map_err(Clone::clone);
            asked.and_then(|gateway: &Admin| gateway.get(path).map_err(|why| why.to_string()))
        };
        report.part("versions", Ok(format!("ringgate {}", *build::LONG_VERSION)));
        report.part("host", Ok(facts()));
        let findings = doctor::look(file.as_deref()).map_err(|why| why.to_string());
        report.part("doctor", findings.map(|it| doctor::render(&it)));
        let table = file.as_deref().ok_or_else(|| "no config file is known".to_owned());
        let table = table.and_then(read);
        report.part("config, keys left out", table.clone().map(|it| it.to_string()));
        report.part("status", page("/status"));
        report.part("metrics", page("/metrics"));
        let dir = table.ok().and_then(|table| {
            let dir = table.get("histograms")?.get("dir")?.as_str()?.to_owned();
            Some(file?.parent()?.join(dir))
        });
        report.part("newest histogram file", histograms(dir.as_deref()));
        let events = events(args.events.as_deref());
        let shown = |text: String| if args.players { text } else { without_players(&text) };
        report.part("last events", events.map(shown));
        if args.players {
            report.part("sessions", page("/sessions?limit=10000"));
            report.part("denied", page("/denied"));
        }
        report
    }

    fn part(&mut self, name: &str, part: Result<String, String>) {
        let text = part.unwrap_or_else(|why| format!("not to be had: {why}"));
        writeln!(self.text, "\n===== {name} =====\n{}", text.trim_end());
    }
}

/// What the kernel says of this host.
fn facts() -> String {
    let mut text = format!("name: {}\n", host::name());
    for (name, file, lines) in [
        ("kernel", "/proc/version", 1),
        ("system", "/etc/os-release", 2),
        ("up for (s)", "/proc/uptime", 1),
        ("load", "/proc/loadavg", 1),
        ("memory", "/proc/meminfo", 3),
    ] {
        let read = std::fs::read_to_string(file).unwrap_or_else(|why| why.to_string());
        let first: Vec<_> = read.lines().take(lines).collect();
        writeln!(text, "{name}: {}", first.join("; "));
    }
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models =
        cpus.lines().filter_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let models: BTreeSet<_> = models.collect();
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    writeln!(text, "processors: {count}, {models:?}");
    text
}

/// A config file without what is secret in it, and without comments.
fn read(file: &Path) -> Result<Table, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|why| format!("cannot read {name}: {why}"))?;
    // An error would quote the file.
    let mut table: Table = text.parse().map_err(|_| format!("{name} is no TOML"))?;
    table.iter_mut().for_each(|(key, value)| leave_out(key, value));
    Ok(table)
}

fn leave_out(key: &str, value: &mut Value) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(key, value)| leave_out(key, value)),
        Value::Array(values) => values.iter_mut().for_each(|value| leave_out(key, value)),
        Value::String(text) => {
            let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
            let is_secret = key == "hex" || (digits >= SECRET_DIGITS && digits == text.len());
            if is_secret || text.split_once("://").is_some_and(|(_, rest)| rest.contains('@')) {
                "left out".clone_into(text);
            }
        }
        _ => {}
    }
}

/// The table of the newest file.
fn histograms(dir: Option<&Path>) -> Result<String, String> {
    let dir = dir.ok_or("the config has no [histograms]")?;
    let listed = std::fs::read_dir(dir).map_err(|why| format!("{}: {why}", dir.display()))?;
    let files = listed.flatten().map(|entry| entry.path());
    // Names have the time of their beginning.
    let newest = files.filter(|it| it.extension().is_some_and(|it| it == "hlog")).max();
    let newest = newest.ok_or_else(|| format!("{} has no file", dir.display()))?;
    hist::table(&newest).map_err(|why| why.to_string())
}

/// The last lines of the log.
fn events(file: Option<&Path>) -> Result<String, String> {
    let text = match file {
        Some(file) => std::fs::read(file).map_err(|why| format!("{}: {why}", file.display()))?,
        None => {
            let mut journal = Command::new("journalctl");
            journal.args(["--unit=ringgate*", "--output=cat", "--no-pager", "--lines=1000"]);
            let said =
                journal.output().map_err(|why| format!("no journal (--events FILE): {why}"))?;
            [said.stdout, said.stderr].concat()
        }
    };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(EVENTS_MAX)..].join("\n"))
}

/// Text in which nobody's address stands, and no number behind a word for a player.
fn without_players(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut is_player = false;
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:_-[]".contains(c);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| is_part(c) != is_part(first)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if !is_part(first) {
            is_player &= !word.contains(['\n', ',', ';']);
            done.push_str(word);
            continue;
        }
        let bare = word.trim_matches([':', '.', '[', ']']);
        // A colon may end the words before it, or be an address's own.
        let spoken = word.trim_matches(['[', ']', '.']);
        let is_ip = |it: &str| it.parse::<IpAddr>().is_ok_and(|it| !it.is_unspecified());
        let is_address =
            [bare, spoken, spoken.strip_suffix(':').unwrap_or(spoken)].into_iter().any(is_ip)
                || word.trim_end_matches([':', '.']).parse::<SocketAddr>().is_ok();
        let is_number = bare.starts_with(|c: char| c.is_ascii_digit());
        done.push_str(match (is_address, is_player && is_number) {
            (true, _) => "ADDRESS",
            (_, true) => "ID",
            _ => word,
        });
        is_player = ["client", "player", "client_id", "client_id_text"].contains(&bare)
            || (is_player && !is_number);
    }
    done
}

/// As many as a key of 16 bytes.
const SECRET_DIGITS: usize = 32;

const EVENTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_are_taken_out_of_events() {
        let line = r#"{"message":"player 42 has logged in at gate-2: bye","client_id":42,"client_id_text":"42","#;
        let shown =
            without_players(&format!("{line}\"address\":\"203.0.113.7:4000\",\"ended\":1}}\n"));
        assert!(!shown.contains("42") && !shown.contains("203.0"), "{shown}");
        assert!(shown.contains("\"ended\":1") && shown.contains("gate-2"), "{shown}");
        let human =
            "2026-11-24T15:22:46.842174Z INFO ended 1 sessions of client 0x2a [2001:db8::1]:7 3";
        let shown = without_players(human);
        assert_eq!(
            shown,
            "2026-11-24T15:22:46.842174Z INFO ended 1 sessions of client ID ADDRESS 3"
        );
        for address in ["2001:db8:1:2::", "::ffff:203.0.113.7"] {
            let said = format!("{address}/64 may not play; {address}: no; ({address}).");
            assert_eq!(without_players(&said), "ADDRESS/64 may not play; ADDRESS no; (ADDRESS).");
        }
        let nobodys = "gate::front at 12:30:05 on :: and 0.0.0.0, 1.2.3";
        assert_eq!(without_players(nobodys), nobodys);
    }
}
