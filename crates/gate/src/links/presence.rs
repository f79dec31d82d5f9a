//! Game processes that come and go, on either kind of link.
//!
//! A backend that is gone keeps its players for its grace time: one that restarts finds them again.
//! On a bundle link the socket tells when a process is gone; on a udp link the kernel does, when it
//! refuses a datagram or is asked (`listening`), and whether the backend is back is found out by
//! sending it an empty one now and then.

use std::sync::Arc;

use crate::common::Common;
use crate::counters::LinkRefusal;
use crate::ids::{BackendId, LinkId};
use crate::links::loopback::is_shared_socket_backend;
use crate::links::state::{Link, Load, PROBE_EVERY_NS, Probe};
use crate::mail::Request;
use crate::now::{NS_PER_MS, Now};
use crate::output::Tag;
use crate::roles::Role;
use crate::setup::{Backend, Credentials, LinkKind, Setup};
use crate::turn::Turn;
use ringgate_batch::{Endpoint, LocalIp, Nameless, Newcomer, SendFailure, SocketId, TxTarget};
use ringgate_link::bundle::{Goodbye, GoodbyeReason, VERSION_SKIPPABLE, Writer};

impl Common {
    /// A process has connected to the link socket; it has to say hello before anything else, and
    /// soon. One that no backend allows is told so in the turn that follows.
    pub(crate) fn handle_link_accepted(&mut self, socket: SocketId, credentials: Credentials) {
        let is_allowed = self.links.may_connect.admits(credentials);
        if is_allowed && !self.make_room_for_nameless(credentials) {
            self.count_refusal(LinkRefusal::TooManyNameless, Some(credentials));
            return self.requests.push_back(Request::CloseSocket(socket));
        }
        let free = self.links.all.ids().find(|at| self.links.all[*at].is_none());
        let at = free.unwrap_or_else(|| self.links.all.push(None));
        let mut link = Link::new(socket, credentials);
        self.links.connected_count += 1;
        link.serial = self.links.connected_count;
        link.barred = (!is_allowed).then_some(GoodbyeReason::Unauthorised);
        self.links.all[at] = Some(link);
        self.links.has_unsettled = true;
        self.roles.assign(socket, Role::Link(at));
    }

    /// Whether one more process may wait to say who it is.
    fn make_room_for_nameless(&mut self, of: Credentials) -> bool {
        let all = self.links.all.pairs();
        let waiting = all.filter_map(|(at, link)| Some((at, link.as_ref()?)));
        let waiting = waiting.filter(|(_, link)| link.is_waiting_for_hello());
        let nameless = waiting.map(|(at, &Link { credentials, serial, .. })| Nameless {
            at,
            credentials,
            serial,
        });
        let goes = match Newcomer::decide(of, NAMELESS_MAX, nameless) {
            Newcomer::Waits => None,
            Newcomer::WaitsInsteadOf(at) => self.links.all[at].take(),
            Newcomer::Refused => return false,
        };
        if let Some(lost) = goes {
            self.count_refusal(LinkRefusal::TooManyNameless, Some(lost.credentials));
            self.close_socket(lost.socket);
            self.release_backlog(&lost);
        }
        true
    }

    /// A process that has restarted may say hello in the very turn in which its last link ends.
    pub(crate) fn forget_predecessor(&mut self, now: Now, backend: BackendId) {
        if let Some(old) = self.links.backends[backend].link {
            self.lose_link(now, old);
        }
    }

    pub(crate) fn mark_ended(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(link) {
            (link.hung_up, link.has_ended) = (true, true);
        }
    }

    /// Ends a link and has its socket closed. Its backend may come back within its grace time; the
    /// players wait.
    pub(crate) fn lose_link(&mut self, now: Now, link: LinkId) {
        let Some(lost) = self.links.all[link].take() else { return };
        self.close_socket(lost.socket);
        let unsent = lost.unsent();
        self.undeliver(unsent, SendFailure::Gone);
        self.release_backlog(&lost);
        if let Some(backend) = lost.backend {
            let state = &mut self.links.backends[backend];
            state.link = None;
            state.gone_since_ns = Some(now.mono_ns);
            self.moves.doubt();
        }
    }

    /// A udp backend is not there, and has to be looked for.
    pub(crate) fn mark_gone(&mut self, now: Now, backend: BackendId) {
        let state = &mut self.links.backends[backend];
        state.gone_since_ns.get_or_insert(now.mono_ns);
        state.probe_open = false;
        state.probed_ns = now.mono_ns;
        let due_ns = state.probe_due_ns().unwrap_or(u64::MAX);
        self.links.next_probe_ns = self.links.next_probe_ns.min(due_ns);
    }

    /// A probe did not leave, so it proves nothing that it was not refused.
    pub(crate) fn take_back_probe(&mut self, address: Option<Endpoint>) {
        self.counters.link_datagrams_out -= 1;
        if let Some(state) = self.links.backends.iter_mut().find(|state| state.address == address) {
            state.probe_open = false;
        }
    }
}

impl Turn<'_> {
    /// Closes the links of processes that may not connect, or do not say who they are in time.
    pub(crate) fn close_unidentified_links(&mut self) {
        if !self.common.links.has_unsettled {
            return;
        }
        for at in self.common.links.all.ids() {
            let Some(link) = self.common.links.get_mut(at) else { continue };
            if let Some(why) = link.barred {
                self.refuse_link(at, why, None);
            } else if link.is_overdue(self.now.mono_ns) {
                self.refuse_link(at, GoodbyeReason::HelloExpected, None);
            }
        }
        self.common.links.has_unsettled = self
            .common
            .links
            .all
            .iter()
            .flatten()
            .any(|link| link.backend.is_none() || link.has_deferred());
    }

    /// Closes the links of processes that a new setup does not allow any more. Those of a retired
    /// backend stay with their players.
    pub(crate) fn close_disallowed_links(&mut self) {
        for at in self.common.links.all.ids() {
            let Some(link) = &self.common.links.all[at] else { continue };
            let allow = match link.backend.map(|backend| &self.common.setup.backends[backend]) {
                Some(Backend { retired: true, .. }) => continue,
                Some(Backend { link: LinkKind::Bundle { allow }, .. }) => allow,
                _ => &self.common.links.may_connect,
            };
            if !allow.admits(link.credentials) {
                self.refuse_link(at, GoodbyeReason::Unauthorised, None);
            }
        }
    }

    /// Says how many players a backend has at the gateway, those included who wait for it: an agent
    /// counts with those who are not announced yet. And how long both may wait for more.
    pub(crate) fn tell_players(&mut self, link: LinkId, backend: BackendId) {
        if self.common.links.speaks(link, VERSION_SKIPPABLE) {
            let count = self.common.claims.players(backend);
            let grace_ms = self.common.setup.backends[backend].grace_ns / NS_PER_MS;
            let grace_ms = u32::try_from(grace_ms).unwrap_or(u32::MAX);
            let gather_us = self.common.setup.batch_delay.longest().as_micros() as u32;
            self.tell_link(link, |writer| writer.players(count, grace_ms, gather_us));
        }
    }

    /// Says it anew to those of whom a setup says something else than the one before.
    pub(crate) fn tell_other_waits(&mut self, before: &Setup) {
        let after = Arc::clone(&self.common.setup);
        let gathers_otherwise = after.batch_delay.longest() != before.batch_delay.longest();
        for at in self.common.links.all.ids() {
            let link = self.common.links.get_mut(at);
            let Some(backend) = link.and_then(|link| link.backend) else { continue };
            let grace_ns = |setup: &Setup| setup.backends.get(backend).map(|it| it.grace_ns);
            if gathers_otherwise || grace_ns(before) != grace_ns(&after) {
                self.tell_players(at, backend);
            }
        }
    }

    /// Says that the gateway drains, if it does, to a process that is a backend.
    pub(crate) fn tell_draining(&mut self, link: LinkId) {
        let is_backend = self.common.links.get_mut(link).is_some_and(|link| link.backend.is_some());
        if let (Some(until_ns), true) = (self.common.life.draining_until_ns, is_backend) {
            let left_ms = until_ns.saturating_sub(self.now.mono_ns).div_ceil(NS_PER_MS) as u32;
            self.tell_link(link, |writer| writer.draining(left_ms));
        }
    }

    /// Says that the gateway does not drain any more, to every process that has heard of it and
    /// that knows the word.
    pub(crate) fn tell_undrained(&mut self) {
        for at in self.common.links.all.ids() {
            if self.common.links.get_mut(at).is_some_and(|it| is_told_more(it)) {
                self.tell_link(at, undrained);
            }
        }
    }

    /// Says to the same that another process has the gateway, and how long that one has players
    /// wait.
    #[cold]
    pub(crate) fn tell_taken_over(&mut self, generation: u32) {
        for at in self.common.links.all.ids() {
            let link = self.common.links.get_mut(at).filter(|it| is_told_more(it));
            if let Some(backend) = link.and_then(|link| link.backend) {
                self.tell_link(at, |writer| writer.taken_over(generation));
                self.tell_players(at, backend);
            }
        }
    }

    /// Says goodbye to every link: the gateway is about to go.
    pub(crate) fn say_goodbye(&mut self) {
        let goodbye = Goodbye { reason: GoodbyeReason::Shutdown, error: None };
        for link in self.common.links.all.ids() {
            self.append(link, Load::NONE, |writer| writer.goodbye(goodbye));
        }
    }

    /// Looks whether udp backends that were gone are back: an empty datagram that the kernel does
    /// not refuse for a while means that a process listens again.
    pub(crate) fn probe_backends(&mut self) {
        if self.now.mono_ns < self.common.links.next_probe_ns {
            return;
        }
        self.common.links.next_probe_ns = u64::MAX;
        for backend in self.common.links.backends.ids() {
            self.probe_backend(backend);
            let due_ns = match self.common.links.backends[backend].probe_due_ns() {
                None => continue,
                // It is not probed here, and only looked at in case it is retired.
                Some(_) if self.common.server_front(backend).asks_servers() => {
                    self.now.mono_ns + PROBE_EVERY_NS
                }
                Some(due_ns) => due_ns,
            };
            self.common.links.next_probe_ns = self.common.links.next_probe_ns.min(due_ns);
        }
    }

    fn probe_backend(&mut self, backend: BackendId) {
        let state = &self.common.links.backends[backend];
        let (false, Some(address)) = (state.is_up(), state.address) else { return };
        if self.common.setup.backends[backend].retired && self.common.claims.players(backend) == 0 {
            // No player waits for it, and what listens there one day may be another program.
            return self.common.links.backends[backend].come_back();
        }
        if self.common.server_front(backend).asks_servers() {
            // Its front asks it, in the protocol of the game.
            return;
        }
        let can_probe = is_shared_socket_backend(&address.into());
        match Probe::next(state, can_probe, self.now.mono_ns) {
            Probe::Answered => self.common.links.backends[backend].come_back(),
            Probe::Due => {
                self.common.links.backends[backend].probe_open = true;
                self.common.links.backends[backend].probed_ns = self.now.mono_ns;
                self.send_probe(address);
            }
            Probe::Wait => {}
        }
    }

    fn send_probe(&mut self, address: Endpoint) {
        let Some(socket) = self.common.links.udp else { return };
        let target = TxTarget { socket, peer: Some(address), source: LocalIp::UNSPECIFIED };
        self.send_raw(&[], target, Tag::Probe);
    }
}

/// Whether a process is a backend, and may be told more than the first release knew.
fn is_told_more(link: &Link) -> bool {
    link.backend.is_some() && link.version >= VERSION_SKIPPABLE
}

/// For writers of any lifetime, which the method itself is not.
fn undrained(writer: &mut Writer<'_>) -> bool {
    writer.undrained()
}

/// Links of all users that may connect, on which nobody has said yet which backend it is.
const NAMELESS_MAX: usize = 1024;
