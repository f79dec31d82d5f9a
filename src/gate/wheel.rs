//! Timers for every session, at a cost that does not depend on how many sleep.
//!
//! One ring of buckets, each a list of places due in the same 4 ms. There is no cancelling and no moving: a session has one
//! entry, which fires at its deadline or earlier; whoever is woken looks at its own clocks and arms itself again. A deadline
//! beyond the ring's horizon fires at the horizon and is armed again from there. So an entry costs 8 bytes, arming is a push,
//! and a tick walks only what is due.

use super::table::Place;

/// Due times of many sessions.
pub(crate) struct Wheel {
    buckets: Vec<Vec<Place>>,
    /// The first tick that has not been fired.
    next_tick: u64,
    armed: usize,
}

impl Wheel {
    /// A wheel that starts at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { buckets: vec![Vec::new(); BUCKETS], next_tick: now_ns / TICK_NS, armed: 0 }
    }

    /// Wakes `place` at `deadline_ns`, or at the horizon if that is sooner. Never in the tick being fired.
    #[inline]
    pub(crate) fn arm(&mut self, place: Place, deadline_ns: u64) {
        let last = self.next_tick + BUCKETS as u64 - 2;
        let tick = deadline_ns.div_ceil(TICK_NS).clamp(self.next_tick, last);
        self.buckets[tick as usize % BUCKETS].push(place);
        self.armed += 1;
    }

    /// Takes the next bucket that is due at `now_ns`, into `due` (which is emptied first). False when none is.
    ///
    /// Empty buckets are passed over, and after a jump of the clock each bucket is visited once at most.
    pub(crate) fn take_due(&mut self, now_ns: u64, due: &mut Vec<Place>) -> bool {
        due.clear();
        let now_tick = now_ns / TICK_NS;
        if now_tick > self.next_tick + BUCKETS as u64 {
            self.next_tick = now_tick - BUCKETS as u64 + 1;
        }
        while self.next_tick <= now_tick {
            let bucket = &mut self.buckets[self.next_tick as usize % BUCKETS];
            self.next_tick += 1;
            if !bucket.is_empty() {
                std::mem::swap(bucket, due);
                self.armed -= due.len();
                return true;
            }
        }
        false
    }

    /// When the next non-empty bucket is due, to know how long a worker may sleep.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        (self.next_tick..self.next_tick + BUCKETS as u64)
            .find(|tick| !self.buckets[*tick as usize % BUCKETS].is_empty())
            .map(|tick| tick * TICK_NS)
    }
}

/// One tick. Keep-alives are due every 100 ms; 4 ms of slack is what players cannot tell.
const TICK_NS: u64 = 4_000_000;

/// About one second of ticks: ten keep-alive periods, and a power of two for the modulo.
const BUCKETS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u32) -> Place {
        Place { index, generation: 1 }
    }

    fn fire(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let (mut due, mut fired) = (Vec::new(), Vec::new());
        while wheel.take_due(now_ns, &mut due) {
            fired.extend(due.iter().map(|place| place.index));
        }
        fired
    }

    #[test]
    fn fires_in_order_not_before_the_deadline_and_within_a_tick_after() {
        let mut wheel = Wheel::new(0);
        for ms in [500, 3, 100, 101, 7] {
            wheel.arm(place(ms), u64::from(ms) * 1_000_000);
        }
        for now_ms in 0..600u64 {
            for index in fire(&mut wheel, now_ms * 1_000_000) {
                let late_ms = now_ms - u64::from(index);
                assert!(late_ms <= 4, "{index} fired at {now_ms}");
            }
        }
        assert_eq!(wheel.next_due_ns(), None);
    }

    #[test]
    fn a_far_deadline_fires_at_the_horizon() {
        let mut wheel = Wheel::new(0);
        wheel.arm(place(1), u64::MAX / 2);
        let due = wheel.next_due_ns().expect("armed");
        assert!(due <= BUCKETS as u64 * TICK_NS);
        assert_eq!(fire(&mut wheel, due), [1]);
    }

    #[test]
    fn a_jump_of_the_clock_fires_everything_once() {
        let mut wheel = Wheel::new(0);
        (0..500).for_each(|i| wheel.arm(place(i), u64::from(i) * 2_000_000));
        let mut fired = fire(&mut wheel, 86_400_000_000_000);
        fired.sort_unstable();
        assert_eq!(fired, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_armed_while_firing_waits_for_the_next_tick() {
        let mut wheel = Wheel::new(0);
        wheel.arm(place(1), 0);
        let mut due = Vec::new();
        assert!(wheel.take_due(0, &mut due));
        wheel.arm(place(1), 0);
        assert!(!wheel.take_due(0, &mut due));
        assert!(wheel.take_due(TICK_NS, &mut due));
    }
}
