//! What a cluster's thread shares with the control thread.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ringgate_io::Bell;

use super::settings::Settings;
use super::shown::Shown;
use crate::agent::options::Gateway as Entrance;
use crate::protocol::tls::Peer;
use ringgate_core::sync::lock;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) bell: Bell,
    identity: Mutex<Peer>,
    members: Mutex<BTreeMap<String, Entrance>>,
    shown: Mutex<Shown>,
    is_over: AtomicBool,
}

ringgate_core::shown_by!(Shared { settings });

impl Shared {
    pub(super) fn new(settings: Settings, identity: Peer, bell: Bell) -> Self {
        let (members, shown) = (Mutex::default(), Mutex::default());
        let (identity, is_over) = (Mutex::new(identity), AtomicBool::new(false));
        Self { settings, bell, identity, members, shown, is_over }
    }

    pub(super) fn set_identity(&self, identity: Peer) {
        *lock(&self.identity) = identity;
    }

    pub(super) fn identity(&self) -> Peer {
        lock(&self.identity).clone()
    }

    pub(super) fn set_members(&self, members: BTreeMap<String, Entrance>) {
        let mut told = lock(&self.members);
        if *told != members {
            *told = members;
            self.bell.ring();
        }
    }

    pub(super) fn members(&self) -> BTreeMap<String, Entrance> {
        lock(&self.members).clone()
    }

    pub(super) fn show(&self, shown: Shown) {
        *lock(&self.shown) = shown;
    }

    pub(super) fn shown(&self) -> Shown {
        lock(&self.shown).clone()
    }

    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
