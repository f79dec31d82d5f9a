//! A server of the plain game on a bundle link: what it is told of players without a client id, and
//! what it must never be told.

use std::collections::{HashMap, VecDeque};

use crate::judge::Judge;
use ringgate_batch::{SendFailure, SocketId};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{Hello, OpenedPlain, SessionId, ToGame, VERSION_PLAIN, Writer};

/// The server, alive or not.
pub(super) struct PlainLinks {
    name: String,
    slots: u32,
    /// By worker.
    links: Vec<Option<Link>>,
    /// Players that were announced, and the slot that each has been told with.
    guests: HashMap<SessionId, Option<u32>>,
    pub(super) dead_until_ns: u64,
    pub(super) stalled_until_ns: u64,
}

struct Link {
    socket: SocketId,
    /// Datagrams that were not read yet.
    unread: VecDeque<Vec<u8>>,
    is_welcome: bool,
}

impl PlainLinks {
    pub(super) fn new(name: String, slots: u32, workers: usize) -> Self {
        Self {
            name,
            slots,
            links: (0..workers).map(|_| None).collect(),
            guests: HashMap::new(),
            dead_until_ns: 0,
            stalled_until_ns: 0,
        }
    }

    /// How many players it knows.
    pub(super) fn guest_count(&self) -> usize {
        self.guests.len()
    }

    /// Whether it has a link to a worker, and through which of the worker's sockets.
    pub(super) fn socket(&self, worker: usize) -> Option<SocketId> {
        self.links[worker].as_ref().map(|link| link.socket)
    }

    /// Connects to a worker; returns what it says first.
    pub(super) fn connect(&mut self, worker: usize, socket: SocketId) -> Vec<u8> {
        self.links[worker] = Some(Link { socket, unread: VecDeque::new(), is_welcome: false });
        let hello = Hello::new(1, &self.name);
        bundle(|writer| writer.hello(&hello))
    }

    /// Dies. Returns the sockets that were connected to it, with their workers.
    pub(super) fn die(&mut self, until_ns: u64) -> Vec<(usize, SocketId)> {
        self.dead_until_ns = until_ns;
        self.guests.clear();
        let links = self.links.iter_mut().enumerate();
        links.filter_map(|(worker, link)| Some((worker, link.take()?.socket))).collect()
    }

    /// The gateway has closed a link.
    pub(super) fn lose(&mut self, worker: usize, socket: SocketId) {
        if self.socket(worker) == Some(socket) {
            self.links[worker] = None;
            self.guests.retain(|session, _| session.worker() != worker);
        }
    }

    /// A bundle from a worker.
    pub(super) fn fill(
        &mut self,
        worker: usize,
        socket: SocketId,
        bytes: &[u8],
        unread_max: usize,
    ) -> Result<(), SendFailure> {
        let link = self.links[worker].as_mut().filter(|link| link.socket == socket);
        let link = link.ok_or(SendFailure::Gone)?;
        if link.unread.len() >= unread_max {
            return Err(SendFailure::Full);
        }
        link.unread.push_back(bytes.to_vec());
        Ok(())
    }

    /// Reads all that has come from a worker. Returns what players have said.
    pub(super) fn read(&mut self, worker: usize, judge: &mut Judge) -> Vec<(SessionId, Vec<u8>)> {
        let Some(link) = &mut self.links[worker] else { return Vec::new() };
        let unread = std::mem::take(&mut link.unread);
        let mut said = Vec::new();
        for datagram in unread {
            for record in ToGame::read(&datagram) {
                let Ok(record) = record else {
                    judge.require(false, || "the gateway broke the bundle format".to_owned());
                    return said;
                };
                said.extend(self.read_record(worker, &record, judge));
            }
        }
        said
    }

    fn read_record(
        &mut self,
        worker: usize,
        record: &ToGame<'_>,
        judge: &mut Judge,
    ) -> Option<(SessionId, Vec<u8>)> {
        let link = self.links[worker].as_mut()?;
        let is_first = !std::mem::replace(&mut link.is_welcome, true);
        match *record {
            ToGame::Welcome(welcome) => {
                let is_right = is_first && usize::from(welcome.worker) == worker;
                judge.require(is_right && welcome.version >= VERSION_PLAIN, || {
                    format!("{welcome:?} at worker {worker}")
                });
            }
            ToGame::OpenedPlain(opened) => self.meet(worker, &opened, judge),
            ToGame::Closed { session, .. } => {
                let was_known = self.guests.remove(&session).is_some();
                judge.require(was_known, || format!("{session} was closed and never opened"));
            }
            ToGame::Payload { session, bytes } => {
                let is_known = self.guests.contains_key(&session);
                judge.require(is_known, || format!("a payload of {session}, whom it never met"));
                return Some((session, bytes.to_vec()));
            }
            ToGame::Pong { .. }
            | ToGame::Draining { .. }
            | ToGame::Undrained
            | ToGame::Goodbye(_) => {}
            ToGame::Opened(_) | ToGame::Unknown(_) => {
                judge.require(false, || format!("{record:?} is nothing for a plain game"));
            }
        }
        None
    }

    /// A player is announced while it is half open, again once it has a slot, and no more.
    fn meet(&mut self, worker: usize, opened: &OpenedPlain<'_>, judge: &mut Judge) {
        let before = self.guests.insert(opened.session, opened.slot);
        let is_news = match before {
            None => true,
            Some(slot) => slot.is_none() && opened.slot.is_some(),
        };
        judge.require(is_news, || format!("{opened:?}, known with {before:?}"));
        let is_possible = opened.slot.is_none_or(|slot| slot < self.slots);
        let is_ours = opened.session.worker() == worker && opened.slots_max == self.slots;
        judge.require(is_possible && is_ours, || format!("{opened:?} from worker {worker}"));
    }
}

/// What the server answers one player.
pub(super) fn answer(session: SessionId, payload: &[u8]) -> Vec<u8> {
    bundle(|writer| writer.payload(session, payload))
}

fn bundle(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let written = write(&mut writer);
    debug_assert!(written, "one record fits a bundle");
    writer.bytes().to_vec()
}
