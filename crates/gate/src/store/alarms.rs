//! Alarms that move: like a [wheel](super::wheel), but an alarm that is set again takes the place
//! of the one before it, whether it is earlier or later.
//!
//! What a player's messages wait for changes with every packet: an acknowledgement is owed in five
//! milliseconds, then nothing for a second. So the lists are linked in both directions, and an
//! alarm can be taken out of the middle of one. It costs twelve bytes for each place that ever had
//! an alarm, and nothing where none has.

use std::marker::PhantomData;

use crate::ids::Id;

/// Alarms of many places that are named by `I`.
pub(crate) struct Alarms<I> {
    /// The first place of each bucket's list.
    heads: Box<[u32; BUCKETS]>,
    /// A bit for each bucket. Invariant: set where the list is not empty.
    taken: [u64; WORDS],
    places: Vec<Alarm>,
    /// The first tick that has not been fired.
    next_tick: u64,
    armed: usize,
    named_by: PhantomData<fn() -> I>,
}

#[derive(Clone, Copy)]
struct Alarm {
    before: u32,
    behind: u32,
    /// [`NONE`] where no alarm is set.
    bucket: u32,
}

impl<I: Id> Alarms<I> {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            heads: Box::new([NONE; BUCKETS]),
            taken: [0; WORDS],
            places: Vec::new(),
            next_tick: now_ns / TICK_NS,
            armed: 0,
            named_by: PhantomData,
        }
    }

    /// Wakes `place` at `deadline_ns`, or at the horizon if that is sooner, and not before.
    pub(crate) fn set(&mut self, place: I, deadline_ns: u64) {
        let at = place.index();
        if at >= self.places.len() {
            self.places.resize(at + 1, Alarm { before: NONE, behind: NONE, bucket: NONE });
        }
        let last = self.next_tick + BUCKETS as u64 - 2;
        let tick = deadline_ns.div_ceil(TICK_NS).clamp(self.next_tick, last);
        let bucket = (tick as usize % BUCKETS) as u32;
        if self.places[at].bucket == bucket {
            return;
        }
        self.clear(place);
        let head = std::mem::replace(&mut self.heads[bucket as usize], at as u32);
        self.places[at] = Alarm { before: NONE, behind: head, bucket };
        if head != NONE {
            self.places[head as usize].before = at as u32;
        }
        self.taken[bucket as usize / WORD_BITS] |= 1 << (bucket as usize % WORD_BITS);
        self.armed += 1;
    }

    /// Takes an alarm back.
    pub(crate) fn clear(&mut self, place: I) {
        let at = place.index();
        let Some(&Alarm { before, behind, bucket }) = self.places.get(at) else { return };
        if bucket == NONE {
            return;
        }
        self.places[at].bucket = NONE;
        if before == NONE {
            self.heads[bucket as usize] = behind;
        } else {
            self.places[before as usize].behind = behind;
        }
        if behind != NONE {
            self.places[behind as usize].before = before;
        }
        if self.heads[bucket as usize] == NONE {
            self.taken[bucket as usize / WORD_BITS] &= !(1 << (bucket as usize % WORD_BITS));
        }
        self.armed -= 1;
    }

    /// The next place that is due. Its alarm is spent.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<I> {
        let now_tick = now_ns / TICK_NS;
        if self.armed == 0 {
            self.next_tick = self.next_tick.max(now_tick);
            return None;
        }
        if now_tick > self.next_tick + BUCKETS as u64 {
            self.next_tick = now_tick - BUCKETS as u64 + 1;
        }
        while self.next_tick <= now_tick {
            let head = self.heads[self.next_tick as usize % BUCKETS];
            if head != NONE {
                let place = I::at(head as usize);
                self.clear(place);
                return Some(place);
            }
            if self.next_tick == now_tick {
                // More may be set for this very tick.
                return None;
            }
            self.next_tick += 1;
        }
        None
    }

    /// When the next alarm is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        let at = self.next_tick as usize % BUCKETS;
        let first = at / WORD_BITS;
        // The first word is looked at twice: its upper bits first, all of it last.
        (0..=WORDS).find_map(|step| {
            let word = (first + step) % WORDS;
            let above = if step == 0 { u64::MAX << (at % WORD_BITS) } else { u64::MAX };
            let bits = self.taken[word] & above;
            (bits != 0).then(|| {
                let bucket = word * WORD_BITS + bits.trailing_zeros() as usize;
                let ticks = (bucket + BUCKETS - at) % BUCKETS;
                (self.next_tick + ticks as u64) * TICK_NS
            })
        })
    }
}

/// In no list, or behind the last of one.
const NONE: u32 = u32::MAX;

/// Acknowledgements are owed for a few milliseconds.
const TICK_NS: u64 = 1_000_000;

/// A second: who has nothing to do is looked at so often.
const BUCKETS: usize = 1024;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = BUCKETS / WORD_BITS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::Entry;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn fire(alarms: &mut Alarms<Entry<()>>, now_ns: u64) -> Vec<u32> {
        let mut due: Vec<_> =
            std::iter::from_fn(|| alarms.pop_due(now_ns)).map(Entry::number).collect();
        due.sort_unstable();
        due
    }

    #[test]
    fn an_alarm_that_is_set_again_moves() {
        let (mut alarms, entry) = (Alarms::new(1000 * MS), Entry::numbered);
        for number in 0..4 {
            alarms.set(entry(number), 1010 * MS);
        }
        alarms.set(entry(2), 1002 * MS);
        alarms.set(entry(1), 1500 * MS);
        alarms.clear(entry(3));
        assert_eq!(alarms.next_due(), Some(1002 * MS));
        assert_eq!(fire(&mut alarms, 1002 * MS), [2]);
        assert_eq!(fire(&mut alarms, 1400 * MS), [0]);
        assert_eq!(fire(&mut alarms, 1500 * MS), [1]);
        assert_eq!((alarms.next_due(), fire(&mut alarms, 9000 * MS)), (None, vec![]));
        alarms.set(entry(3), 20_000 * MS);
        let horizon_ns = alarms.next_due().expect("one is set");
        assert!((9900 * MS..10_100 * MS).contains(&horizon_ns), "{horizon_ns}");
        assert_eq!(fire(&mut alarms, 60_000 * MS), [3]);
    }

    proptest! {
        #[test]
        fn alarms_fire_at_their_time_and_not_before(
            steps in prop::collection::vec((0_u32..8, 0_u64..900, 0_u64..40), 1..200),
        ) {
            let mut alarms = Alarms::<Entry<()>>::new(0);
            let (mut now, mut expected) = (0, [None; 8]);
            for (number, ahead, pass) in steps {
                alarms.set(Entry::numbered(number), (now + ahead) * MS);
                expected[number as usize] = Some(now + ahead);
                now += pass;
                let earliest = expected.iter().flatten().min().copied();
                prop_assert_eq!(alarms.next_due(), earliest.map(|at| at * MS));
                let due: Vec<_> = (0..8_u32)
                    .filter(|number| expected[*number as usize].is_some_and(|at| at <= now))
                    .collect();
                prop_assert_eq!(fire(&mut alarms, now * MS), due.clone());
                for number in due {
                    expected[number as usize] = None;
                }
            }
        }
    }
}
