//! Reading the config again while the gateway runs.
//!
//! All or nothing: a file with mistakes, or one that asks for what only a restart can do, changes
//! nothing, and every reason is given at once. What can change does so without any session
//! noticing: keys, routes, backends, slots, limits, grace and drain times, port switching.
//!
//! Workers know listeners and backends by number, and sessions hold these numbers, so a number
//! means the same thing for as long as anything knows it. A listener is known by its name. A
//! backend is known by where it is: the address of a udp backend, the name of a bundle backend. One
//! that is no longer in the config is *retired*: it keeps its number and its players, and takes no
//! new ones; if it comes back, it has its number again. When all numbers have been given out, new
//! backends get those of retired ones that have no players and that every worker has retired.

use std::mem::discriminant;
use std::net::SocketAddr;

use crate::config::{self, Config, Netcode, Protocol};
use ringgate_core::limits::BACKENDS_MAX;
use ringgate_gate::{Backend, LinkKind, Setup};
use ringgate_os::process;

use super::plan;

/// What came of it: what has changed, or why nothing did, a sentence each.
pub(super) type Outcome = Result<Vec<String>, Vec<String>>;

/// What follows from a config that was read again.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) setup: Setup,
    /// What is different, for the log.
    pub(super) changes: Vec<String>,
}

/// Works out what to tell the workers, who run `setup` because of the config `old`.
/// `is_free` says of a retired backend whether nothing of the gateway knows its number any more.
pub(super) fn next(
    old: &Config,
    setup: &Setup,
    new: &Config,
    is_free: impl Fn(usize) -> bool,
) -> Result<Next, Vec<String>> {
    let mut refusals = Vec::new();
    refuse_gateway(old, new, &mut refusals);
    refuse_listeners(old, new, &mut refusals);
    refuse_links(setup, new, &mut refusals);
    refuse_growth(setup, new, &mut refusals);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let (backends, numbers) =
        number_backends(setup, new, is_free).map_err(|refusal| vec![refusal])?;
    let number = |listener: &config::Listener| -> Vec<u16> {
        listener.backends.iter().map(|&backend| numbers[backend]).collect()
    };
    let in_order = setup.listeners.iter().filter_map(|known| find(new, &known.name));
    let listeners = in_order.map(|listener| plan::listener(listener, number(listener)));
    let listeners = listeners.collect();
    let next = Setup { listeners, backends, revision: setup.revision + 1, ..setup.clone() };
    Ok(Next { changes: changes(old, setup, new, &next), setup: next })
}

/// The new list of backends, and the number in it of each backend of the config. One that was here
/// before has its number again, and a new one a number that nobody has had. When all have been
/// given out, it is that of a backend that has gone.
fn number_backends(
    setup: &Setup,
    new: &Config,
    is_free: impl Fn(usize) -> bool,
) -> Result<(Vec<Backend>, Vec<u16>), String> {
    let mut backends = setup.backends.clone();
    for backend in &mut backends {
        backend.retired = true;
    }
    let own = process::effective_uid();
    let fresh: Vec<_> = new.backends.iter().map(|backend| plan::backend(backend, own)).collect();
    let find = |fresh: &Backend| setup.backends.iter().position(|known| known.is_same(fresh));
    let known: Vec<_> = fresh.iter().map(find).collect();
    for (fresh, number) in fresh.iter().zip(&known) {
        number.inspect(|number| backends[*number] = fresh.clone());
    }
    let mut numbers = Vec::with_capacity(fresh.len());
    // Before this one, none is free.
    let mut from = 0;
    for (fresh, known) in fresh.into_iter().zip(known) {
        let number = match known {
            Some(number) => number,
            None if backends.len() < BACKENDS_MAX => {
                backends.push(fresh);
                backends.len() - 1
            }
            None => {
                let gone = |at: &usize| setup.backends[*at].retired && backends[*at].retired;
                let free = (from..setup.backends.len()).find(|at| gone(at) && is_free(*at));
                let number = free.ok_or_else(|| {
                    format!(
                        "backend {}: {BACKENDS_MAX} backends are there or have just gone, and none of those can be forgotten \
                         yet; try again when their players have left",
                        fresh.name
                    )
                })?;
                backends[number] = fresh;
                from = number + 1;
                number
            }
        };
        numbers.push(number as u16);
    }
    Ok((backends, numbers))
}

/// What is decided when workers start.
fn refuse_gateway(old: &Config, new: &Config, refusals: &mut Vec<String>) {
    let (before, after) = (&old.gateway, &new.gateway);
    for (field, differs) in [
        ("gateway.workers", before.workers != after.workers),
        ("gateway.pin", before.pin != after.pin),
        ("gateway.io", before.io != after.io),
        ("gateway.run_dir", before.run_dir != after.run_dir),
        ("gateway.spin", before.spin != after.spin),
        ("gateway.log", before.log != after.log),
        ("gateway.user", before.user != after.user),
        ("gateway.confine", before.confine != after.confine),
        ("admin.bind", admin_address(old) != admin_address(new)),
        ("[histograms]", old.histograms != new.histograms),
    ] {
        if differs {
            refusals.push(format!("{field} has changed; that needs a restart"));
        }
    }
}

fn admin_address(config: &Config) -> Option<SocketAddr> {
    config.admin.as_ref().map(|admin| admin.bind)
}

/// What a listener's sockets and sessions were made with.
fn refuse_listeners(old: &Config, new: &Config, refusals: &mut Vec<String>) {
    for before in &old.listeners {
        let name = &before.name;
        let Some(after) = find(new, name) else {
            refusals.push(format!("listener {name} is gone; to remove one needs a restart"));
            continue;
        };
        let mut refuse = |field, differs| {
            if differs {
                refusals
                    .push(format!("listener {name}: {field} has changed; that needs a restart"));
            }
        };
        refuse("bind", before.bind != after.bind);
        refuse("filter", before.filter != after.filter);
        match (&before.protocol, &after.protocol) {
            (Protocol::Netcode(before), Protocol::Netcode(after)) => {
                refuse("protocol_id", before.protocol_id != after.protocol_id);
                // Sessions' windows lie in memory as the size says.
                refuse("replay_window", before.replay_window != after.replay_window);
            }
            (Protocol::Unreal(before), Protocol::Unreal(after)) => {
                let before = config::Unreal { gap_limit: after.gap_limit, ..before.clone() };
                refuse("an unreal field", before != *after);
            }
            _ => refuse("protocol", true),
        }
    }
    for added in new.listeners.iter().filter(|listener| find(old, &listener.name).is_none()) {
        refusals.push(format!("listener {} is new; to add one needs a restart", added.name));
    }
}

/// Link sockets are opened at start, for the kinds of backends that there are then. Those are all
/// still in the setup.
fn refuse_links(setup: &Setup, new: &Config, refusals: &mut Vec<String>) {
    for backend in &new.backends {
        let wanted = plan::backend(backend, process::effective_uid()).link;
        let is_such = |known: &Backend| discriminant(&known.link) == discriminant(&wanted);
        if !setup.backends.iter().any(is_such) {
            refusals.push(format!(
                "backend {}: none with this link was there at the start, so it has no socket; that needs a restart",
                backend.name
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
            "max_sessions of all listeners together are {wanted}, and memory was set aside for {there}; more needs a restart"
        ));
    }
}

/// What an operator wants to see confirmed.
fn changes(old: &Config, before: &Setup, new: &Config, after: &Setup) -> Vec<String> {
    let mut changes = Vec::new();
    if old.gateway.drain_timeout != new.gateway.drain_timeout {
        changes.push("gateway.drain_timeout".to_owned());
    }
    if let (Some(before), Some(after)) = (&old.admin, &new.admin) {
        for (field, differs) in [
            ("admin.hosts", before.hosts != after.hosts),
            ("admin.token", before.token != after.token),
        ] {
            if differs {
                changes.push(field.to_owned());
            }
        }
    }
    for listener in &new.listeners {
        if let Some(earlier) = find(old, &listener.name) {
            listener_changes(old, earlier, new, listener, &mut changes);
        }
    }
    for (at, now) in after.backends.iter().enumerate() {
        let name = &now.name;
        match before.backends.get(at) {
            None => changes.push(format!("backend {name} added")),
            Some(then) if !then.is_same(now) => changes.push(format!("backend {name} added")),
            Some(then) => backend_changes(then, now, &mut changes),
        }
    }
    changes
}

fn listener_changes(
    old: &Config,
    before: &config::Listener,
    new: &Config,
    after: &config::Listener,
    changes: &mut Vec<String>,
) {
    let mut note = |field: &str, differs| {
        if differs {
            changes.push(format!("listener {}: {field}", after.name));
        }
    };
    note("backends", backend_names(old, before) != backend_names(new, after));
    note("route", before.route != after.route);
    note("max_sessions", before.max_sessions != after.max_sessions);
    note("port_switch", before.port_switch != after.port_switch);
    note("limits", before.limits != after.limits);
    if let (Protocol::Netcode(before), Protocol::Netcode(after)) =
        (&before.protocol, &after.protocol)
    {
        let Netcode {
            public,
            protocol_id: _,
            keys,
            replay_window: _,
            gap_limit,
            keep_alive,
            token_reuse,
        } = before;
        note("public", *public != after.public);
        note("keys", *keys != after.keys);
        note("gap_limit", *gap_limit != after.gap_limit);
        note("keep_alive", *keep_alive != after.keep_alive);
        note("token_reuse", *token_reuse != after.token_reuse);
    }
    if let (Protocol::Unreal(before), Protocol::Unreal(after)) = (&before.protocol, &after.protocol)
    {
        note("gap_limit", before.gap_limit != after.gap_limit);
    }
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

fn backend_names<'c>(config: &'c Config, listener: &config::Listener) -> Vec<&'c str> {
    listener.backends.iter().map(|&backend| config.backends[backend].name.as_str()).collect()
}

fn find<'c>(config: &'c Config, listener: &str) -> Option<&'c config::Listener> {
    config.listeners.iter().find(|known| known.name == listener)
}

#[cfg(test)]
mod tests;
