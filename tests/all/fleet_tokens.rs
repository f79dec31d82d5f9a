//! Tokens of the token service at a real gateway: whoever gets one is let in, however lately the
//! game process has come.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::process::Stdio;
use std::time::Duration;

use ringgate_core::netcode::ConnectToken;
use ringgate_link::announce::Announcement;
use ringgate_os::clock;

use crate::command::{Ending, ringgate, run};
use crate::control_metrics::lists;
use crate::control_rig::{Daemon, Player, wait_for};
use crate::fleet_announce::{Process, has, is_gone};
use crate::fleet_page::Service;
use crate::fleet_rig::{Fleet, in_fleet};
use crate::folder::Folder;
use crate::oncall::row;

/// A gateway by which tokens lead to the backends that they name.
fn gateway(fleet: &Fleet) -> Daemon {
    fleet.put_key("eu", 1);
    let mut text = in_fleet(fleet, "gate-1");
    "group = \"arena\"\nroute = \"user-data\"\n".clone_into(&mut text.listener);
    Daemon::start(&text)
}

#[test]
fn a_login_counts_once_as_soon_as_its_player_plays() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let service = Service::start(&fleet, &["tokens"]);
    let _process = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 2));
    let token = |client: u64| wait_for("a token", || service.token(client, "arena-1").ok());
    let is_full = |client: u64| {
        wait_for("the refusal", || {
            let refused = service.token(client, "arena-1").err()?;
            (refused == "backend_full").then_some(())
        });
    };
    let play = |token: &ConnectToken| {
        let mut player = Player::holding([127, 0, 0, 1], token);
        wait_for("the session", || {
            player.turn();
            player.is_connected().then_some(())
        });
        player.echo(b"hello");
        player
    };
    // Both slots are promised, and nobody has come.
    let (first, second) = (token(1), token(2));
    is_full(3);
    // Who has come and gone leaves a slot, long before the token would end.
    play(&first).leave();
    let third = token(3);
    is_full(4);
    let (mut second, mut third) = (play(&second), play(&third));
    has(&fleet, "arena-1", "used", 2);
    is_full(4);
    let promised = || service.get("/metrics", "").value("ringgate_tokens_slots_promised");
    wait_for("nothing is promised", || (promised() == Some(0)).then_some(()));
    second.echo(b"here");
    third.echo(b"here");
}

#[test]
fn a_slot_that_is_kept_for_a_player_who_may_move_there_is_nobody_elses() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let service = Service::start(&fleet, &["tokens"]);
    let start =
        |name, slots| Process::start_at(daemon.run_dir(), name, Announcement::new("arena", slots));
    let (_south, _north) = (start("south", 4), start("north", 1));
    let token = wait_for("a token", || service.token(1, "south").ok());
    let mut player = Player::holding([127, 0, 0, 1], &token);
    wait_for("the session", || {
        player.turn();
        player.is_connected().then_some(())
    });
    player.echo(b"in the south");
    has(&fleet, "north", "used", 0);
    // It never answers, so the offer stands.
    let mut command = ringgate(["move", "1", "--to", "north", "--time", "30s", "--control"]);
    command.arg(daemon.control()).stderr(Stdio::null());
    let _moving = Ending(command.spawn().expect("the binary was built"));
    has(&fleet, "north", "used", 1);
    wait_for("the refusal", || {
        let refused = service.token(2, "north").err()?;
        (refused == "backend_full").then_some(())
    });
    player.echo(b"still there");
    // The offer ends with its session, and the slot is free again.
    player.leave();
    has(&fleet, "north", "used", 0);
    wait_for("a token", || service.token(2, "north").ok());
}

/// What stands in `ringgate fleet status` of slots that services hold: for each start of one which
/// it is, and how many.
fn blocks(fleet: &Fleet) -> Vec<(String, u64)> {
    let mut command = ringgate(["fleet", "status", "--json"]);
    command.args(["--endpoint", &fleet.endpoint(), "--fleet", "/f"]);
    let status: serde_json::Value = serde_json::from_str(&run(command).succeeded()).expect("JSON");
    let block = |it: &serde_json::Value| Some((it["is"].as_str()?.into(), it["slots"].as_u64()?));
    status["blocks"].as_array().expect("a list").iter().filter_map(block).collect()
}

#[test]
fn slots_of_a_service_that_was_killed_are_shown_and_promised_by_no_other() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let _process = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 8));
    let service = Service::start(&fleet, &["tokens"]);
    for client_id in 1..=3 {
        wait_for("a token", || service.token(client_id, "arena-1").ok());
    }
    // Killed: nobody knows which of its tokens are on their way.
    drop(service);
    fleet.revoke("/f/truth/service/tokens-1");
    let next = Service::start(&fleet, &["tokens"]);
    wait_for("the next start", || next.token(11, "arena-1").ok());
    let (mut others, mut client_ids) = (0, 12..);
    let gone = wait_for("each slot is promised, or gone with the killed one", || {
        let client_id = client_ids.next().expect("there is no end");
        others += usize::from(next.token(client_id, "arena-1").is_ok());
        let blocks = blocks(&fleet);
        let gone = blocks.iter().find(|(is, _)| is == "gone")?.1 as usize;
        assert!(gone >= 3 && 1 + others + gone <= 8, "{others} of 8 beside {gone}");
        (1 + others + gone == 8).then_some(gone)
    });
    // One that is told to end leaves its promises, and the next start has them in its own block.
    next.end();
    let third = Service::start(&fleet, &["tokens"]);
    wait_for("a full server", || {
        let refused = third.token(40, "arena-1").expect_err("all slots are promised");
        (refused == "backend_full").then_some(())
    });
    wait_for("one block beside that of the killed one", || {
        let mut blocks = blocks(&fleet);
        blocks.sort();
        let expected = [("gone".to_owned(), gone as u64), ("serving".to_owned(), 8 - gone as u64)];
        (blocks == expected).then_some(())
    });
}

/// A service that was killed after it had promised three of eight slots, and its next start.
fn killed_and_started(fleet: &Fleet, state: &Folder) -> (Vec<ConnectToken>, Service) {
    let lines = format!("state_dir = \"{}\"\n", state.path().display());
    let start = || Service::start_with(fleet, &["tokens"], &lines);
    let service = start();
    let token = |id: u64| wait_for("a token", || service.token(id, "arena-1").ok());
    let tokens = (1..=3).map(token).collect();
    assert_eq!(service.get("/metrics", "").value("ringgate_tokens_promises_kept"), Some(1));
    drop(service);
    (tokens, start())
}

#[test]
fn a_service_that_was_killed_leaves_its_next_start_what_it_has_promised_and_holds_nothing_else() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let _process = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 8));
    let state = Folder::new();
    let (tokens, next) = killed_and_started(&fleet, &state);
    wait_for("its block is the next start's, without what was not promised", || {
        (blocks(&fleet) == [("serving".to_owned(), 3)]).then_some(())
    });
    // Another service has the rest of the slots, and no slot is promised twice.
    let other = Service::start(&fleet, &["tokens"]);
    wait_for("the other service", || other.token(11, "arena-1").ok());
    for client_id in 12..=15 {
        wait_for("one more", || other.token(client_id, "arena-1").ok());
    }
    for service in [&other, &next] {
        let refused = || service.token(16, "arena-1").expect_err("all slots are promised");
        wait_for("a full server", || (refused() == "backend_full").then_some(()));
    }
    // A promise ends when its player is there, whoever has made it.
    let promised = || next.get("/metrics", "").value("ringgate_tokens_slots_promised");
    assert_eq!(promised(), Some(3));
    let mut players: Vec<_> =
        tokens.iter().map(|token| Player::holding([127, 0, 0, 1], token)).collect();
    for player in &mut players {
        wait_for("the session", || {
            player.turn();
            player.is_connected().then_some(())
        });
        player.echo(b"hello");
    }
    wait_for("nothing is promised", || (promised() == Some(0)).then_some(()));
}

#[test]
fn a_service_that_was_killed_has_its_name_back_at_once() {
    const KEY: &str = "/f/truth/service/tokens-1";
    let Some(fleet) = Fleet::start() else { return };
    let state = Folder::new();
    let lines = format!("state_dir = \"{}\"\n", state.path().display());
    let start = |before: i64| {
        let service = Service::start_with(&fleet, &["tokens"], &lines);
        wait_for("its registration, and its lease in the folder", || {
            let left = std::fs::read_to_string(state.join("leases")).ok()?;
            let lease = fleet.entry_at(KEY)?.lease;
            let is_left = left.lines().any(|line| line == lease.to_string());
            (is_left && lease != before).then_some(())
        });
        service
    };
    let service = start(0);
    let before = fleet.entry_at(KEY).expect("it is registered");
    drop(service);
    let next = start(before.lease);
    let after = fleet.entry_at(KEY).expect("it is registered");
    assert_ne!(after.lease, before.lease);
    assert_eq!(after.created, before.created, "nobody has seen it go");
    // Whoever has another folder waits: the one that has written this one lives.
    let copy = Folder::new();
    std::fs::copy(state.join("leases"), copy.join("leases")).expect("there is room");
    let lines = format!("state_dir = \"{}\"\n", copy.path().display());
    let other = Service::start_with(&fleet, &["tokens"], &lines);
    wait_for("a lease of the other's own", || {
        let left = std::fs::read_to_string(copy.join("leases")).ok()?;
        (left != std::fs::read_to_string(state.join("leases")).ok()?).then_some(())
    });
    wait_for("the other's first token", || {
        other.get("/readyz", "").body.starts_with("ok").then_some(())
    });
    assert_eq!(fleet.entry_at(KEY).expect("it is registered").lease, after.lease);
    drop(next);
}

#[test]
fn what_another_folder_has_kept_is_not_believed_and_one_service_has_it_at_a_time() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let _process = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 8));
    let (state, copy) = (Folder::new(), Folder::new());
    let (_tokens, living) = killed_and_started(&fleet, &state);
    for entry in std::fs::read_dir(state.path()).expect("it is ours") {
        let entry = entry.expect("readable");
        let copied = std::fs::copy(entry.path(), copy.path().join(entry.file_name()));
        // A file that was being written has its own name by now, and is there with that.
        let is_whole = |why: &std::io::Error| why.kind() == std::io::ErrorKind::NotFound;
        assert!(copied.as_ref().err().is_none_or(is_whole), "{copied:?}");
    }
    wait_for("its own promises", || living.token(4, "arena-1").ok());
    // The service of which the copy tells is alive.
    let lines = format!("state_dir = \"{}\"\n", copy.path().display());
    let other = Service::start_with(&fleet, &["tokens"], &lines);
    wait_for("the other service", || other.token(11, "arena-1").ok());
    let count = |service: &Service, ids: std::ops::Range<u64>| {
        ids.filter(|id| service.token(*id, "arena-1").is_ok()).count()
    };
    let more = count(&living, 20..30) + count(&other, 30..40);
    assert!(more <= 3, "{more} beside five of eight");
    let config = copy.file("tokens.toml", Service::text(&fleet, &["tokens"], &lines), 0o600);
    copy.file("secret", "another-eye-for-the-fleet", 0o600);
    let second = ringgate(["tokens".as_ref(), "--config".as_ref(), config.as_os_str()]);
    let said = run(second).stderr;
    assert!(said.contains("another process uses it"), "{said}");
}

/// Has the first token that there is for this backend open a session.
fn first_token_leads_in(service: &Service, daemon: &Daemon, backend: &str, client_id: u64) {
    let token = wait_for("a token", || service.token(client_id, backend).ok());
    let mut player = Player::holding([127, 0, 0, 1], &token);
    wait_for("the session", || {
        player.turn();
        assert!(!player.is_denied(), "{backend}: {}", daemon.log());
        player.is_connected().then_some(())
    });
    player.echo(b"hello");
    player.leave();
}

#[test]
fn a_request_that_waits_for_etcd_is_seen_to_be_slow() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let service = Service::start(&fleet, &["tokens"]);
    let _process = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 2));
    let waits = || {
        let page = service.get("/metrics", "");
        row("tokens-slow").is_in(&page.body, &[]);
        let at = |le: &str| {
            page.value(&format!("ringgate_tokens_request_seconds_bucket{{le=\"{le}\"}}"))
        };
        at("+Inf").expect("it is there") - at("0.1").expect("it is there")
    };
    has(&fleet, "arena-1", "slots", 2);
    // The question may be late, and need not wait then.
    wait_for("a slow request", || {
        fleet.signal("-STOP");
        let served = std::thread::scope(|scope| {
            let asked = scope.spawn(|| service.token(1, "arena-1"));
            clock::sleep(Duration::from_millis(300));
            fleet.signal("-CONT");
            asked.join().expect("it is answered")
        });
        served.ok()?;
        (waits() > 0).then_some(())
    });
}

#[test]
fn nobody_is_sent_where_no_process_is_and_whoever_is_sent_gets_in() {
    let Some(fleet) = Fleet::start() else { return };
    let daemon = gateway(&fleet);
    let service = Service::start(&fleet, &["tokens"]);
    // Somebody registers a process that is not there.
    fleet.put_backend(&daemon, "ghost", 4, "ready");
    let shut = || fleet.gateway("gate-1").map(|it| it["shut"].clone());
    wait_for("the gateway's word", || (shut()? == serde_json::json!(["ghost"])).then_some(()));
    wait_for("the refusal", || {
        let refused = service.token(1, "ghost").expect_err("nobody is there");
        (refused == "no_gateway").then_some(())
    });
    row("tokens-refused").asked_at(&daemon, &[]);
    lists("Of a token service", &service.get("/metrics", ""));
    // Processes come, and come back, and each time somebody waits for them at the token service.
    for client_id in 10..18 {
        let name = format!("arena-{}", client_id % 2);
        let arena = Announcement::new("arena", 4);
        let process = Process::start_at(daemon.run_dir(), &name, arena);
        first_token_leads_in(&service, &daemon, &name, client_id);
        drop(process);
        is_gone(&fleet, &name);
    }
    let denied = "ringgate_drops_total{reason=\"request_backend_down\"}";
    // What has never happened is not shown.
    assert_eq!(daemon.get("/metrics").value(denied).unwrap_or(0), 0);
    assert_eq!(service.token(1, "ghost"), Err("no_gateway".to_owned()));
}
