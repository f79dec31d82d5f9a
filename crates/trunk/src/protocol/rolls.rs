//! How many players each game process of an agent has, over all gateways.
//!
//! An agent alone sees the players of all gateways at one game process: each gateway gives out as
//! many slots as there are, and knows nothing of the others. So the agent counts, lets nobody past
//! the slots, and tells the fleet.
//!
//! A link that is lost takes nobody's slot: its players wait at their gateway through the grace
//! time, and theirs are kept until then. An agent that has just started knows of none of them;
//! each gateway says how many it has when it lets a link in, and until all have, or none waits any
//! more, everything counts as full.
//!
//! There is no clock here. Moments are filled in by [`Rolls::keep`], which is called a few times in
//! a second; so a slot is kept rather a little too long.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ringgate_core::netcode::destination::Join;
use ringgate_core::sync::lock;

/// The players of all game processes of an agent, as its threads count them together.
#[derive(Debug, Default)]
pub struct Rolls {
    all: Mutex<All>,
    /// Players for whom there was no slot.
    refused: AtomicU64,
    /// What they had sent by the time they were told.
    unheard: AtomicU64,
}

#[derive(Debug, Default)]
struct All {
    rolls: BTreeMap<String, Roll>,
    start: Start,
    /// The longest that any gateway has players wait, as far as is known.
    grace_ms: u32,
}

/// Whether players may wait of whom this process never knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    /// Nobody asks.
    #[default]
    Unasked,
    /// It has started at this moment.
    At(u64),
    /// None does.
    Over,
}

/// One game process.
#[derive(Debug, Default)]
struct Roll {
    /// `None` where the gateways' word is enough.
    slots: Option<u32>,
    gateways: BTreeMap<Arc<str>, Part>,
    /// All gateways have said how many there are, and what has happened since is known.
    is_known: bool,
    /// Whose players have come, until the fleet is told.
    joins: Vec<Join>,
}

/// One gateway's players at one game process.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Announced here.
    here: u32,
    /// At the gateway, those included who are announced here; 0 where these are all.
    there: u32,
    /// How long that holds.
    until: Until,
    /// How long the gateway's players wait for a game process that is gone.
    /// `None` for a gateway that has never said how many players it has.
    grace_ms: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Until {
    #[default]
    Unasked,
    /// For so long, from the next look at the clock on.
    For(u64),
    At(u64),
}

/// Slots of a game process that nobody else may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// All of them.
    pub all: u32,
    /// Those of players who are not announced.
    pub waiting: u32,
}

/// What goes to a process that goes on with this one's links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// What gateways have said.
    pub kept: Vec<Kept>,
    /// Game processes of which all gateways have.
    pub known: Vec<String>,
    /// How long players may wait of whom nothing is known, where that is so.
    pub start_left_ms: Option<u64>,
    /// Players for whom there was no slot.
    pub refused: u64,
    /// Payloads of theirs.
    pub unheard: u64,
}

/// Players who are kept a slot: one gateway's at one game process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The game process.
    pub backend: String,
    /// The gateway.
    pub gateway: String,
    /// How many there are at the gateway; 0 where those who are here are all.
    pub players: u32,
    /// How long their slots are kept.
    pub left_ms: u64,
    /// How long players wait there, where the gateway has said that.
    pub grace_ms: Option<u32>,
}

impl Part {
    const fn used(&self) -> u32 {
        if self.there > self.here { self.there } else { self.here }
    }

    const fn keep(&mut self, now_ns: u64) {
        match self.until {
            Until::For(ms) => self.until = Until::At(now_ns.saturating_add(ms * NS_PER_MS)),
            Until::At(until_ns) if now_ns >= until_ns => {
                (self.there, self.until) = (0, Until::Unasked);
            }
            Until::At(_) | Until::Unasked => {}
        }
    }

    /// So many of those here are out of reach, and wait at the gateway: for so long where that one
    /// has never said how long.
    fn lose(&mut self, players: u32, untold_ms: u32) {
        self.there = self.used();
        self.here = self.here.saturating_sub(players);
        let grace_ms = u64::from(self.grace_ms.unwrap_or(untold_ms));
        self.until = Until::For(grace_ms + NOTICED_WITHIN_MS);
    }
}

impl Roll {
    fn here(&self) -> u32 {
        self.gateways.values().fold(0, |sum, part| sum.saturating_add(part.here))
    }

    fn used(&self) -> u32 {
        self.gateways.values().fold(0, |sum, part| sum.saturating_add(part.used()))
    }

    /// Whether all of these gateways have said how many players they have.
    fn is_told(&self, gateways: &[&str]) -> bool {
        let has_told = |part: &Part| part.grace_ms.is_some();
        gateways.iter().all(|gateway| self.gateways.get(*gateway).is_some_and(has_told))
    }

    /// Whether there is a slot for one more of a gateway. Who waits there already has one.
    fn has_room(&self, gateway: &str) -> bool {
        let Some(slots) = self.slots else { return true };
        let waits = self.gateways.get(gateway).is_some_and(|part| part.there > part.here);
        self.here() < slots && (waits || self.used() < slots)
    }
}

impl Rolls {
    /// These game processes have so many slots, and for others the gateways' word is enough. Who
    /// is there stays.
    pub fn set_slots<'a>(&self, slots: impl IntoIterator<Item = (&'a str, u32)>) {
        let mut all = lock(&self.all);
        all.rolls.values_mut().for_each(|roll| roll.slots = None);
        for (name, slots) in slots {
            all.roll(name).slots = Some(slots);
        }
    }

    /// The agent starts, and knows of nobody who waits.
    pub fn start(&self, now_ns: u64) {
        lock(&self.all).start = Start::At(now_ns);
    }

    /// Gateways have players wait for so long, as far as is known without them.
    pub fn set_grace(&self, grace_ms: u32) {
        let mut all = lock(&self.all);
        all.grace_ms = all.grace_ms.max(grace_ms.min(GRACE_MAX_MS));
    }

    /// A player is announced. Whether there is a slot: otherwise it may not come in.
    pub fn open(&self, name: &str, gateway: &Arc<str>) -> bool {
        let mut all = lock(&self.all);
        let part = match all.rolls.get_mut(name) {
            Some(roll) if !roll.has_room(gateway) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Some(roll) => roll.gateways.entry(Arc::clone(gateway)).or_default(),
            None => all.part(name, gateway),
        };
        part.here += 1;
        true
    }

    /// A player who was announced has left.
    pub fn close(&self, name: &str, gateway: &Arc<str>) {
        let mut all = lock(&self.all);
        let part = all.part(name, gateway);
        part.here = part.here.saturating_sub(1);
        part.there = part.there.saturating_sub(1);
    }

    /// A player has used its token for good, and is here. Of more than there is room for, the fleet
    /// keeps slots until their tokens end.
    pub fn join(&self, name: &str, join: Join) {
        let mut all = lock(&self.all);
        let roll = all.rolls.get_mut(name).filter(|roll| roll.slots.is_some());
        if let Some(roll) = roll.filter(|roll| roll.joins.len() < JOINS_MAX) {
            roll.joins.push(join);
        }
    }

    /// Those who have come since the last time. Whoever asks for [`used`](Self::used) afterwards
    /// has each of them counted, or gone.
    pub fn take_joins(&self) -> Vec<(String, Join)> {
        let mut all = lock(&self.all);
        let of = |(name, roll): (&String, &mut Roll)| {
            std::mem::take(&mut roll.joins).into_iter().map(|it| (name.clone(), it)).collect()
        };
        all.rolls.iter_mut().flat_map(|it| -> Vec<_> { of(it) }).collect()
    }

    /// A payload of a player for whom there was no slot goes no further.
    pub fn drop_payload(&self) {
        self.unheard.fetch_add(1, Ordering::Relaxed);
    }

    /// Players for whom there was no slot, and payloads of theirs.
    pub fn refused(&self) -> [u64; 2] {
        [&self.refused, &self.unheard].map(|it| it.load(Ordering::Relaxed))
    }

    /// A link is gone that had so many. Those who were not announced on it yet wait anew, too.
    pub fn lose(&self, name: &str, gateway: &Arc<str>, players: u32) {
        let mut all = lock(&self.all);
        let untold_ms = all.grace_ms.max(GRACE_UNTOLD_MS);
        let part = all.rolls.get_mut(name).and_then(|roll| roll.gateways.get_mut(gateway));
        if let Some(part) = part.filter(|part| part.used() > 0) {
            part.lose(players, untold_ms);
        }
    }

    /// Goes on with a link of another process's, that has so many.
    pub fn go_on(&self, name: &str, gateway: &Arc<str>, players: u32) {
        lock(&self.all).part(name, gateway).here += players;
    }

    /// A gateway that has let a link in says how many players it has, over all of its workers, and
    /// how long they wait for a process that is gone. They are announced one after the other.
    pub fn hear(&self, name: &str, gateway: &Arc<str>, players: u32, grace_ms: u32) {
        let grace_ms = grace_ms.min(GRACE_MAX_MS);
        let mut all = lock(&self.all);
        all.grace_ms = all.grace_ms.max(grace_ms);
        let part = all.part(name, gateway);
        part.there = players;
        part.until = Until::For(ANNOUNCED_WITHIN_MS);
        part.grace_ms = Some(grace_ms);
    }

    /// What time brings, for an agent that connects to these gateways, or to none where that is not
    /// known yet: nor is it then how long players wait. To be called again and again.
    pub fn keep(&self, now_ns: u64, gateways: &[&str]) {
        let mut all = lock(&self.all);
        let is_known = !gateways.is_empty();
        if is_known && all.start_ends_ns().is_some_and(|until_ns| now_ns >= until_ns) {
            all.start = Start::Over;
        }
        for roll in all.rolls.values_mut() {
            roll.gateways.values_mut().for_each(|part| part.keep(now_ns));
            roll.is_known |= is_known && roll.is_told(gateways);
            roll.gateways
                .retain(|name, part| !is_known || part.used() > 0 || gateways.contains(&&**name));
        }
        let is_over = matches!(all.start, Start::Over);
        all.rolls.retain(|_, roll| !is_over || roll.slots.is_some() || roll.used() > 0);
    }

    /// How many slots of a game process are used: by those who are there, and those who wait.
    /// `gateways` are those that the agent connects to, or none where that is not known yet. `None`
    /// while there may be any number.
    pub fn used(&self, name: &str, gateways: &[&str]) -> Option<Used> {
        let all = lock(&self.all);
        let roll = all.rolls.get(name);
        let is_known =
            |roll: &Roll| roll.is_known || (!gateways.is_empty() && roll.is_told(gateways));
        let has_begun = !matches!(all.start, Start::At(_)) || roll.is_some_and(is_known);
        has_begun.then(|| {
            let (all, here) = roll.map_or((0, 0), |roll| (roll.used(), roll.here()));
            Used { all, waiting: all - here }
        })
    }

    /// What a process has to know that goes on with this one's links.
    pub fn hand_over(&self, now_ns: u64) -> Handed {
        let all = lock(&self.all);
        let left_ms = |until_ns: u64| until_ns.saturating_sub(now_ns).div_ceil(NS_PER_MS);
        let mut kept = Vec::new();
        for (name, roll) in &all.rolls {
            let parts = roll.gateways.iter();
            for (gateway, part) in parts.filter(|it| it.1.grace_ms.is_some() || it.1.there > 0) {
                kept.push(Kept {
                    backend: name.clone(),
                    gateway: gateway.to_string(),
                    players: part.there,
                    left_ms: match part.until {
                        Until::Unasked => 0,
                        Until::For(ms) => ms,
                        Until::At(until_ns) => left_ms(until_ns),
                    },
                    grace_ms: part.grace_ms,
                });
            }
        }
        let [refused, unheard] = self.refused();
        let known = all.rolls.iter().filter(|(_, roll)| roll.is_known);
        let known = known.map(|(name, _)| name.clone()).collect();
        Handed { kept, known, start_left_ms: all.start_ends_ns().map(left_ms), refused, unheard }
    }

    /// What another process knew, by whose clock that was no other moment.
    pub fn inherit(&self, handed: &Handed, now_ns: u64) {
        let mut all = lock(&self.all);
        for Kept { backend, gateway, players, left_ms, grace_ms } in &handed.kept {
            let grace_ms = grace_ms.map(|it| it.min(GRACE_MAX_MS));
            all.grace_ms = all.grace_ms.max(grace_ms.unwrap_or(0));
            let part = all.part(backend, &Arc::from(gateway.as_str()));
            let left_ms = (*left_ms).min(u64::from(GRACE_MAX_MS) + NOTICED_WITHIN_MS);
            part.there = *players;
            part.until = Until::At(now_ns.saturating_add(left_ms * NS_PER_MS));
            part.grace_ms = grace_ms;
        }
        for name in &handed.known {
            all.roll(name).is_known = true;
        }
        all.start = match handed.start_left_ms {
            // As if this one had started so long ago.
            Some(left_ms) => {
                let past_ms = all.start_ms().saturating_sub(left_ms);
                Start::At(now_ns.saturating_sub(past_ms * NS_PER_MS))
            }
            None => Start::Over,
        };
        self.refused.store(handed.refused, Ordering::Relaxed);
        self.unheard.store(handed.unheard, Ordering::Relaxed);
    }
}

impl All {
    fn roll(&mut self, name: &str) -> &mut Roll {
        if !self.rolls.contains_key(name) {
            self.rolls.insert(name.to_owned(), Roll::default());
        }
        self.rolls.get_mut(name).expect("it was made")
    }

    fn part(&mut self, name: &str, gateway: &Arc<str>) -> &mut Part {
        self.roll(name).gateways.entry(Arc::clone(gateway)).or_default()
    }

    /// Until when players may wait of whom nothing is known, where that is so.
    fn start_ends_ns(&self) -> Option<u64> {
        let Start::At(since_ns) = self.start else { return None };
        Some(since_ns.saturating_add(self.start_ms() * NS_PER_MS))
    }

    /// How long players wait who were there before the start.
    fn start_ms(&self) -> u64 {
        u64::from(self.grace_ms.max(GRACE_UNTOLD_MS)) + NOTICED_WITHIN_MS
    }
}

const NS_PER_MS: u64 = 1_000_000;

/// Whose players may have come to a game process between two looks.
const JOINS_MAX: usize = 2048;

/// What the grace time is where nobody says otherwise.
const GRACE_UNTOLD_MS: u32 = 5_000;

/// The longest that it can be.
const GRACE_MAX_MS: u32 = 600_000;

/// A gateway may notice later than the agent that a link is gone, and counts from then on.
const NOTICED_WITHIN_MS: u64 = 5_000;

/// The longest pause of a player whom the gateway looks after, and a second.
const ANNOUNCED_WITHIN_MS: u64 = 11_000;

#[cfg(test)]
mod tests;
