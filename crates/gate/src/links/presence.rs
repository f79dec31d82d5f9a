//! Game processes that come and go, on either kind of link.
//!
//! A backend that is gone keeps its players for its grace time: one that restarts finds them again.
//! On a bundle link the socket tells when a process is gone; on a udp link the kernel does, when it
//! refuses a datagram or is asked (`listening`), and whether the backend is back is found out by
//! sending it an empty one now and then.

use crate::counters::LinkRefusal;
use crate::gate::Gate;
use crate::ids::LinkId;
use crate::links::loopback::is_shared_socket_backend;
use crate::links::state::{Link, PROBE_EVERY_NS, Probe};
use crate::mail::Request;
use crate::output::Tag;
use crate::roles::Role;
use crate::setup::{Backend, Credentials, LinkKind};
use crate::turn::{Now, Turn};
use ringgate_batch::{Endpoint, LocalIp, SendFailure, SocketId, TxTarget};
use ringgate_link::bundle::{Goodbye, GoodbyeReason};

impl Gate {
    /// A process has connected to the link socket; it has to say hello before anything else, and
    /// soon. One that no backend allows is told so in the turn that follows.
    pub(crate) fn handle_link_accepted(&mut self, socket: SocketId, credentials: Credentials) {
        let is_barred = !self.links.may_connect.admits(credentials);
        let unidentified =
            self.links.all.iter().flatten().filter(|link| link.is_waiting_for_hello());
        let users = unidentified.map(|link| link.credentials.uid);
        let (mut all, mut same) = (0, 0);
        users.for_each(|uid| (all, same) = (all + 1, same + usize::from(uid == credentials.uid)));
        if !is_barred && (all >= UNIDENTIFIED_LINKS_MAX || same >= UNIDENTIFIED_LINKS_PER_USER_MAX)
        {
            self.count_refusal(LinkRefusal::TooManyNameless, Some(credentials));
            return self.requests.push_back(Request::CloseSocket(socket));
        }
        let free = self.links.all.ids().find(|at| self.links.all[*at].is_none());
        let at = free.unwrap_or_else(|| self.links.all.push(None));
        let mut link = Link::new(socket, credentials);
        link.is_barred = is_barred;
        self.links.all[at] = Some(link);
        self.links.has_unsettled = true;
        self.roles.assign(socket, Role::Link(at));
    }

    /// A process that has restarted may say hello in the very turn in which its last link ends.
    pub(crate) fn forget_predecessor(&mut self, now: Now, backend: u16) {
        if let Some(old) = self.links.backends[usize::from(backend)].link {
            self.lose_link(now, old);
        }
    }

    pub(crate) fn mark_hung_up(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(link) {
            link.hung_up = true;
        }
    }

    /// Ends a link and has its socket closed. Its backend may come back within its grace time; the
    /// players wait.
    pub(crate) fn lose_link(&mut self, now: Now, link: LinkId) {
        let Some(lost) = self.links.all[link].take() else { return };
        self.close_socket(lost.socket);
        let unsent = lost.unsent_payloads();
        self.undeliver(unsent, SendFailure::Gone);
        self.release_backlog(&lost);
        if let Some(backend) = lost.backend {
            let state = &mut self.links.backends[usize::from(backend)];
            state.link = None;
            state.gone_since_ns = Some(now.mono_ns);
        }
    }

    /// Parts from processes that have connected and may not, or do not say who they are.
    pub(crate) fn close_unidentified_links(&mut self, turn: &mut Turn<'_>) {
        if !self.links.has_unsettled {
            return;
        }
        for at in self.links.all.ids() {
            let Some(link) = self.links.get_mut(at) else { continue };
            if link.is_barred {
                self.refuse_link(turn, at, GoodbyeReason::Unauthorised, None);
            } else if link.is_overdue(turn.now.mono_ns) {
                self.refuse_link(turn, at, GoodbyeReason::HelloExpected, None);
            }
        }
        self.links.has_unsettled = self
            .links
            .all
            .iter()
            .flatten()
            .any(|link| link.backend.is_none() || link.has_deferred());
    }

    /// Parts from processes that a new setup does not allow any more. Those of a retired backend
    /// stay with their players.
    pub(crate) fn close_disallowed_links(&mut self, turn: &mut Turn<'_>) {
        for at in self.links.all.ids() {
            let Some(link) = &self.links.all[at] else { continue };
            let allow = match link.backend.map(|backend| &self.setup.backends[usize::from(backend)])
            {
                Some(Backend { link: LinkKind::Bundle { allow }, .. }) => allow,
                _ => &self.links.may_connect,
            };
            if !allow.admits(link.credentials) {
                self.refuse_link(turn, at, GoodbyeReason::Unauthorised, None);
            }
        }
    }

    /// Says that the gateway drains, if it does, to a process that is a backend.
    pub(crate) fn tell_draining(&mut self, turn: &mut Turn<'_>, link: LinkId) {
        let is_backend = self.links.get_mut(link).is_some_and(|link| link.backend.is_some());
        if let (Some(until_ns), true) = (self.life.draining_until_ns, is_backend) {
            let left_ms = until_ns.saturating_sub(turn.now.mono_ns).div_ceil(NS_PER_MS) as u32;
            self.tell_link(turn, link, |writer| writer.draining(left_ms));
        }
    }

    /// Says goodbye to every link: the gateway is about to go.
    pub(crate) fn say_goodbye(&mut self, turn: &mut Turn<'_>) {
        let goodbye = Goodbye { reason: GoodbyeReason::Shutdown, error: None };
        for link in self.links.all.ids() {
            self.append(turn, link, 0, |writer| writer.goodbye(goodbye));
        }
    }

    /// The kernel says that nobody listens where a udp backend should.
    pub(crate) fn lose_udp_backend(&mut self, now: Now, socket: SocketId, peer: &Endpoint) {
        let at = match self.roles.of(socket) {
            Role::SessionLink(place) => {
                let session =
                    self.netcode.sessions.live(place).map(|index| self.netcode.sessions.at(index));
                session.map(|session| usize::from(session.backend))
            }
            Role::UdpLink => {
                self.links.backends.iter().position(|state| state.address == Some(*peer))
            }
            // Anybody could make us send to an address at which nobody listens.
            Role::Link(_) | Role::LinkListener | Role::Player { .. } | Role::Vacant => None,
        };
        if let Some(at) = at {
            self.mark_gone(now, at);
        }
    }

    /// A udp backend is not there, and has to be looked for.
    pub(crate) fn mark_gone(&mut self, now: Now, at: usize) {
        let state = &mut self.links.backends[at];
        state.gone_since_ns.get_or_insert(now.mono_ns);
        state.probe_open = false;
        state.probed_ns = now.mono_ns;
        let due_ns = state.probe_due_ns().unwrap_or(u64::MAX);
        self.links.next_probe_ns = self.links.next_probe_ns.min(due_ns);
        self.lose_server(now, at);
    }

    /// Looks whether udp backends that were gone are back: an empty datagram that the kernel does
    /// not refuse for a while means that somebody listens again.
    pub(crate) fn probe_backends(&mut self, turn: &mut Turn<'_>) {
        if turn.now.mono_ns < self.links.next_probe_ns {
            return;
        }
        self.links.next_probe_ns = u64::MAX;
        for at in 0..self.links.backends.len() {
            self.probe_backend(turn, at);
            let due_ns = match self.links.backends[at].probe_due_ns() {
                None => continue,
                // It is not probed here, and only looked at in case it is retired.
                Some(_) if self.is_probed_by_front(at) => turn.now.mono_ns + PROBE_EVERY_NS,
                Some(due_ns) => due_ns,
            };
            self.links.next_probe_ns = self.links.next_probe_ns.min(due_ns);
        }
    }

    fn probe_backend(&mut self, turn: &mut Turn<'_>, at: usize) {
        let state = &self.links.backends[at];
        let (false, Some(address)) = (state.is_up(), state.address) else { return };
        if self.setup.backends[at].retired && self.claims.players(at) == 0 {
            // Nobody waits for it, and what listens there one day may be another program.
            return self.links.backends[at].come_back();
        }
        if self.is_probed_by_front(at) {
            // Asked in its own language.
            return;
        }
        let can_probe = is_shared_socket_backend(&address.into());
        match Probe::next(state, can_probe, turn.now.mono_ns) {
            Probe::Answered => self.links.backends[at].come_back(),
            Probe::Due => {
                self.links.backends[at].probe_open = true;
                self.links.backends[at].probed_ns = turn.now.mono_ns;
                self.send_probe(turn, address);
            }
            Probe::Wait => {}
        }
    }

    fn send_probe(&mut self, turn: &mut Turn<'_>, address: Endpoint) {
        let Some(socket) = self.links.udp else { return };
        let target = TxTarget { socket, peer: Some(address), source: LocalIp::UNSPECIFIED };
        self.send_raw(turn, &[], target, Tag::Probe);
    }

    /// A probe did not leave, so that nobody refused it proves nothing.
    pub(crate) fn take_back_probe(&mut self, address: Option<Endpoint>) {
        self.counters.link_datagrams_out -= 1;
        if let Some(state) = self.links.backends.iter_mut().find(|state| state.address == address) {
            state.probe_open = false;
        }
    }
}

const NS_PER_MS: u64 = 1_000_000;

/// Processes of one user that may be connected to the link socket without having said who they are.
/// Those of a host that all come back to a restarted gateway are accepted a few at a time, and have
/// said it by the next turn.
const UNIDENTIFIED_LINKS_PER_USER_MAX: usize = 32;

/// Such processes of all users that may connect.
const UNIDENTIFIED_LINKS_MAX: usize = 1024;
