//! The numbers of packets that gateways of a cluster send to players, and so the nonces under the
//! players' keys.
//!
//! ```text
//!   0 | term (14 bits) | incarnation (16) | count (33)
//! ```
//!
//! A player takes what is not older than its window, so a gateway that takes a session over needs
//! numbers above all before it: the term comes first, and that gateway makes the next. Two gateways
//! that take over at once, cut off from each other, may make the same term; the incarnation keeps
//! their numbers apart. Terms begin at 1, because a gateway without a cluster begins at random
//! below 2^48. Any number below 2^63 can be read as one, so a session that was opened without a
//! cluster goes on above whatever it has used.
//!
//! Where a gateway without a cluster leaves numbers out (between two sessions of a token, and after
//! a hand-over that came to nothing), one with a cluster makes a further term.

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::netcode::server::GLOBAL_SEQUENCE_START;

/// How often a session has gone to another owner, its first included. 0 where it has no cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u16);

impl Term {
    /// Before the first.
    pub const NONE: Self = Self(0);

    /// The last: an owner that needs one more ends the session.
    pub const LAST: Self = Self((1 << TERM_BITS) - 1);

    /// The term of a number, where it is one.
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::LAST.0 { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The next, as long as there is one.
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

/// One run of one process, in one cluster. No two have the same: each is one more than the last, by
/// a transaction in etcd. There is none after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u16);

/// A term as one process has it: the right to own a session that no other process ever gets. A
/// later tenure is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// Made by the owner, beyond all that it knows of.
    pub term: Term,
    /// Which process the owner is.
    pub incarnation: Incarnation,
}

impl Tenure {
    /// As one number, in the same order.
    pub const fn number(self) -> u32 {
        (self.term.0 as u32) << INCARNATION_BITS | self.incarnation.0 as u32
    }

    /// The tenure of a number, where it is one.
    pub const fn of_number(number: u32) -> Option<Self> {
        let incarnation = Incarnation(number as u16);
        match Term::new((number >> INCARNATION_BITS) as u16) {
            Some(term) => Some(Self { term, incarnation }),
            None => None,
        }
    }
}

/// The number of a packet of a session, below those of challenges and denials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// How many a tenure has: 99 days of a thousand a second. Then a further term is needed.
    pub const COUNTS: u64 = 1 << COUNT_BITS;

    /// Reads a number.
    pub const fn new(number: u64) -> Option<Self> {
        if number >> (TERM_BITS + INCARNATION_BITS + COUNT_BITS) == 0 {
            Some(Self(number))
        } else {
            None
        }
    }

    pub(crate) const fn of(Tenure { term, incarnation }: Tenure, count: u64) -> Self {
        let high = (term.0 as u64) << INCARNATION_BITS | incarnation.0 as u64;
        Self(high << COUNT_BITS | count)
    }

    /// The first of a tenure.
    pub const fn first(tenure: Tenure) -> Self {
        Self::of(tenure, 0)
    }

    /// How many of its tenure are before it.
    pub const fn count(self) -> u64 {
        self.0 & (Self::COUNTS - 1)
    }

    /// The lowest term of which all numbers are from this one on: what a process may make under a
    /// key of which it has used every number before.
    pub const fn free_term(self) -> Option<Term> {
        let term = self.tenure().term;
        let is_whole = self.0 << (64 - INCARNATION_BITS - COUNT_BITS) == 0;
        if is_whole && term.0 > 0 { Some(term) } else { term.next() }
    }

    /// The owner it belongs to.
    pub const fn tenure(self) -> Tenure {
        let high = self.0 >> COUNT_BITS;
        Tenure {
            term: Term((high >> INCARNATION_BITS) as u16),
            incarnation: Incarnation(high as u16),
        }
    }

    /// As it goes into a nonce.
    pub const fn get(self) -> u64 {
        self.0
    }
}

ringgate_core::carried_alone!(Incarnation);
ringgate_core::carried!(Tenure { term, incarnation });

impl Carry for Term {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Self::new(u16::read(from)?).ok_or(Broken::Invalid("term"))
    }
}

const TERM_BITS: u32 = 14;
const INCARNATION_BITS: u32 = 16;
const COUNT_BITS: u32 = 33;

const _: () = assert!(1 << (TERM_BITS + INCARNATION_BITS + COUNT_BITS) == GLOBAL_SEQUENCE_START);
/// The first of a cluster lies above where sessions without one begin.
const _: () = assert!(1_u64 << (INCARNATION_BITS + COUNT_BITS) > 1 << 48);

#[cfg(test)]
mod tests;
