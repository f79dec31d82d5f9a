//! Which member stands by for a session, and how long it asks the session's owner before it claims.

use ringgate_core::splitmix;

use crate::number::Incarnation;
use crate::question::{SessionId, Wake};

/// The member that stands by for a session: the one with the largest number that follows from both.
/// So members that come and go change little, and no owner has to remember its standby.
pub fn appoint(
    session: SessionId,
    owner: Incarnation,
    members: impl IntoIterator<Item = Incarnation>,
) -> Option<Incarnation> {
    let others = members.into_iter().filter(|member| *member != owner);
    others.max_by_key(|member| (weight(session, *member), *member))
}

fn weight(SessionId(session): SessionId, Incarnation(member): Incarnation) -> u64 {
    let session = u128::from_le_bytes(session);
    let session = session as u64 ^ (session >> 64) as u64;
    splitmix::mixed(session ^ splitmix::mixed(member.into()))
}

/// A standby that has a packet of a session's player asks the session's owner. An owner that does
/// not answer may be claimed over; that it was alive after all does no harm, and costs a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderQuestions {
    asked: u32,
    next_ns: u64,
    wake: Wake,
}

/// What a standby does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Asks once more.
    Ask,
    /// Claims the session.
    Claim,
    /// Waits.
    Wait,
}

impl HolderQuestions {
    /// Begins to ask.
    pub const fn new(now_ns: u64, wake: Wake) -> Self {
        Self { asked: 0, next_ns: now_ns, wake }
    }

    /// What is to be done now. A standby that has slept begins anew: the answers may lie in its
    /// sockets.
    pub fn poll(&mut self, now_ns: u64, wake: Wake) -> Next {
        if wake != self.wake {
            *self = Self::new(now_ns, wake);
        }
        if now_ns < self.next_ns {
            return Next::Wait;
        }
        if self.asked == QUESTIONS {
            return Next::Claim;
        }
        self.asked += 1;
        self.next_ns = now_ns + QUESTION_APART_NS;
        Next::Ask
    }
}

const QUESTIONS: u32 = 3;
const QUESTION_APART_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> impl Iterator<Item = SessionId> {
        let mut state = 5;
        let mut half = move || splitmix::next(&mut state).to_le_bytes();
        (0..6000).map(move |_| SessionId([half(), half()].concat().try_into().expect("16 bytes")))
    }

    fn members(count: u16) -> impl Iterator<Item = Incarnation> {
        (1..=count).map(Incarnation)
    }

    #[test]
    fn sessions_of_an_owner_have_all_others_as_standbys() {
        let mut counts = [0; 5];
        for session in sessions() {
            let standby = appoint(session, Incarnation(2), members(4)).expect("there are others");
            counts[usize::from(standby.0)] += 1;
        }
        assert!(counts[2] == 0 && [1, 3, 4].iter().all(|it| counts[*it] > 1800), "{counts:?}");
        let nobody = appoint(SessionId([0; 16]), Incarnation(1), members(1));
        assert_eq!(nobody, None);
    }

    #[test]
    fn one_more_member_becomes_standby_of_its_share_and_changes_nothing_else() {
        let of = |session, count| appoint(session, Incarnation(1), members(count));
        let changed: Vec<_> =
            sessions().filter(|it| of(*it, 4) != of(*it, 5)).map(|it| of(it, 5)).collect();
        assert!(changed.iter().all(|standby| *standby == Some(Incarnation(5))));
        assert!((1300..1700).contains(&changed.len()), "{}", changed.len());
    }

    #[test]
    fn an_owner_is_asked_three_times_before_a_claim() {
        let mut questions = HolderQuestions::new(100, Wake(0));
        let mut at = |ms: u64, wake| questions.poll(100 + ms * 1_000_000, Wake(wake));
        assert_eq!(
            [at(0, 0), at(1, 0), at(50, 0), at(100, 0)].map(|it| it == Next::Ask),
            [true, false, true, true]
        );
        assert_eq!((at(149, 0), at(150, 0)), (Next::Wait, Next::Claim));
        assert_eq!((at(900, 1), at(901, 1)), (Next::Ask, Next::Wait), "it has slept");
    }
}
