//! What may be spent on finding the session of a packet from an unknown port.

use crate::front::netcode::lineup::Lineups;
use crate::front::netcode::residents::Residents;
use crate::front::netcode::sources::Sources;
use crate::front::netcode::trials::Trials;
use crate::ids::WorkerId;
use crate::shared::claims::Claims;
use crate::store::admission::{Admission, Bucket, Rate};
use crate::store::area::Area;
use crate::store::hash::HashKey;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// What a worker knows of its sessions by address, and how much may be spent on packets from
/// unknown ports.
pub(crate) struct PortSwitches {
    pub(crate) residents: Residents,
    pub(crate) trials: Trials,
    pub(crate) lineups: Lineups,
    pub(crate) sources: Sources,
    /// Sessions that follow their player, for each block.
    pub(crate) switches: Admission,
    /// Trials among the few sessions of an address.
    pub(crate) few: Spending,
    /// Trials among the many sessions of an address.
    pub(crate) many: Spending,
    /// Datagrams to other workers.
    pub(crate) forwards: Spending,
}

/// What may be spent: by one area, and by all.
pub(crate) struct Spending {
    each_rate: Rate,
    total_rate: Rate,
    each: Admission,
    total: Bucket,
}

impl Spending {
    fn new((each, total): (u32, u32), key: HashKey, now_ns: u64) -> Self {
        Self {
            each_rate: Rate::new(each, 1),
            total_rate: Rate::new(total, 1),
            each: Admission::new(BUCKETS, key, now_ns),
            total: Bucket::full(now_ns),
        }
    }

    /// What an area can spend now.
    pub(crate) fn left(&mut self, area: &Area, now_ns: u64) -> u32 {
        let each = self.each.bucket(area).level(self.each_rate, now_ns);
        each.min(self.total.level(self.total_rate, now_ns))
    }

    pub(crate) fn spend(&mut self, area: &Area, count: u32) {
        self.each.bucket(area).spend(count);
        self.total.spend(count);
    }

    /// Spends all of it, or nothing.
    pub(crate) fn take(&mut self, area: &Area, count: u32, now_ns: u64) -> bool {
        let is_there = self.left(area, now_ns) >= count;
        if is_there {
            self.spend(area, count);
        }
        is_there
    }
}

impl PortSwitches {
    pub(crate) fn new(
        (worker, sessions_max): (WorkerId, usize),
        claims: &Claims,
        key: HashKey,
        now_ns: u64,
    ) -> Self {
        Self {
            residents: Residents::new(worker, claims.homes(), sessions_max),
            trials: Trials::new(),
            lineups: Lineups::new(now_ns),
            sources: Sources::new(),
            switches: Admission::new(BUCKETS, key, now_ns),
            few: Spending::new(FEW_TRIALS, key, now_ns),
            many: Spending::new(MANY_TRIALS, key, now_ns),
            forwards: Spending::new(FORWARDS, key, now_ns),
        }
    }
}

impl Spending {
    fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { each_rate: _, total_rate: _, each, total } = self;
        each.hand_over(out);
        total.write(out);
    }

    fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.each.take_over(from)?;
        self.total = Bucket::read(from)?;
        Ok(())
    }
}

impl PortSwitches {
    /// Writes what was spent, and on which sources.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            // They follow from the sessions.
            residents: _,
            // Of one turn.
            trials: _,
            // Made when they are needed, and kept for a moment.
            lineups: _,
            sources,
            switches,
            few,
            many,
            forwards,
        } = self;
        sources.hand_over(out);
        switches.hand_over(out);
        for spending in [few, many, forwards] {
            spending.hand_over(out);
        }
    }

    /// Goes on with it.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let Self { sources, switches, few, many, forwards, .. } = self;
        sources.take_over(from)?;
        switches.take_over(from)?;
        for spending in [few, many, forwards] {
            spending.take_over(from)?;
        }
        Ok(())
    }
}

/// What one address may spend a second, and all together, where addresses have few sessions each.
const FEW_TRIALS: (u32, u32) = (1_000, 100_000);

/// What one block may spend a second, and all together, where addresses have many sessions. A trial
/// costs what a forged packet of a player costs, 76 to 112 ns (docs/BENCHMARKS.md, The turn), so
/// these and those of households stay below six percent of a core. That is enough to find two
/// thousand players of one address whose packets differ by nothing but their order.
const MANY_TRIALS: (u32, u32) = (300_000, 400_000);

/// Datagrams that one block may have handed to other workers a second, and all together: a copy of
/// two kilobytes each.
const FORWARDS: (u32, u32) = (10_000, 15_000);

/// 8 bytes each.
const BUCKETS: usize = 1 << 12;
