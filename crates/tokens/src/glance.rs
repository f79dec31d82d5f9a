//! The fleet at a glance: `GET /v1/fleet` tells it, and `GET /fleet` shows it in a browser.
//!
//! Token services serve it, because they know of every backend and every gateway anyway, and need
//! no more for it; a gateway keeps what concerns its own host. The page is one document without
//! anything from elsewhere, and without anything of the fleet: whoever opens it types in the secret
//! of a caller with the scope `see`, or brings it behind a `#` in the address, which browsers do
//! not send. What it shows is made at most once a second, however many look.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::member::MemberStatus;
use ringgate_fleet::values::{Agent, Backend, Gateway, Listener, Reach};
use ringgate_report::page::Page;
use serde::Serialize;

use crate::book::Now;
use crate::desk::Desk;
use crate::known::KnownFleet;

/// The page.
pub const PAGE: Page = Page {
    title: "fleet · ringgate",
    heading: "Fleet",
    body: include_str!("glance/page.html"),
    style: include_str!("glance/page.css"),
    script: include_str!("glance/page.js"),
};

/// What was told last.
#[derive(Debug, Default)]
pub struct Glance(Mutex<Option<(u64, Bytes)>>);

impl Glance {
    /// What was told within the last second, or what `tell` tells now.
    pub fn at(&self, now: Now, tell: impl FnOnce() -> String) -> Bytes {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((made_ms, text)) if now.ms < made_ms + FRESH_MS => text.clone(),
            _ => {
                let text = Bytes::from(tell());
                *last = Some((now.ms, text.clone()));
                text
            }
        }
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    schema: u32,
    service: &'a str,
    version: &'a str,
    now_unix_s: u64,
    current: bool,
    away: bool,
    doubt: Option<u64>,
    services: Vec<&'a str>,
    gateways: Vec<ShownGateway<'a>>,
    agents: Vec<ShownAgent<'a>>,
    groups: BTreeMap<&'a str, Group<'a>>,
    keys: Vec<Epoch<'a>>,
    denied_clients: usize,
    slots_leased: u64,
    slots_promised: u64,
    unreadable: Vec<(String, &'a str)>,
}

/// What a gateway tells of itself, without what only programs ask for.
#[derive(Serialize)]
struct ShownGateway<'a> {
    name: &'a str,
    region: &'a str,
    host: &'a str,
    version: &'a str,
    draining: bool,
    sessions: u32,
    capacity: u32,
    written: u64,
    listeners: Vec<ShownListener<'a>>,
}

#[derive(Serialize)]
struct ShownListener<'a> {
    name: &'a str,
    protocol: &'a str,
    group: &'a str,
    addresses: Vec<String>,
    epochs: &'a [u32],
}

/// What an agent tells of itself, and what stands behind it.
#[derive(Serialize)]
struct ShownAgent<'a> {
    name: &'a str,
    region: &'a str,
    host: &'a str,
    version: &'a str,
    written: u64,
    /// The gateways that it connects to, and whether each has let one of its backends in.
    gateways: Vec<(&'a str, bool)>,
    backends: Vec<&'a str>,
    used: u64,
    slots: u64,
}

/// The backends of a group, in the order of their names.
#[derive(Default, Serialize)]
struct Group<'a> {
    /// How many are starting, ready, allocated, draining.
    states: [u32; 4],
    used: u64,
    slots: u64,
    /// Name, host, state, players, slots.
    backends: Vec<(&'a str, &'a str, u8, u32, u32)>,
}

#[derive(Serialize)]
struct Epoch<'a> {
    listener: &'a str,
    number: u32,
    from: u64,
    mint_until: u64,
    accept_until: u64,
    /// Whether tokens are made with it now.
    minted: bool,
    /// Gateways that accept it.
    confirmed: usize,
}

/// Tells all of it.
pub fn tell(desk: &Desk, version: &str, member: &MemberStatus, now: Now) -> String {
    let known = desk.known();
    let [slots_leased, slots_promised, _] = desk.book().sums();
    let shown = Shown {
        schema: 1,
        service: desk.service().as_str(),
        version,
        now_unix_s: now.unix_s,
        current: member.is_current(),
        away: desk.is_away(now),
        doubt: Some(member.doubt()).filter(|doubt| *doubt != 0),
        services: known.services().keys().map(Name::as_str).collect(),
        gateways: known.gateways().map(|(name, it)| gateway(name.as_str(), it)).collect(),
        agents: agents(known),
        groups: groups(known),
        keys: keys(known, now.unix_s),
        denied_clients: known.counts()[2],
        slots_leased,
        slots_promised,
        unreadable: known.all_unreadable().take(UNREADABLE_MAX).collect(),
    };
    serde_json::to_string(&shown).expect("names and numbers")
}

fn gateway<'a>(name: &'a str, told: &'a Gateway) -> ShownGateway<'a> {
    let Gateway { region, host, version, draining, sessions, capacity, written, .. } = told;
    let listener = |it: &'a Listener| ShownListener {
        name: &it.name,
        protocol: &it.protocol,
        group: it.group(),
        addresses: it.addresses.iter().map(ToString::to_string).collect(),
        epochs: &it.epochs,
    };
    ShownGateway {
        name,
        region,
        host,
        version,
        draining: *draining,
        sessions: *sessions,
        capacity: *capacity,
        written: *written,
        listeners: told.listeners.iter().map(listener).collect(),
    }
}

fn agents(known: &KnownFleet) -> Vec<ShownAgent<'_>> {
    let mut behind: BTreeMap<&str, Vec<(&Name, &Backend)>> = BTreeMap::new();
    for (name, backend) in known.backends() {
        if let Reach::Agent(agent) = &backend.reach {
            behind.entry(agent).or_default().push((name, backend));
        }
    }
    let mut agents = Vec::new();
    for (name, agent) in known.agents() {
        let all = behind.remove(name.as_str()).unwrap_or_default();
        agents.push(shown_agent(name.as_str(), agent, all));
    }
    agents
}

fn shown_agent<'a>(
    name: &'a str,
    agent: &'a Agent,
    mut behind: Vec<(&'a Name, &'a Backend)>,
) -> ShownAgent<'a> {
    let Agent { region, host, version, written, gateways, .. } = agent;
    behind.sort_unstable_by_key(|(name, _)| *name);
    let is_let_in = |gateway: &String| behind.iter().any(|(_, it)| it.gateways.contains(gateway));
    ShownAgent {
        name,
        region,
        host,
        version,
        written: *written,
        gateways: gateways.iter().map(|it| (it.as_str(), is_let_in(it))).collect(),
        backends: behind.iter().map(|(name, _)| name.as_str()).collect(),
        used: behind.iter().map(|(_, it)| u64::from(it.used)).sum(),
        slots: behind.iter().map(|(_, it)| u64::from(it.slots)).sum(),
    }
}

fn groups(known: &KnownFleet) -> BTreeMap<&str, Group<'_>> {
    let mut groups = BTreeMap::<_, Group<'_>>::new();
    for (name, backend) in known.backends() {
        let Backend { host, group, state, used, slots, .. } = backend;
        let sum = groups.entry(group.as_str()).or_default();
        let state = *state as u8;
        sum.states[usize::from(state)] += 1;
        sum.used += u64::from(*used);
        sum.slots += u64::from(*slots);
        sum.backends.push((name.as_str(), host, state, *used, *slots));
    }
    for group in groups.values_mut() {
        group.backends.sort_unstable();
    }
    groups
}

fn keys(known: &KnownFleet, now_s: u64) -> Vec<Epoch<'_>> {
    known
        .epochs()
        .map(|(listener, epoch)| Epoch {
            listener: listener.as_str(),
            number: epoch.number,
            from: epoch.validity.from,
            mint_until: epoch.validity.mint_until,
            accept_until: epoch.validity.accept_until,
            minted: known.minted_with(listener, now_s) == Some(epoch.number),
            confirmed: known.confirmed_by(listener, epoch.number),
        })
        .collect()
}

const FRESH_MS: u64 = 1000;
/// Keys that cannot be read are named as far as an operator looks.
const UNREADABLE_MAX: usize = 20;

#[cfg(test)]
mod tests;
