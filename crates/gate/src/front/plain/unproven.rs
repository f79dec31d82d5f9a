//! The places of those who have proven nothing: half-open sessions, and sources that are barred.
//!
//! A ring of as many as there may be. Whoever begins takes the next place, and who has it still is
//! the one that began first, and goes. So a flood costs the same for each of its datagrams however
//! long it lasts, and finds room without a look at the others.

use crate::store::table::Place;

pub(crate) struct Unproven {
    /// Some may have ended or opened since.
    begun: Vec<Option<Place>>,
    next: usize,
}

impl Unproven {
    /// For at most so many.
    pub(crate) fn new(max: u32) -> Self {
        Self { begun: vec![None; max.max(1) as usize], next: 0 }
    }

    /// Sets how many there may be. Returns those for whom there is no place any more.
    pub(crate) fn resize(&mut self, max: u32) -> Vec<Place> {
        let max = max.max(1) as usize;
        if max == self.begun.len() {
            return Vec::new();
        }
        // The one that began first comes first.
        self.begun.rotate_left(self.next);
        let lost = self.begun.len().saturating_sub(max);
        let lost: Vec<_> = self.begun.drain(..lost).flatten().collect();
        self.next = self.begun.len() % max;
        self.begun.resize(max, None);
        lost
    }

    /// Forgets all of them. Returns whether there were any, who may have ended or opened since.
    pub(crate) fn clear(&mut self) -> bool {
        self.next = 0;
        self.begun.iter_mut().filter_map(Option::take).count() > 0
    }

    /// Gives the next place to one who begins. Returns who had it, and may be there still.
    pub(crate) fn enter(&mut self, newcomer: Place) -> Option<Place> {
        let before = self.begun[self.next].replace(newcomer);
        self.next = (self.next + 1) % self.begun.len();
        before
    }
}

ringgate_core::carried!(Unproven { begun, next } if |it| it.next < it.begun.len(), "ring");

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u32) -> Place {
        Place { index, generation: 1 }
    }

    #[test]
    fn who_began_first_makes_room_also_after_a_change_of_size() {
        let mut unproven = Unproven::new(3);
        assert_eq!(
            (0..5).map(|at| unproven.enter(place(at))).collect::<Vec<_>>(),
            [None, None, None, Some(place(0)), Some(place(1))]
        );
        assert_eq!(unproven.resize(2), [place(2)]);
        assert_eq!(unproven.enter(place(5)), Some(place(3)));
        assert_eq!(unproven.resize(4), []);
        assert_eq!([6, 7, 8].map(|at| unproven.enter(place(at))), [None, None, Some(place(4))]);
    }
}
