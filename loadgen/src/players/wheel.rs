//! When each player is due next: a timing wheel with one place for each player.
//!
//! A hundred thousand players at 30 Hz are three million changes a second, so scheduling and
//! unscheduling cost a few writes each and nothing is allocated. Time runs in ticks of 131 µs, and
//! the open loop's intended times are whole ticks: nothing is sent late because the wheel is
//! coarse, and what is due together leaves in one batch. What is due beyond one round (2.15 s)
//! waits in its slot for the round to come; a bitmap of the slots in use finds the next one without
//! walking.

/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 1 << TICK_SHIFT;

/// The tick in which a moment lies, rounded up: nothing is due early.
#[inline]
pub(crate) const fn tick_of(ns: u64) -> u64 {
    ns.div_ceil(TICK_NS)
}

/// Players by the tick they are due at.
#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Box<[u32]>,
    used: Box<[u64]>,
    places: Vec<Place>,
    /// Everything due before this tick has been taken.
    next_tick: u64,
}

/// A player's place in the list of its slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    prev: u32,
    next: u32,
    /// `NOT_DUE` where the player is in no list.
    tick: u64,
}

impl Wheel {
    /// An empty wheel that starts at a moment.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            heads: vec![NONE; SLOTS].into_boxed_slice(),
            used: vec![0; SLOTS / 64].into_boxed_slice(),
            places: Vec::new(),
            next_tick: now_ns / TICK_NS,
        }
    }

    /// Makes the player due at a tick, or as soon as possible where that has passed. Replaces what
    /// was said before.
    pub(crate) fn schedule(&mut self, player: u32, tick: u64) {
        let index = player as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, Place { prev: NONE, next: NONE, tick: NOT_DUE });
        }
        self.cancel(player);
        let tick = tick.max(self.next_tick);
        let slot = slot_of(tick);
        let head = self.heads[slot];
        self.places[index] = Place { prev: NONE, next: head, tick };
        if head != NONE {
            self.places[head as usize].prev = player;
        }
        self.heads[slot] = player;
        self.used[slot / 64] |= 1 << (slot % 64);
    }

    /// Makes the player due never.
    pub(crate) fn cancel(&mut self, player: u32) {
        let Some(&Place { prev, next, tick }) = self.places.get(player as usize) else { return };
        if tick == NOT_DUE {
            return;
        }
        let slot = slot_of(tick);
        if prev == NONE {
            self.heads[slot] = next;
            if next == NONE {
                self.used[slot / 64] &= !(1 << (slot % 64));
            }
        } else {
            self.places[prev as usize].next = next;
        }
        if next != NONE {
            self.places[next as usize].prev = prev;
        }
        self.places[player as usize].tick = NOT_DUE;
    }

    /// Takes the players that are due at `now_tick` or before, at most `max` of them, off the
    /// wheel. Those who are left come with the next call.
    pub(crate) fn take_due(&mut self, now_tick: u64, max: usize, due: &mut Vec<u32>) {
        due.clear();
        // After more than a round of silence one round visits every slot.
        let mut tick = self.next_tick.max((now_tick + 1).saturating_sub(SLOTS as u64));
        while tick <= now_tick {
            let slot = slot_of(tick);
            if self.used[slot / 64] >> (slot % 64) == 0 {
                tick += 64 - (slot % 64) as u64;
                continue;
            }
            let mut player = self.heads[slot];
            while player != NONE {
                let place = self.places[player as usize];
                if place.tick <= now_tick {
                    if due.len() == max {
                        self.next_tick = tick;
                        return;
                    }
                    self.cancel(player);
                    due.push(player);
                }
                player = place.next;
            }
            tick += 1;
        }
        self.next_tick = self.next_tick.max(now_tick + 1);
    }

    /// The first tick that has not been taken as a whole.
    pub(super) const fn taken_to(&self) -> u64 {
        self.next_tick
    }

    /// The first tick at which a player may be due: exact within a round, else the round's end.
    pub(crate) fn next_tick(&self) -> u64 {
        let first = slot_of(self.next_tick);
        for step in 0..=self.used.len() {
            let word = (first / 64 + step) % self.used.len();
            let mut bits = self.used[word];
            if step == 0 {
                bits &= u64::MAX << (first % 64);
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return self.next_tick + (slot.wrapping_sub(first) & (SLOTS - 1)) as u64;
            }
        }
        self.next_tick + SLOTS as u64
    }
}

const TICK_SHIFT: u32 = 17;
const SLOTS: usize = 1 << 14;
const NONE: u32 = u32::MAX;
const NOT_DUE: u64 = u64::MAX;

#[inline]
const fn slot_of(tick: u64) -> usize {
    tick as usize & (SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn takes_exactly_what_an_ordered_map_would() {
        let mut rng = Rng::new(9);
        let mut wheel = Wheel::new(0);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut now, mut due) = (0, Vec::new());
        for _ in 0..20_000 {
            let player = rng.below(300) as u32;
            match rng.below(4) {
                0 => {
                    wheel.cancel(player);
                    model.remove(&player);
                }
                1 | 2 => {
                    let far = if rng.percent(5.0) { 3 * SLOTS as u64 } else { 500 };
                    let tick = now + 1 + rng.below(far);
                    wheel.schedule(player, tick);
                    model.insert(player, tick);
                }
                _ => {
                    let most = if rng.percent(1.0) { 2 * SLOTS as u64 } else { 40 };
                    now += rng.below(most);
                    loop {
                        wheel.take_due(now, 7, &mut due);
                        for player in &due {
                            let tick = model.remove(player);
                            assert!(tick.is_some_and(|tick| tick <= now), "{player}: {tick:?}");
                        }
                        if due.len() < 7 {
                            break;
                        }
                    }
                    assert!(model.values().all(|tick| *tick > now));
                    if let Some(&first) = model.values().min() {
                        assert!(wheel.next_tick() <= first && wheel.next_tick() > now);
                    }
                }
            }
        }
    }

    #[test]
    fn the_next_tick_is_exact_within_a_round() {
        let mut wheel = Wheel::new(0);
        wheel.schedule(0, 900);
        wheel.schedule(1, 70);
        assert_eq!(wheel.next_tick(), 70);
        wheel.cancel(1);
        assert_eq!(wheel.next_tick(), 900);
    }

    #[test]
    fn moments_round_up_to_ticks() {
        assert_eq!((tick_of(0), tick_of(1), tick_of(TICK_NS)), (0, 1, 1));
    }
}
