//! A mirror that runs, and what it has shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringgate_fleet::etcd::Client;
use ringgate_fleet::mirror::run::{Command, run};
use ringgate_fleet::mirror::{Doubt, Machine, Options, Reads, Status, Truth};
use tokio::sync::mpsc;

use super::rig::until;

pub(crate) const PREFIX: &str = "/f/truth/";

pub(crate) struct Watcher {
    seen: Arc<Mutex<Seen>>,
    commands: mpsc::Sender<Command>,
}

#[derive(Default)]
struct Seen {
    status: Status,
    truth: Truth,
    /// What changes alone have told.
    heard: BTreeMap<Bytes, Bytes>,
}

impl Watcher {
    pub(crate) fn start(client: Client) -> Self {
        Self::with(client, Truth::default())
    }

    pub(crate) fn with(client: Client, known: Truth) -> Self {
        Self::reading(client, known, Reads::default())
    }

    pub(crate) fn reading(client: Client, known: Truth, reads: Reads) -> Self {
        let options = Options {
            check_every_ms: 300,
            silence_max_ms: 3_000,
            doubt_every_ms: 300,
            page_keys: 7,
            ..Options::new(PREFIX, reads, 1)
        };
        let (commands, told) = mpsc::channel(4);
        let heard = known.entries.iter().map(|(key, it)| (key.clone(), it.value.clone())).collect();
        let seen = Arc::new(Mutex::new(Seen { heard, ..Seen::default() }));
        let shown = Arc::clone(&seen);
        let machine = Machine::new(options, known);
        tokio::spawn(run(machine, client, told, move |machine, changes| {
            let mut seen = shown.lock().expect("nobody panics with it");
            seen.status = machine.status().clone();
            seen.truth = machine.truth().clone();
            for change in changes {
                match change.value {
                    Some(value) => drop(seen.heard.insert(change.key, value)),
                    None => drop(seen.heard.remove(&change.key)),
                }
            }
        }));
        Self { seen, commands }
    }

    pub(crate) fn status(&self) -> Status {
        self.seen.lock().expect("nobody panics with it").status.clone()
    }

    pub(crate) fn truth(&self) -> Truth {
        self.seen.lock().expect("nobody panics with it").truth.clone()
    }

    /// What stands at a key below the prefix.
    pub(crate) fn value(&self, key: &str) -> Option<Bytes> {
        self.seen
            .lock()
            .expect("nobody panics with it")
            .heard
            .get(format!("{PREFIX}{key}").as_bytes())
            .cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.seen.lock().expect("nobody panics with it").heard.len()
    }

    pub(crate) async fn is_current(&self) {
        until("the mirror is current", async || self.status().is_current).await;
    }

    pub(crate) async fn holds(&self, key: &str, value: &str) {
        let what = format!("{key} is {value}");
        until(&what, async || self.value(key).as_deref() == Some(value.as_bytes())).await;
    }

    pub(crate) async fn doubts(&self) -> (u64, Doubt) {
        until("there is a doubt", async || self.status().doubt.is_some()).await;
        self.status().doubt.expect("it was seen")
    }

    pub(crate) async fn confirm(&self, number: u64) {
        self.commands.send(Command::Confirm(number)).await.expect("it runs");
        until("the doubt is gone", async || self.status().doubt.is_none()).await;
    }
}
