//! An agent on a screen: `ringgate status` at an agent's control socket.

use serde::Deserialize;

use ringgate_os::utc;
use ringgate_report::text::{Append as _, Table, count};

/// What of an agent's page is shown.
#[derive(Debug, Deserialize)]
pub(super) struct AgentPage {
    agent: String,
    version: String,
    state: String,
    uptime_s: u64,
    players: u64,
    gateways: Vec<Gateway>,
    backends: Vec<Backend>,
    drops: std::collections::BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Gateway {
    #[serde(rename = "gateway")]
    name: String,
    state: String,
    connected: u64,
    last_end: Option<Ended>,
    lanes: Vec<Lane>,
}

#[derive(Debug, Deserialize)]
struct Ended {
    reason: String,
    detail: String,
}

#[derive(Debug, Deserialize)]
struct Lane {
    #[serde(rename = "lane")]
    number: usize,
    worker: usize,
    is_up: bool,
    path_bytes: u64,
    round_trip_us: u64,
    to_gateway: Way,
    from_gateway: Way,
}

#[derive(Debug, Deserialize)]
struct Way {
    payloads: u64,
    lost: u64,
}

#[derive(Debug, Deserialize)]
struct Backend {
    name: String,
    is_there: bool,
    links: u64,
    players: u64,
}

impl AgentPage {
    /// Reads a page, if it is an agent's.
    pub(super) fn read(page: &str) -> Option<Self> {
        serde_json::from_str(page).ok()
    }

    /// The agent on a screen.
    pub(super) fn render(&self) -> String {
        let Self { agent, version, state, uptime_s, players, .. } = self;
        let up = utc::span(*uptime_s);
        let mut text =
            format!("ringgate {version}, agent {agent}, {state}, {players} players, up {up}\n");
        write!(text, "\n{}\n{}", self.gateways(), self.backends());
        for gateway in self.gateways.iter().filter(|it| it.state != "up") {
            if let Some(Ended { reason, detail }) = &gateway.last_end {
                let name = &gateway.name;
                writeln!(text, "\ngateway {name} was left: {detail} ({reason})");
            }
        }
        for (reason, number) in self.drops.iter().filter(|(_, number)| **number > 0) {
            writeln!(text, "\ndropped, {reason}: {}", count(*number));
        }
        text
    }

    fn gateways(&self) -> Table {
        let mut table = Table::new(
            "gateway, state, lane, worker:, path:, round trip:, up:, lost up:, down:, lost down:, connected:",
        );
        for gateway in &self.gateways {
            let (name, connected) = (&gateway.name, count(gateway.connected));
            if gateway.lanes.is_empty() {
                let head = [name.clone(), gateway.state.clone()];
                let rest = (0..8).map(|_| String::new()).chain([connected.clone()]);
                table.row(head.into_iter().chain(rest));
            }
            for lane in &gateway.lanes {
                table.row([
                    name.clone(),
                    if lane.is_up { "up" } else { "DOWN" }.to_owned(),
                    lane.number.to_string(),
                    lane.worker.to_string(),
                    lane.path_bytes.to_string(),
                    format!("{} µs", lane.round_trip_us),
                    count(lane.to_gateway.payloads),
                    count(lane.to_gateway.lost),
                    count(lane.from_gateway.payloads),
                    count(lane.from_gateway.lost),
                    connected.clone(),
                ]);
            }
        }
        table
    }

    fn backends(&self) -> Table {
        let mut table = Table::new("backend, state, links:, players:");
        for backend in &self.backends {
            let state = if backend.is_there { "there" } else { "GONE" };
            table.row([
                backend.name.clone(),
                state.to_owned(),
                count(backend.links),
                count(backend.players),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_shown_with_its_lanes_and_what_is_wrong() {
        let page = r#"{"agent":"host-7","version":"0.1.0","state":"serving","uptime_s":70,"players":3,
            "gateways":[{"gateway":"a:1","state":"up","connected":1,"last_end":null,"lanes":[{"lane":0,
            "worker":1,"is_up":true,"path_bytes":1472,"round_trip_us":250,
            "to_gateway":{"payloads":2000,"lost":1},"from_gateway":{"payloads":7,"lost":0}}]},
            {"gateway":"b:2","state":"waiting","connected":0,"lanes":[],
            "last_end":{"reason":"unknown_agent","detail":"no"}}],
            "backends":[{"name":"arena-1","is_there":false,"links":0,"players":0}],
            "drops":{"lane_down":5,"link_full":0}}"#;
        let shown = AgentPage::read(page).expect("an agent's").render();
        for part in [
            "agent host-7, serving, 3 players",
            "250 µs",
            "GONE",
            "gateway b:2 was left: no (unknown_agent)",
            "dropped, lane_down: 5",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        assert!(!shown.contains("link_full"), "{shown}");
        assert!(AgentPage::read("{\"schema\":1}").is_none(), "a gateway's");
    }
}
