//! The time of a turn.

/// The time of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of a clock that only goes forward.
    pub mono_ns: u64,
    /// Seconds since 1970, by which tokens expire.
    pub unix_s: u64,
}

pub(crate) const NS_PER_MS: u64 = 1_000_000;
