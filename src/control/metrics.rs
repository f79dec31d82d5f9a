//! `GET /metrics`: everything that is counted, for Prometheus.
//!
//! A family stands here once, with its name, meaning and source; the operator's handbook lists the
//! same names, and a test holds the two together. Counters are per worker, because a worker is what
//! gets stuck or overloaded; sums are the reader's to make. Every drop reason and every reason to
//! end a session is there from the start, with zeros, so that an alert on one of them does not have
//! to wait for the first.

mod agents;
mod cluster;
#[cfg(feature = "fleet")]
pub(super) mod fleet;
mod traffic;

use super::latency::{BOUNDS_NS, QUANTILES, Sums, parties};
use super::view::{Snapshot, is_up};
use ringgate_gate::{BackendId, Counters, Phase};
use ringgate_io::CardDrop;
use ringgate_os::usage::Used;
use ringgate_process::reloads::Reloads;
use ringgate_report::metrics::{Family, Kind, Label, Text};
use ringgate_report::{families, numbers};
use ringgate_state::Counts;
use ringgate_worker::{CardShown, Report, Stage};

/// The page.
pub(super) fn render(snapshot: &Snapshot<'_>) -> String {
    let mut text = Text::default();
    daemon(&mut text, snapshot);
    for number in Counters::NUMBERS {
        let Some((name, help)) = number.metric else { continue };
        let kind = if number.is_gauge { Kind::Gauge } else { Kind::Counter };
        text.family(name, kind, help)
            .by("worker", each_worker(snapshot, |report| (number.of)(&report.counters)));
    }
    for row in PER_WORKER {
        text.row(row).by("worker", each_worker(snapshot, row.of));
    }
    for row in WAITED {
        text.row(row).by("worker", each_worker(snapshot, row.of));
    }
    awake(&mut text, snapshot);
    card(&mut text, snapshot);
    by_reason(&mut text, snapshot);
    health(&mut text, snapshot);
    denied(&mut text, snapshot);
    if let Some(shown) = &snapshot.live.fleet {
        shown.render(&mut text);
    }
    agents::render(&mut text, &snapshot.agents);
    if let Some(seen) = &snapshot.cluster {
        cluster::render(&mut text, seen);
    }
    listeners(&mut text, snapshot);
    backends(&mut text, snapshot);
    traffic::render(&mut text, snapshot);
    process(&mut text, snapshot);
    latencies(&mut text, snapshot);
    text.into_string()
}

families! {
    /// What the kernel says that the process uses.
    USED: Used => Option<f64> {
        Counter "process_cpu_seconds_total",
            "Time on a CPU, in user and kernel mode, in seconds.", |it| it.cpu_seconds;
        Gauge "process_resident_memory_bytes",
            "Memory that the process has, in bytes.", |it| it.resident_bytes.map(whole);
        Gauge "process_virtual_memory_bytes",
            "Address space that the process has, in bytes.", |it| it.virtual_bytes.map(whole);
        Gauge "process_open_fds", "Descriptors that are open.", |it| it.open_files.map(whole);
        Gauge "process_max_fds",
            "Descriptors that may be open.", |it| it.open_files_max.map(whole);
    }

    /// What every worker counts beside its gate.
    PER_WORKER: Report => u64 {
        Counter "ringgate_socket_drops_total",
            "Datagrams the kernel dropped at players' sockets: refused by the socket filter, or the receive buffer was full. Exact.",
            |it| it.socket_drops;
        Counter "ringgate_turns_total", "Turns taken.", |it| it.turns;
        Counter "ringgate_io_waits_total",
            "Times the driver waited for arrivals.", |it| it.io.waits;
        Counter "ringgate_io_syscalls_total", "System calls of the driver.", |it| it.io.syscalls;
        Counter "ringgate_io_rx_datagrams_total",
            "Datagrams received, links included.", |it| it.io.rx_datagrams;
        Counter "ringgate_io_rx_bytes_total",
            "Bytes received, links included.", |it| it.io.rx_bytes;
        Counter "ringgate_io_tx_datagrams_total",
            "Datagrams sent, links included.", |it| it.io.tx_datagrams;
        Counter "ringgate_io_tx_bytes_total", "Bytes sent, links included.", |it| it.io.tx_bytes;
        Counter "ringgate_io_tx_gso_sends_total",
            "Sends of several datagrams at once.", |it| it.io.tx_gso_sends;
        Counter "ringgate_io_tx_failures_total",
            "Datagrams that could not be sent.", |it| it.io.tx_failures;
        Counter "ringgate_io_rx_arms_total",
            "Sockets armed to wait for datagrams.", |it| it.io.rx_arms;
        Counter "ringgate_io_rx_restarts_total",
            "Receives that ended early and went on.", |it| it.io.rx_restarts;
        Counter "ringgate_io_rx_no_buffers_total",
            "Times the receive slots ran out.", |it| it.io.rx_no_buffers;
        Counter "ringgate_io_cq_overflows_total",
            "Times the completion queue was full.", |it| it.io.cq_overflows;
        Counter "ringgate_io_rx_errors_total",
            "Receive errors that carried no datagram.", |it| it.io.rx_errors;
        Counter "ringgate_frames_taken_total",
            "Frames that the program on the interface has taken from the kernel for this worker (io = \"xdp\").",
            |it| it.card.taken;
        Counter "ringgate_frames_unserved_total",
            "Frames for players' addresses that came while their queue had no worker, and went to the sockets.",
            |it| it.card.unserved;
        Counter "ringgate_frames_received_total",
            "Datagrams received in frames.", |it| it.card.received;
        Counter "ringgate_frames_sent_total", "Datagrams sent in frames.", |it| it.card.sent;
        Counter "ringgate_frames_left_by_socket_total",
            "Datagrams of listeners with io = \"xdp\" that left by the socket: a way that only the kernel knows, too long, or no frame free.",
            |it| it.card.left_by_socket;
        Counter "ringgate_frames_kicks_failed_total",
            "Times the kernel would not send what lay in frames, such as while the interface was down.",
            |it| it.card.kicks_failed;
        Counter "ringgate_gathers_total",
            "Times a worker has waited on purpose for more.", |it| it.gathers.count;
    }

    /// What is waited on purpose (`batch_delay`).
    WAITED: Report => f64 {
        Gauge "ringgate_gather_delay_seconds",
            "From one look to the next while a worker waits for more, as it is chosen now; 0 while it does not.",
            |it| seconds(it.gathers.delay_ns);
        Gauge "ringgate_worker_sleep_cost_seconds",
            "What a wait on purpose costs a worker of its processor time, as it was of late; 0 until one was measured.",
            |it| seconds(it.gathers.sleep_cost_ns);
        Counter "ringgate_gather_seconds_total",
            "How long a worker has waited on purpose, all together.",
            |it| seconds(it.gathers.waited_ns);
    }
}

fn daemon(text: &mut Text, snapshot: &Snapshot<'_>) {
    let facts = snapshot.facts;
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", option_env!("RINGGATE_COMMIT").unwrap_or("unknown")),
        ("driver", facts.driver),
        ("cipher", facts.cipher),
    ];
    numbers! { text, "ringgate_";
        Gauge "start_time_seconds",
            "When the daemon started, in seconds since 1970; an upgrade goes on with it.", facts.started_unix_s;
        Gauge "draining",
            "1 while no new players are taken in.", u8::from(snapshot.live.drain.is_some());
        Gauge "tokens_remembered",
            "Used connect tokens that have not expired.", snapshot.tokens;
        Counter "interval_write_failures_total",
            "Intervals that could not be written to the histogram file.",
            snapshot.live.log_failures;
    }
    if let Some(split) = snapshot.socket_drops {
        numbers! { text, "ringgate_";
            Counter "socket_overflows_total",
                "Of ringgate_socket_drops_total, those that found the receive buffer full. Derived: as many of its drops as the \
                 network namespace counted as overflows meanwhile.",
                split.overflows();
            Counter "filter_refusals_total",
                "Of ringgate_socket_drops_total, those that the socket filter refused. Derived: the rest.",
                split.refusals();
        }
    }
    reloads(text, snapshot.live.reloads);
    text.gauge("ringgate_build_info", "What runs here; always 1.").sample(&build, 1);
    let incarnation = incarnation(snapshot);
    text.gauge("ringgate_instance_info", "Which start of the daemon; always 1.")
        .sample(&[("incarnation", incarnation.as_str())], 1);
}

/// What has become of the config, the same of a gateway and of an agent.
pub(super) fn reloads(text: &mut Text, reloads: Reloads) {
    let is_in_force = u8::from(!reloads.last_refused);
    numbers! { text, "ringgate_config_";
        Gauge "last_reload_success",
            "0 when the config was read again and refused, and the earlier one still runs.",
            is_in_force;
        Gauge "last_reload_ok", "The same, by its name before 0.2.", is_in_force;
        Gauge "timestamp_seconds",
            "When the running config was read, in seconds since 1970.", reloads.config_unix_s;
        Gauge "time_seconds", "The same, by its name before 0.2.", reloads.config_unix_s;
    }
    text.counter("ringgate_config_reloads_total", "Times the config was read again.")
        .by("result", [("done", reloads.done), ("refused", reloads.refused)]);
}

/// The number that tells this start of the daemon from every other one.
pub(super) fn incarnation(snapshot: &Snapshot<'_>) -> String {
    format!("{:016x}", snapshot.live.setup.incarnation)
}

fn awake(text: &mut Text, snapshot: &Snapshot<'_>) {
    let mut awake = text.gauge(
        "ringgate_workers_awake",
        "Workers that newcomers come to; the others sleep once their players have left (workers_awake).",
    );
    awake.sample(&[], snapshot.facts.awake.count());
}

/// The interface that players' packets come by past the kernel's sockets, where there is one.
fn card(text: &mut Text, snapshot: &Snapshot<'_>) {
    let shown = snapshot.facts.card.as_ref().map(|card| card.shown());
    let mut attached = text.gauge(
        "ringgate_xdp_attached",
        "1 while the gateway's program is on the interface (io = \"xdp\"); 0: players are served by sockets.",
    );
    if let Some(CardShown { interface, mode, is_attached, .. }) = shown {
        let labels = [("interface", interface), ("mode", mode)];
        attached.sample(&labels, u8::from(is_attached));
    }
}

fn by_reason(text: &mut Text, snapshot: &Snapshot<'_>) {
    for list in Counters::LISTS {
        let (name, help) = list.metric;
        let counts = workers(snapshot)
            .map(|(worker, it)| (worker, list.names.iter().zip((list.of)(&it.counters))));
        text.counter(name, help).by_two(["worker", list.label], counts);
    }
    let drops = workers(snapshot)
        .map(|(worker, it)| (worker, drops(&it.counters, move |why| it.card.dropped(why))));
    text.counter(
        "ringgate_drops_total",
        "What went no further, by reason (docs/reference/drop-reasons.md explains each).",
    )
    .by_two(["worker", "reason"], drops);
}

/// What went no further, by reason, frames of a card among it.
pub(super) fn drops(
    counters: &Counters,
    frames: impl Fn(CardDrop) -> u64,
) -> impl Iterator<Item = (&'static str, u64)> {
    let counted = counters.drops.iter().map(|(why, count)| (why.name(), count));
    counted.chain(CardDrop::ALL.iter().map(move |why| (why.name(), frames(*why))))
}

fn health(text: &mut Text, snapshot: &Snapshot<'_>) {
    let age_s = |report: &Report| seconds(snapshot.now_ns.saturating_sub(report.at_ns));
    text.gauge(
        "ringgate_worker_report_age_seconds",
        "How old a worker's last report is; it leaves 20 a second.",
    )
    .by("worker", each_worker(snapshot, age_s));
    let holds = |report: &Report| u8::from(report.counters.check_conservation().is_ok());
    text.gauge(
        "ringgate_conserved",
        "1 while everything that came in is accounted for: handled, forwarded or dropped by name.",
    )
    .by("worker", each_worker(snapshot, holds));
}

fn denied(text: &mut Text, snapshot: &Snapshot<'_>) {
    let shown = &snapshot.live.denied;
    let Counts { ipv4, ipv6, exceptions, clients } = shown.counts;
    let rules = [("ipv4", ipv4), ("ipv6", ipv6), ("exception", exceptions), ("client", clients)];
    text.gauge("ringgate_denied_rules", "Rules about who may not play, by what they are about.")
        .by("kind", rules);
    text.gauge("ringgate_denied_kept", "1 while a restart would forget none of these rules.")
        .sample(&[], u8::from(shown.why_not_kept().is_none()));
    text.gauge(
        "ringgate_spent_tokens_kept",
        "1 while used tokens are written down, so that a restart makes none good again.",
    )
    .sample(&[], u8::from(snapshot.live.why_not_spent.get().is_none()));
}

/// Listeners that a reload has removed keep their players until they leave; another one may have
/// the name meanwhile.
fn listeners(text: &mut Text, snapshot: &Snapshot<'_>) {
    let in_phase = |phase: Phase| {
        let all = snapshot.live.setup.listeners.iter().zip(&snapshot.sessions);
        all.filter(move |(listener, _)| listener.phase == phase)
    };
    let serving = || in_phase(Phase::Serving);
    text.gauge("ringgate_listener_sessions", "Sessions of a listener now.")
        .by("listener", serving().map(|(listener, count)| (&listener.name, count)));
    text.gauge(
        "ringgate_listener_sessions_max",
        "Sessions beyond which a listener denies players.",
    )
    .by("listener", serving().map(|(listener, _)| (&listener.name, listener.sessions_max)));
    let leaving: u32 = in_phase(Phase::Draining).map(|(_, sessions)| sessions).sum();
    text.gauge(
        "ringgate_removed_listener_sessions",
        "Sessions of listeners that the config no longer has, and which drain.",
    )
    .sample(&[], leaving);
}

/// Backends that a reload has retired keep their players until they leave; more than one of a name
/// can be retired.
fn backends(text: &mut Text, snapshot: &Snapshot<'_>) {
    let active = || {
        let all = snapshot.live.setup.backends.pairs();
        all.filter(|(_, backend)| !backend.retired)
    };
    let up = workers(snapshot).map(|(worker, report)| {
        (worker, active().map(move |(id, it)| (&it.name, u8::from(is_up(report, id)))))
    });
    text.gauge("ringgate_backend_up", "1 while a worker can send players to a backend.")
        .by_two(["worker", "backend"], up);
    text.gauge(
        "ringgate_backend_drained",
        "1 while an operator sends no new players to a backend.",
    )
    .by("backend", active().map(|(_, backend)| (&backend.name, u8::from(backend.drained))));
    let arrivals = workers(snapshot).map(|(worker, report)| {
        let of = |id: BackendId| report.backend_arrivals.get(id.index()).copied();
        (worker, active().map(move |(id, it)| (&it.name, of(id).unwrap_or_default())))
    });
    text.counter(
        "ringgate_backend_arrivals_total",
        "Times a backend has become reachable for a worker.",
    )
    .by_two(["worker", "backend"], arrivals);
    text.gauge("ringgate_backend_players", "Players of a backend now.")
        .by("backend", active().map(|(id, it)| (&it.name, snapshot.players[id.index()])));
    text.gauge("ringgate_backend_slots", "Players beyond which a backend's are denied.")
        .by("backend", active().map(|(_, backend)| (&backend.name, backend.slots)));
    let mut servers = text.gauge(
        "ringgate_backend_unreal_info",
        "What the server of an Unreal game says about itself; always 1.",
    );
    for (id, backend) in active() {
        let Some(identity) = snapshot.server(id) else { continue };
        let labels = [
            ("backend", backend.name.as_str()),
            ("session_id", &identity.session.to_string()),
            ("network_version", &format!("0x{:08x}", identity.base.network_version)),
            ("network_features", &identity.base.network_features.to_string()),
        ];
        servers.sample(&labels, 1);
    }
    let retired = snapshot.live.setup.backends.iter().zip(&snapshot.players);
    let retired_players: u32 =
        retired.filter(|(backend, _)| backend.retired).map(|(_, players)| players).sum();
    text.gauge(
        "ringgate_retired_backend_players",
        "Players of backends that the config no longer has.",
    )
    .sample(&[], retired_players);
}

fn latencies(text: &mut Text, snapshot: &Snapshot<'_>) {
    let latencies = &snapshot.live.latencies;
    let mut sums = text.family(
        "ringgate_stage_seconds",
        Kind::Histogram,
        "Latency by stage since the start, over all workers.",
    );
    for stage in Stage::ALL {
        histogram(&mut sums, &[("stage", stage.name())], &latencies.sums[stage as usize]);
    }
    let mut of_listeners = text.family(
        "ringgate_listener_stage_seconds",
        Kind::Histogram,
        "Latency by listener and stage since the start, over all workers; a turn is no listener's.",
    );
    for (party, name) in parties(&snapshot.live.setup) {
        let sums = latencies.of_listener(party, &name);
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Turn) {
            let labels = [("listener", name.as_str()), ("stage", stage.name())];
            histogram(&mut of_listeners, &labels, &sums[stage as usize]);
        }
    }
    let mut quantiles = text.family(
        "ringgate_stage_interval_seconds",
        Kind::Summary,
        "Latency by stage in the last interval, over all workers; 1 is the longest (q is an old name of quantile).",
    );
    for stage in Stage::ALL {
        let label = ("stage", stage.name());
        let interval = &latencies.interval[stage as usize];
        let longest = (&1.0, &interval.max_ns);
        for (quantile, ns) in QUANTILES.iter().zip(&interval.quantiles_ns).chain([longest]) {
            let quantile = quantile.to_string();
            quantiles.sample(&[label, ("quantile", &quantile), ("q", &quantile)], seconds(*ns));
        }
        let sums = &latencies.sums[stage as usize];
        quantiles.part("_sum", &[label], seconds(sums.total_ns));
        quantiles.part("_count", &[label], sums.count());
    }
    text.gauge("ringgate_stage_interval_samples", "Latencies recorded in the last interval.")
        .by("stage", Stage::ALL.map(|it| (it.name(), latencies.interval[it as usize].count)));
}

/// The samples of a histogram.
fn histogram(family: &mut Family<'_>, labels: &[Label<'_>], sums: &Sums) {
    let mut count = 0;
    for (bound_ns, in_bucket) in BOUNDS_NS.iter().zip(&sums.buckets) {
        count += in_bucket;
        let bound = seconds(*bound_ns).to_string();
        family.part("_bucket", &[labels, &[("le", &bound)]].concat(), count);
    }
    family.part("_bucket", &[labels, &[("le", "+Inf")]].concat(), sums.count());
    family.part("_sum", labels, seconds(sums.total_ns));
    family.part("_count", labels, sums.count());
}

/// By the names that every Prometheus client library has for them; what the kernel does not tell is
/// left out.
fn process(text: &mut Text, snapshot: &Snapshot<'_>) {
    for row in USED {
        if let Some(value) = (row.of)(&snapshot.used) {
            text.row(row).sample(&[], value);
        }
    }
    text.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
        .sample(&[], snapshot.facts.process_unix_s);
}

const fn whole(value: u64) -> f64 {
    value as f64
}

/// Workers by number, each with its last report.
fn workers<'a>(snapshot: &'a Snapshot<'_>) -> impl Iterator<Item = (String, &'a Report)> {
    snapshot.reports.iter().enumerate().map(|(worker, report)| (worker.to_string(), report))
}

/// A number of each worker.
fn each_worker<V>(
    snapshot: &Snapshot<'_>,
    of: impl Fn(&Report) -> V,
) -> impl Iterator<Item = (String, V)> {
    workers(snapshot).map(move |(worker, report)| (worker, of(report)))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::tests as sample;
    use super::*;
    use ringgate_core::drops::{DropCounts, DropReason};
    use ringgate_gate::{ListenerId, Party, Setup};

    #[test]
    fn every_sample_has_a_family_and_none_is_there_twice() {
        let facts = sample::facts();
        let page = render(&sample::snapshot(&facts));
        let mut family = "";
        let mut families = HashSet::new();
        let mut samples = HashSet::new();
        for line in page.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                family = head.split(' ').next().expect("a name");
                assert!(families.insert(family), "{family} begins twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                assert!(series.starts_with(family), "{series} is not of {family}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(samples.insert(series), "{series} is there twice");
            }
        }
        let is_ours =
            |family: &&str| ["ringgate_", "process_"].iter().any(|it| family.starts_with(it));
        assert!(families.iter().all(is_ours));
        assert_eq!(page.matches("# HELP ").count(), families.len());
    }

    #[test]
    fn every_reason_is_there_with_its_zeros() {
        let facts = sample::facts();
        let page = render(&sample::snapshot(&facts));
        for why in DropReason::ALL {
            let line = format!("ringgate_drops_total{{worker=\"1\",reason=\"{}\"}} 0", why.name());
            assert!(page.lines().any(|other| other == line), "{line}");
        }
        assert!(page.contains("ringgate_drops_total{worker=\"0\",reason=\"unknown_source\"} 3\n"));
        assert!(page.contains("ringgate_sessions_closed_total{worker=\"0\",reason=\"timed_out\"}"));
    }

    #[test]
    fn drops_of_the_listeners_behind_the_first_do_not_fall_when_one_of_them_goes() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        let mut setup = Setup::clone(&snapshot.live.setup);
        let listeners = Party::APART + 2;
        for _ in 1..listeners {
            setup.listeners.push(sample::listener());
        }
        let mut drops = DropCounts::new();
        drops.bump(DropReason::UnknownSource);
        snapshot.reports[0].listener_drops = vec![drops; listeners];
        snapshot.sessions = vec![0; listeners];
        let others = "{listener=\"(others)\",reason=\"unknown_source\"} 2\n";
        for phase in [Phase::Serving, Phase::Draining, Phase::Closed] {
            setup.listeners[ListenerId::at(Party::APART)].phase = phase;
            snapshot.live.setup = setup.clone().into();
            let page = render(&snapshot);
            assert!(page.contains(&format!("ringgate_listener_drops_total{others}")), "{phase:?}");
        }
    }

    #[test]
    fn a_gateway_is_as_old_as_its_first_process_and_a_process_as_itself() {
        let facts = sample::facts();
        let page = render(&sample::snapshot(&facts));
        assert!(page.contains("\nringgate_start_time_seconds 1700000000\n"));
        assert!(page.contains("\nprocess_start_time_seconds 1700000030\n"));
    }

    #[test]
    fn a_backend_that_is_retired_under_a_name_in_use_has_no_series_of_its_own() {
        let facts = sample::facts();
        let page = render(&sample::snapshot(&facts));
        assert!(page.contains("ringgate_backend_players{backend=\"arena-1\"} 5\n"));
        assert!(page.contains("ringgate_retired_backend_players 2\n"));
        assert!(page.contains("ringgate_backend_up{worker=\"0\",backend=\"arena-1\"} 1\n"));
        assert!(page.contains("ringgate_backend_up{worker=\"1\",backend=\"arena-1\"} 0\n"));
        let arrivals = "ringgate_backend_arrivals_total{worker=\"0\",backend=\"arena-1\"} 3\n";
        assert!(page.contains(arrivals) && page.contains("ringgate_instance_info{incarnation=\""));
    }

    #[test]
    fn the_handbook_lists_exactly_the_families_that_there_are() {
        let facts = sample::facts();
        let page = render(&sample::snapshot(&facts));
        let there: HashSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|head| head.split(' ').next())
            .collect();
        let handbook = include_str!("../../docs/reference/metrics.md");
        let of_gateways = handbook.split("\n## ").next().expect("the first chapter");
        let listed: HashSet<&str> = of_gateways
            .lines()
            .filter(|line| line.starts_with("| `ringgate_") || line.starts_with("| `process_"))
            .flat_map(|line| line.split('|').nth(1).expect("a cell").split('`'))
            .map(|name| name.split('{').next().expect("a name"))
            .filter(|name| name.starts_with("ringgate_") || name.starts_with("process_"))
            .collect();
        let missing: Vec<_> = there.difference(&listed).collect();
        let stale: Vec<_> = listed.difference(&there).collect();
        assert!(missing.is_empty() && stale.is_empty(), "missing {missing:?}, stale {stale:?}");
    }

    #[test]
    fn the_handbook_explains_every_drop_reason_once() {
        let handbook = include_str!("../../docs/reference/drop-reasons.md");
        let rows = handbook.lines().filter(|line| line.starts_with("| `"));
        let mut explained: Vec<&str> = rows
            .flat_map(|row| row.split('|').nth(1).expect("a cell").split('`').skip(1).step_by(2))
            .collect();
        let frames = CardDrop::ALL.iter().map(|why| why.name());
        let there = DropReason::ALL.iter().map(|why| why.name());
        let mut there: Vec<&str> = there.chain(frames).collect();
        explained.sort_unstable();
        there.sort_unstable();
        assert_eq!(explained, there);
    }
}
