//! Half of a small fleet goes, as planned or by a death: nobody who plays is hurt, what operators
//! say holds at once, and nothing waits for a confirmation.
//!
//! Skipped aloud where `etcd` or `openssl` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use ringgate_link::announce::{Announcement, Standing, State};
use ringgate_report::text::Append as _;

use crate::agent::{Agent, Program};
use crate::control_rig::{Daemon, Player, token, wait_for};
use crate::fleet_agent::{Rig, start_server};
use crate::fleet_announce::{Process, has, value};
use crate::fleet_doubt::Operator;
use crate::fleet_rig::{Fleet, backend_is_up, key, on_host};
use crate::folder::Folder;
use crate::own::{own_ip, own_port};

/// A host with an agent before four servers.
struct Host {
    agent: Agent,
    _folder: Folder,
    _servers: Vec<Program>,
}

impl Host {
    fn start(rig: &Rig, name: &str) -> Self {
        let folder = Folder::new();
        for file in ["ca.pem".to_owned(), format!("{name}.pem"), format!("{name}.key")] {
            std::fs::copy(rig.folder.join(&file), folder.join(&file)).expect("it was made");
        }
        let (ip, table) = (own_ip(), rig.fleet.agent_table("2m"));
        let table = table.replace("host = \"there\"", &format!("host = \"{name}\""));
        let mut text = format!(
            "[agent]\nname = \"{name}\"\nca = \"ca.pem\"\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n\
             run_dir = \"host\"\nstate_dir = \"state\"\ndrain_timeout = \"1h\"\n\
             [admin]\nbind = \"127.0.0.1:0\"\n{table}"
        );
        let mut servers = Vec::new();
        for number in 0..4 {
            let port = own_port();
            servers.push(start_server(port));
            let table = format_args!(
                "[[backend]]\nname = \"{name}-{number}\"\nlink = \"udp\"\naddress = \"{ip}:{port}\"\nslots = 4\n\
                 group = \"arena\"\n"
            );
            write!(text, "{table}");
        }
        folder.file("agent.toml", text, 0o600);
        Self { agent: Agent::start(&folder), _folder: folder, _servers: servers }
    }
}

/// The backends of a host that the gateway has, and whom they take, as its page says it.
fn backends(gateway: &Daemon, host: &str) -> Vec<serde_json::Value> {
    let all = gateway.status()["backends"].as_array().expect("a list").clone();
    let is_its = |it: &serde_json::Value| {
        it["name"].as_str().is_some_and(|name| name.starts_with(host)) && it["retired"] == false
    };
    all.into_iter().filter(is_its).collect()
}

fn has_closed(gateway: &Daemon, host: &str) {
    wait_for("its word", || {
        let backends = backends(gateway, host);
        let are_all = backends.len() == 4 && backends.iter().all(|it| it["intake"] == "nobody");
        are_all.then_some(())
    });
}

/// Players, one at each backend, and those of the second host apart.
fn players(gateway: &Daemon) -> [Vec<Player>; 2] {
    let all = (1..=8).map(|id| Player::connected(gateway.listener, id, &key(1)));
    let all: Vec<_> = all.collect();
    let rows = gateway.ask("/sessions").json()["sessions"].as_array().expect("a list").clone();
    let mut players = [Vec::new(), Vec::new()];
    for (id, player) in (1..).zip(all) {
        let row = rows.iter().find(|row| row["client_id"].as_u64() == Some(id));
        let backend = row.and_then(|row| row["backend"].as_str()).expect("it plays");
        players[usize::from(backend.starts_with("host-8"))].push(player);
    }
    assert_eq!(players.each_ref().map(Vec::len), [4, 4]);
    players
}

fn echo(players: &mut [Player]) {
    for player in players {
        player.echo(b"undisturbed");
    }
}

fn half_goes(is_planned: bool) {
    let Some(rig) = Rig::new() else { return };
    let stays = Host::start(&rig, "host-7");
    let mut goes = Host::start(&rig, "host-8");
    let all = || ["host-7", "host-8"].into_iter().flat_map(|host| (0..4).map(move |it| (host, it)));
    // What has just come is no loss when it goes: the gateway finds them as they have been.
    for (host, number) in all() {
        wait_for("its registration", || value(&rig.fleet, &format!("{host}-{number}")));
    }
    let gateway = rig.gateway("gate-1");
    for (host, number) in all() {
        backend_is_up(&gateway, &format!("{host}-{number}"));
    }
    let [mut stay, leave] = players(&gateway);
    if is_planned {
        goes.agent.signal(libc::SIGTERM);
        has_closed(&gateway, "host-8");
        for mut player in leave {
            player.echo(b"to the end");
            player.leave();
        }
        assert_eq!(goes.agent.ended(), Some(0), "it was empty");
    } else {
        goes.agent.signal(libc::SIGKILL);
        goes.agent.ended();
        rig.fleet.revoke("/f/truth/agent/host-8");
    }
    wait_for("half of the fleet", || backends(&gateway, "host-8").is_empty().then_some(()));
    echo(&mut stay);
    let operator = Operator::of(&rig.fleet);
    let mut banned = stay.pop().expect("four");
    let local = banned.local();
    let rows = gateway.ask("/sessions").json()["sessions"].as_array().expect("a list").clone();
    let row = rows.iter().find(|row| row["address"].as_str() == Some(&local.to_string()));
    let id = row.and_then(|row| row["client_id"].as_u64()).expect("it plays");
    let said = operator.does(&["deny", "--client", &id.to_string(), "--wait"]).succeeded();
    assert!(!said.contains("holds back"), "{said}");
    banned.ended();
    operator.does(&["keys", "rotate", "eu", "--wait"]).succeeded();
    stays.agent.signal(libc::SIGTERM);
    has_closed(&gateway, "host-7");
    assert!(gateway.status()["fleet"]["doubt"].is_null(), "nobody has to confirm anything");
    echo(&mut stay);
}

#[test]
fn half_of_a_fleet_drains_as_planned() {
    half_goes(true);
}

#[test]
fn one_of_two_hosts_dies() {
    half_goes(false);
}

/// A gateway on a host of its own, and its four game processes.
fn host_of(fleet: &Fleet, number: usize) -> (Daemon, Vec<Process>) {
    let text = on_host(fleet, &format!("gate-{number}"), &format!("host-{number}"));
    let daemon = Daemon::start(&text);
    let start = |index: usize| {
        let (name, what) = (format!("at-{number}-{index}"), Announcement::new("arena", 4));
        Process::start_at(daemon.run_dir(), &name, what)
    };
    let processes: Vec<_> = (0..4).map(start).collect();
    for process in &processes {
        process.stands(Standing::Registered);
    }
    (daemon, processes)
}

fn takes_players(gateway: &Daemon, name: &str) {
    wait_for("players are let in", || {
        let backends = gateway.status()["backends"].as_array()?.clone();
        let backend = backends.into_iter().find(|it| it["name"] == name)?;
        (backend["intake"] != "nobody").then_some(())
    });
}

/// The gateway has heard all that has been written so far, and believes it.
fn believes_all(fleet: &Fleet, gateway: &Daemon) {
    fleet.is_heard_by(gateway);
    assert!(gateway.status()["fleet"]["doubt"].is_null(), "{}", gateway.log());
}

#[test]
fn all_processes_of_two_hosts_end_in_order_and_nothing_is_in_doubt() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let [(first, one), (second, other)] = [1, 2].map(|number| host_of(&fleet, number));
    let all = || fleet.ctl(&["get", "--prefix", "--keys-only", "/f/truth/backend/"]);
    // What has just come is no loss when it goes: this one finds it as it has been.
    let late = Daemon::start(&on_host(&fleet, "gate-3", "host-3"));
    believes_all(&fleet, &late);
    for (index, process) in [one, other].into_iter().flatten().enumerate() {
        drop(process);
        wait_for("its end", || (all().matches("/f/").count() == 7 - index).then_some(()));
    }
    for gateway in [&first, &second, &late] {
        believes_all(&fleet, gateway);
    }
    // They come back, and who has a token for two gateways is let in.
    let process = Process::start_at(first.run_dir(), "at-1-0", Announcement::new("arena", 4));
    process.stands(Standing::Registered);
    backend_is_up(&first, "at-1-0");
    takes_players(&first, "at-1-0");
    let token = token(&[first.listener, second.listener], 1, &key(1), 60);
    let mut player = Player::holding([127, 0, 0, 1], &token);
    player.connect();
    player.echo(b"nobody is refused");
}

/// One of two hosts is emptied as planned: its processes drain and end, then its gateway.
#[test]
fn one_of_two_gateways_is_taken_out_of_service() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let (mut goes, leave) = host_of(&fleet, 1);
    let (stays, _processes) = host_of(&fleet, 2);
    let late = Daemon::start(&on_host(&fleet, "gate-3", "host-3"));
    believes_all(&fleet, &late);
    backend_is_up(&stays, "at-2-0");
    let mut player = Player::connected(stays.listener, 1, &key(1));
    for process in &leave {
        process.announce(Announcement::new("arena", 4).state(State::Draining));
    }
    for index in 0..4 {
        has(&fleet, &format!("at-1-{index}"), "state", "draining");
    }
    let revision = fleet.revision();
    goes.signal("TERM");
    assert_eq!(goes.ended(), Some(0));
    assert_eq!(fleet.gateway("gate-1"), None);
    let last = fleet.history(revision).into_iter().rev();
    let last = last.filter(|(at, _)| at == "/f/truth/gateway/gate-1").find_map(|it| it.1);
    let last: serde_json::Value =
        serde_json::from_str(&last.expect("it has said something")).expect("JSON");
    assert_eq!(last["draining"], true, "agents, who have no key, see that it has taken its leave");
    drop(leave);
    for gateway in [&stays, &late] {
        believes_all(&fleet, gateway);
    }
    let said = Operator::of(&fleet).does(&["deny", "--client", "1", "--wait"]).succeeded();
    assert!(!said.contains("holds back"), "{said}");
    player.ended();
}
