//! Timers for every session, at a cost that does not depend on how many sleep.
//!
//! One ring of buckets, each a list of places due in the same tick (4 ms for sessions, a second for
//! used tokens). There is no cancelling and no moving: a session has one entry, which fires at its
//! deadline or earlier; then its user looks at the session's own clocks and arms it again. A
//! deadline beyond the ring's horizon fires at the horizon and is armed again from there.
//!
//! A place has one entry at most, so the lists are links between places: four bytes each, reserved
//! once, and nothing is allocated or moved afterwards. An entry that a player has left behind fires
//! for the next player in its place. That is too early, and does no harm.

use std::marker::PhantomData;

use crate::ids::Id;

/// Due times of many places that are named by `I`, in whatever unit `TICK` is in.
pub(crate) struct Wheel<I, const TICK: u64> {
    /// The first place of each bucket's list.
    heads: [u32; BUCKETS],
    /// A bit for each bucket. Invariant: set where the list is not empty.
    taken: [u64; WORDS],
    /// A bit for each word of `taken`. Invariant: set where the word is not 0.
    taken_words: u16,
    /// For each place, the one behind it in its list, or [`IDLE`].
    next: Vec<u32>,
    /// What is left of the bucket that fires.
    firing: u32,
    /// The first tick that has not been fired.
    next_tick: u64,
    armed: usize,
    named_by: PhantomData<fn() -> I>,
}

impl<I: Id, const TICK: u64> Wheel<I, TICK> {
    /// Bytes that one place takes.
    pub(crate) const ENTRY_BYTES: usize = size_of::<u32>();

    /// A wheel for `places` places, that starts at `now`.
    pub(crate) fn new(places: usize, now: u64) -> Self {
        Self {
            heads: [END; BUCKETS],
            taken: [0; WORDS],
            taken_words: 0,
            next: Vec::with_capacity(places),
            firing: END,
            next_tick: now / TICK,
            armed: 0,
            named_by: PhantomData,
        }
    }

    /// Wakes `place` at `deadline`, or at the horizon if that is sooner. Never in the tick being
    /// fired. A place that is armed already stays as it is.
    #[inline]
    pub(crate) fn arm(&mut self, place: I, deadline: u64) {
        let at = place.index();
        if at >= self.next.len() {
            self.next.resize(at + 1, IDLE);
        }
        if self.next[at] != IDLE {
            return;
        }
        let last = self.next_tick + BUCKETS as u64 - 2;
        let tick = deadline.div_ceil(TICK).clamp(self.next_tick, last);
        let bucket = tick as usize % BUCKETS;
        self.next[at] = std::mem::replace(&mut self.heads[bucket], at as u32);
        self.taken[bucket / WORD_BITS] |= 1 << (bucket % WORD_BITS);
        self.taken_words |= 1 << (bucket / WORD_BITS);
        self.armed += 1;
    }

    /// Arms one of very many that are armed together. Where its deadline lies beyond the horizon,
    /// it wakes at some moment before that: all of them at the same one would be a pause.
    pub(crate) fn arm_among_many(&mut self, place: I, deadline: u64) {
        let horizon = BUCKETS as u64 - 2;
        let is_far = deadline.div_ceil(TICK) > self.next_tick + horizon;
        let tick = self.next_tick + 1 + place.index() as u64 % horizon;
        self.arm(place, if is_far { tick * TICK } else { deadline });
    }

    /// Starts at another moment, as long as nothing is armed.
    pub(crate) fn start_at(&mut self, now: u64) {
        if self.armed == 0 {
            self.next_tick = self.next_tick.max(now / TICK);
        }
    }

    /// How many places were ever armed, from the first on.
    pub(crate) fn places(&self) -> usize {
        self.next.len()
    }

    /// Whether a place is armed.
    pub(crate) fn is_armed(&self, place: I) -> bool {
        self.next.get(place.index()).is_some_and(|next| *next != IDLE)
    }

    /// The next place that is due at `now`. Its entry is spent; it may be armed again at once.
    ///
    /// Empty buckets are passed over, and after a jump of the clock each bucket is visited once at
    /// most.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<I> {
        if self.firing == END && (now < self.next_tick * TICK || !self.begin_bucket(now / TICK)) {
            return None;
        }
        let at = self.firing as usize;
        self.firing = std::mem::replace(&mut self.next[at], IDLE);
        self.armed -= 1;
        Some(I::at(at))
    }

    /// Takes the next bucket that is due and not empty.
    fn begin_bucket(&mut self, now_tick: u64) -> bool {
        if self.armed == 0 {
            self.next_tick = self.next_tick.max(now_tick + 1);
            return false;
        }
        if now_tick > self.next_tick + BUCKETS as u64 {
            self.next_tick = now_tick - BUCKETS as u64 + 1;
        }
        while self.next_tick <= now_tick && self.firing == END {
            let bucket = self.next_tick as usize % BUCKETS;
            self.firing = std::mem::replace(&mut self.heads[bucket], END);
            let word = bucket / WORD_BITS;
            self.taken[word] &= !(1 << (bucket % WORD_BITS));
            self.taken_words &= !(u16::from(self.taken[word] == 0) << word);
            self.next_tick += 1;
        }
        self.firing != END
    }

    /// When the next non-empty bucket is due, to know how long a worker may sleep. Asked twice in
    /// every turn, so it is found among bits, and without a loop.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.taken_words == 0 {
            return None;
        }
        let at = self.next_tick as usize % BUCKETS;
        let first = at / WORD_BITS;
        let ahead = self.taken[first] & (u64::MAX << (at % WORD_BITS));
        let (word, bits) = if ahead != 0 {
            (first, ahead)
        } else {
            // Once round: what the first word has besides lies behind, and so comes last.
            let steps = self.taken_words.rotate_right(first as u32 + 1).trailing_zeros();
            let word = (first + 1 + steps as usize) % WORDS;
            (word, self.taken[word])
        };
        let bucket = word * WORD_BITS + bits.trailing_zeros() as usize;
        let ticks = (bucket + BUCKETS - at) % BUCKETS;
        Some((self.next_tick + ticks as u64) * TICK)
    }
}

/// Behind the last place of a list.
const END: u32 = u32::MAX;

/// In no list.
const IDLE: u32 = u32::MAX - 1;

/// The tick of sessions. Keep-alives are due every 100 ms, and players do not notice 4 ms more.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// About four seconds of a session's ticks: a session that has nothing due is looked at so often. A
/// power of two for the modulo.
const BUCKETS: usize = 1024;

const WORD_BITS: usize = u64::BITS as usize;

/// As many as a word of bits over them has.
const WORDS: usize = BUCKETS / WORD_BITS;
const _: () = assert!(WORDS == u16::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::Entry;
    use proptest::prelude::*;

    type Wheel = crate::store::wheel::Wheel<Entry<()>, TICK_NS>;

    fn fire(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_due(now_ns)).map(Entry::number).collect()
    }

    #[test]
    fn fires_in_order_not_before_the_deadline_and_within_a_tick_after() {
        let mut wheel = Wheel::new(0, 0);
        for ms in [500, 3, 100, 101, 7] {
            wheel.arm(Entry::numbered(ms), u64::from(ms) * 1_000_000);
        }
        let mut fired = Vec::new();
        for now_ms in 0..600u64 {
            for place in fire(&mut wheel, now_ms * 1_000_000) {
                assert!(now_ms >= u64::from(place), "{place} fired at {now_ms}");
                assert!(now_ms - u64::from(place) <= 4, "{place} fired at {now_ms}");
                fired.push(place);
            }
        }
        assert_eq!(fired.len(), 5);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn a_far_deadline_fires_at_the_horizon() {
        let mut wheel = Wheel::new(0, 0);
        wheel.arm(Entry::numbered(1), u64::MAX / 2);
        let due = wheel.next_due().expect("armed");
        assert!(due <= BUCKETS as u64 * TICK_NS);
        assert_eq!(fire(&mut wheel, due), [1]);
    }

    #[test]
    fn a_jump_of_the_clock_fires_everything_once() {
        let mut wheel = Wheel::new(0, 0);
        (0..500).for_each(|place| wheel.arm(Entry::numbered(place), u64::from(place) * 2_000_000));
        let mut fired = fire(&mut wheel, 86_400_000_000_000);
        fired.sort_unstable();
        assert_eq!(fired, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_armed_while_firing_waits_for_the_next_tick() {
        let mut wheel = Wheel::new(0, 0);
        (1..4).for_each(|place| wheel.arm(Entry::numbered(place), 0));
        let mut fired = 0;
        while let Some(place) = wheel.pop_due(0) {
            wheel.arm(place, 0);
            fired += 1;
        }
        assert_eq!(fired, 3);
        assert_eq!(fire(&mut wheel, TICK_NS).len(), 3);
    }

    proptest! {
        #[test]
        fn knows_what_is_due_next(
            start in 0u64..10_000,
            ahead in prop::collection::vec(0u64..2 * BUCKETS as u64, 0..5),
        ) {
            let mut wheel = Wheel::new(0, start * TICK_NS);
            for (place, ticks) in (0..).zip(&ahead) {
                wheel.arm(Entry::numbered(place), (start + ticks) * TICK_NS);
            }
            let soonest = ahead.iter().min().map(|ticks| start + ticks.min(&(BUCKETS as u64 - 2)));
            prop_assert_eq!(wheel.next_due(), soonest.map(|tick| tick * TICK_NS));
        }
    }

    #[test]
    fn many_far_deadlines_wake_one_after_the_other() {
        let mut wheel = Wheel::new(0, 0);
        let (places, start_ns) = (10 * BUCKETS as u32, 7_000 * TICK_NS);
        wheel.start_at(start_ns);
        (0..places).for_each(|place| wheel.arm_among_many(Entry::numbered(place), u64::MAX / 2));
        wheel.arm_among_many(Entry::numbered(places), start_ns + 3 * TICK_NS);
        let mut woken = 0;
        for tick in 0..BUCKETS as u64 {
            let fired = fire(&mut wheel, start_ns + tick * TICK_NS);
            assert!(fired.len() <= 12, "{} at once", fired.len());
            assert_eq!(fired.contains(&places), tick == 3);
            woken += fired.len();
        }
        assert_eq!(woken, places as usize + 1);
    }

    #[test]
    fn a_place_is_armed_once() {
        let mut wheel = Wheel::new(0, 0);
        wheel.arm(Entry::numbered(7), 8_000_000);
        wheel.arm(Entry::numbered(7), 100_000_000);
        assert_eq!(fire(&mut wheel, 8_000_000), [7]);
        assert!(fire(&mut wheel, 1_000_000_000).is_empty());
    }
}
