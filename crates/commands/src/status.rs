//! `ringgate status`: the whole gateway on a screen.

mod agent;

use super::Failure;
use super::admin::page::{Backend, Denied, Lane, Status};
use super::admin::{Answer, FilePlace};
use super::exit::print;
use agent::AgentPage;
use ringgate_os::utc;
use ringgate_report::text::{Append as _, Table, bytes, count, time};

/// Show what a running gateway says of itself
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: FilePlace,
    /// Print the page as it is, as JSON
    #[arg(long)]
    json: bool,
    /// Say only whether every thread turns: the exit code is 1 where one does not
    #[arg(long, conflicts_with = "json")]
    healthy: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    if args.healthy {
        return match admin.fetch("/healthz")? {
            Answer { status: 200, body } => print(&body),
            Answer { status: 503, body } => Err(Failure::failed(body.trim_end())),
            Answer { status, body } => Err(admin.unexpected(status, &body)),
        };
    }
    let page = admin.get("/status")?;
    if args.json {
        return print(&page);
    }
    match AgentPage::read(&page) {
        Some(agent) => print(&agent.render()),
        None => print(&render(&Status::read(&page)?)),
    }
}

fn render(status: &Status) -> String {
    let mut text = head(status);
    let agents = (!status.agents.is_empty()).then(|| agents(status));
    let tables = [listeners(status), backends(status)].into_iter().chain(agents);
    for table in tables.chain([workers(status)]) {
        write!(text, "\n{table}");
    }
    traffic(&mut text, status);
    if status.stages.iter().any(|stage| stage.count > 0) {
        write!(text, "\nlatency in the last interval\n{}", stages(status));
    }
    let conservation = if status.conservation.holds {
        "every datagram and payload is accounted for"
    } else {
        "NOT everything is accounted for: a bug in the gateway, please report it (--json says more)"
    };
    writeln!(text, "\n{conservation}");
    text
}

/// The state in two lines; `top` begins with the same.
pub(super) fn head(status: &Status) -> String {
    let Status { version, state, uptime_s, config, .. } = status;
    let mut text = format!("ringgate {version}, {state}");
    match (status.drain_left_ms, &status.not_ready_because) {
        (Some(left_ms), _) => {
            write!(text, " for {} more at most", utc::span(left_ms / 1000));
        }
        (None, Some(why)) => write!(text, ", NOT ready: {why}"),
        (None, None) => text.push_str(", ready"),
    }
    let read = utc::date(config.read_unix_s);
    write!(text, ", up {}\nconfig {} of {read}", utc::span(*uptime_s), config.file);
    if let Some(worker) = status.workers.first() {
        let (workers, driver, cipher) = (status.workers.len(), &worker.driver, &worker.cipher);
        write!(text, "; {workers} workers");
        if status.workers_awake.is_some_and(|awake| awake < workers) {
            write!(text, ", {} awake", status.workers_awake.unwrap_or(workers));
        }
        write!(text, ", driver {driver}, cipher {cipher}");
        if let Some(why) = &status.why_all_awake {
            write!(text, "\nall workers are awake, whatever workers_awake says: {why}");
        }
    }
    text.push('\n');
    text
}

/// Listeners with their fill; `top` has the same.
pub(super) fn listeners(status: &Status) -> Table {
    let mut table = Table::new("listener, sessions:, of:, state, addresses");
    for listener in &status.listeners {
        let (sessions, max) = (count(listener.sessions), count(listener.sessions_max));
        let state = match (listener.drain_left_ms, &listener.closed_because) {
            (Some(left_ms), _) => format!("{}, {} s left", listener.state, left_ms.div_ceil(1000)),
            (None, Some(_)) => "takes nobody new".to_owned(),
            (None, None) => listener.state.clone(),
        };
        table.row([listener.name.clone(), sessions, max, state, listener.addresses.join(" ")]);
    }
    table
}

/// Backends with their fill; `top` has the same.
pub(super) fn backends(status: &Status) -> Table {
    let mut table = Table::new("backend, players:, slots:, link, state");
    for backend in &status.backends {
        table.row([
            backend.name.clone(),
            count(backend.players),
            count(backend.slots),
            backend.link.clone(),
            state(backend, status.workers.len()),
        ]);
    }
    table
}

fn state(backend: &Backend, workers: usize) -> String {
    let reach = match backend.workers_up {
        0 => "DOWN".to_owned(),
        up if up == workers => "up".to_owned(),
        up => format!("up at {up} of {workers} workers"),
    };
    match backend {
        Backend { retired: true, .. } => format!("retired, {reach}"),
        Backend { drained: true, .. } => format!("drained, {reach}"),
        _ => reach,
    }
}

/// Agents on other hosts, their lanes added up.
fn agents(status: &Status) -> Table {
    let mut table =
        Table::new("agent, at, up for:, round trip:, path:, lost to:, lost from:, split:, drops:");
    for agent in &status.agents {
        let sum = |of: fn(&Lane) -> u64| count(agent.lanes.iter().map(of).sum());
        let slowest = agent.lanes.iter().filter_map(|lane| lane.round_trip_us).max();
        let narrowest = agent.lanes.iter().map(|lane| lane.path_bytes).min();
        let state = if agent.up { utc::span(agent.up_s) } else { "DOWN".to_owned() };
        table.row([
            agent.name.clone(),
            agent.peer.clone().unwrap_or_default(),
            state,
            slowest.map_or_else(String::new, |us| time(us * 1000)),
            narrowest.map_or_else(String::new, count),
            sum(|lane| lane.lost[0]),
            sum(|lane| lane.lost[1]),
            sum(|lane| lane.split),
            count(agent.drops),
        ]);
    }
    table
}

fn workers(status: &Status) -> Table {
    let mut table = Table::new(
        "worker, sessions:, handshakes:, datagrams in:, packets out:, drops:, kernel drops:",
    );
    for worker in &status.workers {
        let numbers = [
            worker.sessions,
            worker.pending,
            worker.datagrams_in,
            worker.packets_out,
            worker.drops,
            worker.socket_drops,
        ];
        table.row([worker.index.to_string()].into_iter().chain(numbers.map(count)));
    }
    table
}

fn traffic(text: &mut String, status: &Status) {
    let totals = &status.totals;
    writeln!(
        text,
        "\nsince the start: {} sessions, {} in, {} out",
        count(totals.sessions_opened),
        bytes(totals.bytes_in),
        bytes(totals.bytes_out)
    );
    let mut drops: Vec<_> = status.drops.iter().filter(|(_, count)| **count > 0).collect();
    drops.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if !drops.is_empty() {
        let named: Vec<_> = drops.iter().map(|(why, n)| format!("{why} {}", count(**n))).collect();
        writeln!(text, "drops: {}", named.join(", "));
    }
    denied(text, &status.denied);
}

/// How many rules say who may not play, where there are any.
fn denied(text: &mut String, denied: &Denied) {
    let kinds = [
        (denied.ipv4, "IPv4 prefixes"),
        (denied.ipv6, "IPv6 prefixes"),
        (denied.exceptions, "exceptions"),
        (denied.clients, "client ids"),
    ];
    let there = kinds.iter().filter(|(number, _)| *number > 0);
    let named: Vec<_> = there.map(|(number, kind)| format!("{} {kind}", count(*number))).collect();
    if !named.is_empty() {
        let lasts = if denied.kept { "" } else { "; a restart forgets some of it" };
        writeln!(text, "denied: {}{lasts}", named.join(", "));
    }
}

/// Latencies of the last interval; `top` has the same.
pub(super) fn stages(status: &Status) -> Table {
    let mut table = Table::new("stage, count:, p50:, p90:, p99:, p99.9:, max:");
    for stage in &status.stages {
        let times =
            [stage.p50_ns, stage.p90_ns, stage.p99_ns, stage.p999_ns, stage.max_ns].map(time);
        table.row([stage.name.clone(), count(stage.count)].into_iter().chain(times));
    }
    table
}
