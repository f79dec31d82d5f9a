//! Values that may occur only once.

use std::fmt::Debug;

use super::mistake::{Place, Report};

/// Remembers values with the place of their first occurrence.
pub(super) struct Distinct<T> {
    seen: Vec<(T, usize)>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { seen: Vec::new() }
    }
}

impl<T: PartialEq + Debug> Distinct<T> {
    /// Notes a mistake where `value` was seen before.
    pub(super) fn check(&mut self, report: &mut Report, place: &Place, value: T) {
        if let Some((_, first)) = self.seen.iter().find(|(seen, _)| *seen == value) {
            let line = report.line(*first);
            let expected = format_args!("it once (line {line} has it)");
            report.expected(place, format_args!("{value:?} again"), expected);
        } else {
            self.seen.push((value, place.at));
        }
    }
}
