//! Reading the config again while players play.

use ringgate_core::netcode::State;

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::hold::Hold;
use crate::upgrade_rig::{self, Line};

const OTHER_KEY_HEX: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn the_level_of_the_log_changes_by_a_reload_where_no_variable_says_it() {
    let mut text = Text::new();
    let quiet = |text: &Text| {
        let mut quiet = text.clone();
        quiet.gateway.push_str("log_level = \"warn,ringgate::cli=info\"\n");
        quiet
    };
    let reload = |daemon: &Daemon, text: &Text| {
        daemon.rewrite(text);
        let page = daemon.post("/reload");
        assert!(page.body.contains("gateway.log_level"), "{}", page.body);
    };
    // What is asked for is told at the level of information.
    let told = |daemon: &Daemon| {
        daemon.post("/undrain");
        daemon.log().matches("asks for a undrain").count()
    };
    let daemon = Daemon::start(&text);
    assert_eq!(told(&daemon), 1);
    reload(&daemon, &quiet(&text));
    assert_eq!(told(&daemon), 1);
    reload(&daemon, &text);
    assert_eq!(told(&daemon), 2);
    let fixed = Daemon::start_with(&text, |command, _| {
        command.env("RINGGATE_LOG", "info");
    });
    reload(&fixed, &quiet(&text));
    assert_eq!(told(&fixed), 1);
    text.gateway.push_str("log_level = \"trce\"\n");
    assert!(Daemon::refused(&text).contains("log_level: found \"trce\", expected off, error"));
}

#[test]
fn keys_rotate_under_a_player_who_does_not_notice() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);

    text.listener = text.listener.replace(KEY_HEX, OTHER_KEY_HEX);
    daemon.rewrite(&text);
    let page = daemon.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.json()["changes"], serde_json::json!(["listener eu: keys"]));

    player.echo(b"nothing happened");
    let mut newcomer = Player::connected(daemon.listener, 2, OTHER_KEY_HEX);
    newcomer.echo(b"under the new key");
    let mut late = Player::new(daemon.listener, 3, KEY_HEX);
    wait_for("a refusal", || {
        late.turn();
        (daemon.status()["drops"]["request_forged"] != 0).then_some(())
    });
    assert!(!late.is_connected());
    let status = daemon.status();
    assert_eq!(status["config"]["reloads"], 1);
    assert_eq!(status["conservation"]["holds"], true);
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_every_mistake_is_told() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    text.gateway.push_str("spim = 1\n");
    text.backends = text.backends.replace("slots = 4", "slots = -1");
    daemon.rewrite(&text);
    let page = daemon.post("/reload");
    assert_eq!(page.status, 422);
    let answer = page.json();
    let mistakes = answer["mistakes"].as_array().expect("a list");
    assert_eq!(mistakes.len(), 2, "{answer}");
    assert!(mistakes[0].as_str().is_some_and(|text| text.contains("did you mean spin?")));
    assert!(mistakes[1].as_str().is_some_and(|text| text.contains("backend[0].slots")));

    daemon.signal("HUP");
    wait_for("the second refusal", || {
        (daemon.status()["config"]["reloads_refused"] == 2).then_some(())
    });
    assert!(daemon.log().contains("did you mean spin?"), "{}", daemon.log());
    assert_eq!(daemon.get("/metrics").value("ringgate_config_last_reload_ok"), Some(0));
    Player::connected(daemon.listener, 1, KEY_HEX).echo(b"the old config still runs");
}

#[test]
fn what_needs_a_restart_is_refused_by_name() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    text.gateway = text.gateway.replace("workers = 1", "workers = 2");
    text.listener.push_str("replay_window = 512\n");
    daemon.rewrite(&text);
    let answer = daemon.post("/reload").json();
    let expected = serde_json::json!([
        "gateway.workers has changed; that needs a restart",
        "listener eu: replay_window has changed; that needs a restart",
    ]);
    assert_eq!(answer["mistakes"], expected);
}

#[test]
fn backends_come_and_go_and_come_back() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    let _arena = Game::start(&daemon, "arena");
    daemon.ready();
    let mut old = Player::connected(daemon.listener, 1, KEY_HEX);
    let before = text.backends.clone();

    text.backends = "[[backend]]\nname = \"plaza\"\nlink = \"bundle\"\nslots = 1\n".to_owned();
    text.listener = text.listener.replace("arena", "plaza");
    daemon.rewrite(&text);
    daemon.signal("HUP");
    wait_for("the reload", || (daemon.status()["config"]["reloads"] == 1).then_some(()));
    let _plaza = Game::start(&daemon, "plaza");
    daemon.ready();
    old.echo(b"on the retired one");
    let mut new = Player::connected(daemon.listener, 2, KEY_HEX);
    new.echo(b"on the new one");
    assert_eq!(Player::new(daemon.listener, 3, KEY_HEX).ended(), State::Denied, "it has one slot");
    let status = daemon.status();
    let names_and_players = |status: &serde_json::Value| -> Vec<(String, bool, u64)> {
        let backends = status["backends"].as_array().expect("a list").iter();
        backends
            .map(|backend| {
                (
                    backend["name"].as_str().expect("a name").to_owned(),
                    backend["retired"].as_bool().expect("a flag"),
                    backend["players"].as_u64().expect("a number"),
                )
            })
            .collect()
    };
    let expected = [("arena".to_owned(), true, 1), ("plaza".to_owned(), false, 1)];
    assert_eq!(names_and_players(&status), expected);
    assert_eq!(status["conservation"]["holds"], true);

    text.backends = format!("{before}{}", text.backends);
    text.listener = text.listener.replace("[\"plaza\"]", "[\"plaza\", \"arena\"]");
    text.listener.push_str("route = \"least-players\"\n");
    daemon.rewrite(&text);
    assert_eq!(daemon.post("/reload").status, 200);
    old.echo(b"and back again");
    let expected = [("arena".to_owned(), false, 1), ("plaza".to_owned(), false, 1)];
    assert_eq!(names_and_players(&daemon.status()), expected);
    Player::connected(daemon.listener, 4, KEY_HEX).echo(b"where there is room");
    wait_for("the newcomer at the first backend", || {
        (daemon.status()["backends"][0]["players"] == 2).then_some(())
    });
}

#[test]
fn fewer_slots_and_sessions_deny_newcomers_and_keep_players() {
    let mut text = Text::new();
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut players: Vec<_> =
        (1..=2).map(|id| Player::connected(daemon.listener, id, KEY_HEX)).collect();
    text.backends = text.backends.replace("slots = 4", "slots = 2");
    daemon.rewrite(&text);
    assert_eq!(daemon.post("/reload").status, 200);
    assert_eq!(Player::new(daemon.listener, 3, KEY_HEX).ended(), State::Denied);
    for player in &mut players {
        player.echo(b"still here");
    }
    wait_for("the denial in the counters", || {
        (daemon.status()["drops"]["request_backend_full"] == 1).then_some(())
    });

    text.backends = text.backends.replace("slots = 2", "slots = 3");
    daemon.rewrite(&text);
    assert_eq!(daemon.post("/reload").status, 200);
    Player::connected(daemon.listener, 4, KEY_HEX).echo(b"there is room again");
}

#[test]
fn a_draining_gateway_is_not_reloaded() {
    let daemon = Daemon::start(&Text::new());
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let _player = Player::connected(daemon.listener, 1, KEY_HEX);
    wait_for("the player", || (daemon.status()["totals"]["sessions"] == 1).then_some(()));
    assert_eq!(daemon.post("/drain").status, 200);
    // A signal is answered in the log.
    daemon.signal("HUP");
    let refused = "the config was not changed: the gateway is draining";
    wait_for("what has become of it", || daemon.log().contains(refused).then_some(()));
    for (query, counted) in [("?dry_run=1", 1), ("", 2)] {
        let page = daemon.post(&format!("/reload{query}"));
        assert_eq!(page.status, 422);
        assert_eq!(page.json()["mistakes"][0], "the gateway is draining");
        assert_eq!(daemon.status()["config"]["reloads_refused"], counted, "{query}");
    }
    // The file is not judged by that.
    let metrics = daemon.get("/metrics");
    assert_eq!(metrics.value("ringgate_config_last_reload_success"), Some(1));
}

/// The file may lie on a slow disk, and the control thread feeds the watchdog.
#[test]
fn a_file_that_is_read_slowly_keeps_nobody_waiting_but_what_it_changes() {
    let mut hold = None;
    let mut line = Line::of(Daemon::start_with(&upgrade_rig::text("mmsg"), |command, _| {
        hold = Some(Hold::at(command, "gateway-reads Config"));
    }));
    let mut hold = hold.expect("it was begun");
    let log = line.daemon.folder.join("log");
    let told = |what: &str| {
        let log = std::fs::read_to_string(&log).expect("a log");
        log.matches(what).count()
    };
    line.daemon.signal("HUP");
    hold.reached();
    assert_eq!(line.daemon.status()["state"], "serving");
    assert_eq!(line.daemon.post("/undrain").status, 200);
    std::thread::scope(|scope| {
        let daemon = &line.daemon;
        let reload = scope.spawn(|| daemon.post("/reload").status);
        wait_for("the next reload", || (told("asks for a reload") == 1).then_some(()));
        assert_eq!(told("the config was read again"), 0);
        hold.release();
        assert_eq!(reload.join().expect("it was answered"), 200);
    });
    assert_eq!(told("the config was read again"), 2);
    assert_eq!(line.upgrade().0, Some(0), "{}", line.daemon.log());
}

#[test]
fn an_upgrade_waits_for_a_file_that_is_being_read() {
    let mut hold = None;
    let mut line = Line::of(Daemon::start_with(&upgrade_rig::text("mmsg"), |command, _| {
        hold = Some(Hold::at(command, "gateway-reads Config"));
    }));
    let mut hold = hold.expect("it was begun");
    line.daemon.signal("HUP");
    hold.reached();
    line.daemon.signal("USR2");
    wait_for("the signal", || line.daemon.log().contains("told to hand over").then_some(()));
    hold.release();
    assert_eq!(line.daemon.ended(), Some(0), "{}", line.daemon.log());
    line.heirs.push(line.pid());
    assert!(line.daemon.log().contains("the config was read again"));
    assert_eq!(line.generation(), 2);
}
