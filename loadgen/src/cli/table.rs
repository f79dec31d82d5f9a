//! The closing table of a run.

use std::fmt::Write as _;

use crate::measure::procfs::ThreadCpu;
use crate::measure::procfs::cpu_s;
use crate::measure::tally::{Count, Stage};
use crate::report::record::Record;
use crate::report::summary::{Players, Summary, Way, Ways};
use crate::text::{count, percent, time};

/// The whole table.
pub(super) fn of(record: &Record) -> String {
    let mut text = String::new();
    let c = |what| count(record.count(what));
    let _ = writeln!(
        text,
        "{}: {:.1} s, {} threads, driver {}",
        record.name, record.seconds, record.threads, record.driver
    );
    for remark in record.remarks() {
        let _ = writeln!(text, "{remark}");
    }
    let summary = record.summary();
    let _ = writeln!(text, "arrivals    {}", summary.pace.sentence());
    players(record, &summary.players, &mut text);
    payloads(&summary, &mut text);
    let _ = writeln!(
        text,
        "            {} out of order, {} twice, {} corrupt, {} for somebody else",
        c(Count::Reordered),
        c(Count::Duplicates),
        c(Count::Corrupt),
        c(Count::Misdelivered)
    );
    if summary.pause.ns > 0 {
        let _ = writeln!(
            text,
            "pause       nothing came for {} at the longest, until {:.1} s",
            time(summary.pause.ns),
            summary.pause.until_ns as f64 / 1e9
        );
    }
    silences(record, &mut text);
    if record.scenario.impair.is_active() || record.count(Count::PortSwitches) > 0 {
        let _ = writeln!(
            text,
            "impairments {} payloads swallowed going up, {} coming down, {} port switches",
            c(Count::PayloadsImpairedUp),
            c(Count::PayloadsImpairedDown),
            c(Count::PortSwitches)
        );
    }
    stages(record, &mut text);
    cpu(record, &mut text);
    for (what, dropped) in record.drops() {
        let _ = writeln!(text, "dropped     {what} {}", count(dropped));
    }
    text.push('\n');
    for check in &record.checks {
        let verdict = if check.holds { "ok " } else { "NO " };
        let _ = writeln!(text, "{verdict} {}: {}", check.name, check.text);
    }
    text
}

/// Each player's longest silence, in phases in which players send.
fn silences(record: &Record, text: &mut String) {
    let phases = record.silences.iter().zip(&record.scenario.phases);
    let phases = phases.filter(|(it, phase)| it.players() > 0 && phase.traffic.hz > 0.0);
    for (silence, phase) in phases {
        let at = |percent| time(silence.at_ms(percent) * 1_000_000);
        let _ = writeln!(
            text,
            "silence     {}: half of {} players heard nothing for {} at the longest, 99 % for {}, \
             all for {}",
            if phase.name.is_empty() { "a phase" } else { &phase.name },
            count(silence.players()),
            at(50.0),
            at(99.0),
            at(100.0)
        );
    }
}

fn players(record: &Record, players: &Players, text: &mut String) {
    let tokenless = match record.token_refusal {
        Some(_) => "never dialled: no connect token came in time",
        None => "never dialled: the connect tokens ran out",
    };
    let _ = writeln!(
        text,
        "\nsessions    {} connected of {}, {} refused, {} lost, {} left",
        count(players.connected),
        count(players.came),
        count(players.refused),
        count(players.lost),
        count(players.left)
    );
    for (players, what) in [
        (players.elsewhere, "were let in by another gateway than the first of their token"),
        (players.unfinished, "were still asking to be let in when they were sent away"),
        (players.tokenless, tokenless),
        (players.placeless, "never dialled: no address was free"),
    ] {
        if players > 0 {
            let _ = writeln!(text, "            {} {what}", count(players));
        }
    }
}

fn payloads(summary: &Summary, text: &mut String) {
    let Summary { payloads, ways, .. } = summary;
    let _ = writeln!(
        text,
        "payloads    {} due, {} arrived, lost {} ({}), {} of them without a reason of our own; {} late, {} not taken by the kernel{}",
        count(payloads.due),
        count(payloads.arrived),
        count(payloads.lost),
        percent(payloads.loss),
        count(payloads.missing),
        count(payloads.late),
        count(payloads.unsent),
        match payloads.stifled {
            0 => String::new(),
            stifled => format!(", {} held back by the protocol", count(stifled)),
        }
    );
    let Some(Ways { to_game_server, up, down }) = ways else { return };
    let (sent, came) = (|way: &Way| count(way.sent), |way: &Way| count(way.came));
    let _ = if *to_game_server {
        writeln!(
            text,
            "by way      up: {} of {} heard by the game server; down: {} of {} came, lost {}",
            came(up),
            sent(up),
            came(down),
            sent(down),
            count(down.sent.saturating_sub(down.came))
        )
    } else {
        writeln!(
            text,
            "by way      up: {} sent, {} opened by the gateway; down: {} sealed by it, {} received",
            sent(up),
            came(up),
            sent(down),
            came(down)
        )
    };
}

fn stages(record: &Record, text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:<12}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "", "count", "p50", "p90", "p99", "p99.9", "max"
    );
    for stage in Stage::ALL.iter().filter_map(|stage| record.stage(*stage)) {
        let at = |percentile| time(stage.at(percentile));
        let _ = writeln!(
            text,
            "{:<12}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}",
            stage.stage.replace('_', " "),
            count(stage.count),
            at(50.0),
            at(90.0),
            at(99.0),
            at(99.9),
            at(100.0)
        );
    }
    text.push('\n');
}

fn cpu(record: &Record, text: &mut String) {
    let round_trips = record.stage(Stage::RoundTrip).map(|stage| stage.count as f64);
    let per_trip = |threads: &[ThreadCpu]| {
        let us = round_trips.map(|trips| cpu_s(threads) * 1e6 / trips);
        us.map_or_else(|| "no round trips".into(), |us| format!("{us:.2} µs per round trip"))
    };
    let mut line = |who: &str, threads: &[ThreadCpu], per_datagram: Option<f64>| {
        let (user, system) =
            threads.iter().fold((0.0, 0.0), |(u, s), t| (u + t.user_s, s + t.system_s));
        let _ = writeln!(
            text,
            "{who:<12}{:.2} s of CPU (user {user:.2}, system {system:.2}), {}{}",
            cpu_s(threads),
            per_trip(threads),
            per_datagram.map(|us| format!(", {us:.2} µs per datagram")).unwrap_or_default()
        );
        for thread in threads.iter().filter(|thread| threads.len() > 1 && thread.total_s >= 0.01) {
            let _ = writeln!(
                text,
                "            {:<16} {:.2} s (user {:.2}, system {:.2})",
                thread.name, thread.total_s, thread.user_s, thread.system_s
            );
        }
    };
    let (own, gateway) = record.cpu_us_per_datagram();
    line("generator", &record.own_cpu, own);
    if !record.gateway_cpu.is_empty() {
        line("gateway", &record.gateway_cpu, gateway);
    }
    let _ = writeln!(
        text,
        "            the generator held {} MB",
        record.own_resident_bytes / 1_000_000
    );
}
