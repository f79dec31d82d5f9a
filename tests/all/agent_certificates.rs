//! An authority is replaced by another while a player of a game process behind an agent plays:
//! whose certificate counts when, and what the player notices.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::fs;

use crate::agent::{Agent, NAMES, agent_file, certificates, echo, gateway};
use crate::control_rig::{Daemon, KEY_HEX, Player, wait_for};
use crate::folder::Folder;
use crate::own::own_port;

const TRUNKS: &str = "ringgate_agent_trunks_total{agent=\"host-7\"}";
const ENDED: &str = "ringgate_agent_ended_total{agent=\"host-7\",reason=\"certificate_unknown\"}";

/// Puts files of one folder into the place of those of another.
fn replace(folder: &Folder, by: &Folder, names: &[&str]) {
    for name in names {
        fs::copy(by.join(name), folder.join(name)).expect("both are folders");
    }
}

fn reload(gateway: &Daemon) {
    let page = gateway.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("agent host-7: certificates"), "{}", page.body);
}

#[test]
fn an_authority_is_replaced_while_a_player_plays() {
    let [folder, next] = [Folder::new(), Folder::new()];
    if !certificates(&folder, NAMES) || !certificates(&next, NAMES) {
        return;
    }
    let port = own_port();
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let gateway = gateway(&folder, port);
    let agent = Agent::start(&folder);
    let run_dir = folder.join("host");
    let _game = echo(&["--socket", &run_dir.display().to_string(), "--name", "arena"]);
    gateway.ready();
    let mut player = Player::connected(gateway.listener, 7, KEY_HEX);
    player.echo(b"under one authority");

    // Both authorities, and the agent's next certificate: the trunk that stands is none the worse.
    let both = [&folder, &next].map(|of| fs::read(of.join("ca.pem")).expect("it was made"));
    folder.file("ca.pem", both.concat(), 0o600);
    replace(&folder, &next, &["host-7.pem", "host-7.key", "gate-1.pem", "gate-1.key"]);
    reload(&gateway);
    player.echo(b"under both");
    assert_eq!(gateway.get("/metrics").value(TRUNKS), Some(1));

    // The first one goes, and with it the trunk that was begun by its word. The player waits for
    // the next, which the new certificate opens.
    replace(&folder, &next, &["ca.pem"]);
    reload(&gateway);
    wait_for("the end", || (gateway.get("/metrics").value(ENDED) == Some(1)).then_some(()));
    wait_for("the next", || (gateway.get("/metrics").value(TRUNKS) == Some(2)).then_some(()));
    player.echo(b"under the other");
    assert_eq!(agent.last_end().as_deref(), Some("certificate_unknown"), "it was told why");

    // One that nobody vouches for any more ends the trunk, and lets nobody in.
    let last = Folder::new();
    assert!(certificates(&last, NAMES));
    let refused = || {
        let page = gateway.get("/metrics").body;
        let name = "ringgate_agent_refused_total{";
        let why = "reason=\"certificate_unknown\"} ";
        let line = page.lines().find(|line| line.starts_with(name) && line.contains(why))?;
        line.rsplit(' ').next()?.parse::<u64>().ok().filter(|count| *count > 0)
    };
    assert!(refused().is_none());
    // The agent believes its gateway all the same.
    let agents_own = fs::read(folder.join("ca.pem")).expect("it was made");
    replace(&folder, &last, &["ca.pem"]);
    reload(&gateway);
    folder.file("ca.pem", agents_own, 0o600);
    wait_for("a refusal", refused);
    assert_eq!(gateway.get("/metrics").value(ENDED), Some(2));
    assert!(player.is_connected(), "the gateway keeps the player for a while");
}
