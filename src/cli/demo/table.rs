//! What the demo prints.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::players::{Outcome, Swarm};
use ringgate_gate::{Counters, Imbalance};
use ringgate_worker::{Stage, Stages};

/// What the gateway says of itself at the end.
pub(super) struct Facts {
    pub(super) workers: Vec<Counters>,
    pub(super) stages: Stages,
    pub(super) socket_drops: u64,
}

/// One line a second.
pub(super) fn progress(second: u64, sessions: u64, swarm: &Swarm) -> String {
    let outcome = swarm.outcome();
    format!(
        "{second:>3} s  {sessions:>5} sessions  {:>8} payloads sent  {:>8} echoed  round trip p50 {} µs, p99 {} µs",
        outcome.payloads_sent,
        outcome.payloads_echoed,
        us(outcome.round_trip.value_at_quantile(0.5)),
        us(outcome.round_trip.value_at_quantile(0.99)),
    )
}

/// The closing table.
pub(super) fn render(outcome: &Outcome, facts: &Facts) -> String {
    let mut total = Counters::default();
    facts.workers.iter().for_each(|worker| total.merge(worker));
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\nsessions       {} connected, {} ended early",
        outcome.connected, outcome.closed
    );
    let _ = writeln!(
        text,
        "up             {} payloads sent, {} opened by the gateway, {} handed to the game",
        outcome.payloads_sent, total.payloads_up, total.payloads_to_links
    );
    let _ = writeln!(
        text,
        "down           {} payloads from the game, {} sealed, {} echoes back, {} wrong or twice",
        total.payloads_from_links,
        total.payloads_down,
        outcome.payloads_echoed,
        outcome.payloads_wrong
    );
    let lost = outcome.payloads_sent.saturating_sub(outcome.payloads_echoed);
    let share = 100.0 * lost as f64 / outcome.payloads_sent.max(1) as f64;
    let _ = writeln!(text, "lost           {lost} of {} ({share:.3} %)", outcome.payloads_sent);
    latencies(&mut text, outcome, facts);
    drops(&mut text, &total, facts.socket_drops);
    conservation(&mut text, facts, &total);
    text
}

fn latencies(text: &mut String, outcome: &Outcome, facts: &Facts) {
    let _ = writeln!(
        text,
        "\nlatency, µs    {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "p50", "p90", "p99", "p99.9", "max", "count"
    );
    let mut row = |name: &str, histogram: &Histogram<u64>| {
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        let _ = writeln!(
            text,
            "  {name:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            us(histogram.max()),
            histogram.len()
        );
    };
    row("round trip", &outcome.round_trip);
    for stage in Stage::ALL {
        row(stage.name(), facts.stages.of(stage));
    }
}

fn drops(text: &mut String, total: &Counters, socket_drops: u64) {
    let _ = writeln!(text, "\ndrops by reason");
    for (reason, count) in total.drops.iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "  {:<28} {count:>9}", reason.name());
    }
    let _ = writeln!(text, "  {:<28} {socket_drops:>9}", "(kernel, before us)");
}

fn conservation(text: &mut String, facts: &Facts, total: &Counters) {
    let _ = writeln!(text, "\nconservation");
    for (at, worker) in facts.workers.iter().enumerate() {
        match worker.check_conservation() {
            Ok(()) => {
                let _ =
                    writeln!(text, "  worker {at}: every datagram and payload is accounted for");
            }
            Err(Imbalance { balance, came_in, accounted }) => {
                let _ = writeln!(
                    text,
                    "  worker {at}: {balance}: {came_in} came in, {accounted} accounted for"
                );
            }
        }
    }
    let handled: u64 = total.handled.iter().sum();
    let _ = writeln!(
        text,
        "  {} datagrams in = {handled} handled + {} dropped",
        total.datagrams_in,
        (total.datagrams_in + total.forwarded_in).saturating_sub(handled + total.forwarded_out)
    );
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}
