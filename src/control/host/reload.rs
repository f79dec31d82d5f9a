//! Reading the file of an agent again while it runs: all of it or nothing, as at a gateway.
//!
//! Game processes come and go, and so do gateways. Who plays is disturbed by neither: a backend
//! that is not in the file any more gets nobody new and keeps its players, and a gateway keeps them
//! for `drain_timeout`. What cannot change while the agent runs is named, all of it in one answer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Shared;
use crate::config::{Accepted, Changes, Compared, Field, HostConfig, Link};
use crate::hosting::{self, Update};
use ringgate_os::clock;
use ringgate_os::hand::Hand;
use ringgate_os::hold_point;
use ringgate_process::levels;
use ringgate_process::reloads::{Outcome, Reloads, sentences};

/// The file that is in force.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) config: Arc<HostConfig>,
    pub(super) reloads: Reloads,
}

impl Live {
    pub(super) fn new(config: HostConfig) -> Self {
        let reloads = Reloads { config_unix_s: clock::unix_seconds(), ..Reloads::default() };
        Self { config: Arc::new(config), reloads }
    }
}

/// Reads the file again, and goes by it if that is possible; only finds out whether it is, in a dry
/// run. `None` where another process has the agent, and reads it.
pub(super) async fn run(shared: Arc<Shared>, is_dry: bool) -> Option<Outcome> {
    // Files may lie on slow disks, and pages are served meanwhile.
    match Hand::ready("agent-config") {
        Ok(hand) => hand.ask(move || shared.reload(is_dry)).await,
        Err(why) => {
            let refused = Err(vec![why.to_string()]);
            if !is_dry {
                shared.live().reloads.put_off(&refused);
            }
            Some(refused)
        }
    }
}

impl Shared {
    fn reload(&self, is_dry: bool) -> Option<Outcome> {
        // Nothing changes under a hand-over, which takes a moment.
        let _turn = self.handing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_handed_over() {
            return None;
        }
        if !is_dry {
            self.is_told_to_reload.store(false, Ordering::Relaxed);
        }
        if self.is_draining() {
            let refused = Err(vec!["the agent is draining".to_owned()]);
            if !is_dry {
                self.live().reloads.put_off(&refused);
            }
            return Some(refused);
        }
        if is_dry {
            return Some(self.prepare().map(|prepared| prepared.changes));
        }
        self.notifier.reloading();
        let outcome = self.prepare().and_then(|prepared| self.adopt(prepared));
        self.notifier.ready();
        self.live().reloads.note(&outcome);
        Some(outcome)
    }

    /// Does everything that may fail and that nobody sees.
    fn prepare(&self) -> Result<Prepared, Vec<String>> {
        let (config, accepted) = self.accepted.load_again().map_err(|why| sentences(&why))?;
        let changes = compare(&self.live().config, &config)?;
        Ok(Prepared { config, accepted, changes })
    }

    /// Goes by it. Threads for gateways that are new come first: they may fail to start.
    fn adopt(&self, prepared: Prepared) -> Outcome {
        let Prepared { config, accepted, changes } = prepared;
        let before = self.agent.patience();
        hold_point!("agent-changes Gateways");
        self.agent.set_patience(config.agent.drain_timeout);
        let update = config.fleet.as_ref().map(|fleet| Update::of(&config, fleet));
        if update.is_none() {
            self.agent.set_gateways(&config.agent.gateways).map_err(|why| {
                self.agent.set_patience(before);
                vec![format!("agent.gateways: cannot connect to others: {why}")]
            })?;
        }
        hold_point!("agent-changes Backends");
        self.accepted.replace(&accepted);
        self.agent.set_backends(hosting::backends(&config));
        if let (Some(member), Some(update)) = (self.fleet.get(), update) {
            member.reload(update);
        }
        hold_point!("agent-changes Done");
        levels::change(&config.agent.log_level);
        self.live().config = Arc::new(config);
        Ok(changes)
    }
}

/// A file that can be gone by.
struct Prepared {
    config: HostConfig,
    accepted: Accepted,
    changes: Vec<String>,
}

/// What is different, or what of it cannot be while the agent runs.
fn compare(before: &HostConfig, after: &HostConfig) -> Outcome {
    let (mut changes, mut refusals) = (Vec::new(), Vec::new());
    let tables = [
        ("agent", before.agent.differences(&after.agent)),
        ("admin", before.admin.differences(&after.admin)),
        ("fleet", before.fleet.differences(&after.fleet)),
    ];
    for (table, fields) in tables {
        for Field { name, changes: how, .. } in fields {
            let is_taken = match table {
                // Nothing to an agent.
                "fleet" if *name == "when_away" => continue,
                "fleet" => ABOUT_GUESTS.contains(name),
                _ => !matches!(how, Changes::Restart),
            };
            if is_taken {
                changes.push(format!("{table}.{name}"));
            } else {
                refusals.push(refusal(table, name));
            }
        }
    }
    backend_changes(before, after, &mut changes, &mut refusals);
    if refusals.is_empty() { Ok(changes) } else { Err(refusals) }
}

/// What of the fleet's table is about game processes that announce themselves.
const ABOUT_GUESTS: [&str; 5] =
    ["allow_uids", "allow_gids", "backends_per_process", "backends_per_user", "grace"];

/// An upgrade puts a file in force, too, but for what game processes and the fleet know the agent
/// by.
fn refusal(table: &str, field: &str) -> String {
    let by = match (table, field) {
        ("agent", "name" | "run_dir") | ("fleet", "prefix") => "a restart",
        _ => "an upgrade or a restart",
    };
    format!("{table}.{field} has changed; that needs {by}")
}

/// Backends are known by their names, here and at gateways.
fn backend_changes(
    before: &HostConfig,
    after: &HostConfig,
    changes: &mut Vec<String>,
    refusals: &mut Vec<String>,
) {
    for (at, then) in before.backends.iter().enumerate() {
        let name = &then.name;
        let Some(now) = after.backends.iter().position(|it| it.name == *name) else {
            let is_there = |link: &Link| matches!(link, Link::Udp(_)) && *link == then.link;
            match after.backends.iter().find(|it| is_there(&it.link)) {
                // Its players would have no slots there.
                Some(now) => refusals.push(format!(
                    "backend {}: its address is that of {name}; remove that one first, and add this one when its players have left",
                    now.name
                )),
                None => changes.push(format!("backend {name} removed; its players stay until they leave")),
            }
            continue;
        };
        let (hosted, now) = (&after.hosted[now], &after.backends[now]);
        match (&then.link, &now.link) {
            (Link::Bundle(then), Link::Bundle(now)) if then != now => {
                changes.push(format!("backend {name}: who may connect"));
            }
            (Link::Bundle(_), Link::Bundle(_)) => {}
            (Link::Udp(then), Link::Udp(now)) if then == now => {}
            _ => refusals.push(format!(
                "backend {name}: its link or address has changed; remove this one first, and add the other when its players \
                 have left"
            )),
        }
        if then.slots != now.slots {
            changes.push(format!("backend {name}: slots {} -> {}", then.slots, now.slots));
        }
        if before.hosted[at] != *hosted {
            changes.push(format!("backend {name}: what the fleet is told of it"));
        }
    }
    let is_new = |name: &str| before.backends.iter().all(|it| it.name != name);
    let new = after.backends.iter().filter(|it| is_new(&it.name));
    changes.extend(new.map(|it| format!("backend {} added", it.name)));
}
