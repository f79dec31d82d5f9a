//! Which players are due: by the wheel's ticks, or each at its own nanosecond.
//!
//! The exact schedule keeps the wheel for what is far away and puts the players of a tick into a
//! heap when the tick begins, so that a hundred thousand players cost no more than before, and only
//! the few who are due within a tick are kept in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::wheel::{TICK_NS, Wheel, tick_of};

/// Players by the moment they are due at. Each has at most one.
#[derive(Debug)]
pub(super) struct Schedule {
    wheel: Wheel,
    exact: Option<Exact>,
}

/// What an exact schedule knows beyond the wheel.
#[derive(Debug, Default)]
struct Exact {
    /// When each player is due; `NOT_DUE` where it is not.
    due_ns: Vec<u64>,
    /// Players of the ticks that have begun. Those who were given another moment since are stale.
    near: BinaryHeap<Reverse<(u64, u32)>>,
    /// The latest moment that was asked for.
    now_ns: u64,
    begun: Vec<u32>,
}

impl Schedule {
    /// No player is due.
    pub(super) fn new(is_exact: bool) -> Self {
        Self { wheel: Wheel::new(0), exact: is_exact.then(Exact::default) }
    }

    /// Makes a player due at a moment. Replaces what was said before.
    pub(super) fn schedule(&mut self, player: u32, due_ns: u64) {
        let Some(exact) = &mut self.exact else {
            return self.wheel.schedule(player, tick_of(due_ns));
        };
        exact.note(player, due_ns);
        let tick = due_ns / TICK_NS;
        if tick < self.wheel.taken_to() {
            self.wheel.cancel(player);
            exact.near.push(Reverse((due_ns, player)));
        } else {
            self.wheel.schedule(player, tick);
        }
    }

    /// Makes a player due as soon as possible.
    pub(super) fn at_once(&mut self, player: u32) {
        let now_ns = self.exact.as_ref().map_or(0, |exact| exact.now_ns);
        self.schedule(player, now_ns);
    }

    /// Makes a player due never.
    pub(super) fn cancel(&mut self, player: u32) {
        if let Some(exact) = &mut self.exact {
            exact.note(player, NOT_DUE);
        }
        self.wheel.cancel(player);
    }

    /// Takes the players that are due by now, at most `max` of them, in the order in which they are
    /// due where that is known.
    pub(super) fn take_due(&mut self, now_ns: u64, max: usize, due: &mut Vec<u32>) {
        let Some(exact) = &mut self.exact else {
            return self.wheel.take_due(now_ns / TICK_NS, max, due);
        };
        exact.now_ns = now_ns;
        if self.wheel.taken_to() <= now_ns / TICK_NS {
            self.wheel.take_due(now_ns / TICK_NS, usize::MAX, &mut exact.begun);
            let begun = exact.begun.drain(..);
            let moments = begun.map(|player| Reverse((exact.due_ns[player as usize], player)));
            exact.near.extend(moments);
        }
        due.clear();
        while due.len() < max
            && let Some(&Reverse((due_ns, player))) = exact.near.peek()
            && due_ns <= now_ns
        {
            exact.near.pop();
            let known_ns = &mut exact.due_ns[player as usize];
            if *known_ns == due_ns {
                *known_ns = NOT_DUE;
                due.push(player);
            }
        }
    }

    /// The first moment at which a player may be due, or a tick begins in which one is.
    pub(super) fn next_ns(&self) -> u64 {
        let near = self.exact.as_ref().and_then(|exact| exact.near.peek());
        let near_ns = near.map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
        near_ns.min(self.wheel.next_tick().saturating_mul(TICK_NS))
    }
}

impl Exact {
    fn note(&mut self, player: u32, due_ns: u64) {
        let index = player as usize;
        if index >= self.due_ns.len() {
            self.due_ns.resize(index + 1, NOT_DUE);
        }
        self.due_ns[index] = due_ns;
    }
}

const NOT_DUE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn an_exact_schedule_takes_exactly_what_an_ordered_map_would_and_in_order() {
        let mut rng = Rng::new(4);
        let mut schedule = Schedule::new(true);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut now, mut due) = (0, Vec::new());
        for _ in 0..30_000 {
            let player = rng.below(300) as u32;
            match rng.below(5) {
                0 => {
                    schedule.cancel(player);
                    model.remove(&player);
                }
                1 | 2 => {
                    let far = if rng.percent(5.0) { 5_000_000_000 } else { 3 * TICK_NS };
                    let due_ns = (now + rng.below(far)).saturating_sub(rng.below(100));
                    schedule.schedule(player, due_ns);
                    model.insert(player, due_ns);
                }
                3 => {
                    schedule.at_once(player);
                    model.insert(player, now);
                }
                _ => {
                    let most = if rng.percent(1.0) { 8_000_000_000 } else { 2 * TICK_NS };
                    now += rng.below(most);
                    let mut last = 0;
                    loop {
                        schedule.take_due(now, 3, &mut due);
                        for player in &due {
                            let due_ns = model.remove(player).expect("scheduled");
                            assert!(due_ns <= now && due_ns >= last, "{last} {due_ns} {now}");
                            last = due_ns;
                        }
                        if due.len() < 3 {
                            break;
                        }
                    }
                    assert!(model.values().all(|due_ns| *due_ns > now));
                    if let Some(&first) = model.values().min() {
                        assert!(schedule.next_ns() <= first);
                    }
                }
            }
        }
    }

    #[test]
    fn the_next_moment_is_exact_once_its_tick_has_begun() {
        let mut schedule = Schedule::new(true);
        let mut due = Vec::new();
        schedule.schedule(1, 5 * TICK_NS + 77);
        assert_eq!(schedule.next_ns(), 5 * TICK_NS);
        schedule.take_due(5 * TICK_NS, 1, &mut due);
        assert!(due.is_empty());
        assert_eq!(schedule.next_ns(), 5 * TICK_NS + 77);
        schedule.take_due(5 * TICK_NS + 77, 1, &mut due);
        assert_eq!(due, [1]);
    }

    #[test]
    fn ticks_round_up_and_take_all_of_a_tick_together() {
        let mut schedule = Schedule::new(false);
        let mut due = Vec::new();
        for player in 0..4 {
            schedule.schedule(player, TICK_NS + 1 + u64::from(player));
        }
        assert_eq!(schedule.next_ns(), 2 * TICK_NS);
        schedule.take_due(2 * TICK_NS - 1, 9, &mut due);
        assert!(due.is_empty());
        schedule.take_due(2 * TICK_NS, 9, &mut due);
        assert_eq!(due.len(), 4);
    }
}
