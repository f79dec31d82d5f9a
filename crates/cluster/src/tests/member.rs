//! What one process of a cluster has to remember over all of its sessions: its incarnation, which
//! terms it has used under which key, and whether it has slept.

use std::collections::{BTreeMap, VecDeque};

use crate::number::{Incarnation, Tenure, Term};
use crate::question::Wake;

/// Whose key a session's packets are sealed with: the beginning of its token's tag. All sessions of
/// a token share the key. Two keys of one name cost terms and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyName(pub(crate) u64);

/// A gateway's process as a member of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    incarnation: Incarnation,
    /// The highest term that this process has made under each key.
    terms: BTreeMap<KeyName, Term>,
    /// The keys in `terms`, the first one first.
    keys: VecDeque<KeyName>,
    keys_max: usize,
    /// The highest term of all keys that are not in `terms` any more.
    forgotten: Term,
    wake: Wake,
    last_turn_ns: Option<u64>,
}

impl Member {
    /// A process that has made no term so far, and remembers those of so many keys one by one.
    pub(crate) fn new(incarnation: Incarnation, keys_max: usize) -> Self {
        Self {
            incarnation,
            terms: BTreeMap::new(),
            keys: VecDeque::new(),
            keys_max: keys_max.max(1),
            forgotten: Term::NONE,
            wake: Wake::default(),
            last_turn_ns: None,
        }
    }

    /// Which process it is.
    pub(crate) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How often it has slept.
    pub(crate) const fn wake(&self) -> Wake {
        self.wake
    }

    /// Begins a turn. The others may have given a process up that has had no turn for long: each
    /// session has to be confirmed by its arbiter before anything more is said in it.
    pub(crate) fn begin_turn(&mut self, now_ns: u64) {
        let gap_ns = self.last_turn_ns.map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        if gap_ns > SLEEP_NS {
            self.doubt();
        }
        self.last_turn_ns = Some(now_ns);
    }

    /// Has each session confirmed again: the way to its arbiter was interrupted.
    pub(crate) const fn doubt(&mut self) {
        self.wake.0 = self.wake.0.wrapping_add(1);
    }

    /// Makes a term under a key, beyond one that is known and beyond all that this process has made
    /// under it, whatever session that was for and whatever became of it. Each is made once: who
    /// has been refused makes another.
    pub(crate) fn make_term(&mut self, key: KeyName, beyond: Term) -> Option<Tenure> {
        let made = self.terms.get(&key).copied();
        let term = made.unwrap_or(self.forgotten).max(beyond).next()?;
        if self.terms.insert(key, term).is_none() {
            self.keys.push_back(key);
        }
        if self.keys.len() > self.keys_max {
            let first = self.keys.pop_front().expect("there are some");
            let term = self.terms.remove(&first).expect("it is one of them");
            self.forgotten = self.forgotten.max(term);
        }
        Some(Tenure { term, incarnation: self.incarnation })
    }
}

/// How long a process may be without a turn and go on as if nothing had been.
const SLEEP_NS: u64 = 500_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn member(keys_max: usize) -> Member {
        Member::new(Incarnation(7), keys_max)
    }

    fn made(member: &mut Member, key: u64, beyond: u16) -> Option<Term> {
        let beyond = Term::new(beyond).expect("it is one");
        member.make_term(KeyName(key), beyond).map(|tenure| tenure.term)
    }

    #[test]
    fn a_term_is_beyond_what_is_known_and_beyond_what_was_made() {
        let mut member = member(10);
        assert_eq!(made(&mut member, 1, 0), Term::new(1));
        assert_eq!(made(&mut member, 1, 0), Term::new(2));
        assert_eq!(made(&mut member, 1, 9), Term::new(10));
        assert_eq!(made(&mut member, 2, 0), Term::new(1));
    }

    #[test]
    fn what_is_forgotten_is_not_made_again() {
        let mut member = member(2);
        made(&mut member, 1, 5);
        made(&mut member, 2, 0);
        made(&mut member, 3, 0);
        assert_eq!(made(&mut member, 1, 0), Term::new(7), "6 may have been this key's");
        assert_eq!(member.terms.len(), 2);
    }

    #[test]
    fn after_the_last_term_there_is_none() {
        let mut member = member(1);
        assert_eq!(member.make_term(KeyName(1), Term::LAST), None);
        assert_eq!(made(&mut member, 1, 0), Term::new(1));
    }

    #[test]
    fn a_process_has_slept_when_a_turn_follows_late() {
        let mut member = member(1);
        for now_ns in [7, 7 + SLEEP_NS, 6] {
            member.begin_turn(now_ns);
        }
        assert_eq!(member.wake(), Wake(0));
        member.begin_turn(7 + SLEEP_NS);
        assert_eq!(member.wake(), Wake(1));
    }
}
