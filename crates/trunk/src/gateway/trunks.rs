//! The control thread's handle: which addresses are served, and by which rules.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::socket::Door;
use ringgate_io::socket::overlap;
use ringgate_os::publishing::Roll;

use crate::gateway::door::{Porter, Stop};
use crate::gateway::rules::{Rule, Rules};
use crate::gateway::settings::Settings;
use crate::gateway::shared::Shared;
use crate::gateway::shown::Shown;
use crate::gateway::site::Site;

/// What the process before had, until rules are adopted.
#[derive(Default)]
pub(crate) struct Inherited {
    pub(crate) doors: BTreeMap<SocketAddr, Door>,
    pub(crate) sites: Vec<Site>,
}

/// Addresses that were bound for rules that are not in force yet.
#[derive(Debug, Default)]
pub struct Opened {
    doors: Vec<(SocketAddr, Door)>,
}

impl Opened {
    /// Gives them to the user that the process is about to become.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.doors.iter().try_for_each(|(_, door)| door.give_to(uid, gid))
    }

    /// Where they are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.doors.iter().filter_map(|(_, door)| door.address().ok())
    }
}

/// Shows trunks to whoever has it.
#[derive(Clone, Debug)]
pub struct Window(Arc<Shared>);

impl Window {
    /// How they are.
    pub fn shown(&self) -> Shown {
        self.0.shown()
    }

    /// Asks every trunk to show how it is now.
    pub fn ask(&self, roll: &mut Roll) {
        self.0.ask_to_show(roll);
    }

    /// Whether the trunk that was asked under this name is there: the last counts of one that has
    /// ended are shown.
    pub fn is_there(&self, name: &str) -> bool {
        self.0.is_there(name)
    }
}

/// All trunks of a gateway.
pub struct Trunks {
    pub(crate) shared: Arc<Shared>,
    pub(crate) doors: BTreeMap<SocketAddr, (Arc<Stop>, JoinHandle<()>)>,
    /// What the process before this one had, until rules are adopted.
    pub(crate) inherited: Inherited,
}

impl Trunks {
    /// None, and no address.
    pub fn new(settings: Settings) -> Self {
        let (shared, doors) = (Arc::new(Shared::new(settings)), BTreeMap::new());
        Self { shared, doors, inherited: Inherited::default() }
    }

    /// Binds every address that these rules need and that is not served yet, but for those that a
    /// door is in the way of which closes once the rules are in force. The error is one sentence.
    pub fn open(&self, rules: &[Rule]) -> Result<Opened, String> {
        let (opened, missing) = self.open_available(rules);
        missing.map_or(Ok(opened), Err)
    }

    /// The same as far as addresses can be had, and why one of them cannot.
    pub fn open_available(&self, rules: &[Rule]) -> (Opened, Option<String>) {
        let (mut opened, mut missing) = (Opened::default(), None);
        let closes = |bind: &&SocketAddr| !rules.iter().any(|rule| rule.bind == **bind);
        for Rule { bind, .. } in rules {
            let is_open = |(known, _): &(SocketAddr, Door)| known == bind;
            let is_ours = self.doors.contains_key(bind) || self.inherited.doors.contains_key(bind);
            if is_ours || opened.doors.iter().any(is_open) {
                continue;
            }
            let is_in_the_way = self.doors.keys().filter(closes).any(|it| overlap(*it, *bind));
            match Door::bind(*bind) {
                Ok(door) => opened.doors.push((*bind, door)),
                Err(why) if why.kind() == io::ErrorKind::AddrInUse && is_in_the_way => {}
                Err(why) => missing = Some(format!("cannot listen for agents on {bind}: {why}")),
            }
        }
        (opened, missing)
    }

    /// Goes by these rules from now on. What they do not allow any more ends.
    pub fn adopt(&mut self, rules: Vec<Rule>, opened: Opened) -> io::Result<()> {
        let Inherited { mut doors, sites } = std::mem::take(&mut self.inherited);
        doors.retain(|bind, _| rules.iter().any(|rule| rule.bind == *bind));
        let is_needed = |bind: &SocketAddr| rules.iter().any(|rule| rule.bind == *bind);
        let unneeded: Vec<_> = self.doors.keys().filter(|it| !is_needed(it)).copied().collect();
        self.shared.set_rules(Rules { all: rules });
        for bind in unneeded {
            self.close(bind);
        }
        // They need nothing more, and a door may not be had.
        for site in sites {
            site.start();
        }
        // One that cannot be opened is told of, and the others are opened all the same.
        let mut outcome = Ok(());
        for (bind, door) in doors.into_iter().chain(opened.doors) {
            if let Err(why) = self.open_door(bind, door) {
                outcome = Err(why);
            }
        }
        outcome
    }

    fn open_door(&mut self, bind: SocketAddr, door: Door) -> io::Result<()> {
        let stop = Arc::new(Stop::new()?);
        let porter = Porter::new(Arc::clone(&self.shared), bind, door, Arc::clone(&stop))?;
        let name = "ringgate-agents".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(|| porter.run())?;
        self.doors.insert(bind, (stop, thread));
        Ok(())
    }

    /// The agents that the process before had until rules are adopted, and the backends of their
    /// links.
    pub fn inherited(&self) -> impl Iterator<Item = (String, Vec<String>)> + '_ {
        self.inherited.sites.iter().map(Site::serves)
    }

    /// Whether agents can connect, or are connected.
    pub fn is_serving(&self) -> bool {
        !self.doors.is_empty() || self.shared.has_trunks()
    }

    /// How they are.
    pub fn shown(&self) -> Shown {
        self.shared.shown()
    }

    /// The same, for others.
    pub fn window(&self) -> Window {
        Window(Arc::clone(&self.shared))
    }

    /// Ends all of them, and waits for that.
    pub fn stop(&mut self) {
        let binds: Vec<_> = self.doors.keys().copied().collect();
        for bind in binds {
            self.close(bind);
        }
        self.shared.stop();
    }

    fn close(&mut self, bind: SocketAddr) {
        if let Some((stop, thread)) = self.doors.remove(&bind) {
            stop.ring();
            drop(thread.join());
        }
    }
}
