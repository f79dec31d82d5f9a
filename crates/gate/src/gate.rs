//! One worker's sessions, links and listeners: the parts of a gate, and what it tells about them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arrivals::{Run, Source};
use crate::counters::{Counters, LinkRefusal, Stamps};
use crate::front::netcode::state::NetcodeFront;
use crate::front::unreal::state::UnrealFront;
use crate::info::ServerInfo;
use crate::links::table::Links;
use crate::listeners::ListenerState;
use crate::mail::{Mail, Request};
use crate::roles::{Role, Roles};
use crate::seed::WorkerIndex;
use crate::setup::{Credentials, Setup};
use crate::shared::claims::Claims;
use crate::store::admission::Admission;
use crate::store::census::Census;
use ringgate_batch::{Endpoint, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_core::drops::DropReason;

/// One worker's sessions and everything that decides about them.
pub struct Gate {
    pub(crate) setup: Arc<Setup>,
    pub(crate) worker: WorkerIndex,
    pub(crate) listeners: Vec<ListenerState>,
    pub(crate) roles: Roles,
    pub(crate) claims: Arc<Claims>,
    pub(crate) newcomers: Newcomers,
    pub(crate) links: Links,
    pub(crate) netcode: NetcodeFront,
    pub(crate) unreal: UnrealFront,
    #[cfg(test)]
    pub(crate) plain: crate::tests::plain::front::PlainFront,
    pub(crate) neighbours: Neighbours,
    pub(crate) aead: Aead,
    /// Where the datagrams of this turn come from.
    pub(crate) sources: Vec<Source>,
    pub(crate) runs: Vec<Run>,
    pub(crate) counters: Counters,
    pub(crate) stamps: Stamps,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) life: Life,
}

/// What newcomers may take of a worker, by block of addresses.
pub(crate) struct Newcomers {
    /// Requests.
    pub(crate) admission: Admission,
    /// Unfinished handshakes.
    pub(crate) handshakes: Census,
}

/// What is between this worker and the others.
pub(crate) struct Neighbours {
    /// Addresses whose datagrams we forward, and the worker that owns their session.
    pub(crate) steered: HashMap<(u16, Endpoint), u16>,
    /// What has to go to them.
    pub(crate) mail_out: Vec<(u16, Mail)>,
}

/// How far a gate has come.
pub(crate) struct Life {
    /// Between the first mail of a turn and the turn's end.
    pub(crate) in_turn: bool,
    /// When the last turn was.
    pub(crate) turned_ns: u64,
    pub(crate) started_ns: u64,
    /// Until when players may stay, once no new ones are taken in.
    pub(crate) draining_until_ns: Option<u64>,
    pub(crate) stopped: bool,
}

impl Gate {
    /// Says that `socket` serves a listener: the one at position `bind` of its addresses. Positions
    /// are bound in order.
    pub fn bind_player_socket(&mut self, socket: SocketId, listener: u16, bind: u16) {
        let sockets = &mut self.listeners[usize::from(listener)].sockets;
        assert_eq!(sockets.len(), usize::from(bind), "addresses are bound in order");
        sockets.push(socket);
        self.roles.assign(socket, Role::Player { listener, bind });
    }

    /// Says that `socket` is the one that carries all players to udp backends on loopback.
    pub fn bind_udp_link(&mut self, socket: SocketId) {
        self.links.udp = Some(socket);
        self.roles.assign(socket, Role::UdpLink);
    }

    /// Says that `socket` accepts links.
    pub fn bind_link_listener(&mut self, socket: SocketId) {
        self.roles.assign(socket, Role::LinkListener);
    }

    /// What has to go to other workers, with their index. Empties the list.
    pub(crate) fn poll_mail(&mut self) -> impl Iterator<Item = (u16, Mail)> + '_ {
        self.neighbours.mail_out.drain(..)
    }

    /// A message that [`poll_mail`](Self::poll_mail) gave out could not be delivered.
    pub fn mail_refused(&mut self, mail: &Mail) {
        let Mail::Datagram(datagram) = mail else { return };
        self.counters.forwarded_out -= 1;
        self.counters.drops.bump(DropReason::MailboxFull);
        self.take_back(datagram);
    }

    /// What the worker is asked to do, one at a time.
    pub(crate) fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// When the gate wants to be called again at the latest. `None` while nothing is timed.
    pub fn poll_timeout(&self) -> Option<u64> {
        let due_ns = self.links.due_ns(self.life.turned_ns).min(self.fronts_due_ns());
        (due_ns < u64::MAX).then_some(due_ns)
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The moments of the last turn.
    pub fn stamps(&self) -> &Stamps {
        &self.stamps
    }

    /// Whether each backend can be reached from this worker.
    pub fn backends_up(&self) -> impl Iterator<Item = bool> + '_ {
        let backends = self.links.backends.iter().enumerate();
        backends.map(|(at, state)| state.is_up() && self.is_answering(at))
    }

    /// How often each backend has become reachable for this worker.
    pub fn backend_arrivals(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.backends.iter().map(|state| state.arrivals)
    }

    /// What each backend has said about itself, where it serves an Unreal game.
    pub fn servers(&self) -> impl Iterator<Item = Option<ServerInfo>> + '_ {
        (0..self.links.backends.len()).map(|backend| self.unreal.server(backend))
    }

    /// Whose link was last closed for each reason, in the order of [`LinkRefusal::ALL`].
    pub fn last_refused(&self) -> &[Option<Credentials>; LinkRefusal::COUNT] {
        &self.links.last_refused
    }

    /// What it was told.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Whether [`Mail::Stop`] has been carried out: every player has been told.
    pub fn is_stopped(&self) -> bool {
        self.life.stopped
    }

    /// Which kernel seals and opens.
    pub fn aead(&self) -> &Aead {
        &self.aead
    }

    /// Bytes that one session takes in this gate's tables, without what its claims take.
    pub const fn session_bytes() -> usize {
        NetcodeFront::session_bytes() + size_of::<u32>()
    }

    /// Which setup it goes by.
    pub fn revision(&self) -> u64 {
        self.setup.revision
    }
}
