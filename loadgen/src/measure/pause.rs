//! The longest pause: how long nothing came at all, while players played and nobody was to come or
//! go. It is what a gateway's standstill is to its players, whichever of them is asked.
//!
//! Moments are those at which the kernel had a datagram, so a generator that is late does not take
//! its own pauses for the gateway's.

use serde::{Deserialize, Serialize};

/// A time in which nothing came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// How long it was.
    pub ns: u64,
    /// When it ended, in nanoseconds of the run.
    pub until_ns: u64,
}

/// Listens for pauses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listener {
    heard_ns: Option<u64>,
    /// From here on nobody is there who would have to hear anything.
    ends_ns: Option<u64>,
    longest: Pause,
}

impl Listener {
    /// Something has come; whether somebody is there who would have to hear it.
    #[inline]
    pub fn hear(&mut self, at_ns: u64, is_heard: bool) {
        if self.ends_ns.is_some_and(|ends_ns| ends_ns <= at_ns) {
            *self = Self { longest: self.longest(), ..Self::default() };
        }
        if let Some(heard_ns) = self.heard_ns {
            self.longest = self.longest.max(Pause::between(heard_ns, at_ns));
        }
        if is_heard || self.heard_ns.is_some() {
            self.heard_ns = self.heard_ns.max(Some(at_ns));
        }
    }

    /// A pause that is on ends here: nobody is there any more who would have to hear anything. What
    /// came before may be heard later.
    #[inline]
    pub fn end(&mut self, at_ns: u64) {
        if self.heard_ns.is_some() {
            self.ends_ns.get_or_insert(at_ns);
        }
    }

    /// The longest so far.
    pub fn longest(&self) -> Pause {
        let open = self.heard_ns.zip(self.ends_ns);
        let open = open.map(|(heard_ns, ends_ns)| Pause::between(heard_ns, ends_ns));
        self.longest.max(open.unwrap_or_default())
    }
}

impl Pause {
    const fn between(from_ns: u64, until_ns: u64) -> Self {
        Self { ns: until_ns.saturating_sub(from_ns), until_ns }
    }

    /// The longer of two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.ns > self.ns { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_anything_is_kept_and_what_is_skipped_is_none() {
        let mut listener = Listener::default();
        listener.hear(200, false);
        for at_ns in [1_000, 1_010, 1_050, 1_040, 1_060] {
            listener.hear(at_ns, true);
        }
        assert_eq!(listener.longest(), Pause { ns: 40, until_ns: 1_050 });
        listener.end(1_120);
        listener.end(1_500);
        assert_eq!(listener.longest(), Pause { ns: 60, until_ns: 1_120 });
        listener.hear(1_090, false);
        assert_eq!(listener.longest().ns, 40, "it had come before, and was read late");
        listener.hear(1_200, false);
        listener.hear(9_000, true);
        listener.hear(9_030, true);
        assert_eq!(listener.longest().ns, 40);
        listener.hear(9_100, true);
        assert_eq!(listener.longest(), Pause { ns: 70, until_ns: 9_100 });
        assert_eq!(listener.longest().max(Pause::default()).ns, 70);
    }
}
