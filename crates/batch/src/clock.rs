//! The seam between who needs the time and who knows it.

/// Tells the time, by two clocks.
pub trait Clock {
    /// Both clocks now.
    fn now(&self) -> Moment;
}

/// Both clocks at one moment. Where time stands still, a moment is a clock by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds of a clock that only goes forward.
    pub mono_ns: u64,
    /// Nanoseconds since 1970, the clock that the kernel stamps datagrams with.
    pub unix_ns: u64,
}

impl Clock for Moment {
    fn now(&self) -> Moment {
        *self
    }
}
