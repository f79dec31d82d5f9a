//! What a million sessions take: resident memory of this process, and how fast they come in.
//!
//! ```text
//! cargo bench --bench table                  a million
//! cargo bench --bench table -- 100000        another number
//! cargo test                                 a thousand: it runs, and the books are closed
//! ```
//!
//! The players' own ends live in the same process; they are all alike, written once, and
//! subtracted. What is left is everything that a worker holds for its sessions: tables, claims,
//! used tokens, timers, buffers.

use ringgate_core::crypto::Aead;
use ringgate_gate::Gate;
use ringgate_os::clock::Clock;
use ringgate_os::memory::prefer_huge_pages;
use ringgate_testkit::ConnectedPlayers;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = arguments.iter().find_map(|argument| argument.parse().ok());
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let sessions: usize = asked.unwrap_or(if is_bench { 1_000_000 } else { 1_000 });

    // Whatever the process needs once, it has had once.
    drop(ConnectedPlayers::new(100, Aead::detect()));
    let empty = resident_bytes();
    let clock = Clock::start();
    let start_ns = clock.now_ns();
    let mut connected = ConnectedPlayers::prepared(sessions, Aead::detect(), |gate| {
        // As a worker does.
        gate.large_tables().for_each(|table| drop(prefer_huge_pages(&table)));
    });
    let connecting_ns = clock.now_ns() - start_ns;
    let players = sessions * ConnectedPlayers::MEMBER_BYTES;
    let connected_bytes = resident_bytes().saturating_sub(empty + players);

    // A second of keep-alives: what is only touched by timers is touched now.
    let mut sent = 0;
    for _ in 0..250 {
        connected.pass(4_000_000);
        sent += connected.turn();
    }
    let idle = resident_bytes().saturating_sub(empty + players);

    assert_eq!(connected.gate().session_count(), sessions);
    assert_eq!(connected.gate().counters().check_conservation(), Ok(()));
    println!("{sessions} sessions, {} bytes each in their tables", Gate::session_bytes());
    println!("  connected in {} ms, both ends in this thread", connecting_ns / 1_000_000);
    println!("  resident when connected  {}", Memory { bytes: connected_bytes, sessions });
    println!("  after {sent} keep-alives  {}", Memory { bytes: idle, sessions });
}

struct Memory {
    bytes: usize,
    sessions: usize,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:>6} KiB, {} bytes each", self.bytes / 1024, self.bytes / self.sessions)
    }
}

/// What the kernel says is in memory.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it tells this");
    let kib: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024
}
