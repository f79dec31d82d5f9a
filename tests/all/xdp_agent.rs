//! Players by the card, game processes on another host: a worker that serves frames carries its
//! lane's payloads itself, and does so again after an upgrade.

use crate::agent_two_hosts::{self, AGENT_ADDRESS, PORT};
use crate::control_rig::{Daemon, wait_for};
use crate::folder::IDENTITY;
use crate::xdp_rig::{BY_CARD, GATEWAY, Host, pair, text};

/// Payloads to the agent and from it, once the worker carries them.
fn carried(host: &Host) -> [u64; 2] {
    wait_for("the lane in the worker's hands", || {
        let status = host.daemon.ask("/status").json();
        let lane = &status["agents"][0]["lanes"][0];
        let payloads = [0, 1].map(|way| lane["payloads"][way].as_u64().unwrap_or_default());
        (lane["by_worker"] == true).then_some(payloads)
    })
}

#[test]
fn players_in_frames_are_served_by_an_agent() {
    let Some(pair) = pair() else { return };
    pair.connect(agent_two_hosts::GATEWAY, AGENT_ADDRESS, 1500);
    let mut text = text(&pair, BY_CARD);
    let rule = format!(
        "[[agent]]\nname = \"host-7\"\nbind = \"{}:{PORT}\"\nca = \"agents-ca.pem\"\n\
         certificate = \"gateway.pem\"\nkey = \"gateway.key\"\nbackends = [\"arena\"]\n",
        agent_two_hosts::GATEWAY
    );
    text.more.push_str(&rule);
    let daemon = Daemon::start_with(&text, |_, folder| {
        for (name, text, mode) in IDENTITY {
            folder.file(name, text, mode);
        }
    });
    let _far = agent_two_hosts::Host::start(&pair.gateway, false);
    let mut host = Host::beside(pair, daemon);
    for generation in 1..=2 {
        let before = carried(&host);
        let frames = host.frames();
        host.plays_netcode(GATEWAY);
        let after = wait_for("payloads on the lane", || {
            let after = carried(&host);
            (after[0] > before[0] && after[1] > before[1]).then_some(after)
        });
        assert!(after[0] >= after[1], "each is answered once: {after:?}");
        host.wait_for_frames("the player's frames", |now| now.received > frames.received);
        host.plays_plain(GATEWAY);
        if generation == 1 {
            let (code, said) = host.upgrade();
            assert_eq!(code, Some(0), "{said}\n{}", host.daemon.log());
        }
    }
    let page = host.daemon.ask("/metrics");
    assert_eq!(page.value("ringgate_conserved{worker=\"0\"}"), Some(1));
    let status = host.daemon.ask("/status").json();
    assert_eq!(status["agents"][0]["trunks"], 1, "it was handed over");
}
