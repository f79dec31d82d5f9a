//! What a successor has to know of its predecessor before anything else: whether it can read its
//! state, and what numbers mean.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::handover::record::{
    Kind, Refused, Sink, Whose, check_beginning, first_record, take_records,
};
use crate::setup::{Backend, Listener, Phase, Protocol, Setup};
use crate::shared::fleet_players::FleetPlayers;
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Carry, Maps, Reader};
use ringgate_core::proto::unreal::prefix::Framing;

/// What a process says about itself and its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Format {
    /// Its release, for people.
    pub release: String,
    /// Tells this boot of the host from others: moments of the monotonic clock are of one boot.
    pub boot_id: [u8; 16],
    /// How many workers it has.
    pub workers: u16,
    /// Tells game processes that it is the same gateway.
    pub incarnation: u64,
    /// Sessions of one worker.
    sessions_max: u64,
    /// Places of one worker's sessions.
    places: u64,
    /// Unfinished handshakes of one worker.
    pending_max: u64,
    listeners: Vec<ListenerFormat>,
    backends: Vec<BackendFormat>,
}

ringgate_core::carried!(Format {
    release,
    boot_id,
    workers,
    incarnation,
    sessions_max,
    places,
    pending_max,
    listeners,
    backends,
});

/// Listeners that are not found by their names, because they drain: the number here of each, by the
/// one that it had in the process before.
pub type Kept = BTreeMap<u16, u16>;

/// What must not change about a listener, for its sessions to be carried.
#[derive(Clone, Debug, PartialEq)]
struct ListenerFormat {
    name: String,
    protocol: String,
    /// netcode: what packets are bound to.
    protocol_id: u64,
    /// Unreal: how packets begin.
    framing: Option<Framing>,
}

ringgate_core::carried!(ListenerFormat { name, protocol, protocol_id, framing });

/// What makes a backend the same one.
#[derive(Clone, Debug, PartialEq)]
struct BackendFormat {
    name: String,
    /// Where it listens; `None` for one that connects to us.
    address: Option<Endpoint>,
}

ringgate_core::carried!(BackendFormat { name, address });

impl Format {
    /// What a process with that setup and so many workers says.
    pub fn of(setup: &Setup, workers: u16, boot_id: [u8; 16]) -> Self {
        Self {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id,
            workers,
            incarnation: setup.incarnation,
            sessions_max: setup.worker_sessions_max as u64,
            places: setup.worker_places() as u64,
            pending_max: setup.worker_pending_max as u64,
            listeners: setup.listeners.iter().map(ListenerFormat::of).collect(),
            backends: setup.backends.iter().map(BackendFormat::of).collect(),
        }
    }

    /// Sets as much memory aside for sessions as the other process has: it may have begun with more
    /// listeners than there are since a reload.
    pub fn reserve(&self, setup: &mut Setup) {
        let sessions = usize::try_from(self.sessions_max).unwrap_or(usize::MAX);
        if sessions > setup.worker_sessions_max {
            setup.reserve_sessions(sessions);
            let players = || Arc::new(FleetPlayers::new(setup.claim_limits().sessions_max));
            setup.fleet_players = setup.fleet_players.as_ref().map(|_| players());
        }
    }

    /// The number and the name of each listener that has not closed.
    pub fn listeners(&self) -> impl Iterator<Item = (u16, &str)> {
        let open = (0..).zip(&self.listeners).filter(|(_, it)| it.protocol != CLOSED);
        open.map(|(number, it)| (number, it.name.as_str()))
    }

    /// Begins the shared stream.
    pub fn write(&self, sink: &mut Sink<'_>) -> Result<(), Refused> {
        sink.begin(Whose::SHARED)?;
        sink.append(Kind::Format, |out| Carry::write(self, out))
    }

    /// Reads the beginning of the shared stream. Returns how many bytes it has.
    pub fn read(bytes: &[u8]) -> Result<(Self, usize), Refused> {
        let start = check_beginning(bytes, Whose::SHARED)?;
        let mut format = None;
        let (head, maps) = (first_record(&bytes[start..]), Maps::default());
        let len = take_records(head, |kind, body| {
            if kind != Kind::Format {
                return Err(Refused::Stranger);
            }
            let mut from = Reader::new(body, &maps);
            let read = <Self as Carry>::read(&mut from).and_then(|it| from.end().map(|()| it));
            format = Some(read.map_err(|why| Refused::Broken(why, kind.what()))?);
            Ok(())
        })?;
        format.map(|format| (format, start + len)).ok_or(Refused::Stranger)
    }

    /// Whether this process can go on with what another one has. Says why not, or what its numbers
    /// mean here; sockets are missing in that.
    pub fn compatible(&self, predecessor: &Self, kept: &Kept) -> Result<Maps, String> {
        let mut why = String::new();
        if self.boot_id != predecessor.boot_id {
            why.push_str("the running process's state is of another boot of the host; ");
        }
        let mut mismatch = |what: &str, theirs: String, ours: String| {
            let _ = write!(why, "{what}: the running process has {theirs}, this one {ours}; ");
        };
        for (what, theirs, ours) in [
            ("workers", u64::from(predecessor.workers), u64::from(self.workers)),
            ("incarnation", predecessor.incarnation, self.incarnation),
        ] {
            if theirs != ours {
                mismatch(what, theirs.to_string(), ours.to_string());
            }
        }
        for (what, theirs, ours) in [
            ("sessions of a worker", predecessor.sessions_max, self.sessions_max),
            ("places of a worker", predecessor.places, self.places),
            ("handshakes of a worker", predecessor.pending_max, self.pending_max),
        ] {
            if theirs > ours {
                mismatch(what, theirs.to_string(), format!("only {ours}"));
            }
        }
        for (number, theirs) in (0..).zip(&predecessor.listeners) {
            let ours = self.listener(number, kept, |ours| ours.name == theirs.name);
            let ours = ours.and_then(|at| self.listeners.get(usize::from(at)));
            if let Some(ours) = ours.filter(|ours| *ours != theirs) {
                let (theirs, ours) = (theirs.rules(), ours.rules());
                mismatch(&format!("the rules of listener {:?}", theirs.0), theirs.1, ours.1);
            }
        }
        if !why.is_empty() {
            return Err(sentence(&why));
        }
        let number = |(number, theirs): (u16, &ListenerFormat)| {
            let found = self.listener(number, kept, |ours| ours == theirs);
            found.filter(|_| theirs.protocol != CLOSED)
        };
        let listeners = (0..).zip(&predecessor.listeners).map(number).collect();
        Ok(Maps { listeners, ..self.map_backends(predecessor) })
    }

    /// What the numbers of another process's backends mean here.
    pub fn map_backends(&self, predecessor: &Self) -> Maps {
        let backend = |theirs: &BackendFormat| {
            self.backends.iter().position(|ours| ours.is_same(theirs)).map(|at| at as u16)
        };
        Maps { backends: predecessor.backends.iter().map(backend).collect(), ..Maps::default() }
    }

    /// The number of a listener of another process's: the one that was kept for it, or else one
    /// that is found and was kept for no other.
    fn listener(
        &self,
        theirs: u16,
        kept: &Kept,
        is_it: impl Fn(&ListenerFormat) -> bool,
    ) -> Option<u16> {
        let is_free = |at: &u16| !kept.values().any(|number| number == at);
        let found = || (0..).zip(&self.listeners).find(|(at, ours)| is_free(at) && is_it(ours));
        kept.get(&theirs).copied().or_else(|| found().map(|(at, _)| at))
    }
}

fn sentence(why: &str) -> String {
    why.trim_end_matches("; ").to_owned()
}

impl ListenerFormat {
    fn of(listener: &Listener) -> Self {
        let (mut protocol_id, mut framing) = (0, None);
        let protocol = match &listener.protocol {
            Protocol::Netcode(rules) => {
                protocol_id = rules.protocol_id;
                "netcode"
            }
            Protocol::Unreal(rules) => {
                framing = Some(rules.framing);
                "unreal"
            }
            Protocol::Plain(_) => "plain",
            #[cfg(test)]
            Protocol::Third => "third",
        };
        if listener.phase == Phase::Closed {
            // It has no sessions, and its name may be another's by now.
            let (name, protocol) = (String::new(), CLOSED.to_owned());
            return Self { name, protocol, protocol_id: 0, framing: None };
        }
        let (name, protocol) = (listener.name.clone(), protocol.to_owned());
        Self { name, protocol, protocol_id, framing }
    }

    fn rules(&self) -> (&str, String) {
        let Self { name, protocol, protocol_id, framing } = self;
        let rules = format!("{protocol}, {protocol_id:#x}, {framing:?}");
        (name, rules)
    }
}

impl BackendFormat {
    fn of(backend: &Backend) -> Self {
        Self { name: backend.name.clone(), address: backend.address().map(endpoint_of) }
    }

    /// As [`Backend::is_same`] says.
    fn is_same(&self, other: &Self) -> bool {
        match (self.address, other.address) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.name == other.name,
            _ => false,
        }
    }
}

/// What is spoken at a listener that has gone.
const CLOSED: &str = "closed";

fn endpoint_of(address: SocketAddr) -> Endpoint {
    Endpoint::from(address)
}
