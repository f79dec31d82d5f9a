//! The delivery layer beside other people's: goodput, latency and CPU over the same bad network.
//!
//!     cd benches/peers && cargo bench --bench delivery
//!     cd benches/peers && cargo bench --bench delivery -- "10 % loss"     # runs named so
//!
//! Time is virtual: what each does depends on the seed alone, and only the CPU is measured with a
//! clock. All are driven by a game's frames, 60 a second, as the `renet` crate wants it: what has
//! arrived is taken in, then what is due is sent. The delivery layer is also shown as a gateway and
//! a bot drive it, whenever something is due. No cipher is in it, but for QUIC, which has none
//! without.
#![forbid(unsafe_code)]

#[path = "delivery/ends.rs"]
mod ends;
#[path = "delivery/network.rs"]
mod network;
#[path = "delivery/quic.rs"]
mod quic;
#[path = "delivery/runs.rs"]
mod runs;

use ends::{Bare, Ours, Renet};
use quic::{Quic, Sends};
use runs::{Drive, Outcome, Run, Shape};

fn main() {
    // `cargo test` runs every bench once: a short run shows that it still works.
    let is_short = std::env::args().any(|argument| argument == "--test");
    let seconds = if is_short { 2 } else { 30 };
    println!("| run | peer | goodput, MB/s | p50, ms | p99, ms | lost, % | CPU, µs a message | packets a message |");
    println!("|---|---|---|---|---|---|---|---|");
    let is_named = |argument: &String| !argument.starts_with("--");
    let wanted = std::env::args().skip(1).find(is_named).unwrap_or_default();
    for (name, run) in runs(seconds).into_iter().filter(|(name, _)| name.contains(&wanted)) {
        for (peer, outcome) in all(&run) {
            let Outcome { goodput, p50_ms, p99_ms, lost_percent, cpu_us, packets } = outcome;
            println!(
                "| {name} | {peer} | {goodput:.2} | {p50_ms:.0} | {p99_ms:.0} | {lost_percent:.1} | {cpu_us:.1} | {packets:.1} |"
            );
        }
    }
}

/// Every peer in a run.
fn all(run: &Run) -> Vec<(&'static str, Outcome)> {
    let due = Run { drive: Drive::WhenDue, ..run.clone() };
    let mut outcomes = vec![
        ("ringgate", run.of(Ours::new)),
        ("ringgate, when due", due.of(Ours::new)),
        ("renet", run.of(Renet::new)),
    ];
    match run.shape {
        Shape::Reliable { .. } => {
            outcomes.push(("quinn, a stream for each message", run.of(|| Quic::new(Sends::Streams))));
        }
        Shape::Unreliable { .. } => {
            outcomes.push(("quinn, datagrams", run.of(|| Quic::new(Sends::Datagrams))));
            outcomes.push(("bare packets", run.of(Bare::new)));
        }
    }
    outcomes
}

/// What is sent over which network.
fn runs(seconds: u64) -> Vec<(String, Run)> {
    let mut runs = Vec::new();
    let mut add = |name: &str, settings: &str, rate: u64, shape: Shape| {
        let drive = Drive::Frames;
        let (name, settings) = (name.to_owned(), settings.to_owned());
        runs.push((name, Run { settings, rate, shape, drive, seconds }));
    };
    let small = |hz, bytes| Shape::Reliable { bytes, hz };
    for loss in [0, 2, 5, 10] {
        let settings = format!("PktLag=25 PktLoss={loss}");
        add(&format!("20 KiB, as many as go, {loss} % loss"), &settings, 0, small(0, 20 * 1024));
    }
    for loss in [0, 5] {
        let settings = format!("PktLag=50 PktLoss={loss}");
        add(&format!("20 KiB, as many as go, {loss} % loss, 50 ms"), &settings, 0, small(0, 20 * 1024));
    }
    for loss in [0, 5] {
        let settings = format!("PktLag=25 PktLoss={loss}");
        let name = format!("20 KiB, as many as go, {loss} % loss, 4 Mbit/s");
        add(&name, &settings, 500_000, small(0, 20 * 1024));
    }
    for loss in [0, 5, 10] {
        let settings = format!("PktLag=25 PktLoss={loss}");
        add(&format!("200 bytes, 30 Hz, {loss} % loss"), &settings, 0, small(30, 200));
    }
    add("20 KiB, 2 Hz, 5 % loss", "PktLag=25 PktLoss=5", 0, small(2, 20 * 1024));
    let jitter = "PktLag=40 PktLagVariance=20 PktLoss=5";
    add("200 bytes, 30 Hz, 5 % loss, 20 to 60 ms", jitter, 0, small(30, 200));
    let snapshots = Shape::Unreliable { bytes: 600, hz: 30 };
    add("snapshots of 600 bytes, 30 Hz, 5 % loss", "PktLag=25 PktLoss=5", 0, snapshots);
    // A game's traffic over a longer way.
    let far = "PktLag=50 PktLoss=5";
    add("200 bytes, 30 Hz, 5 % loss, 50 ms", far, 0, small(30, 200));
    add("20 KiB, 2 Hz, 5 % loss, 50 ms", far, 0, small(2, 20 * 1024));
    add("20 KiB, 20 Hz, 5 % loss, 50 ms", far, 0, small(20, 20 * 1024));
    add("snapshots of 600 bytes, 30 Hz, 5 % loss, 50 ms", far, 0, snapshots);
    runs
}
