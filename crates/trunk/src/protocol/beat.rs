//! What each side says on a lane twice a second, whether there is anything else to say or not: that
//! it lives, what time it is there, and what has arrived.

/// How often a side says it.
pub const BEAT_NS: u64 = 500_000_000;

/// And until it has heard one of the other side's: the first may be lost.
const FIRST_BEATS_NS: u64 = 100_000_000;

/// A side that was not heard for so long is gone.
pub const SILENCE_NS: u64 = 3_000_000_000;

/// What has arrived of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Datagrams, each counted once.
    pub received: u64,
    /// Sequence numbers that were skipped when a later one came.
    pub gaps: u64,
    /// Of those, the ones that came after all.
    pub filled: u64,
}

impl Arrived {
    /// Datagrams that have not come, as far as that can be said now.
    pub const fn lost(&self) -> u64 {
        self.gaps.saturating_sub(self.filled)
    }
}

ringgate_core::carried!(Arrived { received, gaps, filled });

/// The section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// The sender's clock, in microseconds; it means nothing to anybody else.
    pub clock_us: u64,
    /// The last clock that the sender has heard, 0 where it has heard none.
    pub echo_us: u64,
    /// How long ago that was.
    pub held_us: u32,
    /// What has arrived at the sender.
    pub arrived: Arrived,
}

/// Bytes of a beat's fields.
pub(crate) const BEAT_BYTES: usize = 44;

impl Beat {
    pub(crate) fn to_bytes(self) -> [u8; BEAT_BYTES] {
        let mut bytes = [0; BEAT_BYTES];
        bytes[..8].copy_from_slice(&self.clock_us.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.echo_us.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.held_us.to_le_bytes());
        let Arrived { received, gaps, filled } = self.arrived;
        for (place, value) in bytes[20..].chunks_exact_mut(8).zip([received, gaps, filled]) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BEAT_BYTES] = bytes.try_into().ok()?;
        let at = |from: usize| {
            u64::from_le_bytes(*bytes[from..].first_chunk().expect("the fields are within"))
        };
        let arrived = Arrived { received: at(20), gaps: at(28), filled: at(36) };
        Some(Self { clock_us: at(0), echo_us: at(8), held_us: at(16) as u32, arrived })
    }
}

/// One side's beats and what it has learned from the other's.
#[derive(Debug)]
pub(crate) struct Pulse {
    due_ns: u64,
    heard_ns: u64,
    /// The other's clock, and when it came.
    echo: Option<(u64, u64)>,
    pub(crate) round_trip_ns: Option<u64>,
    /// What has arrived at the other side.
    pub(crate) there: Arrived,
}

ringgate_core::carried!(Pulse {
    due_ns as time,
    heard_ns as time,
    echo,
    round_trip_ns,
    there,
});

impl Pulse {
    pub(crate) fn new(now_ns: u64) -> Self {
        let there = Arrived::default();
        Self { due_ns: now_ns, heard_ns: now_ns, echo: None, round_trip_ns: None, there }
    }

    /// The beat that is due.
    pub(crate) fn poll(&mut self, now_ns: u64, arrived: Arrived) -> Option<Beat> {
        if now_ns < self.due_ns {
            return None;
        }
        self.due_ns = now_ns + if self.echo.is_some() { BEAT_NS } else { FIRST_BEATS_NS };
        let (echo_us, at_ns) = self.echo.unwrap_or((0, now_ns));
        let held_us = u32::try_from(now_ns.saturating_sub(at_ns) / 1000).unwrap_or(u32::MAX);
        Some(Beat { clock_us: now_ns / 1000, echo_us, held_us, arrived })
    }

    pub(crate) const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Something authentic has come.
    pub(crate) fn hear(&mut self, now_ns: u64) {
        self.heard_ns = self.heard_ns.max(now_ns);
    }

    pub(crate) const fn is_silent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS
    }

    /// When the other side counts as gone unless it is heard before.
    pub(crate) const fn silent_at_ns(&self) -> u64 {
        self.heard_ns.saturating_add(SILENCE_NS)
    }

    /// Takes the other side's beat in. Returns whether more was lost since the one before.
    pub(crate) fn handle(&mut self, beat: Beat, now_ns: u64) -> bool {
        if self.echo.is_some_and(|(latest_us, _)| beat.clock_us < latest_us) {
            // It was overtaken by a later one.
            return false;
        }
        self.echo = Some((beat.clock_us, now_ns));
        if beat.echo_us != 0 {
            let sent_us = beat.echo_us.saturating_add(u64::from(beat.held_us));
            self.round_trip_ns =
                (now_ns / 1000).checked_sub(sent_us).map(|us| us * 1000).or(self.round_trip_ns);
        }
        let has_lost_more = beat.arrived.lost() > self.there.lost();
        self.there = beat.arrived;
        has_lost_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_comes_back() {
        let arrived = Arrived { received: u64::MAX, gaps: 9, filled: 1 << 40 };
        let beat = Beat { clock_us: 1, echo_us: u64::MAX, held_us: 77, arrived };
        assert_eq!(Beat::read(&beat.to_bytes()), Some(beat));
        assert_eq!((arrived.lost(), Beat::read(&[0; 43]), Beat::read(&[0; 45])), (0, None, None));
    }

    #[test]
    fn the_round_trip_is_what_the_way_takes_and_not_the_waiting() {
        let ms = 1_000_000;
        let (mut here, mut there) = (Pulse::new(5 * ms), Pulse::new(5 * ms));
        let first = here.poll(5 * ms, Arrived::default()).expect("the first is due at once");
        assert_eq!(here.poll(6 * ms, Arrived::default()), None);
        there.handle(first, 5 * ms + 2 * ms);
        let answer = there.poll(400 * ms, Arrived::default()).expect("it is due");
        here.handle(answer, 403 * ms);
        assert_eq!(here.round_trip_ns, Some(5 * ms), "2 ms there, 3 ms back");
    }

    #[test]
    fn beats_come_quickly_until_one_was_heard() {
        let mut pulse = Pulse::new(0);
        assert!(pulse.poll(0, Arrived::default()).is_some());
        assert!(pulse.poll(FIRST_BEATS_NS, Arrived::default()).is_some());
        pulse.handle(Beat::default(), FIRST_BEATS_NS + 1);
        assert!(pulse.poll(2 * FIRST_BEATS_NS, Arrived::default()).is_some());
        assert_eq!(pulse.due_ns(), 2 * FIRST_BEATS_NS + BEAT_NS);
    }

    #[test]
    fn an_absurd_or_late_beat_changes_nothing() {
        let mut pulse = Pulse::new(0);
        let absurd = Beat { clock_us: 9, echo_us: u64::MAX, held_us: 1, ..Beat::default() };
        assert!(!pulse.handle(absurd, 1000));
        assert_eq!(pulse.round_trip_ns, None);
        let arrived = Arrived { received: 5, gaps: 3, filled: 1 };
        assert!(pulse.handle(Beat { clock_us: 10, arrived, ..Beat::default() }, 2000));
        assert!(!pulse.handle(Beat { clock_us: 9, ..Beat::default() }, 3000), "it is older");
        assert_eq!(pulse.there, arrived);
    }

    #[test]
    fn who_is_not_heard_for_three_seconds_is_silent() {
        let mut pulse = Pulse::new(0);
        assert!(!pulse.is_silent(SILENCE_NS - 1) && pulse.is_silent(SILENCE_NS));
        pulse.hear(SILENCE_NS);
        assert!(!pulse.is_silent(2 * SILENCE_NS - 1));
        assert_eq!(pulse.silent_at_ns(), 2 * SILENCE_NS);
    }
}
