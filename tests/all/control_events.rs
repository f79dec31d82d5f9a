//! The events that a daemon writes into its log, and what game processes say of refusals.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::command::ringgate;
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};

/// A config whose daemon logs JSON.
fn text() -> Text {
    let mut text = Text::new();
    text.gateway.push_str("log = \"json\"\n");
    text
}

/// The events of a name so far. A line without an event would be a mistake, but for notices.
fn events(log: &str, name: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == name).collect()
}

fn wait_for_event(daemon: &Daemon, name: &str) -> Value {
    wait_for(name, || events(&daemon.log(), name).pop())
}

#[test]
fn a_life_from_start_to_stop_is_told() {
    let mut daemon = Daemon::start(&text());
    let start = wait_for_event(&daemon, "start");
    assert_eq!(
        (&start["pid"], &start["admin"]),
        (&daemon.id().into(), &daemon.admin.to_string().into())
    );
    assert_eq!(start["control"], daemon.control().display().to_string());
    let listening = wait_for_event(&daemon, "listening");
    assert_eq!(listening["listener"], "eu");
    assert_eq!(listening["address"], daemon.listener.to_string());
    let game = Game::start(&daemon, "arena");
    assert_eq!(wait_for_event(&daemon, "backend_up")["backend"], "arena");
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    drop(game);
    let down = wait_for_event(&daemon, "backend_down");
    assert_eq!((&down["backend"], &down["players"]), (&"arena".into(), &1.into()));
    assert_eq!(down["why"], "no game process is connected to every worker");

    assert_eq!(daemon.post("/reload").status, 200);
    assert_eq!(events(&daemon.log(), "reload").len(), 1);
    let asked = events(&daemon.log(), "asked").remove(0);
    assert_eq!(asked["what"], "reload");
    assert!(asked["by"].as_str().is_some_and(|by| by.starts_with("user ")), "{asked}");
    daemon.signal("TERM");
    assert_eq!(wait_for_event(&daemon, "drain_begin")["sessions"], 1);
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
    let end = wait_for_event(&daemon, "drain_end");
    assert_eq!((&end["reason"], &end["sessions"]), (&"second_signal".into(), &1.into()));
    assert_eq!(events(&daemon.log(), "stop").len(), 1);
}

#[test]
fn players_who_are_kept_out_are_told_once() {
    let mut text = text();
    text.max_sessions = 1;
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    let full = wait_for_event(&daemon, "listener_full");
    assert_eq!((&full["listener"], &full["sessions_max"]), (&"eu".into(), &1.into()));
    for client_id in 2..8 {
        let mut late = Player::new(daemon.listener, client_id, KEY_HEX);
        late.ended();
        assert!(late.is_denied());
    }
    let refused = wait_for_event(&daemon, "refused");
    assert_eq!(refused["reason"], "request_sessions_full");
    assert!(refused["count"].as_u64() >= Some(1));
    assert_eq!(events(&daemon.log(), "refused").len(), 1);
}

#[test]
fn a_game_process_that_is_refused_says_why_and_so_does_the_gateway() {
    let daemon = Daemon::start(&text());
    let run_dir = daemon.run_dir();
    let mut command = ringgate(["echo".as_ref(), "--socket".as_ref(), run_dir.as_os_str()]);
    command.args(["--name", "nobody"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut echo = command.spawn().expect("the binary was built");
    let mut said = String::new();
    let mut stderr = BufReader::new(echo.stderr.take().expect("piped"));
    stderr.read_line(&mut said).expect("text");
    assert!(said.contains("no such backend; the gateway's config has no [[backend]]"), "{said}");
    let refused = wait_for_event(&daemon, "link_refused");
    assert_eq!((&refused["reason"], &refused["pid"]), (&"name_unknown".into(), &echo.id().into()));
    assert!(refused["uid"].is_u64() && refused["gid"].is_u64(), "{refused}");
    echo.kill().expect("our child");
    echo.wait().expect("our child");
}
