//! An agent, or its gateway, that is killed at any step of a trunk's start: who comes next has the
//! game process and its players.
//!
//! Skipped aloud without openssl, which makes the certificates.

use crate::agent::{Agent, NAMES, Program, agent_file, certificates, echo, gateway, gateway_text};
use crate::control_rig::{Daemon, KEY_HEX, Player};
use crate::folder::Folder;
use crate::hold::Hold;
use crate::own::own_port;

/// A folder with the files of an agent, and the gateway's port for it.
fn prepared() -> Option<(Folder, u16)> {
    let (folder, port) = (Folder::new(), own_port());
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    certificates(&folder, NAMES).then_some((folder, port))
}

fn game(folder: &Folder) -> Program {
    echo(&["--socket", &folder.join("host").display().to_string(), "--name", "arena"])
}

/// A player comes in by the gateway, which has seen so many trunks.
fn plays(gateway: &Daemon, trunks: u64, step: &str) {
    gateway.ready();
    Player::connected(gateway.listener, 7, KEY_HEX).echo(b"after");
    let seen = gateway.ask("/status").json()["agents"][0]["trunks"].clone();
    assert_eq!(seen, trunks, "killed at {step}: {}", gateway.log());
}

#[test]
fn a_gateway_is_killed_at_any_step_of_a_trunks_start_and_the_next_one_has_the_agent() {
    for step in ["Enter", "Welcome", "Begin", "Lend"] {
        let Some((folder, port)) = prepared() else { return };
        let text = gateway_text(&folder, port, |_| ());
        let mut hold = None;
        let first = Daemon::start_with(&text, |command, _| {
            hold = Some(Hold::at(command, &format!("gateway-trunk {step}")));
        });
        let (_agent, _game) = (Agent::start(&folder), game(&folder));
        assert_eq!(hold.expect("it is held").kill(), first.id());
        drop(first);
        plays(&Daemon::start(&text), 1, step);
    }
}

#[test]
fn an_agent_is_killed_at_any_step_of_a_trunks_start_and_the_gateway_has_the_next_one() {
    for (step, trunks) in [("Connect", 1), ("Begin", 2), ("Rise", 2)] {
        let Some((folder, port)) = prepared() else { return };
        let (gateway, mut hold) = (gateway(&folder, port), None);
        let first = Agent::start_with(&folder, |command| {
            hold = Some(Hold::at(command, &format!("agent-trunk {step}")));
        });
        let _game = game(&folder);
        assert_eq!(hold.expect("it is held").kill(), first.id());
        drop(first);
        let _next = Agent::start(&folder);
        plays(&gateway, trunks, step);
    }
}
