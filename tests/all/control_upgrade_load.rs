//! Upgrades in a row under the load generator's books: five hundred players lose nothing, and
//! nothing is unexplained.
//!
//! Gateway, game process and load generator are processes of their own.

use std::process::Stdio;

use ringgate_io::Choice;
use ringgate_loadgen::measure::tally::Stage;
use ringgate_loadgen::report::record::Record;
use ringgate_loadgen::text;
use ringgate_os::process;

use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, wait_for};
use crate::gateway_rig::on_both_drivers;
use crate::load_rig::Load;
use crate::upgrade_rig::{self, Footprint, Line};

on_both_drivers!(five_hundred_players_lose_nothing_over_upgrades);

const PLAYERS: u64 = 500;

/// Upgrades in a row, if `RINGGATE_UPGRADES` does not say how many: each driver's first heir, one
/// in between, and one whose rest is compared. What adds up over more of them is no driver's.
const fn upgrades_on(io: Choice) -> u64 {
    if matches!(io, Choice::Mmsg) { 10 } else { 3 }
}

/// A round trip over loopback.
const HOPELESS_NS: u64 = 250_000_000;

/// `ringgate echo` on the bundle link.
fn echo(daemon: &Daemon) -> Ending {
    let mut command = ringgate(["echo", "--name", "arena", "--socket"]);
    command.arg(daemon.run_dir()).stdout(Stdio::null());
    Ending(command.spawn().expect("the binary was built"))
}

/// So many players who seldom say anything.
fn load(daemon: &Daemon) -> Load {
    let players = PLAYERS.to_string();
    let more = ["--sessions", &players, "--hz", "2", "--ramp", "3s", "--keep-alive", "10s"];
    Load::start(daemon, &more)
}

fn five_hundred_players_lose_nothing_over_upgrades(io: Choice) {
    let mut config = upgrade_rig::text(if io == Choice::Mmsg { "mmsg" } else { "uring" });
    config.max_sessions = 600;
    config.backends = config.backends.replace("slots = 4", "slots = 600");
    // All of them come from one block. A slow machine is to be busy with payloads, and not with
    // keep-alives.
    config.listener.push_str(
        "keep_alive = \"10s\"\nlimits = { requests_per_block = 0, handshakes_per_block = 0 }\n",
    );
    let mut line = Line::start(&config);
    let _echo = echo(&line.daemon);
    line.daemon.ready();
    let mut load = load(&line.daemon);
    wait_for("all players", || {
        load.must_be_running(&line.daemon);
        let status = line.daemon.status();
        (status["totals"]["sessions"] == PLAYERS).then_some(())
    });
    let upgrades = std::env::var("RINGGATE_UPGRADES").ok();
    let upgrades = upgrades.map_or_else(|| upgrades_on(io), |it| it.parse().expect("a number"));
    let mut footprints = Vec::new();
    for generation in 2..=upgrades + 1 {
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        assert_eq!(line.generation(), generation);
        // Each process has its time with everybody.
        let before = came(&line.daemon);
        wait_for("everybody to play on", || (came(&line.daemon) > before + PLAYERS).then_some(()));
        footprints.extend(footprint(&line, footprints.first()));
    }
    if let [first, .., last] = &footprints[..] {
        eprintln!("{first:?} after the first, {last:?} after {} upgrades", footprints.len());
    }
    check(&line, &load.interrupt(&line.daemon), upgrades);
}

/// What the process that serves takes: as soon as that is no more than what the first heir took.
fn footprint(line: &Line, first: Option<&Footprint>) -> Option<Footprint> {
    let pid = line.pid();
    let Some(mut last) = Footprint::of(pid) else {
        assert_ne!(process::effective_uid(), 0, "root may look at every process");
        eprintln!("SKIPPED: what the process that serves takes: this user may not look at it");
        return None;
    };
    wait_for(&format!("no more than {first:?} to be taken"), || {
        last = Footprint::of(pid)?;
        first.is_none_or(|first| last.is_within(first)).then_some(())
    });
    Some(last)
}

/// Datagrams that have come.
fn came(daemon: &Daemon) -> u64 {
    daemon.status()["totals"]["datagrams_in"].as_u64().expect("a number")
}

/// What would be exit code 0 if nobody had interrupted it, and nothing lost.
fn check(line: &Line, record: &Record, upgrades: u64) {
    let log = line.daemon.log();
    assert_eq!((record.imbalances(), record.unproven()), (Vec::new(), Vec::new()), "{log}");
    let summary = record.summary();
    assert_eq!((summary.players.connected, summary.players.lost), (PLAYERS, 0), "{log}");
    let payloads = &summary.payloads;
    assert!(payloads.arrived > PLAYERS * upgrades, "{payloads:?}");
    // A machine that is so busy that half of the payloads take this long is behind for good, and
    // drops them somewhere. What it drops is in the books all the same.
    let median_ns = record.stage(Stage::RoundTrip).map_or(0, |stage| stage.at(50.0));
    if median_ns < HOPELESS_NS {
        let drops = record.drops();
        // What the kernel took from the generator while that had no time to read is no gateway's.
        let own = drops.get("kernel: at the generator's sockets").copied().unwrap_or(0);
        assert!(payloads.lost <= own, "{payloads:?}, {drops:?}: {log}");
    } else {
        eprintln!("SKIPPED: that nothing is lost: this machine is far too slow for it");
    }
    assert!(
        !record.hand_overs_s.is_empty() && record.restarts.is_empty(),
        "{:?}",
        record.remarks()
    );
    assert!(summary.pause.ns > 0);
    let told = text::time(summary.pause.ns);
    eprintln!("{upgrades} upgrades: {} payloads, longest pause {told}", payloads.arrived);
}
