//! Who has gone without a goodbye: pages go on to show it for a while, though nobody tells of it
//! any more. Its registration ends within seconds of its death, and alerts wait for longer.

use super::End;
use crate::protocol::control::Reason;

/// Of one that connects here, or that is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    is_lost: bool,
    /// Since when nobody tells of it.
    untold_ns: Option<u64>,
}

impl Missed {
    /// Its connection has ended.
    pub fn note_end(&mut self, end: &End) {
        let is_orderly = match end {
            End::Theirs(why) => *why == Reason::ShuttingDown,
            // The file has it no more, or it has taken back its registration before it went.
            End::Ours(why) => *why == Reason::UnknownAgent,
            End::Failed(_) => false,
        };
        self.is_lost = !is_orderly;
    }

    /// Whether it is shown while it is not connected.
    pub fn is_shown(&mut self, is_told: bool, now_ns: u64) -> bool {
        if is_told {
            self.untold_ns = None;
            return true;
        }
        let untold_ns = *self.untold_ns.get_or_insert(now_ns);
        self.is_lost && now_ns < untold_ns + SHOWN_NS
    }

    /// Whether it is shown and nothing else.
    pub const fn is_only_shown(&self) -> bool {
        self.untold_ns.is_some()
    }
}

/// Longer than an alert waits, and until somebody has looked.
const SHOWN_NS: u64 = 15 * 60 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: bool = true;
    const UNTOLD: bool = false;

    #[test]
    fn who_has_died_is_shown_for_minutes_after_its_registration_has_ended() {
        let mut dead = Missed::default();
        dead.note_end(&End::Ours(Reason::Silence));
        assert!(dead.is_shown(TOLD, 9 * SHOWN_NS) && !dead.is_only_shown());
        assert!(dead.is_shown(UNTOLD, 10 * SHOWN_NS) && dead.is_only_shown());
        assert!(dead.is_shown(UNTOLD, 11 * SHOWN_NS - 1));
        assert!(!dead.is_shown(UNTOLD, 11 * SHOWN_NS));
        // It is registered again before that.
        assert!(dead.is_shown(TOLD, 11 * SHOWN_NS) && dead.is_shown(UNTOLD, 12 * SHOWN_NS));
    }

    #[test]
    fn who_has_said_goodbye_or_was_never_there_is_shown_while_it_is_told_of() {
        let ends = [End::Theirs(Reason::ShuttingDown), End::Ours(Reason::UnknownAgent)];
        let mut gone = Missed::default();
        assert!(gone.is_shown(TOLD, 1) && !gone.is_shown(UNTOLD, 1));
        for end in ends {
            gone.note_end(&End::Ours(Reason::Silence));
            gone.note_end(&end);
            assert!(gone.is_shown(TOLD, 1) && !gone.is_shown(UNTOLD, 1));
        }
    }
}
