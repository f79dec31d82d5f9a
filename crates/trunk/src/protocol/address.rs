//! Whether a lane's other end has moved to an address from which something of it has come.
//!
//! A datagram that is authentic and newer than all before says no more than that its sender had it
//! first: whoever copies datagrams on their way can be quicker than they are. So both addresses
//! are asked, the new one and the one before, each with a number that nobody else can read. The new
//! one is taken if it answers and the one before does not, for as long as the answer of the new one
//! took and a little more. An agent behind a router that has forgotten its port is not reached at
//! the address before; one whose datagrams are copied is, and stays there.
//!
//! The first address of all has none before it. It leaves more time to the address where the stream
//! comes from: what comes from there meanwhile ends the trial.

/// How often an address is asked that has not answered.
pub const ASK_AGAIN_NS: u64 = 100_000_000;

/// An address that has not answered by then is not the other end's.
pub const ANSWER_WITHIN_NS: u64 = 1_000_000_000;

/// What the address before has more than the new one.
const GRACE_NS: u64 = 20_000_000;

/// What the stream's has: several datagrams of an agent, of which most may be lost.
const STREAM_GRACE_NS: u64 = 200_000_000;

/// What both addresses are asked.
#[derive(Debug)]
pub struct Trial {
    /// To the new address, and to the one before, where there is one.
    questions: (u64, Option<u64>),
    begun_ns: u64,
    asked_ns: Option<u64>,
    answered_ns: Option<u64>,
    is_reached_before: bool,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// That is to be seen.
    Open,
    /// The other end is at the new address.
    Moved,
    /// It is not there, or nobody can say so.
    Unproven,
}

impl Trial {
    /// One with two random numbers; the second is for the address before, where there is one.
    pub fn new(questions: (u64, Option<u64>), now_ns: u64) -> Self {
        Self {
            questions,
            begun_ns: now_ns,
            asked_ns: None,
            answered_ns: None,
            is_reached_before: false,
        }
    }

    /// What the new address and the one before are to be asked.
    pub const fn questions(&self) -> (u64, Option<u64>) {
        self.questions
    }

    /// Whether they are to be asked now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.asked_ns.is_none_or(|asked_ns| now_ns.saturating_sub(asked_ns) >= ASK_AGAIN_NS)
    }

    /// They were.
    pub const fn note_asked(&mut self, now_ns: u64) {
        self.asked_ns = Some(now_ns);
    }

    /// The other end has answered, wherever the answer came from.
    pub fn handle_answer(&mut self, answer: u64, now_ns: u64) {
        if answer == self.questions.0 {
            self.answered_ns.get_or_insert(now_ns);
        }
        self.is_reached_before |= Some(answer) == self.questions.1;
    }

    /// How it stands.
    pub fn verdict(&self, now_ns: u64) -> Verdict {
        let grace_ns = if self.questions.1.is_some() { GRACE_NS } else { STREAM_GRACE_NS };
        let waits_ns = |answered_ns: u64| (answered_ns - self.begun_ns).saturating_add(grace_ns);
        match self.answered_ns {
            _ if self.is_reached_before => Verdict::Unproven,
            Some(at_ns) if now_ns.saturating_sub(at_ns) >= waits_ns(at_ns) => Verdict::Moved,
            None if now_ns.saturating_sub(self.begun_ns) >= ANSWER_WITHIN_NS => Verdict::Unproven,
            _ => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_end_that_answers_where_it_is_and_not_where_it_was_has_moved() {
        let mut trial = Trial::new((1, Some(2)), 100 * MS);
        assert!(trial.is_due(100 * MS));
        trial.note_asked(100 * MS);
        assert!(!trial.is_due(199 * MS) && trial.is_due(200 * MS));
        trial.handle_answer(1, 130 * MS);
        trial.handle_answer(1, 170 * MS);
        assert_eq!(trial.verdict(179 * MS), Verdict::Open, "the one before may be slower");
        assert_eq!(trial.verdict(180 * MS), Verdict::Moved);
    }

    #[test]
    fn an_end_that_is_reached_where_it_was_stays_there() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut trial = Trial::new((1, Some(2)), 0);
            trial.handle_answer(first, 10 * MS);
            trial.handle_answer(second, 29 * MS);
            assert_eq!(trial.verdict(10_000 * MS), Verdict::Unproven, "whoever passes it on");
        }
    }

    #[test]
    fn an_address_that_does_not_answer_is_not_the_other_ends() {
        for before in [Some(2), None] {
            let mut trial = Trial::new((1, before), 0);
            trial.handle_answer(3, 10 * MS);
            assert_eq!(trial.verdict(ANSWER_WITHIN_NS - 1), Verdict::Open);
            assert_eq!(trial.verdict(ANSWER_WITHIN_NS), Verdict::Unproven);
        }
    }

    #[test]
    fn the_first_address_of_all_leaves_time_to_that_of_the_stream() {
        let mut trial = Trial::new((1, None), 0);
        trial.handle_answer(1, 10 * MS);
        assert_eq!(trial.verdict(219 * MS), Verdict::Open, "it may come from there, and later");
        assert_eq!(trial.verdict(220 * MS), Verdict::Moved);
    }
}
