//! Tasks that rest because another process is about to go on with what they have. Nothing is asked
//! of etcd by then, and what game processes say waits in the kernel; if the other process does not
//! go on, these do.

use std::sync::mpsc as threads;
use std::time::Duration;

use ringgate_fleet::copy;
use ringgate_fleet::lease::Registration;
use ringgate_fleet::member::lock;
use ringgate_os::clock;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{Part, Watched};
use crate::hosting::handed::{HandedPlayers, Heirloom, Record};
use crate::membership::announced::{Door, Registry};

/// What serves game processes, and can rest.
pub(super) struct Serving {
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

impl Serving {
    pub(super) fn new(door: Option<Door>, registry: &Registry) -> Self {
        let (rest, rests) = watch::channel(false);
        Self { door: door.map(|door| registry.serve(door, rests)), rest }
    }

    pub(super) fn end(self) {
        if let Some(door) = self.door {
            door.abort();
        }
    }

    async fn rest(self) -> Option<Door> {
        self.rest.send_replace(true);
        Some(self.door?.await.expect(WHOLE))
    }
}

impl Part {
    /// Rests until it is known who goes on: `None` where another process does.
    pub(super) async fn rest(&mut self, serving: Serving, asked: Asked) -> Option<Serving> {
        let registration = self.member.rest().await.expect(WHOLE);
        let door = serving.rest().await;
        let copy = self.copy().await;
        let _ = asked.give.send(self.heirloom(&registration, door.as_ref(), &copy));
        if asked.leave.await.is_ok() {
            return None;
        }
        self.member.go_on(registration);
        Some(Serving::new(door, &self.registry))
    }

    /// What is known by now; nothing where that is not told in time, and then the file has to do.
    async fn copy(&self) -> Vec<u8> {
        match self.member.truth().await {
            Some(truth) => copy::encode(&self.member.plan().prefix, &truth, clock::unix_seconds()),
            None => Vec::new(),
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
        self.registry.book().note_joins(self.agent.rolls().take_joins());
        let seat = lock(&self.seat);
        let (status, hosting) = (&seat.state.status, &seat.role);
        let chosen = hosting.gateways.chosen().iter();
        let (wanted, now_ns) = (self.wanted.as_ref(), self.agent.clock().now_ns());
        Record {
            started_s: hosting.started_s,
            registration: registration.handed(),
            leases_lost: status.leases_lost,
            copies: status.copies,
            remembers: seat.state.remembers(),
            chosen: chosen.map(|(name, at)| (name.clone(), at.to_string())).collect(),
            wanted: wanted.map(|all| all.iter().map(ToString::to_string).collect()),
            watched: hosting.watched.iter().map(Watched::hand_over).collect(),
            book: self.registry.book().hand_over(),
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
