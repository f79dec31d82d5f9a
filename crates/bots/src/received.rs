//! What a session has received of what it sent: each payload once, twice, out of order, or not yet.

/// Remembers the last 128 payloads of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bit `i` stands for payload `latest - i`. Invariant: bit 0 is set once anything has come.
    bits: u128,
    latest: u32,
}

/// What a payload's counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Newer than everything before.
    InOrder,
    /// Overtaken by a newer one, but new.
    Reordered,
    /// Here before.
    Duplicate,
    /// Overtaken by 128 or more: whether it was here before is forgotten.
    Stale,
}

impl Arrival {
    /// Whether the same payload has been here before, as far as is remembered.
    pub const fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate)
    }
}

impl Received {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { bits: 0, latest: 0 }
    }

    /// The newest payload; 0 before there is any.
    pub const fn latest(&self) -> u32 {
        self.latest
    }

    /// Whether a payload has come, as far as is remembered.
    pub const fn has(&self, counter: u32) -> bool {
        if self.bits == 0 || counter > self.latest {
            return false;
        }
        let behind = self.latest - counter;
        behind < u128::BITS && self.bits >> behind & 1 == 1
    }

    /// Takes note of a payload.
    pub const fn note(&mut self, counter: u32) -> Arrival {
        if self.bits == 0 || counter > self.latest {
            let ahead = if self.bits == 0 { u32::MAX } else { counter - self.latest };
            self.bits = if ahead >= u128::BITS { 1 } else { self.bits << ahead | 1 };
            self.latest = counter;
            return Arrival::InOrder;
        }
        let behind = self.latest - counter;
        if behind >= u128::BITS {
            return Arrival::Stale;
        }
        if self.bits >> behind & 1 == 1 {
            return Arrival::Duplicate;
        }
        self.bits |= 1 << behind;
        Arrival::Reordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::splitmix;
    use std::collections::HashSet;

    #[test]
    fn agrees_with_a_memory_that_forgets_nothing() {
        let mut state = 3;
        let (mut received, mut all, mut latest) = (Received::default(), HashSet::new(), None);
        for step in 0..20_000_u32 {
            let counter = (step / 2).saturating_sub((splitmix::next(&mut state) % 160) as u32);
            let expected = match latest {
                Some(latest) if counter <= latest && latest - counter >= 128 => Arrival::Stale,
                _ if all.contains(&counter) => Arrival::Duplicate,
                Some(latest) if counter < latest => Arrival::Reordered,
                _ => Arrival::InOrder,
            };
            assert_eq!(received.note(counter), expected, "{counter} after {latest:?}");
            all.insert(counter);
            latest = latest.max(Some(counter));
        }
    }

    #[test]
    fn the_first_payload_may_have_any_number() {
        let mut received = Received::default();
        assert_eq!(received.note(1000), Arrival::InOrder);
        assert_eq!(received.note(999), Arrival::Reordered);
        assert_eq!(received.note(1000), Arrival::Duplicate);
        assert_eq!(received.note(10), Arrival::Stale);
        assert_eq!(received.note(u32::MAX), Arrival::InOrder);
    }
}
