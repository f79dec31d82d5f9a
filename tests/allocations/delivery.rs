//! What an end of the delivery layer takes: nothing more once it has warmed up, whatever gets lost,
//! and little while it is quiet.

use ringgate_core::delivery::{Channel, End, Options};

use super::{LIVE_BYTES, allocations_in};

const MS: u64 = 1_000_000;

/// Two ends, one above the other: what one sends arrives at once, but for every seventh packet.
struct Pair {
    ends: [End; 2],
    now_ns: u64,
    sent: u64,
    arrived: u64,
}

impl Pair {
    fn new() -> Self {
        let ends = [0, 1].map(|_| End::new(&Options::default(), 0));
        Self { ends, now_ns: 0, sent: 0, arrived: 0 }
    }

    /// A snapshot, something to say, and something large, and 33 ms in which they arrive.
    fn tick(&mut self, large: &[u8]) {
        let tick = self.now_ns / MS;
        for end in &mut self.ends {
            for (channel, message) in [
                (Channel::Sequenced(0), &large[..600]),
                (Channel::Unreliable(9), &large[..50]),
                (Channel::Reliable(1), &large[..200]),
                (Channel::Reliable(0), large),
            ] {
                let _ = end.send(channel, message, Some(tick));
            }
        }
        for _ in 0..33 {
            self.now_ns += MS;
            while self.pass(0) | self.pass(1) {}
        }
    }

    /// Passes one packet on, if there is one.
    fn pass(&mut self, from: usize) -> bool {
        let mut packet = [0; 1200];
        let Some(len) = self.ends[from].poll_transmit(self.now_ns, &mut packet) else {
            return false;
        };
        self.sent += 1;
        if !self.sent.is_multiple_of(7) {
            let arrived = &mut self.arrived;
            let taken = self.ends[1 - from].handle_packet(self.now_ns, &packet[..len], |_, _| {
                *arrived += 1;
            });
            assert_eq!(taken, Ok(()));
        }
        while self.ends[from].poll_report().is_some() {}
        true
    }
}

#[test]
fn two_ends_at_work_allocate_nothing_once_they_have_warmed_up() {
    let large = vec![7; 20_000];
    let mut pair = Pair::new();
    (0..1000).for_each(|_| pair.tick(&large));
    let before = pair.arrived;
    assert_eq!(allocations_in(|| (0..1000).for_each(|_| pair.tick(&large))), 0);
    assert!(pair.arrived - before > 7000, "{}", pair.arrived - before);
}

#[test]
fn an_end_that_has_become_quiet_takes_less_than_4_kib() {
    let large = vec![7; 20_000];
    let before = LIVE_BYTES.get();
    let mut pair = Box::new(Pair::new());
    (0..100).for_each(|_| pair.tick(&large));
    (0..3000).for_each(|_| {
        pair.now_ns += MS;
        while pair.pass(0) | pair.pass(1) {}
    });
    pair.ends.iter_mut().for_each(End::trim);
    let bytes = LIVE_BYTES.get() - before;
    assert!(bytes < 2 * 4096, "{bytes} bytes for two ends");
}
