//! Trunks between the gateways of a cluster: each member has one to each other.
//!
//! It is the trunk that agents have, with one lane, beats and proofs; what differs is who may be at
//! its other end. Members speak a protocol of another name (ALPN), and a member's certificate is
//! for a name that no agent can have ([`tls::certified_name`]). Of two members the one whose name
//! comes first connects to the other. Where the others are is told from outside; a member that is
//! not told of any more and is connected stays.
//!
//! On it each tells the other which players it has, and forwards datagrams of those that the other
//! has: what is said is `ringgate_cluster::wire`'s, who has which player a [`Players`]'. Each
//! session has one member that stands by for it. Once its owner is gone or does not answer, that
//! member may go on with it.

mod backlog;
mod board;
mod players;
mod settings;
mod shared;
mod shown;
mod standbys;
mod talk;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use ringgate_cluster::wire::{Datagram, Offered as GivenAway};
use ringgate_io::Bell;
use ringgate_os::wiping;

pub use crate::agent::options::Gateway as Entrance;
use crate::protocol::tls;
use crate::socket::Door;
use board::Board;
pub use players::{Arrival, Kept, Number, Places, Players};
pub use settings::Settings;
use shared::Shared;
pub use shown::{MemberShown, Shown, State};

/// The control thread's handle.
pub struct Peers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Shows members to pages.
#[derive(Clone, Debug)]
pub struct Window(Arc<Shared>);

impl Window {
    /// What the cluster is called.
    pub fn cluster(&self) -> &str {
        &self.0.settings.cluster
    }

    /// How they are.
    pub fn shown(&self) -> Shown {
        self.0.shown()
    }
}

impl Peers {
    /// A member whose door is not bound yet.
    pub fn new(settings: Settings, identity: tls::Peer) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(settings, identity, Bell::new()?));
        Ok(Self { shared, thread: None })
    }

    /// Binds where others connect. The process before this one may have it still.
    pub fn open(&self) -> io::Result<Door> {
        Door::bind(self.shared.settings.bind)
    }

    /// Rung by whoever has something for its thread: players that came or went, or datagrams.
    pub fn bell(&self) -> Bell {
        self.shared.bell.clone()
    }

    /// Begins to connect.
    pub fn start(&mut self, door: Door, players: impl Players) -> io::Result<()> {
        let board = Board::new(Arc::clone(&self.shared), door, players)?;
        let name = "ringgate-peers".to_owned();
        let run = || {
            // Members give each other keys of sessions.
            wiping::wipe_from_now_on();
            board.run();
        };
        self.thread = Some(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// These are the others, and where they are.
    pub fn set_members(&self, members: BTreeMap<String, Entrance>) {
        self.shared.set_members(members);
    }

    /// Who it is in connections from now on.
    pub fn set_identity(&self, identity: tls::Peer) {
        self.shared.set_identity(identity);
    }

    /// Whether it connects.
    pub const fn is_started(&self) -> bool {
        self.thread.is_some()
    }

    /// Shows them.
    pub fn window(&self) -> Window {
        Window(Arc::clone(&self.shared))
    }

    /// Ends all connections, and waits for that.
    pub fn stop(&mut self) {
        self.shared.stop();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop();
    }
}
