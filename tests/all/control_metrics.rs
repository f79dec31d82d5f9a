//! `/metrics` as Prometheus sees it, and what it says of each listener and each backend.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};

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
    let backend = |name: &str| format!("ringgate_backend_{name}{{backend=\"arena\"}}");
    let metrics = wait_for("all of it in the counters", || {
        let metrics = daemon.get("/metrics");
        let has = |series: String| metrics.value(&series) > Some(0);
        let is_there = has(listener("drops_total")) && has(backend("payloads_down_total"));
        is_there.then_some(metrics)
    });
    let value = |series: String| metrics.value(&series).expect("a whole number");
    assert_eq!(value(listener("drops_total")), 1);
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

#[test]
fn the_number_of_series_is_bounded_by_the_config() {
    let count = |workers: u32| {
        let mut text = Text::new();
        text.gateway = format!("workers = {workers}\npin = false\n");
        let daemon = Daemon::start(&text);
        let metrics = daemon.get("/metrics");
        metrics.body.lines().filter(|line| !line.starts_with('#')).count()
    };
    let (one, two) = (count(1), count(2));
    assert!(two - one < 250, "a worker has {} series", two - one);
}
