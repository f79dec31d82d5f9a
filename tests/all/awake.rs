//! Workers that sleep while there is little to do (`workers_awake = "auto"`): newcomers come to
//! those that are awake, and whoever plays stays where it is.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::cli_doctor::without_call;
use crate::command::{Ends, ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::upgrade_rig::{Line, drivers, is_root};
use ringgate_os::capabilities::{Capability, has};

/// Whether the kernel takes programs of ours.
fn may_load() -> bool {
    let may = is_root() && has(Capability::Bpf);
    let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|value| value == "1");
    assert!(may || !is_required, "REQUIRE_XDP=1, but we may not load programs");
    may
}

/// A gateway of so many workers.
fn text(workers: u16, awake: &str, io: &str) -> Text {
    let mut text = Text::new();
    text.gateway = format!(
        "workers = {workers}\nworkers_awake = \"{awake}\"\npin = false\nio = \"{io}\"\ndrain_timeout = \"1h\"\n"
    );
    text.backends = text.backends.replace("slots = 4", "slots = 64");
    text
}

fn awake(daemon: &Daemon) -> u64 {
    daemon.status()["workers_awake"].as_u64().expect("a number")
}

/// Waits until so many are awake.
fn wait_until_awake(daemon: &Daemon, count: u64) {
    wait_for("workers to wake up or to fall asleep", || (awake(daemon) == count).then_some(()));
}

/// What each worker says of itself.
fn of_each(daemon: &Daemon, field: &str) -> Vec<u64> {
    let status = daemon.status();
    let workers = status["workers"].as_array().expect("workers");
    workers.iter().map(|it| it[field].as_u64().expect("a number")).collect()
}

/// Players with these ids.
fn players(daemon: &Daemon, ids: std::ops::Range<u64>) -> Vec<Player> {
    ids.map(|id| Player::connected(daemon.listener, id, KEY_HEX)).collect()
}

fn all_play(players: &mut [Player]) {
    for player in players {
        player.echo(b"still here");
    }
}

#[test]
fn newcomers_come_to_the_one_worker_that_is_awake_and_the_others_hear_nothing() {
    if !may_load() {
        return;
    }
    for io in drivers() {
        let daemon = Daemon::start(&text(3, "auto", io));
        let _game = Game::start(&daemon, "arena");
        daemon.ready();
        assert_eq!(awake(&daemon), 3, "nobody knows yet how much there is to do");
        wait_until_awake(&daemon, 1);
        let mut players = players(&daemon, 1..13);
        all_play(&mut players);
        assert_eq!(of_each(&daemon, "sessions"), [12, 0, 0]);
        assert_eq!(of_each(&daemon, "datagrams_in")[1..], [0, 0]);
        assert_eq!(daemon.ask("/metrics").of_one("ringgate_workers_awake"), Some(1));
        let control = daemon.control();
        let shown = run(ringgate(["status".as_ref(), "--control".as_ref(), control.as_os_str()]));
        assert!(shown.stdout.contains("; 3 workers, 1 awake, driver"), "{}", shown.stdout);
    }
}

#[test]
fn another_worker_wakes_when_those_that_are_awake_have_much_to_do() {
    if !may_load() {
        return;
    }
    let daemon = Daemon::start(&text(2, "auto", "auto"));
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    wait_until_awake(&daemon, 1);
    // Its workers get what they need, whatever else the machine has to do.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).expect("it runs");
    let tasks = tasks.map(|task| task.expect("an entry").file_name());
    let favoured = Command::new("renice").args(["-n", "-20", "-p"]).args(tasks).output();
    assert!(favoured.is_ok_and(|it| it.status.success()), "root may");
    let mut resting = players(&daemon, 1..25).into_iter();
    let is_over = AtomicBool::new(false);
    let mut early = thread::scope(|scope| {
        let begin = |mut player: Player| {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    (0..64).for_each(|_| player.play_once(&[7; 200]));
                    thread::yield_now();
                }
                player
            })
        };
        let mut busy = Vec::new();
        let ends = Ends(&is_over);
        // As many play as it takes.
        wait_for("another worker to wake up", || {
            busy.extend(resting.next().map(begin));
            (awake(&daemon) == 2).then_some(())
        });
        // The first one may be less busy for a moment, and takes some of them then.
        let mut late = Vec::new();
        while of_each(&daemon, "sessions")[1] == 0 {
            let id = 31 + late.len() as u64;
            late.extend(players(&daemon, id..id + 1));
        }
        drop(ends);
        all_play(&mut late);
        let busy = busy.into_iter().map(|it| it.join().expect("it plays"));
        busy.chain(resting).collect::<Vec<_>>()
    });
    all_play(&mut early);
    wait_until_awake(&daemon, 1);
    all_play(&mut early);
    let [first, second] = of_each(&daemon, "sessions")[..] else { panic!("two workers") };
    let mut later = players(&daemon, 101..105);
    all_play(&mut later);
    assert_eq!(of_each(&daemon, "sessions"), [first + 4, second]);
}

#[test]
fn who_plays_stays_at_its_worker_through_upgrades_whatever_the_config_says() {
    if !may_load() {
        return;
    }
    for io in drivers() {
        let mut line = Line::start(&text(2, "all", io));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut playing = players(&line.daemon, 1..17);
        let at_first = of_each(&line.daemon, "sessions");
        assert!(!at_first.contains(&0), "the kernel chooses: {at_first:?}");
        for (generation, awake_then) in [(2, "auto"), (3, "auto"), (4, "all"), (5, "auto")] {
            line.daemon.rewrite(&text(2, awake_then, io));
            let (code, said) = line.upgrade();
            assert_eq!((code, line.generation()), (Some(0), generation), "{said}");
            all_play(&mut playing);
            let [one, other] = of_each(&line.daemon, "sessions")[..] else { panic!("two workers") };
            assert_eq!(other, at_first[1], "nobody has changed the worker");
            match generation {
                // It had been so before.
                3 => assert_eq!(awake(&line.daemon), 1),
                4 => assert_eq!(awake(&line.daemon), 2),
                _ => wait_until_awake(&line.daemon, 1),
            }
            let first = generation * 100;
            if awake_then == "auto" {
                playing.extend(players(&line.daemon, first..first + 4));
                all_play(&mut playing);
                assert_eq!(of_each(&line.daemon, "sessions"), [one + 4, other], "{generation}");
            }
        }
        assert_eq!(line.daemon.status()["totals"]["sessions_opened"], playing.len());
    }
}

#[test]
fn listeners_that_a_reload_adds_go_by_it_also_when_no_program_can_be_loaded_any_more() {
    if !may_load() {
        return;
    }
    for confine in ["confine = false\n", "confine = true\n"] {
        let mut text = text(2, "auto", "mmsg");
        text.gateway.push_str("reserve_sessions = 200\n");
        text.gateway.push_str(confine);
        let daemon = Daemon::start(&text);
        let _game = Game::start(&daemon, "arena");
        daemon.ready();
        wait_until_awake(&daemon, 1);
        text.more = format!(
            "[[listener]]\nname = \"us\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:0\", \"[::1]:0\"]\n\
             protocol_id = \"0x1122334455667788\"\nkeys = [{{ hex = \"{KEY_HEX}\" }}]\nbackends = [\"arena\"]\nmax_sessions = 50\n"
        );
        daemon.rewrite(&text);
        assert_eq!(daemon.post("/reload").status, 200, "{}", daemon.log());
        let status = daemon.status();
        let added = status["listeners"][1]["addresses"].as_array().expect("addresses");
        for (at, address) in added.iter().enumerate() {
            let server = address.as_str().and_then(|it| it.parse().ok()).expect("an address");
            for id in 1..7 {
                let id = id + 10 * at as u64;
                let token = crate::control_rig::token(&[server], id, KEY_HEX, 60);
                let from = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
                let mut player = Player::holding_at(from.parse().expect("an address"), &token);
                player.connect();
                player.echo(b"here");
            }
        }
        assert_eq!(of_each(&daemon, "sessions"), [12, 0], "{}", daemon.log());
    }
}

#[test]
fn where_the_kernel_takes_no_program_all_workers_are_awake_and_that_is_said() {
    without_call(libc::SYS_bpf, || {
        let mut line = Line::start(&text(2, "auto", "mmsg"));
        let _game = Game::start(&line.daemon, "arena");
        line.daemon.ready();
        let mut players = players(&line.daemon, 1..17);
        all_play(&mut players);
        for generation in 1..=2 {
            let status = line.daemon.status();
            let why = status["why_all_awake"].as_str().expect("it says why").to_owned();
            assert!(why.contains("CAP_BPF"), "{why}");
            assert_eq!(status["workers_awake"], 2);
            assert!(!of_each(&line.daemon, "sessions").contains(&0), "the kernel chooses");
            if generation == 1 {
                let (code, said) = line.upgrade();
                assert_eq!(code, Some(0), "{said}");
            }
            all_play(&mut players);
        }
        let log = line.daemon.log();
        let said = log.matches("workers_awake = \"auto\" has no effect").count();
        assert_eq!(said, 2, "once by each process: {log}");
    });
}
