//! What others can have a process log as often as they like, told sparingly.

use std::sync::{Mutex, PoisonError};

use ringgate_os::clock;

/// When something was told last.
#[derive(Debug, Default)]
pub struct OnceASecond(Mutex<Option<u64>>);

impl OnceASecond {
    /// Whether it is to be told, which it is then.
    pub fn is_told(&self) -> bool {
        let now_ns = clock::monotonic_ns();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = last.is_none_or(|last| now_ns.saturating_sub(last) >= TELL_EVERY_NS);
        if is_told {
            *last = Some(now_ns);
        }
        is_told
    }
}

const TELL_EVERY_NS: u64 = 1_000_000_000;
