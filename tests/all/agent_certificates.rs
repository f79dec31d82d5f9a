//! An authority is replaced by another while a player of a game process behind an agent plays:
//! whose certificate counts when, and what the player notices.
//!
//! Skipped aloud without openssl, which makes the certificates.

use std::fs;

use crate::agent::{
    Agent, NAMES, agent_file, certificates, certificates_of_another, echo, gateway,
};
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

/// A gateway and an agent with such certificates, until their logs say this.
fn they_say(names: [&str; 2], is_of_another_authority: bool, said: [&str; 2]) {
    let (folder, other) = (Folder::new(), Folder::new());
    let [gateways, agents] = names;
    let names = [("gate-1", gateways), ("host-7", agents)];
    if !certificates(&folder, &names) {
        return;
    }
    let port = own_port();
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let gateway = gateway(&folder, port);
    if is_of_another_authority {
        assert!(certificates_of_another(&other, NAMES));
        replace(&folder, &other, &["ca.pem"]);
    }
    let _agent = Agent::start(&folder);
    let [at_gateway, at_agent] = said;
    let agents_log = || fs::read_to_string(folder.join("agent.log")).expect("a log");
    wait_for(at_agent, || agents_log().contains(at_agent).then_some(()));
    wait_for(at_gateway, || gateway.log().contains(at_gateway).then_some(()));
}

#[test]
fn a_certificate_for_another_name_or_of_another_authority_is_told_with_both() {
    let ip = crate::own::own_ip();
    they_say(
        ["IP:127.0.0.1", "DNS:host-9"],
        false,
        [
            "foreign_name: the other side's certificate is for host-9, and not for host-7",
            "the certificate is not for this name",
        ],
    );
    let foreign = format!("the other side's certificate is for gate-2, and not for {ip}");
    they_say(["DNS:gate-2", "DNS:host-7"], false, ["was refused: refused_by_peer: ", &foreign]);
    they_say(
        ["IP:127.0.0.1", "DNS:host-7"],
        true,
        [
            "refused_by_peer: the other side refuses the connection (",
            "the other side's certificate is signed by no authority in `ca`",
        ],
    );
}

#[test]
fn an_authority_is_replaced_while_a_player_plays() {
    let [folder, next] = [Folder::new(), Folder::new()];
    if !certificates(&folder, NAMES) || !certificates_of_another(&next, NAMES) {
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
    assert!(certificates_of_another(&last, NAMES));
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
