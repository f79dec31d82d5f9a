//! What a gateway makes of its fleet: what workers are to be told of what is known, and what others
//! are told of what workers have taken in. Decides and touches nothing: the control loop carries it
//! out, and so does a world without threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan;
use super::reload;
use crate::config::{self, Config, Link, Protocol};
use crate::membership::{CLASH, Facts, Known, Refused, merged_beside, serve_also};
use ringgate_fleet::seal::name_of;
use ringgate_fleet::values::gateway::{Cluster, Entrance, Listener, SHUT_MAX};
use ringgate_gate::{
    Backend, BackendId, Front, LinkKind, ListenerId, Phase, Setup, TokenReuse, clashes,
};
use ringgate_os::process;

pub use super::reload::{Known as KnownListeners, Next};

/// What is known of the workers of a gateway.
pub trait Crew {
    /// Whether every worker goes by the setup with this revision, or a later one.
    fn has_adopted(&self, revision: u64) -> bool;

    /// Players of a backend.
    fn players(&self, backend: BackendId) -> u32;

    /// Sessions of a listener.
    fn sessions(&self, listener: ListenerId) -> u32;

    /// Workers that are linked to a backend, and those that have heard of it.
    fn linked(&self, backend: BackendId) -> [usize; 2];

    /// Whether a worker was told by a backend that it takes nobody new.
    fn is_closed(&self, backend: BackendId) -> bool;
}

/// A gateway that runs.
#[derive(Clone, Copy)]
pub struct Running<'a> {
    /// What it goes by.
    pub config: &'a Config,
    /// What its workers were told of that.
    pub setup: &'a Setup,
    /// Its workers.
    pub crew: &'a dyn Crew,
    /// How many workers there are.
    pub workers: usize,
    /// Whether nothing knows the number of a backend any more.
    pub is_free: &'a dyn Fn(BackendId) -> bool,
}

impl Running<'_> {
    /// Which backends cannot be behind a listener that speaks this yet: what the fleet says of one
    /// is no reason to leave out the others.
    fn clashes(
        &self,
        spoken: impl Fn(BackendId) -> Option<Front>,
    ) -> impl Fn(Front, &config::Backend) -> bool {
        let (setup, own) = (self.setup, process::effective_uid());
        move |front, backend| clashes(setup, &spoken, &plan::backend(backend, own), front)
    }
}

/// What a gateway knows of its fleet, and what has become of it.
#[derive(Debug)]
pub struct Following {
    /// The config as the file has it.
    file: Config,
    key_names: KeyNames,
    known: Arc<Known>,
    refused: BTreeSet<Refused>,
    /// What workers were told, and the setup that says it.
    given: (u64, Given),
    /// What every worker has taken in.
    confirmed: Given,
    /// The revision up to which workers were told of bans, and the setup that says it. A gateway
    /// that drains takes in bans, and nothing else.
    bans_given: (u64, i64),
    bans_confirmed: i64,
}

type Epochs = BTreeMap<String, Vec<u32>>;
type KeyNames = BTreeMap<String, Vec<String>>;

/// What others have to know of what workers know.
#[derive(Clone, Debug, Default)]
struct Given {
    /// The epochs of each listener's keys.
    epochs: Epochs,
    /// The revision up to which backends are known.
    heard: i64,
}

impl Given {
    fn of(file: &Config, known: &Known) -> Self {
        Self { epochs: epochs(file, known), heard: known.heard }
    }
}

/// Where agents connect, as the fleet is told. `file` is the config without what the fleet knows.
fn entrances(file: &Config) -> Vec<Entrance> {
    let graces = file.backends.iter().map(|backend| backend.grace);
    let grace = graces.chain(file.fleet.as_ref().map(|fleet| fleet.grace)).max();
    let grace_ms = grace.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let entrance = |agent: &config::Agent| {
        let bind = agent.bind;
        let may_be_dialled = bind.port() != 0 && !bind.ip().is_unspecified();
        let at = agent.public.as_ref().map(ToString::to_string);
        let at = at.or_else(|| may_be_dialled.then(|| bind.to_string()))?;
        Some(Entrance { name: agent.name.clone(), at, grace_ms })
    };
    file.agents.iter().filter_map(entrance).collect()
}

/// The epochs of the listeners that have the fleet's keys.
fn epochs(file: &Config, known: &Known) -> Epochs {
    let numbers = |keys: &Vec<(u32, _)>| {
        let mut numbers: Vec<_> = keys.iter().map(|(number, _)| *number).rev().collect();
        numbers.dedup();
        numbers
    };
    let with_keys = file.listeners.iter().filter(|listener| listener.has_fleet_keys());
    with_keys.filter_map(|it| Some((it.name.clone(), numbers(known.keys.get(&it.name)?)))).collect()
}

/// What the keys of each listener are called that stand in the config file; those of the fleet are
/// called by their epochs.
fn key_names(file: &Config) -> KeyNames {
    let named = |listener: &config::Listener| match &listener.protocol {
        Protocol::Netcode(rules) if !rules.has_fleet_keys => {
            Some((listener.name.clone(), rules.keys.iter().map(name_of).collect()))
        }
        _ => None,
    };
    file.listeners.iter().filter_map(named).collect()
}

impl Following {
    /// A gateway whose workers were made with what was known.
    pub fn new(file: Config, known: Known) -> Self {
        let given = (0, Given::of(&file, &known));
        let bans_given = (0, known.denied);
        Self {
            key_names: key_names(&file),
            file,
            known: Arc::new(known),
            refused: BTreeSet::new(),
            given,
            confirmed: Given::default(),
            bans_given,
            bans_confirmed: 0,
        }
    }

    /// The config as the file has it.
    pub const fn file(&self) -> &Config {
        &self.file
    }

    /// What is known.
    pub const fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// Backends that are left out.
    pub const fn refused(&self) -> &BTreeSet<Refused> {
        &self.refused
    }

    /// Whether some of them are taken in once their players have left.
    pub fn waits(&self) -> bool {
        self.refused.iter().any(|it| it.why == CLASH)
    }

    /// The epochs of each listener's keys that every worker accepts.
    pub fn confirmed_epochs(&self) -> Vec<(String, Vec<u32>)> {
        self.confirmed.epochs.clone().into_iter().collect()
    }

    /// Whether the config file has a backend of this name.
    pub fn is_of_file(&self, backend: &str) -> bool {
        self.file.has_backend(backend)
    }

    /// The config file was read again, and workers were told so by the setup with this revision.
    pub fn set_file(&mut self, file: Config, revision: u64) {
        self.given = (revision, Given::of(&file, &self.known));
        self.key_names = key_names(&file);
        self.file = file;
    }

    /// This is known. Returns whether other bans are.
    pub fn hear(&mut self, known: Arc<Known>) -> bool {
        let before = std::mem::replace(&mut self.known, known);
        before.bans != self.known.bans
    }

    /// Workers were told of the bans that are known by the setup with this revision.
    pub fn gave_bans(&mut self, revision: u64) {
        self.bans_given = (revision, self.known.denied);
    }

    /// A config that was read, with what is known.
    pub fn with_known(
        &self,
        read: &Config,
        running: &Running<'_>,
        owner: impl Fn(&str) -> Option<u32>,
        spoken: impl Fn(BackendId) -> Option<Front>,
    ) -> Config {
        let mut config = merged_beside(read, &self.known, running.clashes(spoken)).config;
        self.keep_to_owners(&mut config, owner);
        keep_served(&mut config, running);
        config
    }

    /// What workers are to be told now, and the config that says it. `owner` says whose process a
    /// backend is.
    pub fn next(
        &mut self,
        running: &Running<'_>,
        owner: impl Fn(&str) -> Option<u32>,
        listeners: &KnownListeners<'_>,
    ) -> Result<(Next, Config), Vec<String>> {
        let clashes = running.clashes(listeners.spoken);
        let mut with = merged_beside(&self.file, &self.known, clashes);
        self.tell_refused(std::mem::take(&mut with.refused));
        self.keep_to_owners(&mut with.config, owner);
        keep_served(&mut with.config, running);
        let Running { config, setup, is_free, .. } = *running;
        let is_of_file = |name: &str| self.is_of_file(name);
        let mut next = reload::next(config, setup, &with.config, is_free, is_of_file, listeners)?;
        next.setup.awaits_fleet &= !self.known.is_listed;
        Ok((next, with.config))
    }

    /// Workers were told what is known by the setup with this revision.
    pub fn gave(&mut self, revision: u64) {
        self.given = (revision, Given::of(&self.file, &self.known));
    }

    /// Notes what every worker has taken in.
    pub fn confirm(&mut self, crew: &dyn Crew) {
        let (revision, given) = &self.given;
        if crew.has_adopted(*revision) {
            self.confirmed.clone_from(given);
        }
        let (revision, denied) = self.bans_given;
        if crew.has_adopted(revision) {
            self.bans_confirmed = denied;
        }
    }

    /// A process that has registered itself is linked to as its own user only: another one that may
    /// register is not to come in its place.
    fn keep_to_owners(&self, config: &mut Config, owner: impl Fn(&str) -> Option<u32>) {
        for backend in config.backends.iter_mut().filter(|it| !self.is_of_file(&it.name)) {
            // Those of agents, and where the gateway's own user alone may come, name nobody.
            if let Link::Bundle(allowed) = &mut backend.link
                && *allowed != config::Allowed::default()
                && let Some(uid) = owner(&backend.name)
            {
                *allowed = config::Allowed { uids: vec![uid], gids: Vec::new() };
            }
        }
    }

    /// Names each backend that is left out, once.
    fn tell_refused(&mut self, refused: Vec<Refused>) {
        let refused: BTreeSet<_> = refused.into_iter().collect();
        for Refused { backend, why } in refused.difference(&self.refused) {
            tracing::warn!(
                event = "fleet_backend_refused",
                backend,
                why,
                "backend {backend} of the fleet is left out: {why}"
            );
        }
        self.refused = refused;
    }

    /// Backends of the fleet that take players by what the fleet says of them, and that nobody new
    /// is led to: a worker is not linked to them or was told by them that they take nobody, they
    /// were left out, or an operator drains them.
    fn shut_backends(&self, running: &Running<'_>) -> Vec<String> {
        let is_shut = |&(id, it): &(BackendId, &Backend)| {
            // That a worker has not heard of a backend yet is told by `heard`.
            let [linked, heard] = running.crew.linked(id);
            let is_meant = !it.retired && it.intake.is_open();
            let takes_nobody = it.drained || running.crew.is_closed(id);
            is_meant && (takes_nobody || linked < heard) && !self.is_of_file(&it.name)
        };
        let shut = running.setup.backends.pairs().filter(is_shut).map(|(_, it)| it.name.clone());
        let left_out = self.refused.iter().map(|it| it.backend.clone());
        shut.chain(left_out).take(SHUT_MAX).collect()
    }

    /// What the gateway says of itself, but for its start and whether it drains.
    pub fn facts(&self, running: &Running<'_>) -> Facts {
        let Running { config, setup, crew, .. } = *running;
        let serving = setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving);
        let epochs = |name: &str| self.confirmed.epochs.get(name).cloned();
        let cluster = |it: &config::Cluster| Cluster { name: it.name.clone(), at: it.entrance() };
        let mut facts = Facts {
            heard: self.confirmed.heard,
            denied: self.bans_confirmed,
            shut: self.shut_backends(running),
            entrances: entrances(&self.file),
            cluster: self.file.cluster.as_ref().map(cluster),
            ..Facts::default()
        };
        for (number, listener) in serving {
            let configured = config.listeners.iter().find(|it| it.name == listener.name);
            let group = configured.and_then(|it| it.group.as_ref());
            let token = configured.and_then(|it| match &it.protocol {
                Protocol::Plain(rules) => rules.token,
                _ => None,
            });
            facts.capacity = facts.capacity.saturating_add(listener.sessions_max);
            facts.sessions = facts.sessions.saturating_add(crew.sessions(number));
            facts.listeners.push(Listener {
                name: listener.name.clone(),
                protocol: Front::of(&listener.protocol).word().to_owned(),
                addresses: listener.public.clone(),
                epochs: epochs(&listener.name).unwrap_or_default(),
                keys: self.key_names.get(&listener.name).cloned().unwrap_or_default(),
                group: group.map_or(String::new(), ToString::to_string),
                protocol_id: listener.netcode().map_or(0, |rules| rules.protocol_id),
                token_bytes: token.map_or(0, |token| token.bytes.into()),
                tags: listener.netcode().is_some_and(|it| it.token_reuse == TokenReuse::Deny),
                messages: listener.netcode().is_some_and(|it| it.delivers && it.moves.is_empty()),
            });
        }
        facts
    }
}

/// An agent may go on to serve the backends that are gone from the fleet, for as long as they have
/// players here: who has lost a registration has not lost its players.
fn keep_served(config: &mut Config, running: &Running<'_>) {
    let pairs = || running.setup.backends.pairs();
    let has_players =
        |name: &&String| pairs().any(|(id, it)| it.name == **name && !(running.is_free)(id));
    let served = running.config.agents.iter().filter(|agent| agent.serves_fleet);
    for before in served.filter(|agent| !agent.backends.is_empty()) {
        let stay: Vec<_> = before.backends.iter().filter(has_players).cloned().collect();
        let may_stay = config.agents.iter().any(|it| it.serves_fleet && it.bind == before.bind);
        if !stay.is_empty() && may_stay {
            serve_also(config, config::Agent { backends: stay, ..before.clone() });
        }
    }
}

/// How many players each backend has that connects to us, or did: one that is retired may come back
/// by its name, as all do in a successor that has not heard of the fleet yet.
pub fn players_of_backends(running: &Running<'_>) -> BTreeMap<String, u32> {
    let mut players = BTreeMap::new();
    let bundles = |it: &Backend| matches!(it.link, LinkKind::Bundle { .. });
    for (id, it) in running.setup.backends.pairs().filter(|(_, it)| bundles(it)) {
        *players.entry(it.name.clone()).or_default() += running.crew.players(id);
    }
    players
}

/// Backends that every worker is linked to.
pub fn linked_backends(running: &Running<'_>) -> BTreeSet<String> {
    let is_linked = |id| running.crew.linked(id)[0] == running.workers;
    let backends = running.setup.backends.pairs();
    let linked = backends.filter(|&(id, it)| !it.retired && is_linked(id));
    linked.map(|(_, it)| it.name.clone()).collect()
}

#[cfg(test)]
mod tests;
