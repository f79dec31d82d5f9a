//! A trunk's links: each is a link to one of the gateway's own workers.
//!
//! A link waits until its lane is up: only then is there a way for what its worker has to say. And
//! it waits until the agent has said what it arbitrates, which follows its hello: a worker that
//! hears of a link without that takes the agent for one that arbitrates nothing, and would have
//! sessions of its cluster go on alone. An agent that arbitrates less has said all when anything
//! else comes by the stream.
//!
//! A worker that has the lane is given its end of the link, by which goes what must arrive; to
//! others it is made as the game process would make it, and everything goes by it.

mod carried;
mod lending;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crate::socket::{Bundles, Local, Received, Trunk};
use crate::worker::WorkerInbox;
use ringgate_link::bundle::{Arbitrated, Frame, Frames, FromArbiter, GoodbyeReason, ToGateway};
use ringgate_os::notify::{Epoll, Ready};

use crate::gateway::shown::LinkCounts;
use crate::gateway::told::{Told, ToldNames};

/// What links are called in the set: this and their place.
pub(crate) const TOKEN: u64 = 1 << 32;

/// What is to be said to the agent, once its trunk is not lent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A link is over.
    End(u8, u16),
    /// The same, and why.
    Goodbye(u8, u16, GoodbyeReason),
}

/// What links are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making<'a> {
    pub(crate) run_dir: &'a Path,
    pub(crate) allowed: &'a [String],
    pub(crate) epoll: &'a Epoll,
    /// By worker.
    pub(crate) desks: &'a [WorkerInbox],
    /// The trunk's number.
    pub(crate) trunk: u32,
}

/// All links of a trunk.
#[derive(Debug, Default)]
pub(crate) struct Links {
    places: Vec<Option<Link>>,
    by_number: HashMap<(u8, u16), usize>,
    /// Where the last one was: records of one link come one after the other.
    latest: Option<((u8, u16), usize)>,
    /// Lanes that are up.
    up: Vec<u8>,
    /// The link whose hello came last by the stream, while what its agent arbitrates may follow.
    beginning: Option<usize>,
    /// Lanes that workers have.
    lent: Vec<u8>,
    /// By what workers call links of lanes that they have: never the same twice.
    by_serial: HashMap<u32, usize>,
    latest_serial: u32,
    /// Links with something to send.
    dirty: Vec<usize>,
    /// Links that are over, while their workers read them.
    leaving: Vec<Local>,
    /// Bytes of all records that wait.
    waiting_bytes: usize,
    is_held: bool,
    pub(crate) answers: Vec<Answer>,
    pub(crate) counts: LinkCounts,
    /// What the log was told of the agent, and of this trunk.
    pub(crate) told: Arc<Told>,
    told_names: ToldNames,
}

#[derive(Debug)]
struct Link {
    lane: u8,
    number: u16,
    serial: u32,
    backend: String,
    state: State,
    is_dirty: bool,
}

#[derive(Debug)]
enum State {
    /// Its lane is not up yet, or it begins: records that must arrive.
    Waiting(Vec<u8>),
    Up(Local),
}

impl Links {
    /// How many each backend has.
    pub(crate) fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for link in self.places.iter().flatten() {
            *counts.entry(link.backend.clone()).or_default() += 1;
        }
        counts
    }

    /// A record from the agent.
    #[inline]
    pub(crate) fn handle_record(
        &mut self,
        (lane, number): (u8, u16),
        frame: Frame<'_>,
        making: Making<'_>,
    ) {
        match self.find((lane, number)) {
            Some(place) => {
                self.pass_on(place, frame);
                if self.beginning.is_some() && !self.may_begin_on(place, frame) {
                    self.handle_begun(making);
                }
            }
            None if frame.may_be_lost() => self.counts.link_gone += frame.payloads().max(1),
            None => {
                self.handle_begun(making);
                self.begin((lane, number), frame, making);
            }
        }
    }

    /// Whether the agent may still say what it arbitrates on the link that begins, behind a record
    /// of this link.
    #[cold]
    fn may_begin_on(&self, place: usize, frame: Frame<'_>) -> bool {
        // What may be lost does not come by the stream.
        let more =
            [Arbitrated::Netcode, Arbitrated::Plain].map(|it| Some(FromArbiter::Arbitrates(it)));
        let is_more = more.contains(&FromArbiter::decode(frame));
        frame.may_be_lost() || self.beginning == Some(place) && is_more
    }

    /// The agent has said what it arbitrates, if anything, on the link that has begun.
    pub(crate) fn handle_begun(&mut self, making: Making<'_>) {
        let Some(place) = self.beginning.take() else { return };
        if self.places[place].as_ref().is_some_and(|link| self.up.contains(&link.lane)) {
            self.open(place, making);
        }
    }

    /// The agent has ended a link, and is told so unless that was done before.
    pub(crate) fn handle_end(&mut self, key: (u8, u16), making: Making<'_>) {
        if let Some(place) = self.find(key) {
            self.remove(place);
            self.answers.push(Answer::End(key.0, key.1));
        }
        self.handle_begun(making);
    }

    /// A lane is up, and its worker has it, or not: what has waited for it goes on.
    pub(crate) fn handle_lane_up(&mut self, lane: u8, is_lent: bool, making: Making<'_>) {
        if !self.up.contains(&lane) {
            self.up.push(lane);
        }
        self.lent.extend(is_lent.then_some(lane));
        for place in 0..self.places.len() {
            let is_its = self.places[place].as_ref().is_some_and(|link| link.lane == lane);
            if is_its && self.beginning != Some(place) {
                self.open(place, making);
            }
        }
    }

    /// The number of a link that a worker calls so, unless it is over.
    pub(crate) fn by_serial(&self, serial: u32) -> Option<u16> {
        let place = *self.by_serial.get(&serial)?;
        self.places[place].as_ref().map(|link| link.number)
    }

    /// No worker has this lane any more. Links that are made from now on are made as without.
    pub(crate) fn handle_lane_back(&mut self, lane: u8) {
        self.lent.retain(|lent| *lent != lane);
    }

    /// The agent may serve only these from now on, of all that are `known`.
    pub(crate) fn handle_rules(&mut self, allowed: &[String], known: &[String]) {
        for place in 0..self.places.len() {
            let Some(Link { lane, number, backend, .. }) = &self.places[place] else { continue };
            if known.contains(backend) && !allowed.contains(backend) {
                let answer = Answer::Goodbye(*lane, *number, GoodbyeReason::NameUnknown);
                self.remove(place);
                self.answers.push(answer);
            }
        }
    }

    /// Lanes that are up.
    pub(crate) fn lanes_up(&self) -> &[u8] {
        &self.up
    }

    /// A worker has said something, or has room.
    pub(crate) fn handle_ready(
        &mut self,
        ready: Ready,
        epoll: &Epoll,
        bundles: &mut Bundles,
        (trunk, now_ns): (&mut Trunk, u64),
    ) {
        let place = (ready.token - TOKEN) as usize;
        if let Some(Some(Link { lane, .. })) = self.places.get(place) {
            // A link that ends has said before what its worker had for it.
            trunk.drain(*lane, |serial| self.by_serial(serial));
        }
        let Some(Some(link)) = self.places.get_mut(place) else { return };
        let Link { lane, number, state: State::Up(local), .. } = link else { return };
        if local.is_lent() {
            return self.handle_lent_ready(place, ready, epoll);
        }
        let (lane, number) = (*lane, *number);
        let mut is_broken = false;
        let received = local.receive(bundles, |bundle| {
            for frame in Frames::new(bundle) {
                match frame {
                    Ok(frame) => trunk.carry(lane, number, frame, now_ns),
                    Err(_) => is_broken = true,
                }
            }
        });
        if is_broken || !matches!(received, Ok(Received::Part | Received::Everything)) {
            self.remove(place);
            self.answers.push(Answer::End(lane, number));
        } else {
            self.note_dirty(place);
        }
    }

    /// Has workers wait while the trunk's stream takes no more.
    pub(crate) fn hold(&mut self, is_held: bool, epoll: &Epoll) {
        if is_held == self.is_held {
            return;
        }
        self.is_held = is_held;
        for place in 0..self.places.len() {
            if let Some(Link { state: State::Up(local), .. }) = &self.places[place] {
                local.hold(epoll, TOKEN + place as u64, is_held);
                self.note_dirty(place);
            }
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self, epoll: &Epoll) {
        self.leaving.drain(..).for_each(|local| local.close(epoll));
        while let Some(place) = self.dirty.pop() {
            let Some(link) = &mut self.places[place] else { continue };
            link.is_dirty = false;
            if let State::Up(local) = &mut link.state {
                local.flush();
                local.watch_for_room(epoll, TOKEN + place as u64);
            }
        }
    }

    #[inline]
    fn find(&mut self, key: (u8, u16)) -> Option<usize> {
        if let Some((latest, place)) = self.latest
            && latest == key
        {
            return Some(place);
        }
        let place = *self.by_number.get(&key)?;
        self.latest = Some((key, place));
        Some(place)
    }

    #[inline]
    fn pass_on(&mut self, place: usize, frame: Frame<'_>) {
        let Self { places, counts, waiting_bytes, .. } = self;
        let Some(link) = &mut places[place] else { return };
        let fits = match &mut link.state {
            State::Up(local) if frame.may_be_lost() => {
                if !local.push(frame) {
                    counts.link_full += frame.payloads() + u64::from(frame.ends_message());
                }
                true
            }
            State::Up(local) => local.push_late(frame),
            State::Waiting(_) if frame.may_be_lost() => {
                counts.link_gone += frame.payloads().max(1);
                true
            }
            State::Waiting(records) => {
                let len = frame.bytes().len();
                let fits = records.len() + len <= WAITING_BYTES_MAX
                    && *waiting_bytes + len <= ALL_WAITING_BYTES_MAX;
                if fits {
                    records.extend_from_slice(frame.bytes());
                    *waiting_bytes += len;
                }
                fits
            }
        };
        if fits {
            self.note_dirty(place);
        } else {
            counts.link_over_full += 1;
            let answer = Answer::End(link.lane, link.number);
            self.remove(place);
            self.answers.push(answer);
        }
    }

    #[inline]
    fn note_dirty(&mut self, place: usize) {
        if let Some(link) = &mut self.places[place]
            && !std::mem::replace(&mut link.is_dirty, true)
        {
            self.dirty.push(place);
        }
    }

    /// A link that is not known begins with its hello.
    fn begin(&mut self, (lane, number): (u8, u16), frame: Frame<'_>, making: Making<'_>) {
        let hello = ToGateway::read(frame.bytes()).next();
        let Some(Ok(ToGateway::Hello(hello))) = hello else {
            self.counts.link_gone += 1;
            return;
        };
        if !making.allowed.iter().any(|name| name == hello.name) {
            self.counts.name_refused += 1;
            let backend = hello.name;
            if self.told_names.is_news(backend, &self.told.name_refused) {
                tracing::warn!(
                    event = "agent_backend_refused",
                    backend,
                    "the agent may not serve {backend}: `backends` of its [[agent]] does not name it"
                );
            }
            return self.answers.push(Answer::Goodbye(lane, number, GoodbyeReason::NameUnknown));
        }
        if self.waiting_bytes + frame.bytes().len() > ALL_WAITING_BYTES_MAX {
            self.counts.link_over_full += 1;
            return self.answers.push(Answer::End(lane, number));
        }
        let free = self.places.iter().position(Option::is_none);
        let place = match free {
            None if self.places.len() == LINKS_MAX => {
                self.counts.link_failed += 1;
                return self.answers.push(Answer::End(lane, number));
            }
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
            Some(place) => place,
        };
        self.waiting_bytes += frame.bytes().len();
        let state = State::Waiting(frame.bytes().to_vec());
        let backend = hello.name.to_owned();
        self.latest_serial = self.latest_serial.wrapping_add(1);
        let serial = self.latest_serial;
        self.places[place] = Some(Link { lane, number, serial, backend, state, is_dirty: false });
        self.by_serial.insert(serial, place);
        self.by_number.insert((lane, number), place);
        self.beginning = Some(place);
    }

    /// Connects to the worker.
    fn open(&mut self, place: usize, making: Making<'_>) {
        let Some(link) = &mut self.places[place] else { return };
        let State::Waiting(records) = &link.state else { return };
        let desk = making.desks.get(usize::from(link.lane));
        let desk = desk.filter(|_| self.lent.contains(&link.lane));
        let opened = connect(link.lane, desk, making).and_then(|(mut local, theirs)| {
            local.watch(making.epoll, TOKEN + place as u64)?;
            let all = Frames::new(records).flatten().all(|frame| local.push_late(frame));
            debug_assert!(all, "a queue that is empty has room for these");
            // A worker that hears of a link finds in it who that is.
            local.flush();
            if let Some((desk, theirs)) = desk.zip(theirs) {
                desk.link(making.trunk, (link.number, link.serial), theirs);
            }
            Ok(local)
        });
        match opened {
            Ok(local) => {
                if self.is_held {
                    local.hold(making.epoll, TOKEN + place as u64, true);
                }
                self.waiting_bytes -= records.len();
                link.state = State::Up(local);
                self.note_dirty(place);
            }
            Err(why) => {
                let lane = link.lane;
                if self.told.link_failed.is_told() {
                    tracing::warn!(
                        event = "agent_link_failed",
                        "cannot connect to worker {lane}: {why}"
                    );
                }
                self.counts.link_failed += 1;
                let answer = Answer::End(link.lane, link.number);
                self.remove(place);
                self.answers.push(answer);
            }
        }
    }

    /// Closes a link. What waits to be sent goes with it, and is counted.
    fn remove(&mut self, place: usize) {
        let Some(link) = self.places[place].take() else { return };
        self.by_number.remove(&(link.lane, link.number));
        self.by_serial.remove(&link.serial);
        self.latest = None;
        self.beginning.take_if(|beginning| *beginning == place);
        match link.state {
            State::Waiting(records) => self.waiting_bytes -= records.len(),
            State::Up(mut local) => {
                local.flush();
                self.counts.link_gone += local.clear();
                self.close(local);
            }
        }
    }
}

/// A link to a worker, and what that is to be given of it where it has a desk.
fn connect(
    lane: u8,
    desk: Option<&WorkerInbox>,
    making: Making<'_>,
) -> io::Result<(Local, Option<OwnedFd>)> {
    if desk.is_some() {
        return Local::pair().map(|(local, theirs)| (local, Some(theirs)));
    }
    let path = making.run_dir.join(format!("worker-{lane}.sock"));
    Local::connect(&path).map(|local| (local, None))
}

/// Links of one trunk: many game processes with a link to each of many workers.
const LINKS_MAX: usize = 8192;

/// What a game process says before it is welcome is its hello.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// What all links of a trunk may have waiting: as many hellos as there may be links. A lane of an
/// agent that went wrong may never come up.
const ALL_WAITING_BYTES_MAX: usize = 2 << 20;
