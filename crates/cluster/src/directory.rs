//! Where a player's datagram goes that has come to a gateway.
//!
//! A router may send a player to any member, so each tells the others whose addresses it has. What
//! they know may be old: a datagram that was forwarded is forwarded once more, to a member that had
//! the session later than the forwarder knew, or by the standby that was to be asked. The datagram
//! never goes beyond two hops, whatever each member believes.

use std::collections::HashMap;

use ringgate_core::carry::{Broken, Maps, Reader, Writer};

use crate::number::{Incarnation, Tenure, Term};
use crate::stake::{Stake, Why};
use crate::wire::HOPS_MAX;

/// What members tell each other of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A keyed hash of the player's address and of the address it talks to.
    pub fingerprint: u64,
    /// The tenure that has the session.
    pub holder: Tenure,
    /// The member that stands by for it.
    pub standby: Option<Incarnation>,
}

ringgate_core::carried!(Entry { fingerprint, holder, standby });

/// What this gateway has been told.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    entries: HashMap<u64, Entry>,
}

impl Directory {
    /// Takes an entry in, unless a later tenure of the session is known.
    pub fn learn(&mut self, entry: Entry) {
        let known = self.entries.entry(entry.fingerprint).or_insert(entry);
        if entry.holder >= known.holder {
            *known = entry;
        }
    }

    /// A holder says that it does not have the session any more.
    pub fn forget(&mut self, fingerprint: u64, holder: Tenure) {
        if self.find(fingerprint).is_some_and(|known| known.holder <= holder) {
            self.entries.remove(&fingerprint);
        }
    }

    /// What is known of a fingerprint.
    pub fn find(&self, fingerprint: u64) -> Option<&Entry> {
        self.entries.get(&fingerprint)
    }
}

/// How a datagram has come here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// How often it was forwarded.
    pub hops: u8,
    /// The latest term that its last forwarder knew of.
    pub term: Term,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The session's owner does not answer, and this gateway stands by for it: if the datagram
    /// opens under the session's key, the session is claimed.
    Claim,
    /// To another member.
    Forward {
        /// Which.
        to: Incarnation,
        /// What is said beside it.
        how: Forwarded,
    },
    /// To the session here.
    Here,
    /// Nowhere.
    Stopped(Stopped),
    /// Nobody is known to have a session: it is a stranger's.
    Stranger,
    /// It has to wait until the arbiter has answered.
    Wait,
}

/// Why a datagram goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its session has ended.
    Ended,
    /// It has gone far enough.
    TooFar,
    /// Neither the owner nor its standby answers.
    Unreachable,
}

/// Where a datagram goes that has come to the gateway `own`, by what that has of its session and
/// has been told of it. `answers` says of a member whether it does.
pub fn way(
    own: Incarnation,
    stake: Option<&Stake>,
    entry: Option<&Entry>,
    come: Forwarded,
    answers: impl Fn(Incarnation) -> bool,
) -> Way {
    let stands_by = stake.is_some_and(Stake::stands_by);
    if let Some(stake) = stake {
        if stake.is_asking() {
            return Way::Wait;
        }
        match stake.over() {
            Some(Why::Fenced(_)) => {}
            Some(_) => return Way::Stopped(Stopped::Ended),
            None if !stands_by => return Way::Here,
            None => {}
        }
    }
    let told = entry.map(|entry| entry.holder);
    let Some(holder) = told.max(stake.and_then(Stake::holder)) else { return Way::Stranger };
    let goes = |to: Incarnation| to != own && answers(to);
    let forward = |to| {
        let how = Forwarded { hops: come.hops + 1, term: holder.term.max(come.term) };
        if come.hops < HOPS_MAX { Way::Forward { to, how } } else { Way::Stopped(Stopped::TooFar) }
    };
    if goes(holder.incarnation) {
        let knows_more = come.hops == 0 || holder.term > come.term;
        return if knows_more || stands_by {
            forward(holder.incarnation)
        } else {
            Way::Stopped(Stopped::TooFar)
        };
    }
    if stands_by {
        return Way::Claim;
    }
    match entry.and_then(|entry| entry.standby).filter(|standby| goes(*standby)) {
        Some(standby) if come.hops == 0 || holder.term > come.term => forward(standby),
        _ => Way::Stopped(Stopped::Unreachable),
    }
}

impl Entry {
    /// How long one is.
    pub const BYTES: usize = 32;

    /// As members tell it to each other.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        ringgate_core::carry::Carry::write(self, &mut Writer::new(&mut bytes));
        bytes
    }

    /// One that was told.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, Broken> {
        let maps = Maps::default();
        let mut reader = Reader::new(bytes, &maps);
        let entry = ringgate_core::carry::Carry::read(&mut reader)?;
        let is_padded = reader.rest().iter().all(|byte| *byte == 0);
        if is_padded { Ok(entry) } else { Err(Broken::Invalid("length")) }
    }
}

#[cfg(test)]
mod tests;
