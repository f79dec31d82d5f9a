//! A gateway and an agent on two hosts (network namespaces), with a network between them that is
//! narrow, breaks, and comes back: what players notice.
//!
//! Skipped aloud without root, and without the instructions that TLS asks for.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use ringgate_loadgen::measure::tally::Stage;
use ringgate_loadgen::report::record::Record;

use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, KEY_HEX, PROTOCOL_ID, Player, Text, wait_for};
use crate::folder::{Folder, IDENTITY};
use crate::netns::{self, Pair};
use crate::oncall::row;
use crate::upgrade_rig::Line;

/// Where the gateway is: what its certificate says.
pub(crate) const GATEWAY: &str = "192.0.2.1";
pub(crate) const PORT: u16 = 7400;

/// Where the agent is.
pub(crate) const AGENT_ADDRESS: &str = "192.0.2.2";

/// Of the load generator.
const PLAYERS: u64 = 100;

/// A round trip over a wire between two processes' memory.
const HOPELESS_NS: u64 = 50_000_000;

const AGENT_IDENTITY: [(&str, &str, u32); 3] = [
    (
        "agents-ca.pem",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/authority.pem"),
        0o644,
    ),
    ("agent.pem", include_str!("../../crates/trunk/src/protocol/tls/fixtures/agent.pem"), 0o644),
    ("agent.key", include_str!("../../crates/trunk/src/protocol/tls/fixtures/agent.key"), 0o600),
];

/// The same agent, after its certificate was renewed.
const NEXT_IDENTITY: [(&str, &str, u32); 2] = [
    (
        "agent.pem",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/agent-next.pem"),
        0o644,
    ),
    (
        "agent.key",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/agent-next.key"),
        0o600,
    ),
];

/// A test of this file on two hosts.
fn on_two_hosts(test: &str, mtu: u32, play: fn(&str)) {
    on_two_hosts_as(&format!("agent_two_hosts::{test}"), mtu, play);
}

/// Runs the test of this name again in the gateway's namespace, with an MTU between the two hosts.
pub(crate) fn on_two_hosts_as(name: &str, mtu: u32, play: fn(&str)) {
    if let Some((_, namespace)) = netns::role() {
        return play(&namespace);
    }
    let Some(pair) = Pair::new() else { return };
    pair.connect(GATEWAY, AGENT_ADDRESS, mtu);
    let said = pair.role(&pair.gateway, name, "gateway").output().expect("runs");
    assert!(said.status.success(), "{said:#?}");
}

/// The other host: an agent and a game process, killed when dropped.
pub(crate) struct Host {
    programs: Vec<Ending>,
    folder: Folder,
}

impl Host {
    pub(crate) fn start(namespace: &str, is_renewed: bool) -> Self {
        let folder = Folder::new();
        let renewed: &[_] = if is_renewed { &NEXT_IDENTITY } else { &[] };
        for (name, text, mode) in AGENT_IDENTITY.iter().chain(renewed) {
            folder.file(name, text, *mode);
        }
        let text = format!(
            "[agent]\nname = \"host-7\"\ngateways = [\"{GATEWAY}:{PORT}\"]\nca = \"agents-ca.pem\"\n\
             certificate = \"agent.pem\"\nkey = \"agent.key\"\nrun_dir = \"host\"\n\
             [[backend]]\nname = \"arena\"\nlink = \"bundle\"\nslots = 200\n"
        );
        let config = folder.file("agent.toml", text, 0o600);
        let there = namespace.replacen("rgg-", "rgp-", 1);
        let mut host = Self { programs: Vec::new(), folder };
        host.run(&there, &["agent".as_ref(), "--config".as_ref(), config.as_os_str()]);
        let run_dir = host.folder.join("host");
        wait_for("its sockets", || run_dir.join("worker-0.sock").exists().then_some(()));
        let echo = ["echo", "--name", "arena", "--socket"].map(OsStr::new);
        host.run(&there, &[&echo[..], &[run_dir.as_os_str()]].concat());
        host
    }

    fn run(&mut self, namespace: &str, arguments: &[&OsStr]) {
        let program = ringgate(["--version"]).get_program().to_owned();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program).args(arguments);
        let log = std::fs::File::create(self.folder.join("log")).expect("a log file");
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        self.programs.push(Ending(child.expect("`ip` is there")));
    }
}

/// The gateway's side of a test.
pub(crate) struct Side {
    pub(crate) line: Line,
    namespace: String,
}

impl Side {
    fn start(namespace: &str) -> Self {
        Self::start_with(namespace, "")
    }

    /// One whose `[gateway]` says more.
    fn start_with(namespace: &str, more: &str) -> Self {
        Self::of(namespace, |text| text.gateway.push_str(more))
    }

    /// One whose config is changed.
    pub(crate) fn of(namespace: &str, change: impl FnOnce(&mut Text)) -> Self {
        let mut text = Text::new();
        change(&mut text);
        text.gateway = text.gateway.replace("workers = 1", "workers = 2");
        text.max_sessions = 200;
        text.backends = text.backends.replace("slots = 4", "slots = 200");
        text.listener.push_str("limits = { requests_per_block = 0, handshakes_per_block = 0 }\n");
        text.more = format!(
            "[[agent]]\nname = \"host-7\"\nbind = \"{GATEWAY}:{PORT}\"\nca = \"agents-ca.pem\"\n\
             certificate = \"gateway.pem\"\nkey = \"gateway.key\"\nbackends = [\"arena\"]\n"
        );
        let daemon = Daemon::start_with(&text, |_, folder| {
            for (name, text, mode) in IDENTITY {
                folder.file(name, text, mode);
            }
        });
        let line = Line::of(daemon);
        Self { line, namespace: namespace.to_owned() }
    }

    pub(crate) fn host(&self, is_renewed: bool) -> Host {
        Host::start(&self.namespace, is_renewed)
    }

    pub(crate) fn wait_for_up(&self) {
        self.wait_for_number("ringgate_agent_up{agent=\"host-7\"}", |value| value == 1);
        self.line.daemon.ready();
    }

    /// Until each worker carries its payloads itself.
    fn wait_for_lanes(&self) {
        wait_for("lanes in the hands of workers", || {
            let status = self.line.daemon.ask("/status").json();
            let lanes = status["agents"][0]["lanes"].as_array()?.clone();
            let is_by_worker = |lane: &serde_json::Value| lane["by_worker"] == true;
            (lanes.len() == 2 && lanes.iter().all(is_by_worker)).then_some(())
        });
    }

    fn wait_for_number(&self, series: &str, is_so: impl Fn(u64) -> bool) {
        let value = || self.line.daemon.get("/metrics").value(series);
        wait_for(series, || value().filter(|value| is_so(*value)));
    }

    /// How many records were sent in pieces, over all workers.
    pub(crate) fn split(&self) -> u64 {
        let page = self.line.daemon.get("/metrics");
        page.sum("ringgate_trunk_split_total", "agent=\"host-7\"").unwrap_or_default()
    }

    fn player(&self, client_id: u64) -> Player {
        Player::connected(self.line.daemon.listener, client_id, KEY_HEX)
    }

    fn wire(&self, state: &str) {
        for namespace in [self.namespace.clone(), self.namespace.replacen("rgg-", "rgp-", 1)] {
            let args = ["-n", &namespace, "link", "set", "wire2", state];
            let done = Command::new("ip").args(args).status().expect("`ip` is there");
            assert!(done.success(), "the wire is there");
        }
    }
}

#[test]
fn a_payload_that_fits_no_datagram_of_the_path_is_split_and_arrives() {
    const TEST: &str = "a_payload_that_fits_no_datagram_of_the_path_is_split_and_arrives";
    on_two_hosts(TEST, 1280, |namespace| {
        let side = Side::start(namespace);
        let _host = side.host(false);
        side.wait_for_up();
        let mut player = side.player(7);
        player.echo(&[5; 100]);
        wait_for("the size that each worker's path lets through", || {
            let page = side.line.daemon.get("/metrics");
            let of = |worker| {
                page.of_one(&format!(
                    "ringgate_trunk_path_bytes{{agent=\"host-7\",worker=\"{worker}\"}}"
                ))
            };
            let is_known = |bytes| (1200..=1252).contains(&bytes);
            [of(0)?, of(1)?].into_iter().all(is_known).then_some(())
        });
        player.echo(&[7; 1200]);
        wait_for("a split record", || (side.split() > 0).then_some(()));
    });
}

#[test]
fn players_stay_through_a_partition_and_through_the_end_of_their_agent() {
    const TEST: &str = "players_stay_through_a_partition_and_through_the_end_of_their_agent";
    on_two_hosts(TEST, 1500, |namespace| {
        let side = Side::start_with(namespace, "confine = true\n");
        let host = side.host(false);
        side.wait_for_up();
        let mut player = side.player(7);
        player.echo(b"before");

        side.wire("down");
        let silence = "ringgate_agent_ended_total{agent=\"host-7\",reason=\"silence\"}";
        side.wait_for_number(silence, |count| count == 1);
        assert!(player.is_connected(), "players stay through grace");
        side.wire("up");
        side.wait_for_up();
        player.echo(b"after a partition");

        drop(host);
        side.wait_for_number("ringgate_agent_up{agent=\"host-7\"}", |up| up == 0);
        assert!(player.is_connected(), "players stay through grace");
        // It comes back with another certificate of its name.
        let host = side.host(true);
        side.wait_for_up();
        player.echo(b"with another agent");
        side.line.daemon.signal("HUP");
        wait_for("a reload", || side.line.daemon.log().contains("event=\"reload\"").then_some(()));
        player.echo(b"after a reload");
        drop(host);
    });
}

/// Every third datagram of a lane on its way to the gateway is gone.
#[test]
fn what_the_network_between_hosts_loses_is_shown() {
    const TEST: &str = "what_the_network_between_hosts_loses_is_shown";
    on_two_hosts(TEST, 1500, |namespace| {
        if !crate::sick::has_nft() {
            return;
        }
        let side = Side::start(namespace);
        let _host = side.host(false);
        side.wait_for_up();
        side.wait_for_lanes();
        let mut player = side.player(7);
        player.echo(b"before");
        for rule in [
            "add table inet way".to_owned(),
            "add chain inet way in { type filter hook input priority 0 ; }".to_owned(),
            format!("add rule inet way in udp dport {PORT} numgen inc mod 3 0 drop"),
        ] {
            let done = Command::new("nft").arg(&rule).status().expect("`nft` is there");
            assert!(done.success(), "{rule}");
        }
        let row = row("trunk-loss");
        wait_for("what was lost, in its column", || {
            (0..100).for_each(|_| player.play_once(b"some of these"));
            let said = row.asked_at(&side.line.daemon, &[]);
            let mut lines = said.lines().skip_while(|line| !line.contains("lost from"));
            let end = lines.next()?.find("lost from")? + "lost from".len();
            let cells = lines.find(|line| line.starts_with("host-7"))?.get(..end)?.to_owned();
            let lost = cells.split_whitespace().next_back()?.replace(',', "");
            (lost.parse::<u64>().ok()? > 0).then_some(())
        });
    });
}

/// Players of the load generator over gateway, agent and game process: it accounts for every
/// payload, with what the gateway says of itself.
#[test]
fn the_load_generators_books_close_over_gateway_agent_and_game_process() {
    const TEST: &str = "the_load_generators_books_close_over_gateway_agent_and_game_process";
    on_two_hosts(TEST, 1500, |namespace| {
        // Lanes' sockets share a port, which only those of one user may.
        let side = Side::start_with(namespace, "user = \"nobody\"\n");
        let _host = side.host(false);
        side.wait_for_up();
        let key = side.line.daemon.folder.file("key", KEY_HEX, 0o600);
        let (server, admin) = (
            side.line.daemon.listener.to_string(),
            side.line.daemon.control().display().to_string(),
        );
        let (out, protocol_id) = (side.line.daemon.folder.join("out"), PROTOCOL_ID.to_string());
        let words = ["ringgate-loadgen", "run", "--server", &server, "--protocol-id", &protocol_id];
        let more = ["--admin", &admin, "--sessions", "100", "--hz", "2", "--ramp", "2s"];
        let last = ["--hold", "3s", "--timeout", "60"];
        let words = words.iter().chain(&more).chain(&last).map(OsString::from);
        let files =
            [OsString::from("--key"), key.into(), OsString::from("--out"), out.clone().into()];
        let _ = ringgate_loadgen::cli::run(words.chain(files));
        let json =
            std::fs::read_to_string(out.join("run.json")).expect("it has written its record");
        let record: Record = serde_json::from_str(&json).expect("a record");
        assert_eq!((record.imbalances(), record.unproven()), (Vec::new(), Vec::new()));
        let summary = record.summary();
        assert_eq!(summary.players.connected, PLAYERS);
        assert!(summary.payloads.arrived > PLAYERS, "{:?}", summary.payloads);
        // A machine that is far too slow is behind for good, and drops payloads somewhere. What it
        // drops is in the books all the same.
        let median_ns = record.stage(Stage::RoundTrip).map_or(0, |stage| stage.at(50.0));
        if median_ns < HOPELESS_NS {
            assert_eq!(summary.payloads.lost, 0, "{:?}, {:?}", summary.payloads, record.drops());
        } else {
            eprintln!("SKIPPED: that nothing is lost: this machine is far too slow for it");
        }
    });
}

#[test]
fn players_of_an_agent_stay_when_their_gateway_is_upgraded() {
    const TEST: &str = "players_of_an_agent_stay_when_their_gateway_is_upgraded";
    on_two_hosts(TEST, 1500, |namespace| {
        let mut side = Side::start(namespace);
        let _host = side.host(false);
        side.wait_for_up();
        let mut player = side.player(7);
        player.echo(b"before");
        let (code, said) = side.line.upgrade();
        assert_eq!(code, Some(0), "{said}");
        side.wait_for_up();
        player.echo(b"after");
        assert_eq!(side.line.generation(), 2);
    });
}

/// The one before is in the way of an address, another is not on this host, and the sockets of
/// lanes are another user's: who is connected stays, and who comes is let in.
#[test]
fn an_upgrade_takes_another_user_and_other_addresses_for_agents() {
    const TEST: &str = "an_upgrade_takes_another_user_and_other_addresses_for_agents";
    on_two_hosts(TEST, 1500, |namespace| {
        let mut side = Side::start(namespace);
        let host = side.host(false);
        side.wait_for_up();
        let mut player = side.player(7);
        player.echo(b"before");
        let config = side.line.daemon.folder.join("gate.toml");
        let text = std::fs::read_to_string(&config).expect("it is there");
        let (own, elsewhere) = (format!("{GATEWAY}:{PORT}"), "203.0.113.1:7401");
        let (before, agent) = text.split_at(text.find("[[agent]]").expect("it has one"));
        let wider = agent.replace(&own, &format!("0.0.0.0:{PORT}"));
        std::fs::write(&config, format!("{before}{wider}")).expect("it is ours");
        let page = side.line.daemon.post("/reload");
        assert_eq!(page.status, 200, "{}", side.line.daemon.log());
        player.echo(b"of a reload");
        let before = before.replace("[gateway]\n", "[gateway]\nuser = \"nobody\"\n");
        let second = agent.replace("host-7", "host-8").replace(&own, elsewhere);
        std::fs::write(&config, format!("{before}{agent}{second}")).expect("it is ours");
        let (code, said) = side.line.upgrade();
        assert_eq!(code, Some(0), "{said}");
        player.echo(b"after");
        let trunks = || side.line.daemon.ask("/status").json()["agents"][0]["trunks"].as_u64();
        assert_eq!(trunks(), Some(1), "the first one");
        drop(host);
        let _host = side.host(false);
        wait_for("the next trunk", || (trunks() > Some(1)).then_some(()));
        side.wait_for_up();
        side.player(8).echo(b"a player who came later");
        assert_eq!(trunks(), Some(2), "which stands");
    });
}

/// The agent has one trunk all the time, and nothing on it is lost; a hand-over that fails at the
/// last moment is no exception.
#[test]
fn an_upgrade_of_the_gateway_carries_trunks() {
    const TEST: &str = "an_upgrade_of_the_gateway_carries_trunks";
    on_two_hosts(TEST, 1500, |namespace| {
        // Lanes' sockets share a port, which only those of one user may.
        let mut side = Side::start_with(namespace, "user = \"nobody\"\n");
        let _host = side.host(false);
        side.wait_for_up();
        let mut players: Vec<_> = (7..11).map(|client_id| side.player(client_id)).collect();
        for generation in 2..5 {
            for player in &mut players {
                player.echo(b"before");
            }
            // Nobody may read the agents' key: root starts the next one.
            side.line.take_over();
            for player in &mut players {
                player.echo(b"after");
            }
            assert_eq!(side.line.generation(), generation);
            side.wait_for_lanes();
            for player in &mut players {
                player.echo(b"by the worker");
            }
            side.player(20 + generation).echo(b"a player who came later");
        }
        let status = side.line.daemon.ask("/status").json();
        let agent = &status["agents"][0];
        assert_eq!((&agent["up"], &agent["trunks"]), (&true.into(), &1.into()), "the first one");
        let drops = &agent["drops"];
        assert_eq!(drops, &0, "nothing has fallen between a thread and a worker: {agent}");
        // The game process answers each payload that comes. Probes of the path are lost for good.
        wait_for("as many answers as payloads", || {
            let status = side.line.daemon.ask("/status").json();
            let lanes = status["agents"][0]["lanes"].as_array().expect("a list").clone();
            let has_all = |lane: &serde_json::Value| lane["payloads"][0] == lane["payloads"][1];
            (lanes.len() == 2 && lanes.iter().all(has_all)).then_some(())
        });
    });
}

#[test]
fn an_agent_finds_the_next_gateway_where_the_last_one_was_killed() {
    const TEST: &str = "an_agent_finds_the_next_gateway_where_the_last_one_was_killed";
    on_two_hosts(TEST, 1500, |namespace| {
        let side = Side::start(namespace);
        let _host = side.host(false);
        side.wait_for_up();
        side.player(7).echo(b"before");
        drop(side);
        let side = Side::start(namespace);
        side.wait_for_up();
        side.player(8).echo(b"after");
    });
}
