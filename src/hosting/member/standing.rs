//! How an agent stands with its fleet, and what follows from that: what is told of its game
//! processes and of itself, who may come to it, and where it connects. Time comes in as an
//! argument; what is decided is said to others, and nothing here waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringgate_fleet::lease::{Handed, Registration};
use ringgate_fleet::mirror::{self, Change, Machine};
use ringgate_fleet::values::{self, State, Stored};
use ringgate_link::announce::{Announced, Announcement, Standing, State as Said};
use ringgate_trunk::agent::rolls::Used;
use ringgate_trunk::agent::view::{State as TrunkState, View};

use super::Part;
use crate::hosting::gateways::Gateways;
use crate::hosting::wellness::Watched;
use crate::membership::announced::{Book, Counted};
use crate::membership::copy::Copies;
use crate::membership::news;

/// How it stands with the fleet.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The region that it says it is in.
    pub region: String,
    /// The host.
    pub host: String,
    /// The mirror.
    pub mirror: mirror::Status,
    /// Since when what is known may be out of date, on the tasks' clock.
    pub away_since_ms: Option<u64>,
    /// Now, on that clock.
    pub now_ms: u64,
    /// Whether the agent is registered, under a lease that lives for certain.
    pub is_registered: bool,
    /// Leases that have ended while it lived.
    pub leases_lost: u64,
    /// What went wrong with the registration last.
    pub lease_error: Option<String>,
    /// Whether etcd takes no writes for want of space.
    pub lacks_space: bool,
    /// Gateways that are known, and values that cannot be read.
    pub known: [usize; 2],
    /// The gateways of the fleet that it connects to.
    pub gateways: Vec<String>,
    /// The game processes that it registers.
    pub backends: Vec<Shown>,
    /// Game processes that have come to register themselves.
    pub announced: usize,
    /// Those that were refused, by reason.
    pub announcements_refused: Vec<(&'static str, u64)>,
    /// Copies that were written, and that could not be.
    pub copies: [u64; 2],
}

impl Status {
    /// The number of what is held back; 0 for nothing.
    pub(super) fn doubt(&self) -> u64 {
        self.mirror.doubt.as_ref().map_or(0, |(number, _)| *number)
    }
}

/// A game process of the file, as the fleet is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What it is ready for.
    pub state: State,
    /// Why that is not what it should be.
    pub why: Option<String>,
    /// What has become of its registration.
    pub standing: Standing,
}

/// What the tasks share.
pub(super) struct Shared {
    pub(super) status: Status,
    pub(super) gateways: Gateways,
    pub(super) watched: Vec<Watched>,
    pub(super) copies: Copies,
    /// Leases under which something may stand, the one that is held first.
    pub(super) leases: Vec<i64>,
    /// Those that a process before this one has lost.
    pub(super) leases_lost_before: u64,
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    /// Says what the game processes of the file are.
    pub(super) fn tell_file(&self, view: &View) {
        let mut shared = lock(&self.shared);
        let mut book = lock(&self.book);
        let there: BTreeMap<_, _> =
            view.backends.iter().map(|(name, seen)| (name.as_str(), seen.is_there)).collect();
        let mut shown = Vec::with_capacity(shared.watched.len());
        for watched in &shared.watched {
            let is_there = there.get(watched.name.as_str()).copied().unwrap_or_default();
            let (state, why) = watched.state(is_there);
            let what = Announcement {
                group: watched.hosted.group.to_string(),
                slots: watched.slots,
                players: None,
                state: said(state),
                labels: watched.hosted.labels.clone(),
            };
            let (name, instance) = (watched.name.clone(), self.settings.instance);
            book.file(Announced { name: name.clone(), instance, what });
            let standing = book.standing_of(&name).unwrap_or_default();
            shown.push(Shown { name, state, why, standing });
        }
        for now in &shown {
            tell_state(shared.status.backends.iter().find(|before| before.name == now.name), now);
        }
        shared.status.backends = shown;
    }

    /// Lets those who have said what they are come to the local workers.
    pub(super) fn admit_guests(&mut self) {
        let is_own = |name: &str| self.agent.is_own(name);
        let book = lock(&self.book);
        let guests: BTreeMap<_, _> =
            guests(&book, is_own).map(|(name, uid)| (name.to_owned(), uid)).collect();
        drop(book);
        if self.guests.as_ref() == Some(&guests) {
            return;
        }
        let backends = guests.iter().map(|(name, uid)| self.settings.guest(name, *uid));
        self.agent.set_guests(backends.collect());
        self.guests = Some(guests);
    }

    pub(super) fn choose_gateways(&mut self, view: &View, now_ms: u64) {
        let up: BTreeSet<_> = up(view).map(|desk| desk.gateway.as_str()).collect();
        let mut shared = lock(&self.shared);
        shared.gateways.choose(|at| up.contains(at.to_string().as_str()));
        let mut wanted = shared.gateways.wanted();
        let is_certain = shared.status.away_since_ms.is_none();
        self.awaited = wanted.iter().filter(|_| is_certain).map(ToString::to_string).collect();
        shared.status.known = shared.gateways.counts();
        shared.status.gateways = shared.gateways.names();
        if !self.is_told(&shared.status, now_ms) {
            let before = self.wanted.as_deref().unwrap_or(&self.settings.gateways);
            wanted.retain(|gateway| before.contains(gateway));
        }
        drop(shared);
        if self.wanted.as_ref() == Some(&wanted) {
            return;
        }
        match self.agent.set_gateways(&wanted) {
            Ok(()) => self.wanted = Some(wanted),
            Err(why) => tracing::error!("cannot connect to other gateways: {why}"),
        }
    }

    pub(super) fn awaited(&self) -> Vec<&str> {
        self.awaited.iter().map(String::as_str).collect()
    }

    /// Whether gateways may know by now that this agent connects to them: one that does not lets it
    /// in later. Without etcd nobody is told anything.
    fn is_told(&self, status: &Status, now_ms: u64) -> bool {
        let is_away = status.away_since_ms.is_some_and(|since_ms| now_ms >= since_ms + AWAY_MS);
        let is_written = self
            .written
            .as_ref()
            .is_some_and(|(names, at_ms)| *names == status.gateways && now_ms >= at_ms + HEARD_MS);
        is_away || (status.is_registered && is_written)
    }

    /// Players, those included who wait for a game process, and the gateways that have let each in.
    /// Where players may wait of whom nothing is known, there is no free slot.
    pub(super) fn counted(&self, view: &View) -> Counted {
        let mut counted = Counted::default();
        let awaited = self.awaited();
        for (name, slots) in lock(&self.book).slots() {
            let used = self.agent.rolls().used(name, &awaited);
            let Used { all, waiting } = used.unwrap_or(Used { all: slots, waiting: slots });
            counted.players.insert(name.to_owned(), all);
            counted.waiting.insert(name.to_owned(), waiting);
        }
        let there = view.backends.iter().filter(|(_, seen)| seen.is_there);
        counted.linked = there.map(|(name, _)| name.clone()).collect();
        let shared = lock(&self.shared);
        for desk in up(view) {
            let Some(gateway) = shared.gateways.name_of(&desk.gateway) else { continue };
            for (name, _) in desk.backends.iter().filter(|(_, seen)| seen.links > 0) {
                let list = counted.gateways.entry(name.clone()).or_default();
                if list.len() < values::LIST_MAX && !list.iter().any(|it| it == gateway) {
                    list.push(gateway.to_owned());
                }
            }
        }
        counted.gateways.values_mut().for_each(|list| list.sort_unstable());
        counted
    }

    /// What the agent says of itself.
    pub(super) fn own_value(
        &self,
        gateways: &[String],
        now_s: u64,
    ) -> Result<Bytes, values::Refused> {
        let (doubt, held) = {
            let status = &lock(&self.shared).status;
            (status.doubt(), status.mirror.held())
        };
        let value = values::Agent {
            instance: format!("{:016x}", self.settings.instance),
            host: self.settings.host.to_string(),
            region: self.settings.region.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gateways: gateways.to_vec(),
            started: self.started_s,
            written: now_s,
            doubt,
            held,
        };
        value.encode()
    }
}

impl Shown {
    /// As another process has left it: what has changed since is told.
    pub(super) fn before(watched: &Watched) -> Self {
        let (state, why) = watched.state(true);
        Self { name: watched.name.clone(), state, why, standing: Standing::default() }
    }
}

/// Those who have come by themselves, and are none of the file's.
pub(in crate::hosting) fn guests(
    book: &Book,
    is_own: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&str, Option<u32>)> {
    book.names().filter(move |name| !is_own(name)).map(|name| (name, book.owner(name)))
}

/// The gateways that have let the agent in.
fn up(view: &View) -> impl Iterator<Item = &ringgate_trunk::agent::view::DeskView> {
    view.gateways.iter().filter(|desk| desk.state == TrunkState::Up)
}

fn tell_state(before: Option<&Shown>, now: &Shown) {
    let Shown { name, state, why, .. } = now;
    let known = before.map(|it| it.state);
    if known == Some(*state) || (before.is_none() && *state == State::Starting) {
        return;
    }
    let word = crate::config::values::word_of(*state);
    let why = why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    tracing::info!(
        event = "backend_state",
        backend = name,
        state = word,
        "backend {name} is {word}{why}"
    );
}

/// As the library says it.
const fn said(state: State) -> Said {
    match state {
        State::Starting => Said::Starting,
        State::Ready => Said::Ready,
        State::Allocated => Said::Allocated,
        State::Draining => Said::Draining,
    }
}

impl Shared {
    pub(super) fn see(&mut self, now_ms: u64, machine: &Machine, changes: &[Change]) {
        for change in changes {
            self.gateways.learn(&change.key, change.value.as_deref());
        }
        self.copies.see(now_ms, machine.truth(), !changes.is_empty(), SAVE_EVERY_MS);
        let status = machine.status();
        news::tell_away(&mut self.status.away_since_ms, now_ms, status);
        news::tell_doubt(&self.status.mirror, status);
        self.status.mirror = status.clone();
    }

    pub(super) fn see_registration(
        &mut self,
        now_ms: u64,
        registration: &Registration,
        own: &[u8],
    ) {
        let is_registered = registration.stands(own, now_ms);
        if is_registered && !self.status.is_registered {
            tracing::info!(event = "fleet_registered", "registered in the fleet");
        }
        self.status.is_registered = is_registered;
        let Handed { lease, former, .. } = registration.handed();
        if lease != 0 {
            self.leases = [lease].into_iter().chain(former.into_iter().rev()).collect();
        }
        self.status.leases_lost = self.leases_lost_before + registration.lost();
        self.status.lease_error = registration.last_error().map(str::to_owned);
        news::tell_space(&mut self.status.lacks_space, registration.lacks_space());
    }
}

/// Etcd that is there has been heard of by then.
const AWAY_MS: u64 = 2_000;
/// A gateway looks ten times a second at what etcd has told.
const HEARD_MS: u64 = 300;
/// Gateways write their load once a second, and only their addresses matter in the copy.
const SAVE_EVERY_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosting::Settings;

    #[test]
    fn the_held_lease_is_the_first_and_what_was_lost_before_is_counted_on() {
        let mut shared = Shared {
            status: Status::default(),
            gateways: Gateways::new(&Settings::example()),
            watched: Vec::new(),
            copies: Copies::default(),
            leases: vec![7],
            leases_lost_before: 3,
        };
        let own = b"/f/truth/agent/host-7";
        shared.see_registration(0, &Registration::new(10, 1), own);
        assert!(!shared.status.is_registered);
        assert_eq!((shared.status.leases_lost, &shared.leases[..]), (3, &[7][..]));
        let handed = Handed { lease: 9, former: vec![5, 7], ..Handed::default() };
        shared.see_registration(0, &Registration::adopt(10, 1, handed), own);
        assert_eq!((shared.status.leases_lost, &shared.leases[..]), (3, &[9, 7, 5][..]));
    }
}
