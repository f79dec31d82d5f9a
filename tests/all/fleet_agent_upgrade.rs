//! An agent in a fleet is replaced while it runs: in etcd nothing goes and nothing comes, whatever
//! is away at that moment, game processes that have registered themselves keep their connection,
//! and where the other process does not go on, this one does.
//!
//! Skipped aloud where `etcd` or `openssl` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use ringgate_link::announce::{Announcement, Standing, State};

use crate::agent::{Agent, Heir, agent_upgrade};
use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_agent::{Rig, Sdk, server, start_server};
use crate::fleet_announce::{Process, has, is_gone, takes_players, value};
use crate::fleet_rig::{Entry, backend_is_up, key};
use crate::hold::Hold;
use crate::own::own_port;
use crate::upgrade_rig::is_root;

const OWN: &str = "/f/truth/agent/host-7";
const FILED: &str = "/f/truth/backend/arena-1";
const COME: &str = "/f/truth/backend/arena-9";

/// The one on file and the one that comes.
const NAMES: [&str; 2] = ["arena-1", "arena-9"];

/// A process that goes on, once it says so.
fn upgrade(rig: &Rig) -> Heir {
    let said = agent_upgrade(&rig.folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    Heir(pid.expect("it says which process goes on"))
}

/// A process of root's that has come by itself, once it has the agent.
fn take_over(rig: &Rig, agent: &Agent) -> Ending {
    let config = rig.folder.join("agent.toml");
    let log = std::fs::File::create(rig.folder.join("successor.log")).expect("a log file");
    let mut command = ringgate(["agent".as_ref(), "--config".as_ref(), config.as_os_str()]);
    let command = command.arg("--take-over").stdout(Stdio::null()).stderr(log);
    let come = Ending(command.spawn().expect("the binary was built"));
    wait_for("the successor", || {
        let page = agent.get("/status").json();
        (page["pid"].as_u64() == Some(come.0.id().into())).then_some(())
    });
    come
}

/// How the agent's keys stand.
fn entries(rig: &Rig) -> BTreeMap<&'static str, Entry> {
    [OWN, FILED, COME]
        .into_iter()
        .map(|key| (key, rig.fleet.entry_at(key).expect("it stands there")))
        .collect()
}

/// Nothing has gone since that revision, and no backend was said to be anything else than it is.
fn nothing_was_otherwise(rig: &Rig, since: i64, states: &[(&str, &str)]) {
    for (key, put) in rig.fleet.history(since) {
        assert!(put.is_some(), "{key} was deleted");
        let Some((_, state)) = states.iter().find(|(name, _)| *name == key) else { continue };
        let value: serde_json::Value =
            serde_json::from_str(&put.unwrap_or_default()).expect("JSON");
        assert_eq!(value["state"], *state, "{value}");
        assert_eq!(value["gateways"], serde_json::json!(["gate-1"]), "{value}");
        assert_eq!(value["used"], 1, "{value}");
    }
}

fn arena() -> Announcement {
    Announcement::new("arena", 4).label("map", "dust")
}

/// The second player is sent to the one of the two backends that has none yet.
fn two_players(gateway: &Daemon) -> [Player; 2] {
    [1, 2].map(|id| {
        let mut player = Player::connected(gateway.listener, id, &key(1));
        player.echo(b"hello");
        player
    })
}

/// A game process that has registered itself beside the server that the agent has on file, and a
/// player of each, which the fleet has heard of.
fn one_player_each(rig: &Rig, gateway: &Daemon) -> (Process, [Player; 2]) {
    let process = Process::start_at(rig.folder.join("host"), "arena-9", arena());
    process.stands(Standing::Registered);
    for name in NAMES {
        rig.is_led_to_by(name, &["gate-1"]);
        backend_is_up(gateway, name);
    }
    let players = two_players(gateway);
    each_has_a_player(rig);
    (process, players)
}

fn each_has_a_player(rig: &Rig) {
    for name in NAMES {
        has(&rig.fleet, name, "used", 1);
    }
}

fn all_echo(players: &mut [Player], payload: &[u8]) {
    for player in players {
        player.echo(payload);
    }
}

#[test]
fn an_agent_of_a_fleet_is_replaced_and_nobody_there_sees_it() {
    let Some(rig) = Rig::unconfined() else { return };
    let (port, sdk) = (own_port(), Sdk::start());
    sdk.set("Ready");
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let more = format!("state = {{ agones = \"http://{}\" }}\n", sdk.address);
    let agent = rig.agent(&server(port, &more));
    let process = Process::start_at(rig.folder.join("host"), "arena-9", arena());
    process.stands(Standing::Registered);
    for name in NAMES {
        rig.is_led_to_by(name, &["gate-1"]);
        backend_is_up(&gateway, name);
    }
    takes_players(&gateway);
    let mut players = two_players(&gateway);
    each_has_a_player(&rig);
    sdk.set("Allocated");
    has(&rig.fleet, "arena-1", "state", "allocated");
    let (before, since) = (entries(&rig), rig.fleet.revision());
    let instance = || value(&rig.fleet, "arena-9").map(|it| it["instance"].clone());
    let first = instance();

    // By an operator's word, and by a signal.
    let heir = upgrade(&rig);
    all_echo(&mut players, b"over the same trunk");
    agent.shows("ringgate_fleet_registered", 1);
    agent.shows("ringgate_fleet_announced", 1);
    ringgate_os::process::signal(heir.0, libc::SIGUSR2).expect("it runs");
    let _third = wait_for("the third process", || {
        let pid = agent.get("/status").json()["pid"].as_u64()? as u32;
        (pid != heir.0 && pid != agent.id()).then(|| Heir(pid))
    });
    all_echo(&mut players, b"over the same trunk still");
    agent.shows("ringgate_fleet_registered", 1);
    assert_eq!(process.heard(), [], "it hears nothing of all that");
    assert_eq!((entries(&rig), instance()), (before, first));
    nothing_was_otherwise(&rig, since, &[(FILED, "allocated"), (COME, "ready")]);

    // The connection lives: what is said there is told, and its end is the registration's.
    process.announce(arena().state(State::Draining));
    has(&rig.fleet, "arena-9", "state", "draining");
    sdk.set("Shutdown");
    has(&rig.fleet, "arena-1", "state", "draining");
    drop(process);
    is_gone(&rig.fleet, "arena-9");
    agent.shows("ringgate_fleet_announced", 0);
    let another = Process::start_at(rig.folder.join("host"), "arena-9", arena());
    another.stands(Standing::Registered);
}

#[test]
fn an_agent_is_replaced_while_etcd_is_away() {
    // A confined one starts no program, so root takes it over.
    let rig = if is_root() { Rig::new() } else { Rig::unconfined() };
    let Some(mut rig) = rig else { return };
    let port = own_port();
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let agent = rig.agent(&server(port, ""));
    let (process, mut players) = one_player_each(&rig, &gateway);
    let (before, since) = (entries(&rig), rig.fleet.revision());
    rig.fleet.kill();
    agent.shows("ringgate_fleet_current", 0);
    let _come = is_root().then(|| take_over(&rig, &agent));
    let _heir = (!is_root()).then(|| upgrade(&rig));
    all_echo(&mut players, b"without etcd");
    assert_eq!(agent.get("/readyz").status, 200);
    process.announce(arena().label("mode", "duel"));
    rig.fleet.revive();
    agent.shows("ringgate_fleet_registered", 1);
    wait_for("what was said meanwhile", || {
        (value(&rig.fleet, "arena-9")?["labels"]["mode"] == "duel").then_some(())
    });
    assert_eq!(entries(&rig), before);
    nothing_was_otherwise(&rig, since, &[(FILED, "ready"), (COME, "ready")]);
    all_echo(&mut players, b"to the end");
    drop(process);
    is_gone(&rig.fleet, "arena-9");
}

#[test]
fn an_agent_that_is_not_replaced_goes_on_with_its_lease() {
    let Some(rig) = Rig::unconfined() else { return };
    let port = own_port();
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let agent = rig.agent(&server(port, ""));
    let (process, mut players) = one_player_each(&rig, &gateway);
    let before = entries(&rig);
    let file = std::fs::read_to_string(rig.folder.join("agent.toml")).expect("our own");
    let refused = |text: String, why: &str| {
        rig.folder.file("agent.toml", text, 0o600);
        let said = agent_upgrade(&rig.folder);
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(said.stderr.contains(why), "{}", said.stderr);
    };
    let changed = "[fleet] or fleet.prefix has changed; that needs a restart";
    refused(file.replace("prefix = \"/f\"", "prefix = \"/other\""), changed);
    refused(file.replace("[agent]", "[agent]\nspeed = 9"), "goes on as it is");
    rig.folder.file("agent.toml", &file, 0o600);
    process.announce(arena().state(State::Allocated));
    has(&rig.fleet, "arena-9", "state", "allocated");
    all_echo(&mut players, b"nothing has happened");
    agent.shows("ringgate_fleet_leases_lost_total", 0);
    assert_eq!(entries(&rig), before);
    assert_eq!(process.heard(), []);
}

/// Where a successor dies, by the names of its steps.
const STEPS: [&str; 7] = ["Hello", "Prepare", "SayPrepared", "Read", "SayRead", "Import", "Take"];

#[test]
fn a_successor_that_dies_at_any_step_leaves_all_as_it_was() {
    let Some(rig) = Rig::unconfined() else { return };
    let port = own_port();
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let program = rig.folder.join("ringgate");
    rig.file_of_agent("2m", &server(port, ""));
    // What the agent has inherited, its successors have too.
    let mut hold = Hold::new();
    // What lies there by then is the next release.
    let agent = Agent::start_with(&rig.folder, |command| {
        command.arg0(&program);
    });
    let (process, mut players) = one_player_each(&rig, &gateway);
    let (before, since) = (entries(&rig), rig.fleet.revision());
    for step in STEPS {
        let (own, told) =
            (env!("CARGO_BIN_EXE_ringgate"), hold.told(&format!("agent-takes {step}")));
        let script = format!("#!/bin/sh\nRINGGATE_HOLD='{told}' exec {own} \"$@\"\n");
        // At once, as a package does it.
        let next = rig.folder.file("next", script, 0o700);
        std::fs::rename(next, &program).expect("our own folder");
        let said = std::thread::scope(|scope| {
            let victim = scope.spawn(|| hold.kill());
            let said = agent_upgrade(&rig.folder);
            assert_ne!(victim.join().expect("it was killed"), agent.id(), "{step}");
            said
        });
        assert_eq!(said.code, Some(1), "{step}: {}", said.stderr);
        all_echo(&mut players, b"nothing has happened");
        let mode = || arena().label("mode", step);
        process.announce(mode());
        wait_for("what is said is heard", || {
            (value(&rig.fleet, "arena-9")?["labels"]["mode"] == step).then_some(())
        });
    }
    assert_eq!(process.heard(), [], "nor has the process heard of any of it");
    assert_eq!(entries(&rig), before);
    nothing_was_otherwise(&rig, since, &[(FILED, "ready"), (COME, "ready")]);

    // And then one lives.
    let _ = std::fs::remove_file(&program);
    symlink(env!("CARGO_BIN_EXE_ringgate"), &program).expect("our own folder");
    let _heir = upgrade(&rig);
    all_echo(&mut players, b"over the same trunk");
    agent.shows("ringgate_fleet_registered", 1);
    assert_eq!(entries(&rig), before);
}
