//! How long players heard nothing. A pause is everybody's; this is each player's own, phase by
//! phase, so that what happens to some of them in one phase is seen there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A phase's players by the longest time in it in which they heard no payload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The phase's name.
    pub phase: String,
    /// How many players, by whole milliseconds of silence.
    pub players_by_ms: BTreeMap<u64, u64>,
}

impl Silence {
    /// Counts a player.
    pub fn note(&mut self, silent_ns: u64) {
        *self.players_by_ms.entry(silent_ns / 1_000_000).or_default() += 1;
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Self) {
        for (ms, players) in &other.players_by_ms {
            *self.players_by_ms.entry(*ms).or_default() += players;
        }
    }

    /// Players who had been in and were not to leave before the phase's end.
    pub fn players(&self) -> u64 {
        self.players_by_ms.values().sum()
    }

    /// The silence, in milliseconds, that so many percent of the players did not exceed; 0 where
    /// there are none.
    pub fn at_ms(&self, percent: f64) -> u64 {
        let wanted = (self.players() as f64 * percent / 100.0).ceil() as u64;
        let mut so_far = 0;
        let reached = self.players_by_ms.iter().find(|(_, players)| {
            so_far += **players;
            so_far >= wanted
        });
        reached.map_or(0, |(ms, _)| *ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_players_and_all_of_them_were_silent_for_so_long() {
        let (mut one, mut other) = (Silence::default(), Silence::default());
        (0..90).for_each(|_| one.note(50_999_999));
        (0..10).for_each(|_| other.note(700_000_000));
        one.merge(&other);
        assert_eq!((one.players(), one.at_ms(50.0), one.at_ms(90.0)), (100, 50, 50));
        assert_eq!((one.at_ms(90.5), one.at_ms(100.0)), (700, 700));
        assert_eq!(Silence::default().at_ms(99.0), 0);
    }
}
