//! `/metrics` as Prometheus sees it, and what it says of each listener and each backend.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::control_listeners::{address_of, with};
use crate::control_rig::{Daemon, Game, KEY_HEX, Page, Player, Text, wait_for};

/// What `promtool check metrics` says of a page; `None` where it is not installed.
pub(crate) fn promtool(page: &str) -> Option<String> {
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        let why = "promtool is not there (Debian has it in the package prometheus)";
        let required = std::env::var_os("REQUIRE_PROMTOOL").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_PROMTOOL=1, but {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(page.as_bytes()).expect("it reads all");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success() || !said.is_empty(), "it failed without a word");
    Some(said)
}

#[test]
fn promtool_has_nothing_to_say() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    let Some(said) = promtool(&daemon.get("/metrics").body) else { return };
    assert_eq!(said, "");
    // It does find something where there is something.
    let bad = promtool("# TYPE a_count counter\na_count 1\n").expect("it is there");
    assert!(bad.contains("a_count"), "{bad}");
}

#[test]
fn listeners_and_backends_have_series_of_what_they_have_carried() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    stranger.send_to(&[0x14; 26], daemon.listener).expect("loopback takes it");
    let listener = |name: &str| format!("ringgate_listener_{name}{{listener=\"eu\"}}");
    let drops = |page: &Page| page.sum("ringgate_listener_drops_total", "listener=\"eu\"");
    let backend = |name: &str| format!("ringgate_backend_{name}{{backend=\"arena\"}}");
    let metrics = wait_for("all of it in the counters", || {
        let metrics = daemon.get("/metrics");
        let has = |series: String| metrics.value(&series) > Some(0);
        let is_there = drops(&metrics) > Some(0) && has(backend("payloads_down_total"));
        is_there.then_some(metrics)
    });
    let value = |series: String| metrics.value(&series).expect("a whole number");
    assert_eq!(drops(&metrics), Some(1));
    assert_eq!(value(listener("sessions_opened_total")), 1);
    assert_eq!(value(backend("sessions_opened_total")), 1);
    assert_eq!(value(backend("drops_total")), 0);
    let payloads = value(backend("payloads_up_total"));
    assert_eq!(value(backend("bytes_up_total")), 5 * payloads);
    let [down, bytes] = ["payloads_down_total", "bytes_down_total"].map(|it| value(backend(it)));
    assert_eq!(bytes, 5 * down);
    let of_worker = |name: &str| value(format!("ringgate_{name}{{worker=\"0\"}}"));
    for name in ["datagrams_in_total", "bytes_in_total", "bytes_out_total"] {
        assert_eq!(value(listener(name)), of_worker(name), "{name}");
    }
    let rss = metrics.body.lines().find_map(|it| it.strip_prefix("process_resident_memory_bytes "));
    assert!(rss.is_some_and(|it| it.parse::<f64>().is_ok_and(|bytes| bytes > 1e6)), "{rss:?}");
}

/// A sample of a listener's.
fn of_listener(page: &Page, series: &str, listener: &str, rest: &str) -> u64 {
    let sample = format!("{series}{{listener=\"{listener}\",{rest}}}");
    page.value(&sample).unwrap_or_else(|| panic!("{sample} is not there"))
}

#[test]
fn drops_and_stages_are_told_by_listener_and_add_up() {
    let mut text = Text::new();
    text.more = "[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n".to_owned();
    let text = with(&text, "us", "127.0.0.1:0");
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let us = address_of(&daemon, "us");
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"hello");
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..3 {
        stranger.send_to(&[0x14; 26], us).expect("loopback takes it");
    }
    let drops = "ringgate_listener_drops_total";
    let unknown = "reason=\"unknown_source\"";
    let page = wait_for("what was dropped", || {
        let page = daemon.get("/metrics");
        (of_listener(&page, drops, "us", unknown) == 3).then_some(page)
    });
    assert_eq!(of_listener(&page, drops, "eu", unknown), 0);
    assert_eq!(page.sum(drops, ""), page.sum("ringgate_drops_total", ""));
    let stages = "ringgate_listener_stage_seconds_count";
    let page = wait_for("an interval with the player's packets", || {
        let page = daemon.get("/metrics");
        let has = |stage: &str| of_listener(&page, stages, "eu", stage) > 0;
        let all = ["handshake", "uplink", "queue", "downlink"];
        all.iter().all(|stage| has(&format!("stage=\"{stage}\""))).then_some(page)
    });
    for stage in ["handshake", "uplink", "queue", "downlink"] {
        let label = format!("stage=\"{stage}\"");
        let whole = page.sum("ringgate_stage_seconds_count", &label);
        assert_eq!(page.sum(stages, &label), whole, "{stage}");
        let seconds = ["ringgate_stage_seconds_sum", "ringgate_listener_stage_seconds_sum"];
        let [whole, apart] = seconds.map(|name| sum_of(&page.body, name, &label));
        assert!((whole - apart).abs() < 1e-9, "{stage}: {whole} s, {apart} s");
    }
    assert_eq!(of_listener(&page, stages, "us", "stage=\"uplink\""), 0);
    let reasons = |page: &Page| page.body.lines().filter(|it| it.starts_with(drops)).count();
    assert_eq!(reasons(&page) % 2, 0, "zeros are shown, so that a first one is seen to grow");
}

/// Sum of samples that need not be whole.
fn sum_of(page: &str, name: &str, label: &str) -> f64 {
    let samples = page.lines().filter(|it| it.starts_with(&format!("{name}{{")));
    let samples = samples.filter(|it| it.contains(label));
    samples.filter_map(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn listeners_behind_the_first_sixteen_are_shown_as_one() {
    let mut text = Text::new();
    for number in 0..18 {
        text = with(&text, &format!("more-{number}"), "127.0.0.1:0");
    }
    text.gateway.push_str("reserve_sessions = 1000\n");
    let daemon = Daemon::start(&text);
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    for name in ["more-14", "more-15", "more-17"] {
        stranger.send_to(&[0x14; 26], address_of(&daemon, name)).expect("loopback takes it");
    }
    let unknown = "reason=\"unknown_source\"";
    let of =
        |page: &Page, name: &str| of_listener(page, "ringgate_listener_drops_total", name, unknown);
    let page = wait_for("what was dropped", || {
        let page = daemon.get("/metrics");
        (of(&page, "more-14") + of(&page, "(others)") == 3).then_some(page)
    });
    assert_eq!((of(&page, "more-14"), of(&page, "(others)")), (1, 2));
    let of_stages = "ringgate_listener_stage_seconds_count{listener=";
    let shown = page.body.lines().filter(|it| it.starts_with(of_stages));
    assert_eq!(shown.count(), 17 * 5);
    if let Some(said) = promtool(&page.body) {
        assert_eq!(said, "");
    }
}

/// The page for operators says how many each of these has.
#[test]
fn the_number_of_series_is_bounded_by_the_config() {
    let daemon = Daemon::start(&Text::new());
    let page = daemon.get("/metrics").body;
    let labels = [("worker", "0"), ("backend", "arena"), ("listener", "eu")];
    let labels = labels.map(|(label, value)| format!("{label}=\"{value}\""));
    let is_apart = |line: &str| ["reason=\"", "stage=\""].iter().any(|it| line.contains(it));
    let count = |of: [bool; 3], apart: bool| {
        let is_of = |line: &&str| labels.each_ref().map(|it| line.contains(it)) == of;
        let lines = page.lines().filter(|line| !line.starts_with('#')).filter(is_of);
        lines.filter(|line| !of[2] || is_apart(line) == apart).count()
    };
    for (row, of, apart) in [
        ("worker", [true, false, false], false),
        ("backend that is not retired", [false, true, false], false),
        ("… and worker", [true, true, false], false),
        ("listener", [false, false, true], false),
        ("of the first 16 listeners, and all others together", [false, false, true], true),
    ] {
        let told = METRICS.lines().find_map(|line| line.strip_prefix(&format!("| {row} | ")));
        let told = told.expect(row).split([',', ' ']).next().expect("a number");
        assert_eq!(told.parse(), Ok(count(of, apart)), "{row}");
    }
}

/// A chapter for operators lists the families of a page, and no others.
#[track_caller]
pub(crate) fn lists(chapter: &str, page: &Page) {
    let chapter = METRICS.split("\n## ").find_map(|it| it.strip_prefix(chapter)).expect(chapter);
    let rows = chapter.lines().filter(|line| line.starts_with("| `ringgate_"));
    let names = rows.flat_map(|row| row.split(" | ").next().expect("a cell").split('`'));
    let names = names.filter(|it| it.starts_with("ringgate_"));
    let names = names.map(|it| it.split('{').next().expect("a name"));
    let types = page.body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let there: BTreeSet<_> = types.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), there);
}

const METRICS: &str = include_str!("../../docs/reference/metrics.md");
