//! Which member stands by for each session of this gateway, and which members do not answer.

use std::collections::HashMap;

use ringgate_cluster::wire::{VERSION_PLAIN, VERSION_STANDBY, VERSION_UNREAL};
use ringgate_cluster::{
    HolderQuestions, Incarnation, Next, Proof, Record, SessionId, Wake, appoint,
};

/// A connection with a member: no other one has its number.
pub(super) type Connection = u64;

/// Who stands by for what.
#[derive(Debug, Default)]
pub(super) struct Appointments {
    appointed: HashMap<SessionId, Kept>,
    /// For how many sessions each connection's member stands by.
    counts: HashMap<Connection, usize>,
    /// Those who can.
    members: Vec<Able>,
}

/// A member that can stand by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Able {
    pub(super) process: Incarnation,
    pub(super) by: Connection,
    /// What is spoken with it.
    pub(super) version: u8,
}

/// What is asked of a session's standby.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) revision: u32,
    /// The member that is to be it, if it can.
    pub(super) preferred: Option<Connection>,
    /// The least that it has to speak.
    pub(super) version: u8,
}

impl Wanted {
    /// What a record asks.
    pub(super) const fn by(record: &Record, preferred: Option<Connection>) -> Self {
        let version = match record.proof {
            Proof::Netcode(_) => VERSION_STANDBY,
            Proof::Plain(_) => VERSION_PLAIN,
            Proof::Unreal(_) => VERSION_UNREAL,
        };
        Self { revision: record.revision, preferred, version }
    }
}

/// Who has a session's record, and which.
#[derive(Clone, Copy, Debug)]
struct Kept {
    by: Connection,
    revision: u32,
}

/// What is to be told of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Appointed {
    /// Who stands by.
    pub(super) by: Option<Connection>,
    /// Who is to be given the record, and does not have it.
    pub(super) given: Option<Connection>,
    /// Who is not to stand by any more.
    pub(super) released: Option<Connection>,
}

impl Appointments {
    /// These can stand by from now on. What others have had is lost with their connections, of
    /// which these are there. Returns whether sessions may need others.
    pub(super) fn set_members(
        &mut self,
        members: Vec<Able>,
        is_there: impl Fn(Connection) -> bool,
    ) -> bool {
        if self.members == members {
            return false;
        }
        self.appointed.retain(|_, kept| is_there(kept.by));
        self.counts.retain(|of, _| is_there(*of));
        self.members = members;
        true
    }

    /// Appoints a standby for a session of this process.
    pub(super) fn appoint(
        &mut self,
        own: Incarnation,
        session: SessionId,
        Wanted { revision, preferred, version }: Wanted,
    ) -> Appointed {
        let able = || self.members.iter().filter(|it| it.version >= version);
        let chosen = appoint(session, own, able().map(|it| it.process));
        let now = able()
            .find(|it| Some(it.by) == preferred)
            .or_else(|| able().find(|it| Some(it.process) == chosen))
            .map(|it| Kept { by: it.by, revision });
        let before = match now {
            Some(now) => self.appointed.insert(session, now),
            None => self.appointed.remove(&session),
        };
        self.count_change(before, now);
        let has_it = |now: &Kept| {
            before.is_some_and(|before| (before.by, before.revision) == (now.by, now.revision))
        };
        Appointed {
            by: now.map(|now| now.by),
            given: now.filter(|now| !has_it(now)).map(|now| now.by),
            released: before.map(|it| it.by).filter(|by| now.is_none_or(|now| now.by != *by)),
        }
    }

    /// A member is to be given again what it stands by for.
    pub(super) fn give_again(&mut self, to: Connection) {
        let its = self.appointed.values_mut().filter(|kept| kept.by == to);
        its.for_each(|kept| kept.revision = NOT_GIVEN);
    }

    /// For how many sessions a member stands by on this connection.
    pub(super) fn count(&self, of: Connection) -> usize {
        self.counts.get(&of).copied().unwrap_or(0)
    }

    fn count_change(&mut self, before: Option<Kept>, now: Option<Kept>) {
        if let Some(before) = before {
            *self.counts.entry(before.by).or_default() -= 1;
        }
        if let Some(now) = now {
            *self.counts.entry(now.by).or_default() += 1;
        }
    }

    /// A session is over. Returns who stood by for it.
    pub(super) fn end(&mut self, session: SessionId) -> Option<Connection> {
        let before = self.appointed.remove(&session);
        self.count_change(before, None);
        before.map(|kept| kept.by)
    }
}

/// Whether a member answers, as far as somebody wants to know.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    questions: Option<HolderQuestions>,
    heard_ns: u64,
    is_silent: bool,
}

impl Vigil {
    /// Something has come from the member. Returns whether it had been given up.
    pub(super) fn hear(&mut self, now_ns: u64) -> bool {
        (self.questions, self.heard_ns) = (None, now_ns);
        std::mem::take(&mut self.is_silent)
    }

    /// Something was sent that only the member can answer.
    pub(super) fn want(&mut self, now_ns: u64, wake: Wake) {
        let is_fresh = now_ns < self.heard_ns + FRESH_NS;
        if !is_fresh && !self.is_silent && self.questions.is_none() {
            self.questions = Some(HolderQuestions::new(now_ns, wake));
        }
    }

    /// What is to be done now. Where that is to claim, the member's sessions may be taken over.
    pub(super) fn poll(&mut self, now_ns: u64, wake: Wake) -> Next {
        let next = self.questions.as_mut().map_or(Next::Wait, |it| it.poll(now_ns, wake));
        if next == Next::Claim {
            (self.questions, self.is_silent) = (None, true);
        }
        next
    }

    /// Whether it waits for an answer.
    pub(super) const fn is_waiting(&self) -> bool {
        self.questions.is_some()
    }
}

/// No record has this one: the first of a session has a later one.
const NOT_GIVEN: u32 = 0;

/// Whoever was heard so lately is not asked.
const FRESH_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Incarnation = Incarnation(1);
    const MS: u64 = 1_000_000;

    fn session(number: u8) -> SessionId {
        SessionId(u128::from(number).to_le_bytes())
    }

    const fn able(process: u16, by: Connection) -> Able {
        Able { process: Incarnation(process), by, version: VERSION_PLAIN }
    }

    const fn wanted(revision: u32) -> Wanted {
        Wanted { revision, preferred: None, version: VERSION_STANDBY }
    }

    #[test]
    fn a_member_of_an_earlier_release_stands_by_for_what_it_knows() {
        let mut all = Appointments::default();
        let earlier = Able { version: VERSION_STANDBY, ..able(2, 20) };
        let plain = Wanted { preferred: Some(20), version: VERSION_PLAIN, ..wanted(1) };
        all.set_members(vec![earlier], |_| true);
        assert_eq!(all.appoint(OWN, session(1), plain), Appointed::default());
        assert_eq!(all.appoint(OWN, session(2), wanted(1)).given, Some(20));
        all.set_members(vec![earlier, able(3, 30)], |_| true);
        let given = (0..50).map(|it| all.appoint(OWN, session(it), plain).by);
        assert!(given.into_iter().all(|by| by == Some(30)));
        // It comes again in the later release.
        assert!(all.set_members(vec![able(2, 20), able(3, 30)], |_| true));
        assert_eq!(all.appoint(OWN, session(1), plain).by, Some(20));
    }

    #[test]
    fn each_session_has_one_standby_and_who_had_it_is_told() {
        let mut all = Appointments::default();
        let appoint =
            |all: &mut Appointments, it, revision| all.appoint(OWN, session(it), wanted(revision));
        assert_eq!(appoint(&mut all, 1, 1), Appointed::default());
        let all_there = |_| true;
        assert!(all.set_members(vec![able(2, 20)], all_there));
        let given = |to| Appointed { by: Some(to), given: Some(to), released: None };
        let kept = |by| Appointed { by: Some(by), given: None, released: None };
        for number in 0..=200 {
            assert_eq!(appoint(&mut all, number, 1), given(20));
            assert_eq!(appoint(&mut all, number, 1), kept(20), "it has that");
        }
        assert_eq!(appoint(&mut all, 1, 2), given(20));

        let two = || vec![able(2, 20), able(3, 30)];
        assert!(all.set_members(two(), all_there) && !all.set_members(two(), all_there));
        let moved = Appointed { by: Some(30), given: Some(30), released: Some(20) };
        let moved_to = moved;
        let moved: Vec<_> = (2..=200).filter(|it| appoint(&mut all, *it, 1) == moved).collect();
        assert!((60..140).contains(&moved.len()), "{}", moved.len());
        assert_eq!(all.count(30), moved.len());
        assert_eq!(appoint(&mut all, moved[0], 1), kept(30));
        let back = Appointed { by: Some(20), given: Some(20), released: Some(30) };
        let to = |all: &mut Appointments, it| {
            let wanted = Wanted { preferred: Some(it), ..wanted(1) };
            all.appoint(OWN, session(moved[2]), wanted)
        };
        assert_eq!((to(&mut all, 20), to(&mut all, 20)), (back, kept(20)), "who is asked for");
        assert_eq!(to(&mut all, 99), moved_to, "who cannot does not");
        assert_eq!(all.end(session(moved[0])), Some(30));
        assert_eq!((all.count(30), all.count(20)), (moved.len() - 1, 201 - moved.len()));

        // The same member on another connection has to be told of all again.
        all.set_members(vec![able(2, 20), able(3, 31)], |it| it != 30);
        assert_eq!(appoint(&mut all, moved[1], 1), given(31));
        all.set_members(vec![able(2, 20)], all_there);
        let left = Appointed { released: Some(31), ..given(20) };
        assert_eq!(appoint(&mut all, moved[1], 1), left, "it is there and leaves");
        all.set_members(Vec::new(), |_| false);
        assert_eq!(appoint(&mut all, moved[1], 1), Appointed::default());
    }

    #[test]
    fn who_does_not_answer_three_times_is_given_up_until_it_is_heard() {
        let mut vigil = Vigil::default();
        let wake = Wake::default();
        assert_eq!((vigil.hear(100 * MS), vigil.poll(100 * MS, wake)), (false, Next::Wait));
        vigil.want(149 * MS, wake);
        assert!(!vigil.is_waiting(), "it was heard just now");
        vigil.want(150 * MS, wake);
        let at = [150, 199, 200, 250, 299, 300, 301].map(|it| vigil.poll(it * MS, wake));
        let (asks, waits, gives_up) = (Next::Ask, Next::Wait, Next::Claim);
        assert_eq!(at, [asks, waits, asks, asks, waits, gives_up, waits]);
        vigil.want(400 * MS, wake);
        assert!(!vigil.is_waiting(), "that is known");
        assert!(vigil.hear(500 * MS) && !vigil.hear(500 * MS));
        vigil.want(600 * MS, wake);
        assert_eq!(vigil.poll(600 * MS, wake), asks);
        assert!(!vigil.hear(601 * MS) && !vigil.is_waiting());
    }
}
