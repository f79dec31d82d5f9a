//! A gateway or a game server that is restarted during a run: it is named everywhere, and no sum is
//! impossible.

use std::process::{Command, Output, Stdio};

use super::gateway::{Game, Gateway, Link, text};
use ringgate_loadgen::report::record::Record;
use ringgate_loadgen::text::count;

/// They notice within the run that the gateway is gone.
const PLAYERS: &[&str] =
    &["--sessions", "10", "--hz", "20", "--ramp", "300ms", "--hold", "5s", "--timeout", "3"];

/// Runs a command and meanwhile, once so many payloads have come, does something to the gateway.
fn disturbed(
    gateway: &mut Gateway,
    command: &str,
    more: &[&str],
    disturb: impl FnOnce(&mut Gateway),
) -> Output {
    let mut command: Command = gateway.command(command, more);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary runs");
    gateway.until(&mut child, "ringgate_payloads_up_total", 200);
    disturb(gateway);
    child.wait_with_output().expect("it ends")
}

/// Table, page and record of a run say the same, and nothing impossible.
#[track_caller]
fn assert_one_truth(output: &Output, out: &std::path::Path, who: &str) -> Record {
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = std::fs::read_to_string(out.join("report.html")).expect("written");
    let json = std::fs::read_to_string(out.join("run.json")).expect("written");
    let record: Record = serde_json::from_str(&json).expect("a record");
    let named = format!("{who} was restarted");
    for (what, text) in [("table", &table), ("page", &page), ("JSON", &json)] {
        assert!(text.contains(&named), "the {what} does not name it: {text}");
    }
    let summary = record.summary();
    let (due, arrived) = (summary.payloads.due, summary.payloads.arrived);
    assert!(due > 0 && arrived > 0 && arrived <= due, "{arrived} of {due}");
    let shown = format!("payloads    {} due, {} arrived", count(due), count(arrived));
    assert!(table.contains(&shown), "no {shown:?} in {table}");
    for (name, value) in [("Payloads due", due), ("Payloads that arrived", arrived)] {
        let row = format!("<th>{name}</th><td>{}</td>", count(value));
        assert!(page.contains(&row), "no {row} in the page");
    }
    let by_interval = |of: fn(&ringgate_loadgen::report::record::Interval) -> u64| {
        record.intervals.iter().map(of).sum::<u64>()
    };
    assert_eq!(by_interval(|i| i.due), due);
    assert_eq!(by_interval(|i| i.lost), due - arrived);
    for way in summary.ways.iter().flat_map(|ways| [&ways.up, &ways.down]) {
        assert!(way.came <= way.sent, "{way:?}");
    }
    assert!(record.gateway_metrics.values().all(|value| *value >= 0.0));
    assert!(record.gateway_cpu.iter().all(|thread| thread.total_s >= 0.0));
    let mut words = table.split([' ', '(', '\n']).filter_map(|word| word.strip_prefix('-'));
    let is_number = |word: &str| word.starts_with(|digit: char| digit.is_ascii_digit());
    assert!(!words.any(is_number), "{table}");
    record
}

#[test]
fn a_gateway_that_is_restarted_is_named_and_its_books_are_not_compared() {
    for (name, link) in [("bundle", Link::Bundle), ("udp", Link::Udp)] {
        let mut gateway = Gateway::start(&format!("restart-{name}"), link, Game::Echo);
        let out = gateway.folder.join("out");
        let more = [PLAYERS, &["--out", text(&out)]].concat();
        let output = disturbed(&mut gateway, "run", &more, Gateway::restart);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let record = assert_one_truth(&output, &out, "the gateway");
        assert_eq!(record.count(ringgate_loadgen::measure::tally::Count::SessionsLost), 10);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(table.contains("not comparable") && !table.contains("UNEXPLAINED"), "{table}");
    }
}

#[test]
fn a_gateway_that_is_gone_at_the_end_is_said_to_be() {
    let mut gateway = Gateway::start("restart-gone", Link::Bundle, Game::Echo);
    let output = disturbed(&mut gateway, "run", PLAYERS, Gateway::end);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("the gateway no longer answered"), "{table}");
    assert!(!table.contains("UNEXPLAINED"), "{table}");
}

#[test]
fn a_step_of_a_ladder_during_which_the_gateway_is_restarted_is_no_step() {
    let mut gateway = Gateway::start("restart-ladder", Link::Bundle, Game::Echo);
    let bounds = ["--from", "200", "--to", "400", "--loss", "100", "--p99", "60s"];
    let few = ["--sessions", "10", "--ramp", "300ms", "--hold", "5s", "--timeout", "3"];
    let more = [&bounds[..], &few].concat();
    let output = disturbed(&mut gateway, "ladder", &more, Gateway::restart);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(text.contains("the gateway was restarted") && !text.contains("\nknee:"), "{text}");
    assert!(!text.contains("-0."), "no negative cores: {text}");
}

#[test]
fn a_game_server_that_is_restarted_is_named_and_what_it_took_along_is_no_riddle() {
    let mut gateway = Gateway::start("restart-echo", Link::Bundle, Game::Echo);
    let out = gateway.folder.join("out");
    let more = [PLAYERS, &["--out", text(&out)]].concat();
    let output = disturbed(&mut gateway, "run", &more, |it| it.restart_game(Game::Echo));
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert_one_truth(&output, &out, "game server game");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("UNEXPLAINED"), "{output:?}");
}

#[test]
fn a_game_server_with_a_pace_of_its_own_counts_anew_and_each_direction_stays_possible() {
    let game = || Game::Serve(&["--hz", "20"]);
    let mut gateway = Gateway::start("restart-serve", Link::Bundle, game());
    let out = gateway.folder.join("out");
    let more = [PLAYERS, &["--shape", "game", "--out", text(&out)]].concat();
    let output = disturbed(&mut gateway, "run", &more, |it| it.restart_game(game()));
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let record = assert_one_truth(&output, &out, "game server game");
    let ways = record.summary().ways.expect("each direction");
    assert!(ways.down.came > 10 * 20 * 3, "what the second said counts too: {ways:?}");
    assert!(record.count(ringgate_loadgen::measure::tally::Count::ServerChanges) > 0);
}
