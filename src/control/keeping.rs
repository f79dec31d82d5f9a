//! Players' sockets at the service manager (systemd's descriptor store), so that a port stays open
//! when this process ends without a word: what players send then waits for the next one.
//!
//! Only sockets, never keys: a session's state is nowhere but in this process and its successor.

use std::io;
use std::net::SocketAddr;

use super::ControlLoop;
use ringgate_gate::ListenerId;
use ringgate_os::stored::Store;
use ringgate_worker::{Fleet, Opened, name_of};

/// The way to the service manager, where there is one.
pub(super) fn store(notify: Option<&str>) -> Option<Store> {
    Store::connect(notify?).map_err(|why| complain(&why)).ok()
}

impl ControlLoop {
    /// Has the sockets kept that workers hear players on. What is kept already is kept once.
    pub(super) fn keep_sockets(&self, fleet: &Fleet) {
        let Some(store) = &self.store else { return };
        match fleet.player_sockets() {
            Ok(by_address) => {
                for (address, fds) in by_address {
                    note(store.keep(&name_of(address), &fds));
                }
            }
            Err(why) => complain(&why),
        }
    }

    /// The same with those of listeners that a reload adds.
    pub(super) fn keep_opened(&self, opened: &[(ListenerId, Opened)]) {
        let Some(store) = &self.store else { return };
        for (_, opened) in opened {
            for (address, fds) in opened.by_address() {
                note(store.keep(&name_of(address), &fds));
            }
        }
    }

    /// A listener has closed: a socket that nobody reads would swallow players.
    pub(super) fn give_up_sockets(&self, addresses: &[SocketAddr]) {
        let Some(store) = &self.store else { return };
        for address in addresses {
            note(store.remove(&name_of(*address)));
        }
    }
}

fn note(told: io::Result<()>) {
    if let Err(why) = told {
        complain(&why);
    }
}

fn complain(why: &impl std::fmt::Display) {
    tracing::warn!("the service manager cannot be told which sockets to keep: {why}");
}
