//! Levels of 20 KiB in both directions and 30 snapshots a second between a game server in C and
//! players behind a bad network, while the gateway is handed over twice: every message is in the
//! books of the players, of the gateway and of the server, and these agree.
//!
//! `RINGGATE_DELIVERY_PLAYERS=1000` has more of them.

use ringgate_io::Choice;
use ringgate_loadgen::measure::tally::Count;
use ringgate_loadgen::report::record::Record;

use crate::control_rig::wait_for;
use crate::gateway_rig::on_both_drivers;
use crate::link_program::{Game, compile};
use crate::load_rig::Load;
use crate::upgrade_rig::{self, Line};

on_both_drivers!(every_message_is_accounted_for_at_both_ends_and_over_upgrades);

const BAD_NETWORK: &str = "PktLag=50 PktLoss=5 PktIncomingLoss=5";

/// What a level and an order have.
const LEVEL_BYTES: u64 = 20 * 1024;

/// The game server's line: what it has sent, and what it knows of it.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    players: u64,
    levels: u64,
    levels_delivered: u64,
    snapshots: u64,
    snapshots_delivered: u64,
    snapshots_lost: u64,
    orders: u64,
    order_bytes: u64,
    levels_given_up: u64,
}

impl Books {
    fn read(line: &str) -> Option<Self> {
        let value = |word: &str| word.split_once('=').and_then(|(_, value)| value.parse().ok());
        let all: Vec<u64> = line.split_whitespace().filter_map(value).collect();
        let [
            players,
            levels,
            levels_delivered,
            snapshots,
            snapshots_delivered,
            snapshots_lost,
            orders,
            order_bytes,
            _refused,
            levels_given_up,
            _round_trip_ms,
            _loss_per_mille,
        ] = all[..]
        else {
            return None;
        };
        Some(Self {
            players,
            levels,
            levels_delivered,
            snapshots,
            snapshots_delivered,
            snapshots_lost,
            orders,
            order_bytes,
            levels_given_up,
        })
    }

    /// The first line of that kind.
    fn when(game: &mut Game, what: &str, mut is_it: impl FnMut(&Self) -> bool) -> Self {
        wait_for(what, || game.next_line().and_then(|line| Self::read(&line)).filter(&mut is_it))
    }
}

fn every_message_is_accounted_for_at_both_ends_and_over_upgrades(io: Choice) {
    let wished = std::env::var("RINGGATE_DELIVERY_PLAYERS").ok();
    let count = wished.and_then(|count| count.parse().ok()).unwrap_or(30_u64);
    let mut config = upgrade_rig::text(if io == Choice::Mmsg { "mmsg" } else { "uring" });
    config.max_sessions = count as usize + 10;
    config.backends = config.backends.replace("slots = 4", &format!("slots = {count}"));
    // All players come from one block.
    config.listener.push_str(
        "delivery = \"gateway\"\nkeep_alive = \"1s\"\n\
         limits = { requests_per_block = 0, handshakes_per_block = 0 }\n",
    );
    let mut line = Line::start(&config);
    let program = compile(&line.daemon.folder, "crates/link/examples/c/messages.c");
    let mut game = Game::start(&program, &line.daemon.run_dir(), "arena");
    line.daemon.ready();
    let (players, bytes) = (count.to_string(), LEVEL_BYTES.to_string());
    let more = ["--delivery", "levels", "--hz", "0.5", "--bytes", &bytes, "--ramp", "2s"];
    let more = [&more[..], &["--sessions", &players, "--impair", BAD_NETWORK]].concat();
    let mut load = Load::start(&line.daemon, &more);
    let mut books = Books::when(&mut game, "all players", |books| {
        load.must_be_running(&line.daemon);
        books.players == count
    });
    for _ in 0..2 {
        let (code, said) = line.upgrade();
        assert_eq!(code, Some(0), "{said}\n{}", line.daemon.log());
        // Each process has its time with everybody.
        let enough = books.levels_delivered + count / 2;
        books = Books::when(&mut game, "levels", |books| books.levels_delivered > enough);
    }
    let record = load.interrupt(&line.daemon);
    let last = Books::when(&mut game, "the last player's end", |books| books.players == 0);
    check(count, &record, &last, &line.daemon.log());
}

fn check(count: u64, record: &Record, server: &Books, log: &str) {
    assert_eq!((record.imbalances(), record.unproven()), (Vec::new(), Vec::new()), "{log}");
    assert!(!record.hand_overs_s.is_empty() && record.restarts.is_empty());
    let players = record.summary().players;
    assert_eq!((players.connected, players.lost), (count, 0), "{log}");
    let of = |what| record.count(what);
    // Up: the players' ends have seen what the server has.
    let (delivered, given_up) = (of(Count::MessagesDelivered), of(Count::MessagesGivenUp));
    let sure_and_possible = delivered..=delivered + given_up;
    assert_eq!((of(Count::MessagesTaken), of(Count::MessagesLost)), (delivered + given_up, 0));
    assert!(sure_and_possible.contains(&server.orders), "{delivered} {given_up} {server:?}");
    assert_eq!(server.order_bytes, server.orders * LEVEL_BYTES);
    // Down: the server has sent a level to each player, and one for each order, and knows what
    // became of each; what it knows to have arrived has.
    assert_eq!(server.levels, count + server.orders, "{server:?}");
    assert_eq!(server.levels, server.levels_delivered + server.levels_given_up, "{server:?}");
    let levels = of(Count::Levels);
    assert!((server.levels_delivered..=server.levels).contains(&levels), "{levels} {server:?}");
    let snapshots = of(Count::Snapshots);
    assert_eq!(server.snapshots, server.snapshots_delivered + server.snapshots_lost);
    let possible = server.snapshots_delivered..=server.snapshots;
    assert!(possible.contains(&snapshots), "{snapshots} {server:?}");
    assert!(server.snapshots_lost > 0 && server.snapshots_delivered > 0, "{server:?}");
}
