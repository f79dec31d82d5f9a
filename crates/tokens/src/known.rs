//! What is known of the fleet, in the order in which it is asked: backends by group, gateways by
//! host, keys by listener. Built from what the mirror tells, change by change.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use ringgate_core::secret::SharedKey;
use ringgate_fleet::epochs::{self, Epoch};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::mirror::Change;
use ringgate_fleet::routing::RoutingTokens;
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{
    Agent, Backend, Ban, Gateway, Listener, ListenerKey, Reach, Service, Stored,
};

/// The fleet, as far as this service has to know it.
#[derive(Debug)]
pub struct KnownFleet {
    keyspace: Keyspace,
    fleet_key: FleetKey,
    routing: RoutingTokens,
    gateways: BTreeMap<Name, Gateway>,
    /// Gateways by the host that they stand on.
    hosts: HashMap<Box<str>, Vec<Name>>,
    backends: HashMap<Name, Backend>,
    /// When backends began to take players that did not before, where that was seen.
    opened: HashMap<Name, Opening>,
    groups: BTreeMap<Box<str>, Vec<Name>>,
    keys: HashMap<Name, BTreeMap<u32, Opened>>,
    /// Token services, and as far as it can be read what each tells of itself.
    services: BTreeMap<Name, Option<Service>>,
    agents: BTreeMap<Name, Agent>,
    denied: HashMap<u64, u64>,
    /// The epoch to mint with, for each listener, and when that was found.
    minted: HashMap<Name, (u64, Option<u32>)>,
    /// Values that could not be read, by key.
    unreadable: BTreeMap<Bytes, String>,
}

/// A key that was opened.
#[derive(Debug)]
struct Opened {
    epoch: Epoch,
    sealed: ListenerKey,
    /// Wiped while no gateway accepts it any more.
    key: Option<SharedKey>,
}

/// A backend has begun to take players.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// In this revision.
    revision: i64,
    /// When we heard of it.
    heard_ms: u64,
}

/// A listener of a gateway that may take a player.
#[derive(Clone, Copy, Debug)]
pub struct Front<'a> {
    /// The gateway's name.
    pub gateway: &'a Name,
    /// What it tells of itself.
    pub told: &'a Gateway,
    /// One of its listeners.
    pub listener: &'a Listener,
}

impl KnownFleet {
    /// Nothing, of the fleet with this key.
    pub fn new(keyspace: Keyspace, fleet_key: FleetKey) -> Self {
        Self {
            keyspace,
            routing: RoutingTokens::new(&fleet_key),
            fleet_key,
            gateways: BTreeMap::new(),
            hosts: HashMap::new(),
            backends: HashMap::new(),
            opened: HashMap::new(),
            groups: BTreeMap::new(),
            keys: HashMap::new(),
            services: BTreeMap::new(),
            agents: BTreeMap::new(),
            denied: HashMap::new(),
            minted: HashMap::new(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Takes in what the mirror tells. A value that cannot be read is as good as gone, and listed.
    pub fn learn(&mut self, key: &Bytes, value: Option<&[u8]>) {
        self.take(key, value, None);
    }

    /// The same for what has changed just now, where that is known. Gateways hear of it as well,
    /// and players are sent by nobody who has not.
    pub fn hear(&mut self, change: &Change, now_ms: u64) {
        let opening = change.revision.map(|revision| Opening { revision, heard_ms: now_ms });
        self.take(&change.key, change.value.as_deref(), opening);
    }

    fn take(&mut self, key: &Bytes, value: Option<&[u8]>, opening: Option<Opening>) {
        self.unreadable.remove(key);
        let Some(place) = self.keyspace.place(key) else { return };
        let learnt = match place {
            Place::Gateway(name) => read(value).map(|value| self.set_gateway(name, value)),
            Place::Backend(name) => read(value).map(|value| self.set_backend(name, value, opening)),
            Place::Key(listener, number) => self.learn_key(key, listener, number, value),
            Place::BanClient(client) => read(value).map(|ban: Option<Ban>| {
                match ban {
                    Some(ban) => self.denied.insert(client, ban.until),
                    None => self.denied.remove(&client),
                };
            }),
            Place::Service(name) => {
                match value {
                    Some(value) => self.services.insert(name, Service::decode(value).ok()),
                    None => self.services.remove(&name),
                };
                Ok(())
            }
            Place::Agent(name) => read(value).map(|value| self.set_agent(name, value)),
            _ => Ok(()),
        };
        if let Err(why) = learnt {
            self.learn_nothing(key);
            self.unreadable.insert(key.clone(), why);
        }
    }

    /// What stands there cannot be read: what stood there before holds no more.
    fn learn_nothing(&mut self, key: &Bytes) {
        match self.keyspace.place(key) {
            Some(Place::Gateway(name)) => self.set_gateway(name, None),
            Some(Place::Backend(name)) => self.set_backend(name, None, None),
            Some(Place::Key(listener, number)) => self.set_key(listener, number, None),
            Some(Place::Agent(name)) => self.set_agent(name, None),
            _ => {}
        }
    }

    fn learn_key(
        &mut self,
        place: &Bytes,
        listener: Name,
        number: u32,
        value: Option<&[u8]>,
    ) -> Result<(), String> {
        let stored: Option<ListenerKey> = read(value)?;
        let open = |stored: ListenerKey| {
            let key = self.fleet_key.open(place, &stored).map_err(|why| why.to_string())?;
            let epoch = Epoch { number, validity: stored.validity };
            Ok::<_, String>(Opened { epoch, sealed: stored, key: Some(key) })
        };
        let opened = stored.map(open).transpose()?;
        self.set_key(listener, number, opened);
        Ok(())
    }

    fn set_key(&mut self, listener: Name, number: u32, opened: Option<Opened>) {
        self.minted.clear();
        let keys = self.keys.entry(listener).or_default();
        match opened {
            Some(opened) => keys.insert(number, opened),
            None => keys.remove(&number),
        };
    }

    fn set_agent(&mut self, name: Name, agent: Option<Agent>) {
        match agent {
            Some(agent) => self.agents.insert(name, agent),
            None => self.agents.remove(&name),
        };
    }

    fn set_gateway(&mut self, name: Name, gateway: Option<Gateway>) {
        self.minted.clear();
        if let Some(before) = self.gateways.remove(&name)
            && let Some(list) = self.hosts.get_mut(&*before.host)
        {
            list.retain(|it| *it != name);
            if list.is_empty() {
                self.hosts.remove(&*before.host);
            }
        }
        if let Some(gateway) = gateway {
            self.hosts.entry(gateway.host.as_str().into()).or_default().push(name.clone());
            self.gateways.insert(name, gateway);
        }
    }

    fn set_backend(&mut self, name: Name, backend: Option<Backend>, opening: Option<Opening>) {
        let is_news = |it: &Backend| it.has_to_be_heard(self.backends.get(&name));
        if backend.as_ref().is_none_or(is_news) {
            match opening.filter(|_| backend.is_some()) {
                Some(opening) => self.opened.insert(name.clone(), opening),
                None => self.opened.remove(&name),
            };
        }
        if let (Some(now), Some(before)) = (&backend, self.backends.get_mut(&name))
            && now.group == before.group
        {
            before.clone_from(now);
            return;
        }
        if let Some(before) = self.backends.remove(&name)
            && let Some(list) = self.groups.get_mut(&*before.group)
        {
            list.retain(|it| *it != name);
            if list.is_empty() {
                self.groups.remove(&*before.group);
            }
        }
        if let Some(backend) = backend {
            self.groups.entry(backend.group.as_str().into()).or_default().push(name.clone());
            self.backends.insert(name, backend);
        }
    }

    /// The backend that stands at a key.
    pub fn backend_at(&self, key: &[u8]) -> Option<(Name, &Backend)> {
        let Some(Place::Backend(name)) = self.keyspace.place(key) else { return None };
        let backend = self.backends.get(&name)?;
        Some((name, backend))
    }

    /// A backend.
    pub fn backend(&self, name: &Name) -> Option<&Backend> {
        self.backends.get(name)
    }

    /// The backends of a group.
    pub fn group(&self, name: &str) -> &[Name] {
        self.groups.get(name).map_or(&[], Vec::as_slice)
    }

    /// The only group, where there is exactly one.
    pub fn only_group(&self) -> Option<&str> {
        let mut names = self.groups.keys();
        names.next().filter(|_| names.next().is_none()).map(AsRef::as_ref)
    }

    /// The listeners that lead to a backend, at gateways that take players: those of its host, or
    /// those that its agent is connected to. A gateway that has not heard yet that the backend
    /// takes players, or that is not linked to it, would deny them, for good.
    pub fn fronts<'a>(
        &'a self,
        name: &'a Name,
        backend: &'a Backend,
        now_ms: u64,
    ) -> impl Iterator<Item = Front<'a>> + use<'a> {
        let opening = self.opened.get(name);
        let group = backend.group.as_str();
        let (host, named) = match backend.reach {
            Reach::Agent(_) => (None, backend.gateways.as_slice()),
            Reach::Udp(_) | Reach::Bundle(_) => (self.hosts.get(&*backend.host), &[][..]),
        };
        let on_host = host.into_iter().flatten();
        let on_host = on_host.filter_map(|name| self.gateways.get_key_value(name));
        let named = named.iter().filter_map(|name| self.gateways.get_key_value(name.as_str()));
        let told = on_host.chain(named);
        let takes = told.filter(move |(_, it)| {
            let takes_players = !it.draining && it.sessions < it.capacity;
            takes_players && !it.is_shut(name.as_str()) && has_heard(it, opening, now_ms)
        });
        takes.flat_map(move |(gateway, told)| {
            let listeners = told.listeners.iter().filter(move |it| it.group() == group);
            listeners.map(move |listener| Front { gateway, told, listener })
        })
    }

    /// Whether a client is denied in the whole fleet.
    pub fn is_denied(&self, client: u64, now_s: u64) -> bool {
        self.denied.get(&client).is_some_and(|until| now_s < *until)
    }

    /// The key to mint with for a listener, its epoch, and until when it is accepted.
    pub fn key(&mut self, listener: &Name, now_s: u64) -> Option<(u32, u64, SharedKey)> {
        let number = match self.minted.get(listener) {
            Some((found_s, number)) if *found_s == now_s => *number,
            _ => {
                self.wipe_over(now_s);
                let number = self.find_epoch(listener, now_s);
                self.minted.insert(listener.clone(), (now_s, number));
                number
            }
        };
        let opened = self.keys.get(listener)?.get(&number?)?;
        Some((opened.epoch.number, opened.epoch.validity.accept_until, opened.key.clone()?))
    }

    /// Wipes keys that are over, and opens those again that are not: the clock was ahead.
    fn wipe_over(&mut self, now_s: u64) {
        for (listener, keys) in &mut self.keys {
            for (number, opened) in keys {
                let place = || self.keyspace.key(&Place::Key(listener.clone(), *number));
                self.fleet_key.renew(&mut opened.key, &opened.sealed, place, now_s);
            }
        }
    }

    fn find_epoch(&self, listener: &Name, now_s: u64) -> Option<u32> {
        let epochs: Vec<_> = self.keys.get(listener)?.values().map(|it| it.epoch).collect();
        let confirmed: Vec<_> = self.confirmations(listener).collect();
        epochs::mint(now_s, &epochs, &confirmed)
    }

    /// The epochs that each gateway with this listener accepts. One that drains takes in no keys,
    /// and nobody new is sent there.
    fn confirmations<'a>(&'a self, listener: &'a Name) -> impl Iterator<Item = &'a [u32]> {
        let gateways = self.gateways.values().filter(|it| !it.draining);
        let listeners = gateways.flat_map(|it| &it.listeners);
        let own = move |it: &&Listener| it.name == listener.as_str() && it.protocol == NETCODE;
        listeners.filter(own).map(|it| it.epochs.as_slice())
    }

    /// The epoch of a listener that tokens are made with now.
    pub fn minted_with(&self, listener: &Name, now_s: u64) -> Option<u32> {
        self.find_epoch(listener, now_s)
    }

    /// Of these epochs of a listener those that may be deleted.
    pub fn over(&self, listener: &Name, epochs: &[Epoch], now_s: u64) -> Vec<u32> {
        epochs::over(now_s, epochs, &self.confirmations(listener).collect::<Vec<_>>())
    }

    /// When others than this service have written last, by their clocks.
    pub fn written_beside(&self, own: &Name) -> impl Iterator<Item = u64> {
        let services = self.services.iter().filter(move |(name, _)| *name != own);
        let services = services.filter_map(|(_, it)| Some(it.as_ref()?.written));
        let gateways = self.gateways.values().map(|it| it.written);
        gateways.chain(self.agents.values().map(|it| it.written)).chain(services)
    }

    /// How many gateways accept an epoch of a listener.
    pub fn confirmed_by(&self, listener: &Name, number: u32) -> usize {
        self.confirmations(listener).filter(|epochs| epochs.contains(&number)).count()
    }

    /// The keys that can be opened, by listener.
    pub fn epochs(&self) -> impl Iterator<Item = (&Name, Epoch)> {
        let mut all: Vec<_> = self
            .keys
            .iter()
            .flat_map(|(listener, keys)| keys.values().map(move |it| (listener, it.epoch)))
            .collect();
        all.sort_unstable_by_key(|(listener, epoch)| (listener.as_str(), epoch.number));
        all.into_iter()
    }

    /// All gateways.
    pub fn gateways(&self) -> impl Iterator<Item = (&Name, &Gateway)> {
        self.gateways.iter()
    }

    /// All agents.
    pub fn agents(&self) -> impl Iterator<Item = (&Name, &Agent)> {
        self.agents.iter()
    }

    /// All backends.
    pub fn backends(&self) -> impl Iterator<Item = (&Name, &Backend)> {
        self.backends.iter()
    }

    /// The token by which a plain listener leads to a backend.
    pub fn routing_token(&self, listener: &Name, backend: &Name, bytes: usize) -> Vec<u8> {
        self.routing.token(listener, backend, bytes)
    }

    /// The token services.
    pub const fn services(&self) -> &BTreeMap<Name, Option<Service>> {
        &self.services
    }

    /// The keys of the fleet.
    pub const fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// How many gateways, backends and bans there are, and values that cannot be read.
    pub fn counts(&self) -> [usize; 4] {
        [self.gateways.len(), self.backends.len(), self.denied.len(), self.unreadable.len()]
    }

    /// The values that cannot be read, and why.
    pub fn all_unreadable(&self) -> impl Iterator<Item = (String, &str)> {
        let text = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
        self.unreadable.iter().map(move |(key, why)| (text(key), why.as_str()))
    }
}

/// Whether a gateway knows that a backend takes players. One that says nothing for long has no
/// other word for it, unless it holds the news back; one that holds another history back says
/// nothing of this one.
fn has_heard(gateway: &Gateway, opening: Option<&Opening>, now_ms: u64) -> bool {
    let (Some(opening), Some(heard)) = (opening, gateway.heard) else { return true };
    let is_old = now_ms >= opening.heard_ms.saturating_add(HEARD_WITHIN_MS);
    (heard >= opening.revision && gateway.tells_of_this_history()) || (is_old && gateway.doubt == 0)
}

/// Reads a value that may be gone.
fn read<T: Stored>(value: Option<&[u8]>) -> Result<Option<T>, String> {
    value.map(T::decode).transpose().map_err(|why| why.to_string())
}

/// The protocol whose listeners take connect tokens, as gateways call it.
pub const NETCODE: &str = "netcode";

/// From a backend's first word that it takes players until gateways have heard of it, at the most.
const HEARD_WITHIN_MS: u64 = 10_000;
