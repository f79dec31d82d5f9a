//! How long a worker stands still while its state is handed over: what is written at the barrier,
//! and what the successor makes of it.
//!
//! ```text
//! cargo bench --bench hand_over                  10,000, 100,000 and a million sessions
//! cargo bench --bench hand_over -- 50000         another number
//! cargo test                                     a thousand, all of whom arrive
//! ```
//!
//! Memory to memory in one thread: passing descriptors, starting threads and cancelling receives
//! come on top, and are the same with any number of sessions.

use std::sync::Arc;

use ringgate_core::crypto::Aead;
use ringgate_os::clock::Clock;
use ringgate_os::memory::prefer_huge_pages;
use ringgate_testkit::{ConnectedPlayers, Rehearsal, succeed};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = arguments.iter().find_map(|argument| argument.parse().ok());
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let sizes = match (asked, is_bench) {
        (Some(sessions), _) => vec![sessions],
        (None, true) => vec![10_000, 100_000, 1_000_000],
        (None, false) => vec![1_000],
    };
    println!("milliseconds, the median of {ROUNDS} rounds (the fastest)\n");
    println!("sessions    all at once    read    written ahead before    what changed    MiB");
    sizes.into_iter().for_each(measure);
}

fn measure(sessions: usize) {
    let mut connected = ConnectedPlayers::prepared(sessions, Aead::detect(), |gate| {
        gate.large_tables().for_each(|table| drop(prefer_huge_pages(&table)));
    });
    let setup = Arc::new(connected.gate().setup().clone());
    let clock = Clock::start();
    let mut took: [Vec<u64>; 4] = Default::default();
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let gates = [connected.gate()];
        let mut at_once = Rehearsal::new(1, WINDOW_BYTES);
        let start_ns = clock.now_ns();
        at_once.write_rest(&gates).expect("the gate is quiet");
        let written_ns = clock.now_ns();
        let streams: Vec<_> = at_once.streams().collect();
        let succession = succeed(streams[0], &streams[1..], &gates, &setup, connected.now());
        let read_ns = clock.now_ns();
        let arrived = succession.expect("it can be read").arrived;
        assert_eq!((arrived.sessions, arrived.not_carried), (sessions, 0));
        bytes = streams.iter().map(|stream| stream.len()).sum();
        took[0].push(written_ns - start_ns);
        took[1].push(read_ns - written_ns);
        drop(at_once);

        let mut ahead = Rehearsal::new(1, WINDOW_BYTES);
        let start_ns = clock.now_ns();
        while !ahead.ahead(&gates, PLACES_A_TURN).expect("there is room") {}
        took[2].push(clock.now_ns() - start_ns);
        // A tenth of the players is sent something meanwhile, and hears from the gateway.
        let mut bundle = vec![0; 2048];
        for player in (0..sessions).step_by(10) {
            let one = std::iter::once(player);
            let len = connected.write_bundle(one, &[7; 100], &mut bundle);
            while !connected.receive_bundle(&bundle[..len]) {
                connected.turn();
            }
        }
        connected.turn();
        let start_ns = clock.now_ns();
        ahead.write_rest(&[connected.gate()]).expect("the gate is quiet");
        took[3].push(clock.now_ns() - start_ns);
    }
    let [at_once, read, ahead, changed] = took.map(|mut rounds| {
        rounds.sort_unstable();
        let ms = |ns: u64| ns as f64 / 1e6;
        format!("{:.1} ({:.1})", ms(rounds[ROUNDS / 2]), ms(rounds[0]))
    });
    let mib = bytes >> 20;
    println!("{sessions:>8} {at_once:>14} {read:>14} {ahead:>14} {changed:>14} {mib:>6}");
}

const ROUNDS: usize = 5;

/// What a stream goes through.
const WINDOW_BYTES: usize = 1 << 20;

/// How many places are looked at between two turns.
const PLACES_A_TURN: u32 = 256;
