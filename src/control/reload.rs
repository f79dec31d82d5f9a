//! Reading the config again while the gateway runs.
//!
//! All or nothing: a file with mistakes, or one that asks for what only a restart can do, changes
//! nothing, and every reason is given at once. What can change does so without any session
//! noticing: keys, routes, backends, slots, limits, grace and drain times, port switching.
//! Listeners come and go ([`listeners`]).
//!
//! Workers know listeners and backends by number, and sessions hold these numbers, so a number
//! means the same thing for as long as anything knows it. A backend is known by where it is: the
//! address of a udp backend, the name of a bundle backend. One that is no longer in the config is
//! *retired*: it keeps its number and its players, and takes no new ones; if it comes back, it has
//! its number again. When all numbers have been given out, new backends get those of retired ones
//! that have no players and that every worker has retired.

mod fields;
mod listeners;

use crate::config::{self, Compared, Config, Field, Link};
use ringgate_core::limits::BACKENDS_MAX;
use ringgate_gate::{
    Backend, BackendId, IdVec, Intake, LinkKind, Listener, ListenerId, Phase, Protocol, Setup,
    clash,
};
use ringgate_os::process;

use super::plan;
use fields::{differing, of_listeners};
pub use listeners::Known;
pub(super) use listeners::made_with;
use listeners::{Fate, fates, refuse_taken};

/// What follows from a config that was read again.
#[derive(Debug)]
pub struct Next {
    /// What workers are told.
    pub setup: Setup,
    /// What is different, for the log.
    pub changes: Vec<String>,
    /// Which listeners of the config are new, with their numbers.
    pub added: Vec<(ListenerId, usize)>,
    /// Which listeners have gone from the config.
    pub removed: Vec<ListenerId>,
    /// Which are there again before they have drained.
    pub returned: Vec<ListenerId>,
}

/// Works out what to tell the workers, who run `setup` because of the config `old`.
/// `is_free` says of a retired backend whether nothing of the gateway knows its number any more,
/// `is_of_file` whether the config file has a backend of that name: others are the fleet's.
pub(super) fn next(
    old: &Config,
    setup: &Setup,
    new: &Config,
    is_free: impl Fn(BackendId) -> bool,
    is_of_file: impl Fn(&str) -> bool,
    known: &Known<'_>,
) -> Result<Next, Vec<String>> {
    let mut refusals = Vec::new();
    refuse_gateway(old, new, &mut refusals);
    let fates = fates(old, setup, new, known, &mut refusals);
    let is_new = |it: &&config::Agent| !old.agents.iter().any(|before| before.bind == it.bind);
    for agent in new.agents.iter().filter(is_new) {
        let whose = format!("agent {}", agent.name);
        refuse_taken(setup, &whose, agent.bind, known, &mut refusals);
    }
    refuse_links(known, new, &mut refusals);
    refuse_groups(known, new, &mut refusals);
    refuse_growth(setup, new, &mut refusals);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let (backends, numbers) =
        number_backends(setup, new, is_free, is_of_file).map_err(|refusal| vec![refusal])?;
    let mut listeners = leave(setup, &backends, &fates);
    for (listener, fate) in new.listeners.iter().zip(&fates) {
        let listener = plan::listener(listener, |backend| numbers[backend]);
        match listeners.get_mut(fate.number()) {
            Some(known) => *known = listener,
            None => {
                listeners.push(listener);
            }
        }
    }
    let batch_delay = plan::batch_delay(&new.gateway);
    let revision = setup.revision + 1;
    let next = Setup { listeners, backends, batch_delay, revision, ..setup.clone() };
    if let Some(refusal) = clash(&next, setup, known.spoken) {
        return Err(vec![refusal]);
    }
    let mut changes = changes(old, setup, new, &next);
    changes.extend(super::agents::changes(old, new));
    changes.extend(super::cluster::changes(old, new));
    let (added, removed, returned) = movements(setup, &next, &fates, &mut changes);
    Ok(Next { setup: next, changes, added, removed, returned })
}

/// The listeners that were there, those that are not in the config any more without newcomers.
/// They know no backend whose number is another's from now on.
fn leave(
    setup: &Setup,
    backends: &IdVec<BackendId, Backend>,
    fates: &[Fate],
) -> IdVec<ListenerId, Listener> {
    let mut listeners = setup.listeners.clone();
    for number in setup.listeners.ids() {
        let listener = &mut listeners[number];
        let stays = fates.iter().any(|fate| fate.number() == number);
        if !stays && listener.phase == Phase::Serving {
            listener.phase = Phase::Draining;
        }
        let is_same = |backend: &BackendId| backends[*backend].is_same(&setup.backends[*backend]);
        listener.backends.retain(is_same);
        if let Protocol::Netcode(rules) = &mut listener.protocol {
            rules.moves.retain(is_same);
        }
    }
    listeners
}

type Movements = (Vec<(ListenerId, usize)>, Vec<ListenerId>, Vec<ListenerId>);

/// Which listeners come, go and return.
fn movements(
    before: &Setup,
    after: &Setup,
    fates: &[Fate],
    changes: &mut Vec<String>,
) -> Movements {
    let (mut added, mut removed, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for (number, listener) in before.listeners.pairs() {
        let phase = after.listeners[number].phase;
        if (listener.phase, phase) == (Phase::Serving, Phase::Draining) {
            changes.push(format!("listener {} removed; it drains", listener.name));
            removed.push(number);
        }
    }
    for (at, fate) in fates.iter().enumerate() {
        let name = &after.listeners[fate.number()].name;
        match *fate {
            Fate::Stays(_) => {}
            Fate::Returns(number) => {
                changes.push(format!("listener {name} is back"));
                returned.push(number);
            }
            Fate::Opens(number) => {
                changes.push(format!("listener {name} added"));
                added.push((number, at));
            }
        }
    }
    (added, removed, returned)
}

/// The new list of backends, and the number in it of each backend of the config. One that was here
/// before has its number again, and a new one a number that nobody has had. When all have been
/// given out, it is that of a backend that has gone.
fn number_backends(
    setup: &Setup,
    new: &Config,
    is_free: impl Fn(BackendId) -> bool,
    is_of_file: impl Fn(&str) -> bool,
) -> Result<(IdVec<BackendId, Backend>, Vec<BackendId>), String> {
    let mut backends = setup.backends.clone();
    for backend in &mut backends {
        backend.retired = true;
    }
    let own = process::effective_uid();
    let fresh: Vec<_> = new.backends.iter().map(|backend| plan::backend(backend, own)).collect();
    let find = |fresh: &Backend| {
        setup.backends.pairs().find_map(|(id, known)| known.is_same(fresh).then_some(id))
    };
    let known: Vec<_> = fresh.iter().map(find).collect();
    for (fresh, number) in fresh.iter().zip(&known) {
        if let Some(number) = *number {
            let known = &setup.backends[number];
            // Neither a reload nor a registration that was away for a while is a reason to send
            // players where an operator wants none. Who has taken it from the file and has put it
            // back does want some.
            let is_put_back = known.retired && is_of_file(&fresh.name);
            let drained = known.drained && !is_put_back;
            backends[number] = Backend { drained, ..fresh.clone() };
        }
    }
    let mut numbers = Vec::with_capacity(fresh.len());
    // Before this one, none is free.
    let mut from = 0;
    for (fresh, known) in fresh.into_iter().zip(known) {
        let number = match known {
            Some(number) => number,
            None if backends.len() < BACKENDS_MAX => backends.push(fresh),
            None => {
                let gone = |id: BackendId| setup.backends[id].retired && backends[id].retired;
                let free = setup.backends.ids().skip(from).find(|id| gone(*id) && is_free(*id));
                let number = free.ok_or_else(|| {
                    format!(
                        "backend {}: {BACKENDS_MAX} backends are there or have just gone, and none of those can be forgotten \
                         yet; try again when their players have left",
                        fresh.name
                    )
                })?;
                backends[number] = fresh;
                from = number.index() + 1;
                number
            }
        };
        numbers.push(number);
    }
    Ok((backends, numbers))
}

/// Refuses what is decided when workers start.
fn refuse_gateway(old: &Config, new: &Config, refusals: &mut Vec<String>) {
    for (table, fields) in differences(old, new) {
        refusals.extend(differing(fields, false).map(needs_restart(&format!("{table}."))));
    }
    if old.histograms != new.histograms {
        refusals.push(needs_restart("")("[histograms]"));
    }
}

/// The tables of which there is one, and the fields in which they differ.
fn differences(old: &Config, new: &Config) -> [(&'static str, Vec<&'static Field>); 4] {
    [
        ("cluster", old.cluster.differences(&new.cluster)),
        ("gateway", old.gateway.differences(&new.gateway)),
        ("admin", old.admin.differences(&new.admin)),
        ("fleet", old.fleet.differences(&new.fleet)),
    ]
}

fn needs_restart(prefix: &str) -> impl Fn(&'static str) -> String {
    move |field| format!("{prefix}{field} has changed; that needs a restart")
}

/// Link sockets are opened at start, for the kinds of backends that there may be then.
fn refuse_links(known: &Known<'_>, new: &Config, refusals: &mut Vec<String>) {
    let plan::Links { bundles, udp } = known.links;
    for backend in &new.backends {
        let is_open = match backend.link {
            Link::Bundle(_) => bundles,
            Link::Udp(_) => udp,
        };
        if !is_open {
            refusals.push(format!(
                "backend {}: none with this link was there at the start, so it has no socket; that needs a restart",
                backend.name
            ));
        }
    }
}

/// The fleet's backends may need sockets that were not opened at the start.
fn refuse_groups(known: &Known<'_>, new: &Config, refusals: &mut Vec<String>) {
    let needed = plan::links(new);
    for listener in new.listeners.iter().filter(|listener| listener.group.is_some()) {
        if needed.bundles && !known.links.bundles || needed.udp && !known.links.udp {
            refusals.push(format!(
                "listener {}: group: the sockets toward such backends are made at the start; that needs a restart",
                listener.name
            ));
        }
    }
}

/// Workers have set memory aside for so many sessions.
fn refuse_growth(setup: &Setup, new: &Config, refusals: &mut Vec<String>) {
    let wanted: usize = new.listeners.iter().map(|listener| listener.max_sessions).sum();
    let there = setup.worker_sessions_max;
    if wanted > there {
        refusals.push(format!(
            "max_sessions of all listeners together are {wanted}, and memory was set aside for {there}; more needs a restart \
             (gateway.reserve_sessions sets more aside)"
        ));
    }
}

/// What an operator wants to see confirmed.
fn changes(old: &Config, before: &Setup, new: &Config, after: &Setup) -> Vec<String> {
    let mut changes = Vec::new();
    for (table, fields) in differences(old, new) {
        changes.extend(differing(fields, true).map(|it| format!("{table}.{it}")));
    }
    for listener in &new.listeners {
        let is_it = |earlier: &&config::Listener| earlier.bind == listener.bind;
        if let Some(earlier) = find(old, &listener.name).filter(is_it) {
            let name = &listener.name;
            let live = differing(of_listeners((old, earlier), (new, listener)), true);
            changes.extend(live.map(|field| format!("listener {name}: {field}")));
        }
    }
    for (id, now) in after.backends.pairs() {
        let name = &now.name;
        match before.backends.get(id) {
            None => changes.push(format!("backend {name} added")),
            Some(then) if !then.is_same(now) => changes.push(format!("backend {name} added")),
            Some(then) => backend_changes(then, now, &mut changes),
        }
    }
    changes
}

fn backend_changes(before: &Backend, after: &Backend, changes: &mut Vec<String>) {
    let name = &after.name;
    match (before.retired, after.retired) {
        (false, true) => {
            changes.push(format!("backend {name} removed; its players stay until they leave"));
        }
        (true, false) => changes.push(format!("backend {name} is back")),
        _ => {}
    }
    if before.name != *name {
        changes.push(format!("backend {} is called {name} now", before.name));
    }
    if before.slots != after.slots {
        changes.push(format!("backend {name}: slots {} -> {}", before.slots, after.slots));
    }
    if before.intake != after.intake {
        let whom = match after.intake {
            Intake::Anybody => "is for everybody",
            Intake::Sent => "is for those who are sent to it",
            Intake::NobodyYet => "takes nobody yet",
            Intake::Nobody => "takes nobody new",
        };
        changes.push(format!("backend {name} {whom}"));
    }
    if before.grace_ns != after.grace_ns {
        changes.push(format!("backend {name}: grace"));
    }
    if let (LinkKind::Bundle { allow: before }, LinkKind::Bundle { allow: after }) =
        (&before.link, &after.link)
        && before != after
    {
        changes.push(format!("backend {name}: who may connect"));
    }
}

fn find<'c>(config: &'c Config, listener: &str) -> Option<&'c config::Listener> {
    config.listeners.iter().find(|known| known.name == listener)
}

#[cfg(test)]
mod tests;
