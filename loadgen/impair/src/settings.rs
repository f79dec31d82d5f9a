//! The settings, and what they do to a packet.
//!
//! Every player has a path of its own with its own random stream, so a run with the same seed
//! treats the same packets the same way however threads are scheduled.
//!
//! Precedence follows the published descriptions: loss applies to everything; `PktOrder` goes
//! before all others; `PktLag` goes before `PktLagMin`/`PktLagMax`, and `PktDup` does not combine
//! with anything that delays. `PktFrameDelay` and `PktBufferBloatInMS` come on top of the lag.
//! What is late by different times keeps its order, as there, where a queue is behind it: it waits
//! for what was sent before. `PktJitter` does not, whose late packets are those that others have
//! overtaken.
//! Beyond Unreal's settings there are bursts of loss, a NAT that gives a player another port in the
//! middle of a session, and `LagReorders`, by which every lag lets packets overtake each other.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rng::{Rng, mix};

macro_rules! settings {
    ($( $(#[$doc:meta])* $field:ident : $type:ty = $name:literal ),+ $(,)?) => {
        /// The network between players and gateway. All zero: a perfect one.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Impairments { $( $(#[$doc])* pub $field: $type ),+ }

        impl Impairments {
            /// The names of all settings.
            pub const NAMES: &'static [&'static str] = &[ $( $name ),+ ];

            /// Sets what has this name, in whatever case.
            fn set(&mut self, name: &str, value: Number) -> Result<(), String> {
                $( if name.eq_ignore_ascii_case($name) {
                    self.$field = <$type>::of(value)
                        .ok_or_else(|| format!("{} cannot be {value}", $name))?;
                    return Ok(());
                } )+
                Err(format!("`{name}` is none of {}", Self::NAMES.join(", ")))
            }
        }

        impl Serialize for Impairments {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(Self::NAMES.len()))?;
                $( map.serialize_entry($name, &self.$field)?; )+
                map.end()
            }
        }
    };
}

settings! {
    /// Chance in percent that a packet is not sent.
    pkt_loss: f64 = "PktLoss",
    /// Smallest datagram that `PktLoss` applies to, in bytes.
    pkt_loss_min_size: u32 = "PktLossMinSize",
    /// Largest datagram that `PktLoss` applies to; 0 for any.
    pkt_loss_max_size: u32 = "PktLossMaxSize",
    /// 1: randomly chosen packets are held back until the next one has left.
    pkt_order: u32 = "PktOrder",
    /// Chance in percent that a packet is sent twice.
    pkt_dup: f64 = "PktDup",
    /// Milliseconds by which every packet is late.
    pkt_lag: f64 = "PktLag",
    /// Milliseconds up or down from `PktLag`, evenly. What would be early is not late.
    pkt_lag_variance: f64 = "PktLagVariance",
    /// Without `PktLag`: least milliseconds of lag.
    pkt_lag_min: f64 = "PktLagMin",
    /// Without `PktLag`: most milliseconds of lag.
    pkt_lag_max: f64 = "PktLagMax",
    /// Lag fluctuates by so many milliseconds above `PktLagMin`.
    pkt_jitter: f64 = "PktJitter",
    /// Packets leave so many frames later, with the frame. A frame is a sixtieth of a second.
    pkt_frame_delay: u32 = "PktFrameDelay",
    /// Packets of so many milliseconds are kept, and leave at once.
    pkt_buffer_bloat_ms: f64 = "PktBufferBloatInMS",
    /// Least milliseconds of lag of what is received.
    pkt_incoming_lag_min: f64 = "PktIncomingLagMin",
    /// Most milliseconds of lag of what is received.
    pkt_incoming_lag_max: f64 = "PktIncomingLagMax",
    /// Chance in percent that a received packet is lost.
    pkt_incoming_loss: f64 = "PktIncomingLoss",
    /// What is received comes so many frames later, with the frame.
    pkt_incoming_frame_delay: u32 = "PktIncomingFrameDelay",
    /// What is received in so many milliseconds is kept, and comes at once.
    pkt_incoming_buffer_bloat_ms: f64 = "PktIncomingBufferBloatInMS",
    /// Chance in percent that a burst of loss begins with a packet, in either direction.
    burst_loss: f64 = "BurstLoss",
    /// Packets that such a burst takes, on average.
    burst_length: f64 = "BurstLength",
    /// 1: packets that are late by different times overtake each other.
    lag_reorders: u32 = "LagReorders",
    /// Seconds after which a player's NAT gives it another port, again and again; 0 for never.
    nat_switch_seconds: f64 = "NatSwitchSeconds",
    /// Makes another run of the same settings differ.
    seed: u64 = "Seed",
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
    /// When the last packet of each direction leaves.
    up_last_ns: u64,
    down_last_ns: u64,
}

impl Path {
    /// The path of a session.
    pub const fn new(seed: u64, session: u32) -> Self {
        let rng = Rng::new(mix(seed ^ mix(session as u64 + 1)));
        Self { rng, up_burst_left: 0, down_burst_left: 0, up_last_ns: 0, down_last_ns: 0 }
    }

    /// Another network from now on: no burst goes on, and nothing waits for what was sent before.
    pub const fn start_anew(&mut self) {
        *self = Self { rng: self.rng, ..Self::new(0, 0) };
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
            lag_reorders: self.lag_reorders,
            burst_length: self.burst_length,
            ..Self::default()
        };
        *self != perfect
    }

    /// Reads settings as they are typed into a console: `PktLag=50 pktloss=3`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for part in text.split([' ', ',']).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("`{part}` is not of the form PktLag=50"));
            };
            let real = value.parse().map(Number::Real);
            let number = value.parse().map(Number::Whole).or(real);
            let number = number.map_err(|_| format!("`{value}` in `{part}` is not a number"))?;
            settings.set(name, number)?;
        }
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
            ("PktBufferBloatInMS", self.pkt_buffer_bloat_ms),
            ("PktIncomingLagMin", self.pkt_incoming_lag_min),
            ("PktIncomingLagMax", self.pkt_incoming_lag_max),
            ("PktIncomingBufferBloatInMS", self.pkt_incoming_buffer_bloat_ms),
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
        if self.pkt_order.max(self.lag_reorders) > 1 {
            return Err("PktOrder and LagReorders are 0 or 1".into());
        }
        if self.pkt_frame_delay.max(self.pkt_incoming_frame_delay) > FRAMES_MAX {
            return Err("PktFrameDelay and PktIncomingFrameDelay lie between 0 and 3600".into());
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
    pub fn outgoing(&self, path: &mut Path, now_ns: u64, bytes: usize) -> Fate {
        if self.in_burst(&mut path.rng, &mut path.up_burst_left) || self.loses(&mut path.rng, bytes)
        {
            return Fate::Lose;
        }
        if self.pkt_order == 1 {
            return if path.rng.percent(50.0) { Fate::Hold } else { Fate::Pass };
        }
        let lag_ns = self.lag_ns(&mut path.rng);
        let later_ns = gathered(now_ns, lag_ns, self.pkt_frame_delay, self.pkt_buffer_bloat_ms);
        match self.in_order(now_ns, later_ns, &mut path.up_last_ns) {
            0 if path.rng.percent(self.pkt_dup) => Fate::Twice,
            0 => Fate::Pass,
            later_ns => Fate::Delay(later_ns),
        }
    }

    /// What happens to a datagram on its way to the player.
    pub fn incoming(&self, path: &mut Path, now_ns: u64) -> Fate {
        if self.in_burst(&mut path.rng, &mut path.down_burst_left)
            || path.rng.percent(self.pkt_incoming_loss)
        {
            return Fate::Lose;
        }
        let most = self.pkt_incoming_lag_max.max(self.pkt_incoming_lag_min);
        let lag_ns = even_ns(&mut path.rng, self.pkt_incoming_lag_min, most);
        let (frames, bloat_ms) = (self.pkt_incoming_frame_delay, self.pkt_incoming_buffer_bloat_ms);
        let later_ns = gathered(now_ns, lag_ns, frames, bloat_ms);
        match self.in_order(now_ns, later_ns, &mut path.down_last_ns) {
            0 => Fate::Pass,
            later_ns => Fate::Delay(later_ns),
        }
    }

    /// The most by which a packet and its answer can be delayed together.
    pub fn lag_ns_max(&self) -> u64 {
        let up = if self.has_lag() {
            self.pkt_lag + self.pkt_lag_variance
        } else {
            self.pkt_lag_max.max(self.pkt_lag_min + self.pkt_jitter)
        };
        let lag_ms = up + self.pkt_incoming_lag_max.max(self.pkt_incoming_lag_min);
        let bloat_ms = self.pkt_buffer_bloat_ms + self.pkt_incoming_buffer_bloat_ms;
        let frames = u64::from(self.pkt_frame_delay) + u64::from(self.pkt_incoming_frame_delay);
        ns(lag_ms + bloat_ms) + frames * FRAME_NS
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

    /// How much later a packet travels behind the one that has left last.
    fn in_order(&self, now_ns: u64, later_ns: u64, last_ns: &mut u64) -> u64 {
        if self.lag_reorders == 1 || self.pkt_jitter > 0.0 {
            return later_ns;
        }
        *last_ns = (now_ns + later_ns).max(*last_ns);
        *last_ns - now_ns
    }

    /// Whether it is `PktLag` and `PktLagVariance` that make packets late.
    fn has_lag(&self) -> bool {
        self.pkt_lag > 0.0 || self.pkt_lag_variance > 0.0
    }

    fn lag_ns(&self, rng: &mut Rng) -> u64 {
        if self.has_lag() {
            let variance_ns = ns(self.pkt_lag_variance);
            let late_ns = ns(self.pkt_lag) + rng.between(0, 2 * variance_ns);
            late_ns.saturating_sub(variance_ns)
        } else {
            let most = self.pkt_lag_max.max(self.pkt_lag_min + self.pkt_jitter);
            even_ns(rng, self.pkt_lag_min, most)
        }
    }
}

impl<'de> Deserialize<'de> for Impairments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Self::default();
        for (name, value) in BTreeMap::<String, Number>::deserialize(deserializer)? {
            settings.set(&name, value).map_err(D::Error::custom)?;
        }
        Ok(settings)
    }
}

/// A value as it was typed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Real(f64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
        }
    }
}

/// What a setting may be.
trait Value: Sized {
    /// `None` where it cannot be that.
    fn of(number: Number) -> Option<Self>;
}

impl Value for f64 {
    fn of(number: Number) -> Option<Self> {
        Some(match number {
            Number::Whole(value) => value as Self,
            Number::Real(value) => value,
        })
    }
}

impl Value for u64 {
    fn of(number: Number) -> Option<Self> {
        match number {
            Number::Whole(value) => Some(value),
            Number::Real(value) => {
                let is_whole = value.fract() == 0.0 && (0.0..1e15).contains(&value);
                is_whole.then_some(value as Self)
            }
        }
    }
}

impl Value for u32 {
    fn of(number: Number) -> Option<Self> {
        u64::of(number).and_then(|value| value.try_into().ok())
    }
}

/// How much later a packet travels that is to be late by `lag_ns`, where packets leave with frames,
/// or all that have come within a time leave at once.
fn gathered(now_ns: u64, lag_ns: u64, frames: u32, bloat_ms: f64) -> u64 {
    let mut at_ns = now_ns + lag_ns;
    if frames > 0 {
        at_ns = (at_ns / FRAME_NS + u64::from(frames)) * FRAME_NS;
    }
    if bloat_ms > 0.0 {
        let bloat_ns = ns(bloat_ms).max(1);
        at_ns = (at_ns / bloat_ns + 1) * bloat_ns;
    }
    at_ns.saturating_sub(now_ns)
}

fn even_ns(rng: &mut Rng, low_ms: f64, high_ms: f64) -> u64 {
    if high_ms <= 0.0 { 0 } else { rng.between(ns(low_ms), ns(high_ms)) }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// An engine's frame: packets of a client that draws 60 of them a second.
const FRAME_NS: u64 = 1_000_000_000 / 60;

/// A minute.
const FRAMES_MAX: u32 = 3600;

#[cfg(test)]
mod tests;
