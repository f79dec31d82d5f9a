//! Connections at an address that have not said who they are: few, and for a few seconds.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use crate::gateway::crowd;
use crate::protocol::control::Reason;
use crate::protocol::tls;
use crate::socket::{Door, End, Guest, Hello};
use ringgate_os::notify::{Epoll, Ready};
use ringgate_os::sparing::OnceASecond;

/// In the set: the door has connections.
pub(crate) const CONNECTIONS: u64 = 1;
/// In the set: it has datagrams.
pub(crate) const DATAGRAMS: u64 = 2;

/// A door, and the connections that have come through it.
pub(crate) struct Guests {
    pub(crate) door: Door,
    /// By their numbers in the set.
    waiting: HashMap<u64, Guest>,
    next: u64,
    /// From one number in the set to the next.
    step: u64,
    /// Nobody is let in before this: the kernel had no descriptor left.
    closed_until_ns: u64,
    told: HashMap<&'static str, OnceASecond>,
}

/// A connection that is turned away, or could not be taken.
pub(crate) struct TurnedAway {
    pub(crate) why: &'static str,
    pub(crate) peer: Option<SocketAddr>,
    /// More words, where there are any.
    pub(crate) more: String,
}

impl TurnedAway {
    pub(crate) const fn new(why: &'static str, peer: Option<SocketAddr>) -> Self {
        Self { why, peer, more: String::new() }
    }
}

impl Guests {
    /// Listens at a door. Numbers in the set are multiples of `step`, from the first that is above
    /// the door's.
    pub(crate) fn new(door: Door, step: u64, epoll: &Epoll) -> io::Result<Self> {
        let [connections, datagrams] = door.sockets();
        epoll.add(connections, CONNECTIONS)?;
        epoll.add(datagrams, DATAGRAMS)?;
        let next = (DATAGRAMS / step + 1) * step;
        let (waiting, told) = (HashMap::new(), HashMap::new());
        Ok(Self { door, waiting, next, step, closed_until_ns: 0, told })
    }

    /// A number in the set that nothing has had.
    pub(crate) const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += self.step;
        number
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    /// Lets connections in, to whom `own` proves who it is.
    pub(crate) fn accept(
        &mut self,
        own: Option<&tls::Gateway>,
        epoll: &Epoll,
        now_ns: u64,
    ) -> Vec<TurnedAway> {
        let mut away = Vec::new();
        for _ in 0..ACCEPTS_MAX {
            let came = match self.door.accept() {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(_) => {
                    away.push(self.close_for_now(epoll, now_ns));
                    break;
                }
            };
            let Some(own) = own else {
                away.push(TurnedAway::new(Reason::UnknownAgent.name(), Some(came.1)));
                break;
            };
            if self.waiting.len() == GUESTS_MAX {
                let guests = self.waiting.iter().map(|(number, it)| (*number, it.peer().ip()));
                let first = crowd::in_the_way(guests).and_then(|it| self.waiting.remove(&it));
                away.push(TurnedAway::new("crowded", first.map(|it| it.peer())));
            }
            let number = self.number();
            match Guest::new(own, came, (epoll, number), now_ns) {
                Ok(guest) => drop(self.waiting.insert(number, guest)),
                Err(_) => {
                    away.push(TurnedAway::new("no_descriptor", None));
                    break;
                }
            }
        }
        away
    }

    /// Without a descriptor no connection can be let in, and the kernel would say again and again
    /// that one waits.
    fn close_for_now(&mut self, epoll: &Epoll, now_ns: u64) -> TurnedAway {
        self.closed_until_ns = now_ns + CLOSED_NS;
        let _ = epoll.watch_for_input(self.door.sockets()[0], CONNECTIONS, false);
        TurnedAway::new("no_descriptor", None)
    }

    /// Hears what a guest says, which goes with its number once it has said who it is.
    pub(crate) fn hear(
        &mut self,
        ready: Ready,
        epoll: &Epoll,
    ) -> Result<Option<(Guest, Hello)>, TurnedAway> {
        let Some(guest) = self.waiting.get_mut(&ready.token) else { return Ok(None) };
        let said = guest.handle_ready(epoll, ready.token);
        if matches!(said, Ok(None)) {
            return Ok(None);
        }
        let guest = self.waiting.remove(&ready.token).expect("it was just there");
        match said {
            Ok(hello) => Ok(hello.map(|hello| (guest, hello))),
            Err(end @ (End::Failed(_) | End::Ours(_))) => Err(TurnedAway {
                more: end.to_string(),
                ..TurnedAway::new(end.name(), Some(guest.peer()))
            }),
            Err(_) => Ok(None),
        }
    }

    /// Opens a door that was closed, and turns those away who are slow.
    pub(crate) fn pass_time(&mut self, epoll: &Epoll, now_ns: u64) -> Vec<TurnedAway> {
        if self.closed_until_ns != 0 && now_ns >= self.closed_until_ns {
            self.closed_until_ns = 0;
            let _ = epoll.watch_for_input(self.door.sockets()[0], CONNECTIONS, true);
        }
        let is_slow = |guest: &Guest| now_ns.saturating_sub(guest.since_ns()) >= PROVEN_WITHIN_NS;
        let slow = self.waiting.extract_if(|_, guest| is_slow(guest));
        slow.map(|(_, guest)| TurnedAway::new("slow", Some(guest.peer()))).collect()
    }

    /// Whether that is to be told: once a second for each reason.
    pub(crate) fn is_told(&mut self, why: &'static str, now_ns: u64) -> bool {
        self.told.entry(why).or_default().is_told_at(now_ns)
    }
}

/// Connections at a time that have not said who they are.
const GUESTS_MAX: usize = 64;
const PROVEN_WITHIN_NS: u64 = 5_000_000_000;
const CLOSED_NS: u64 = 1_000_000_000;
const ACCEPTS_MAX: usize = 16;
