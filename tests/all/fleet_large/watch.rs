//! How many players all gateways together have at each game server, looked at all the time: those
//! included who wait because their game server, or its agent, is away.

use std::collections::BTreeMap;
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
            while !is_over.load(Ordering::Relaxed) {
                if let Some(now) = look(gates) {
                    let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
                    for (name, players) in now {
                        let before = most.entry(name).or_default();
                        *before = players.max(*before);
                    }
                    *looks.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                }
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

/// Players by game server; `None` where a gateway is away.
fn look(gates: usize) -> Option<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for gate in 0..gates {
        let page = try_ask(&control_of(gate), "/status?as_of=now").ok()?;
        let status: Value = serde_json::from_str(&page.body).ok()?;
        for backend in status["backends"].as_array()? {
            let players = backend["players"].as_u64()?;
            *all.entry(backend["name"].as_str()?.to_owned()).or_default() += players;
        }
    }
    Some(all)
}
