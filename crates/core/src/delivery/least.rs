//! The least of what was seen lately: what a network does by itself, without what we add to it.

/// The least value of the last one or two periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    current: u64,
    previous: u64,
    since_ns: u64,
}

impl Least {
    pub(super) const NONE: Self = Self { current: u64::MAX, previous: u64::MAX, since_ns: 0 };

    pub(super) fn insert(&mut self, now_ns: u64, value: u64) {
        if now_ns.saturating_sub(self.since_ns) >= PERIOD_NS {
            (self.previous, self.current, self.since_ns) = (self.current, u64::MAX, now_ns);
        }
        self.current = self.current.min(value);
    }

    /// `None` before the first value.
    pub(super) fn value(&self) -> Option<u64> {
        Some(self.current.min(self.previous)).filter(|least| *least < u64::MAX)
    }
}

crate::carried!(
    Least { current, previous, since_ns as time }
    if |it| [it.current, it.previous].iter().all(|it| !(VALUE_MAX..u64::MAX).contains(it)),
    "least value"
);

/// No value that is seen is larger: it is far more than the longest round trip that is waited for.
const VALUE_MAX: u64 = 1 << 40;

/// A route that has become longer is believed after two of them.
const PERIOD_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_forgotten_after_two_periods() {
        let mut least = Least::NONE;
        assert_eq!(least.value(), None);
        least.insert(PERIOD_NS, 5);
        least.insert(PERIOD_NS + 1, 9);
        assert_eq!(least.value(), Some(5));
        least.insert(2 * PERIOD_NS, 8);
        assert_eq!(least.value(), Some(5));
        least.insert(3 * PERIOD_NS, 7);
        assert_eq!(least.value(), Some(7));
    }
}
