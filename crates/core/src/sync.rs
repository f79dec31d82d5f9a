//! How threads share what is never held for long.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, whoever has panicked with it: a thread that panics ends its process, and tests that
/// panic on purpose must not take others along.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
