//! Game processes behind an agent that is in the fleet: gateways on other hosts find them, and the
//! agent finds gateways; what becomes of players when any of them, or etcd, is away.
//!
//! Skipped aloud where `etcd` or `openssl` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use ringgate_link::announce::{Announcement, Standing, State};

use crate::agent::{Agent, Program, certificates, echo};
use crate::agent_reload::reload;
use crate::control_metrics::lists;
use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_announce::{Process, has, is_gone, takes_players, value};
use crate::fleet_gateway::Heir;
use crate::fleet_rig::{Fleet, backend_is_up, in_fleet, key};
use crate::folder::{Folder, mode};
use crate::oncall::row;
use crate::own::{own_address, own_ip, own_port, take_again};

/// A fleet, and a host with an agent whose gateways are elsewhere.
pub(crate) struct Rig {
    pub(crate) fleet: Fleet,
    pub(crate) folder: Folder,
    /// Whether the agent may start no programs.
    is_confined: bool,
}

impl Rig {
    pub(crate) fn new() -> Option<Self> {
        let fleet = Fleet::start()?;
        let folder = Folder::new();
        let names =
            [("gate-1", "IP:127.0.0.1"), ("host-7", "DNS:host-7"), ("host-8", "DNS:host-8")];
        if !certificates(&folder, &names) {
            return None;
        }
        fleet.put_key("eu", 1);
        Some(Self { fleet, folder, is_confined: true })
    }

    /// One whose agent starts its successor itself.
    pub(crate) fn unconfined() -> Option<Self> {
        Some(Self { is_confined: false, ..Self::new()? })
    }

    /// A gateway that lets any agent of the fleet in.
    pub(crate) fn gateway(&self, name: &str) -> Daemon {
        let mut text = in_fleet(&self.fleet, name);
        text.backends.push_str("grace = \"1m\"\n");
        let (path, at) = (self.folder.path().display(), own_address());
        text.more = format!(
            "[[agent]]\nname = \"*\"\nbind = \"{at}\"\nca = \"{path}/ca.pem\"\n\
             certificate = \"{path}/gate-1.pem\"\nkey = \"{path}/gate-1.key\"\nbackends = \"fleet\"\n"
        );
        Daemon::start(&text)
    }

    /// An agent with these backends, and no word about gateways.
    pub(crate) fn agent(&self, backends: &str) -> Agent {
        self.file_of_agent("2m", backends);
        Agent::start(&self.folder)
    }

    pub(crate) fn file_of_agent(&self, lease: &str, backends: &str) {
        let table = self.fleet.agent_table(lease);
        let text = format!(
            "[agent]\nname = \"host-7\"\nca = \"ca.pem\"\ncertificate = \"host-7.pem\"\n\
             key = \"host-7.key\"\nrun_dir = \"host\"\nstate_dir = \"state\"\ndrain_timeout = \"0s\"\n\
             confine = {}\n\
             [admin]\nbind = \"127.0.0.1:0\"\n{table}{backends}",
            self.is_confined
        );
        self.folder.file("agent.toml", text, 0o600);
    }

    /// Waits until a backend's value says that these lead to it.
    pub(crate) fn is_led_to_by(&self, backend: &str, gateways: &[&str]) {
        let wanted: Vec<_> = gateways.iter().map(|&name| serde_json::Value::from(name)).collect();
        wait_for("gateways lead there", || {
            let found = value(&self.fleet, backend)?;
            let list = found["gateways"].as_array().cloned().unwrap_or_default();
            (list == wanted).then_some(())
        });
    }
}

/// An unmodified server, as the agent's file has it.
pub(crate) fn server(port: u16, more: &str) -> String {
    let ip = own_ip();
    format!(
        "[[backend]]\nname = \"arena-1\"\nlink = \"udp\"\naddress = \"{ip}:{port}\"\nslots = 4\n\
         group = \"arena\"\nlabels = {{ map = \"dust\" }}\n{more}"
    )
}

pub(crate) fn start_server(port: u16) -> Program {
    echo(&["--udp", &format!("{}:{port}", own_ip())])
}

/// The gateway knows that the backend is gone from the fleet, and keeps its players.
fn is_retired(daemon: &Daemon) {
    wait_for("it is retired", || {
        daemon.status()["backends"][0]["retired"].as_bool().filter(|it| *it)
    });
}

#[test]
fn an_unmodified_server_behind_an_agent_is_found_by_a_gateway_elsewhere() {
    let Some(rig) = Rig::new() else { return };
    let port = own_port();
    let gateway = rig.gateway("gate-1");
    let agent = rig.agent(&server(port, ""));
    has(&rig.fleet, "arena-1", "state", "starting");
    assert_eq!(mode(&rig.folder.join("state")), 0o700, "it is closed to others");
    let running = start_server(port);
    has(&rig.fleet, "arena-1", "state", "ready");
    let first = value(&rig.fleet, "arena-1").expect("it stands there");
    assert_eq!(first["reach"], serde_json::json!({ "agent": "host-7" }));
    assert_eq!((&first["host"], &first["labels"]["map"]), (&"there".into(), &"dust".into()));
    rig.is_led_to_by("arena-1", &["gate-1"]);
    takes_players(&gateway);
    let mut player = Player::connected(gateway.listener, 1, &key(1));
    player.echo(b"over the trunk");
    has(&rig.fleet, "arena-1", "used", 1);
    lists("Of an agent", &agent.get("/metrics"));
    let agents = rig.fleet.text("/f/truth/agent/host-7");
    assert!(agents.contains("\"gateways\":[\"gate-1\"]"), "{agents}");

    // The server is gone for a moment: nobody new is sent there, and its player waits.
    drop(running);
    has(&rig.fleet, "arena-1", "state", "starting");
    let _running = start_server(port);
    has(&rig.fleet, "arena-1", "state", "ready");
    player.echo(b"found again");

    // Its lease ends while it lives: it registers anew, and was not sent away meanwhile.
    let since = || rig.fleet.created("/f/truth/backend/arena-1");
    let before = since().expect("it stands there");
    rig.fleet.revoke("/f/truth/agent/host-7");
    wait_for("it registers anew", || since().filter(|now| *now > before));
    rig.is_led_to_by("arena-1", &["gate-1"]);
    takes_players(&gateway);
    player.echo(b"undisturbed");
    let sent_away = "ringgate_agent_ended_total{agent=\"host-7\",reason=\"unknown_agent\"}";
    assert_eq!(gateway.get("/metrics").value(sent_away).unwrap_or_default(), 0);

    // The agent dies: its lease ends, the backend is retired, and its player stays.
    drop(agent);
    rig.fleet.revoke("/f/truth/agent/host-7");
    is_gone(&rig.fleet, "arena-1");
    is_retired(&gateway);
    assert!(player.is_connected());
    let mut agent = rig.agent(&server(port, ""));
    player.echo(b"over another trunk");
    rig.is_led_to_by("arena-1", &["gate-1"]);
    has(&rig.fleet, "arena-1", "used", 1);
    takes_players(&gateway);

    // It ends in order: everything of it is gone at once.
    let revision = rig.fleet.revision();
    assert_eq!(agent.terminate(), Some(0));
    is_gone(&rig.fleet, "arena-1");
    let history = rig.fleet.history(revision).into_iter().rev();
    let mut said = history.filter(|(at, _)| at == "/f/truth/backend/arena-1").map(|it| it.1);
    assert_eq!(said.next(), Some(None));
    let last = said.next().flatten().expect("it has said something before");
    assert!(last.contains("\"state\":\"draining\""), "{last}");
    assert!(!rig.fleet.ctl(&["get", "/f/truth/agent/host-7"]).contains("host-7"));
    assert!(player.is_connected());
}

/// The agent does not see for a while what has become of its keys: they are not mirrored there.
#[test]
fn players_stay_when_their_gateway_is_replaced_while_their_agent_is_gone_from_etcd() {
    let Some(rig) = Rig::new() else { return };
    let port = own_port();
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let _agent = rig.agent(&server(port, ""));
    rig.is_led_to_by("arena-1", &["gate-1"]);
    takes_players(&gateway);
    let mut player = Player::connected(gateway.listener, 1, &key(1));
    player.echo(b"over the trunk");
    rig.fleet.ctl(&["del", "/f/truth/backend/arena-1"]);
    rig.fleet.ctl(&["del", "/f/truth/agent/host-7"]);
    is_retired(&gateway);
    let _heir = Heir::of(&gateway);
    player.echo(b"by the next process");
    wait_for("the next process is up to date", || {
        gateway.get("/metrics").value("ringgate_fleet_current").filter(|it| *it == 1)
    });
    player.echo(b"undisturbed");
    assert!(!gateway.log().contains("agent_down"), "{}", gateway.log());
}

#[test]
fn an_agent_that_is_back_before_its_lease_ends_was_never_gone() {
    let Some(rig) = Rig::new() else { return };
    let port = own_port();
    let _server = start_server(port);
    let gateway = rig.gateway("gate-1");
    let start = || rig.agent(&server(port, ""));
    let agent = start();
    rig.is_led_to_by("arena-1", &["gate-1"]);
    takes_players(&gateway);
    let mut player = Player::connected(gateway.listener, 1, &key(1));
    player.echo(b"over the first trunk");
    let leases = || std::fs::read_to_string(rig.folder.join("state/leases")).ok();
    wait_for("the lease is written down", || leases().filter(|text| !text.is_empty()));
    let keys = ["/f/truth/backend/arena-1", "/f/truth/agent/host-7"];
    let since = || keys.map(|key| rig.fleet.created(key).expect("it stands there"));
    let instance = || Some(value(&rig.fleet, "arena-1")?["instance"].clone());
    let (before, first) = (since(), instance());
    drop(agent);
    let agent = start();
    wait_for("it is the next one's", || (instance() != first).then_some(()));
    agent.shows("ringgate_fleet_registered", 1);
    player.echo(b"over the next trunk");
    rig.is_led_to_by("arena-1", &["gate-1"]);
    assert_eq!(since(), before, "nothing of it has gone");
}

#[test]
fn what_an_agents_file_says_of_its_processes_changes_with_a_reload() {
    let Some(rig) = Rig::new() else { return };
    let ports = [own_port(), own_port()];
    let _servers = ports.map(start_server);
    let gateway = rig.gateway("gate-1");
    let first = server(ports[0], "");
    let second = server(ports[1], "state = \"allocated\"\n").replace("arena-1", "arena-2");
    let _agent = rig.agent(&first);
    has(&rig.fleet, "arena-1", "state", "ready");
    takes_players(&gateway);
    let mut player = Player::connected(gateway.listener, 1, &key(1));
    player.echo(b"at the first one");
    let since = || rig.fleet.created("/f/truth/backend/arena-1");
    let before = since().expect("it stands there");

    // Under another name its players would have no slots.
    rig.file_of_agent("2m", &first.replace("arena-1", "arena-a"));
    let refused = reload(&rig.folder, &[]);
    let why = "backend arena-a: its address is that of arena-1; remove that one first";
    assert!(refused.code == Some(2) && refused.stderr.contains(why), "{}", refused.stderr);

    let changed = first.replace("dust", "dunes").replace("slots = 4", "slots = 8");
    rig.file_of_agent("2m", &format!("{changed}{second}"));
    let said = reload(&rig.folder, &[]).succeeded();
    let changes = "backend arena-1: slots 4 -> 8\n  backend arena-1: what the fleet is told of it\n  \
                   backend arena-2 added\n";
    assert!(said.ends_with(changes), "{said}");
    has(&rig.fleet, "arena-1", "slots", 8);
    assert_eq!(value(&rig.fleet, "arena-1").expect("it stands")["labels"]["map"], "dunes");
    has(&rig.fleet, "arena-2", "state", "allocated");
    rig.is_led_to_by("arena-2", &["gate-1"]);
    assert_eq!(since(), Some(before), "it was never gone");

    rig.file_of_agent("3m", &second);
    let refused = reload(&rig.folder, &[]);
    let why = "fleet.lease has changed; that needs an upgrade or a restart";
    assert!(refused.code == Some(2) && refused.stderr.contains(why), "{}", refused.stderr);
    rig.file_of_agent("2m", &second);
    reload(&rig.folder, &[]).succeeded();
    is_gone(&rig.fleet, "arena-1");
    player.echo(b"still here");
}

#[test]
fn a_process_behind_an_agent_registers_itself_as_at_a_gateway() {
    let Some(rig) = Rig::new() else { return };
    let gateway = rig.gateway("gate-1");
    let agent = rig.agent("");
    let arena = || Announcement::new("arena", 4).label("map", "dust");
    let run_dir = rig.folder.join("host");
    let process = Process::start_at(run_dir, "arena-9", arena().state(State::Starting));
    process.stands(Standing::Registered);
    rig.is_led_to_by("arena-9", &["gate-1"]);
    backend_is_up(&gateway, "arena-9");
    assert_eq!(value(&rig.fleet, "arena-9").expect("it stands")["state"], "starting");
    process.announce(arena());
    takes_players(&gateway);
    let mut player = Player::connected(gateway.listener, 1, &key(1));
    player.echo(b"hello");
    has(&rig.fleet, "arena-9", "used", 1);
    agent.shows("ringgate_agent_players{backend=\"arena-9\"}", 1);
    agent.shows("ringgate_fleet_announced", 1);
    process.announce(arena().state(State::Draining));
    has(&rig.fleet, "arena-9", "state", "draining");
    player.echo(b"who is there stays");

    drop(process);
    is_gone(&rig.fleet, "arena-9");
    is_retired(&gateway);
    assert!(player.is_connected());
    agent.shows("ringgate_fleet_announced", 0);
}

#[test]
fn gateways_come_and_go_and_etcd_too() {
    let Some(mut rig) = Rig::new() else { return };
    let port = own_port();
    let _server = start_server(port);
    let first = rig.gateway("gate-1");
    let agent = rig.agent(&server(port, ""));
    rig.is_led_to_by("arena-1", &["gate-1"]);
    takes_players(&first);
    let mut player = Player::connected(first.listener, 1, &key(1));
    player.echo(b"one");
    let second = rig.gateway("gate-2");
    rig.is_led_to_by("arena-1", &["gate-1", "gate-2"]);
    takes_players(&second);
    let mut other = Player::connected(second.listener, 2, &key(1));
    other.echo(b"two");
    has(&rig.fleet, "arena-1", "used", 2);
    drop(second);
    rig.fleet.revoke("/f/truth/gateway/gate-2");
    rig.is_led_to_by("arena-1", &["gate-1"]);
    wait_for("only one is left", || {
        let page = agent.get("/status").json();
        (page["gateways"].as_array()?.len() == 1).then_some(())
    });
    player.echo(b"undisturbed");

    // Without etcd all of it goes on, and an agent that starts finds its gateways by what it knew.
    wait_for("the copy", || {
        let page = agent.get("/metrics");
        page.value("ringgate_fleet_copies_total{result=\"done\"}").filter(|count| *count > 0)
    });
    rig.fleet.kill();
    agent.shows("ringgate_fleet_current", 0);
    player.echo(b"without etcd");
    drop(agent);
    let agent = rig.agent(&server(port, ""));
    player.echo(b"by another agent");
    let page = agent.get("/readyz");
    assert_eq!(page.status, 200, "{}", page.body);
    row("not-registered").is_in(&page.body, &[]);
    rig.fleet.revive();
    agent.shows("ringgate_fleet_registered", 1);
    rig.is_led_to_by("arena-1", &["gate-1"]);
    has(&rig.fleet, "arena-1", "used", 1);
    player.echo(b"to the end");
}

/// The SDK server of Agones, as far as it is asked.
pub(crate) struct Sdk {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<&'static str>>,
}

impl Sdk {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new("Scheduled"));
        let shown = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = vec![0; 4096];
                let len = stream.read(&mut request).unwrap_or_default();
                let text = String::from_utf8_lossy(&request[..len]);
                let body = format!(
                    "{{\"object_meta\":{{\"name\":\"local\",\"namespace\":\"default\",\"labels\":{{}}}},\
                     \"status\":{{\"state\":\"{}\",\"address\":\"127.0.0.1\",\"ports\":[]}}}}",
                    shown.lock().expect("nobody panics")
                );
                let answer = if text.starts_with("GET /gameserver HTTP/1.") {
                    let len = body.len();
                    format!(
                        "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
                    )
                } else {
                    "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, state }
    }

    pub(crate) fn set(&self, state: &'static str) {
        *self.state.lock().expect("nobody panics") = state;
    }
}

#[test]
fn what_agones_and_health_checks_say_is_what_the_fleet_is_told() {
    let Some(rig) = Rig::new() else { return };
    let (port, sdk) = (own_port(), Sdk::start());
    let check = TcpListener::bind(own_address()).expect("loopback");
    let checked = check.local_addr().expect("bound");
    let more = format!(
        "state = {{ agones = \"http://{}\" }}\nhealth = {{ tcp = \"{checked}\", every = \"100ms\", failures = 2 }}\n",
        sdk.address
    );
    let _gateway = rig.gateway("gate-1");
    let agent = rig.agent(&server(port, &more));
    let _server = start_server(port);
    let is = |state: &str| has(&rig.fleet, "arena-1", "state", state);
    is("starting");
    sdk.set("Ready");
    is("ready");
    sdk.set("Allocated");
    is("allocated");
    drop(check);
    is("starting");
    let page = agent.get("/status").json();
    let why = page["fleet"]["backends"][0]["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("it is not well: "), "{why}");
    let _check = take_again(|| TcpListener::bind(checked));
    is("allocated");
    sdk.set("Shutdown");
    is("draining");
    let state = "ringgate_agent_backend_state{backend=\"arena-1\",state=\"draining\"}";
    agent.shows(state, 1);
}
