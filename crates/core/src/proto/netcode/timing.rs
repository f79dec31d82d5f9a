//! Paces and timeouts that both sides of netcode share. Instants are nanoseconds of one clock,
//! whichever the caller uses.

/// Requests, responses and keep-alives leave this far apart, where nothing else was sent meanwhile.
pub const SEND_INTERVAL_NS: u64 = 100_000_000;

/// Disconnect packets sent in a row, because none is acknowledged.
pub const DISCONNECT_COUNT: u8 = 10;

/// The timeout that a token prescribes, with the reference's reading of zero and of negative
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    seconds: i32,
}

impl Timeout {
    /// The timeout of a token.
    pub const fn from_seconds(seconds: i32) -> Self {
        Self { seconds }
    }

    /// When a peer that was last heard at `heard_ns` counts as gone; `None` means never, which zero
    /// means too.
    ///
    /// A server gives up from this instant on, a client only after it.
    #[inline]
    pub const fn session_deadline_ns(self, heard_ns: u64) -> Option<u64> {
        if self.seconds > 0 { Some(self.after(heard_ns)) } else { None }
    }

    /// The last instant at which a response to a request of `requested_ns` is taken; `None` means
    /// any time.
    ///
    /// Zero leaves no time at all: such a client gets in only where request and response fall into
    /// the same instant.
    #[inline]
    pub const fn pending_deadline_ns(self, requested_ns: u64) -> Option<u64> {
        if self.seconds >= 0 { Some(self.after(requested_ns)) } else { None }
    }

    const fn after(self, start_ns: u64) -> u64 {
        start_ns.saturating_add(self.seconds as u64 * NS_PER_S)
    }
}

/// Whole seconds as nanoseconds; what does not fit lasts for ever.
pub(super) const fn seconds_to_ns(seconds: u64) -> u64 {
    seconds.saturating_mul(NS_PER_S)
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_negative_timeouts_mean_what_they_mean_in_the_reference() {
        let deadlines = |seconds| {
            let timeout = Timeout::from_seconds(seconds);
            (timeout.session_deadline_ns(5), timeout.pending_deadline_ns(5))
        };
        assert_eq!(deadlines(2), (Some(2_000_000_005), Some(2_000_000_005)));
        assert_eq!(deadlines(0), (None, Some(5)));
        assert_eq!(deadlines(-1), (None, None));
        assert_eq!(Timeout::from_seconds(i32::MAX).session_deadline_ns(u64::MAX), Some(u64::MAX));
    }
}
