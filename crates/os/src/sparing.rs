//! What others can have a process log as often as they like, told sparingly.

use std::sync::{Mutex, PoisonError};

use crate::clock;

/// When something was told last.
#[derive(Debug, Default)]
pub struct OnceASecond(Mutex<Option<u64>>);

impl OnceASecond {
    /// Whether it is to be told, which it is then.
    pub fn is_told(&self) -> bool {
        self.is_told_at(clock::monotonic_ns())
    }

    /// The same by another clock.
    pub fn is_told_at(&self, now_ns: u64) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = last.is_none_or(|last| now_ns.saturating_sub(last) >= TELL_EVERY_NS);
        if is_told {
            *last = Some(now_ns);
        }
        is_told
    }
}

const TELL_EVERY_NS: u64 = 1_000_000_000;
