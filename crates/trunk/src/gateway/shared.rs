//! What doors, trunks' threads and the control thread have in common.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::protocol::control::Reason;
use crate::protocol::datagram::Header;
use crate::protocol::tls::Failure;
use crate::socket::End;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_os::publishing::Roll;

use crate::gateway::mailbox::{Mail, Mailbox};
use crate::gateway::rules::Rules;
use crate::gateway::settings::Settings;
use crate::gateway::shown::{
    AgentShown, DoorShown, LinkCounts, REFUSED_AT_DOORS, Shown, TrunkShown, UNPROVEN, add_lanes,
};
use crate::gateway::told::Told;
use crate::socket::rest::Call;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    rules: Mutex<Arc<Rules>>,
    state: Mutex<State>,
    /// Rings when a trunk has gone.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The latest number that was given away.
    latest: u32,
    trunks: HashMap<u32, Present>,
    agents: BTreeMap<String, AgentShown>,
    doors: BTreeMap<SocketAddr, DoorShown>,
    /// What the log was told of each agent.
    told: HashMap<String, Arc<Told>>,
    is_stopping: bool,
}

impl State {
    /// Forgets agents who are gone and of whom nobody tells; who has died is shown for a while.
    fn forget_gone(&mut self, is_told: impl Fn(&str, &AgentShown) -> bool, now_ns: u64) {
        self.agents
            .retain(|name, it| it.trunk.is_some() || it.missed.is_shown(is_told(name, it), now_ns));
        self.told.retain(|name, _| self.agents.contains_key(name));
    }
}

/// A trunk whose thread runs.
#[derive(Debug)]
struct Present {
    agent: String,
    mailbox: Arc<Mailbox>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = State { latest: settings.incarnation as u32, ..State::default() };
        let (rules, state, gone) = (Mutex::default(), Mutex::new(state), Condvar::new());
        Self { settings, rules, state, gone }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes by other rules from now on.
    pub(crate) fn set_rules(&self, rules: Rules) {
        let rules = Arc::new(rules);
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&rules);
        let mut state = self.state();
        for rule in rules.agents() {
            let agent = state.agents.entry(rule.name.clone()).or_default();
            agent.name.clone_from(&rule.name);
        }
        state.forget_gone(|name, _| rules.find(name).is_some(), self.settings.clock.now_ns());
        for (name, agent) in &mut state.agents {
            agent.allowed = rules.find(name).map(|rule| rule.backends.clone()).unwrap_or_default();
        }
        state.trunks.values().for_each(|trunk| trunk.mailbox.put(Mail::Rules));
    }

    /// Gives a trunk its number. Another one of the same agent is told to end; the caller waits for
    /// that with [`wait_for_gone`](Self::wait_for_gone). Otherwise, why it gets none.
    pub(crate) fn enter(&self, agent: &str, mailbox: &Arc<Mailbox>) -> Result<u32, Reason> {
        let mut state = self.state();
        if state.is_stopping {
            return Err(Reason::ShuttingDown);
        }
        // Each has a thread: a certificate in bad hands must not take them all.
        if state.trunks.values().filter(|it| it.agent == agent).count() >= TRUNKS_OF_AN_AGENT {
            return Err(Reason::OverFull);
        }
        for other in state.trunks.values().filter(|other| other.agent == agent) {
            other.mailbox.put(Mail::End(Reason::Replaced));
        }
        let number = loop {
            state.latest = state.latest.wrapping_add(1);
            if state.latest != 0 && !state.trunks.contains_key(&state.latest) {
                break state.latest;
            }
        };
        let present = Present { agent: agent.to_owned(), mailbox: Arc::clone(mailbox) };
        state.trunks.insert(number, present);
        state.agents.entry(agent.to_owned()).or_default().trunks += 1;
        Ok(number)
    }

    /// Waits until an agent has no other trunk than this one: two of them would be in each other's
    /// way at the workers.
    pub(crate) fn wait_for_gone(&self, agent: &str, number: u32) {
        let is_there = |state: &mut State| {
            let is_older = |other: u32| (other.wrapping_sub(number) as i32) < 0;
            state.trunks.iter().any(|(other, trunk)| is_older(*other) && trunk.agent == agent)
        };
        let waited = self.gone.wait_timeout_while(self.state(), GONE_WITHIN, is_there);
        drop(waited);
    }

    /// A trunk has gone, and why, unless it never came to be.
    pub(crate) fn leave(&self, number: u32, why: Option<&End>) {
        let rules = self.rules();
        let mut state = self.state();
        if let Some(Present { agent, .. }) = state.trunks.remove(&number) {
            let is_last = !state.trunks.values().any(|other| other.agent == agent);
            let shown = state.agents.entry(agent.clone()).or_default();
            if let Some(trunk) = shown.trunk.take_if(|trunk| trunk.number == number) {
                add_lanes(&mut shown.before, &trunk.lanes);
            }
            if let Some(why) = why {
                *shown.ended.entry(why.name()).or_default() += 1;
                shown.missed.note_end(why);
            }
            // The config may have it no more.
            if is_last {
                let is_told = |name: &str, _: &AgentShown| rules.find(name).is_some();
                state.forget_gone(is_told, self.settings.clock.now_ns());
            }
        }
        drop(state);
        self.gone.notify_all();
    }

    /// How a trunk is now, and what its links did not take since it was last asked.
    pub(crate) fn show(&self, agent: &str, trunk: TrunkShown, links: &LinkCounts) {
        let mut state = self.state();
        let shown = state.agents.entry(agent.to_owned()).or_default();
        agent.clone_into(&mut shown.name);
        shown.links.merge(links);
        shown.trunk = Some(trunk);
    }

    /// Hands a datagram to the trunk that its header names. Otherwise, why not.
    pub(crate) fn route(&self, from: SocketAddr, datagram: &[u8]) -> Result<(), &'static str> {
        let header = Header::read(datagram).ok_or("foreign")?;
        let mailbox = {
            let state = self.state();
            let trunk = state.trunks.get(&header.trunk).ok_or("elsewhere")?;
            Arc::clone(&trunk.mailbox)
        };
        if usize::from(header.lane) >= self.settings.workers {
            return Err("foreign");
        }
        if mailbox.try_put(from, datagram) { Ok(()) } else { Err("overflow") }
    }

    /// A datagram that had come to an agent's door found no room.
    pub(crate) fn count_overflow(&self, agent: &str) {
        if let Some(rule) = self.rules().find(agent) {
            self.at_door(rule.bind, |shown| *shown.dropped.entry("overflow").or_default() += 1);
        }
    }

    /// Datagrams of an agent's lane have come from an address that did not prove to be the agent's.
    pub(crate) fn count_unproven(&self, agent: &str, from: SocketAddr) {
        let Some(bind) = self.rules().find(agent).map(|rule| rule.bind) else { return };
        self.at_door(bind, |shown| *shown.refused.entry(UNPROVEN).or_default() += 1);
        tracing::warn!(
            event = "agent_refused",
            %bind,
            peer = %from,
            reason = UNPROVEN,
            "datagrams of agent {agent} come from {from}, which is not where it is"
        );
    }

    /// What the log was told of an agent.
    pub(crate) fn told(&self, agent: &str) -> Arc<Told> {
        Arc::clone(self.state().told.entry(agent.to_owned()).or_default())
    }

    /// Has every trunk show how it is.
    pub(crate) fn ask_to_show(&self, roll: &mut Roll) {
        for (number, Present { agent, mailbox }) in &self.state().trunks {
            mailbox.put(Mail::Show(roll.request(name_of(*number, agent))));
        }
    }

    /// Whether the trunk that was asked under this name has not ended meanwhile.
    pub(crate) fn is_there(&self, name: &str) -> bool {
        let state = self.state();
        state.trunks.iter().any(|(number, it)| name_of(*number, &it.agent) == name)
    }

    pub(crate) fn has_trunks(&self) -> bool {
        !self.state().trunks.is_empty()
    }

    /// Has every trunk rest.
    pub(crate) fn rest(&self, call: &mut Call) {
        for Present { agent, mailbox } in self.state().trunks.values() {
            mailbox.put(Mail::Rest(call.order(format!("the trunk of agent {agent}"))));
        }
    }

    /// Writes what was counted, and which numbers were given away.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let State { latest, agents, doors, trunks: _, told: _, is_stopping: _ } = &*self.state();
        latest.write(out);
        (agents.len() as u32).write(out);
        for agent in agents.values() {
            let AgentShown { name, allowed: _, trunk: _, trunks, ended, links, before, missed: _ } =
                agent;
            name.write(out);
            trunks.write(out);
            write_counts(ended, out);
            links.write(out);
            before.write(out);
        }
        (doors.len() as u32).write(out);
        for (bind, DoorShown { address: _, refused, dropped }) in doors {
            bind.to_string().write(out);
            write_counts(refused, out);
            write_counts(dropped, out);
        }
    }

    /// Goes on counting where another process has ended.
    pub(crate) fn read(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let mut state = self.state();
        state.latest = Carry::read(from)?;
        for _ in 0..u32::read(from)? {
            let name = String::read(from)?;
            let agent = AgentShown {
                name: name.clone(),
                trunks: Carry::read(from)?,
                ended: read_counts(from)?,
                links: Carry::read(from)?,
                before: Carry::read(from)?,
                ..AgentShown::default()
            };
            state.agents.insert(name, agent);
        }
        for _ in 0..u32::read(from)? {
            let bind = String::read(from)?.parse().map_err(|_| Broken::Invalid("address"))?;
            let (refused, dropped) = (read_counts(from)?, read_counts(from)?);
            state.doors.insert(bind, DoorShown { address: None, refused, dropped });
        }
        Ok(())
    }

    /// A trunk that another process had goes on here.
    pub(crate) fn go_on(&self, agent: &str, number: u32, mailbox: &Arc<Mailbox>) -> bool {
        let present = Present { agent: agent.to_owned(), mailbox: Arc::clone(mailbox) };
        let mut state = self.state();
        let is_new = !state.trunks.contains_key(&number);
        if is_new {
            state.trunks.insert(number, present);
        }
        is_new
    }

    /// Changes what is shown of a door.
    pub(crate) fn at_door(&self, bind: SocketAddr, change: impl FnOnce(&mut DoorShown)) {
        change(self.state().doors.entry(bind).or_default());
    }

    pub(crate) fn forget_door(&self, bind: SocketAddr) {
        self.state().doors.remove(&bind);
    }

    pub(crate) fn shown(&self) -> Shown {
        let mut state = self.state();
        state.forget_gone(|_, it| !it.missed.is_only_shown(), self.settings.clock.now_ns());
        let (doors, agents) = (state.doors.values(), state.agents.values());
        Shown { doors: doors.cloned().collect(), agents: agents.cloned().collect() }
    }

    /// Tells every trunk to end, and waits for that.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        state.trunks.values().for_each(|it| it.mailbox.put(Mail::End(Reason::ShuttingDown)));
        let waited =
            self.gone.wait_timeout_while(state, GONE_WITHIN, |state| !state.trunks.is_empty());
        drop(waited);
    }
}

/// What a trunk is called where it is asked for something.
fn name_of(number: u32, agent: &str) -> String {
    format!("trunk {number} of agent {agent}")
}

fn write_counts(counts: &BTreeMap<&'static str, u64>, out: &mut Writer<'_>) {
    let counts: Vec<_> = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    counts.write(out);
}

/// Counts whose names are known here; what is counted under others is not shown any more.
fn read_counts(from: &mut Reader<'_>) -> Result<BTreeMap<&'static str, u64>, Broken> {
    let counts = Vec::<(String, u64)>::read(from)?;
    let known =
        || Reason::ALL.iter().map(|it| it.name()).chain(Failure::NAMES).chain(REFUSED_AT_DOORS);
    let named = |(name, count): (String, u64)| Some((known().find(|it| *it == name)?, count));
    Ok(counts.into_iter().filter_map(named).collect())
}

/// A thread looks at its mail within this, whatever it does.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// An agent that comes again has two of them for a moment; a few more where it comes quickly.
const TRUNKS_OF_AN_AGENT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::keys::Rekey;
    use ringgate_os::clock::Clock;

    fn shared() -> Shared {
        let (workers, incarnation, clock) = (1, 7, Clock::start());
        let (run_dir, desks, rekey) = (std::env::temp_dir(), Vec::new(), Rekey::default());
        Shared::new(Settings { run_dir, workers, desks, incarnation, clock, rekey })
    }

    #[test]
    fn an_agent_that_comes_again_and_again_does_not_take_all_threads() {
        let shared = shared();
        let mailbox = Arc::new(Mailbox::new().expect("a descriptor"));
        let first = shared.enter("host-7", &mailbox).expect("there is none");
        for _ in 1..TRUNKS_OF_AN_AGENT {
            shared.enter("host-7", &mailbox).expect("there are few");
        }
        assert_eq!(shared.enter("host-7", &mailbox), Err(Reason::OverFull));
        assert!(shared.enter("host-8", &mailbox).is_ok(), "another is none of them");
        shared.leave(first, None);
        assert!(shared.enter("host-7", &mailbox).is_ok());
    }

    #[test]
    fn who_has_died_is_shown_when_the_fleet_has_forgotten_it_and_who_has_said_goodbye_is_not() {
        let shared = shared();
        let mailbox = Arc::new(Mailbox::new().expect("a descriptor"));
        let names = || shared.shown().agents.into_iter().map(|it| it.name).collect::<Vec<_>>();
        let ends = [End::Ours(Reason::Silence), End::Theirs(Reason::ShuttingDown)];
        for (name, end) in ["host-7", "host-8"].into_iter().zip(ends) {
            let number = shared.enter(name, &mailbox).expect("there is none");
            let trunk = TrunkShown {
                number,
                peer: ([127, 0, 0, 1], 7400).into(),
                since_ns: 0,
                lanes: Vec::new(),
                lent: Vec::new(),
                backends: BTreeMap::new(),
            };
            shared.show(name, trunk, &LinkCounts::default());
            shared.leave(number, Some(&end));
        }
        shared.set_rules(Rules::default());
        assert_eq!(names(), ["host-7"]);
        let shown = shared.shown().agents.remove(0);
        assert!(shown.trunk.is_none() && shown.ended == [("silence", 1)].into());
    }
}
