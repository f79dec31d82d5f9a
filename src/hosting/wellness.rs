//! Whether a game process is well, by the answers to a question that is asked again and again, and
//! what it is ready for by that.

use ringgate_fleet::values::State;

use crate::config::hosted::{Hosted, StateOf};

/// What is known by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wellness {
    failures_max: u32,
    /// Answers in a row that were no good; `failures_max` before the first one.
    failures: u32,
    /// Why the last one was not.
    why: Option<String>,
}

impl Wellness {
    /// Not well before an answer has said so; not well any more after so many that were no good.
    pub(super) fn new(failures_max: u32) -> Self {
        let why = Some("it was not asked yet".to_owned());
        Self { failures_max, failures: failures_max, why }
    }

    /// An answer, or why there was none.
    pub(super) fn hear(&mut self, answer: Result<(), String>) {
        match answer {
            Ok(()) => (self.failures, self.why) = (0, None),
            Err(why) => {
                self.failures = self.failures.saturating_add(1).min(self.failures_max);
                self.why = Some(why);
            }
        }
    }

    /// Why it is not well; `None` where it is.
    pub(super) fn complaint(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| self.failures >= self.failures_max)
    }
}

/// A game process of the file.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) name: String,
    pub(super) slots: u32,
    pub(super) hosted: Hosted,
    /// By its health check, where it has one.
    health: Option<Wellness>,
    /// By the one who says what it is ready for, and what that one has said last.
    says: (Wellness, State),
}

impl Watched {
    /// Nobody has been asked yet.
    pub(super) fn new((name, slots, hosted): (String, u32, Hosted)) -> Self {
        let health = hosted.health.as_ref().map(|health| Wellness::new(health.failures));
        let mut says = (Wellness::new(AGONES_FAILURES), State::Starting);
        if let StateOf::File(state) = hosted.state {
            says.0.hear(Ok(()));
            says.1 = state;
        }
        Self { name, slots, hosted, health, says }
    }

    /// An answer to its health check.
    pub(super) fn hear_health(&mut self, answer: Result<(), String>) {
        if let Some(health) = &mut self.health {
            health.hear(answer);
        }
    }

    /// What Agones says of it.
    pub(super) fn hear_agones(&mut self, answer: Result<State, String>) {
        let (wellness, says) = &mut self.says;
        wellness.hear(answer.map(|state| *says = state));
    }

    /// What it is ready for, and why that is not what it should be. Who is there plays on in any
    /// case.
    pub(super) fn state(&self, is_there: bool) -> (State, Option<String>) {
        let (wellness, says) = &self.says;
        let complaint = match (&self.health, wellness.complaint()) {
            _ if !is_there => Some("it is not there".to_owned()),
            (_, Some(why)) => Some(format!("Agones cannot be asked: {why}")),
            (Some(health), None) => health.complaint().map(|why| format!("it is not well: {why}")),
            (None, None) => None,
        };
        // Who is to leave does not come back by being ill.
        let state = match says {
            State::Draining if wellness.complaint().is_none() => State::Draining,
            _ if complaint.is_some() => State::Starting,
            says => *says,
        };
        (state, complaint)
    }
}

/// So many questions in a row that Agones may leave unanswered.
const AGONES_FAILURES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::hosted::{Check, Health, Url};

    fn watched(state: StateOf, health: Option<Health>) -> Watched {
        let group = ringgate_fleet::keyspace::Name::new("arena").expect("a name");
        let hosted = Hosted { group, labels: Vec::new(), state, health };
        Watched::new(("arena-1".to_owned(), 8, hosted))
    }

    fn health() -> Health {
        let check = Check::Tcp(([127, 0, 0, 1], 7).into());
        let second = Duration::from_secs(1);
        Health { check, every: second, timeout: second, failures: 2 }
    }

    #[test]
    fn who_is_there_and_well_is_what_the_file_says() {
        let mut one = watched(StateOf::File(State::Allocated), None);
        assert_eq!(one.state(true), (State::Allocated, None));
        assert_eq!(one.state(false), (State::Starting, Some("it is not there".to_owned())));
        one = watched(StateOf::File(State::Ready), Some(health()));
        assert_eq!(one.state(true).0, State::Starting, "nobody has asked");
        one.hear_health(Ok(()));
        assert_eq!(one.state(true), (State::Ready, None));
        assert_eq!(one.state(false).0, State::Starting, "who answered is another one");
        one.hear_health(Err("no".to_owned()));
        assert_eq!(one.state(true).0, State::Ready);
        one.hear_health(Err("no".to_owned()));
        assert_eq!(one.state(true), (State::Starting, Some("it is not well: no".to_owned())));
    }

    #[test]
    fn agones_says_the_state_for_as_long_as_it_can_be_asked() {
        let server = Url { address: ([127, 0, 0, 1], 9358).into(), path: "/".to_owned() };
        let mut one = watched(StateOf::Agones(server), None);
        assert_eq!(one.state(true).0, State::Starting);
        one.hear_agones(Ok(State::Allocated));
        assert_eq!(one.state(true), (State::Allocated, None));
        for _ in 0..2 {
            one.hear_agones(Err("refused".to_owned()));
            assert_eq!(one.state(true), (State::Allocated, None), "it may be away for a moment");
        }
        one.hear_agones(Err("refused".to_owned()));
        let why = Some("Agones cannot be asked: refused".to_owned());
        assert_eq!(one.state(true), (State::Starting, why));
        one.hear_agones(Ok(State::Draining));
        assert_eq!(one.state(true), (State::Draining, None));
        assert_eq!(one.state(false).0, State::Draining, "it does not become a new one by leaving");
    }

    #[test]
    fn failures_in_a_row_make_it_ill_and_one_answer_makes_it_well() {
        let mut wellness = Wellness::new(3);
        assert!(wellness.complaint().is_some(), "nobody has asked");
        let fails = |wellness: &mut Wellness| wellness.hear(Err("refused".to_owned()));
        fails(&mut wellness);
        assert_eq!(wellness.complaint(), Some("refused"));
        wellness.hear(Ok(()));
        assert_eq!(wellness.complaint(), None);
        for _ in 0..2 {
            fails(&mut wellness);
            fails(&mut wellness);
            assert_eq!(wellness.complaint(), None, "two in a row may happen");
            wellness.hear(Ok(()));
        }
        (0..3).for_each(|_| fails(&mut wellness));
        assert_eq!(wellness.complaint(), Some("refused"));
        wellness.hear(Ok(()));
        assert_eq!(wellness.complaint(), None);
    }
}
