//! What the demo prints.

use hdrhistogram::Histogram;

use serde_json::Value;

use super::players::{Outcome, Swarm};
use ringgate_gate::{Counters, Imbalance};
use ringgate_report::text::{Append as _, Table, count, time};
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
    writeln!(
        text,
        "\nsessions       {} connected, {} ended early",
        outcome.connected, outcome.closed
    );
    writeln!(
        text,
        "up             {} payloads sent, {} opened by the gateway, {} handed to the game",
        outcome.payloads_sent, total.payloads_up, total.payloads_to_links
    );
    writeln!(
        text,
        "down           {} payloads from the game, {} sealed, {} echoes back, {} wrong or twice",
        total.payloads_from_links,
        total.payloads_down,
        outcome.payloads_echoed,
        outcome.payloads_wrong
    );
    let lost = outcome.payloads_sent.saturating_sub(outcome.payloads_echoed);
    let share = 100.0 * lost as f64 / outcome.payloads_sent.max(1) as f64;
    writeln!(text, "lost           {lost} of {} ({share:.3} %)", outcome.payloads_sent);
    latencies(&mut text, outcome, facts);
    drops(&mut text, &total, facts.socket_drops);
    conservation(&mut text, facts, &total);
    text
}

/// A gateway of a cluster at the end.
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    /// Its status, unless it was killed.
    pub(super) page: Option<Value>,
    /// Sessions that it had before one was killed.
    pub(super) had: u64,
}

impl Member<'_> {
    pub(super) fn accounts_for_everything(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page["conservation"]["holds"] == true)
    }
}

/// A number that a gateway has of each other one, over all of them.
pub(super) fn of_members(page: &Value, what: &str) -> u64 {
    let members = page["cluster"]["members"].as_array();
    members.into_iter().flatten().filter_map(|it| it[what].as_u64()).sum()
}

/// A number of the sessions that outlive their gateway.
pub(super) fn of_sessions(page: &Value, what: &str) -> u64 {
    page["cluster"]["sessions"][what].as_u64().unwrap_or(0)
}

/// The closing table of a cluster. The silences are those of players whose gateway was killed,
/// shortest first.
pub(super) fn render_cluster(
    outcome: &Outcome,
    lost: usize,
    silences: &[u64],
    gateways: &[Member<'_>],
) -> String {
    let mut table = Table::new(
        "gateway, had:, has:, taken over:, moved to it:, forwarded to others:, accounted for",
    );
    let mut taken_over = 0;
    for gateway in gateways {
        let mut row = vec![gateway.name.to_owned(), count(gateway.had)];
        if let Some(page) = &gateway.page {
            // A session that was given is taken over, too.
            let given = of_sessions(page, "moved");
            let taken = of_sessions(page, "taken_over").saturating_sub(given);
            taken_over += taken;
            let forwarded = of_members(page, "forwarded_out");
            row.extend([of_sessions(page, "owned"), taken, given, forwarded].map(count));
            let is_all = gateway.accounts_for_everything();
            row.push(if is_all { "everything" } else { "NOT everything" }.to_owned());
        } else {
            row.extend(["killed", "", "", "", ""].map(str::to_owned));
        }
        table.row(row);
    }
    let at = |index: usize| time(silences.get(index).copied().unwrap_or(0));
    let mut text = String::new();
    write!(
        text,
        "\nplayers        {} connected, {lost} lost\n\
             killed         {} had their session there, {} taken over; \
             they heard nothing for {} (median), {} (longest)\n\
             payloads       {} sent, {} echoed, {} wrong or twice\n\nsessions\n{table}",
        outcome.connected,
        silences.len(),
        taken_over,
        at(silences.len() / 2),
        at(silences.len().saturating_sub(1)),
        outcome.payloads_sent,
        outcome.payloads_echoed,
        outcome.payloads_wrong,
    );
    text
}

fn latencies(text: &mut String, outcome: &Outcome, facts: &Facts) {
    writeln!(
        text,
        "\nlatency, µs    {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "p50", "p90", "p99", "p99.9", "max", "count"
    );
    let mut row = |name: &str, histogram: &Histogram<u64>| {
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        writeln!(
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
    writeln!(text, "\ndrops by reason");
    for (reason, count) in total.drops.iter().filter(|(_, count)| *count > 0) {
        writeln!(text, "  {:<28} {count:>9}", reason.name());
    }
    writeln!(text, "  {:<28} {socket_drops:>9}", "(kernel, before us)");
}

fn conservation(text: &mut String, facts: &Facts, total: &Counters) {
    writeln!(text, "\nconservation");
    for (at, worker) in facts.workers.iter().enumerate() {
        match worker.check_conservation() {
            Ok(()) => writeln!(text, "  worker {at}: every datagram and payload is accounted for"),
            Err(Imbalance { balance, came_in, accounted }) => {
                writeln!(
                    text,
                    "  worker {at}: {balance}: {came_in} came in, {accounted} accounted for"
                );
            }
        }
    }
    let handled: u64 = total.handled.iter().sum();
    writeln!(
        text,
        "  {} datagrams in = {handled} handled + {} dropped",
        total.datagrams_in,
        (total.datagrams_in + total.forwarded_in).saturating_sub(handled + total.forwarded_out)
    );
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}
