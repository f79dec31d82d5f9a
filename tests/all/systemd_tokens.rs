//! The token service's unit in tuning/ under systemd itself: it starts with secrets that its user
//! could not read, answers, comes back after a crash, and stops.
//!
//! Skipped aloud where systemd cannot be booted, or without etcd.

use std::process::Command;

use crate::control_rig::{KEY_HEX, wait_for};
use crate::systemd::Machine;

/// Whether etcd is installed; a failure where it has to be.
fn has_etcd() -> bool {
    let is_there = Command::new("etcd").arg("--version").output().is_ok();
    let is_required = std::env::var_os("REQUIRE_ETCD").is_some_and(|it| it == "1");
    assert!(is_there || !is_required, "REQUIRE_ETCD=1, but there is no etcd");
    if !is_there {
        eprintln!("SKIPPED: there is no etcd");
    }
    is_there
}

#[test]
fn the_token_services_unit_is_what_systemd_needs() {
    if !has_etcd() {
        return;
    }
    let Some(machine) = Machine::boot("ringgate-tokens", "") else { return };
    machine.run("systemd-run -q --unit=truth etcd --data-dir /tmp/etcd");
    machine.write("/etc/ringgate/fleet.key", 0o600, &format!("{KEY_HEX}\n"));
    // The shipped example, and the page's commands up to those for a certificate.
    let file = include_str!("../../tuning/ringgate.tokens.example.toml");
    machine.write("/etc/ringgate/tokens.toml", 0o644, file);
    let page = include_str!("../../docs/FLEET.md");
    let (_, steps) = page.split_once("could not read itself:\n").expect("the steps");
    let steps = steps.lines().filter_map(|line| line.strip_prefix("    "));
    for step in steps.take_while(|line| !line.contains("tokens.key.pem")) {
        machine.run(step);
    }
    let unit = include_str!("../../tuning/ringgate-tokens.service");
    machine.write("/etc/systemd/system/ringgate-tokens.service", 0o644, unit);
    machine.run("systemctl daemon-reload");
    machine.run("systemctl start ringgate-tokens");
    assert_eq!(machine.unit("StatusText"), "serving");
    machine.is_harmless();
    answers(&machine);

    machine.run("systemctl kill -s KILL ringgate-tokens");
    machine.restarted(1);
    answers(&machine);

    machine.run("systemctl stop ringgate-tokens");
    let state = ["ActiveState", "Result"].map(|name| machine.unit(name));
    assert_eq!(state, ["inactive", "success"], "{}", machine.journal());
    machine.tells("\"stop\"");
}

/// Whether it knows its caller, and that there is nobody to lead a player to.
fn answers(machine: &Machine) {
    let secret = machine.run("cat /etc/ringgate/tokens.secrets/matchmaker.secret");
    let said = wait_for("an answer", || {
        let mut asks = machine.program("curl -s http://127.0.0.1:7400/v1/tokens");
        asks.args(["-H", &format!("Authorization: Bearer {}", secret.trim())]);
        asks.args(["-d", "{\"client_id\": 7, \"group\": \"arena\"}"]);
        let said = asks.output().expect("nsenter was there").stdout;
        let said: serde_json::Value = serde_json::from_slice(&said).ok()?;
        // Until it knows the fleet, which has just begun.
        (said["error"] != "not_known_yet").then_some(said)
    });
    assert_eq!(said["error"], "no_backend", "{said}");
}
