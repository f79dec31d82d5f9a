//! The name of a player's session on bundle links.
//!
//! The worker that owns a session is part of its id, so that a game process with nothing but an id
//! knows which link to answer on, without a table. A session never changes its worker, even when
//! the player's port does.

use std::fmt;
use std::num::NonZeroU64;

use super::WORKERS_MAX;

/// One session. Unique for the gateway's lifetime, never 0; the upper eight bits are the worker's
/// index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct SessionId(NonZeroU64);

impl SessionId {
    /// The id of a worker's `serial`-th session.
    ///
    /// # Panics
    /// Where there is no such worker, or where `serial` is 0 or over 56 bits (one session per
    /// nanosecond lasts for two years).
    #[inline]
    pub const fn new(worker: usize, serial: u64) -> Self {
        assert!(worker < WORKERS_MAX && serial != 0 && serial >> SERIAL_BITS == 0);
        let id = (worker as u64) << SERIAL_BITS | serial;
        Self(NonZeroU64::new(id).expect("the serial is not 0"))
    }

    /// The session that a record names; `None` for 0.
    #[inline]
    pub const fn from_u64(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number that records carry.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0.get()
    }

    /// The worker that owns the session. Whether there is such a worker is for the reader to check.
    #[inline]
    pub const fn worker(self) -> usize {
        (self.0.get() >> SERIAL_BITS) as usize
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker(), self.0.get() & ((1 << SERIAL_BITS) - 1))
    }
}

const SERIAL_BITS: u32 = 56;
