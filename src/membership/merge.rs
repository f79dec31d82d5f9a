//! The config of a gateway in a fleet: what its file says, and what the fleet knows besides. From
//! there on nothing differs from a gateway whose file says all of it: an `[[agent]]` that stands
//! for all agents has become one for each of them, and one whose backends are the fleet's lists
//! them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use ringgate_core::limits::BACKENDS_MAX;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::Reach;
use ringgate_gate::Front;

use super::known::{self, Known};
use crate::config::{self, ANY_AGENT, Config, Fleet, Link, Listener, NAME_BYTES_MAX, Protocol};

/// What has come of it.
#[derive(Debug)]
pub struct Merged {
    /// What the gateway goes by.
    pub config: Config,
    /// Backends of the fleet that it cannot take.
    pub refused: Vec<Refused>,
}

/// A backend that is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Which.
    pub backend: String,
    /// Why.
    pub why: &'static str,
}

/// `file` with what the fleet knows. A file without a fleet stays as it is.
pub fn merged(file: &Config, known: &Known) -> Merged {
    merged_beside(file, known, |_, _| false)
}

/// The same where some backends cannot be behind a listener that speaks this yet: `clashes` says
/// which.
pub(crate) fn merged_beside(
    file: &Config,
    known: &Known,
    clashes: impl Fn(Front, &config::Backend) -> bool,
) -> Merged {
    let mut config = file.clone();
    let mut refused = Vec::new();
    let Some(fleet) = &file.fleet else { return Merged { config, refused } };
    let mut taken = Taken::of(file);
    config.agents = agents(file, &known.agents);
    for backend in &known.backends {
        // Some other gateway's.
        let Some(front) = front(file, backend) else { continue };
        match taken.take(fleet, (&file.gateway.run_dir, &config.agents), front, backend) {
            Ok(found) if clashes(front, &found) => {
                refused.push(Refused { backend: backend.name.clone(), why: CLASH });
            }
            Ok(found) => {
                let is_bundle = matches!(found.link, Link::Bundle(_));
                let at = config.backends.len();
                let_serve(&mut config.agents, backend);
                config.backends.push(found);
                let leads = |listener: &&mut Listener| leads_to(listener, &backend.group);
                config.listeners.iter_mut().filter(leads).for_each(|it| it.backends.push(at));
                let listeners = config.listeners.iter_mut().filter(|_| is_bundle);
                let moves = listeners.filter_map(moves_to(backend));
                moves.for_each(|moves_to| moves_to.push(at));
            }
            Err(why) => refused.push(Refused { backend: backend.name.clone(), why }),
        }
    }
    for listener in &mut config.listeners {
        match &mut listener.protocol {
            Protocol::Netcode(rules) if rules.has_fleet_keys => {
                let keys = known.keys.get(&listener.name).into_iter().flatten();
                rules.keys = keys.map(|(_, key)| key.clone()).collect();
            }
            Protocol::Plain(rules) if listener.group.is_some() => {
                let led = (listener.name.as_str(), &mut listener.backends);
                rules.tokens = tokens_of(fleet, rules, led, &config.backends, &mut refused);
            }
            _ => {}
        }
    }
    Merged { config, refused }
}

/// The agents that may connect: those of the file, and those of the fleet for whom one of the file
/// stands, as far as there is room: who comes later waits. That one stays: agents may come to its
/// address at any time.
fn agents(file: &Config, known: &[String]) -> Vec<config::Agent> {
    let mut agents = file.agents.clone();
    let Some(any) = file.agents.iter().find(|it| it.name == ANY_AGENT) else { return agents };
    let others = known.iter().filter(|name| file.agents.iter().all(|it| it.name != **name));
    let room = AGENTS_MAX.saturating_sub(agents.len());
    agents.extend(others.take(room).map(|it| config::Agent { name: it.clone(), ..any.clone() }));
    agents
}

/// An agent whose backends are the fleet's may serve this one.
fn let_serve(agents: &mut [config::Agent], backend: &known::Backend) {
    let Reach::Agent(name) = &backend.reach else { return };
    let mut its = agents.iter_mut().filter(|it| it.name == *name && it.serves_fleet);
    if let Some(agent) = its.next() {
        agent.backends.push(backend.name.clone());
    }
}

/// In a successor, an agent that is connected goes on to serve the backends of its links: the fleet
/// may have lost some of them before, or this process has not heard of it yet.
pub(crate) fn keep_connected(config: &mut Config, (name, mut backends): (String, Vec<String>)) {
    backends.retain(|backend| !config.has_backend(backend));
    if let Some(any) = config.agents.iter().find(|it| it.name == ANY_AGENT).cloned() {
        serve_also(config, config::Agent { name, backends, ..any });
    }
}

/// An agent may serve these as well.
pub(crate) fn serve_also(config: &mut Config, also: config::Agent) {
    if config.agents.iter().all(|it| it.name != also.name) {
        return config.agents.push(also);
    }
    let mut own = config.agents.iter_mut().filter(|it| it.name == also.name);
    if let Some(agent) = own.next().filter(|it| it.serves_fleet) {
        let is_missing = |it: &String| !agent.backends.contains(it);
        let missing: Vec<_> = also.backends.into_iter().filter(is_missing).collect();
        agent.backends.extend(missing);
    }
}

/// The tokens of a plain listener whose backends are the fleet's. Two backends cannot have one, as
/// they may where tokens are short.
fn tokens_of(
    fleet: &Fleet,
    rules: &config::Plain,
    (listener, led): (&str, &mut Vec<usize>),
    backends: &[config::Backend],
    refused: &mut Vec<Refused>,
) -> config::RoutingTokens {
    let (Some(token), Some(key)) = (rules.token, &fleet.key) else {
        return config::RoutingTokens::default();
    };
    let made = ringgate_fleet::routing::RoutingTokens::new(key);
    let mut taken = BTreeSet::new();
    let mut tokens = Vec::with_capacity(led.len());
    led.retain(|at| {
        let backend = &backends[*at].name;
        let names = Name::new(listener).zip(Name::new(backend));
        let bytes = usize::from(token.bytes);
        let own = names.map(|(listener, backend)| made.token(&listener, &backend, bytes));
        let own = own.filter(|own| taken.insert(own.clone()));
        let is_led = own.is_some();
        if let Some(own) = own {
            tokens.push((own.into_boxed_slice(), *at));
        } else {
            let why = "another backend has its token: the listener's token.bytes are too few";
            refused.push(Refused { backend: backend.clone(), why });
        }
        is_led
    });
    config::RoutingTokens(tokens)
}

/// What the listeners speak that lead to a backend, or whose players may be moved there. The config
/// has made sure that it is one protocol. Nobody is moved to a udp server.
fn front(file: &Config, backend: &known::Backend) -> Option<Front> {
    let is_udp = matches!(backend.reach, Reach::Udp(_));
    let leading = file.listeners.iter().find(|it| leads_to(it, &backend.group));
    let moving = || file.listeners.iter().find(|it| !is_udp && is_moved_to(it, backend));
    leading.or_else(moving).map(|listener| listener.protocol.front())
}

/// Whether players of a listener may be moved to a backend of the fleet.
fn is_moved_to(listener: &Listener, backend: &known::Backend) -> bool {
    let Protocol::Netcode(rules) = &listener.protocol else { return false };
    rules.moves.iter().any(|name| *name == backend.group || *name == backend.name)
}

/// Where a listener keeps the backends that its players may be moved to, if this is one.
fn moves_to(
    backend: &known::Backend,
) -> impl FnMut(&mut Listener) -> Option<&mut Vec<usize>> + use<'_> {
    move |listener| {
        let is_meant = is_moved_to(listener, backend);
        match &mut listener.protocol {
            Protocol::Netcode(rules) if is_meant => Some(&mut rules.moves_to),
            _ => None,
        }
    }
}

fn leads_to(listener: &Listener, group: &str) -> bool {
    listener.group.as_ref().is_some_and(|own| own.as_str() == group)
}

/// What no other backend may have.
struct Taken {
    names: BTreeSet<String>,
    addresses: BTreeSet<SocketAddr>,
    /// Backends of the file.
    own: usize,
    /// Those of the fleet.
    count: usize,
}

impl Taken {
    fn of(file: &Config) -> Self {
        let names = file.backends.iter().map(|backend| backend.name.clone()).collect();
        let address = |backend: &config::Backend| match backend.link {
            Link::Udp(address) => Some(address),
            Link::Bundle(_) => None,
        };
        let addresses = file.backends.iter().filter_map(address).collect();
        Self { names, addresses, own: file.backends.len(), count: 0 }
    }

    fn take(
        &mut self,
        fleet: &Fleet,
        here: (&Path, &[config::Agent]),
        front: Front,
        backend: &known::Backend,
    ) -> Result<config::Backend, &'static str> {
        if backend.name.len() > NAME_BYTES_MAX {
            return Err("its name is longer than 31 bytes");
        }
        if self.names.contains(&backend.name) {
            return Err("the config file has a backend of that name");
        }
        let link = link_of(fleet, here, front, backend)?;
        if let Link::Udp(address) = link
            && self.addresses.contains(&address)
        {
            return Err("another backend is at its address");
        }
        let room = fleet.max_backends.min(BACKENDS_MAX.saturating_sub(self.own));
        if self.count >= room {
            return Err("there are more backends than fleet.max_backends");
        }
        self.count += 1;
        self.names.insert(backend.name.clone());
        if let Link::Udp(address) = link {
            self.addresses.insert(address);
        }
        Ok(config::Backend {
            name: backend.name.clone(),
            link,
            slots: backend.slots,
            grace: fleet.grace,
            intake: backend.intake,
        })
    }
}

fn link_of(
    fleet: &Fleet,
    (run_dir, agents): (&Path, &[config::Agent]),
    front: Front,
    backend: &known::Backend,
) -> Result<Link, &'static str> {
    match &backend.reach {
        Reach::Udp(address) => {
            let mut address = *address;
            address.set_ip(address.ip().to_canonical());
            let ip = address.ip();
            if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
                return Err("nothing can be sent to its address");
            }
            let is_local = ip.is_ipv4() && ip.is_loopback();
            if front != Front::Netcode && !is_local {
                return Err(
                    "it is not at 127.x.y.z, as backends of unreal and plain listeners are",
                );
            }
            Ok(Link::Udp(address))
        }
        Reach::Bundle(_) if front == Front::Unreal => {
            Err("unreal listeners need udp servers, of this host or behind an agent")
        }
        Reach::Agent(name) => {
            let agent = agents.iter().find(|it| it.name == *name);
            let is_full =
                || agents.len() >= AGENTS_MAX && agents.iter().any(|it| it.name == ANY_AGENT);
            let agent = agent.ok_or_else(|| {
                if is_full() {
                    "its agent is beyond the 256 that a gateway lets in"
                } else {
                    "no [[agent]] lets its agent in"
                }
            })?;
            if !agent.serves_fleet && !agent.backends.contains(&backend.name) {
                return Err("the [[agent]] that lets its agent in does not list it");
            }
            // Links of agents are the gateway's own to its workers.
            Ok(Link::Bundle(config::Allowed::default()))
        }
        Reach::Bundle(path) if Path::new(path) == run_dir => Ok(Link::Bundle(fleet.allowed())),
        Reach::Bundle(_) => Err("it connects in another run_dir than this gateway's"),
    }
}

/// Why a backend waits for its players to leave.
pub(crate) const CLASH: &str = "there may be players at it who speak another protocol";

/// Agents that may connect, of which each has a thread.
const AGENTS_MAX: usize = 256;

#[cfg(test)]
mod tests;
