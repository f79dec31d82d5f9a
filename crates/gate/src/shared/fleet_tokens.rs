//! Tokens that name other gateways as well: which of them are this gateway's. With one name, the
//! gateway's own memory of tokens is enough; with several, the fleet has to agree.
//!
//! A worker that meets such a token for the first time leaves a question and drops the request; its
//! client asks again a tenth of a second later, when the answer is there. Nothing is parked, so
//! whoever has many tokens takes no more room than a name for each, and a slow etcd holds nothing
//! up. What is asked and answered is bounded, and forgotten when the token has expired. Where more
//! is asked than can be answered, the newest question goes first, and one whose client has gone
//! goes not at all: its answer would come after the client.
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
    /// Those that wait, each once, the newest one last.
    questions: VecDeque<TokenMac>,
}

#[derive(Clone, Copy)]
struct KnownToken {
    view: TokenView,
    /// Until when an answer is of use to somebody, in seconds since 1970.
    wanted_until_s: u32,
    expire_s: u64,
}

/// What is known of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenView {
    /// Nothing, and it is not asked about.
    Unasked,
    /// A question waits.
    Waits,
    /// A question is on its way.
    Asked,
    /// Whose it is.
    Known(Whose),
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
        let Inner { known, all, questions } = &mut *inner;
        if questions.len() >= 2 * self.tokens_max {
            // No more of them wait than are known: the tokens of the others have expired.
            let waits = |it: &KnownToken| it.view == TokenView::Waits;
            questions.retain(|mac| known.get(mac).is_some_and(waits));
        }
        if !known.contains_key(mac) {
            if known.len() >= self.tokens_max {
                return Err(DropReason::TokenClaimsFull);
            }
            all.push_back(*mac);
        }
        let fresh = KnownToken { view: TokenView::Unasked, wanted_until_s: 0, expire_s };
        let it = known.entry(*mac).or_insert(fresh);
        match it.view {
            TokenView::Known(Whose::Ours) => return Ok(()),
            TokenView::Known(Whose::Others) => return Err(DropReason::TokenClaimed),
            TokenView::Unasked => {
                it.view = TokenView::Waits;
                questions.push_back(*mac);
                self.is_asked.store(true, Ordering::Release);
            }
            TokenView::Waits | TokenView::Asked => {}
        }
        let until_s = u32::try_from(now.unix_s.saturating_add(WANTED_S)).unwrap_or(u32::MAX);
        it.wanted_until_s = it.wanted_until_s.max(until_s);
        match (self.is_away.load(Ordering::Relaxed), self.accepts_when_away.load(Ordering::Relaxed))
        {
            (true, true) => {
                // Its client asks no more, and the fleet has to hear of it all the same.
                it.wanted_until_s = u32::MAX;
                Ok(())
            }
            (true, false) => Err(DropReason::TokenUnclaimed),
            (false, _) => Err(DropReason::TokenClaimPending),
        }
    }

    /// Whether there may be questions.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// The next questions, at most so many. Each is to be answered, or asked again.
    pub fn take_questions(&self, count_max: usize, unix_s: u64) -> Vec<TokenQuestion> {
        let mut inner = lock(&self.inner);
        let Inner { known, questions, .. } = &mut *inner;
        let mut taken = Vec::new();
        for _ in 0..count_max.saturating_mul(LOOKS_FOR_ONE) {
            let Some(mac) = questions.pop_back_if(|_| taken.len() < count_max) else { break };
            let waits = |it: &&mut KnownToken| it.view == TokenView::Waits;
            let Some(it) = known.get_mut(&mac).filter(waits) else { continue };
            if u64::from(it.wanted_until_s) < unix_s {
                it.view = TokenView::Unasked;
                continue;
            }
            it.view = TokenView::Asked;
            taken.push(TokenQuestion { mac, expire_s: it.expire_s });
        }
        self.is_asked.store(!questions.is_empty(), Ordering::Release);
        taken
    }

    /// The fleet's answer.
    pub fn answer(&self, mac: &[u8; 16], whose: Whose) {
        self.is_away.store(false, Ordering::Relaxed);
        self.decide(mac, whose);
    }

    fn decide(&self, mac: &[u8; 16], whose: Whose) {
        if let Some(known) = lock(&self.inner).known.get_mut(mac) {
            known.view = TokenView::Known(whose);
        }
    }

    /// There was none: it is to be asked again, behind those that were not asked yet.
    pub fn no_answer(&self, mac: &[u8; 16]) {
        self.is_away.store(true, Ordering::Relaxed);
        let mut inner = lock(&self.inner);
        let Inner { known, questions, .. } = &mut *inner;
        if let Some(it) = known.get_mut(mac).filter(|it| it.view == TokenView::Asked) {
            it.view = TokenView::Waits;
            questions.push_front(*mac);
            self.is_asked.store(true, Ordering::Release);
        }
    }

    /// Those that are this gateway's.
    pub fn claimed(&self) -> Vec<TokenQuestion> {
        let inner = lock(&self.inner);
        let of = |mac: &TokenMac| {
            let is_ours = |it: &&KnownToken| it.view == TokenView::Known(Whose::Ours);
            let known = inner.known.get(mac).filter(is_ours)?;
            Some(TokenQuestion { mac: *mac, expire_s: known.expire_s })
        };
        inner.all.iter().filter_map(of).collect()
    }

    /// These were the process's before this one, as far as there is room.
    pub fn go_on_with_claimed(&self, claimed: impl IntoIterator<Item = TokenQuestion>) {
        let mut inner = lock(&self.inner);
        let room = self.tokens_max.saturating_sub(inner.known.len());
        for TokenQuestion { mac, expire_s } in claimed.into_iter().take(room) {
            let view = TokenView::Known(Whose::Ours);
            let known = KnownToken { view, wanted_until_s: 0, expire_s };
            if inner.known.insert(mac, known).is_none() {
                inner.all.push_back(mac);
            }
        }
    }

    /// One is of no use here, by no answer: it is over, or another gateway has it in a history that
    /// has forgotten that it was this one's.
    pub fn lose(&self, mac: &[u8; 16]) {
        self.decide(mac, Whose::Others);
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
/// How many questions are looked at, at the most, for one that is still wanted.
const LOOKS_FOR_ONE: usize = 16;
/// How long a client's last request lasts: it asks ten times in a second.
const WANTED_S: u64 = 3;

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
        assert_eq!(tokens.take_questions(9, 1), [TokenQuestion { mac, expire_s: 50 }]);
        assert!(!tokens.is_asked() && tokens.take_questions(9, 1).is_empty());
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
        let _ = tokens.take_questions(1, 1);
        tokens.no_answer(&mac);
        assert_eq!(tokens.check(&mac, 50, at(1)), Err(DropReason::TokenUnclaimed));
        tokens.accept_when_away(true);
        assert_eq!(tokens.check(&mac, 50, at(1)), Ok(()));
        assert_eq!(tokens.take_questions(9, 1).len(), 1, "it is asked on");
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
        assert_eq!((tokens.len(), tokens.take_questions(9, 50).len()), (1, 1));
        // Nor do the names of tokens add up that expire before anybody is asked.
        for byte in 10..200 {
            let at_s = u64::from(byte) * 100;
            let _ = tokens.check(&[byte; 16], at_s + 50, at(at_s));
        }
        assert!(lock(&tokens.inner).questions.len() <= 8);
    }

    #[test]
    fn the_newest_question_goes_first_and_one_that_nobody_waits_for_not_at_all() {
        let tokens = FleetTokens::new(9);
        let check = |at_s, byte: u8| tokens.check(&[byte; 16], 500, at(at_s));
        let taken = |count_max, at_s| {
            let taken = tokens.take_questions(count_max, at_s);
            taken.iter().map(|it| it.mac[0]).collect::<Vec<_>>()
        };
        for (at_s, byte) in [(1, 1), (1, 2), (9, 3), (9, 1), (9, 4)] {
            let _ = check(at_s, byte);
        }
        assert_eq!(taken(1, 9), [4], "more wait than go");
        tokens.no_answer(&[4; 16]);
        assert_eq!(taken(9, 9), [3, 1, 4], "nobody has asked for the second for long");
        assert!(!tokens.is_asked());
        let _ = check(20, 2);
        assert_eq!(taken(9, 20), [2], "its client is back");
        // Who was let in asks no more, and no other gateway may let it in later.
        tokens.no_answer(&[2; 16]);
        tokens.accept_when_away(true);
        assert_eq!(check(20, 2), Ok(()));
        assert_eq!(taken(9, 400), [2]);
    }
}
