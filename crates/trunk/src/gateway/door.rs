//! The thread at an address: it lets agents in that prove who they are, and hands on the first
//! datagrams of their lanes. Strangers cost it a connection of a few seconds, of which there are
//! few.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::control::Reason;
use crate::socket::{Door, Guest, Hello};
use ringgate_core::carry::Carry;
use ringgate_os::hold_point;
use ringgate_os::notify::{self, Epoll, Ready};

use crate::gateway::guests::{CONNECTIONS, DATAGRAMS, Guests, TurnedAway};
use crate::gateway::mailbox::Mailbox;
use crate::gateway::shared::Shared;
use crate::gateway::site::{self, Arrival};
use crate::socket::rest::{Order, Part, Verdict, written};

const STOP: u64 = 0;

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
    guests: Guests,
    epoll: Epoll,
    stop: Arc<Stop>,
}

impl Porter {
    pub(crate) fn new(
        shared: Arc<Shared>,
        bind: SocketAddr,
        door: Door,
        stop: Arc<Stop>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(stop.bell.as_fd(), STOP)?;
        let address = door.address()?;
        shared.at_door(bind, |shown| shown.address = Some(address));
        let guests = Guests::new(door, 1, &epoll)?;
        Ok(Self { shared, bind, guests, epoll, stop })
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
            let away = self.guests.pass_time(&self.epoll, self.now_ns());
            self.refuse_all(away);
        }
    }

    /// Gives its sockets away. Who has connected and not said who it is, comes again.
    fn rest(&self, order: Order) -> Verdict {
        let bytes = written(|out| self.bind.to_string().write(out));
        let fds = self.guests.door.sockets().into_iter().map(|fd| fd.try_clone_to_owned());
        let part = fds.collect::<io::Result<_>>().ok().map(|fds| Part { bytes, fds });
        order.rest(part).0
    }

    fn now_ns(&self) -> u64 {
        self.shared.settings.clock.now_ns()
    }

    fn accept(&mut self) {
        let (rules, now_ns) = (self.shared.rules(), self.now_ns());
        let away = self.guests.accept(rules.identity(self.bind), &self.epoll, now_ns);
        self.refuse_all(away);
    }

    fn receive(&mut self) {
        let Self { guests, shared, bind, .. } = self;
        let mut dropped: [(&str, u64); 3] = [("foreign", 0), ("elsewhere", 0), ("overflow", 0)];
        for _ in 0..BURSTS_MAX {
            let has_more = guests.door.receive(|from, datagram| {
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
        match self.guests.hear(ready, &self.epoll) {
            Ok(None) => {}
            Ok(Some((guest, hello))) => self.decide(guest, &hello),
            Err(away) => self.refuse_all([away]),
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

    fn refuse_all(&mut self, away: impl IntoIterator<Item = TurnedAway>) {
        for TurnedAway { why, peer, more } in away {
            self.refuse_saying(why, peer, &more);
        }
    }

    /// Counts a connection that became no trunk, and tells of it, once a second for each reason.
    fn refuse(&mut self, why: &'static str, peer: Option<SocketAddr>) {
        self.refuse_saying(why, peer, "");
    }

    /// The same with more words.
    fn refuse_saying(&mut self, why: &'static str, peer: Option<SocketAddr>, more: &str) {
        self.shared.at_door(self.bind, |shown| *shown.refused.entry(why).or_default() += 1);
        if self.guests.is_told(why, self.now_ns()) {
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

const BURSTS_MAX: usize = 8;
