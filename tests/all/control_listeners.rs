//! Listeners that come and go while players play on others.

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;

use ringgate_core::netcode::State;
use ringgate_os::process;
use serde_json::{Value, json};

use crate::control_rig::{Daemon, Game, KEY_HEX, PROTOCOL_ID, Player, Text, wait_for};
use crate::own::{own_address, take_again};

/// A daemon's config with room for more listeners.
fn text(gateway: &str) -> Text {
    let mut text = Text::new();
    write!(text.gateway, "reserve_sessions = 1000\n{gateway}").expect("strings grow");
    let uid = process::effective_uid();
    text.backends = text.backends.replace("slots = 4", &format!("slots = 9\nallow_uids = [{uid}]"));
    text
}

/// The same with another listener.
pub(crate) fn with(text: &Text, name: &str, bind: &str) -> Text {
    let more = format!(
        "{}\n[[listener]]\nname = \"{name}\"\nprotocol = \"netcode\"\nbind = [\"{bind}\"]\n\
         protocol_id = \"{PROTOCOL_ID:#x}\"\nmax_sessions = 10\n{}",
        text.more, text.listener
    );
    Text { more, ..text.clone() }
}

pub(crate) fn reload(daemon: &Daemon, text: &Text) -> Value {
    daemon.rewrite(text);
    let page = daemon.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
    page.json()["changes"].clone()
}

fn refusals(daemon: &Daemon, text: &Text) -> Vec<String> {
    daemon.rewrite(text);
    let page = daemon.post("/reload");
    assert_eq!(page.status, 422, "{}", page.body);
    serde_json::from_value(page.json()["mistakes"].clone()).expect("a list of sentences")
}

/// The listeners of a name, as the daemon shows them.
pub(crate) fn shown(daemon: &Daemon, name: &str) -> Vec<Value> {
    let listeners = daemon.status()["listeners"].as_array().expect("a list").clone();
    listeners.into_iter().filter(|listener| listener["name"] == name).collect()
}

pub(crate) fn address_of(daemon: &Daemon, name: &str) -> SocketAddr {
    let listeners = shown(daemon, name);
    let serving = listeners.iter().find(|it| it["state"] == "serving").expect("it serves");
    serving["addresses"][0].as_str().and_then(|it| it.parse().ok()).expect("an address")
}

/// How many a daemon has open.
pub(crate) fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).expect("it runs").count()
}

/// Memory that it has touched.
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a known line");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Players on one listener play on while another one comes and goes.
fn come_and_go(gateway: &str) {
    let mut text = text(gateway);
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut resident = Player::connected(daemon.listener, 1, KEY_HEX);
    resident.echo(b"at home");
    let (mut at_first, mut played) = ((0, 0), 0);
    for round in 2..=21 {
        // Another test may not be given it as soon as it is free.
        let address = own_address();
        let more = with(&text, "us", &address.to_string());
        assert_eq!(reload(&daemon, &more), json!(["listener us added"]));
        let mut guest = Player::connected(address, round, KEY_HEX);
        guest.echo(b"a guest");
        assert_eq!(reload(&daemon, &text), json!(["listener us removed; it drains"]));
        guest.echo(b"still here");
        resident.echo(b"at home");
        assert_eq!(Player::new(address, 100 + round, KEY_HEX).ended(), State::Denied);
        guest.leave();
        wait_for("the listener's end", || shown(&daemon, "us").is_empty().then_some(()));
        // Its last socket closes a moment after it has gone from the page.
        wait_for("its address", || UdpSocket::bind(address).ok());
        if round == 3 {
            at_first = (descriptors(&daemon), resident_kib(&daemon));
        }
        played += 1;
    }
    wait_for("its descriptors", || (descriptors(&daemon) <= at_first.0).then_some(()));
    let grown_kib = resident_kib(&daemon).saturating_sub(at_first.1);
    assert!(grown_kib < 8 << 10, "{grown_kib} KiB more than after two rounds");
    assert_eq!(played, 20);
    resident.echo(b"at home");
    // Workers say what they have counted a moment later.
    let status = wait_for("the books", || {
        let status = daemon.status();
        (status["sessions_closed"]["by_player"] == 20).then_some(status)
    });
    assert_eq!(status["conservation"]["holds"], true, "{status}");
    assert_eq!(status["totals"]["sessions"], 1);
    let log = daemon.log();
    for event in ["listener_added", "listener_drain", "listener_removed"] {
        assert_eq!(log.matches(event).count(), 20, "{event}: {log}");
    }
}

#[test]
fn a_listener_comes_and_goes_twenty_times_on_mmsg() {
    come_and_go("io = \"mmsg\"\nlog = \"json\"\n");
}

#[test]
fn a_listener_comes_and_goes_twenty_times_at_a_confined_daemon_on_uring() {
    if crate::io_rig::Rig::uring_works() {
        come_and_go("io = \"uring\"\nlog = \"json\"\nconfine = true\n");
    }
}

#[test]
fn a_listener_that_drains_ends_its_sessions_when_its_time_is_over_and_may_come_back_before() {
    let text = text("");
    let more = with(&text, "us", "127.0.0.1:0");
    let daemon = Daemon::start(&more);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let address = address_of(&daemon, "us");
    let mut guest = Player::connected(address, 1, KEY_HEX);
    let series = "ringgate_listener_sessions{listener=\"us\"}";
    assert_eq!(daemon.get("/metrics").value(series), Some(1));
    reload(&daemon, &text);
    assert_eq!(shown(&daemon, "us")[0]["state"], "draining");
    assert!(shown(&daemon, "us")[0]["drain_left_ms"].as_u64() > Some(3_000_000));
    let metrics = daemon.get("/metrics");
    assert_eq!(metrics.value(series), None);
    assert_eq!(metrics.value("ringgate_removed_listener_sessions"), Some(1));
    assert_eq!(daemon.get("/readyz").status, 200, "what drains is not meant to serve");

    assert_eq!(reload(&daemon, &more), json!(["listener us is back"]));
    guest.echo(b"nothing happened");
    Player::connected(address, 2, KEY_HEX).echo(b"a newcomer");

    let mut short = text;
    short.gateway = short.gateway.replace("\"1h\"", "\"100ms\"");
    let changes = reload(&daemon, &short);
    assert_eq!(changes, json!(["gateway.drain_timeout", "listener us removed; it drains"]));
    assert_eq!(guest.ended(), State::Disconnected);
    wait_for("the listener's end", || shown(&daemon, "us").is_empty().then_some(()));
    assert!(daemon.log().contains("listener us has gone"), "{}", daemon.log());
    assert_eq!(daemon.status()["sessions_closed"]["by_operator"], 2);
    assert_eq!(daemon.status()["conservation"]["holds"], true);
}

#[test]
fn a_reload_that_cannot_open_everything_opens_nothing() {
    let text = text("");
    let daemon = Daemon::start(&text);
    let before = descriptors(&daemon);
    let holder = UdpSocket::bind(own_address()).expect("a port");
    let taken = holder.local_addr().expect("bound").to_string();
    let both = with(&with(&text, "us", "127.0.0.1:0"), "asia", &taken);
    let why = refusals(&daemon, &both);
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].starts_with(&format!("listener asia: cannot bind UDP {taken}")), "{why:?}");
    // The request's own connection closes a moment after its answer.
    wait_for("its descriptors", || (descriptors(&daemon) <= before).then_some(()));
    assert!(shown(&daemon, "us").is_empty());
    let own = with(&text, "us", &daemon.listener.to_string());
    let why = refusals(&daemon, &own);
    assert!(why[0].contains("belongs to listener eu"), "{why:?}");
    let taken_by = holder.local_addr().expect("bound");
    drop(holder);
    drop(take_again(|| UdpSocket::bind(taken_by)));

    // A dry run says the same and does nothing.
    daemon.rewrite(&both);
    let page = daemon.post("/reload?dry_run=1");
    assert_eq!((page.status, &page.json()["reloaded"]), (200, &json!(false)), "{}", page.body);
    assert_eq!(page.json()["changes"], json!(["listener us added", "listener asia added"]));
    assert!(shown(&daemon, "us").is_empty());
    assert_eq!(daemon.status()["config"]["reloads"], 0);
    reload(&daemon, &both);
    assert_eq!(address_of(&daemon, "asia").to_string(), taken);
}

#[test]
fn a_right_that_was_given_up_is_named_and_nothing_is_changed() {
    if process::effective_uid() != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let text = text("user = \"nobody\"\n");
    let daemon = Daemon::start_with(&text, |_, folder| {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("our folder");
        let nobody =
            ringgate_process::confine::User::named("nobody").expect("every system has one");
        let file = folder.path().join("gate.toml");
        std::os::unix::fs::chown(file, Some(nobody.uid), None).expect("we are root");
    });
    let why = refusals(&daemon, &with(&text, "low", "127.0.0.1:7"));
    assert!(why[0].contains("when it became user nobody"), "{why:?}");
    let changes = reload(&daemon, &with(&text, "high", "127.0.0.1:0"));
    assert_eq!(changes, json!(["listener high added"]));
}
