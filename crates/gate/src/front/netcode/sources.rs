//! What is remembered of each unknown address *and port*, for a few seconds: how much was spent on
//! it, and how far the search for its session has come.
//!
//! Players who have been moved and those who send junk come from the same address, and look alike
//! until something opens. Each port has a small share, so one that sends much gets no more than one
//! that sends little. The table is fixed and indexed by a keyed hash: each source has two places to
//! be in, and where both are taken it replaces the one that was silent for longer.

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// Fixed memory for the sources of the last few seconds.
pub(crate) struct Sources(Box<[Port]>);

/// One address and port.
#[derive(Clone, Copy)]
pub(crate) struct Port {
    /// Tells it from others in the same place.
    hash: u32,
    as_of_ms: u32,
    /// Trials that it may still cause.
    trials: u32,
    /// Times, in thousandths, that it may still be handed to other workers.
    milliforwards: u32,
    /// The lowest sequence that it has shown: just ahead of its session's, if it has one.
    pub(crate) first_sequence: u64,
    /// How many of the sessions below that were tried already.
    pub(crate) tried: u32,
}

impl Sources {
    pub(crate) fn new() -> Self {
        let nobody = Port {
            hash: 0,
            as_of_ms: 0,
            trials: TRIALS_BURST,
            milliforwards: FORWARDS_BURST,
            first_sequence: u64::MAX,
            tried: 0,
        };
        Self(vec![nobody; PLACES].into())
    }

    /// Whether a source has shown something of late.
    pub(crate) fn knows(&self, hash: u32, now_ns: u64) -> bool {
        let now_ms = (now_ns / 1_000_000) as u32;
        let places = [hash as usize % PLACES, (hash.swap_bytes() as usize) % PLACES];
        places.iter().any(|place| {
            let port = &self.0[*place];
            port.hash == hash && now_ms.wrapping_sub(port.as_of_ms) <= FORGOTTEN_MS
        })
    }

    /// What is known of a source that has just shown a sequence.
    pub(crate) fn of(&mut self, hash: u32, sequence: u64, now_ns: u64) -> &mut Port {
        let now_ms = (now_ns / 1_000_000) as u32;
        let silent_ms = |place: usize| now_ms.wrapping_sub(self.0[place].as_of_ms);
        let [one, other] = [hash as usize % PLACES, (hash.swap_bytes() as usize) % PLACES];
        let place = if self.0[one].hash == hash {
            one
        } else if self.0[other].hash == hash || silent_ms(other) > silent_ms(one) {
            other
        } else {
            one
        };
        let elapsed_ms = silent_ms(place);
        let source = &mut self.0[place];
        if source.hash != hash || elapsed_ms > FORGOTTEN_MS {
            *source = Port {
                hash,
                as_of_ms: now_ms,
                trials: TRIALS_BURST,
                milliforwards: FORWARDS_BURST,
                first_sequence: sequence,
                tried: 0,
            };
            return source;
        }
        if sequence < source.first_sequence {
            (source.first_sequence, source.tried) = (sequence, 0);
        }
        // So coarse that nothing is lost to rounding.
        let steps = elapsed_ms / STEP_MS;
        source.as_of_ms = source.as_of_ms.wrapping_add(steps * STEP_MS);
        source.trials = (source.trials + steps * TRIALS_PER_STEP).min(TRIALS_BURST);
        source.milliforwards =
            (source.milliforwards + steps * STEP_MS * FORWARDS_PER_S).min(FORWARDS_BURST);
        source
    }
}

impl Sources {
    /// Writes those that were heard of.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self(ports) = self;
        let heard = (0_u32..).zip(ports).filter(|(_, port)| port.first_sequence != u64::MAX);
        (heard.clone().count() as u32).write(out);
        for (at, port) in heard {
            at.write(out);
            port.write(out);
        }
    }

    /// Goes on with them.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        for (at, port) in Vec::<(u32, Port)>::read(from)? {
            let is_one = port.trials <= TRIALS_BURST && port.milliforwards <= FORWARDS_BURST;
            match self.0.get_mut(at as usize) {
                Some(place) if is_one => *place = port,
                _ => return Err(Broken::Invalid("source")),
            }
        }
        Ok(())
    }
}

ringgate_core::carried!(Port { hash, as_of_ms, trials, milliforwards, first_sequence, tried });

impl Port {
    /// How many trials it may cause now.
    pub(crate) const fn trials_left(&self) -> u32 {
        self.trials
    }

    pub(crate) fn spend_trials(&mut self, count: u32) {
        self.trials = self.trials.saturating_sub(count);
    }

    /// Whether it is handed to other workers once more.
    pub(crate) fn take_forward(&mut self) -> bool {
        let Some(left) = self.milliforwards.checked_sub(1000) else { return false };
        self.milliforwards = left;
        true
    }
}

/// 48 bytes each.
const PLACES: usize = 1 << 13;

/// A source that was silent for so long begins anew.
const FORGOTTEN_MS: u32 = 5_000;

const STEP_MS: u32 = 10;

/// 500 a second: what finds one session among a thousand in two seconds, if nothing but the order
/// is known.
const TRIALS_PER_STEP: u32 = 5;
const TRIALS_BURST: u32 = 256;

/// A player's first packets go to every worker that may have it, until one has it.
const FORWARDS_PER_S: u32 = 20;
const FORWARDS_BURST: u32 = 8_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_source_has_a_share_that_comes_back_with_time() {
        let mut sources = Sources::new();
        let source = sources.of(7, 100, 1000 * MS);
        assert_eq!(source.trials_left(), TRIALS_BURST);
        source.spend_trials(1000);
        assert_eq!(source.trials_left(), 0);
        assert_eq!((0..20).filter(|_| source.take_forward()).count(), 8);
        let source = sources.of(7, 101, 1100 * MS);
        assert_eq!((source.trials_left(), source.first_sequence), (50, 100));
        assert_eq!((0..20).filter(|_| source.take_forward()).count(), 2);
        // Small steps add up to the same.
        for ms in 1100..1200 {
            sources.of(7, 101, ms * MS);
        }
        assert_eq!(sources.of(7, 101, 1200 * MS).trials_left(), 100);
        assert_eq!(sources.of(7, 101, 4000 * MS).trials_left(), TRIALS_BURST);
    }

    #[test]
    fn a_lower_sequence_begins_the_search_anew_and_so_does_a_long_silence() {
        let mut sources = Sources::new();
        sources.of(7, 100, 0).tried = 64;
        assert_eq!(sources.of(7, 105, MS).tried, 64);
        let source = sources.of(7, 99, 2 * MS);
        assert_eq!((source.first_sequence, source.tried), (99, 0));
        assert_eq!(sources.of(7, 200, 9000 * MS).first_sequence, 200);
    }

    #[test]
    fn sources_that_meet_give_way_to_each_other_and_both_are_remembered_while_there_is_room() {
        let mut sources = Sources::new();
        let meets = 7 + PLACES as u32;
        sources.of(7, 100, MS).tried = 5;
        sources.of(meets, 200, 2 * MS).tried = 6;
        assert_eq!(sources.of(7, 101, 3 * MS).tried, 5);
        assert_eq!(sources.of(meets, 201, 3 * MS).tried, 6);
        // However many more meet there, memory stays what it is, and each begins with its share.
        for n in 2..100 {
            let source = sources.of(7 + n * PLACES as u32, 300, 4 * MS);
            assert_eq!((source.tried, source.trials_left()), (0, TRIALS_BURST));
        }
    }
}
