//! `ringgate reload` at an agent: game processes and gateways come and go while others play, and a
//! file that cannot be gone by changes nothing.
//!
//! Skipped aloud without openssl, which makes the certificates.

use ringgate_core::netcode::State;
use ringgate_link::backend::{Backend as GameProcess, Event};
use serde_json::Value;

use crate::agent::{Agent, Heir, NAMES, Program, agent_upgrade, certificates, echo};
use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;
use crate::hold::Hold;
use crate::own::{own_address, own_ip, own_port};
use crate::upgrade_rig::Line;

/// An agent's file, which a test changes part by part.
#[derive(Clone)]
struct File {
    name: &'static str,
    gateways: Vec<u16>,
    more: &'static str,
    backends: Vec<(&'static str, String)>,
}

impl File {
    fn new(port: u16) -> Self {
        Self { name: "host-7", gateways: vec![port], more: "", backends: vec![bundle("arena")] }
    }

    fn write(&self, folder: &Folder) {
        let Self { name, gateways, more, backends } = self;
        let gateways: Vec<_> = gateways.iter().map(|port| format!("{}:{port}", own_ip())).collect();
        let backend = |(name, rest): &(&str, String)| {
            format!("[[backend]]\nname = \"{name}\"\nslots = 4\n{rest}")
        };
        let backends: String = backends.iter().map(backend).collect();
        let text = format!(
            "[agent]\nname = \"{name}\"\ngateways = {gateways:?}\nca = \"ca.pem\"\n\
             certificate = \"host-7.pem\"\nkey = \"host-7.key\"\nrun_dir = \"host\"\n\
             drain_timeout = \"1h\"\n{more}[admin]\nbind = \"127.0.0.1:0\"\n{backends}"
        );
        folder.file("agent.toml", text, 0o600);
    }
}

fn bundle(name: &'static str) -> (&'static str, String) {
    (name, "link = \"bundle\"\n".to_owned())
}

/// A gateway that takes game processes of three names from the agent.
fn gateway(folder: &Folder, port: u16) -> Daemon {
    Daemon::start(&gateway_text(folder, port, &["arena", "plaza", "shooter"]))
}

/// The file of one that takes game processes of all these names.
fn gateway_text(folder: &Folder, port: u16, backends: &[&str]) -> Text {
    let mut text = Text::new();
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    text.listener = text.listener.replace("[\"arena\"]", &format!("{backends:?}"));
    text.listener.push_str("route = \"least-players\"\n");
    let row = |name: &str| {
        format!("[[backend]]\nname = \"{name}\"\nlink = \"bundle\"\nslots = 4\ngrace = \"1m\"\n")
    };
    text.backends = backends.iter().map(|name| row(name)).collect();
    let (path, ip) = (folder.path().display(), own_ip());
    text.more = format!(
        "[[agent]]\nname = \"host-7\"\nbind = \"{ip}:{port}\"\nca = \"{path}/ca.pem\"\n\
         certificate = \"{path}/gate-1.pem\"\nkey = \"{path}/gate-1.key\"\nbackends = {backends:?}\n"
    );
    text
}

fn game(folder: &Folder, name: &str) -> Program {
    echo(&["--socket", &folder.join("host").display().to_string(), "--name", name])
}

pub(crate) fn reload(folder: &Folder, more: &[&str]) -> Ran {
    let control = folder.join("host/control.sock");
    let words = ["reload".as_ref(), "--control".as_ref(), control.as_os_str()];
    run(ringgate(words.into_iter().chain(more.iter().map(AsRef::as_ref))))
}

/// What a page says of the row with this name.
fn row(page: &Value, rows: &str, name: &str) -> Option<Value> {
    page[rows].as_array()?.iter().find(|row| row["name"] == name).cloned()
}

/// Waits until a gateway sends players to a backend, or does not.
fn takes_players(gateway: &Daemon, name: &str, does: bool) {
    wait_for(&format!("{name} at the gateway: {does}"), || {
        let backend = row(&gateway.ask("/status").json(), "backends", name)?;
        let is_open = backend["up"] == true && backend["intake"].is_null();
        (is_open == does).then_some(())
    });
}

fn has_players(agent: &Agent, name: &str, count: u64) {
    agent.shows(&format!("ringgate_agent_players{{backend=\"{name}\"}}"), count);
}

#[test]
fn the_level_of_the_log_changes() {
    let folder = Folder::new();
    if !certificates(&folder, NAMES) {
        return;
    }
    let mut file = File::new(own_port());
    file.more = "log_level = \"warn\"\n";
    file.write(&folder);
    let _agent = Agent::start(&folder);
    let told = || {
        let log = std::fs::read_to_string(folder.join("agent.log")).expect("it is there");
        log.matches("the config was read again").count()
    };
    file.more = "log_level = \"info\"\n";
    file.write(&folder);
    assert_eq!(reload(&folder, &[]).succeeded(), "reloaded:\n  agent.log_level\n");
    wait_for("the reload in the log", || (told() == 1).then_some(()));
    file.more = "log_level = \"error\"\n";
    file.write(&folder);
    reload(&folder, &[]).succeeded();
    file.more = "log_level = \"trce\"\n";
    file.write(&folder);
    let refused = reload(&folder, &[]).stderr;
    assert!(refused.contains("agent.log_level: found \"trce\", expected off, error"), "{refused}");
    assert_eq!(told(), 1, "nothing is told at that level");
}

#[test]
fn game_processes_come_and_go_and_who_plays_plays_on() {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    let mut file = File::new(port);
    file.write(&folder);
    let gateway = gateway(&folder, port);
    let agent = Agent::start(&folder);
    let _games = [game(&folder, "arena"), game(&folder, "plaza")];
    takes_players(&gateway, "arena", true);
    let mut first = Player::connected(gateway.listener, 1, KEY_HEX);
    first.echo(b"at the first one");

    // One on a link of ours, and one that knows nothing of gateways: there was none before.
    let server = own_address().to_string();
    let _server = echo(&["--udp", &server]);
    file.backends.push(bundle("plaza"));
    file.backends.push(("shooter", format!("link = \"udp\"\naddress = \"{server}\"\n")));
    file.write(&folder);
    let said = reload(&folder, &["--dry-run"]).succeeded();
    assert!(said.starts_with("a reload would change:\n  backend plaza added\n"), "{said}");
    let said = reload(&folder, &[]).succeeded();
    assert_eq!(said, "reloaded:\n  backend plaza added\n  backend shooter added\n");
    takes_players(&gateway, "plaza", true);
    takes_players(&gateway, "shooter", true);
    let mut others = [2, 3].map(|id| Player::connected(gateway.listener, id, KEY_HEX));
    for player in &mut others {
        player.echo(b"where nobody was");
    }
    for name in ["arena", "plaza", "shooter"] {
        has_players(&agent, name, 1);
    }

    file.backends = vec![bundle("plaza")];
    file.write(&folder);
    let said = reload(&folder, &[]).succeeded();
    let removed = ["arena", "shooter"]
        .map(|name| format!("  backend {name} removed; its players stay until they leave\n"));
    assert_eq!(said, format!("reloaded:\n{}", removed.concat()));
    takes_players(&gateway, "arena", false);
    takes_players(&gateway, "shooter", false);
    first.echo(b"still here");
    for player in &mut others {
        player.echo(b"still here");
    }
    let retired = || row(&agent.get("/status").json(), "backends", "arena");
    let shown = retired().expect("it has a player");
    assert_eq!((&shown["retired"], &shown["players"]), (&true.into(), &1.into()), "{shown}");
    Player::connected(gateway.listener, 4, KEY_HEX).echo(b"where room is left");
    has_players(&agent, "plaza", 2);
    first.leave();
    wait_for("nothing is left of it", || retired().is_none().then_some(()));

    // It comes back, for everybody.
    file.backends.push(bundle("arena"));
    file.write(&folder);
    agent.signal(libc::SIGHUP);
    takes_players(&gateway, "arena", true);
    agent.shows("ringgate_config_reloads_total{result=\"done\"}", 3);
    for player in &mut others {
        player.echo(b"still here");
    }
}

#[test]
fn a_file_that_cannot_be_gone_by_is_refused_with_every_reason_and_changes_nothing() {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    let good = File::new(port);
    good.write(&folder);
    let mut before = gateway(&folder, port);
    let agent = Agent::start(&folder);
    let _game = game(&folder, "arena");
    takes_players(&before, "arena", true);
    let mut player = Player::connected(before.listener, 1, KEY_HEX);
    player.echo(b"before");

    let mut file = good.clone();
    (file.name, file.more) = ("host-8", "log = \"json\"\nconfine = true\n");
    file.backends = vec![("arena", "link = \"udp\"\naddress = \"127.0.0.1:7\"\n".to_owned())];
    file.write(&folder);
    let refused = |more: &[&str]| {
        let ran = reload(&folder, more);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    let why = "agent.name has changed; that needs a restart\n  \
               agent.log has changed; that needs an upgrade or a restart\n  \
               agent.confine has changed; that needs an upgrade or a restart\n  \
               backend arena: its link or address has changed; remove this one first";
    assert!(refused(&[]).contains(&format!("nothing was changed:\n  {why}")), "{}", refused(&[]));
    assert!(refused(&["--dry-run"]).contains(why));
    (file.name, file.more, file.backends) = ("-x", "speed = 9\n", Vec::new());
    file.write(&folder);
    let said = refused(&[]);
    for part in ["agent.name: ", "agent.speed: ", "backend: found nothing"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    agent.shows("ringgate_config_last_reload_ok", 0);
    agent.shows("ringgate_config_reloads_total{result=\"done\"}", 0);
    player.echo(b"nothing has happened");

    // The file that is in force is: a gateway that comes back finds its agent.
    before.end_at_once();
    assert_eq!(before.ended(), Some(0));
    let after = gateway(&folder, port);
    takes_players(&after, "arena", true);
    Player::connected(after.listener, 2, KEY_HEX).echo(b"after");
    good.write(&folder);
    assert_eq!(reload(&folder, &[]).succeeded(), "reloaded; nothing has changed\n");
    agent.shows("ringgate_config_last_reload_ok", 1);
}

#[test]
fn an_agent_is_killed_where_it_changes_and_the_next_one_goes_by_the_new_file() {
    for step in ["Gateways", "Backends", "Done"] {
        let (folder, port) = (Folder::new(), own_port());
        if !certificates(&folder, NAMES) {
            return;
        }
        let mut file = File::new(port);
        file.write(&folder);
        let (gateway, mut hold) = (gateway(&folder, port), None);
        let first = Agent::start_with(&folder, |command| {
            hold = Some(Hold::at(command, &format!("agent-changes {step}")));
        });
        let _games = [game(&folder, "arena"), game(&folder, "plaza")];
        takes_players(&gateway, "arena", true);
        let mut player = Player::connected(gateway.listener, 1, KEY_HEX);
        player.echo(b"before");
        file.backends.push(bundle("plaza"));
        file.write(&folder);
        first.signal(libc::SIGHUP);
        assert_eq!(hold.expect("it is held").kill(), first.id(), "{step}");
        drop(first);
        let _next = Agent::start(&folder);
        takes_players(&gateway, "plaza", true);
        takes_players(&gateway, "arena", true);
        player.echo(b"after");
    }
}

/// Takes what a game process is told, and says nothing; which sessions have sent something.
fn hear(game: &mut GameProcess) -> Vec<usize> {
    let mut heard = Vec::new();
    let mut events = game.poll().expect("links work");
    while let Some((event, _)) = events.next() {
        if let Event::Payload { session, .. } = event {
            heard.push(session.worker());
        }
    }
    game.flush();
    heard
}

#[test]
fn gateways_come_and_go_and_a_game_process_hears_all_of_them_in_one_call() {
    let (folder, ports) = (Folder::new(), [own_port(), own_port()]);
    if !certificates(&folder, NAMES) {
        return;
    }
    let mut file = File::new(ports[0]);
    file.write(&folder);
    let gateways = ports.map(|port| gateway(&folder, port));
    let agent = Agent::start(&folder);
    let mut game = GameProcess::connect(folder.join("host"), "arena").expect("it listens");
    let meets = |game: &mut GameProcess, gateway: &Daemon| {
        wait_for("the game at the gateway", || {
            hear(game);
            (gateway.get("/readyz").status == 200).then_some(())
        });
    };
    meets(&mut game, &gateways[0]);
    let mut first = Player::connected(gateways[0].listener, 1, KEY_HEX);
    file.gateways.push(ports[1]);
    file.write(&folder);
    assert_eq!(reload(&folder, &[]).succeeded(), "reloaded:\n  agent.gateways\n");
    meets(&mut game, &gateways[1]);
    let mut second = Player::connected(gateways[1].listener, 1, KEY_HEX);
    let handed = "ringgate_agent_payloads_to_games_total";
    let before = agent.get("/metrics").value(handed).expect("a number");
    first.play_once(b"from one gateway");
    second.play_once(b"from the other");
    agent.shows(handed, before + 2);
    let mut workers = hear(&mut game);
    workers.sort_unstable();
    let of_first = 1..=2;
    assert!(
        matches!(workers[..], [one, other] if of_first.contains(&one) && other > 2),
        "{workers:?}"
    );

    // One that is taken out keeps who plays there.
    file.gateways = vec![ports[1]];
    file.write(&folder);
    assert_eq!(reload(&folder, &[]).succeeded(), "reloaded:\n  agent.gateways\n");
    takes_players(&gateways[0], "arena", false);
    assert_eq!(Player::new(gateways[0].listener, 2, KEY_HEX).ended(), State::Denied);
    first.play_once(b"still here");
    agent.shows(handed, before + 3);
    assert_eq!(hear(&mut game).len(), 1);
    let left = || {
        let page = agent.get("/status").json();
        page["gateways"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|it| it["leaving"] == true)
            .count()
    };
    assert_eq!(left(), 1);
    first.leave();
    wait_for("it is left", || (left() == 0).then_some(()));
    wait_for("it is left", || {
        hear(&mut game);
        (gateways[0].get("/readyz").status != 200).then_some(())
    });
    takes_players(&gateways[1], "arena", true);
    second.play_once(b"still here");
    agent.shows(handed, before + 4);
    assert_eq!(agent.get("/readyz").status, 200);
}

#[test]
fn an_upgrade_with_another_file_keeps_who_plays_as_a_reload_does() {
    let (folder, ports) = (Folder::new(), [own_port(), own_port()]);
    if !certificates(&folder, NAMES) {
        return;
    }
    let mut file = File::new(ports[0]);
    file.write(&folder);
    let gateways = ports.map(|port| gateway(&folder, port));
    let agent = Agent::start(&folder);
    let _games = [game(&folder, "arena"), game(&folder, "plaza")];
    takes_players(&gateways[0], "arena", true);
    let mut player = Player::connected(gateways[0].listener, 1, KEY_HEX);
    player.echo(b"before");
    (file.gateways, file.backends) = (vec![ports[1]], vec![bundle("plaza")]);
    file.write(&folder);
    let said = agent_upgrade(&folder).succeeded();
    let pid = said.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    let _heir = Heir(pid.expect("it says which process goes on"));
    takes_players(&gateways[1], "plaza", true);
    takes_players(&gateways[0], "arena", false);
    player.echo(b"still here");
    let status = || agent.get("/status").json();
    let retired = wait_for("its player is seen", || row(&status(), "backends", "arena"));
    assert_eq!((&retired["retired"], &retired["players"]), (&true.into(), &1.into()), "{retired}");
    player.leave();
    wait_for("the gateway is left", || (status()["gateways"].as_array()?.len() == 1).then_some(()));
}

/// The gateway's file names the backend of one of them no more, nor does the agent's list there.
#[test]
fn players_behind_an_agent_stay_where_the_gateway_retires_their_backend() {
    for is_upgraded in [false, true] {
        let (folder, port) = (Folder::new(), own_port());
        if !certificates(&folder, NAMES) {
            return;
        }
        let mut file = File::new(port);
        file.backends.push(bundle("plaza"));
        file.write(&folder);
        let mut line = Line::of(gateway(&folder, port));
        let _agent = Agent::start(&folder);
        let _games = ["arena", "plaza"].map(|name| game(&folder, name));
        for name in ["arena", "plaza"] {
            takes_players(&line.daemon, name, true);
        }
        let listener = line.daemon.listener;
        let mut players = [1, 2].map(|id| Player::connected(listener, id, KEY_HEX));
        let mut play = || players.iter_mut().for_each(|player| player.echo(b"on it goes"));
        play();
        line.daemon.rewrite(&gateway_text(&folder, port, &["arena"]));
        if is_upgraded {
            let (code, said) = line.upgrade();
            assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        } else {
            let page = line.daemon.post("/reload");
            assert_eq!(page.status, 200, "{}", page.body);
        }
        wait_for("the new list", || {
            let backends = line.daemon.status()["agents"][0]["backends"].clone();
            let named: Vec<_> = backends.as_array()?.iter().map(|it| it["name"].clone()).collect();
            (named == ["arena"]).then_some(())
        });
        play();
        line.daemon.post("/deny?client=77");
        play();
        let mut newcomer = Player::connected(listener, 3, KEY_HEX);
        newcomer.echo(b"at the other one");
        play();
        let status = line.daemon.status();
        assert_eq!(status["agents"][0]["trunks"], 1, "{}", line.daemon.log());
        assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    }
}
