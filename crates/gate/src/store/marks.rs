//! A bit for each place of a table: those that have changed since somebody has looked.

use std::ops::Range;

/// Marked places. It has bits for as many as were ever marked.
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// For so many places, of which none is marked.
    pub(crate) fn new(places: usize) -> Self {
        Self(Vec::with_capacity(places.div_ceil(WORD_BITS)))
    }

    /// Marks a place.
    pub(crate) fn mark(&mut self, place: usize) {
        let (word, bit) = bit_of(place);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    /// Marks the first so many places, and perhaps some behind them.
    pub(crate) fn mark_first(&mut self, places: usize) {
        self.0.clear();
        self.0.resize(places.div_ceil(WORD_BITS), u64::MAX);
    }

    /// Takes the mark of a place away.
    pub(crate) fn clear(&mut self, place: usize) {
        let (word, bit) = bit_of(place);
        if let Some(bits) = self.0.get_mut(word) {
            *bits &= !bit;
        }
    }

    /// The first marked place among some.
    pub(crate) fn first_in(&self, places: Range<usize>) -> Option<usize> {
        let (first, _) = bit_of(places.start);
        let mut asked = u64::MAX << (places.start % WORD_BITS);
        for (word, bits) in self.0.iter().enumerate().skip(first) {
            let marked = bits & std::mem::replace(&mut asked, u64::MAX);
            let place = word * WORD_BITS + marked.trailing_zeros() as usize;
            if place >= places.end {
                return None;
            }
            if marked != 0 {
                return Some(place);
            }
        }
        None
    }
}

const fn bit_of(place: usize) -> (usize, u64) {
    (place / WORD_BITS, 1 << (place % WORD_BITS))
}

const WORD_BITS: usize = u64::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            steps in prop::collection::vec((0usize..300, any::<bool>()), 0..60),
            asked in prop::collection::vec((0usize..400, 0usize..400), 1..20),
        ) {
            let (mut marks, mut set) = (Marks::new(100), BTreeSet::new());
            for (place, is_marked) in steps {
                if is_marked {
                    marks.mark(place);
                    set.insert(place);
                } else {
                    marks.clear(place);
                    set.remove(&place);
                }
            }
            for (start, len) in asked {
                let places = start..start + len;
                prop_assert_eq!(marks.first_in(places.clone()), set.range(places).next().copied());
            }
        }
    }

    #[test]
    fn all_can_be_marked_at_once() {
        let mut marks = Marks::new(100);
        marks.mark_first(65);
        for place in 0..65 {
            assert_eq!(marks.first_in(0..65), Some(place));
            marks.clear(place);
        }
        assert_eq!(marks.first_in(0..65), None);
    }
}
