//! What is shown of a change: a screen, or a line.

use super::super::status::{backends, head, listeners, stages};
use super::change::Change;
use ringgate_os::utc;
use ringgate_report::text::{Append as _, Table, bytes, count, time};

/// All of it, where lines do not scroll.
pub(super) fn screen(change: &Change<'_>) -> String {
    format!("{}\n{}", head(&change.now.status), body(change))
}

/// What stands below the head.
pub(super) fn body(change: &Change<'_>) -> String {
    let status = &change.now.status;
    let totals = &status.totals;
    let mut text = String::new();
    write!(
        text,
        "{} sessions, {} handshakes under way; {}/s in, {}/s out\n\n{}\n{}\n{}",
        count(totals.sessions),
        count(totals.handshakes_pending),
        bytes(change.rate(|status| status.totals.bytes_in)),
        bytes(change.rate(|status| status.totals.bytes_out)),
        workers(change),
        listeners(status),
        backends(status)
    );
    let drops = drops(change);
    if !drops.is_empty() {
        writeln!(text, "\ndrops per second: {}", drops.join(", "));
    }
    if status.stages.iter().any(|stage| stage.count > 0) {
        write!(text, "\n{}", stages(status));
    }
    if !status.conservation.holds {
        text.push_str(
            "\nNOT everything is accounted for: a bug in the gateway, please report it\n",
        );
    }
    text
}

fn workers(change: &Change<'_>) -> Table {
    let mut table =
        Table::new("worker, sessions:, turns/s:, in/s:, out/s:, drops/s:, kernel drops/s:");
    for (at, worker) in change.now.status.workers.iter().enumerate() {
        let numbers = [
            worker.sessions,
            change.worker_rate(at, |worker| worker.turns),
            change.worker_rate(at, |worker| worker.datagrams_in),
            change.worker_rate(at, |worker| worker.packets_out),
            change.worker_rate(at, |worker| worker.drops),
            change.worker_rate(at, |worker| worker.socket_drops),
        ];
        table.row([worker.index.to_string()].into_iter().chain(numbers.map(count)));
    }
    table
}

/// Most frequent first.
fn drops(change: &Change<'_>) -> Vec<String> {
    let mut rates: Vec<_> = change
        .now
        .status
        .drops
        .iter()
        .map(|(why, now)| {
            let before = change.before.status.drops.get(why).copied().unwrap_or(0);
            (change.per_second(before, *now), why)
        })
        .filter(|(rate, _)| *rate > 0)
        .collect();
    rates.sort_by_key(|(rate, _)| std::cmp::Reverse(*rate));
    rates.into_iter().map(|(rate, why)| format!("{why} {}", count(rate))).collect()
}

pub(super) fn line(change: &Change<'_>, unix_s: u64) -> String {
    let status = &change.now.status;
    let turn = status.stages.iter().find(|stage| stage.name == "turn");
    format!(
        "{}  {}  sessions {}  in/s {}  out/s {}  drops/s {}  kernel drops/s {}  turn p99 {}\n",
        utc::date(unix_s),
        status.state,
        count(status.totals.sessions),
        count(change.rate(|status| status.totals.datagrams_in)),
        count(change.rate(|status| status.totals.packets_out)),
        count(change.rate(|status| status.totals.drops)),
        count(change.rate(|status| status.totals.socket_drops)),
        time(turn.map_or(0, |turn| turn.p99_ns))
    )
}
