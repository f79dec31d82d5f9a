//! An etcd of three members in memory, with every trouble that a real one has: members that are cut
//! off or die, answers that are slow or lost, compaction, a store that is emptied or put back to
//! what it was. It answers the bytes that etcd answers, and shares no code with those who ask but
//! the letters of protobuf.

#[path = "etcd/line.rs"]
mod line;
#[path = "etcd/messages.rs"]
mod messages;
#[path = "etcd/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringgate_fleet::etcd::{Code, Error};
use tokio::sync::{mpsc, oneshot};

use ringgate_testkit::Random;

pub(crate) use line::{client, options};
use messages::{Request, Span};
pub(crate) use store::Store;

/// Members of the cluster.
pub(crate) const MEMBERS: usize = 3;

/// An etcd that many processes share.
#[derive(Clone, Debug)]
pub(crate) struct Etcd(Arc<Mutex<Cluster>>);

/// The cluster, and what is on its way to it and from it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) now_ms: u64,
    pub(crate) store: Store,
    /// Stores that were saved, to be put back one day.
    backups: Vec<Store>,
    /// How often it has begun another history.
    histories: u64,
    members: [Member; MEMBERS],
    /// Processes that cannot reach a member: by process, a bit for each member.
    cut: BTreeMap<usize, u8>,
    /// Leases do not end.
    pub(crate) keeps_leases: bool,
    /// How long a message takes, at most.
    pub(crate) delay_ms_max: u64,
    /// Out of a thousand answers so many are lost.
    pub(crate) lost_per_mille: u32,
    random: Random,
    under_way: BTreeMap<(u64, u64), Delivery>,
    sent: u64,
    streams: Vec<Stream>,
    /// Requests that were refused because no etcd would take them.
    pub(crate) absurd: Option<String>,
    /// What was asked, for the seed's books.
    pub(crate) asked: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// It is dead.
    is_down: bool,
    /// It has no leader.
    is_alone: bool,
    /// Tells its starts apart.
    start: u64,
}

/// Whose a question is, and where it was asked.
#[derive(Clone, Copy, Debug)]
struct Way {
    process: usize,
    member: usize,
    /// Which start of the member.
    start: u64,
}

#[derive(Debug)]
enum Delivery {
    Asked(Way, Request, oneshot::Sender<Result<Bytes, Error>>),
    Answered(Way, Result<Bytes, Error>, oneshot::Sender<Result<Bytes, Error>>),
    Opened(Stream),
    Said(u64),
    Told(u64, Result<Bytes, Error>),
}

/// A watch that somebody listens to.
#[derive(Debug)]
struct Stream {
    number: u64,
    way: Way,
    kind: Kind,
    tell: mpsc::UnboundedSender<Result<Bytes, Error>>,
    /// Nothing of it arrives before what was sent earlier.
    last_ms: u64,
}

#[derive(Debug)]
enum Kind {
    Watch { key: Vec<u8>, end: Vec<u8>, next: i64 },
    KeepAlive(i64),
}

impl Etcd {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Cluster {
            now_ms: 0,
            store: Store::new(7),
            backups: Vec::new(),
            histories: 0,
            members: [Member::default(); MEMBERS],
            cut: BTreeMap::new(),
            keeps_leases: false,
            delay_ms_max: 6,
            lost_per_mille: 0,
            random: Random::new(seed ^ 0x6574_6364),
            under_way: BTreeMap::new(),
            sent: 0,
            streams: Vec::new(),
            absurd: None,
            asked: 0,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Everything that is due by now happens.
    pub(crate) fn pass(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if self.has_leader() && !self.keeps_leases {
            self.store.expire(now_ms);
        }
        while let Some(first) = self.under_way.first_entry()
            && first.key().0 <= now_ms
        {
            let delivery = first.remove();
            self.deliver(delivery);
        }
        self.pump();
    }

    fn has_leader(&self) -> bool {
        let there = self.members.iter().filter(|it| !it.is_down && !it.is_alone).count();
        there * 2 > MEMBERS
    }

    /// Whether a process and a start of a member hear of each other.
    fn is_reached(&self, way: Way) -> bool {
        let member = self.members[way.member];
        let is_cut = self.cut.get(&way.process).is_some_and(|it| it >> way.member & 1 == 1);
        !is_cut && !member.is_down && member.start == way.start
    }

    fn serves(&self, member: usize) -> bool {
        self.has_leader() && !self.members[member].is_alone
    }

    fn send(&mut self, delivery: Delivery) {
        let at_ms = self.now_ms + 1 + self.random.within(0..self.delay_ms_max);
        self.send_at(at_ms, delivery);
    }

    fn send_at(&mut self, at_ms: u64, delivery: Delivery) {
        self.sent += 1;
        self.under_way.insert((at_ms, self.sent), delivery);
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Asked(way, request, reply) => {
                if !self.is_reached(way) {
                    return self.hang_up(way, reply);
                }
                self.asked += 1;
                let answer = if self.serves(way.member) {
                    let (now_ms, member) = (self.now_ms, way.member as u64 + 1);
                    let answer = self.store.answer(now_ms, member, &request);
                    if let Err(Error::Status { code: Code::INVALID_ARGUMENT, message }) = &answer {
                        let said =
                            || format!("{message}: process {} asked {request:?}", way.process);
                        self.absurd.get_or_insert_with(said);
                    }
                    answer
                } else {
                    Err(Error::status(Code::UNAVAILABLE, "etcdserver: no leader"))
                };
                if self.random.chance(self.lost_per_mille) {
                    // It is kept open: whoever waits is told nothing until its own time is up.
                    std::mem::forget(reply);
                } else {
                    self.send(Delivery::Answered(way, answer, reply));
                }
            }
            Delivery::Answered(way, answer, reply) => {
                if self.is_reached(way) {
                    drop(reply.send(answer));
                } else {
                    self.hang_up(way, reply);
                }
            }
            Delivery::Opened(stream) => {
                if self.is_reached(stream.way) {
                    self.begin(stream);
                }
            }
            Delivery::Said(number) => self.answer_progress(number),
            Delivery::Told(number, message) => {
                let Some(at) = self.streams.iter().position(|it| it.number == number) else {
                    return;
                };
                if !self.is_reached(self.streams[at].way) {
                    return;
                }
                let is_last = message.is_err();
                if self.streams[at].tell.send(message).is_err() || is_last {
                    self.streams.remove(at);
                }
            }
        }
    }

    /// A member that has died has its connections reset; one that is cut off says nothing.
    fn hang_up(&self, way: Way, reply: oneshot::Sender<Result<Bytes, Error>>) {
        let member = self.members[way.member];
        if member.is_down || member.start != way.start {
            drop(reply.send(Err(Error::Transport("connection reset".to_owned()))));
        } else {
            std::mem::forget(reply);
        }
    }

    fn begin(&mut self, stream: Stream) {
        if !self.serves(stream.way.member) {
            let why = Error::status(Code::UNAVAILABLE, "etcdserver: no leader");
            drop(stream.tell.send(Err(why)));
            return;
        }
        let number = stream.number;
        let message = match &stream.kind {
            Kind::KeepAlive(id) => self.store.keep_alive(self.now_ms, *id),
            Kind::Watch { .. } => self.store.created(stream.way.member as u64 + 1),
        };
        self.streams.push(stream);
        self.tell(number, Ok(message));
    }

    fn tell(&mut self, number: u64, message: Result<Bytes, Error>) {
        let at_ms = self.now_ms + 1 + self.random.within(0..self.delay_ms_max);
        let Some(stream) = self.streams.iter_mut().find(|it| it.number == number) else { return };
        stream.last_ms = stream.last_ms.max(at_ms);
        let at_ms = stream.last_ms;
        self.send_at(at_ms, Delivery::Told(number, message));
    }

    fn answer_progress(&mut self, number: u64) {
        let Some(stream) = self.streams.iter().find(|it| it.number == number) else { return };
        let way = stream.way;
        if self.is_reached(way) && self.serves(way.member) {
            let message = self.store.progress(way.member as u64 + 1);
            // It overtakes what the stream has under way.
            self.send(Delivery::Told(number, Ok(message)));
        }
    }

    /// Tells watches what has happened.
    fn pump(&mut self) {
        let mut told: Vec<(u64, Result<Bytes, Error>)> = Vec::new();
        let (has_leader, members) = (self.has_leader(), self.members);
        for stream in &mut self.streams {
            let Kind::Watch { key, end, next } = &mut stream.kind else { continue };
            let member = members[stream.way.member];
            if member.is_alone || !has_leader {
                // Streams that ask for a leader end without one.
                let why = Error::status(Code::UNAVAILABLE, "etcdserver: no leader");
                told.push((stream.number, Err(why)));
                continue;
            }
            let from = *next;
            if from > self.store.revision {
                continue;
            }
            *next = self.store.revision + 1;
            let member = stream.way.member as u64 + 1;
            let span = Span { key: key.clone(), end: end.clone() };
            if let Some(message) = self.store.watched(member, &span, from) {
                told.push((stream.number, Ok(message)));
            }
        }
        for (number, message) in told {
            self.tell(number, message);
        }
        let (members, streams) = (&self.members, &mut self.streams);
        streams.retain(|stream| {
            let member = members[stream.way.member];
            if member.is_down || member.start != stream.way.start {
                let why = Error::Transport("connection reset".to_owned());
                drop(stream.tell.send(Err(why)));
                return false;
            }
            !stream.tell.is_closed()
        });
    }

    /// A member dies, and begins anew.
    pub(crate) fn kill(&mut self, member: usize, is_down: bool) {
        let it = &mut self.members[member];
        it.is_down = is_down;
        it.start += 1;
        self.store.raft_term += 1;
    }

    /// A member loses its leader, or finds one.
    pub(crate) fn isolate(&mut self, member: usize, is_alone: bool) {
        self.members[member].is_alone = is_alone;
        self.store.raft_term += 1;
    }

    /// A process does not reach these members from now on.
    pub(crate) fn cut(&mut self, process: usize, members: u8) {
        if members == 0 {
            self.cut.remove(&process);
        } else {
            self.cut.insert(process, members);
        }
    }

    /// Whether a process reaches a cluster that serves it.
    pub(crate) fn is_there_for(&self, process: usize) -> bool {
        let reaches = |member: usize| {
            let way = Way { process, member, start: self.members[member].start };
            self.is_reached(way) && self.serves(member)
        };
        (0..MEMBERS).any(reaches)
    }

    /// Whether nothing at all is wrong with it, and with a process's ways to it.
    pub(crate) fn is_whole_for(&self, process: usize) -> bool {
        let is_fast = self.delay_ms_max <= 10 && self.lost_per_mille == 0;
        let is_cut = self.cut.contains_key(&process);
        is_fast && !is_cut && self.members.iter().all(|it| !it.is_down && !it.is_alone)
    }

    /// Whether an operator can write something.
    pub(crate) fn takes_writes(&self) -> bool {
        self.has_leader()
    }

    /// Everything is well again.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        (self.delay_ms_max, self.lost_per_mille) = (6, 0);
        for member in 0..MEMBERS {
            let Member { is_down, is_alone, .. } = self.members[member];
            if is_down {
                self.kill(member, false);
            }
            if is_alone {
                self.isolate(member, false);
            }
        }
    }

    /// Saves what there is.
    pub(crate) fn back_up(&mut self) {
        self.backups.push(self.store.clone());
    }

    /// Puts back what was saved last, as another cluster or as the same one. False where there is
    /// nothing to put back.
    pub(crate) fn roll_back(&mut self, is_same_cluster: bool) -> bool {
        let Some(mut store) = self.backups.pop() else { return false };
        self.histories += 1;
        store.begin_anew(self.now_ms, 0x10_0000 * self.histories as i64);
        if !is_same_cluster {
            store.cluster_id = 7 + self.histories;
        }
        self.replace(store);
        true
    }

    /// Somebody starts it without its data.
    pub(crate) fn empty(&mut self) {
        self.histories += 1;
        let store = Store::new(7 + self.histories);
        self.replace(store);
    }

    fn replace(&mut self, store: Store) {
        self.store = store;
        for member in 0..MEMBERS {
            self.members[member].start += 1;
        }
    }
}
