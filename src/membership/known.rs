//! What etcd's keys mean to this gateway: backends of its host, keys of listeners, bans.
//!
//! Whoever may write there may write anything. What cannot be read is left out, counted and told
//! once; it never takes anything else along.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ringgate_core::secret::SharedKey;
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::keyspace::{IpPrefix, Keyspace, Name, Place};
use ringgate_fleet::mirror::{Change, Truth};
use ringgate_fleet::values::gateway::{Cluster, Listener};
use ringgate_fleet::values::{self, Ban, Reach, State, Stored};
use ringgate_gate::{Intake, Prefix};
use ringgate_state::{DenyList, Rule, Whom};

use super::kept::{Refused, Stood};
use super::unreadable::Unreadable;
use super::{MaybeKey, Settings};
use keys::Keys;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of this host, or behind agents that connect to this gateway; by name.
    pub backends: Vec<Backend>,
    /// Agents that connect to this gateway, in the order in which they came.
    pub agents: Vec<String>,
    /// Of each listener that has any, newest first, with their epochs.
    pub keys: BTreeMap<String, Vec<(u32, SharedKey)>>,
    /// Who is denied; moments are seconds since 1970.
    pub bans: Arc<DenyList>,
    /// Gateways of the fleet.
    pub gateways: usize,
    /// Those of them that are in a cluster, by name.
    pub clustered: BTreeMap<String, Clustered>,
    /// Keys in etcd that could not be read.
    pub unreadable: usize,
    /// The revision up to which the backends are known.
    pub heard: i64,
    /// The revision up to which the bans are known.
    pub denied: i64,
    /// Whether this process has heard of it in etcd, and not only from the one before.
    pub is_listed: bool,
}

/// A gateway in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clustered {
    /// Which, and where others of it connect.
    pub cluster: Cluster,
    /// What players dial there.
    pub listeners: Vec<Listener>,
}

/// A game process that this gateway may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// Which listeners lead to it.
    pub group: String,
    /// How it is reached.
    pub reach: Reach,
    /// How many players it takes.
    pub slots: u32,
    /// Whom it is for.
    pub intake: Intake,
}

/// Reads changes as they come.
pub(super) struct Reading {
    keyspace: Keyspace,
    name: Name,
    host: Name,
    fleet_key: MaybeKey,
    /// Our own registration: where it stands, and which instance has to stand there.
    own: (Bytes, String),
    /// Of this host, or behind any agent.
    backends: BTreeMap<String, Backend>,
    /// As which each has come, so that no newcomer takes the place of one that is there.
    agents: BTreeMap<String, u64>,
    gateways: BTreeSet<String>,
    clustered: BTreeMap<String, Clustered>,
    keys: Keys,
    bans: BTreeMap<Whom, u64>,
    /// As of the last time it was asked for, and until when.
    deny_list: Arc<DenyList>,
    deny_list_until_s: u64,
    unreadable: Unreadable,
    next_s: u64,
    /// The moment for which it was asked last what is known.
    known_s: u64,
    /// Another process's value stands at our own key.
    is_own_in_doubt: bool,
    news: News,
    /// The revision up to which backends are known: that of the last news of one, or of a list.
    heard: i64,
    /// The same of bans.
    denied: i64,
    /// All that etcd has was known once.
    listed: bool,
}

/// What has changed since it was asked for.
#[derive(Default)]
struct News {
    /// Something has become otherwise with a backend.
    of_backends: bool,
    /// A ban has come or gone.
    of_bans: bool,
}

impl Reading {
    pub(super) fn new(settings: &Settings, fleet_key: MaybeKey, truth: &Truth) -> Self {
        let own = settings.keyspace.key(&Place::Gateway(settings.name.clone()));
        let mut reading = Self {
            keyspace: settings.keyspace.clone(),
            name: settings.name.clone(),
            host: settings.host.clone(),
            fleet_key,
            own: (own, settings.instance.clone()),
            backends: BTreeMap::new(),
            agents: BTreeMap::new(),
            gateways: BTreeSet::new(),
            clustered: BTreeMap::new(),
            keys: Keys::default(),
            bans: BTreeMap::new(),
            deny_list: Arc::default(),
            deny_list_until_s: 0,
            unreadable: Unreadable::default(),
            next_s: u64::MAX,
            known_s: 0,
            is_own_in_doubt: false,
            news: News::default(),
            heard: truth.revision,
            denied: truth.revision,
            listed: false,
        };
        for (key, entry) in &truth.entries {
            reading.take(key, Some(&entry.value));
        }
        reading.is_own_in_doubt = false;
        reading.news = News::default();
        reading
    }

    /// Takes the keys besides that the last process has written down.
    pub(super) fn recall(&mut self, file: &StateFile) {
        if let Some(fleet_key) = &self.fleet_key {
            self.keys.recall(&self.keyspace, fleet_key, file);
        }
    }

    /// What is to be written down of the keys, where that has become otherwise.
    pub(super) fn take_keys(&mut self) -> Option<Vec<Stood>> {
        self.keys.take_news(&self.keyspace)
    }

    /// What was to be written down of them could not be.
    pub(super) const fn has_unwritten_keys(&mut self) {
        self.keys.are_unwritten();
    }

    /// What the last process has left of them that could not be used.
    pub(super) const fn refused_keys(&self) -> Refused {
        self.keys.refused()
    }

    /// The instance is that of the process before this one.
    pub(super) fn set_instance(&mut self, instance: &str) {
        instance.clone_into(&mut self.own.1);
    }

    /// Something has become otherwise, and everything is known up to this revision.
    pub(super) fn change(&mut self, change: &Change, revision: i64) {
        self.take(&change.key, change.value.as_deref());
        if std::mem::take(&mut self.news.of_backends) {
            self.heard = revision;
        }
        if std::mem::take(&mut self.news.of_bans) {
            self.denied = revision;
        }
    }

    /// Everything was listed, or agrees with etcd: it is known up to this revision.
    pub(super) const fn see_list(&mut self, revision: i64) {
        (self.heard, self.denied, self.listed) = (revision, revision, true);
    }

    /// Whether that was so by now.
    pub(super) const fn is_listed(&self) -> bool {
        self.listed
    }

    /// The fleet's key, where there is one.
    pub(super) fn fleet_key(&self) -> MaybeKey {
        self.fleet_key.clone()
    }

    /// Whether our own registration has to be looked at; asked once.
    pub(super) const fn take_own_doubt(&mut self) -> bool {
        std::mem::replace(&mut self.is_own_in_doubt, false)
    }

    fn take(&mut self, key: &Bytes, value: Option<&[u8]>) {
        let read = match self.keyspace.place(key) {
            Some(place) => self.take_place(key, &place, value),
            None => value.map_or(Ok(()), |_| Err("no key of a fleet".to_owned())),
        };
        self.unreadable.note(key, read);
    }

    fn take_place(
        &mut self,
        key: &Bytes,
        place: &Place,
        value: Option<&[u8]>,
    ) -> Result<(), String> {
        match place {
            Place::Gateway(name) => self.take_gateway(key, name, value),
            Place::Backend(name) => self.take_backend(name, value),
            Place::Agent(name) => self.take_agent(name, value),
            Place::Key(listener, epoch) => {
                // A gateway that has no listener with the fleet's keys has no key either, and one
                // that is gone is accepted to its own end: tokens of it may be under way.
                self.keys.fall((listener, *epoch));
                let (Some(value), Some(fleet_key)) = (value, &self.fleet_key) else {
                    return Ok(());
                };
                self.keys.learn(fleet_key, key, (listener, *epoch), value)
            }
            Place::BanClient(id) => self.take_ban(Whom::Client(*id), value),
            Place::BanPrefix(prefix) => {
                let prefix: Prefix = prefix.to_string().parse().map_err(str::to_owned)?;
                self.take_ban(Whom::Prefix(prefix), value)
            }
            // They stand elsewhere, or speak to matchmakers.
            Place::Token(_)
            | Place::Player(..)
            | Place::Owned(..)
            | Place::Promise(..)
            | Place::Incarnations(_)
            | Place::Ousted(..)
            | Place::Question(..)
            | Place::Move(..)
            | Place::Answer(..)
            | Place::Block(..)
            | Place::Guard(_)
            | Place::Service(_)
            | Place::Confirm
            | Place::Gone(_)
            | Place::GoneBackend(_) => Ok(()),
        }
    }

    fn take_gateway(
        &mut self,
        key: &Bytes,
        name: &Name,
        value: Option<&[u8]>,
    ) -> Result<(), String> {
        let is_own = *key == self.own.0;
        self.clustered.remove(name.as_str());
        let Some(value) = value else {
            self.gateways.remove(name.as_str());
            return Ok(());
        };
        self.gateways.insert(name.as_str().to_owned());
        let gateway = values::Gateway::decode(value).map_err(|why| why.to_string())?;
        self.is_own_in_doubt |= is_own && gateway.instance != self.own.1;
        if let Some(cluster) = gateway.cluster {
            let clustered = Clustered { cluster, listeners: gateway.listeners };
            self.clustered.insert(name.as_str().to_owned(), clustered);
        }
        Ok(())
    }

    fn take_backend(&mut self, name: &Name, value: Option<&[u8]>) -> Result<(), String> {
        let before = self.backends.remove(name.as_str());
        self.news.of_backends |= before.is_some();
        let Some(value) = value else { return Ok(()) };
        let found = values::Backend::decode(value).map_err(|why| why.to_string())?;
        let is_behind_agent = matches!(found.reach, Reach::Agent(_));
        if found.host != self.host.as_str() && !is_behind_agent {
            return Ok(());
        }
        let intake = match found.state {
            State::Ready => Intake::Anybody,
            State::Allocated => Intake::Sent,
            State::Starting => Intake::NobodyYet,
            State::Draining => Intake::Nobody,
        };
        let name = name.as_str().to_owned();
        let (group, reach) = (found.group, found.reach);
        let slots = found.slots.min(SLOTS_MAX);
        let backend = Backend { name: name.clone(), group, reach, slots, intake };
        self.news.of_backends = before.as_ref() != Some(&backend);
        self.backends.insert(name, backend);
        Ok(())
    }

    fn take_agent(&mut self, name: &Name, value: Option<&[u8]>) -> Result<(), String> {
        let found = value.map(values::Agent::decode).transpose();
        let is_ours = |it: &values::Agent| it.gateways.iter().any(|to| to == self.name.as_str());
        if found.as_ref().ok().and_then(Option::as_ref).is_some_and(is_ours) {
            let next = self.agents.values().max().map_or(0, |last| last + 1);
            self.agents.entry(name.as_str().to_owned()).or_insert(next);
        } else {
            self.agents.remove(name.as_str());
        }
        found.map(drop).map_err(|why| why.to_string())
    }

    /// Whether this gateway is one by which a backend is to be reached.
    fn may_reach(&self, backend: &Backend) -> bool {
        match &backend.reach {
            Reach::Agent(agent) => self.agents.contains_key(agent),
            Reach::Udp(_) | Reach::Bundle(_) => true,
        }
    }

    fn take_ban(&mut self, whom: Whom, value: Option<&[u8]>) -> Result<(), String> {
        self.news.of_bans = true;
        let before = self.bans.get(&whom).copied();
        let ban = value.map(Ban::decode).transpose();
        match &ban {
            Ok(Some(ban)) => drop(self.bans.insert(whom, ban.until)),
            Ok(None) => drop(self.bans.remove(&whom)),
            // The last word that could be read holds.
            Err(_) => {}
        }
        if before != self.bans.get(&whom).copied() {
            self.deny_list_until_s = 0;
        }
        ban.map(drop).map_err(|why| why.to_string())
    }

    /// Whose bans are known, by key, and until when each holds.
    pub(super) fn bans(&self) -> BTreeMap<String, u64> {
        let place = |whom: &Whom| match whom {
            Whom::Client(id) => Some(Place::BanClient(*id)),
            Whom::Prefix(prefix) => IpPrefix::parse(&prefix.to_string(), '/').map(Place::BanPrefix),
        };
        let key = |whom| String::from_utf8(self.keyspace.key(&place(whom)?).to_vec()).ok();
        self.bans.iter().filter_map(|(whom, until)| Some((key(whom)?, *until))).collect()
    }

    /// What is known now.
    pub(super) fn known(&mut self, now_s: u64) -> Known {
        if now_s >= self.deny_list_until_s || now_s < self.known_s {
            // Those that have ended stay known until they are gone: the clock may be ahead.
            let hold = self.bans.iter().filter(|(_, until)| now_s < **until);
            self.deny_list_until_s = hold.clone().map(|it| *it.1).min().unwrap_or(u64::MAX);
            let ends = |until: u64| Some(until).filter(|it| *it != u64::MAX);
            let rule = |until: u64| Rule { is_denied: true, until: ends(until) };
            let rules = hold.map(|(whom, until)| (*whom, rule(*until)));
            self.deny_list = Arc::new(DenyList::of_rules(rules));
        }
        self.known_s = now_s;
        if let Some(fleet_key) = &self.fleet_key {
            self.keys.forget_over(&self.keyspace, fleet_key, now_s);
        }
        let mut agents: Vec<_> = self.agents.iter().collect();
        agents.sort_unstable_by_key(|(_, came)| **came);
        let ends = self.keys.ends().chain([self.deny_list_until_s]);
        self.next_s = ends.filter(|end| *end > now_s).min().unwrap_or(u64::MAX);
        Known {
            backends: self.backends.values().filter(|it| self.may_reach(it)).cloned().collect(),
            agents: agents.into_iter().map(|(name, _)| name.clone()).collect(),
            keys: self.keys.accepted(now_s),
            bans: Arc::clone(&self.deny_list),
            gateways: self.gateways.len(),
            clustered: self.clustered.clone(),
            unreadable: self.unreadable.len(),
            heard: self.heard,
            denied: self.denied,
            is_listed: self.listed,
        }
    }

    /// Whether what was known last is otherwise by now: something has ended, or the clock was ahead
    /// then.
    pub(super) const fn is_over(&self, now_s: u64) -> bool {
        now_s >= self.next_s || now_s < self.known_s
    }
}

/// As in the config.
const SLOTS_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests;
