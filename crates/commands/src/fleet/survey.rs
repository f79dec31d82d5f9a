//! Everything that stands in a fleet's mirrored part, at one revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringgate_fleet::epochs::{self, Epoch};
use ringgate_fleet::etcd::Client;
use ringgate_fleet::etcd::kv::{KeyValue, Range, key_after};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::values::{Agent, Backend, Ban, Block, Gateway, ListenerKey, Service, Stored};
use ringgate_state::Whom;

use super::super::Failure;
use super::target::away;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) revision: i64,
    pub(super) cluster_id: u64,
    keys_read: u64,
    pub(super) gateways: BTreeMap<Name, Gateway>,
    pub(super) backends: BTreeMap<Name, Backend>,
    pub(super) services: BTreeMap<Name, Service>,
    pub(super) agents: BTreeMap<Name, Agent>,
    pub(super) keys: BTreeMap<Name, Vec<Epoch>>,
    pub(super) bans: Vec<(Whom, Ban)>,
    /// Slots that starts of token services may promise, by start and backend; empty where only the
    /// mirrored part was read.
    pub(super) blocks: BTreeMap<(Name, Name), Block>,
    /// Keys that are none of ours, or whose values cannot be read, and why.
    pub(super) unreadable: Vec<(String, String)>,
    /// Registrations that no lease will end.
    pub(super) lasting: Vec<String>,
}

/// A process that holds news back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) name: String,
    pub(super) doubt: u64,
    pub(super) what: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} holds back under number {}: {}", self.name, self.doubt, self.what)
    }
}

impl Survey {
    /// Reads all of it, page by page.
    pub(super) async fn take(client: &Client, keyspace: &Keyspace) -> Result<Self, Failure> {
        let mut survey = Self::default();
        survey.read(client, keyspace, &keyspace.truth()).await?;
        Ok(survey)
    }

    /// The same of a fleet in which something stands: a mistyped prefix is none.
    pub(super) async fn of_some(client: &Client, keyspace: &Keyspace) -> Result<Self, Failure> {
        let survey = Self::take(client, keyspace).await?;
        if survey.keys_read > 0 {
            return Ok(survey);
        }
        let prefix = String::from_utf8_lossy(&keyspace.all()).into_owned();
        Err(Failure::failed(format_args!(
            "nothing stands below {} in this etcd: is that the fleet's prefix? (`ringgate fleet init LISTENER` begins one)",
            prefix.trim_end_matches('/')
        )))
    }

    /// The same, and the slots that token services may promise.
    pub(super) async fn with_slots(client: &Client, keyspace: &Keyspace) -> Result<Self, Failure> {
        let mut survey = Self::of_some(client, keyspace).await?;
        survey.read(client, keyspace, &keyspace.all_slots()).await?;
        Ok(survey)
    }

    async fn read(
        &mut self,
        client: &Client,
        keyspace: &Keyspace,
        prefix: &[u8],
    ) -> Result<(), Failure> {
        let survey = self;
        let mut range =
            Range { limit: PAGE_KEYS, revision: survey.revision, ..Range::prefix(prefix) };
        loop {
            let ranged = client.range(&range).await.map_err(|why| away(&why))?;
            if range.revision == 0 {
                survey.revision = ranged.header.revision;
                survey.cluster_id = ranged.header.cluster_id;
                range.revision = survey.revision;
            }
            for kv in &ranged.kvs {
                survey.add(keyspace, kv);
            }
            match ranged.kvs.last() {
                Some(last) if ranged.more => range.key = key_after(&last.key),
                _ => return Ok(()),
            }
        }
    }

    /// Takes in one key.
    pub(super) fn add(&mut self, keyspace: &Keyspace, kv: &KeyValue) {
        self.keys_read += 1;
        let name = String::from_utf8_lossy(&kv.key).into_owned();
        let read = match keyspace.place(&kv.key) {
            Some(Place::Gateway(name)) => keep(&mut self.gateways, name, &kv.value),
            Some(Place::Backend(name)) => keep(&mut self.backends, name, &kv.value),
            Some(Place::Service(name)) => keep(&mut self.services, name, &kv.value),
            Some(Place::Agent(name)) => keep(&mut self.agents, name, &kv.value),
            Some(Place::Key(listener, number)) => {
                read::<ListenerKey>(&kv.value).map(|ListenerKey { validity, .. }| {
                    self.keys.entry(listener).or_default().push(Epoch { number, validity });
                })
            }
            Some(Place::Block(backend, by)) => keep(&mut self.blocks, (by, backend), &kv.value),
            Some(Place::BanClient(id)) => self.keep_ban(Whom::Client(id), &kv.value),
            Some(Place::BanPrefix(prefix)) => {
                let prefix = prefix.to_string().parse().map_err(str::to_owned);
                prefix.and_then(|it| self.keep_ban(Whom::Prefix(it), &kv.value))
            }
            Some(Place::Confirm | Place::Gone(_) | Place::GoneBackend(_) | Place::Guard(_)) => {
                Ok(())
            }
            _ => Err("it is no key of a fleet".to_owned()),
        };
        let registers = matches!(
            keyspace.place(&kv.key),
            Some(Place::Gateway(_) | Place::Backend(_) | Place::Service(_) | Place::Agent(_))
        );
        if registers && kv.lease == 0 {
            self.lasting.push(name.clone());
        }
        if let Err(why) = read {
            self.unreadable.push((name, why));
        }
    }

    fn keep_ban(&mut self, whom: Whom, value: &Bytes) -> Result<(), String> {
        read(value).map(|ban| self.bans.push((whom, ban)))
    }

    /// Whoever writes again and again while it lives, and when it has last, by its own clock.
    pub(super) fn writers(&self) -> BTreeMap<String, u64> {
        let gateways = self.gateways.iter().map(|(name, it)| (name.to_string(), it.written));
        let services = self.services.iter().map(|(name, it)| (of_service(name), it.written));
        let agents = self.agents.iter().map(|(name, it)| (of_agent(name), it.written));
        gateways.chain(services).chain(agents).collect()
    }

    /// Who holds news back, under which number, and what.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let holder = |name: String, doubt: u64, held: &[String]| {
            let what = if held.is_empty() { "news".to_owned() } else { held.join(", ") };
            (doubt != 0).then_some(Holder { name, doubt, what })
        };
        let gateways =
            self.gateways.iter().map(|(name, it)| holder(name.to_string(), it.doubt, &it.held));
        let services = self.services.iter();
        let services = services.map(|(name, it)| holder(of_service(name), it.doubt, &it.held));
        let agents = self.agents.iter();
        let agents = agents.map(|(name, it)| holder(of_agent(name), it.doubt, &it.held));
        gateways.chain(services).chain(agents).flatten().collect()
    }

    /// The same for people, a line for each.
    pub(super) fn tell_holders(&self) -> String {
        let line = |it: Holder| format!("{it}; `ringgate fleet confirm --all` has it believed\n");
        self.holders().into_iter().map(line).collect()
    }

    /// The epochs that gateways with this listener have confirmed, each with its name. One that
    /// drains takes in no keys, and nobody new is sent there.
    pub(super) fn confirmed<'a>(&'a self, listener: &str) -> Vec<(&'a Name, &'a [u32])> {
        let of = |(name, gateway): (&'a Name, &'a Gateway)| {
            let found = gateway.listeners.iter().find(|it| it.name == listener);
            found.filter(|it| it.protocol == "netcode").map(|it| (name, it.epochs.as_slice()))
        };
        self.gateways.iter().filter(|(_, it)| !it.draining).filter_map(of).collect()
    }

    /// The epoch that tokens of this listener are minted with.
    pub(super) fn minted(&self, listener: &Name, now_s: u64) -> Option<u32> {
        let confirmed = self.confirmed(listener.as_str());
        let lists: Vec<_> = confirmed.iter().map(|(_, list)| *list).collect();
        epochs::mint(now_s, self.keys.get(listener)?, &lists)
    }

    /// Whether a gateway reaches a backend: on its host, or over its agent's trunk. One that takes
    /// no players need not be linked yet.
    pub(super) fn is_reached(&self, name: &Name, backend: &Backend) -> bool {
        let leads =
            |it: &Gateway| it.listeners.iter().any(|listener| listener.group() == backend.group);
        let is_shut = |it: &Gateway| backend.is_open() && it.is_shut(name.as_str());
        self.gateways.iter().any(|(own_name, gateway)| {
            gateway.reaches(own_name.as_str(), backend) && leads(gateway) && !is_shut(gateway)
        })
    }

    /// Groups of backends, by name.
    pub(super) fn groups(&self) -> BTreeMap<&str, Vec<(&Name, &Backend)>> {
        let mut groups: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (name, backend) in &self.backends {
            groups.entry(&backend.group).or_default().push((name, backend));
        }
        groups
    }
}

pub(super) fn of_service(name: &Name) -> String {
    format!("token service {name}")
}

pub(super) fn of_agent(name: &Name) -> String {
    format!("agent {name}")
}

fn keep<K: Ord, T: Stored>(
    kept: &mut BTreeMap<K, T>,
    name: K,
    value: &Bytes,
) -> Result<(), String> {
    read(value).map(|value| drop(kept.insert(name, value)))
}

fn read<T: Stored>(value: &[u8]) -> Result<T, String> {
    T::decode(value).map_err(|why| why.to_string())
}

pub(super) const PAGE_KEYS: i64 = 1000;

/// Of everything that the commands of a fleet print as JSON.
pub(super) const SCHEMA: u32 = 1;
