//! What the sources of open sessions are sent: as much as they are heard for, and nothing while
//! they are silent.

use super::super::rig::{Rig, endpoint, home};
use super::{SERVERS, arrived, plain_rig};
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::drops::DropReason;

/// A server that sends a snapshot of so many bytes 30 times a second, in any case.
const SNAPSHOT_BYTES: usize = 1000;
const FRAMES_PER_S: u64 = 30;
/// IPv4's header and UDP's.
const HEADER_BYTES: usize = 28;

/// A source with an open session at such a server.
struct Source {
    rig: Rig,
    server: Endpoint,
    local: LocalIp,
    /// Bytes of the IP packets that it has sent.
    spent: usize,
}

impl Source {
    /// Opens a session by two datagrams of so many bytes and an answer of a byte.
    fn open(len: usize) -> Self {
        let mut rig = plain_rig(|_| {});
        rig.deliver(home(1), &vec![1; len]);
        let (local, server, _) = arrived(&mut rig).remove(0);
        let server = endpoint(SERVERS[server]);
        rig.answer_udp(server, local, b"a");
        let mut source = Self { rig, server, local, spent: len + HEADER_BYTES };
        source.send(len);
        assert_eq!(source.rig.counters().sessions, 1);
        source.rig.take_for(home(1));
        source
    }

    fn send(&mut self, len: usize) {
        self.spent += len + HEADER_BYTES;
        self.rig.deliver(home(1), &vec![1; len]);
        arrived(&mut self.rig);
    }

    /// Some seconds of snapshots. `send` says how many bytes the source sends before a frame, if it
    /// does. Returns how many snapshots have reached it.
    fn receive(&mut self, seconds: u64, send: impl Fn(u64) -> Option<usize>) -> usize {
        for frame in 0..seconds * FRAMES_PER_S {
            self.rig.pass(33 + u64::from(frame % 3 == 0));
            if let Some(len) = send(frame) {
                self.send(len);
            }
            self.rig.answer_udp(self.server, self.local, &[2; SNAPSHOT_BYTES]);
        }
        self.rig.take_for(home(1)).len()
    }
}

/// A source's datagrams of so many bytes, one every so many frames.
fn every(frames: u64, len: usize) -> impl Fn(u64) -> Option<usize> {
    move |frame| (frame % frames == 0).then_some(len)
}

#[test]
fn what_a_victim_is_sent_for_each_byte_of_a_spoofer() {
    let mut rows = Vec::new();
    let mut measure = |name: &str, len: usize, send: &dyn Fn(u64) -> Option<usize>| {
        let mut source = Source::open(len);
        let packets = source.receive(60, send);
        let (sent, spent) = (packets * (SNAPSHOT_BYTES + HEADER_BYTES), source.spent);
        rows.push(format!(
            "{name}: {spent} bytes brought {sent}, {:.0} for each",
            sent as f64 / spent as f64
        ));
        assert!(sent <= 1000 * spent, "{}", rows.join("\n"));
    };
    measure("two datagrams of 48 bytes", 48, &|_| None);
    measure("two datagrams of a byte", 1, &|_| None);
    for (name, frames) in
        [("10 a second", 3), ("1 a second", 30), ("1 in 4 s", 120), ("1 in 10 s", 300)]
    {
        measure(&format!("{name}, of a byte"), 1, &every(frames, 1));
        measure(&format!("{name}, of 48"), 48, &every(frames, 48));
    }
    println!("{}", rows.join("\n"));
}

#[test]
fn a_map_is_downloaded() {
    // Teeworlds 0.7: each request brings 15 chunks.
    let mut source = Source::open(20);
    for _ in 0..100 {
        source.rig.pass(50);
        source.send(12);
        for _ in 0..15 {
            source.rig.answer_udp(source.server, source.local, &[2; 1384]);
        }
    }
    assert_eq!(source.rig.take_for(home(1)).len(), 1500);
}

#[test]
fn snapshots_pass_to_a_player_who_is_heard_twice_a_second_and_a_spectator_once() {
    for (frames, len) in [(15, 20), (30, 12)] {
        let mut source = Source::open(len);
        assert_eq!(source.receive(120, every(frames, len)), 120 * FRAMES_PER_S as usize);
        assert_eq!(source.rig.counters().drops.total(), 0);
    }
}

#[test]
fn a_spectators_lost_datagrams_cost_it_nothing() {
    let mut source = Source::open(12);
    let all = source.receive(20, every(30, 12));
    assert_eq!(all, 600);
    // Two in a row.
    assert_eq!(source.receive(3, |_| None), 90);
}

#[test]
fn a_player_who_loads_is_paused_and_goes_on() {
    let mut source = Source::open(40);
    assert_eq!(source.receive(5, every(1, 40)), 150);
    let passed = source.receive(10, |_| None);
    assert!((100..=150).contains(&passed), "{passed}");
    assert!(source.rig.drops(DropReason::SourcePaused) > 100);
    assert_eq!(source.rig.counters().sessions, 1);
    source.send(40);
    source.rig.answer_udp(source.server, source.local, &[2; SNAPSHOT_BYTES]);
    assert_eq!(source.rig.take_for(home(1)).len(), 1);
    assert_eq!(source.receive(5, every(1, 40)), 150);
}
