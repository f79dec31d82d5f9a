//! Answers that were given, for requests that come again under the same idempotency key: who has
//! not heard the answer gets the same token, and no second slot is promised.
//!
//! The memory is this process's own, bounded by bytes and by age; the oldest answers go first.

use std::collections::{HashMap, VecDeque};
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
    entries: HashMap<Named, Entry>,
    /// In the order in which they began.
    order: VecDeque<(u64, Named)>,
}

type Named = (CallerId, Box<str>);

#[derive(Debug)]
struct Entry {
    began_ms: u64,
    /// Of path and body.
    hash: u64,
    answer: Option<Answer>,
}

/// What a key is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Recalled {
    /// It is new, and noted.
    New,
    /// It was answered.
    Answered(Answer),
}

impl Memory {
    /// An empty memory of at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            hasher: RandomState::new(),
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
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
        let named = (caller, Box::from(key));
        if let Some(entry) = self.entries.get(&named) {
            if entry.hash != hash {
                return Err(Refusal::IdempotencyMismatch);
            }
            let answer = entry.answer.clone().ok_or(Refusal::IdempotencyPending)?;
            return Ok(Recalled::Answered(answer));
        }
        self.make_room(ENTRY_BYTES);
        self.bytes += ENTRY_BYTES;
        self.order.push_back((now_ms, named.clone()));
        self.entries.insert(named, Entry { began_ms: now_ms, hash, answer: None });
        Ok(Recalled::New)
    }

    /// Notes an answer. One that may be another one next time is not kept: the caller asks again.
    pub fn keep(&mut self, caller: CallerId, key: &str, answer: &Answer) {
        let named = (caller, Box::from(key));
        if answer.0 >= 300 {
            if self.entries.remove(&named).is_some() {
                self.bytes -= ENTRY_BYTES;
                // It is one of the last: what was refused has not waited long.
                if let Some(at) = self.order.iter().rposition(|(_, it)| *it == named) {
                    self.order.remove(at);
                }
            }
            return;
        }
        let len = answer.1.len();
        if !self.entries.contains_key(&named) {
            return;
        }
        self.make_room(len);
        if let Some(entry) = self.entries.get_mut(&named) {
            entry.answer = Some(answer.clone());
            self.bytes += len;
        }
    }

    /// How many bytes are kept.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max && self.forget_oldest() {}
    }

    fn forget_before(&mut self, ms: u64) {
        while self.order.front().is_some_and(|(began_ms, _)| *began_ms < ms) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((began_ms, named)) = self.order.pop_front() else { return false };
        // A key that was given up may have been used again since.
        if self.entries.get(&named).is_some_and(|entry| entry.began_ms == began_ms) {
            let entry = self.entries.remove(&named).expect("it was there");
            self.bytes -= ENTRY_BYTES + entry.answer.map_or(0, |it| it.1.len());
        }
        true
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

    fn id() -> CallerId {
        let secret = Zeroizing::new(b"s".to_vec());
        let (scopes, groups) = (Vec::new(), Vec::new());
        let caller = Caller { name: "a".into(), secret, scopes, groups, rate: 0, burst: 0 };
        Callers::new(vec![caller]).find(b"Bearer s").unwrap()
    }

    fn answer(status: u16, text: &str) -> Answer {
        (status, Arc::new(Zeroizing::new(text.into())))
    }

    #[test]
    fn a_request_that_comes_again_gets_the_same_answer() {
        let (mut memory, id) = (Memory::new(10_000), id());
        assert_eq!(memory.recall(id, "k", "/p", b"body", 0), Ok(Recalled::New));
        let pending = memory.recall(id, "k", "/p", b"body", 1);
        assert_eq!(pending, Err(Refusal::IdempotencyPending));
        memory.keep(id, "k", &answer(200, "token"));
        let again = memory.recall(id, "k", "/p", b"body", 2);
        assert_eq!(again, Ok(Recalled::Answered(answer(200, "token"))));
        for (path, body) in [("/q", &b"body"[..]), ("/p", b"other")] {
            let other = memory.recall(id, "k", path, body, 3);
            assert_eq!(other, Err(Refusal::IdempotencyMismatch));
        }
        assert_eq!(memory.recall(id, "k", "/p", b"other", AGE_MAX_MS + 1), Ok(Recalled::New));
    }

    #[test]
    fn a_refusal_is_not_kept() {
        let (mut memory, id) = (Memory::new(10_000), id());
        assert_eq!(memory.recall(id, "k", "/p", b"", 0), Ok(Recalled::New));
        memory.keep(id, "k", &answer(503, "later"));
        assert_eq!(memory.recall(id, "k", "/p", b"", 1), Ok(Recalled::New));
        memory.keep(id, "k", &answer(200, "token"));
        assert_eq!((memory.bytes(), memory.order.len()), (ENTRY_BYTES + 5, 1));
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut memory, id) = (Memory::new(2000), id());
        for at in 0..100 {
            let key = at.to_string();
            assert_eq!(memory.recall(id, &key, "/p", b"", at), Ok(Recalled::New));
            memory.keep(id, &key, &answer(200, &"x".repeat(100)));
            assert!(memory.bytes() <= 2000);
        }
        assert_eq!(memory.recall(id, "0", "/p", b"", 100), Ok(Recalled::New), "it is forgotten");
        for bad in ["", "a b", "\u{e9}", &"k".repeat(KEY_BYTES_MAX + 1)] {
            assert_eq!(memory.recall(id, bad, "/p", b"", 0), Err(Refusal::IdempotencyKeyBad));
        }
    }
}
