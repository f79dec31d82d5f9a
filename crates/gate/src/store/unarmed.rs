//! Places of a table that was taken over from another process, and whose timers are still to be
//! armed: some in each turn, because all of them at once would be a pause. Who is not armed yet is
//! looked after a little later than it should be.

use std::ops::Range;

/// Which places are left.
pub(crate) struct Unarmed(Range<u32>);

impl Unarmed {
    /// Of a table that was not taken over.
    pub(crate) const NONE: Self = Self(0..0);

    /// All of so many.
    pub(crate) const fn all(places: u32) -> Self {
        Self(0..places)
    }

    /// The next few, of which somebody lives at some.
    pub(crate) fn take_some(&mut self) -> Range<u32> {
        let Range { start, end } = self.0;
        self.0.start = end.min(start.saturating_add(AT_ONCE));
        start..self.0.start
    }

    /// When to take the next ones; `u64::MAX` where none are left.
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        if self.0.is_empty() { u64::MAX } else { 0 }
    }
}

/// Some tens of microseconds in a turn.
const AT_ONCE: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_comes_once_and_then_nothing_is_due() {
        let places = 2 * AT_ONCE + 7;
        let mut unarmed = Unarmed::all(places);
        let mut seen = Vec::new();
        while unarmed.due_ns() == 0 {
            let some = unarmed.take_some();
            assert!(some.len() <= AT_ONCE as usize);
            seen.extend(some);
        }
        assert_eq!(seen, (0..places).collect::<Vec<_>>());
        assert!(unarmed.take_some().is_empty() && Unarmed::NONE.due_ns() == u64::MAX);
    }
}
