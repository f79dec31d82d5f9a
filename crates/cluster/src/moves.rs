//! When a session moves after its player: not for one packet that a router has sent another way,
//! but when it sends all of them there.

/// By which ways a session's packets come to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves<Member> {
    by: Option<Member>,
    in_a_row: u32,
    since_ns: u64,
    not_before_ns: u64,
}

impl<Member: Copy + PartialEq> Moves<Member> {
    /// Of a session that has just begun here, or has just moved here.
    pub const fn new(now_ns: u64) -> Self {
        Self { by: None, in_a_row: 0, since_ns: now_ns, not_before_ns: now_ns + STAY_NS }
    }

    /// Whether that is so soon after it began here, or was to move.
    pub const fn has_just_begun(&self, now_ns: u64) -> bool {
        now_ns < self.not_before_ns
    }

    /// A packet was newer than all before, and came by another member, or by this gateway's own
    /// door. Returns where the session should be.
    pub fn note_newest(&mut self, by: Option<Member>, now_ns: u64) -> Option<Member> {
        if by != self.by {
            (self.by, self.in_a_row, self.since_ns) = (by, 0, now_ns);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let is_steady = self.in_a_row >= IN_A_ROW && now_ns >= self.since_ns + STEADY_NS;
        by.filter(|_| is_steady && now_ns >= self.not_before_ns)
    }
}

const IN_A_ROW: u32 = 8;
const STEADY_NS: u64 = 300_000_000;
/// A router that changes its mind all the time has sessions forwarded, not moved.
const STAY_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Incarnation;

    const MS: u64 = 1_000_000;
    const B: Incarnation = Incarnation(2);
    const C: Incarnation = Incarnation(3);

    fn told(ways: impl IntoIterator<Item = (u64, Option<Incarnation>)>) -> Vec<(u64, Incarnation)> {
        let mut moves = Moves::new(0);
        let mut told = Vec::new();
        for (ms, by) in ways {
            told.extend(moves.note_newest(by, ms * MS).map(|to| (ms, to)));
        }
        told
    }

    #[test]
    fn a_session_moves_where_all_its_packets_come_from() {
        let ways = (0..8).map(|it| (5000 + it * 50, Some(B)));
        assert_eq!(told(ways), [(5350, B)]);
        let quick = (0..20).map(|it| (5000 + it * 10, Some(B)));
        assert_eq!(told(quick), []);
        let few = (0..7).map(|it| (5000 + it * 500, Some(B)));
        assert_eq!(told(few), []);
    }

    #[test]
    fn a_session_stays_while_any_packet_comes_another_way() {
        let own = (0..100).map(|it| (5000 + it * 50, (it % 8 != 7).then_some(B)));
        assert_eq!(told(own), []);
        let other = (0..100).map(|it| (5000 + it * 50, Some(if it % 8 == 7 { C } else { B })));
        assert_eq!(told(other), []);
    }

    #[test]
    fn a_session_that_has_moved_stays_for_two_seconds() {
        let ways = (0..50).map(|it| (it * 50, Some(B)));
        assert_eq!(told(ways).first(), Some(&(2000, B)));
    }
}
