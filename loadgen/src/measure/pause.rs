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
    longest: Pause,
}

impl Listener {
    /// Something has come.
    #[inline]
    pub fn hear(&mut self, at_ns: u64) {
        let ns = at_ns.saturating_sub(self.heard_ns.unwrap_or(at_ns));
        if ns > self.longest.ns {
            self.longest = Pause { ns, until_ns: at_ns };
        }
        self.heard_ns = self.heard_ns.max(Some(at_ns));
    }

    /// From here to what comes next is no pause: nobody is there who would have to hear anything.
    #[inline]
    pub const fn skip(&mut self) {
        self.heard_ns = None;
    }

    /// The longest so far.
    pub const fn longest(&self) -> Pause {
        self.longest
    }
}

impl Pause {
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
        for at_ns in [1_000, 1_010, 1_050, 1_040, 1_060] {
            listener.hear(at_ns);
        }
        assert_eq!(listener.longest(), Pause { ns: 40, until_ns: 1_050 });
        listener.skip();
        listener.hear(9_000);
        listener.hear(9_030);
        assert_eq!(listener.longest().ns, 40);
        listener.hear(9_100);
        assert_eq!(listener.longest(), Pause { ns: 70, until_ns: 9_100 });
        assert_eq!(listener.longest().max(Pause::default()).ns, 70);
    }
}
