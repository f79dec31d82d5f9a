//! Who is at a daemon, out with one of them, and backends that take nobody new.

use std::net::UdpSocket;

use crate::command::{Ran, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, wait_for};
use crate::control_upgrade_kinds::Fleet;
use crate::unreal_rig::Player as UnrealPlayer;
use ringgate_core::netcode::State;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_io::Choice;

/// A command of the command line at a daemon.
fn command(daemon: &Daemon, words: &[&str]) -> Ran {
    let mut command = ringgate(words);
    command.arg("--control").arg(daemon.control());
    run(command)
}

fn with_players(count: u64) -> (Daemon, Game, Vec<Player>) {
    let daemon = Daemon::start(&Text::new());
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    let connect = |id| Player::connected(daemon.listener, id, KEY_HEX);
    let players = (1..=count).map(connect).collect();
    (daemon, game, players)
}

#[test]
fn sessions_are_shown_to_whom_they_may_be() {
    let (daemon, _game, players) = with_players(3);
    let page = daemon.ask("/sessions?client=2").json();
    assert_eq!(
        (&page["schema"], &page["count"], &page["complete"]),
        (&1.into(), &1.into(), &true.into())
    );
    let session = &page["sessions"][0];
    assert_eq!(session["address"], players[1].local().to_string());
    assert_eq!((&session["listener"], &session["backend"]), (&"eu".into(), &"arena".into()));
    let count = |query: &str| daemon.ask(&format!("/sessions?{query}")).json()["count"].clone();
    assert_eq!(count(""), 3);
    assert_eq!(count("limit=1"), 3);
    assert_eq!(count("address=127.0.0.0%2F8"), 3);
    assert_eq!(count("address=192.0.2.0/24"), 0);
    // Whoever else is at that address.
    for player in &players {
        let place = player.local();
        let page = daemon.ask(&format!("/sessions?address={place}&limit=1")).json();
        assert_eq!(page["count"], 1, "{page}");
        assert_eq!(page["sessions"][0]["address"], place.to_string());
    }
    assert_eq!(count("backend=arena"), 3);
    assert_eq!(daemon.ask("/sessions?backend=nowhere").status, 404);
    for wrong in ["limit=10001", "client=x", "address=x", "colour=red"] {
        assert_eq!(daemon.ask(&format!("/sessions?{wrong}")).status, 400, "{wrong}");
    }
    // Over TCP without the token it is nobody's business.
    let refused = daemon.get("/sessions");
    assert_eq!(refused.status, 403, "{}", refused.body);

    let ran = command(&daemon, &["sessions", "--limit", "2"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("3 sessions, 2 of them shown"), "{}", ran.stdout);
}

#[test]
fn the_address_that_a_udp_server_sees_leads_to_its_player() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut text = Text::new();
    let address = server.local_addr().expect("bound");
    text.backends = format!(
        "[[backend]]\nname = \"arena\"\nlink = \"udp\"\naddress = \"{address}\"\nslots = 4\n"
    );
    let daemon = Daemon::start(&text);
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 7, KEY_HEX);
    player.play_once(b"hello");
    let seen = loop {
        let mut buffer = [0; 64];
        let (len, from) = server.recv_from(&mut buffer).expect("the payload");
        if len > 0 {
            break from;
        }
    };
    let page = daemon.ask(&format!("/sessions?address={seen}")).json();
    assert_eq!(page["count"], 1, "{page}");
    assert_eq!(page["sessions"][0]["client_id"], 7);
    assert_eq!(page["sessions"][0]["address"], player.local().to_string());
    assert_eq!(page["sessions"][0]["link_address"], seen.to_string());
}

#[test]
fn a_player_who_is_kicked_is_told() {
    let (daemon, _game, mut players) = with_players(2);
    let ran = command(&daemon, &["kick", "--client", "1"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ended 1 sessions of client 1\n"));
    assert_eq!(players[0].ended(), State::Disconnected);
    assert!(players[1].is_connected());
    let session = daemon.ask("/sessions").json()["sessions"][0]["session"].clone();
    let session = session.as_str().expect("text");
    let ran = command(&daemon, &["kick", "--session", session]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    players[1].ended();
    let closed = || daemon.status()["sessions_closed"]["by_operator"] == 2;
    wait_for("both to be counted", || closed().then_some(()));
    assert_eq!(command(&daemon, &["kick", "--client", "1"]).code, Some(1));
    assert_eq!(command(&daemon, &["kick", "--client", "x"]).code, Some(2));
    assert!(daemon.log().contains("kick of client 1"), "{}", daemon.log());
}

#[test]
fn a_backend_that_drains_takes_nobody_new_until_it_is_taken_back() {
    let (daemon, _game, mut players) = with_players(1);
    let ran = command(&daemon, &["drain", "--backend", "arena"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("1 are there"), "{}", ran.stdout);
    assert_eq!(daemon.status()["backends"][0]["drained"], true);
    assert_eq!(daemon.status()["state"], "serving");
    let mut late = Player::new(daemon.listener, 2, KEY_HEX);
    late.ended();
    assert!(late.is_denied());
    let why = "listener eu takes nobody new: arena is drained";
    for path in ["/readyz", "/readyz?listener=eu"] {
        let ready = daemon.get(path);
        assert_eq!((ready.status, ready.body), (503, format!("{why}\n")), "{path}");
    }
    assert_eq!(daemon.status()["listeners"][0]["closed_because"], why);
    let shown = command(&daemon, &["status"]).stdout;
    assert!(shown.contains("drained, up") && shown.contains("takes nobody new"), "{shown}");
    let metrics = daemon.get("/metrics").body;
    assert!(metrics.contains("ringgate_backend_drained{backend=\"arena\"} 1\n"), "{metrics}");
    let drops = "ringgate_drops_total{worker=\"0\",reason=\"backend_drained\"} ";
    let drops = metrics.lines().find_map(|line| line.strip_prefix(drops)).expect("it is counted");
    assert!(drops.parse::<u64>().expect("a number") > 0);
    players[0].echo(b"still here");
    // A reload does not take it back.
    assert_eq!(daemon.post("/reload").status, 200);
    assert_eq!(daemon.status()["backends"][0]["drained"], true);
    assert_eq!(command(&daemon, &["undrain", "--backend", "arena"]).code, Some(0));
    let _second = Player::connected(daemon.listener, 3, KEY_HEX);
    let ran = command(&daemon, &["drain", "--backend", "arena", "--deadline", "10ms"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(players[0].ended(), State::Disconnected);
    assert_eq!(command(&daemon, &["drain", "--backend", "nowhere"]).code, Some(2));
}

#[test]
fn who_is_being_let_in_when_a_backends_drain_is_over_has_to_leave_as_well() {
    let fleet = Fleet::start(Choice::Mmsg);
    let (daemon, ue) = (&fleet.line.daemon, fleet.listener("ue").expect("it is in the config"));
    // Its server answers nobody for a moment.
    let server = fleet.unreal.state();
    let mut player = UnrealPlayer::new(Framing::default(), 5, ue);
    let players = || {
        let backends = daemon.status()["backends"].as_array().expect("a list").clone();
        let ue = backends.into_iter().find(|it| it["name"] == "ue-1").expect("it is in the config");
        ue["players"].as_u64().expect("a number")
    };
    player.until("it has a slot", |_| players() == 1);
    let ran = command(daemon, &["drain", "--backend", "ue-1", "--deadline", "1ms"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let over = || daemon.log().contains("the drain of backend ue-1 is over").then_some(());
    wait_for("the end of the drain", over);
    drop(server);
    let ended = || daemon.status()["sessions_closed"]["by_operator"] == 1;
    player.until("it has to leave", |_| ended());
    assert_eq!(players(), 0);
    assert_eq!(daemon.log().matches("the drain of backend ue-1 is over").count(), 1);
}

#[test]
fn a_drain_can_be_taken_back_unless_a_signal_has_begun_it() {
    let (mut daemon, _game, mut players) = with_players(1);
    let ran = command(&daemon, &["drain", "--deadline", "1h"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(daemon.status()["state"], "draining");
    assert_eq!(command(&daemon, &["undrain"]).code, Some(0));
    assert_eq!(daemon.status()["state"], "serving");
    let second = Player::connected(daemon.listener, 2, KEY_HEX);
    players[0].echo(b"both play");
    drop(second);
    daemon.signal("TERM");
    wait_for("the drain", || (daemon.status()["state"] == "draining").then_some(()));
    let ran = command(&daemon, &["undrain"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("signal"), "{}", ran.stderr);
    let ran = command(&daemon, &["drain", "--deadline", "1ms"]);
    assert_eq!(ran.code, Some(0), "another deadline: {}", ran.stderr);
    assert_eq!(daemon.ended(), Some(0));
}

#[test]
fn a_backend_without_slots_takes_nobody() {
    let mut text = Text::new();
    text.backends = text.backends.replace("slots = 4", "slots = 0");
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    let is_up = || (daemon.status()["backends"][0]["up"] == true).then_some(());
    wait_for("the game", is_up);
    let why = "listener eu takes nobody new: arena has no slots\n";
    assert_eq!(daemon.get("/readyz").body, why);
    let mut player = Player::new(daemon.listener, 1, KEY_HEX);
    player.ended();
    assert!(player.is_denied());
    daemon.rewrite(&Text::new());
    assert_eq!(daemon.post("/reload").status, 200);
    daemon.ready();
    let _player = Player::connected(daemon.listener, 2, KEY_HEX);
}

/// A player whose client has crashed comes back with a new token. One that cannot come in ends
/// nobody's session.
#[test]
fn another_login_of_a_client_id_replaces_a_session_where_it_has_room() {
    for rules in ["replace_after = \"500ms\"\n", "unique_clients = \"newest\"\n"] {
        let mut text = Text::new();
        text.gateway = text.gateway.replace("workers = 1", "workers = 2");
        text.listener.push_str(rules);
        let daemon = Daemon::start(&text);
        let _game = Game::start(&daemon, "arena");
        daemon.ready();
        let mut older = Player::connected(daemon.listener, 1, KEY_HEX);
        older.echo(b"here");
        assert_eq!(daemon.post("/drain?backend=arena").status, 200);
        assert_eq!(Player::new(daemon.listener, 1, KEY_HEX).ended(), State::Denied);
        older.echo(b"still here");
        assert_eq!(daemon.post("/undrain?backend=arena").status, 200);
        let mut newer = Player::connected(daemon.listener, 1, KEY_HEX);
        newer.echo(b"at once");
        assert_eq!(older.ended(), State::Disconnected, "{rules}");
        newer.echo(b"alone");
        let status = daemon.status();
        assert_eq!(status["sessions_closed"]["newer_login"], 1, "{rules}");
        assert_eq!(status["conservation"]["holds"], true, "{}", status["conservation"]);
    }
}
