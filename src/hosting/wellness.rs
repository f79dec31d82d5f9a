//! Whether a game process is well, by the answers to a question that is asked again and again, and
//! what it is ready for by that.

use ringgate_fleet::values::State;
use serde::{Deserialize, Serialize};

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

    fn hand_over(&self) -> HandedAnswers {
        let Self { failures_max: _, failures, why } = self;
        let is_ill = self.complaint().is_some();
        HandedAnswers { failures: *failures, is_ill, why: why.clone() }
    }

    /// As if those answers had come here. Who was well stays so until the answers say otherwise,
    /// also where another number of them does so now.
    fn go_on_with(&mut self, answers: &HandedAnswers) {
        let HandedAnswers { failures, is_ill, why } = answers;
        let almost = self.failures_max.saturating_sub(1);
        self.failures = if *is_ill { self.failures_max } else { (*failures).min(almost) };
        self.why = why.as_ref().map(|why| why.chars().take(WHY_CHARS_MAX).collect());
    }
}

/// What is known of a game process of the file, for the process that goes on with its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedWellness {
    pub(super) name: String,
    /// Of its health check, where it has one.
    health: Option<HandedAnswers>,
    /// Of the one who says what it is ready for, and what that one has said last.
    says: (HandedAnswers, State),
}

/// The last answers to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct HandedAnswers {
    failures: u32,
    is_ill: bool,
    why: Option<String>,
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

    /// What the next process has to know of it.
    pub(super) fn hand_over(&self) -> HandedWellness {
        let Self { name, slots: _, hosted: _, health, says } = self;
        HandedWellness {
            name: name.clone(),
            health: health.as_ref().map(Wellness::hand_over),
            says: (says.0.hand_over(), says.1),
        }
    }

    /// As if the answers had come here. A question that the other process did not ask is well
    /// answered until an answer says otherwise: nobody is sent away because of a new config.
    pub(super) fn go_on_with(&mut self, handed: &HandedWellness) {
        let HandedWellness { name: _, health, says } = handed;
        if let Some(own) = &mut self.health {
            let well = HandedAnswers::default();
            own.go_on_with(health.as_ref().unwrap_or(&well));
        }
        if let StateOf::Agones(_) = self.hosted.state {
            self.says.0.go_on_with(&says.0);
            self.says.1 = says.1;
        }
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

/// A reason that another process tells.
const WHY_CHARS_MAX: usize = 256;

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
    fn who_is_well_is_well_after_a_hand_over_and_who_is_ill_is_ill() {
        let agones = || {
            let server = Url { address: ([127, 0, 0, 1], 9358).into(), path: "/".to_owned() };
            watched(StateOf::Agones(server), Some(health()))
        };
        let heir = |before: &Watched, mut heir: Watched| {
            let json = serde_json::to_vec(&before.hand_over()).expect("no maps");
            heir.go_on_with(&serde_json::from_slice(&json).expect("as it was written"));
            heir.state(true)
        };
        let mut one = agones();
        assert_eq!(heir(&one, agones()), one.state(true), "nobody was asked, here as there");
        one.hear_agones(Ok(State::Allocated));
        one.hear_health(Ok(()));
        assert_eq!(heir(&one, agones()), (State::Allocated, None));
        let filed = watched(StateOf::File(State::Ready), None);
        assert_eq!(heir(&one, filed.clone()), (State::Ready, None), "the file says it now");
        assert_eq!(heir(&filed, agones()), (State::Ready, None), "until Agones is heard");
        one.hear_health(Err("no".to_owned()));
        assert_eq!(heir(&one, agones()), (State::Allocated, None), "once is not enough");
        one.hear_health(Err("no".to_owned()));
        assert_eq!(heir(&one, agones()), one.state(true));
        let mut patient = agones();
        patient.health.as_mut().expect("it has one").failures_max = 9;
        assert_eq!(heir(&one, patient).0, State::Starting, "it was ill");
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
