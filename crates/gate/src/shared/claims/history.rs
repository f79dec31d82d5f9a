//! Used connect tokens, each remembered until it cannot be used any more.
//!
//! A token that was used belongs to the address that used it first, so that a copy of it is of no
//! use elsewhere. It is in one session at a time. All sessions of a token share their keys. So each
//! must start its sequence beyond every number of an earlier one. And after a session that has
//! taken anything in from its player there is no other one, because recorded packets of the first
//! could not be told from new ones of the second.
//!
//! Tokens expire by the wall clock, which can be set. So a token is forgotten only when two clocks
//! agree: by the monotonic clock it has expired since its first use, and by the wall clock it would
//! be refused now. So where the wall clock is set ahead and back behind its first use, no token is
//! forgotten that can be used again. One that was first used while the wall clock was ahead may be,
//! once that is set right: refusing all that might have been would keep out every new token that
//! expires as early. A clock that was set back delays forgetting until it has caught up.

use std::ops::Range;

use crate::now::Now;
use crate::store::entry::Entry;
use crate::store::marks::Marks;
use crate::store::multimap::{Multimap, Record};
use crate::store::wheel::Wheel;
use ringgate_cluster::{Incarnation, PacketNumber, Tenure, Term};
use ringgate_core::carry::{Broken, Carry, Maps, Reader, Writer};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::server::SessionSequence;

/// The tag of a connect token's private part, which tells tokens apart.
pub(crate) type TokenMac = [u8; 16];

/// The beginning of a token's tag: enough to find it among a few million.
pub(crate) type TokenName = [u8; 7];

/// Which tokens were used from where, and until when that matters.
pub(crate) struct History {
    uses: Multimap<Use>,
    /// In seconds of the monotonic clock. A place is a position in `uses`, which stays armed as
    /// long as it is taken.
    expiries: Wheel<Entry<Use>, 1>,
    /// Places whose tokens have changed since they were [shown](Self::show_changed).
    changed: Marks,
    /// Places whose tokens are spent, and have not been [written down](Self::take_spent) so far.
    unkept: Marks,
    terms: Terms,
}

/// What is known of terms of a cluster beyond those of each token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The highest of a token that is forgotten, of those that had more than one.
    forgotten: Term,
    /// How many are left out each time: a process that goes on after a hand-over that came to
    /// nothing does not know which of them the other one has made.
    left_out: u16,
}

ringgate_core::carried!(Terms { forgotten, left_out });

/// A token that no other session may be opened with, as it outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpentToken {
    mac: TokenMac,
    /// Where a session of it would start its sequence, where tokens may be used again.
    next_sequence: SessionSequence,
    expire_s: u32,
}

impl SpentToken {
    /// How long one is when it is written down.
    pub const BYTES: usize = 28;

    /// As it is written down.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        self.write(&mut Writer::new(&mut bytes));
        bytes
    }

    /// One that was written down.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        Self::read(&mut Reader::new(bytes, &Maps::default())).ok()
    }

    /// When it expires, by the wall clock, in seconds since 1970.
    pub fn expire_s(&self) -> u64 {
        self.expire_s.into()
    }
}

ringgate_core::carried!(SpentToken { mac, next_sequence, expire_s });

/// What a token has been used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenPast {
    /// No session yet.
    Fresh,
    /// A session that has taken nothing in from its player, and is over.
    HadSession,
    /// A session that has taken nothing in from its player so far.
    InSession,
    /// A session that has taken something in from its player.
    Spent,
}

/// How a token was used.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    mac: TokenMac,
    /// Hash of its owner's address and port: where it was first used from, or where its session has
    /// moved since.
    source: u64,
    /// Where the next session of this token starts its sequence, if there was one.
    next_sequence: SessionSequence,
    /// By the wall clock, in seconds since 1970. What expires after 2106 does so in 2106.
    expire_s: u32,
    fate: Fate,
}

impl Record for Use {
    fn vacate(&mut self, next: u32) {
        self.expire_s = next;
    }

    fn next_vacant(&self) -> u32 {
        self.expire_s
    }
}

/// What a token was used for, and until when it is remembered whatever the wall clock says. One
/// word, because there are millions of them: two bits and thirty, which are 34 years of seconds.
#[derive(Clone, Copy)]
struct Fate(u32);

impl Fate {
    const SECOND_BITS: u32 = 30;
    const SECONDS_MAX: u32 = (1 << Self::SECOND_BITS) - 1;

    fn new(past: TokenPast, keep_until_s: u64) -> Self {
        let seconds = u32::try_from(keep_until_s).unwrap_or(u32::MAX).min(Self::SECONDS_MAX);
        Self((past as u32) << Self::SECOND_BITS | seconds)
    }

    fn keep_until_s(self) -> u64 {
        u64::from(self.0 & Self::SECONDS_MAX)
    }

    const fn past(self) -> TokenPast {
        match self.0 >> Self::SECOND_BITS {
            0 => TokenPast::Fresh,
            1 => TokenPast::HadSession,
            2 => TokenPast::InSession,
            _ => TokenPast::Spent,
        }
    }
}

impl Use {
    fn set_past(&mut self, past: TokenPast) {
        self.fate = Fate::new(past, self.fate.keep_until_s());
    }
}

impl History {
    pub(crate) fn new(tokens_max: usize) -> Self {
        Self {
            uses: Multimap::new(tokens_max),
            expiries: Wheel::new(tokens_max, 0),
            changed: Marks::new(tokens_max),
            unkept: Marks::new(tokens_max),
            terms: Terms::default(),
        }
    }

    /// How many tokens are remembered.
    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Records that a token is used from `source`, or refuses it. Returns what it was used for
    /// before.
    pub(crate) fn use_token(
        &mut self,
        mac: &TokenMac,
        source: u64,
        expire_s: u64,
        now: Now,
    ) -> Result<TokenPast, DropReason> {
        self.forget_expired(now);
        if let Some(position) = self.find(mac) {
            let used = self.uses.at(position);
            return if used.source == source || used.source == UNKNOWN_SOURCE {
                Ok(used.fate.past())
            } else {
                Err(DropReason::TokenUsedElsewhere)
            };
        }
        let keep_until_s = keep_until_s(expire_s, now);
        let fresh = Use {
            mac: *mac,
            source,
            next_sequence: SessionSequence::begin(None, 0),
            expire_s: u32::try_from(expire_s).unwrap_or(u32::MAX),
            fate: Fate::new(TokenPast::Fresh, keep_until_s),
        };
        let position = self.uses.insert(hash(mac), fresh).ok_or(DropReason::TokenHistoryFull)?;
        self.expiries.arm(position, keep_until_s);
        self.changed.mark(position.index());
        Ok(TokenPast::Fresh)
    }

    /// What a token has been used for. One that is not remembered can no longer be used.
    pub(crate) fn past(&self, mac: &TokenMac) -> TokenPast {
        self.find(mac).map_or(TokenPast::Fresh, |position| self.uses.at(position).fate.past())
    }

    /// When a token expires, by the wall clock.
    pub(crate) fn expiry_of(&self, mac: &TokenMac) -> Option<u64> {
        self.find(mac).map(|position| self.uses.at(position).expire_s.into())
    }

    /// Records that a session of the token begins, with a range of sequence numbers that no other
    /// one has: those of a tenure where this process is one of a cluster.
    pub(crate) fn begin_session(
        &mut self,
        mac: &TokenMac,
        random: u64,
        process: Option<Incarnation>,
    ) -> SessionSequence {
        let terms = self.terms;
        // A token that expired during its handshake may be forgotten already: then the random start
        // has to do.
        let Some(position) = self.find(mac) else {
            return SessionSequence::begin(None, random);
        };
        let used = self.change(position);
        let past = used.fate.past();
        let next = (past != TokenPast::Fresh).then_some(used.next_sequence);
        let sequence = match process {
            Some(incarnation) => {
                let term = terms.make(next, Term::NONE);
                used.next_sequence = first_of(term.and_then(Term::next), Incarnation(0));
                first_of(term, incarnation)
            }
            None => {
                let sequence = SessionSequence::begin(next, random);
                used.next_sequence = sequence.after();
                sequence
            }
        };
        if past == TokenPast::Spent {
            self.unkept.mark(position.index());
        } else {
            used.set_past(TokenPast::InSession);
        }
        sequence
    }

    /// Makes a term for a session of the token that another gateway has had, and whose player is at
    /// `source`: beyond that one's, and beyond all that this process has made. The token is spent.
    pub(crate) fn make_term(
        &mut self,
        (mac, expire_s): (&TokenMac, u64),
        source: u64,
        beyond: Term,
        now: Now,
    ) -> Result<Term, NoTerm> {
        self.forget_expired(now);
        let terms = self.terms;
        let position = match self.find(mac) {
            Some(position) => position,
            None => {
                let keep_until_s = keep_until_s(expire_s, now);
                let fresh = Use {
                    mac: *mac,
                    source,
                    next_sequence: first_of(terms.forgotten.next(), Incarnation(0)),
                    expire_s: u32::try_from(expire_s).unwrap_or(u32::MAX),
                    fate: Fate::new(TokenPast::Spent, keep_until_s),
                };
                let position = self.uses.insert(hash(mac), fresh).ok_or(NoTerm::HistoryFull)?;
                self.expiries.arm(position, keep_until_s);
                position
            }
        };
        self.unkept.mark(position.index());
        let used = self.change(position);
        used.set_past(TokenPast::Spent);
        let term = terms.make(Some(used.next_sequence), beyond).ok_or(NoTerm::UsedUp)?;
        used.next_sequence = first_of(term.next(), Incarnation(0));
        Ok(term)
    }

    /// What is known of terms beyond those of each token.
    pub(crate) const fn terms(&self) -> Terms {
        self.terms
    }

    /// Goes on with it.
    pub(crate) const fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// Another process may have made terms that this one does not know, and is gone: the `time`th.
    pub(crate) fn leave_terms_out(&mut self, time: u16) {
        self.terms.left_out = self.terms.left_out.max(time.min(16) * LEFT_OUT);
    }

    /// Records that a session of the token has taken something in from its player.
    pub(crate) fn spend(&mut self, name: TokenName) {
        if let Some(position) = self.find_by_name(name) {
            self.change(position).set_past(TokenPast::Spent);
            self.unkept.mark(position.index());
        }
    }

    /// Takes some of the spent tokens that were not written down so far.
    pub(crate) fn take_spent(&mut self, count_max: usize) -> Vec<SpentToken> {
        let mut spent = Vec::new();
        let mut from = 0;
        while spent.len() < count_max {
            let Some(place) = self.unkept.first_in(from..self.expiries.places()) else { break };
            self.unkept.clear(place);
            from = place + 1;
            let entry = Entry::numbered(place as u32);
            if self.expiries.is_armed(entry) {
                let &Use { mac, next_sequence, expire_s, fate, .. } = self.uses.at(entry);
                if fate.past() == TokenPast::Spent {
                    spent.push(SpentToken { mac, next_sequence, expire_s });
                }
            }
        }
        spent
    }

    /// They could not be written down.
    pub(crate) fn take_back_spent(&mut self, spent: &[SpentToken]) {
        for token in spent {
            if let Some(position) = self.find(&token.mac) {
                self.unkept.mark(position.index());
            }
        }
    }

    /// Remembers a token that a process before this one has written down. False where there is no
    /// room.
    pub(crate) fn remember_spent(&mut self, token: &SpentToken, now: Now) -> bool {
        let &SpentToken { mac, next_sequence, expire_s } = token;
        if let Some(position) = self.find(&mac) {
            // It was written down anew with each of its sessions.
            self.change(position).next_sequence = next_sequence;
            return true;
        }
        let keep_until_s = keep_until_s(expire_s.into(), now);
        let fate = Fate::new(TokenPast::Spent, keep_until_s);
        let used = Use { mac, source: UNKNOWN_SOURCE, next_sequence, expire_s, fate };
        let Some(position) = self.uses.insert(hash(&mac), used) else { return false };
        self.expiries.arm(position, keep_until_s);
        self.changed.mark(position.index());
        true
    }

    /// Records that a session of the token is over, whose player was last at `source`.
    pub(crate) fn end_session(&mut self, name: TokenName, source: Option<u64>) {
        let Some(position) = self.find_by_name(name) else { return };
        let used = self.change(position);
        match (used.fate.past(), source) {
            (TokenPast::InSession, _) => used.set_past(TokenPast::HadSession),
            // Only who has the keys can have moved it.
            (TokenPast::Spent, Some(source)) => used.source = source,
            _ => {}
        }
    }

    /// How many places tokens have had.
    pub(crate) fn places(&self) -> usize {
        self.expiries.places()
    }

    /// Has all tokens [shown](Self::show_changed) from the first on.
    pub(crate) fn show_again(&mut self) {
        self.changed.mark_first(self.expiries.places());
    }

    /// Shows tokens of some places that have changed since they were shown, until `show` takes no
    /// more. Returns the place that comes next.
    pub(crate) fn show_changed(
        &mut self,
        places: Range<usize>,
        mut show: impl FnMut(&Use) -> bool,
    ) -> usize {
        let mut from = places.start;
        while let Some(place) = self.changed.first_in(from..places.end) {
            let entry = Entry::numbered(place as u32);
            if self.expiries.is_armed(entry) && !show(self.uses.at(entry)) {
                return place;
            }
            self.changed.clear(place);
            from = place + 1;
        }
        places.end
    }

    /// Remembers a token as another process has, in the place of what is known of it.
    pub(crate) fn remember(&mut self, used: Use) -> Result<(), Broken> {
        // That process may end before it has written it down.
        let is_unkept = used.fate.past() == TokenPast::Spent;
        if let Some(position) = self.find(&used.mac) {
            *self.change(position) = used;
            if is_unkept {
                self.unkept.mark(position.index());
            }
            return Ok(());
        }
        let position = self.uses.insert(hash(&used.mac), used);
        let position = position.ok_or(Broken::Invalid("number of used tokens"))?;
        self.expiries.arm(position, used.fate.keep_until_s());
        self.changed.mark(position.index());
        if is_unkept {
            self.unkept.mark(position.index());
        }
        Ok(())
    }

    /// What is known of a token, to be changed.
    fn change(&mut self, position: Entry<Use>) -> &mut Use {
        self.changed.mark(position.index());
        self.uses.at_mut(position)
    }

    fn find(&self, mac: &TokenMac) -> Option<Entry<Use>> {
        self.uses.find(hash(mac), |used| used.mac == *mac)
    }

    fn find_by_name(&self, name: TokenName) -> Option<Entry<Use>> {
        self.uses.find(hash(&name), |used| used.mac.starts_with(&name))
    }

    /// Forgets a few of the tokens that have expired: more than come in meanwhile. Those that have
    /// only come to the wheel's horizon are apart from these, because each does so many times.
    fn forget_expired(&mut self, now: Now) {
        let (now_s, mut left) = (seconds(now), FORGOTTEN_AT_ONCE);
        for _ in 0..LOOKED_AT_ONCE {
            if left == 0 {
                return;
            }
            let Some(position) = self.expiries.pop_due(now_s) else { return };
            let used = self.uses.at(position);
            // The request check refuses a token from `expire <= now` on, so nothing is forgotten
            // that can still be used.
            let good_for_s = u64::from(used.expire_s).saturating_sub(now.unix_s);
            let again_s = used.fate.keep_until_s().max(now_s + good_for_s);
            // What is kept has come to the wheel's horizon, or the wall clock was set back.
            if again_s > now_s {
                self.expiries.arm(position, again_s);
            } else {
                let hash = hash(&used.mac);
                let next = self.uses.remove(hash, position).next_sequence;
                self.terms.note_forgotten(next);
                left -= 1;
            }
        }
    }
}

ringgate_core::carried!(Use { mac, source, next_sequence, expire_s, fate });
ringgate_core::carried_alone!(Fate);

/// Why there is no term for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTerm {
    /// There is no room to remember its token.
    HistoryFull,
    /// All of its key are.
    UsedUp,
}

impl Terms {
    /// The next of a token whose numbers are free from `next` on: beyond another one, too.
    fn make(self, next: Option<SessionSequence>, beyond: Term) -> Option<Term> {
        let free = match next {
            Some(next) => PacketNumber::new(next.peek())?.free_term()?,
            None => Term::NONE.next()?,
        };
        let term = free.max(beyond.next()?);
        Term::new(term.get().saturating_add(self.left_out))
    }

    /// Most tokens have one session in their lives, and the next process does not need its term:
    /// it has an incarnation of its own. So what counts is where a term may be made again.
    fn note_forgotten(&mut self, next: SessionSequence) {
        let free = PacketNumber::new(next.peek()).map_or(Some(Term::LAST), PacketNumber::free_term);
        let last = free.unwrap_or(Term::LAST).get().saturating_sub(1);
        if let Some(last) = Term::new(last).filter(|last| last.get() > 1 + self.left_out) {
            self.forgotten = self.forgotten.max(last);
        }
    }
}

/// Where the numbers of a term begin; where there is none, none is left.
fn first_of(term: Option<Term>, incarnation: Incarnation) -> SessionSequence {
    term.map_or(SessionSequence::EXHAUSTED, |term| {
        SessionSequence::at(PacketNumber::first(Tenure { term, incarnation }).get())
    })
}

/// More than another process makes under one key before its hand-over fails.
const LEFT_OUT: u16 = 16;

/// Until when a token matters by the monotonic clock: a second more than is left, because both
/// clocks are read in whole seconds.
fn keep_until_s(expire_s: u64, now: Now) -> u64 {
    let keep_s = expire_s.saturating_sub(now.unix_s).saturating_add(1);
    seconds(now).saturating_add(keep_s)
}

fn seconds(now: Now) -> u64 {
    now.mono_ns / NS_PER_S
}

/// A tag looks random to all who do not have the key of tokens, and only good tokens come here.
fn hash(tag: &[u8]) -> u32 {
    u32::from_le_bytes([tag[0], tag[1], tag[2], tag[3]])
}

const NS_PER_S: u64 = 1_000_000_000;

/// Of a token that was spent before this process began. Wherever it is shown again, it is spent.
const UNKNOWN_SOURCE: u64 = 0;

/// A few microseconds' work.
const FORGOTTEN_AT_ONCE: usize = 32;

/// As often as a token that lives for three days comes to the horizon.
const LOOKED_AT_ONCE: usize = 256;

const _: () = assert!(size_of::<Use>() == 40);

#[cfg(test)]
mod tests;
