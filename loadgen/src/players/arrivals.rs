//! When payloads leave: in the generator's ticks, or each at a moment of its own.
//!
//! A fleet's datagrams arrive one by one, from players who know nothing of each other, and a
//! gateway that is woken for each pays far more than one that finds a batch. So how a generator
//! places its payloads in time decides what it measures, and every report says which it was.
//!
//! What is here is arithmetic alone: from a player's session, its payload's number and the moment
//! before follows the next moment, so a repeated run has the same schedule.

use serde::{Deserialize, Serialize};

use super::wheel::TICK_NS;
use crate::rng::{Rng, mix};

/// How payloads are placed in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// What is due within a tick of 131 µs leaves in one batch: more payloads per core of the
    /// generator, and bursts for the gateway
    Ticks,
    /// Each payload at a moment of its own; players' moments lie evenly between each other
    #[default]
    Spread,
    /// Each payload at a moment of its own, with exponential gaps between a player's payloads
    Poisson,
}

impl Arrivals {
    /// How long a tick is.
    pub const TICK_NS: u64 = TICK_NS;

    /// The name used in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ticks => "ticks",
            Self::Spread => "spread",
            Self::Poisson => "poisson",
        }
    }

    /// Whether payloads leave one by one, each at its own nanosecond.
    pub const fn is_exact(self) -> bool {
        !matches!(self, Self::Ticks)
    }

    /// What records of earlier versions were made with.
    pub const fn of_old() -> Self {
        Self::Ticks
    }

    /// When a player who may send from a moment on sends first.
    pub fn first_ns(self, session: u32, at_ns: u64, interval_ns: u64) -> u64 {
        let interval_ns = interval_ns.max(1);
        match self {
            Self::Ticks => at_ns + mix(u64::from(session) ^ 0x5eed) % interval_ns,
            Self::Spread => {
                let phase_ns = share(phase(session), interval_ns);
                at_ns + (phase_ns + interval_ns - at_ns % interval_ns) % interval_ns
            }
            Self::Poisson => at_ns + gap_ns(session, u32::MAX, interval_ns),
        }
    }

    /// When it sends next, after the payload of this number, which was due at a moment.
    pub fn next_ns(self, session: u32, counter: u32, due_ns: u64, interval_ns: u64) -> u64 {
        match self {
            Self::Ticks | Self::Spread => due_ns + interval_ns,
            Self::Poisson => due_ns + gap_ns(session, counter, interval_ns),
        }
    }
}

/// Where in the interval a session sends, as a share of 2^64.
///
/// Multiples of the golden ratio: however many sessions in a row there are, the largest gap between
/// two of them is less than 2.7 times the smallest. It need not be known how many will come, and
/// no player moves when others leave. Each thread's sequence begins elsewhere.
const fn phase(session: u32) -> u64 {
    let (thread, number) = (session >> SESSION_BITS, session & ((1 << SESSION_BITS) - 1));
    (number as u64).wrapping_mul(GOLDEN).wrapping_add(mix(thread as u64))
}

const fn share(of_2_64: u64, whole: u64) -> u64 {
    ((of_2_64 as u128 * whole as u128) >> 64) as u64
}

/// An exponential gap with the interval as its mean. Another payload, or another player, has one
/// that knows nothing of it.
fn gap_ns(session: u32, counter: u32, interval_ns: u64) -> u64 {
    let mut rng = Rng::new(mix(u64::from(session) << 32 | u64::from(counter)) ^ 0x9a95);
    // From above 0 up to 1, so that the logarithm is finite: at most 37 means.
    let chance = ((rng.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    ((-chance.ln() * interval_ns as f64) as u64).max(1)
}

/// Bits of a session's number within its thread.
pub(super) const SESSION_BITS: u32 = 24;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A player's moments from the beginning.
    fn moments(arrivals: Arrivals, session: u32, interval_ns: u64, count: u32) -> Vec<u64> {
        let mut due_ns = arrivals.first_ns(session, 5 * MS, interval_ns);
        (0..count)
            .map(|counter| {
                let moment = due_ns;
                due_ns = arrivals.next_ns(session, counter, due_ns, interval_ns);
                moment
            })
            .collect()
    }

    #[test]
    fn ticks_and_spread_repeat_after_exactly_one_interval() {
        for arrivals in [Arrivals::Ticks, Arrivals::Spread] {
            for session in 1..200 {
                let moments = moments(arrivals, session, 50 * MS, 10);
                assert!((5 * MS..55 * MS).contains(&moments[0]), "{arrivals:?}: {}", moments[0]);
                assert!(moments.windows(2).all(|pair| pair[1] - pair[0] == 50 * MS));
            }
        }
    }

    #[test]
    fn spread_players_lie_evenly_between_each_other_however_many_there_are() {
        for players in [2_u32, 7, 100, 1000, 4321] {
            // Some have left, and others have come in their place.
            let sessions = 50..50 + players;
            let interval_ns = 100 * MS;
            let mut firsts: Vec<_> = sessions
                .map(|session| Arrivals::Spread.first_ns(session, 0, interval_ns) % interval_ns)
                .collect();
            firsts.sort_unstable();
            firsts.push(firsts[0] + interval_ns);
            let gaps: Vec<_> = firsts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (least, most) = (gaps.iter().min(), gaps.iter().max());
            let (least, most) = (*least.expect("some"), *most.expect("some"));
            assert!(least > 0 && most < 27 * least / 10, "{players}: {least} to {most}");
        }
    }

    #[test]
    fn a_spread_player_s_phase_does_not_depend_on_when_it_came() {
        let phase = |at_ns| Arrivals::Spread.first_ns(9, at_ns, 20 * MS) % (20 * MS);
        for at_ns in [0, 1, 7 * MS, 20 * MS, 1_234_567_891] {
            let first = Arrivals::Spread.first_ns(9, at_ns, 20 * MS);
            assert_eq!(phase(at_ns), phase(0));
            assert!((at_ns..at_ns + 20 * MS).contains(&first));
        }
    }

    #[test]
    fn threads_do_not_send_at_each_other_s_moments() {
        let of = |thread: u32| (1..100_u32).map(move |n| phase(thread << SESSION_BITS | n));
        let all: std::collections::BTreeSet<u64> = (0..8).flat_map(of).collect();
        assert_eq!(all.len(), 8 * 99);
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_their_memory_is_empty() {
        let interval_ns = 10 * MS;
        let moments = moments(Arrivals::Poisson, 77, interval_ns, 100_001);
        let gaps: Vec<f64> =
            moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e7).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        // An exponential distribution: its variance is its mean squared, and 1 in e is longer.
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&variance), "{variance}");
        let longer = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
        assert!((0.36..0.376).contains(&longer), "{longer}");
        // One gap says nothing of the next.
        let together: f64 = gaps.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum();
        let correlation = together / gaps.len() as f64 / variance;
        assert!(correlation.abs() < 0.015, "{correlation}");
    }

    #[test]
    fn poisson_players_know_nothing_of_each_other_nor_of_the_interval() {
        let interval_ns = 10 * MS;
        // Arrivals of all together, in slices of a tenth of the interval: as many as a Poisson
        // process has, and as spread, whatever the phase within the interval.
        let mut slices = vec![0_u32; 2000];
        for session in 1..=200 {
            let mut moment = Arrivals::Poisson.first_ns(session, 0, interval_ns);
            let mut counter = 0;
            while let Some(slice) = slices.get_mut((moment / MS) as usize) {
                *slice += 1;
                moment = Arrivals::Poisson.next_ns(session, counter, moment, interval_ns);
                counter += 1;
            }
        }
        let mean = f64::from(slices.iter().sum::<u32>()) / slices.len() as f64;
        let square = |count: &u32| (f64::from(*count) - mean).powi(2);
        let variance = slices.iter().map(square).sum::<f64>() / slices.len() as f64;
        assert!((19.5..20.5).contains(&mean), "{mean}");
        assert!((0.9..1.1).contains(&(variance / mean)), "{}", variance / mean);
        for phase in 0..10 {
            let of_phase: Vec<_> = slices.iter().skip(phase).step_by(10).collect();
            let mean = of_phase.iter().map(|n| f64::from(**n)).sum::<f64>() / 200.0;
            assert!((18.5..21.5).contains(&mean), "phase {phase}: {mean}");
        }
    }

    #[test]
    fn the_same_player_has_the_same_schedule_again() {
        for arrivals in [Arrivals::Ticks, Arrivals::Spread, Arrivals::Poisson] {
            assert_eq!(moments(arrivals, 3, MS, 50), moments(arrivals, 3, MS, 50));
            assert_ne!(moments(arrivals, 3, MS, 50), moments(arrivals, 4, MS, 50));
        }
    }
}
