//! What must hold, whatever happens: told by what the world has seen, not by what its parts
//! believe.

use std::collections::BTreeSet;

use crate::number::Tenure;
use crate::tests::member::KeyName;

/// What has been seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Judge {
    /// Every number of every packet to a player, by its key.
    sealed: BTreeSet<(KeyName, u64)>,
    sessions: Vec<Seen>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    /// Whom the arbiter has granted the session, in that order.
    holders: Vec<Tenure>,
    /// What was sealed for the player last by who held the session at that moment.
    highest: Option<u64>,
    /// The player's packets that the game process has.
    handed: BTreeSet<u64>,
    /// Who brought the last of these.
    handed_by: Option<Tenure>,
    is_open: bool,
    has_ended: bool,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wrong {
    /// A number was used twice under one key.
    NumberTwice,
    /// A taker's number is not above all that its player has got.
    NumberTooLow,
    /// A packet was handed to a game process twice.
    HandedTwice,
    /// A game process has heard of an earlier owner after a later one.
    OwnerWentBack,
    /// A session was opened, granted or handed a packet after its end.
    CameBack,
    /// A gateway seals as somebody who was never granted the session.
    SealedUnasked,
    /// A gateway that has slept seals though the session had gone to another.
    SealedStale,
    /// A gateway takes a session for ended that goes on.
    EndedAlone,
    /// A gateway has ended a session that was another's.
    EndedByAnother,
    /// Nobody serves a session that goes on, though gateways and arbiter live and hear each other.
    Lost,
}

impl Judge {
    pub(crate) fn new(sessions: usize) -> Self {
        Self { sealed: BTreeSet::new(), sessions: vec![Seen::default(); sessions] }
    }

    pub(crate) fn see_opened(&mut self, session: usize) -> Result<(), Wrong> {
        let seen = &mut self.sessions[session];
        let was_open = std::mem::replace(&mut seen.is_open, true);
        if was_open || seen.has_ended { Err(Wrong::CameBack) } else { Ok(()) }
    }

    pub(crate) fn see_ended(&mut self, session: usize) {
        self.sessions[session].has_ended = true;
    }

    /// A gateway has ended the session.
    pub(crate) fn see_ended_by(&mut self, session: usize, by: Tenure) -> Result<(), Wrong> {
        self.see_ended(session);
        let is_owner = self.sessions[session].holders.last() == Some(&by);
        if is_owner { Ok(()) } else { Err(Wrong::EndedByAnother) }
    }

    pub(crate) fn see_granted(&mut self, session: usize, to: Tenure) -> Result<(), Wrong> {
        let seen = &mut self.sessions[session];
        if seen.has_ended {
            return Err(Wrong::CameBack);
        }
        match seen.holders.last() {
            Some(&last) if last == to => Ok(()),
            Some(&last) if last > to => Err(Wrong::OwnerWentBack),
            _ => {
                seen.holders.push(to);
                Ok(())
            }
        }
    }

    pub(crate) fn see_handed(
        &mut self,
        session: usize,
        by: Tenure,
        number: u64,
    ) -> Result<(), Wrong> {
        let seen = &mut self.sessions[session];
        if seen.has_ended {
            return Err(Wrong::CameBack);
        }
        if seen.handed_by > Some(by) {
            return Err(Wrong::OwnerWentBack);
        }
        seen.handed_by = Some(by);
        if seen.handed.insert(number) { Ok(()) } else { Err(Wrong::HandedTwice) }
    }

    pub(crate) fn see_sealed(
        &mut self,
        session: usize,
        key: KeyName,
        by: Tenure,
        number: u64,
        is_stale: bool,
    ) -> Result<(), Wrong> {
        let seen = &mut self.sessions[session];
        if !self.sealed.insert((key, number)) {
            return Err(Wrong::NumberTwice);
        }
        if !seen.holders.contains(&by) {
            return Err(Wrong::SealedUnasked);
        }
        if is_stale && !seen.has_ended {
            return Err(Wrong::SealedStale);
        }
        if seen.holders.last() == Some(&by) {
            if seen.highest >= Some(number) {
                return Err(Wrong::NumberTooLow);
            }
            seen.highest = Some(number);
        }
        Ok(())
    }

    /// A gateway says that the session has ended.
    pub(crate) fn see_taken_for_ended(&self, session: usize) -> Result<(), Wrong> {
        if self.sessions[session].has_ended { Ok(()) } else { Err(Wrong::EndedAlone) }
    }

    pub(crate) fn has_ended(&self, session: usize) -> bool {
        self.sessions[session].has_ended
    }

    pub(crate) fn holders(&self, session: usize) -> &[Tenure] {
        &self.sessions[session].holders
    }

    pub(crate) fn handed(&self, session: usize) -> usize {
        self.sessions[session].handed.len()
    }
}
