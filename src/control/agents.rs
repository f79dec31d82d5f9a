//! Agents on other hosts: what the config says of them becomes rules for the threads that serve
//! them, and what those have counted goes to the pages.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::Serialize;

use super::view::Snapshot;
use super::{ControlLoop, NS_PER_MS};
use crate::config::{self, ANY_AGENT, Compared, Config, Identity};
use ringgate_os::clock::Clock;
use ringgate_process::object;
use ringgate_process::pages::Maybe;
use ringgate_trunk::gateway::{
    AgentShown, AtRest, LaneShown, NO_AGENT, Opened, Rekey, Rule, Settings, TrunkShown, Trunks,
    Window,
};
use ringgate_trunk::protocol::tls;
use ringgate_trunk::worker::WorkerInbox;

/// The control thread's end.
pub(super) struct Agents {
    trunks: Trunks,
    /// What the rules in force were made of.
    config: Vec<config::Agent>,
    /// Of all backends.
    known: Arc<[String]>,
    made: Made,
    /// Rules that are not in force yet, and what is bound of the addresses that they need.
    wanted: Option<(Vec<Rule>, Opened)>,
    /// When an address that another process has is given up.
    patient_until_ns: u64,
}

/// Who the gateway is at its addresses: made once for all agents of one, of which there may be
/// hundreds, and not again when the fleet has others.
type Made = Vec<(Identity, tls::Gateway)>;

/// What a config that was read again asks for.
pub(super) struct NextAgents {
    config: Vec<config::Agent>,
    known: Arc<[String]>,
    made: Made,
    rules: Vec<Rule>,
    opened: Opened,
}

impl Agents {
    /// Binds what the config asks for. A successor does that later ([`Agents::tick`]): the process
    /// before it still listens. The error is one sentence.
    pub(super) fn open(
        config: &Config,
        (desks, incarnation): (&[WorkerInbox], u64),
        clock: Clock,
        is_successor: bool,
    ) -> Result<Self, String> {
        let trunks = Trunks::new(Settings {
            run_dir: config.gateway.run_dir.clone(),
            workers: desks.len(),
            desks: desks.to_vec(),
            incarnation,
            clock,
            rekey: Rekey::default(),
        });
        let (known, config) = (known(config), config.agents.clone());
        let made = made(&config, &Made::new())?;
        let rules = rules(&config, &known, &made);
        let opened = if is_successor { Opened::default() } else { trunks.open(&rules)? };
        let patient_until_ns = clock.now_ns() + PATIENCE_NS;
        Ok(Self { trunks, config, known, made, wanted: Some((rules, opened)), patient_until_ns })
    }

    /// Gives the sockets to the user that the process is about to become.
    pub(super) fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.wanted.as_ref().map_or(Ok(()), |(_, opened)| opened.give_to(uid, gid))
    }

    /// Addresses that were bound and are not served yet.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.wanted.iter().flat_map(|(_, opened)| opened.addresses()).collect()
    }

    /// Shows them to the pages.
    pub(super) fn window(&self) -> Window {
        self.trunks.window()
    }

    /// Serves what was opened; where it is a successor's, tries to.
    pub(super) fn tick(&mut self, now_ns: u64) {
        let Some((rules, opened)) = self.wanted.take() else { return };
        // What the process before had goes on, whatever else can be had, and what is not needed any
        // more is not in the way.
        self.serve(rules.clone(), opened);
        let (opened, missing) = self.trunks.open_available(&rules);
        if opened.addresses().next().is_some() {
            self.serve(rules.clone(), opened);
        }
        match missing {
            Some(_) if now_ns < self.patient_until_ns => {
                self.wanted = Some((rules, Opened::default()));
            }
            Some(why) => tracing::error!(event = "agents_failed", "{why}"),
            None => {}
        }
    }

    fn serve(&mut self, rules: Vec<Rule>, opened: Opened) {
        for address in opened.addresses() {
            tracing::info!(event = "agents_welcome", %address, "agents may connect to {address}");
        }
        if let Err(why) = self.trunks.adopt(rules, opened) {
            tracing::error!(event = "agents_failed", "cannot serve agents: {why}");
        }
    }

    /// Does everything of a reload that may fail.
    pub(super) fn prepare(&self, config: &Config) -> Result<NextAgents, Vec<String>> {
        let (known, config) = (known(config), config.agents.clone());
        // Made anew: authorities and certificates may have come to their end since.
        let made = made(&config, &Made::new()).map_err(|why| vec![why])?;
        let rules = rules(&config, &known, &made);
        let opened = self.trunks.open(&rules).map_err(|why| vec![why])?;
        Ok(NextAgents { config, known, made, rules, opened })
    }

    /// Goes by what the fleet knows of agents and their backends. Addresses stay the same: the
    /// file's.
    pub(super) fn follow(&mut self, config: &Config, now_ns: u64) {
        if self.want(config) {
            self.tick(now_ns);
        }
    }

    /// The same, from the next tick on. Whether that changes anything.
    pub(super) fn want(&mut self, config: &Config) -> bool {
        let (known, agents) = (known(config), &config.agents);
        if self.config == *agents && self.known == known {
            return false;
        }
        match made(agents, &self.made) {
            Ok(made) => (self.made, self.config, self.known) = (made, agents.clone(), known),
            Err(why) => {
                tracing::error!(event = "agents_failed", "{why}");
                return false;
            }
        }
        let opened = self.wanted.take().map(|(_, opened)| opened).unwrap_or_default();
        self.wanted = Some((rules(&self.config, &self.known, &self.made), opened));
        true
    }

    /// Carries it out.
    pub(super) fn adopt(&mut self, next: NextAgents, now_ns: u64) {
        (self.config, self.known, self.made) = (next.config, next.known, next.made);
        self.wanted = Some((next.rules, next.opened));
        self.tick(now_ns);
    }

    /// Has all of them rest, for another process to go on with. `None` where there are none, and
    /// none can come.
    pub(super) fn rest(&mut self) -> Option<AtRest> {
        self.trunks.is_serving().then(|| self.trunks.rest())
    }

    /// Goes on with what the process before has given away, from the next tick on. Returns which
    /// agents are connected, and the backends that each serves.
    pub(super) fn inherit(
        &mut self,
        bytes: &[u8],
        fds: Vec<OwnedFd>,
        now_ns: u64,
    ) -> Vec<(String, Vec<String>)> {
        self.patient_until_ns = now_ns + PATIENCE_NS;
        if let Err(why) = self.trunks.inherit(bytes, fds) {
            tracing::error!(event = "agents_failed", "{why}");
        }
        self.trunks.inherited().collect()
    }

    /// Ends all trunks.
    pub(super) fn stop(&mut self) {
        self.trunks.stop();
    }
}

impl ControlLoop {
    /// Ends all trunks that no other process goes on with.
    pub(super) fn leave_agents(&mut self) {
        self.agents.stop();
        self.cluster.stop();
    }
}

/// Who the gateway is to these; what was made before is used again.
fn made(agents: &[config::Agent], before: &Made) -> Result<Made, String> {
    let mut made = Made::new();
    for agent in agents {
        if find(&made, &agent.identity()).is_some() {
            continue;
        }
        let gateway = match find(before, &agent.identity()) {
            Some(gateway) => gateway.clone(),
            None => {
                let gateway = agent.identity().gateway();
                gateway.map_err(|why| format!("agent {}: {why}", agent.name))?
            }
        };
        made.push((agent.identity(), gateway));
    }
    Ok(made)
}

fn find<'a>(made: &'a Made, identity: &Identity) -> Option<&'a tls::Gateway> {
    made.iter().find(|(known, _)| known == identity).map(|(_, gateway)| gateway)
}

/// The names of all backends.
fn known(config: &Config) -> Arc<[String]> {
    config.backends.iter().map(|backend| backend.name.clone()).collect()
}

fn rules(agents: &[config::Agent], known: &Arc<[String]>, made: &Made) -> Vec<Rule> {
    let rule = |agent: &config::Agent| {
        let gateway = find(made, &agent.identity())?.clone();
        let name = if agent.name == ANY_AGENT { NO_AGENT } else { &agent.name };
        let (name, backends) = (name.to_owned(), agent.backends.clone());
        Some(Rule { name, bind: agent.bind, gateway, backends, known: Arc::clone(known) })
    };
    agents.iter().filter_map(rule).collect()
}

/// What an operator wants to see confirmed.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<String> {
    let find = |config: &Config, name: &str| {
        config.agents.iter().find(|agent| agent.name == name).cloned()
    };
    let mut changes = Vec::new();
    for agent in &new.agents {
        let name = &agent.name;
        let Some(before) = find(old, name) else {
            changes.push(format!("agent {name} added"));
            continue;
        };
        let serves_other = before.serves_fleet != agent.serves_fleet;
        let judge = |field: &str| (field == "backends" && serves_other).then_some(true);
        let mut fields: Vec<_> = before
            .differences_by(agent, judge)
            .into_iter()
            .map(|field| match field.name {
                "ca" | "certificate" | "key" => "certificates",
                name => name,
            })
            .collect();
        fields.dedup();
        changes.extend(fields.into_iter().map(|field| format!("agent {name}: {field}")));
    }
    let gone = old.agents.iter().filter(|agent| find(new, &agent.name).is_none());
    changes.extend(gone.map(|agent| format!("agent {} removed", agent.name)));
    changes
}

/// Agents as `/status` shows them.
pub(super) fn on_status<'a>(snapshot: &'a Snapshot<'_>) -> Vec<impl Serialize + use<'a>> {
    snapshot.agents.agents.iter().map(|agent| shown(agent, snapshot.now_ns)).collect()
}

fn shown(agent: &AgentShown, now_ns: u64) -> impl Serialize + '_ {
    let trunk = agent.trunk.as_ref();
    let up_ns = trunk.map_or(0, |trunk| now_ns.saturating_sub(trunk.since_ns));
    let backend = |name: &'_ str| {
        let links = trunk.and_then(|trunk| trunk.backends.get(name)).copied().unwrap_or_default();
        object! { name: name.to_owned(), links }
    };
    let lanes = agent.lanes();
    let dropped: u64 = lanes.iter().map(dropped).sum();
    object! {
        name: &agent.name,
        up: is_up(agent),
        peer: Maybe(trunk.map(|trunk: &TrunkShown| trunk.peer.to_string())),
        up_s: up_ns / (1000 * NS_PER_MS),
        trunks: agent.trunks,
        // Those that it may serve, and how many links of their processes there are.
        backends: agent.allowed.iter().map(|name| backend(name)).collect::<Vec<_>>(),
        lanes: (0..).zip(&lanes).map(|lane| on_lane(trunk, lane)).collect::<Vec<_>>(),
        drops: dropped + agent.links.numbers().iter().sum::<u64>(),
    }
}

/// Whether an agent is connected, and all of its lanes are up.
pub(super) fn is_up(agent: &AgentShown) -> bool {
    agent.trunk.as_ref().is_some_and(|trunk| trunk.lanes.iter().all(|lane| lane.is_up))
}

/// A lane: pairs are what goes to the agent, and what comes from it.
fn on_lane(
    trunk: Option<&TrunkShown>,
    (worker, lane): (usize, &LaneShown),
) -> impl Serialize + use<> {
    let LaneShown { is_up, round_trip_ns, path_bytes, datagrams, payloads, split, rekeys, .. } =
        *lane;
    object! {
        worker,
        up: is_up,
        // Its worker carries payloads itself; otherwise the trunk's thread does.
        by_worker: trunk.and_then(|trunk| trunk.lent.get(worker)).copied().unwrap_or_default(),
        round_trip_us: Maybe(round_trip_ns.map(|ns| ns / 1000)),
        path_bytes,
        datagrams,
        payloads,
        lost: lane.lost(),
        split,
        rekeys,
        drops: dropped(lane),
    }
}

fn dropped(lane: &LaneShown) -> u64 {
    lane.full + lane.refused.iter().sum::<u64>()
}

/// As long as the process before this one may take to let its addresses go.
const PATIENCE_NS: u64 = 10_000 * NS_PER_MS;
