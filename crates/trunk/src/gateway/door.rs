//! The thread at an address: it lets agents in that prove who they are, and hands on the first
//! datagrams of their lanes. Strangers cost it a connection of a few seconds, of which there are
//! few.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::control::Reason;
use crate::socket::{Door, End, Guest, Hello};
use ringgate_core::carry::Carry;
use ringgate_os::hold_point;
use ringgate_os::notify::{self, Epoll, Ready};

use crate::gateway::crowd;
use crate::gateway::mailbox::Mailbox;
use crate::gateway::shared::Shared;
use crate::gateway::site::{self, Arrival};
use crate::socket::rest::{Order, Part, Verdict, written};

const STOP: u64 = 0;
const CONNECTIONS: u64 = 1;
const DATAGRAMS: u64 = 2;
const FIRST_GUEST: u64 = 3;

/// Tells the thread to end, or to rest.
pub(crate) struct Stop {
    bell: OwnedFd,
    rest: Mutex<Option<Order>>,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { bell: notify::event_counter()?, rest: Mutex::default() })
    }

    pub(crate) fn ring(&self) {
        notify::event_add(self.bell.as_fd());
    }

    /// Has it rest; it ends where somebody else goes on.
    pub(crate) fn rest(&self, order: Order) {
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
        self.ring();
    }

    fn take(&self) -> Option<Order> {
        notify::event_take(self.bell.as_fd());
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) struct Porter {
    shared: Arc<Shared>,
    /// As the config says it.
    bind: SocketAddr,
    door: Door,
    epoll: Epoll,
    stop: Arc<Stop>,
    guests: HashMap<u64, Guest>,
    next: u64,
    /// Nobody is let in before this: the kernel had no descriptor left.
    closed_until_ns: u64,
    told_ns: HashMap<&'static str, u64>,
}

impl Porter {
    pub(crate) fn new(
        shared: Arc<Shared>,
        bind: SocketAddr,
        door: Door,
        stop: Arc<Stop>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let [connections, datagrams] = door.sockets();
        epoll.add(stop.bell.as_fd(), STOP)?;
        epoll.add(connections, CONNECTIONS)?;
        epoll.add(datagrams, DATAGRAMS)?;
        let address = door.address()?;
        shared.at_door(bind, |shown| shown.address = Some(address));
        Ok(Self {
            shared,
            bind,
            door,
            epoll,
            stop,
            guests: HashMap::new(),
            next: FIRST_GUEST,
            closed_until_ns: 0,
            told_ns: HashMap::new(),
        })
    }

    /// Until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut ready = Vec::with_capacity(64);
        loop {
            if self.epoll.wait(&mut ready, LOOK_EVERY).is_err() {
                return self.shared.forget_door(self.bind);
            }
            for ready in &ready {
                match ready.token {
                    STOP => match self.stop.take() {
                        None => return self.shared.forget_door(self.bind),
                        Some(order) => {
                            if self.rest(order) == Verdict::Leave {
                                return;
                            }
                        }
                    },
                    CONNECTIONS => self.accept(),
                    DATAGRAMS => self.receive(),
                    _ => self.handle_guest(*ready),
                }
            }
            self.send_away_slow_ones();
        }
    }

    /// Gives its sockets away. Who has connected and not said who it is, comes again.
    fn rest(&self, order: Order) -> Verdict {
        let bytes = written(|out| self.bind.to_string().write(out));
        let fds = self.door.sockets().into_iter().map(|fd| fd.try_clone_to_owned());
        let part = fds.collect::<io::Result<_>>().ok().map(|fds| Part { bytes, fds });
        order.rest(part).0
    }

    fn now_ns(&self) -> u64 {
        self.shared.settings.clock.now_ns()
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let came = match self.door.accept() {
                Ok(Some(came)) => came,
                Ok(None) => return,
                Err(_) => return self.close_for_now(),
            };
            let rules = self.shared.rules();
            let Some(gateway) = rules.identity(self.bind) else {
                return self.refuse(Reason::UnknownAgent.name(), Some(came.1));
            };
            if self.guests.len() == GUESTS_MAX {
                self.send_one_away();
            }
            let (token, now_ns) = (self.next, self.now_ns());
            match Guest::new(gateway, came, (&self.epoll, token), now_ns) {
                Ok(guest) => {
                    self.guests.insert(token, guest);
                    self.next += 1;
                }
                Err(_) => return self.refuse("no_descriptor", None),
            }
        }
    }

    /// Without a descriptor nobody can be let in, and the kernel would say again and again that
    /// somebody waits.
    fn close_for_now(&mut self) {
        self.closed_until_ns = self.now_ns() + CLOSED_NS;
        let _ = self.epoll.watch_for_input(self.door.sockets()[0], CONNECTIONS, false);
        self.refuse("no_descriptor", None);
    }

    fn receive(&mut self) {
        let Self { door, shared, bind, .. } = self;
        let mut dropped: [(&str, u64); 3] = [("foreign", 0), ("elsewhere", 0), ("overflow", 0)];
        for _ in 0..BURSTS_MAX {
            let has_more = door.receive(|from, datagram| {
                let Err(why) = shared.route(from, datagram) else { return };
                dropped.iter_mut().filter(|(name, _)| *name == why).for_each(|(_, n)| *n += 1);
            });
            if !has_more {
                break;
            }
        }
        if dropped.iter().any(|(_, count)| *count > 0) {
            shared.at_door(*bind, |shown| {
                for (name, count) in dropped {
                    *shown.dropped.entry(name).or_default() += count;
                }
            });
        }
    }

    fn handle_guest(&mut self, ready: Ready) {
        let Some(guest) = self.guests.get_mut(&ready.token) else { return };
        match guest.handle_ready(&self.epoll, ready.token) {
            Ok(None) => {}
            Ok(Some(hello)) => {
                let guest = self.guests.remove(&ready.token).expect("it was just there");
                self.decide(guest, &hello);
            }
            Err(end) => {
                let guest = self.guests.remove(&ready.token);
                let peer = guest.map(|guest| guest.peer());
                if let End::Failed(_) | End::Ours(_) = end {
                    self.refuse_saying(end.name(), peer, &end.to_string());
                }
            }
        }
    }

    fn decide(&mut self, guest: Guest, hello: &Hello) {
        let peer = guest.peer();
        let rules = self.shared.rules();
        let agent = match rules.judge(self.bind, hello) {
            Ok(rule) => rule.name.clone(),
            Err(why) => {
                guest.refuse(why);
                let foreign = hello.certified.as_ref().err().filter(|_| why == Reason::ForeignName);
                let named = || format!("it says that it is agent {}", hello.name);
                let more = foreign.cloned().unwrap_or_else(named);
                return self.refuse_saying(why.name(), Some(peer), &more);
            }
        };
        if let Err(why) = self.let_in(guest, agent, hello.version) {
            tracing::error!(event = "agent_failed", "cannot serve the agent at {peer}: {why}");
            self.refuse("no_descriptor", Some(peer));
        }
    }

    fn let_in(&mut self, guest: Guest, agent: String, version: u16) -> io::Result<()> {
        let mailbox = Arc::new(Mailbox::new()?);
        let guest = guest.leave(&self.epoll)?;
        hold_point!("gateway-trunk Enter");
        let number = match self.shared.enter(&agent, &mailbox) {
            Ok(number) => number,
            Err(why) => {
                let peer = guest.peer();
                guest.refuse(why);
                self.refuse(why.name(), Some(peer));
                return Ok(());
            }
        };
        let arrival = Arrival { guest, agent, version, number, mailbox };
        let shared = Arc::clone(&self.shared);
        let run = move || site::run(&shared, arrival);
        let started = std::thread::Builder::new().name("ringgate-trunk".to_owned()).spawn(run);
        started.map(drop).inspect_err(|_| self.shared.leave(number, None))
    }

    fn send_away_slow_ones(&mut self) {
        let now_ns = self.now_ns();
        if self.closed_until_ns != 0 && now_ns >= self.closed_until_ns {
            self.closed_until_ns = 0;
            let _ = self.epoll.watch_for_input(self.door.sockets()[0], CONNECTIONS, true);
        }
        let is_slow = |guest: &Guest| now_ns.saturating_sub(guest.since_ns()) >= PROVEN_WITHIN_NS;
        let slow: Vec<_> = self.guests.extract_if(|_, guest| is_slow(guest)).collect();
        for (_, guest) in slow {
            self.refuse("slow", Some(guest.peer()));
        }
    }

    /// There are too many: one of those who have most goes.
    fn send_one_away(&mut self) {
        let guests = self.guests.iter().map(|(token, guest)| (*token, guest.peer().ip()));
        if let Some(first) = crowd::in_the_way(guests) {
            let guest = self.guests.remove(&first);
            self.refuse("crowded", guest.map(|guest| guest.peer()));
        }
    }

    /// Counts a connection that became no trunk, and tells of it, once a second for each reason.
    fn refuse(&mut self, why: &'static str, peer: Option<SocketAddr>) {
        self.refuse_saying(why, peer, "");
    }

    /// The same with more words.
    fn refuse_saying(&mut self, why: &'static str, peer: Option<SocketAddr>, more: &str) {
        self.shared.at_door(self.bind, |shown| *shown.refused.entry(why).or_default() += 1);
        let now_ns = self.now_ns();
        let told_ns = self.told_ns.get(why).copied();
        if told_ns.is_none_or(|told_ns| now_ns.saturating_sub(told_ns) >= TELL_EVERY_NS) {
            self.told_ns.insert(why, now_ns);
            let (bind, peer) = (self.bind, peer.map(|peer| peer.to_string()).unwrap_or_default());
            tracing::warn!(
                event = "agent_refused",
                %bind,
                peer,
                reason = why,
                "a connection of {peer} to {bind} was refused: {why}{}{more}",
                if more.is_empty() { "" } else { ": " }
            );
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Connections at a time that have not said who they are.
const GUESTS_MAX: usize = 64;

const PROVEN_WITHIN_NS: u64 = 5_000_000_000;
const CLOSED_NS: u64 = 1_000_000_000;
const TELL_EVERY_NS: u64 = 1_000_000_000;
const ACCEPTS_MAX: usize = 16;
const BURSTS_MAX: usize = 8;
