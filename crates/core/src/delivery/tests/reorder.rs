//! Packets that overtake each other: what is only late is not lost, and what is lost holds nothing
//! up for long.

use super::world::{Event, MS, Path, World};
use crate::delivery::{Channel, Options};

/// What arrives of 60 messages a second.
#[derive(Default)]
struct Run {
    /// How long reliable ones take, the quickest first.
    took_ns: Vec<u64>,
    unreliable: usize,
}

impl Run {
    fn of(path: &Path, reorder_ns: u64) -> Self {
        let options = Options { reorder_ns, ..Options::default() };
        let mut world = World::new([options; 2], [path.clone(), path.clone()], 5);
        let (start_ns, mut run) = (world.now_ns, Self::default());
        for tick in 0..TICKS {
            for channel in [Channel::Reliable(0), Channel::Unreliable(0)] {
                let message = world.now_ns.to_le_bytes();
                world.ends[0].send(channel, &message, None).expect("room");
            }
            // In small steps: they are what is measured.
            for step in 1..=TICK_MS {
                let now_ns = start_ns + (tick * TICK_MS + step) * MS;
                world.run_until(now_ns, |_, event| run.note(now_ns, event));
            }
        }
        run.took_ns.sort_unstable();
        run
    }

    fn note(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Message(Channel::Reliable(_), message) => {
                let sent_ns = u64::from_le_bytes(message.try_into().expect("a time"));
                self.took_ns.push(now_ns - sent_ns);
            }
            Event::Message(..) => self.unreliable += 1,
            Event::Report(_) => {}
        }
    }

    fn took_ms(&self, per_cent: usize) -> u64 {
        self.took_ns[(self.took_ns.len() - 1) * per_cent / 100] / MS
    }
}

#[test]
fn a_delay_that_varies_by_more_than_a_tick_costs_no_more_than_it_is() {
    let path = Path { delay_ns: 40 * MS..60 * MS, ..Path::good(0) };
    let (before, after) = (Run::of(&path, 0), Run::of(&path, REORDER_NS));
    // The figures of docs/BENCHMARKS.md.
    for (what, run) in [("none waits", &before), ("held for 20 ms", &after)] {
        let lost = TICKS as usize - run.unreliable;
        println!("{what}: p50 {}, p99 {}, {lost} lost", run.took_ms(50), run.took_ms(99));
    }
    assert!(before.took_ms(99) > 100, "{} ms: nothing to mend", before.took_ms(99));
    assert!(after.took_ms(50) <= 60 && after.took_ms(99) <= 80, "{} ms", after.took_ms(99));
    let lost = [before, after].map(|run| TICKS as usize - run.unreliable);
    assert!(lost[0] > 20 && lost[1] <= 6, "{lost:?} lost");
}

#[test]
fn what_is_in_order_waits_for_nothing() {
    let path = Path::good(50 * MS);
    let [flat, held] = [0, REORDER_NS].map(|reorder_ns| Run::of(&path, reorder_ns));
    assert_eq!(flat.took_ns, held.took_ns);
    // Where nothing is late, what is lost holds nothing up either.
    let lossy = Path { loss_percent: 3, ..path };
    let [flat, held] = [0, REORDER_NS].map(|reorder_ns| Run::of(&lossy, reorder_ns));
    assert_eq!((flat.took_ns, flat.unreliable), (held.took_ns, held.unreliable));
}

#[test]
fn what_is_lost_where_packets_come_late_holds_others_up_for_so_long_and_no_longer() {
    let path = Path { delay_ns: 40 * MS..60 * MS, loss_percent: 3, ..Path::good(0) };
    let (before, after) = (Run::of(&path, 0), Run::of(&path, REORDER_NS));
    assert!(after.took_ms(50) <= 60 + REORDER_NS / MS, "{}", after.took_ms(50));
    assert!(after.took_ms(99) < before.took_ms(99), "{}", after.took_ms(99));
    assert!(after.unreliable > before.unreliable);
}

const REORDER_NS: u64 = 20 * MS;
const TICKS: u64 = 1200;
const TICK_MS: u64 = 16;
