//! Tokens that name other gateways as well: which of them are this gateway's. With one name, the
//! gateway's own memory of tokens is enough; with several, the fleet has to agree.
//!
//! A worker that meets such a token for the first time leaves a question and drops the request; its
//! client asks again a tenth of a second later, when the answer is there. Nothing is parked, so
//! whoever has many tokens takes no more room than a name for each, and a slow etcd holds nothing
//! up. What is asked and answered is bounded, and forgotten when the token has expired.
//!
//! Touched only by requests whose token has verified and that would be challenged next.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::now::Now;
use crate::shared::claims::history::TokenMac;
use ringgate_core::drops::DropReason;
use ringgate_core::sync::lock;

/// Shared by all workers and whoever asks the fleet.
pub struct FleetTokens {
    inner: Mutex<Inner>,
    /// There are questions: read without the lock.
    is_asked: AtomicBool,
    /// The fleet does not answer.
    is_away: AtomicBool,
    /// Then tokens are taken all the same.
    accepts_when_away: AtomicBool,
    tokens_max: usize,
}

struct Inner {
    known: HashMap<TokenMac, KnownToken>,
    /// All of them, looked at in turn for those that have expired.
    all: VecDeque<TokenMac>,
    questions: VecDeque<TokenMac>,
}

#[derive(Clone, Copy)]
struct KnownToken {
    whose: Option<Whose>,
    expire_s: u64,
}

/// Whose a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This gateway's.
    Ours,
    /// Another one has seen it first.
    Others,
}

/// A token that the fleet is to be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenQuestion {
    /// The tag of its private part.
    pub mac: [u8; 16],
    /// When it expires, in seconds since 1970.
    pub expire_s: u64,
}

impl FleetTokens {
    /// Room for so many tokens.
    pub fn new(tokens_max: usize) -> Self {
        // Twice the room: so it never has to grow, however its places are used again.
        let inner = Inner {
            known: HashMap::with_capacity(2 * tokens_max),
            all: VecDeque::with_capacity(tokens_max),
            questions: VecDeque::with_capacity(tokens_max),
        };
        Self {
            inner: Mutex::new(inner),
            is_asked: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            accepts_when_away: AtomicBool::new(false),
            tokens_max,
        }
    }

    /// Whether a token may be used here. Where that is not known yet, it is asked.
    pub(crate) fn check(&self, mac: &TokenMac, expire_s: u64, now: Now) -> Result<(), DropReason> {
        let mut inner = lock(&self.inner);
        inner.forget_expired(now.unix_s);
        match inner.known.get(mac).map(|known| known.whose) {
            Some(Some(Whose::Ours)) => return Ok(()),
            Some(Some(Whose::Others)) => return Err(DropReason::TokenClaimed),
            Some(None) => {}
            None if inner.known.len() >= self.tokens_max => {
                return Err(DropReason::TokenClaimsFull);
            }
            None => {
                inner.known.insert(*mac, KnownToken { whose: None, expire_s });
                inner.all.push_back(*mac);
                inner.questions.push_back(*mac);
                self.is_asked.store(true, Ordering::Release);
            }
        }
        match (self.is_away.load(Ordering::Relaxed), self.accepts_when_away.load(Ordering::Relaxed))
        {
            (true, true) => Ok(()),
            (true, false) => Err(DropReason::TokenUnclaimed),
            (false, _) => Err(DropReason::TokenClaimPending),
        }
    }

    /// Whether there may be questions.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// The next questions, at most so many. Each is to be answered, or asked again.
    pub fn take_questions(&self, count_max: usize) -> Vec<TokenQuestion> {
        let mut inner = lock(&self.inner);
        let count = inner.questions.len().min(count_max);
        let macs: Vec<_> = inner.questions.drain(..count).collect();
        self.is_asked.store(!inner.questions.is_empty(), Ordering::Release);
        let of = |mac: TokenMac| {
            let known = inner.known.get(&mac)?;
            Some(TokenQuestion { mac, expire_s: known.expire_s })
        };
        macs.into_iter().filter_map(of).collect()
    }

    /// The fleet's answer.
    pub fn answer(&self, mac: &[u8; 16], whose: Whose) {
        self.is_away.store(false, Ordering::Relaxed);
        if let Some(known) = lock(&self.inner).known.get_mut(mac) {
            known.whose = Some(whose);
        }
    }

    /// There was none: it is to be asked again.
    pub fn no_answer(&self, mac: &[u8; 16]) {
        self.is_away.store(true, Ordering::Relaxed);
        let mut inner = lock(&self.inner);
        if inner.known.contains_key(mac) {
            inner.questions.push_back(*mac);
            self.is_asked.store(true, Ordering::Release);
        }
    }

    /// Those that are this gateway's.
    pub fn claimed(&self) -> Vec<TokenQuestion> {
        let inner = lock(&self.inner);
        let of = |mac: &TokenMac| {
            let known = inner.known.get(mac).filter(|it| it.whose == Some(Whose::Ours))?;
            Some(TokenQuestion { mac: *mac, expire_s: known.expire_s })
        };
        inner.all.iter().filter_map(of).collect()
    }

    /// These were the process's before this one, as far as there is room.
    pub fn go_on_with_claimed(&self, claimed: impl IntoIterator<Item = TokenQuestion>) {
        let mut inner = lock(&self.inner);
        let room = self.tokens_max.saturating_sub(inner.known.len());
        for TokenQuestion { mac, expire_s } in claimed.into_iter().take(room) {
            let known = KnownToken { whose: Some(Whose::Ours), expire_s };
            if inner.known.insert(mac, known).is_none() {
                inner.all.push_back(mac);
            }
        }
    }

    /// One is of no use here, by no answer: it is over, or another gateway has it in a history that
    /// has forgotten that it was this one's.
    pub fn lose(&self, mac: &[u8; 16]) {
        if let Some(known) = lock(&self.inner).known.get_mut(mac) {
            known.whose = Some(Whose::Others);
        }
    }

    /// What becomes of tokens while there are no answers.
    pub fn accept_when_away(&self, accepts: bool) {
        self.accepts_when_away.store(accepts, Ordering::Relaxed);
    }

    /// Whether the last question had no answer.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Tokens that are remembered.
    pub fn len(&self) -> usize {
        lock(&self.inner).known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

ringgate_core::shown_by!(FleetTokens { tokens_max });

impl Inner {
    /// Looks at a few: more than come in the same time.
    fn forget_expired(&mut self, unix_s: u64) {
        for _ in 0..LOOKS.min(self.all.len()) {
            let Some(mac) = self.all.pop_front() else { return };
            let is_over = self.known.get(&mac).is_none_or(|known| known.expire_s <= unix_s);
            if is_over {
                self.known.remove(&mac);
            } else {
                self.all.push_back(mac);
            }
        }
    }
}

const LOOKS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(unix_s: u64) -> Now {
        Now { mono_ns: 0, unix_s }
    }

    #[test]
    fn a_token_is_asked_about_once_and_its_answer_is_kept() {
        let tokens = FleetTokens::new(4);
        let mac = [7; 16];
        for _ in 0..3 {
            assert_eq!(tokens.check(&mac, 50, at(1)), Err(DropReason::TokenClaimPending));
        }
        assert!(tokens.is_asked());
        assert_eq!(tokens.take_questions(9), [TokenQuestion { mac, expire_s: 50 }]);
        assert!(!tokens.is_asked() && tokens.take_questions(9).is_empty());
        tokens.answer(&mac, Whose::Ours);
        assert_eq!(tokens.check(&mac, 50, at(1)), Ok(()));
        let other = [8; 16];
        let _ = tokens.check(&other, 50, at(1));
        tokens.answer(&other, Whose::Others);
        assert_eq!(tokens.check(&other, 50, at(1)), Err(DropReason::TokenClaimed));
    }

    #[test]
    fn while_the_fleet_is_away_its_operators_word_decides() {
        let tokens = FleetTokens::new(4);
        let mac = [7; 16];
        let _ = tokens.check(&mac, 50, at(1));
        let _ = tokens.take_questions(1);
        tokens.no_answer(&mac);
        assert_eq!(tokens.check(&mac, 50, at(1)), Err(DropReason::TokenUnclaimed));
        tokens.accept_when_away(true);
        assert_eq!(tokens.check(&mac, 50, at(1)), Ok(()));
        assert_eq!(tokens.take_questions(9).len(), 1, "it is asked on");
        tokens.answer(&mac, Whose::Others);
        assert_eq!(tokens.check(&mac, 50, at(1)), Err(DropReason::TokenClaimed));
    }

    #[test]
    fn a_successor_goes_on_with_what_was_claimed_and_loses_what_another_has() {
        let tokens = FleetTokens::new(4);
        let [ours, others, open] = [7, 8, 9].map(|byte| [byte; 16]);
        for mac in [ours, others, open] {
            let _ = tokens.check(&mac, 50, at(1));
        }
        tokens.answer(&ours, Whose::Ours);
        tokens.answer(&others, Whose::Others);
        let claimed = tokens.claimed();
        assert_eq!(claimed, [TokenQuestion { mac: ours, expire_s: 50 }]);
        let next = FleetTokens::new(4);
        next.go_on_with_claimed(claimed.clone());
        assert_eq!(next.check(&ours, 50, at(1)), Ok(()));
        assert_eq!(next.claimed(), claimed);
        next.lose(&ours);
        assert_eq!(next.check(&ours, 50, at(1)), Err(DropReason::TokenClaimed));
        let small = FleetTokens::new(1);
        small.go_on_with_claimed([ours, others].map(|mac| TokenQuestion { mac, expire_s: 50 }));
        assert_eq!(small.len(), 1, "there is no room for more");
    }

    #[test]
    fn memory_is_bounded_and_given_back_when_tokens_expire() {
        let tokens = FleetTokens::new(4);
        let check = |at_s, byte: u8| tokens.check(&[byte; 16], 50, at(at_s));
        for byte in 0..4 {
            assert_eq!(check(1, byte), Err(DropReason::TokenClaimPending));
        }
        assert_eq!(check(1, 9), Err(DropReason::TokenClaimsFull));
        assert_eq!(tokens.len(), 4);
        assert_eq!(tokens.check(&[9; 16], 90, at(50)), Err(DropReason::TokenClaimPending));
        assert_eq!((tokens.len(), tokens.take_questions(9).len()), (1, 1));
    }
}
