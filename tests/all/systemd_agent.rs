//! The agent's unit in tuning/ under systemd itself: it starts, is upgraded and told to reload with
//! a player on it, crashes, hangs, stops, and gives up what it does not need. The player's gateway
//! stays throughout.
//!
//! Skipped aloud where systemd cannot be booted, or without openssl.

use crate::agent::certificates;
use crate::control_rig::{KEY_HEX, wait_for};
use crate::folder::Folder;
use crate::systemd::{Machine, Spoken};

/// The gateway that it connects to, which is no unit: it is not what this is about.
const GATEWAY: &str = "[gateway]\nworkers = 2\npin = false\n\
    [[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:40000\"]\n\
    protocol_id = \"0x1122334455667788\"\nkeys = [{ file = \"netcode.key\" }]\n\
    backends = [\"arena\"]\nmax_sessions = 100\n\
    [[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 4\ngrace = \"5m\"\n\
    [[agent]]\nname = \"host-7\"\nbind = \"127.0.0.1:7200\"\nca = \"ca.pem\"\n\
    certificate = \"gate-1.pem\"\nkey = \"gate-1.key\"\nbackends = [\"arena\"]\n";

/// An agent's file with more in its first table.
fn file(agent: &str) -> String {
    format!(
        "[agent]\nname = \"host-7\"\ngateways = [\"127.0.0.1:7200\"]\nca = \"ca.pem\"\n\
         certificate = \"host-7.pem\"\nkey = {{ credential = \"agent.key\" }}\n\
         drain_timeout = \"100ms\"\n{agent}\
         [[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 4\nallow_uids = [0]\n"
    )
}

#[test]
fn the_agents_unit_is_what_systemd_needs() {
    let folder = Folder::new();
    if !certificates(&folder, &[("gate-1", "IP:127.0.0.1"), ("host-7", "DNS:host-7")]) {
        return;
    }
    let Some(machine) = Machine::boot("ringgate-agent", "/run/ringgate-agent") else { return };
    let copy = |from: &str, to: &str, mode| {
        let text = std::fs::read_to_string(folder.join(from)).expect("it was made");
        machine.write(&format!("/etc/ringgate/{to}"), mode, &text);
    };
    for name in ["ca.pem", "gate-1.pem", "host-7.pem"] {
        copy(name, name, 0o644);
    }
    copy("gate-1.key", "gate-1.key", 0o600);
    copy("host-7.key", "agent.key", 0o600);
    machine.write("/etc/ringgate/netcode.key", 0o600, &format!("{KEY_HEX}\n"));
    machine.write("/etc/ringgate/gate.toml", 0o644, GATEWAY);
    machine.write("/etc/ringgate/agent.toml", 0o644, &file(""));
    let units = "/etc/systemd/system/ringgate-agent.service";
    machine.write(units, 0o644, include_str!("../../tuning/ringgate-agent.service"));
    // One that hangs is not waited for as long as in earnest.
    machine.write(&format!("{units}.d/soon.conf"), 0o644, "[Service]\nWatchdogSec=5s\n");
    machine.run("systemctl daemon-reload");
    let run =
        "systemd-run -q --unit=gate /usr/local/bin/ringgate run --config /etc/ringgate/gate.toml";
    machine.run(run);
    machine.run("systemctl start ringgate-agent");
    assert_eq!(machine.unit("StatusText"), "serving");
    machine.is_harmless();
    let game = "systemd-run -q --unit=game /usr/local/bin/ringgate echo --name arena --socket /run/ringgate-agent";
    machine.run(game);
    has_a_game(&machine);
    let mut player = machine.player();
    player.ask("connect 1");
    player.ask("echo");
    it_goes_on_in_another_process(&machine, &mut player);
    it_is_told_to_reload(&machine, &mut player);
    it_comes_back_after_a_crash(&machine, &mut player);
    it_is_ended_when_it_hangs(&machine, &mut player);
    it_stops(&machine);
    it_gives_up_what_it_does_not_need(&machine, &mut player);
    drop(player);
}

/// Waits until the game behind the agent is at the gateway.
fn has_a_game(machine: &Machine) {
    wait_for("a game", || {
        let said = machine.program("ringgate status --json").output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&said).ok()?;
        (status["backends"][0]["workers_up"] == 2).then_some(())
    });
}

fn it_goes_on_in_another_process(machine: &Machine, player: &mut Spoken) {
    machine.upgrade();
    player.ask("echo");
    machine.drains_and_goes_on();
    machine.upgrade();
    player.ask("echo");
    assert_eq!(machine.unit("NRestarts"), "0");
}

fn it_is_told_to_reload(machine: &Machine, player: &mut Spoken) {
    machine.write("/etc/ringgate/agent.toml", 0o644, &file("max_gatewais = 2\n"));
    let refused = machine.program("systemctl reload ringgate-agent").output().expect("it runs");
    assert!(!refused.status.success(), "{}", machine.journal());
    machine.tells("did you mean max_gateways?");
    player.ask("echo");
    machine.write("/etc/ringgate/agent.toml", 0o644, &file("max_gateways = 2\n"));
    machine.run("systemctl reload ringgate-agent");
    assert_eq!(machine.unit("StatusText"), "serving", "{}", machine.journal());
    player.ask("echo");
}

fn it_comes_back_after_a_crash(machine: &Machine, player: &mut Spoken) {
    machine.run("systemctl kill -s KILL --kill-whom=main ringgate-agent");
    machine.restarted(1);
    // The gateway has kept the player for it.
    player.ask("echo");
}

fn it_is_ended_when_it_hangs(machine: &Machine, player: &mut Spoken) {
    // The process that systemd has not started itself is watched as well.
    machine.upgrade();
    player.ask("echo");
    machine.run("systemctl kill -s STOP --kill-whom=main ringgate-agent");
    machine.restarted(2);
    machine.tells("Watchdog timeout");
    player.ask("echo");
}

fn it_stops(machine: &Machine) {
    machine.run("systemctl stop ringgate-agent");
    let state = ["ActiveState", "Result"].map(|name| machine.unit(name));
    assert_eq!(state, ["inactive", "success"], "{}", machine.journal());
}

fn it_gives_up_what_it_does_not_need(machine: &Machine, player: &mut Spoken) {
    machine.write("/etc/ringgate/agent.toml", 0o644, &file("confine = true\n"));
    machine.run("systemctl start ringgate-agent");
    player.ask("echo");
    let upgrade = "ringgate upgrade --control /run/ringgate-agent";
    let refused = machine.program(upgrade).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{}", machine.journal());
    assert!(said.contains("a confined daemon cannot start programs"), "{said}");
    player.ask("echo");
    machine.run("systemctl stop ringgate-agent");
}
