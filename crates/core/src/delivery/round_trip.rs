//! How long a packet and its acknowledgement take: smoothed as TCP does (RFC 6298).

/// The estimate.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_field_names, reason = "the unit stands last")]
pub(super) struct RoundTrip {
    /// 0 before the first sample.
    smoothed_ns: u64,
    variation_ns: u64,
    latest_ns: u64,
    /// By how much one differs from the one before, smoothed: a queue that grows makes all of them
    /// longer, and does not show here.
    jitter_ns: u64,
}

impl RoundTrip {
    /// 0 before the first sample.
    pub(super) const fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    pub(super) const fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    pub(super) const fn jitter_ns(&self) -> u64 {
        self.jitter_ns
    }

    pub(super) fn handle_sample(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variation_ns) = (sample_ns, sample_ns / 2);
            self.latest_ns = sample_ns;
            return;
        }
        self.jitter_ns = (7 * self.jitter_ns + self.latest_ns.abs_diff(sample_ns)) / 8;
        self.latest_ns = sample_ns;
        let off_ns = self.smoothed_ns.abs_diff(sample_ns);
        self.variation_ns = (3 * self.variation_ns + off_ns) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + sample_ns) / 8;
    }

    /// After how long an acknowledgement is overdue that may wait for `ack_delay_ns` at the other
    /// end.
    pub(super) fn overdue_ns(&self, ack_delay_ns: u64) -> u64 {
        if self.smoothed_ns == 0 {
            return OVERDUE_NS_FIRST;
        }
        let spread_ns = (4 * self.variation_ns).max(SPREAD_NS_MIN);
        self.smoothed_ns + spread_ns + ack_delay_ns
    }
}

crate::carried!(
    RoundTrip { smoothed_ns, variation_ns, latest_ns, jitter_ns }
    if |it| {
        let Self { smoothed_ns, variation_ns, latest_ns, jitter_ns } = *it;
        [smoothed_ns, variation_ns, latest_ns, jitter_ns].iter().all(|ns| *ns <= NS_MAX)
    }, "round trip"
);

/// Far more than an end waits for.
const NS_MAX: u64 = 1 << 40;

/// Before anything is known.
const OVERDUE_NS_FIRST: u64 = 300_000_000;

/// Clocks that are read once a turn, and game loops, are not finer than this.
const SPREAD_NS_MIN: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_round_trip_is_learned_and_a_slower_one_followed() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.overdue_ns(0), OVERDUE_NS_FIRST);
        (0..50).for_each(|_| round_trip.handle_sample(40_000_000));
        assert_eq!(round_trip.smoothed_ns(), 40_000_000);
        assert_eq!(round_trip.overdue_ns(1_000_000), 40_000_000 + SPREAD_NS_MIN + 1_000_000);
        round_trip.handle_sample(120_000_000);
        assert_eq!(round_trip.smoothed_ns(), 50_000_000);
        assert!(round_trip.overdue_ns(0) > 120_000_000, "it was late once");
        (0..100).for_each(|_| round_trip.handle_sample(120_000_000));
        assert!(round_trip.smoothed_ns() > 119_000_000 && round_trip.variation_ns() < 1_000_000);
    }
}
