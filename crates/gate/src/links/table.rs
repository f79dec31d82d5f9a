//! All links and backends of a worker.

use crate::counters::LinkRefusal;
use crate::ids::{BackendId, IdVec, LinkId};
use crate::links::state::{BackendState, Link};
use crate::setup::{Allowed, Credentials};
use ringgate_batch::SocketId;
use ringgate_link::bundle::Arbitrated;

pub(crate) struct Links {
    pub(crate) all: IdVec<LinkId, Option<Link>>,
    /// How many processes have connected.
    pub(crate) connected_count: u64,
    pub(crate) backends: IdVec<BackendId, BackendState>,
    /// When to look for udp backends that are gone; `u64::MAX` while none is.
    pub(crate) next_probe_ns: u64,
    /// Links that a bundle was opened for since the last submit; some may have closed it again.
    pub(crate) open: Vec<LinkId>,
    /// Links to which a flush could not send, until the stage is over.
    pub(crate) broken: Vec<LinkId>,
    /// Some link may not have said who it is, or has deferred records.
    pub(crate) has_unsettled: bool,
    /// Links whose sockets are not read because the gate is behind with what they say.
    pub(crate) held_count: u32,
    /// The link that is served first.
    pub(crate) first_backlog: usize,
    /// What each link may ask for in this turn.
    pub(crate) share: u32,
    pub(crate) turn_number: u64,
    pub(crate) multicasts: Multicasts,
    /// Who may connect at all: the processes that one backend or another allows.
    pub(crate) may_connect: Allowed,
    /// The process whose link was closed last, by reason.
    pub(crate) last_refused: [Option<Credentials>; LinkRefusal::COUNT],
    /// Carries all players to udp backends on loopback.
    pub(crate) udp: Option<SocketId>,
}

/// Finds sessions that a multicast names twice.
pub(crate) struct Multicasts {
    /// The last multicast that has named each session.
    seen: Vec<u32>,
    serial: u32,
}

impl Links {
    /// For sessions that have so many places.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            all: IdVec::new(),
            connected_count: 0,
            backends: IdVec::new(),
            next_probe_ns: u64::MAX,
            open: Vec::new(),
            broken: Vec::new(),
            has_unsettled: false,
            held_count: 0,
            first_backlog: 0,
            share: 0,
            turn_number: 0,
            multicasts: Multicasts { seen: vec![0; places], serial: 0 },
            may_connect: Allowed::default(),
            last_refused: [None; LinkRefusal::COUNT],
            udp: None,
        }
    }

    /// A link that is still there.
    #[inline]
    pub(crate) fn get_mut(&mut self, link: LinkId) -> Option<&mut Link> {
        self.all.get_mut(link)?.as_mut()
    }

    /// Whether what is spoken on a link has what that version has brought.
    pub(crate) fn speaks(&self, link: LinkId, version: u16) -> bool {
        self.all[link].as_ref().is_some_and(|link| link.version >= version)
    }

    /// Whether what is at the other end of a link says which gateway of a cluster has such players
    /// of its game process.
    #[inline]
    pub(crate) fn arbitrates(&self, link: LinkId, which: Arbitrated) -> bool {
        self.all[link].as_ref().is_some_and(|link| link.arbitrates[which as usize])
    }

    /// The link of a backend, if the process at its other end is still there.
    #[inline]
    pub(crate) fn live(&self, backend: BackendId) -> Option<LinkId> {
        self.backends[backend]
            .link
            .filter(|link| self.all[*link].as_ref().is_some_and(|link| !link.hung_up))
    }

    /// When to look at links again, after a turn at `turned_ns`; `u64::MAX` while nothing is due.
    pub(crate) fn due_ns(&self, turned_ns: u64) -> u64 {
        let mut due_ns = self.next_probe_ns;
        if self.has_unsettled {
            let links = self.all.iter().flatten().filter_map(|link| link.due_ns(turned_ns));
            due_ns = links.fold(due_ns, u64::min);
        }
        if self.held_count > 0 { due_ns.min(turned_ns) } else { due_ns }
    }
}

impl Multicasts {
    /// A number that no multicast of late has had.
    pub(crate) fn begin(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        if self.serial == 0 {
            self.seen.fill(0);
            self.serial = 1;
        }
        self.serial
    }

    /// The sessions that a multicast has named so far.
    pub(crate) fn named_by(&self, serial: u32) -> Vec<u32> {
        let named = (0..).zip(&self.seen).filter(|(_, seen)| **seen == serial);
        named.map(|(session, _)| session).collect()
    }

    /// Whether a multicast has named a session before, which is noted.
    #[inline]
    pub(crate) fn names_again(&mut self, serial: u32, session: u32) -> bool {
        let seen = self.seen.get_mut(session as usize);
        seen.is_some_and(|seen| std::mem::replace(seen, serial) == serial)
    }
}
