//! A bad network, on purpose, with the names and meanings that Unreal developers know from their
//! packet simulation settings.
//!
//! Every player has a path of its own with its own random stream, so a run with the same seed
//! treats the same packets the same way however threads are scheduled. Decisions are made here,
//! before anything is sent; keeping what is delayed is the swarm's business.
//!
//! Precedence follows the published descriptions: loss applies to everything; `PktOrder` goes
//! before `PktDup` and `PktLag`; `PktLag` goes before `PktLagMin`/`PktLagMax`, and `PktDup` does
//! not combine with either. Beyond Unreal's settings there are bursts of loss and a NAT that gives
//! a player another port in the middle of a session.

use serde::{Deserialize, Serialize};

use crate::rng::{Rng, mix};

/// The network between players and gateway. All zero: a perfect one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "PascalCase")]
pub struct Impairments {
    /// Chance in percent that a packet is not sent.
    pub pkt_loss: f64,
    /// Smallest datagram that `PktLoss` applies to, in bytes.
    pub pkt_loss_min_size: u32,
    /// Largest datagram that `PktLoss` applies to; 0 for any.
    pub pkt_loss_max_size: u32,
    /// 1: randomly chosen packets are held back until the next one has left.
    pub pkt_order: u8,
    /// Chance in percent that a packet is sent twice.
    pub pkt_dup: f64,
    /// Milliseconds by which every packet is late.
    pub pkt_lag: f64,
    /// With `PktLag`: milliseconds up or down from it, evenly.
    pub pkt_lag_variance: f64,
    /// Without `PktLag`: least milliseconds of lag.
    pub pkt_lag_min: f64,
    /// Without `PktLag`: most milliseconds of lag.
    pub pkt_lag_max: f64,
    /// Lag fluctuates by so many milliseconds above `PktLagMin`.
    pub pkt_jitter: f64,
    /// Least milliseconds of lag of what is received.
    pub pkt_incoming_lag_min: f64,
    /// Most milliseconds of lag of what is received.
    pub pkt_incoming_lag_max: f64,
    /// Chance in percent that a received packet is lost.
    pub pkt_incoming_loss: f64,
    /// Chance in percent that a burst of loss begins with a packet, in either direction.
    pub burst_loss: f64,
    /// Packets that such a burst takes, on average.
    pub burst_length: f64,
    /// Seconds after which a player's NAT gives it another port, again and again; 0 for never.
    pub nat_switch_seconds: f64,
    /// Makes another run of the same settings differ.
    pub seed: u64,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It travels on.
    Pass,
    /// It is lost.
    Lose,
    /// It travels on later.
    Delay(u64),
    /// It travels on twice.
    Twice,
    /// It waits until the next one has left.
    Hold,
}

/// One player's path: its random stream, and whether a burst of loss is on.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    rng: Rng,
    up_burst_left: u16,
    down_burst_left: u16,
}

impl Path {
    /// The path of a session.
    pub const fn new(seed: u64, session: u32) -> Self {
        let rng = Rng::new(mix(seed ^ mix(session as u64 + 1)));
        Self { rng, up_burst_left: 0, down_burst_left: 0 }
    }
}

impl Impairments {
    /// Whether it does anything to packets.
    pub fn is_active(&self) -> bool {
        let perfect = Self {
            seed: self.seed,
            nat_switch_seconds: self.nat_switch_seconds,
            pkt_loss_min_size: self.pkt_loss_min_size,
            pkt_loss_max_size: self.pkt_loss_max_size,
            pkt_lag_variance: self.pkt_lag_variance,
            burst_length: self.burst_length,
            ..Self::default()
        };
        *self != perfect
    }

    /// Reads settings as they are typed into a console: `PktLag=50 PktLoss=3`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table = toml::Table::new();
        for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("`{part}` is not of the form PktLag=50"));
            };
            let value: f64 =
                value.parse().map_err(|_| format!("`{value}` in `{part}` is not a number"))?;
            let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
            let value = if is_whole && WHOLE.contains(&name) {
                toml::Value::Integer(value as i64)
            } else {
                toml::Value::Float(value)
            };
            table.insert(name.into(), value);
        }
        let settings: Self = table.try_into().map_err(|why| why.to_string().trim().to_owned())?;
        settings.check()?;
        Ok(settings)
    }

    /// What is wrong with it, in one sentence.
    pub fn check(&self) -> Result<(), String> {
        let percents = [
            ("PktLoss", self.pkt_loss),
            ("PktDup", self.pkt_dup),
            ("PktIncomingLoss", self.pkt_incoming_loss),
            ("BurstLoss", self.burst_loss),
        ];
        let milliseconds = [
            ("PktLag", self.pkt_lag),
            ("PktLagVariance", self.pkt_lag_variance),
            ("PktLagMin", self.pkt_lag_min),
            ("PktLagMax", self.pkt_lag_max),
            ("PktJitter", self.pkt_jitter),
            ("PktIncomingLagMin", self.pkt_incoming_lag_min),
            ("PktIncomingLagMax", self.pkt_incoming_lag_max),
        ];
        let out_of = |list: &[(&'static str, f64)], most: f64| {
            list.iter().find(|(_, value)| !(0.0..=most).contains(value)).map(|(name, _)| *name)
        };
        if let Some(name) = out_of(&percents, 100.0) {
            return Err(format!("{name} is a percentage between 0 and 100"));
        }
        if let Some(name) = out_of(&milliseconds, 60_000.0) {
            return Err(format!("{name} lies between 0 and 60000 ms"));
        }
        if self.pkt_order > 1 {
            return Err("PktOrder is 0 or 1".into());
        }
        if !(0.0..=10_000.0).contains(&self.burst_length)
            || !(0.0..=1e6).contains(&self.nat_switch_seconds)
        {
            return Err(
                "BurstLength lies between 0 and 10000, NatSwitchSeconds between 0 and 1000000"
                    .into(),
            );
        }
        Ok(())
    }

    /// What happens to a datagram on its way to the gateway.
    pub fn outgoing(&self, path: &mut Path, bytes: usize) -> Fate {
        if self.in_burst(&mut path.rng, &mut path.up_burst_left) || self.loses(&mut path.rng, bytes)
        {
            return Fate::Lose;
        }
        if self.pkt_order == 1 {
            return if path.rng.percent(50.0) { Fate::Hold } else { Fate::Pass };
        }
        if let Some(lag_ns) = self.lag_ns(&mut path.rng) {
            return Fate::Delay(lag_ns);
        }
        if path.rng.percent(self.pkt_dup) { Fate::Twice } else { Fate::Pass }
    }

    /// What happens to a datagram on its way to the player.
    pub fn incoming(&self, path: &mut Path) -> Fate {
        if self.in_burst(&mut path.rng, &mut path.down_burst_left)
            || path.rng.percent(self.pkt_incoming_loss)
        {
            return Fate::Lose;
        }
        match even_ns(&mut path.rng, self.pkt_incoming_lag_min, self.pkt_incoming_lag_max) {
            0 => Fate::Pass,
            lag_ns => Fate::Delay(lag_ns),
        }
    }

    /// The most by which a packet and its answer can be delayed together.
    pub fn lag_ns_max(&self) -> u64 {
        let up = if self.pkt_lag > 0.0 {
            self.pkt_lag + self.pkt_lag_variance
        } else {
            self.pkt_lag_max.max(self.pkt_lag_min + self.pkt_jitter)
        };
        ns(up + self.pkt_incoming_lag_max.max(self.pkt_incoming_lag_min))
    }

    /// Nanoseconds between two ports of a player.
    pub fn nat_switch_ns(&self) -> Option<u64> {
        (self.nat_switch_seconds > 0.0).then_some((self.nat_switch_seconds * 1e9) as u64)
    }

    fn loses(&self, rng: &mut Rng, bytes: usize) -> bool {
        let largest = if self.pkt_loss_max_size == 0 { u32::MAX } else { self.pkt_loss_max_size };
        let is_sized = (self.pkt_loss_min_size..=largest).contains(&(bytes as u32));
        is_sized && rng.percent(self.pkt_loss)
    }

    /// A burst begins by chance and takes 1 to 2·mean - 1 packets.
    fn in_burst(&self, rng: &mut Rng, left: &mut u16) -> bool {
        if *left == 0 && rng.percent(self.burst_loss) {
            let mean = self.burst_length.max(1.0);
            *left = rng.between(1, (2.0 * mean - 1.0).round() as u64) as u16;
        }
        let is_lost = *left > 0;
        *left = left.saturating_sub(1);
        is_lost
    }

    fn lag_ns(&self, rng: &mut Rng) -> Option<u64> {
        let lag_ns = if self.pkt_lag > 0.0 {
            let low = (self.pkt_lag - self.pkt_lag_variance).max(0.0);
            even_ns(rng, low, self.pkt_lag + self.pkt_lag_variance)
        } else {
            let most = self.pkt_lag_max.max(self.pkt_lag_min + self.pkt_jitter);
            even_ns(rng, self.pkt_lag_min, most)
        };
        (lag_ns > 0).then_some(lag_ns)
    }
}

fn even_ns(rng: &mut Rng, low_ms: f64, high_ms: f64) -> u64 {
    if high_ms <= 0.0 { 0 } else { rng.between(ns(low_ms), ns(high_ms)) }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Settings that are whole numbers.
const WHOLE: &[&str] = &["PktLossMinSize", "PktLossMaxSize", "PktOrder", "Seed"];

#[cfg(test)]
mod tests;
