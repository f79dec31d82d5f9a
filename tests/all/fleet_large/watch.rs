//! How many players all gateways together have at each game server, looked at all the time: those
//! included who wait because their game server, or its agent, is away. Gateways answer one after
//! another, and meanwhile a player leaves one of them and the next comes in at another. So players
//! count who are there in two looks, the second of which began when the first was over: all of
//! them were there at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_os::clock;
use serde_json::Value;

use super::parts::control_of;
use crate::control_rig::try_ask;

/// Looks until it is dropped.
pub(super) struct Watch {
    most: Arc<Mutex<BTreeMap<String, u64>>>,
    looks: Arc<Mutex<u64>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Of these gateways.
    pub(super) fn start(gates: usize) -> Self {
        let (most, looks, is_over) = (Arc::default(), Arc::default(), Arc::default());
        let mut watch = Self { most, looks, is_over, thread: None };
        let (most, looks) = (Arc::clone(&watch.most), Arc::clone(&watch.looks));
        let is_over = Arc::clone(&watch.is_over);
        watch.thread = Some(std::thread::spawn(move || {
            let mut before = None;
            while !is_over.load(Ordering::Relaxed) {
                let now = look(gates);
                if let (Some(before), Some(now)) = (&before, &now) {
                    let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
                    for (name, players) in at_once(before, now) {
                        let at_most = most.entry(name).or_default();
                        *at_most = players.max(*at_most);
                    }
                    *looks.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                }
                before = now;
                clock::sleep(Duration::from_millis(200));
            }
        }));
        watch
    }

    /// The most that were seen at a game server.
    pub(super) fn most(&self, game: u32) -> u64 {
        let most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        most.get(&format!("game{game}")).copied().unwrap_or_default()
    }

    /// How often all gateways were looked at.
    pub(super) fn looks(&self) -> u64 {
        *self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A player at a game server: gateway, session, client id, and what the server is called.
type Stay = (usize, String, String, String);

/// Who is where; `None` where a gateway is away.
fn look(gates: usize) -> Option<BTreeSet<Stay>> {
    let mut all = BTreeSet::new();
    for gate in 0..gates {
        let page = try_ask(&control_of(gate), "/sessions?limit=10000").ok()?;
        let page: Value = serde_json::from_str(&page.body).ok()?;
        for session in page["sessions"].as_array()? {
            let field = |name: &str| session[name].as_str().map(str::to_owned);
            all.insert((gate, field("session")?, field("client_id_text")?, field("backend")?));
        }
    }
    Some(all)
}

/// Players by game server who are in both looks.
fn at_once(before: &BTreeSet<Stay>, now: &BTreeSet<Stay>) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (.., server) in before.intersection(now) {
        *all.entry(server.clone()).or_default() += 1;
    }
    all
}
