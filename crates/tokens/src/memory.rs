//! Answers that were given, for requests that come again under the same idempotency key: who has
//! not heard the answer gets the same token, and no second slot is promised.
//!
//! The memory is this process's own, bounded by bytes and by age; the oldest answers go first. Each
//! caller has a share that no other caller's requests push anything out of, and beyond it what the
//! others leave.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::callers::CallerId;
use crate::limits::KEY_BYTES_MAX;
use crate::refusal::Refusal;

/// What was answered: a status and a body, which may hold a token.
pub type Answer = (u16, Arc<Zeroizing<String>>);

/// All answers.
#[derive(Debug)]
pub struct Memory {
    bytes_max: usize,
    bytes: usize,
    hasher: RandomState,
    /// By caller.
    shelves: Vec<Shelf>,
    next: u64,
}

/// Those of one caller.
#[derive(Debug, Default)]
struct Shelf {
    bytes: usize,
    entries: HashMap<Arc<str>, Entry>,
    /// Keys in the order in which they began, and when.
    order: BTreeMap<Ticket, (u64, Arc<str>)>,
}

#[derive(Debug)]
struct Entry {
    /// Of path and body.
    hash: u64,
    answer: Option<Answer>,
}

/// Tells the requests apart that had a key one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What a key is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Recalled {
    /// It is new, and noted.
    New(Ticket),
    /// It was answered.
    Answered(Answer),
}

impl Memory {
    /// An empty memory of at most so many bytes, for so many callers.
    pub fn new(bytes_max: usize, callers: usize) -> Self {
        let shelves = (0..callers.max(1)).map(|_| Shelf::default()).collect();
        Self { bytes_max, bytes: 0, hasher: RandomState::new(), shelves, next: 0 }
    }

    /// Looks a request up, and notes it where it is new.
    pub fn recall(
        &mut self,
        caller: CallerId,
        key: &str,
        path: &str,
        body: &[u8],
        now_ms: u64,
    ) -> Result<Recalled, Refusal> {
        let is_plain = key.bytes().all(|it| it.is_ascii_graphic());
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !is_plain {
            return Err(Refusal::IdempotencyKeyBad);
        }
        self.forget_before(now_ms.saturating_sub(AGE_MAX_MS));
        let hash = self.hasher.hash_one((path, body));
        if let Some(entry) = self.shelves[caller.index()].entries.get(key) {
            if entry.hash != hash {
                return Err(Refusal::IdempotencyMismatch);
            }
            let answer = entry.answer.clone().ok_or(Refusal::IdempotencyPending)?;
            return Ok(Recalled::Answered(answer));
        }
        self.make_room(caller, ENTRY_BYTES);
        let (ticket, key) = (Ticket(self.next), Arc::<str>::from(key));
        self.next += 1;
        self.bytes += ENTRY_BYTES;
        let shelf = &mut self.shelves[caller.index()];
        shelf.bytes += ENTRY_BYTES;
        shelf.order.insert(ticket, (now_ms, Arc::clone(&key)));
        shelf.entries.insert(key, Entry { hash, answer: None });
        Ok(Recalled::New(ticket))
    }

    /// Notes an answer. One that may be another one next time is not kept: the caller asks again.
    pub fn keep(&mut self, caller: CallerId, ticket: Ticket, answer: &Answer) {
        let len = answer.1.len();
        let is_kept = answer.0 < 300 && len + ENTRY_BYTES <= self.bytes_max;
        if !is_kept {
            return self.forget(caller.index(), ticket);
        }
        self.make_room(caller, len);
        let shelf = &mut self.shelves[caller.index()];
        // It may have been forgotten, and its key be another request's.
        let Some((_, key)) = shelf.order.get(&ticket) else { return };
        if let Some(entry) = shelf.entries.get_mut(key) {
            entry.answer = Some(answer.clone());
            shelf.bytes += len;
            self.bytes += len;
        }
    }

    /// How many bytes are kept.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room at the cost of whoever has more than its share.
    fn make_room(&mut self, caller: CallerId, bytes: usize) {
        let share = self.bytes_max / self.shelves.len();
        while self.bytes + bytes > self.bytes_max && self.bytes > 0 {
            let own = caller.index();
            let largest = (0..self.shelves.len()).max_by_key(|at| self.shelves[*at].bytes);
            let is_within_share = self.shelves[own].bytes + bytes <= share;
            let at = if is_within_share { largest.unwrap_or(own) } else { own };
            let oldest = self.shelves[at].order.first_key_value().map(|(ticket, _)| *ticket);
            match oldest {
                Some(ticket) => self.forget(at, ticket),
                None => return,
            }
        }
    }

    fn forget_before(&mut self, ms: u64) {
        for at in 0..self.shelves.len() {
            while let Some((ticket, (began_ms, _))) = self.shelves[at].order.first_key_value()
                && *began_ms < ms
            {
                let ticket = *ticket;
                self.forget(at, ticket);
            }
        }
    }

    fn forget(&mut self, at: usize, ticket: Ticket) {
        let shelf = &mut self.shelves[at];
        let Some((_, key)) = shelf.order.remove(&ticket) else { return };
        if let Some(entry) = shelf.entries.remove(&key) {
            let bytes = ENTRY_BYTES + entry.answer.map_or(0, |it| it.1.len());
            shelf.bytes -= bytes;
            self.bytes -= bytes;
        }
    }
}

/// How long answers are kept.
const AGE_MAX_MS: u64 = 600_000;

/// What an entry takes beside its answer, rounded up.
const ENTRY_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::{Caller, Callers};

    fn ids<const N: usize>() -> [CallerId; N] {
        let caller = |at: usize| {
            let secret = Zeroizing::new(format!("s{at}").into_bytes());
            let (scopes, groups) = (Vec::new(), Vec::new());
            Caller { name: format!("c{at}"), secret, scopes, groups, rate: 0, burst: 0 }
        };
        let callers = Callers::new((0..N).map(caller).collect());
        std::array::from_fn(|at| callers.find(format!("Bearer s{at}").as_bytes()).unwrap())
    }

    fn answer(status: u16, text: &str) -> Answer {
        (status, Arc::new(Zeroizing::new(text.into())))
    }

    fn begin(memory: &mut Memory, id: CallerId, key: &str, now_ms: u64) -> Ticket {
        match memory.recall(id, key, "/p", b"body", now_ms) {
            Ok(Recalled::New(ticket)) => ticket,
            other => panic!("{key} is not new: {other:?}"),
        }
    }

    #[test]
    fn a_request_that_comes_again_gets_the_same_answer() {
        let (mut memory, [id]) = (Memory::new(10_000, 1), ids());
        let ticket = begin(&mut memory, id, "k", 0);
        let pending = memory.recall(id, "k", "/p", b"body", 1);
        assert_eq!(pending, Err(Refusal::IdempotencyPending));
        memory.keep(id, ticket, &answer(200, "token"));
        let again = memory.recall(id, "k", "/p", b"body", 2);
        assert_eq!(again, Ok(Recalled::Answered(answer(200, "token"))));
        for (path, body) in [("/q", &b"body"[..]), ("/p", b"other")] {
            let other = memory.recall(id, "k", path, body, 3);
            assert_eq!(other, Err(Refusal::IdempotencyMismatch));
        }
        begin(&mut memory, id, "k", AGE_MAX_MS + 1);
    }

    #[test]
    fn a_refusal_is_not_kept() {
        let (mut memory, [id]) = (Memory::new(10_000, 1), ids());
        let ticket = begin(&mut memory, id, "k", 0);
        memory.keep(id, ticket, &answer(503, "later"));
        assert_eq!(memory.bytes(), 0);
        let ticket = begin(&mut memory, id, "k", 1);
        memory.keep(id, ticket, &answer(200, "token"));
        assert_eq!((memory.bytes(), memory.shelves[0].order.len()), (ENTRY_BYTES + 5, 1));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut memory, [id]) = (Memory::new(2000, 1), ids());
        for at in 0..100 {
            let ticket = begin(&mut memory, id, &at.to_string(), at);
            memory.keep(id, ticket, &answer(200, &"x".repeat(100)));
            assert!(memory.bytes() <= 2000);
        }
        begin(&mut memory, id, "0", 100);
        let ticket = begin(&mut memory, id, "large", 100);
        let before = memory.bytes();
        memory.keep(id, ticket, &answer(200, &"x".repeat(5000)));
        assert_eq!(memory.bytes() + ENTRY_BYTES, before, "what cannot be kept pushes nothing out");
        for bad in ["", "a b", "\u{e9}", &"k".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(memory.recall(id, bad, "/p", b"", 0), Err(Refusal::IdempotencyKeyBad));
        }
    }

    #[test]
    fn who_comes_late_with_an_answer_does_not_touch_the_next_request_of_its_key() {
        let (mut memory, [id]) = (Memory::new(600, 1), ids());
        let first = begin(&mut memory, id, "k", 0);
        // Others push it out, and its key is used again.
        for other in ["a", "b"] {
            begin(&mut memory, id, other, 1);
        }
        let second = begin(&mut memory, id, "k", 2);
        memory.keep(id, second, &answer(200, "second"));
        let bytes = memory.bytes();
        memory.keep(id, first, &answer(200, "first"));
        memory.keep(id, first, &answer(503, "nothing"));
        assert_eq!(memory.bytes(), bytes);
        let again = memory.recall(id, "k", "/p", b"body", 3);
        assert_eq!(again, Ok(Recalled::Answered(answer(200, "second"))));
    }

    #[test]
    fn nobody_pushes_out_what_others_have_within_their_share() {
        let (mut memory, [quiet, loud]) = (Memory::new(10_000, 2), ids());
        for at in 0..10 {
            let ticket = begin(&mut memory, quiet, &at.to_string(), 0);
            memory.keep(quiet, ticket, &answer(200, "token"));
        }
        let shelf = memory.shelves[0].bytes;
        for at in 0..1000 {
            begin(&mut memory, loud, &at.to_string(), 0);
        }
        assert_eq!(memory.shelves[0].bytes, shelf);
        assert!(
            memory.bytes() <= 10_000 && memory.shelves[1].bytes > 5_000,
            "what is left is used"
        );
        // Who has less than its share gets it back.
        for at in 10..17 {
            begin(&mut memory, quiet, &at.to_string(), 0);
        }
        assert_eq!(memory.shelves[0].order.len(), 17);
        assert!(memory.bytes() <= 10_000);
    }
}
