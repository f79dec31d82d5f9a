//! What a thread does between two payloads that leave at moments of their own.
//!
//! One thread sends and listens, on one core. A second thread for listening would need a core of
//! its own, which small machines do not have: on the sender's core the scheduler would hand it
//! slices of milliseconds, and every payload due meanwhile would be late. So the sender spins on
//! the clock and listens in the gaps, to few datagrams at a time, and not always: each look at
//! a socket takes its lock and its memory from the core that is sending into it. Nothing is lost by
//! looking late, because datagrams bear the time at which the kernel had them.
//!
//! The thread sleeps where the next moment is so far away that waking late cannot matter. No clock
//! is read here and nothing waits: [`Pacer::step`] says what to do now.

/// When a thread has listened last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    listened_ns: u64,
    has_more: bool,
    /// What has been sent, less what has been listened for: as many answers may be waiting.
    owed: usize,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something is due.
    Send,
    /// Take in the first of what has arrived.
    Listen,
    /// Read the clock until it shows this, and ask again.
    SpinUntil(u64),
    /// Sleep for so many nanoseconds, then listen.
    Rest(u64),
}

impl Pacer {
    /// What to do at a moment, when the next payload, or whatever else is planned, is due at
    /// another.
    pub(super) fn step(&self, now_ns: u64, due_ns: u64) -> Step {
        let left_ns = due_ns.saturating_sub(now_ns);
        let deaf_ns = now_ns.saturating_sub(self.listened_ns);
        if left_ns < GAP_NS_MIN {
            return match left_ns {
                // Who has no time at all has to hear as much as it sends nevertheless.
                _ if deaf_ns >= DEAF_NS_MAX || self.owed >= HEARD_AT_ONCE as usize => Step::Listen,
                0 => Step::Send,
                _ => Step::SpinUntil(due_ns),
            };
        }
        if self.has_more || deaf_ns >= LISTEN_EVERY_NS {
            return Step::Listen;
        }
        if left_ns > REST_NS_MIN {
            return Step::Rest(left_ns - WAKE_NS_MAX);
        }
        Step::SpinUntil(due_ns.min(self.listened_ns + LISTEN_EVERY_NS))
    }

    /// So many datagrams were taken in at a moment.
    pub(super) const fn note(&mut self, now_ns: u64, datagrams: usize) {
        self.listened_ns = now_ns;
        self.has_more = datagrams >= HEARD_AT_ONCE as usize;
        self.owed = if self.has_more { self.owed.saturating_sub(datagrams) } else { 0 };
    }

    /// So many datagrams have been sent.
    pub(super) const fn sent(&mut self, datagrams: usize) {
        self.owed += datagrams;
    }
}

/// Datagrams taken in at once: what they take to read and judge, some 15 µs, is the most that
/// listening can make a payload late.
pub(super) const HEARD_AT_ONCE: u16 = 32;

/// In a shorter gap no listening begins.
const GAP_NS_MIN: u64 = 3_000;

/// How often a thread listens while it has time.
const LISTEN_EVERY_NS: u64 = 50_000;

/// And while it has none.
const DEAF_NS_MAX: u64 = 500_000;

/// A shorter gap is spun through.
const REST_NS_MIN: u64 = 1_000_000;

/// So much before the moment a sleeping thread asks to be woken.
const WAKE_NS_MAX: u64 = 300_000;

#[cfg(test)]
mod tests;
