//! How an agent stands with its fleet, and what follows from that: what is told of its game
//! processes and of itself, who may come to it, and where it connects. Time comes in as an
//! argument; what is decided is said to others, and nothing here waits for them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ringgate_fleet::lease::Registration;
use ringgate_fleet::member::{self, Doubted, MemberState, MemberStatus, Role, Seat, lock};
use ringgate_fleet::mirror::{Change, Machine};
use ringgate_fleet::values::{self, State, Stored};
use ringgate_link::announce::{Announced, Announcement, Standing, State as Said};
use ringgate_trunk::agent::ARBITRATED;
use ringgate_trunk::agent::options::Gateway;
use ringgate_trunk::agent::rolls::Used;
use ringgate_trunk::agent::view::{State as TrunkState, View};

use super::Part;
use crate::hosting::Settings;
use crate::hosting::gateways::Gateways;
use crate::hosting::wellness::Watched;
use crate::membership::announced::{Book, Counted, Registry};

/// How it stands with the fleet.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// As of any process.
    pub member: MemberStatus,
    /// The region that it says it is in.
    pub region: String,
    /// The host.
    pub host: String,
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

/// What an agent reads, and what it says.
pub(super) struct Hosting {
    pub(super) settings: Settings,
    pub(super) status: Status,
    pub(super) gateways: Gateways,
    pub(super) watched: Vec<Watched>,
    pub(super) registry: Registry,
    /// When the agent started, in seconds since 1970.
    pub(super) started_s: u64,
}

/// The gateways that an agent says it connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectsTo(pub(super) Vec<String>);

impl member::Facts for ConnectsTo {
    fn is_news(&self, written: &Self, _age_ms: u64) -> bool {
        self != written
    }
}

impl Part {
    /// Says what the game processes of the file are.
    pub(super) fn tell_file(&self, view: &View) {
        let shared = &mut lock(&self.seat).role;
        let mut book = self.registry.book();
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
            let (name, instance) = (watched.name.clone(), shared.settings.instance);
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
        let book = self.registry.book();
        let guests: BTreeMap<_, _> =
            guests(&book, is_own).map(|(name, uid)| (name.to_owned(), uid)).collect();
        drop(book);
        if self.guests.as_ref() == Some(&guests) {
            return;
        }
        let settings = lock(&self.seat).role.settings.clone();
        let backends = guests.iter().map(|(name, uid)| settings.guest(name, *uid));
        self.agent.set_guests(backends.collect());
        self.guests = Some(guests);
    }

    pub(super) fn choose_gateways(&mut self, view: &View) {
        let mut seat = lock(&self.seat);
        let up: BTreeSet<_> = up(view).map(|desk| desk.gateway.as_str()).collect();
        let Seat { state, role: shared } = &mut *seat;
        shared.gateways.choose(|at| up.contains(at.to_string().as_str()));
        let mut wanted = shared.gateways.wanted();
        self.awaited = awaited(&state.status, &wanted);
        shared.status.known = shared.gateways.counts();
        shared.status.gateways = shared.gateways.names();
        if !self.is_told(&state.status, &shared.status.gateways) {
            let before = self.wanted.as_deref().unwrap_or(&shared.settings.gateways);
            wanted.retain(|gateway| before.contains(gateway));
        }
        drop(seat);
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
    fn is_told(&self, status: &MemberStatus, gateways: &[String]) -> bool {
        let now_ms = self.member.plan().now_ms();
        let is_away = status.away_since_ms.is_some_and(|since_ms| now_ms >= since_ms + AWAY_MS);
        let is_written = self.member.written().is_some_and(|(ConnectsTo(names), at_ms)| {
            names == gateways && now_ms >= at_ms + HEARD_MS
        });
        is_away || (status.is_registered && is_written)
    }

    /// Players, those included who wait for a game process, and the gateways that have let each in.
    /// Where players may wait of whom nothing is known, there is no free slot.
    pub(super) fn counted(&self, view: &View) -> Counted {
        let mut counted = Counted::default();
        let awaited = self.awaited();
        for (name, slots) in self.registry.book().slots() {
            let used = self.agent.rolls().used(name, &awaited);
            let Used { all, waiting } = used.unwrap_or(Used { all: slots, waiting: slots });
            counted.players.insert(name.to_owned(), all);
            counted.waiting.insert(name.to_owned(), waiting);
        }
        let there = view.backends.iter().filter(|(_, seen)| seen.is_there);
        counted.linked = there.map(|(name, _)| name.clone()).collect();
        let seat = lock(&self.seat);
        for desk in up(view) {
            let Some(gateway) = seat.role.gateways.name_of(&desk.gateway) else { continue };
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

/// The gateways of whose players the agent has to know, among those that it is to connect to; none
/// while there may be others. What is held back is obeyed by no time: then it goes by those.
fn awaited(status: &MemberStatus, wanted: &[Gateway]) -> Vec<String> {
    let is_certain = status.is_current() || status.doubt() > 0;
    wanted.iter().filter(|_| is_certain).map(ToString::to_string).collect()
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

impl Role for Hosting {
    type Facts = ConnectsTo;

    fn value(
        &self,
        ConnectsTo(gateways): &ConnectsTo,
        doubted: &Doubted,
        now_s: u64,
    ) -> Result<Bytes, values::Refused> {
        let value = values::Agent {
            instance: format!("{:016x}", self.settings.instance),
            host: self.settings.host.to_string(),
            region: self.settings.region.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            gateways: gateways.clone(),
            started: self.started_s,
            written: now_s,
            doubt: doubted.number,
            held: doubted.held.clone(),
            arbitrates: ARBITRATED.map(str::to_owned).into(),
        };
        value.encode()
    }

    fn hear(&mut self, _: &mut MemberState, _: &Machine, changes: &[Change]) {
        for change in changes {
            self.gateways.learn(&change.key, change.value.as_deref());
        }
    }

    fn hear_registration(&mut self, _: &MemberState, registration: &Registration) {
        self.registry.see_registration(registration);
    }
}

/// Etcd that is there has been heard of by then.
const AWAY_MS: u64 = 2_000;
/// A gateway looks ten times a second at what etcd has told.
const HEARD_MS: u64 = 300;

#[cfg(test)]
mod tests {
    use ringgate_fleet::mirror::{self, Doubt};

    use super::*;

    #[test]
    fn while_another_history_is_held_back_an_agent_goes_by_the_gateways_that_it_knows() {
        let wanted = [Gateway::parse("a.example:1").expect("sound")];
        let away = MemberStatus { away_since_ms: Some(0), ..MemberStatus::default() };
        assert!(awaited(&away, &wanted).is_empty(), "there may be others");
        let doubt = Some((3, Doubt::RevisionWentBack { known: 9, told: 8 }));
        let mirror = mirror::Status { doubt, ..mirror::Status::default() };
        assert_eq!(awaited(&MemberStatus { mirror, ..away }, &wanted), ["a.example:1"]);
        assert_eq!(awaited(&MemberStatus::default(), &wanted), ["a.example:1"]);
    }
}
