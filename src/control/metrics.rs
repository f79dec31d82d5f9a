//! `GET /metrics`: everything that is counted, for Prometheus.
//!
//! A family stands here once, with its name, meaning and source; the operator's handbook lists the
//! same names, and a test holds the two together. Counters are per worker, because a worker is what
//! gets stuck or overloaded; sums are the reader's to make. Every drop reason and every reason to
//! end a session is there from the start, with zeros, so that an alert on one of them does not have
//! to wait for the first.

mod agents;
#[cfg(feature = "fleet")]
pub(super) mod fleet;
mod traffic;

use super::latency::{BOUNDS_NS, QUANTILES, Sums, parties};
use super::view::{Snapshot, is_up};
use ringgate_core::drops::DropReason;
use ringgate_gate::{Counters, Phase};
use ringgate_io::CardDrop;
use ringgate_process::reloads::Reloads;
use ringgate_report::metrics::{Family, Kind, Label, Text};
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
    for PerWorker { name, help, of } in PER_WORKER {
        text.family(name, Kind::Counter, help).by("worker", each_worker(snapshot, of));
    }
    gathers(&mut text, snapshot);
    card(&mut text, snapshot);
    by_reason(&mut text, snapshot);
    health(&mut text, snapshot);
    denied(&mut text, snapshot);
    if let Some(shown) = &snapshot.live.fleet {
        shown.render(&mut text);
    }
    agents::render(&mut text, &snapshot.agents);
    listeners(&mut text, snapshot);
    backends(&mut text, snapshot);
    traffic::render(&mut text, snapshot);
    process(&mut text, snapshot);
    latencies(&mut text, snapshot);
    text.into_string()
}

/// A counter that every worker has beside its gate.
struct PerWorker {
    name: &'static str,
    help: &'static str,
    of: fn(&Report) -> u64,
}

const fn counter(name: &'static str, help: &'static str, of: fn(&Report) -> u64) -> PerWorker {
    PerWorker { name, help, of }
}

const PER_WORKER: &[PerWorker] = &[
    counter(
        "ringgate_socket_drops_total",
        "Datagrams the kernel dropped at players' sockets: refused by the socket filter, or the receive buffer was full. Exact.",
        |r| r.socket_drops,
    ),
    counter("ringgate_turns_total", "Turns taken.", |r| r.turns),
    counter("ringgate_io_waits_total", "Times the driver waited for arrivals.", |r| r.io.waits),
    counter("ringgate_io_syscalls_total", "System calls of the driver.", |r| r.io.syscalls),
    counter("ringgate_io_rx_datagrams_total", "Datagrams received, links included.", |r| {
        r.io.rx_datagrams
    }),
    counter("ringgate_io_rx_bytes_total", "Bytes received, links included.", |r| r.io.rx_bytes),
    counter("ringgate_io_tx_datagrams_total", "Datagrams sent, links included.", |r| {
        r.io.tx_datagrams
    }),
    counter("ringgate_io_tx_bytes_total", "Bytes sent, links included.", |r| r.io.tx_bytes),
    counter("ringgate_io_tx_gso_sends_total", "Sends of several datagrams at once.", |r| {
        r.io.tx_gso_sends
    }),
    counter("ringgate_io_tx_failures_total", "Datagrams that could not be sent.", |r| {
        r.io.tx_failures
    }),
    counter("ringgate_io_rx_arms_total", "Sockets armed to wait for datagrams.", |r| r.io.rx_arms),
    counter("ringgate_io_rx_restarts_total", "Receives that ended early and went on.", |r| {
        r.io.rx_restarts
    }),
    counter("ringgate_io_rx_no_buffers_total", "Times the receive slots ran out.", |r| {
        r.io.rx_no_buffers
    }),
    counter("ringgate_io_cq_overflows_total", "Times the completion queue was full.", |r| {
        r.io.cq_overflows
    }),
    counter("ringgate_io_rx_errors_total", "Receive errors that carried no datagram.", |r| {
        r.io.rx_errors
    }),
    counter(
        "ringgate_frames_taken_total",
        "Frames that the program on the interface has taken from the kernel for this worker (io = \"xdp\").",
        |r| r.card.taken,
    ),
    counter(
        "ringgate_frames_unserved_total",
        "Frames for players' addresses that came while their queue had no worker, and went to the sockets.",
        |r| r.card.unserved,
    ),
    counter("ringgate_frames_received_total", "Datagrams received in frames.", |r| r.card.received),
    counter("ringgate_frames_sent_total", "Datagrams sent in frames.", |r| r.card.sent),
    counter(
        "ringgate_frames_left_by_socket_total",
        "Datagrams of listeners with io = \"xdp\" that left by the socket: a way that only the kernel knows, too long, or no frame free.",
        |r| r.card.left_by_socket,
    ),
    counter(
        "ringgate_frames_kicks_failed_total",
        "Times the kernel would not send what lay in frames, such as while the interface was down.",
        |r| r.card.kicks_failed,
    ),
];

fn daemon(text: &mut Text, snapshot: &Snapshot<'_>) {
    let facts = snapshot.facts;
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", option_env!("RINGGATE_COMMIT").unwrap_or("unknown")),
        ("driver", facts.driver),
        ("cipher", facts.cipher),
    ];
    let mut one = |name, kind, help, value: u64| text.family(name, kind, help).sample(&[], value);
    one(
        "ringgate_start_time_seconds",
        Kind::Gauge,
        "When the daemon started, in seconds since 1970.",
        facts.started_unix_s,
    );
    one(
        "ringgate_draining",
        Kind::Gauge,
        "1 while no new players are taken in.",
        snapshot.live.drain.is_some().into(),
    );
    if let Some(split) = snapshot.socket_drops {
        one(
            "ringgate_socket_overflows_total",
            Kind::Counter,
            "Of ringgate_socket_drops_total, those that found the receive buffer full. Derived: as many of its drops as the \
             network namespace counted as overflows meanwhile.",
            split.overflows(),
        );
        one(
            "ringgate_filter_refusals_total",
            Kind::Counter,
            "Of ringgate_socket_drops_total, those that the socket filter refused. Derived: the rest.",
            split.refusals(),
        );
    }
    one(
        "ringgate_tokens_remembered",
        Kind::Gauge,
        "Used connect tokens that have not expired.",
        snapshot.tokens as u64,
    );
    one(
        "ringgate_interval_write_failures_total",
        Kind::Counter,
        "Intervals that could not be written to the histogram file.",
        snapshot.live.log_failures,
    );
    reloads(text, snapshot.live.reloads);
    text.family("ringgate_build_info", Kind::Gauge, "What runs here; always 1.").sample(&build, 1);
    let incarnation = incarnation(snapshot);
    text.family("ringgate_instance_info", Kind::Gauge, "Which start of the daemon; always 1.")
        .sample(&[("incarnation", incarnation.as_str())], 1);
}

/// What has become of the config, the same of a gateway and of an agent.
pub(super) fn reloads(text: &mut Text, reloads: Reloads) {
    let mut gauge = |name, help, value: u64| {
        text.family(name, Kind::Gauge, help).sample(&[], value);
    };
    let is_in_force = u64::from(!reloads.last_refused);
    let last = "0 when the config was read again and refused, and the earlier one still runs.";
    gauge("ringgate_config_last_reload_success", last, is_in_force);
    gauge("ringgate_config_last_reload_ok", "The same, by its name before 0.2.", is_in_force);
    let read = "When the running config was read, in seconds since 1970.";
    gauge("ringgate_config_timestamp_seconds", read, reloads.config_unix_s);
    gauge(
        "ringgate_config_time_seconds",
        "The same, by its name before 0.2.",
        reloads.config_unix_s,
    );
    text.family("ringgate_config_reloads_total", Kind::Counter, "Times the config was read again.")
        .by("result", [("done", reloads.done), ("refused", reloads.refused)]);
}

/// The number that tells this start of the daemon from every other one.
pub(super) fn incarnation(snapshot: &Snapshot<'_>) -> String {
    format!("{:016x}", snapshot.live.setup.incarnation)
}

/// What is waited on purpose (`batch_delay`).
fn gathers(text: &mut Text, snapshot: &Snapshot<'_>) {
    text.family(
        "ringgate_gather_delay_seconds",
        Kind::Gauge,
        "From one look to the next while a worker waits for more, as it is chosen now; 0 while it does not.",
    )
    .by("worker", each_worker(snapshot, |report| seconds(report.gathers.delay_ns)));
    text.family(
        "ringgate_worker_sleep_cost_seconds",
        Kind::Gauge,
        "What a wait on purpose costs a worker of its processor time, as it was of late; 0 until one was measured.",
    )
    .by("worker", each_worker(snapshot, |report| seconds(report.gathers.sleep_cost_ns)));
    text.family(
        "ringgate_gathers_total",
        Kind::Counter,
        "Times a worker has waited on purpose for more.",
    )
    .by("worker", each_worker(snapshot, |report| report.gathers.count));
    text.family(
        "ringgate_gather_seconds_total",
        Kind::Counter,
        "How long a worker has waited on purpose, all together.",
    )
    .by("worker", each_worker(snapshot, |report| seconds(report.gathers.waited_ns)));
}

/// The interface that players' packets come by past the kernel's sockets, where there is one.
fn card(text: &mut Text, snapshot: &Snapshot<'_>) {
    let shown = snapshot.facts.card.as_ref().map(|card| card.shown());
    let mut attached = text.family(
        "ringgate_xdp_attached",
        Kind::Gauge,
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
        let mut family = text.family(name, Kind::Counter, help);
        for (worker, report) in workers(snapshot) {
            for (name, count) in list.names.iter().zip((list.of)(&report.counters)) {
                family.sample(&[("worker", &worker), (list.label, name)], count);
            }
        }
    }
    let mut drops = text.family(
        "ringgate_drops_total",
        Kind::Counter,
        "What went no further, by reason (the handbook explains each).",
    );
    for (worker, report) in workers(snapshot) {
        let counted =
            DropReason::ALL.iter().map(|why| (why.name(), report.counters.drops.of(*why)));
        let frames = CardDrop::ALL.iter().map(|why| (why.name(), report.card.dropped(*why)));
        for (reason, count) in counted.chain(frames) {
            drops.sample(&[("worker", &worker), ("reason", reason)], count);
        }
    }
}

fn health(text: &mut Text, snapshot: &Snapshot<'_>) {
    let age_s = |report: &Report| seconds(snapshot.now_ns.saturating_sub(report.at_ns));
    text.family(
        "ringgate_worker_report_age_seconds",
        Kind::Gauge,
        "How old a worker's last report is; it leaves 20 a second.",
    )
    .by("worker", each_worker(snapshot, age_s));
    let holds = |report: &Report| u8::from(report.counters.check_conservation().is_ok());
    text.family(
        "ringgate_conserved",
        Kind::Gauge,
        "1 while everything that came in is accounted for: handled, forwarded or dropped by name.",
    )
    .by("worker", each_worker(snapshot, holds));
}

fn denied(text: &mut Text, snapshot: &Snapshot<'_>) {
    let shown = &snapshot.live.denied;
    let Counts { ipv4, ipv6, exceptions, clients } = shown.counts;
    let rules = [("ipv4", ipv4), ("ipv6", ipv6), ("exception", exceptions), ("client", clients)];
    text.family(
        "ringgate_denied_rules",
        Kind::Gauge,
        "Rules about who may not play, by what they are about.",
    )
    .by("kind", rules);
    text.family(
        "ringgate_denied_kept",
        Kind::Gauge,
        "1 while a restart would forget none of these rules.",
    )
    .sample(&[], u8::from(shown.why_not_kept().is_none()));
    text.family(
        "ringgate_spent_tokens_kept",
        Kind::Gauge,
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
    text.family("ringgate_listener_sessions", Kind::Gauge, "Sessions of a listener now.")
        .by("listener", serving().map(|(listener, count)| (&listener.name, count)));
    text.family(
        "ringgate_listener_sessions_max",
        Kind::Gauge,
        "Sessions beyond which a listener denies players.",
    )
    .by("listener", serving().map(|(listener, _)| (&listener.name, listener.sessions_max)));
    let leaving: u32 = in_phase(Phase::Draining).map(|(_, sessions)| sessions).sum();
    text.family(
        "ringgate_removed_listener_sessions",
        Kind::Gauge,
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
    let mut up = text.family(
        "ringgate_backend_up",
        Kind::Gauge,
        "1 while a worker can send players to a backend.",
    );
    for (worker, report) in workers(snapshot) {
        for (id, backend) in active() {
            let labels = [("worker", worker.as_str()), ("backend", &backend.name)];
            up.sample(&labels, u8::from(is_up(report, id)));
        }
    }
    text.family(
        "ringgate_backend_drained",
        Kind::Gauge,
        "1 while an operator sends no new players to a backend.",
    )
    .by("backend", active().map(|(_, backend)| (&backend.name, u8::from(backend.drained))));
    let mut arrivals = text.family(
        "ringgate_backend_arrivals_total",
        Kind::Counter,
        "Times a backend has become reachable for a worker.",
    );
    for (worker, report) in workers(snapshot) {
        for (id, backend) in active() {
            let labels = [("worker", worker.as_str()), ("backend", &backend.name)];
            let count = report.backend_arrivals.get(id.index()).copied().unwrap_or_default();
            arrivals.sample(&labels, count);
        }
    }
    text.family("ringgate_backend_players", Kind::Gauge, "Players of a backend now.")
        .by("backend", active().map(|(id, it)| (&it.name, snapshot.players[id.index()])));
    text.family(
        "ringgate_backend_slots",
        Kind::Gauge,
        "Players beyond which a backend's are denied.",
    )
    .by("backend", active().map(|(_, backend)| (&backend.name, backend.slots)));
    let mut servers = text.family(
        "ringgate_backend_unreal_info",
        Kind::Gauge,
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
    text.family(
        "ringgate_retired_backend_players",
        Kind::Gauge,
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
    text.family(
        "ringgate_stage_interval_samples",
        Kind::Gauge,
        "Latencies recorded in the last interval.",
    )
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
    let used = &snapshot.used;
    let mut one = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            text.family(name, kind, help).sample(&[], value);
        }
    };
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    one(
        "process_cpu_seconds_total",
        Kind::Counter,
        "Time on a CPU, in user and kernel mode, in seconds.",
        used.cpu_seconds,
    );
    one(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Memory that the process has, in bytes.",
        whole(used.resident_bytes),
    );
    one(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "Address space that the process has, in bytes.",
        whole(used.virtual_bytes),
    );
    one("process_open_fds", Kind::Gauge, "Descriptors that are open.", whole(used.open_files));
    one(
        "process_max_fds",
        Kind::Gauge,
        "Descriptors that may be open.",
        whole(used.open_files_max),
    );
    one(
        "process_start_time_seconds",
        Kind::Gauge,
        "When the process started, in seconds since 1970.",
        Some(snapshot.facts.started_unix_s as f64),
    );
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
        let listed: HashSet<&str> = handbook
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
