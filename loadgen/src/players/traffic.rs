//! What players send: how often, how large, how many at once.
//!
//! The shapes are presets of one description, so that a scenario file can start from one and change
//! a number.

use serde::{Deserialize, Serialize};

use crate::rng::{Rng, mix};
use ringgate_bots::stamp::STAMP_BYTES;

/// Presets of traffic and population, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Payloads of one size at one rate.
    #[default]
    Fixed,
    /// 30 payloads a second of 40 to 120 bytes, one in a hundred of 1200, as an action game sends.
    /// `serve` is the server's half.
    Game,
    /// Nothing for a second, then 30 at once.
    Burst,
    /// Keep-alives only.
    Idle,
    /// As `fixed`, and every second players leave and others come.
    Churn,
    /// As `fixed`, and in the middle everyone leaves and comes back at once.
    ReconnectStorm,
}

/// What one player sends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Sending moments per second; 0 sends keep-alives only.
    pub hz: f64,
    /// Payloads at each moment.
    pub at_once: u32,
    /// Shortest payload.
    pub bytes_min: u16,
    /// Longest payload.
    pub bytes_max: u16,
    /// Chance in percent that a payload is of full size instead.
    pub full_percent: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { hz: 10.0, at_once: 1, bytes_min: 100, bytes_max: 100, full_percent: 0.0 }
    }
}

impl Shape {
    /// What players of this shape send.
    pub fn traffic(self) -> Traffic {
        let fixed = Traffic::default();
        match self {
            Self::Fixed | Self::Churn | Self::ReconnectStorm => fixed,
            Self::Game => {
                Traffic { hz: 30.0, bytes_min: 40, bytes_max: 120, full_percent: 1.0, ..fixed }
            }
            Self::Burst => Traffic { hz: 1.0, at_once: 30, ..fixed },
            Self::Idle => Traffic { hz: 0.0, ..fixed },
        }
    }
}

/// What the game server of the `game` shape sends to each player: snapshots 30 times a second, one
/// in a hundred full.
pub fn server_half() -> Traffic {
    Traffic { hz: 30.0, bytes_min: 100, bytes_max: 400, full_percent: 1.0, ..Traffic::default() }
}

impl Traffic {
    /// What is wrong with it, in one sentence, whatever is spoken.
    pub fn check(&self) -> Result<(), String> {
        self.check_for(u16::MAX)
    }

    /// The same where payloads can be so long.
    pub fn check_for(&self, longest: u16) -> Result<(), String> {
        let longest = usize::from(longest);
        let (min, max) = (usize::from(self.bytes_min), usize::from(self.bytes_max));
        if !(0.0..=100_000.0).contains(&self.hz) {
            return Err(format!("a rate of {} Hz is not between 0 and 100000", self.hz));
        }
        if min < STAMP_BYTES || max > longest || min > max {
            return Err(format!(
                "payloads of {min} to {max} bytes: they must lie between {STAMP_BYTES} (the stamp) and {longest}"
            ));
        }
        if !(1..=1000).contains(&self.at_once) {
            return Err(format!("{} payloads at once: 1 to 1000 are possible", self.at_once));
        }
        Ok(())
    }

    /// Nanoseconds between sending moments; `None` where nothing is sent.
    pub fn interval_ns(&self) -> Option<u64> {
        (self.hz > 0.0).then(|| (1e9 / self.hz) as u64)
    }

    /// Payloads per second of one player.
    pub fn rate_hz(&self) -> f64 {
        self.hz * f64::from(self.at_once)
    }

    /// The length of a payload. Follows from its session and counter, so that a repeated run sends
    /// the same.
    #[inline]
    pub fn bytes(&self, session: u32, counter: u32) -> usize {
        let mut rng = Rng::new(mix(u64::from(session) << 32 | u64::from(counter)));
        if rng.percent(self.full_percent) {
            return ringgate_core::limits::PAYLOAD_BYTES_MAX;
        }
        rng.between(self.bytes_min.into(), self.bytes_max.into()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn game_traffic_is_mostly_small_and_rarely_full() {
        let traffic = Shape::Game.traffic();
        let sizes: Vec<_> = (0..20_000).map(|counter| traffic.bytes(7, counter)).collect();
        let full = sizes.iter().filter(|bytes| **bytes == 1200).count();
        assert!((120..300).contains(&full), "{full}");
        assert!(sizes.iter().all(|bytes| (40..=120).contains(bytes) || *bytes == 1200));
        assert_eq!(sizes[5], traffic.bytes(7, 5), "repeatable");
    }

    #[test]
    fn presets_are_valid_and_nonsense_is_not() {
        for shape in [Shape::Fixed, Shape::Game, Shape::Burst, Shape::Idle] {
            assert_eq!(shape.traffic().check(), Ok(()));
        }
        let with = |change: fn(&mut Traffic)| {
            let mut traffic = Traffic::default();
            change(&mut traffic);
            traffic.check().and_then(|()| traffic.check_for(1200))
        };
        assert!(with(|t| t.bytes_min = 27).is_err());
        assert!(with(|t| t.bytes_max = 1201).is_err());
        assert!(with(|t| t.bytes_min = 101).is_err());
        assert!(with(|t| t.hz = f64::NAN).is_err());
        assert!(with(|t| t.at_once = 0).is_err());
    }
}
