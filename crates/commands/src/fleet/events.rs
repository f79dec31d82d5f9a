//! `ringgate fleet events`: what changes in a fleet, as it changes, in sentences or as JSON.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ringgate_fleet::keyspace::{Keyspace, Place};
use ringgate_fleet::mirror::{Change, Machine, Options, Reads, Status, Truth, run};
use ringgate_fleet::values::{Agent, Backend, Gateway, Stored};
use ringgate_os::{clock, utc};
use serde_json::json;
use tokio::sync::mpsc;

use super::super::Failure;
use super::super::exit::show;
use super::target::{Target, runtime};
use ringgate_config::values::word_of;

/// Show what changes in a fleet, until interrupted
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print each event as a JSON object on a line
    #[arg(long)]
    json: bool,
    /// Loads too, which change all the time
    #[arg(long)]
    all: bool,
    /// End after so many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let client = fleet.client()?;
    let seed = u64::from(std::process::id()) ^ clock::unix_ns();
    let options = Options::new(fleet.keyspace.truth(), Reads::default(), seed);
    let machine = Machine::new(options, Truth::default());
    let (mut commands, rest) = {
        let (sender, receiver) = mpsc::channel(1);
        (Some(sender), receiver)
    };
    let failed = Arc::new(Mutex::new(None));
    let failure = Arc::clone(&failed);
    let mut teller =
        Teller { keyspace: fleet.keyspace, known: Truth::default(), before: Status::default() };
    let (json, all, mut left) = (args.json, args.all, args.limit.unwrap_or(u64::MAX));
    let see = move |machine: &Machine, changes: Vec<Change>| {
        for event in teller.tell(machine, &changes, all) {
            if left == 0 {
                break;
            }
            left -= 1;
            match show(&event.line(json, clock::unix_seconds())) {
                Ok(true) => {}
                Ok(false) => left = 0,
                Err(why) => {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    left = 0;
                }
            }
        }
        if left == 0 {
            // The mirror ends when nobody can speak with it any more.
            commands = None;
        }
        let _ = &commands;
    };
    runtime()?.block_on(run::run(machine, client, rest, see));
    let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.map_or(Ok(()), Err)
}

/// One thing that has happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) text: String,
}

impl Event {
    fn line(&self, as_json: bool, now_s: u64) -> String {
        let Self { kind, name, text } = self;
        if as_json {
            format!("{}\n", json!({ "at_unix_s": now_s, "kind": kind, "name": name, "text": text }))
        } else {
            format!("{}  {text}\n", utc::date(now_s))
        }
    }
}

/// Remembers what was, to say what has changed.
pub(super) struct Teller {
    pub(super) keyspace: Keyspace,
    pub(super) known: Truth,
    pub(super) before: Status,
}

impl Teller {
    fn tell(&mut self, machine: &Machine, changes: &[Change], all: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let status = machine.status();
        let was_known = self.known.is_known();
        for change in changes {
            let before = self.known.entries.get(&change.key).map(|it| it.value.clone());
            // What is there at the beginning has not happened now.
            if was_known {
                let told = self.tell_one(&change.key, before.as_ref(), change.value.as_ref(), all);
                events.extend(told);
            }
        }
        if !was_known && machine.truth().is_known() {
            let text =
                format!("{} keys are known; waiting for changes", machine.truth().entries.len());
            events.push(Event { kind: "known", name: String::new(), text });
        }
        self.known = machine.truth().clone();
        events.extend(self.tell_status(status));
        self.before = status.clone();
        events
    }

    fn tell_status(&self, status: &Status) -> Option<Event> {
        let event = |kind, text| Some(Event { kind, name: String::new(), text });
        if status.doubt != self.before.doubt
            && let Some((number, why)) = &status.doubt
        {
            return event("held_back", format!("held back under the number {number}: {why}"));
        }
        match (self.before.is_current, status.is_current) {
            (true, false) => {
                let why = status.last_error.as_deref().unwrap_or("no error");
                event("away", format!("etcd is away: {why}"))
            }
            (false, true) if self.before.lists > 0 => event("back", "etcd is back".to_owned()),
            _ => None,
        }
    }

    pub(super) fn tell_one(
        &self,
        key: &Bytes,
        before: Option<&Bytes>,
        after: Option<&Bytes>,
        all: bool,
    ) -> Option<Event> {
        let place = self.keyspace.place(key)?;
        let come_or_gone = match (before, after) {
            (None, Some(_)) => "has come",
            (Some(_), None) => "is gone",
            _ => "has changed",
        };
        let (kind, name, text) = match &place {
            Place::Gateway(name) => {
                let told = gateway([before, after], all)?;
                ("gateway", name.to_string(), format!("gateway {name}: {told}"))
            }
            Place::Backend(name) => {
                let told = backend([before, after], all)?;
                ("backend", name.to_string(), format!("backend {name}: {told}"))
            }
            Place::Key(listener, number) => {
                ("key", listener.to_string(), format!("key {number} of {listener} {come_or_gone}"))
            }
            Place::BanClient(id) => ("ban", id.to_string(), ban(&format!("client {id}"), after)),
            Place::BanPrefix(prefix) => {
                ("ban", prefix.to_string(), ban(&prefix.to_string(), after))
            }
            Place::Agent(name) => {
                let told = agent([before, after])?;
                ("agent", name.to_string(), format!("agent {name}: {told}"))
            }
            // It writes its key anew now and then.
            Place::Service(_) if before.is_some() && after.is_some() && !all => return None,
            Place::Service(name) => {
                ("service", name.to_string(), format!("token service {name} {come_or_gone}"))
            }
            _ => return None,
        };
        Some(Event { kind, name, text })
    }
}

fn ban(whom: &str, after: Option<&Bytes>) -> String {
    match after {
        Some(_) => format!("{whom} may not play"),
        None => format!("{whom} may play again"),
    }
}

/// What is said of a value that has come, has changed, or is gone.
fn told<T: Stored>(
    [before, after]: [Option<&Bytes>; 2],
    come: impl FnOnce(T) -> String,
    changed: impl FnOnce(T, T) -> Option<String>,
) -> Option<String> {
    let read = |it: &Bytes| T::decode(it);
    match (before.map(read), after.map(read)) {
        (_, None) => Some("is gone".to_owned()),
        (_, Some(Err(why))) => Some(format!("cannot be read: {why}")),
        (Some(Ok(was)), Some(Ok(now))) => changed(was, now),
        (_, Some(Ok(now))) => Some(come(now)),
    }
}

fn gateway(values: [Option<&Bytes>; 2], all: bool) -> Option<String> {
    let come = |Gateway { host, region, version, .. }| {
        format!("has come, on {host} in {region}, version {version}")
    };
    told(values, come, |was: Gateway, now| {
        if was.instance != now.instance {
            return Some(format!("was started anew, version {}", now.version));
        }
        if was.draining != now.draining {
            return Some(if now.draining { "draining" } else { "serving again" }.to_owned());
        }
        let epochs = |it: &Gateway| -> Vec<Vec<u32>> {
            it.listeners.iter().map(|it| it.epochs.clone()).collect()
        };
        if epochs(&was) != epochs(&now) {
            return Some(format!("accepts the keys {:?}", epochs(&now)));
        }
        all.then(|| format!("{} sessions", now.sessions))
    })
}

fn agent(values: [Option<&Bytes>; 2]) -> Option<String> {
    let gateways = |it: &Agent| match it.gateways.as_slice() {
        [] => "to no gateway".to_owned(),
        names => format!("to {}", names.join(", ")),
    };
    let come = |now: Agent| format!("has come, on {}, and connects {}", now.host, gateways(&now));
    told(values, come, |was, now| {
        if was.instance != now.instance {
            return Some(format!("was started anew, version {}", now.version));
        }
        (was.gateways != now.gateways).then(|| format!("connects {}", gateways(&now)))
    })
}

fn backend(values: [Option<&Bytes>; 2], all: bool) -> Option<String> {
    let come = |Backend { host, group, slots, state, .. }| {
        let state = word_of(state);
        format!("has come, {state}, {slots} slots of group {group} on {host}")
    };
    told(values, come, |was: Backend, now| {
        if was.instance != now.instance {
            return Some("was started anew".to_owned());
        }
        if was.state != now.state {
            return Some(format!("{} -> {}", word_of(was.state), word_of(now.state)));
        }
        all.then(|| format!("{} players", now.used))
    })
}
