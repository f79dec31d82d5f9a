//! Tasks that rest because another process is about to go on with what they have. Nothing is asked
//! of etcd by then, and what game processes say waits in the kernel; if the other process does not
//! go on, these do.

use std::sync::mpsc as threads;
use std::time::Duration;

use ringgate_fleet::copy;
use ringgate_fleet::lease::{self, Handed, Registration};
use ringgate_fleet::mirror;
use ringgate_os::clock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{LAST_WORDS, Part, Say, Watched, lock};
use crate::hosting::handed::{HandedPlayers, Heirloom, Record};
use crate::membership::announced::Door;

/// Tasks that can rest.
pub(super) struct Busy {
    say: Say,
    registration: JoinHandle<Registration>,
    door: Option<JoinHandle<Door>>,
    rest: watch::Sender<bool>,
}

/// Somebody wants them to.
#[derive(Debug)]
pub(super) struct Asked {
    give: threads::Sender<Result<Heirloom, String>>,
    /// Hears of it if another process goes on, and nothing otherwise.
    leave: oneshot::Receiver<()>,
}

/// Who waits for them to rest.
pub(super) struct Awaited {
    given: threads::Receiver<Result<Heirloom, String>>,
    leave: oneshot::Sender<()>,
}

/// Tasks that rest, and what they have. Dropped, they go on.
#[derive(Debug)]
pub struct Resting {
    /// What another process has to get.
    pub heirloom: Heirloom,
    leave: oneshot::Sender<()>,
}

impl Resting {
    /// Another process has it all.
    pub fn leave(self) {
        // Tasks that are gone do not go on either.
        let _ = self.leave.send(());
    }
}

impl Asked {
    pub(super) fn new() -> (Self, Awaited) {
        let (give, given) = threads::channel();
        let (tell, leave) = oneshot::channel();
        (Self { give, leave }, Awaited { given, leave: tell })
    }
}

impl Awaited {
    pub(super) fn wait(self) -> Result<Resting, String> {
        let given = self.given.recv_timeout(REST_WITHIN);
        let heirloom = given.map_err(|_| "what speaks with etcd does not rest in time")??;
        Ok(Resting { heirloom, leave: self.leave })
    }
}

impl Busy {
    pub(super) fn new(
        say: Say,
        registration: JoinHandle<Registration>,
        (door, rest): (Option<JoinHandle<Door>>, watch::Sender<bool>),
    ) -> Self {
        Self { say, registration, door, rest }
    }

    /// What the registration is told by.
    pub(super) const fn say(&self) -> &Say {
        &self.say
    }

    /// Takes the registration back, and waits for that a little.
    pub(super) async fn end(self) {
        drop(self.say.send(lease::run::Command::Stop).await);
        drop(timeout(LAST_WORDS, self.registration).await);
        if let Some(door) = self.door {
            door.abort();
        }
    }

    async fn rest(self) -> (Registration, Option<Door>) {
        let Self { say, registration, door, rest } = self;
        drop(say);
        rest.send_replace(true);
        let registration = registration.await.expect(WHOLE);
        let door = match door {
            Some(door) => Some(door.await.expect(WHOLE)),
            None => None,
        };
        (registration, door)
    }
}

impl Part {
    /// Rests until it is known who goes on: `None` where another process does.
    pub(super) async fn rest(
        &self,
        busy: Busy,
        mirror: &mpsc::Sender<mirror::run::Command>,
        asked: Asked,
    ) -> Option<Busy> {
        let (registration, door) = busy.rest().await;
        let copy = self.copy(mirror).await;
        let _ = asked.give.send(self.heirloom(&registration, door.as_ref(), &copy));
        match asked.leave.await {
            Ok(()) => None,
            Err(_) => Some(self.set_to_work(registration, door)),
        }
    }

    /// What is known by now; nothing where that is not told in time, and then the file has to do.
    async fn copy(&self, mirror: &mpsc::Sender<mirror::run::Command>) -> Vec<u8> {
        let (reply, told) = oneshot::channel();
        let asked = mirror.try_send(mirror::run::Command::Tell(reply)).is_ok();
        match timeout(TELLS_WITHIN, told).await {
            Ok(Ok(truth)) if asked => {
                let prefix = self.settings.keyspace.gateways();
                copy::encode(&prefix, &truth, clock::unix_seconds())
            }
            _ => Vec::new(),
        }
    }

    fn heirloom(
        &self,
        registration: &Registration,
        door: Option<&Door>,
        copy: &[u8],
    ) -> Result<Heirloom, String> {
        let mut record = self.record(registration);
        let sockets = match door {
            Some(door) => record.seat(door).map_err(|why| why.to_string())?,
            None => Vec::new(),
        };
        Ok(Heirloom::new(&record, copy, sockets))
    }

    fn record(&self, registration: &Registration) -> Record {
        lock(&self.book).note_joins(self.agent.rolls().take_joins());
        let Handed { lease, former, keys } = registration.handed();
        let shared = lock(&self.shared);
        let chosen = shared.gateways.chosen().iter();
        let (wanted, now_ns) = (self.wanted.as_ref(), self.agent.clock().now_ns());
        Record {
            started_s: self.started_s,
            lease,
            former,
            keys: keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect(),
            leases_lost: shared.status.leases_lost,
            copies: shared.status.copies,
            chosen: chosen.map(|(name, at)| (name.clone(), at.to_string())).collect(),
            wanted: wanted.map(|all| all.iter().map(ToString::to_string).collect()),
            watched: shared.watched.iter().map(Watched::hand_over).collect(),
            book: lock(&self.book).hand_over(),
            players: Some(HandedPlayers::of(self.agent.rolls().hand_over(now_ns))),
            has_door: false,
            seated: Vec::new(),
        }
    }
}

/// Of both tasks.
const WHOLE: &str = "nobody aborts the task, and a panic in it is this one's too";

/// The last question to etcd, the last answers to game processes, and what the mirror tells.
const REST_WITHIN: Duration = Duration::from_secs(5);

/// It waits for nothing but its turn.
const TELLS_WITHIN: Duration = Duration::from_millis(500);
