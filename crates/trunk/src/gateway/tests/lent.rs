//! Workers that have their lanes themselves: a driver with lanes is played here as a worker would,
//! over each interface of the kernel.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::protocol::control::Reason;
use crate::socket::End;
use crate::worker::{Lanes, WorkerInbox};
use ringgate_batch::{Driver, IoEvent, LocalIp, SocketId, TxTarget, Wait};
use ringgate_io::{AnyDriver, Choice, DriverOptions, SocketDriver, open};
use ringgate_link::bundle::{Hello, Opened, SessionId, ToGateway, Welcome, Writer};
use ringgate_os::clock::{self, Clock};

use super::own::own_address;
use super::rig::{Agent, Rig, pass_the_stream_on};
use super::session;
use crate::protocol::tls::fixtures::AGENT;

/// A worker that has a driver and no gate.
pub(super) struct Worker {
    driver: AnyDriver,
    lanes: Lanes,
    clock: Clock,
    links: Vec<SocketId>,
    closed: Vec<SocketId>,
    /// Payloads, and the link on which each came.
    pub(super) heard: Vec<(SocketId, Vec<u8>)>,
    greeted: Vec<(SocketId, String)>,
}

impl Worker {
    fn new(choice: Choice, clock: Clock) -> Option<Self> {
        let driver = open(choice, &DriverOptions::default());
        let driver = driver.inspect_err(|why| eprintln!("SKIPPED: {why}")).ok()?;
        let (links, closed) = (Vec::new(), Vec::new());
        let (heard, greeted) = (Vec::new(), Vec::new());
        Some(Self { driver, lanes: Lanes::new(clock), clock, links, closed, heard, greeted })
    }

    fn desk(&self) -> WorkerInbox {
        self.lanes.desk(self.driver.bell())
    }

    pub(super) fn turn(&mut self) {
        let Self { driver, lanes, links, closed, heard, greeted, clock: _ } = self;
        let mut over = lanes.over(driver);
        over.turn(Wait::No).expect("the driver lives");
        let rx = over.rx();
        for event in &rx.events {
            match *event {
                IoEvent::Accepted { connection, .. } => links.push(connection),
                IoEvent::Closed { socket } => closed.push(socket),
                _ => {}
            }
        }
        for (index, meta) in rx.metas().iter().enumerate() {
            for record in ToGateway::read(rx.bytes(index)) {
                match record.expect("whole records") {
                    ToGateway::Hello(hello) => greeted.push((meta.socket, hello.name.to_owned())),
                    ToGateway::Payload { bytes, .. } => heard.push((meta.socket, bytes.to_vec())),
                    ToGateway::Unknown(_) => {}
                    record => panic!("{record:?}"),
                }
            }
        }
        for socket in &closed[..] {
            over.close(*socket);
        }
        over.flush();
    }

    /// Writes a bundle; what the kernel does not take is returned.
    pub(super) fn say(&mut self, link: SocketId, write: impl Fn(&mut Writer<'_>) -> bool) -> usize {
        let mut over = self.lanes.over(&mut self.driver);
        let tx = over.tx();
        let slot = tx.open_large().expect("a slot is free");
        let mut writer = Writer::new(tx.large_mut(&slot));
        assert!(write(&mut writer), "a bundle holds them");
        let len = writer.len();
        let target = TxTarget { socket: link, peer: None, source: LocalIp::UNSPECIFIED };
        tx.commit_large(slot, len, target, 0);
        over.flush();
        over.tx().failures().count()
    }

    fn hold(&mut self, link: SocketId, is_held: bool) {
        self.lanes.over(&mut self.driver).hold(link, is_held);
    }

    fn close(&mut self, link: SocketId) {
        self.lanes.over(&mut self.driver).close(link);
    }
}

/// A gateway whose first worker is one.
pub(super) fn rig(choice: Choice, allowed: &[&str]) -> Option<(Rig, Worker)> {
    let mut worker = None;
    let rig = Rig::with_desks(allowed, |clock| {
        worker = Worker::new(choice, clock);
        worker.iter().map(Worker::desk).collect()
    });
    rig.zip(worker)
}

/// Until that is so: the agent and the worker take turns.
fn until(
    rig: &mut Rig,
    worker: &mut Worker,
    agent: &mut Agent,
    what: &str,
    is_so: impl Fn(&Rig, &Worker, &Agent) -> bool,
) {
    let worker = std::cell::RefCell::new(worker);
    rig.until(agent, what, |rig, agent| {
        let mut worker = worker.borrow_mut();
        worker.turn();
        is_so(rig, &worker, agent)
    });
}

/// A link of the agent's, as its worker knows it.
pub(super) fn begin(
    rig: &mut Rig,
    worker: &mut Worker,
    agent: &mut Agent,
    number: u16,
) -> SocketId {
    let count = worker.greeted.len();
    agent.tell(0, number, |writer| writer.hello(&Hello::new(1, "arena-1")));
    until(rig, worker, agent, "a link begins", |_, worker, _| worker.greeted.len() > count);
    let link = worker.greeted[count].0;
    let welcome = Welcome { version: 4, worker: 0, workers: 2, incarnation: 1 };
    assert_eq!(worker.say(link, |writer| writer.welcome(&welcome)), 0);
    link
}

pub(super) fn announce(writer: &mut Writer<'_>, session: SessionId) -> bool {
    let address = SocketAddr::from(([192, 0, 2, 1], 7));
    let (slot, slots_max, user_data, listener) = (0, 1, &[0; 256], "main");
    let (client_id, delivers) = (session.as_u64(), false);
    writer.opened(&Opened {
        ticket: None,
        session,
        client_id,
        address,
        slot,
        slots_max,
        delivers,
        user_data,
        listener,
    })
}

const CHOICES: [Choice; 2] = [Choice::Mmsg, Choice::Uring];

#[test]
fn a_worker_that_has_the_lane_carries_payloads_itself() {
    for choice in CHOICES {
        let Some((mut rig, mut worker)) = rig(choice, &["arena-1"]) else { continue };
        let mut agent = rig.agent(AGENT);
        let link = begin(&mut rig, &mut worker, &mut agent, 7);
        assert_eq!((&worker.links[..], rig.workers.waiting(0)), (&[link][..], 0));
        // The announcement goes by the stream and its payloads beside it: they wait.
        for serial in 1..=50 {
            let payload = [serial as u8; 1100];
            let refused = worker.say(link, |writer| {
                announce(writer, session(serial))
                    && (0..4).all(|_| writer.payload(session(serial), &payload))
            });
            assert_eq!(refused, 0);
            // Sockets hold only so much, where nobody may ask for more.
            agent.turn();
        }
        until(&mut rig, &mut worker, &mut agent, "all have come", |_, _, agent| {
            agent.open.len() == 50 && agent.payloads.len() == 200
        });
        let is_own = |of: SessionId, bytes: &[u8]| *bytes == [of.as_u64() as u8; 1100];
        assert!(agent.payloads.iter().all(|(of, bytes)| is_own(*of, bytes)));
        for number in 0..200_u8 {
            agent.push(0, 7, |writer| writer.payload(session(1), &[number; 100]));
        }
        until(&mut rig, &mut worker, &mut agent, "they are heard", |_, worker, _| {
            worker.heard.len() == 200
        });
        let expected: Vec<_> = (0..200).map(|number: u8| (link, vec![number; 100])).collect();
        assert_eq!(worker.heard, expected);
        until(&mut rig, &mut worker, &mut agent, "pages show it", |rig, _, _| {
            let lanes = rig.shown_agent().lanes();
            lanes.first().is_some_and(|lane| lane.payloads == [200, 200])
        });

        worker.close(link);
        until(&mut rig, &mut worker, &mut agent, "the agent knows", |_, _, agent| {
            agent.ended == [(0, 7)]
        });
    }
}

#[test]
fn what_is_told_on_several_links_comes_before_its_payloads_and_none_is_refused() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let links: Vec<_> =
        [1, 2, 500].map(|number| begin(&mut rig, &mut worker, &mut agent, number)).into();
    let mut expected = 0;
    for round in 0..100 {
        for (at, link) in links.iter().enumerate() {
            let id = session(1 + round * 3 + at as u64);
            // What the kernel has no room for is lost, but for the announcement: that is not said
            // again here, so there must be room.
            let refused = worker
                .say(*link, |writer| announce(writer, id) && writer.payload(id, &[at as u8; 100]));
            assert_eq!(refused, 0);
            expected += 1;
        }
        if round % 10 == 0 {
            until(&mut rig, &mut worker, &mut agent, "it keeps up", |_, _, agent| {
                agent.open.len() + 10 >= expected
            });
        }
    }
    until(&mut rig, &mut worker, &mut agent, "all have come", |_, _, agent| {
        agent.payloads.len() == expected
    });
    let refused = agent.trunk.stats().map(|stats| stats.lane.refusals);
    let over: u64 = refused.map(|refusals| refusals.of(crate::gateway::Refusal::Over)).sum();
    assert_eq!(over, 0, "no mark was behind what it stands for");

    // A link that its agent ends takes along what its worker has said and nobody has read.
    agent.end(0, 2);
    until(&mut rig, &mut worker, &mut agent, "the worker knows", |_, worker, _| {
        worker.closed == [links[1]]
    });
    let id = session(1000);
    assert_eq!(
        worker.say(links[0], |writer| announce(writer, id) && writer.payload(id, b"last")),
        0
    );
    until(&mut rig, &mut worker, &mut agent, "the others go on", |_, _, agent| {
        agent.payloads.last() == Some(&(id, b"last".to_vec()))
    });
}

#[test]
fn a_link_that_is_held_gets_everything_later_and_in_order() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let held = begin(&mut rig, &mut worker, &mut agent, 1);
    let other = begin(&mut rig, &mut worker, &mut agent, 2);
    worker.hold(held, true);
    for number in 0..100_u8 {
        agent.push(0, 1, |writer| writer.payload(session(1), &[number; 100]));
        agent.push(0, 2, |writer| writer.payload(session(2), &[number; 100]));
    }
    until(&mut rig, &mut worker, &mut agent, "the other link goes on", |_, worker, _| {
        worker.heard.len() == 100
    });
    assert!(worker.heard.iter().all(|(link, _)| *link == other));
    worker.hold(held, false);
    until(&mut rig, &mut worker, &mut agent, "everything has come", |_, worker, _| {
        worker.heard.len() == 200
    });
    let expected: Vec<_> = (0..100).map(|number: u8| (held, vec![number; 100])).collect();
    assert_eq!(worker.heard[100..], expected);
}

#[test]
fn the_books_of_a_lane_close_when_its_trunk_ends() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let link = begin(&mut rig, &mut worker, &mut agent, 1);
    let id = session(1);
    assert_eq!(worker.say(link, |writer| announce(writer, id)), 0);
    let (mut said, mut number) = (0, 0);
    until(&mut rig, &mut worker, &mut agent, "it is announced", |_, _, agent| agent.open == [id]);
    while agent.payloads.len() < 500 {
        said += 1;
        assert_eq!(worker.say(link, |writer| writer.payload(id, &[7; 300])), 0);
        agent.push(0, 1, |writer| writer.payload(id, &[number; 100]));
        number = number.wrapping_add(1);
        // A payload for a link that was never begun.
        agent.push(0, 9, |writer| writer.payload(id, b"astray"));
        until(&mut rig, &mut worker, &mut agent, "a turn", |_, _, _| true);
        agent.turn();
    }
    drop(agent);
    let start = Clock::start();
    // The end waits for the worker to give its lane back.
    while rig.shown_agent().before.is_empty() {
        worker.turn();
        assert!(start.now_ns() < 60_000_000_000, "it does not end");
    }
    let shown = rig.shown_agent();
    let lane = shown.before[0];
    assert_eq!(lane.payloads[0] + lane.full, said);
    assert_eq!(lane.payloads[1], worker.heard.len() as u64);
    while worker.closed != [link] {
        worker.turn();
        assert!(start.now_ns() < 60_000_000_000, "its link does not end with it");
    }
    let refused = worker.say(link, |writer| writer.payload(id, b"late"));
    assert_eq!(refused, 1, "what is for it goes nowhere");
}

/// Somebody between an agent and its gateway who passes on everything, and whose address the
/// gateway sees. For each of the agent's sockets it is another, and all are others when it has
/// forgotten once more.
fn router(gateway: SocketAddr) -> (SocketAddr, Arc<Router>) {
    narrow_router(gateway, u64::MAX)
}

#[derive(Default)]
struct Router {
    times_forgotten: AtomicU32,
    /// How often it has passed on all that was there.
    turns: AtomicU32,
}

/// The same before a wire that carries so many bytes of datagrams a second, either way. The rest
/// falls out of its queue, which is short.
fn narrow_router(gateway: SocketAddr, rate: u64) -> (SocketAddr, Arc<Router>) {
    let between = own_address();
    let front = UdpSocket::bind(between).expect("it is ours");
    let router = Arc::<Router>::default();
    let is_over = Arc::downgrade(&router);
    pass_the_stream_on(between, gateway);
    std::thread::spawn(move || {
        front.set_nonblocking(true).expect("a socket");
        let (mut backs, mut known) = (HashMap::<SocketAddr, UdpSocket>::new(), 0);
        let mut bytes = vec![0; 1 << 16];
        let (clock, mut looked_ns, mut rooms) = (Clock::start(), 0, [0; 2]);
        let passes = |room: &mut u64, len: usize| {
            let has_room = *room >= len as u64;
            *room -= if has_room { len as u64 } else { 0 };
            has_room
        };
        while let Some(router) = is_over.upgrade() {
            if router.times_forgotten.load(Ordering::Relaxed) != known {
                known += 1;
                backs.clear();
            }
            let past_us = (clock.now_ns() - looked_ns) / 1000;
            if past_us > 0 {
                looked_ns += past_us * 1000;
                let more = rate.saturating_mul(past_us) / 1_000_000;
                let queue = (rate / 20).max(1500);
                rooms = rooms.map(|room: u64| room.saturating_add(more).min(queue));
            }
            while let Ok((len, from)) = front.recv_from(&mut bytes) {
                let back = backs.entry(from).or_insert_with(|| {
                    let back = UdpSocket::bind("127.0.0.1:0").expect("loopback");
                    back.connect(gateway).expect("loopback");
                    back.set_nonblocking(true).expect("a socket");
                    back
                });
                if passes(&mut rooms[0], len) {
                    let _ = back.send(&bytes[..len]);
                }
            }
            for (agent, back) in &backs {
                while let Ok(len) = back.recv(&mut bytes) {
                    if passes(&mut rooms[1], len) {
                        let _ = front.send_to(&bytes[..len], agent);
                    }
                }
            }
            router.turns.fetch_add(1, Ordering::Relaxed);
            drop(router);
            clock::sleep(Duration::from_micros(200));
        }
    });
    (between, router)
}

#[test]
fn a_worker_follows_an_agent_whose_address_changes() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let (between, router) = router(rig.address);
    let mut agent = rig.agent_at(between, AGENT, "host-7");
    let link = begin(&mut rig, &mut worker, &mut agent, 1);
    let id = session(1);
    assert_eq!(worker.say(link, |writer| announce(writer, id)), 0);
    for times_moved in 0..3 {
        // Both ways, until the lane is where the router has put it and either has something new
        // since: only then may the router forget again.
        let is_moved = |rig: &Rig| {
            rig.shown_agent().lanes().first().is_some_and(|lane| lane.moved >= times_moved)
        };
        let mut before = None;
        while before
            .is_none_or(|(here, there)| worker.heard.len() == here || agent.payloads.len() == there)
        {
            if before.is_none() && is_moved(&rig) {
                before = Some((worker.heard.len(), agent.payloads.len()));
            }
            agent.push(0, 1, |writer| writer.payload(id, &[7; 10]));
            assert_eq!(worker.say(link, |writer| writer.payload(id, &[7; 10])), 0);
            until(&mut rig, &mut worker, &mut agent, "a turn", |_, _, _| true);
            agent.turn();
            assert!(agent.trunk.over().is_none(), "{:?}", agent.trunk.over());
        }
        router.times_forgotten.fetch_add(1, Ordering::Relaxed);
    }
    until(&mut rig, &mut worker, &mut agent, "pages show it", |rig, _, _| {
        rig.shown_agent().lanes().first().is_some_and(|lane| lane.moved >= 3)
    });
}

#[test]
fn a_wire_that_is_far_too_narrow_loses_payloads_and_nothing_else() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    // One megabit a second.
    let (between, router) = narrow_router(rig.address, 125_000);
    let mut agent = rig.agent_at(between, AGENT, "host-7");
    let link = begin(&mut rig, &mut worker, &mut agent, 1);
    let (mut said, mut pushed, mut serial) = (0_u64, 0, 0);
    let start = Clock::start();
    let is_lossy = |rig: &Rig| {
        let lanes = rig.shown_agent().lanes();
        lanes.first().is_some_and(|lane| lane.lost().iter().all(|lost| *lost > 0))
    };
    // Longer than a lane may be silent, and far more than the wire takes.
    while start.now_ns() < 4_000_000_000 || !is_lossy(&rig) {
        assert!(start.now_ns() < 60_000_000_000, "nothing is lost");
        let is_new = said.is_multiple_of(40 * 16);
        serial += u64::from(is_new);
        let id = session(serial);
        let refused = worker.say(link, |writer| {
            (!is_new || announce(writer, id)) && (0..40).all(|_| writer.payload(id, &[7; 300]))
        });
        assert_eq!(refused, 0, "what may be lost is never in the way of what must arrive");
        said += 40;
        (0..40).for_each(|_| agent.push(0, 1, |writer| writer.payload(id, &[7; 300])));
        pushed += 40;
        // What the wire does not take falls out of its own queue, where beats find room beside it,
        // and not out of the kernel's while the router is late.
        let mut passed_on_at = None;
        while passed_on_at.is_none_or(|at| router.turns.load(Ordering::Relaxed) < at) {
            worker.turn();
            agent.turn();
            passed_on_at = passed_on_at.or_else(|| Some(router.turns.load(Ordering::Relaxed) + 2));
        }
        assert!(agent.trunk.over().is_none(), "{:?}", agent.trunk.over());
    }
    until(&mut rig, &mut worker, &mut agent, "what must arrive has arrived", |_, _, agent| {
        agent.open.len() as u64 == serial
    });
    let (heard, there) = (worker.heard.len() as u64, agent.payloads.len() as u64);
    assert!(heard < pushed && there < said, "{heard} {there}");
    until(&mut rig, &mut worker, &mut agent, "the books close", |rig, worker, agent| {
        let shown = rig.shown_agent();
        let lane = shown.lanes()[0];
        let stats = agent.trunk.stats().next().expect("a lane");
        // What was taken has left, or found no room; what has come was handed on.
        lane.payloads[0] + lane.full == said
            && lane.payloads[1] == worker.heard.len() as u64
            && stats.lane.payloads_received == agent.payloads.len() as u64
            && shown.links == crate::gateway::LinkCounts::default()
    });
}

#[test]
fn an_agent_that_hardly_reads_its_stream_has_workers_wait_and_nothing_grows() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let link = begin(&mut rig, &mut worker, &mut agent, 1);
    let (mut said, mut refused, mut read_ns) = (0_u64, 0, 0);
    let clock = Clock::start();
    // What is refused finds no room anywhere: the thread, its stream, the kernel at both ends, and
    // the pipe between.
    while refused < 100 {
        // One turn for many: on a slow machine, too, more is said between two times that the agent
        // reads than it reads then, and it is not silent meanwhile. Few have a payload: each of
        // those waits at the agent for its announcement, and all that wait are looked at for each.
        for _ in 0..16 {
            let id = session(said + 1);
            let plays = said % 256 == 0;
            let refusals = worker.say(link, |writer| {
                announce(writer, id) && (!plays || writer.payload(id, b"first"))
            });
            match refusals {
                0 => said += 1,
                _ => refused += 1,
            }
        }
        worker.turn();
        // As often as keeps it from being silent.
        let is_read = clock.now_ns() - read_ns > 1_000_000_000;
        agent.turn_and_read(is_read);
        read_ns = if is_read { clock.now_ns() } else { read_ns };
        assert!(said < 100_000, "30 MB wait, and there is no end");
    }
    assert!(agent.trunk.over().is_none(), "it is not given up for it: {:?}", agent.trunk.over());
    until(&mut rig, &mut worker, &mut agent, "what was taken arrives", |_, _, agent| {
        agent.open.len() as u64 == said
    });
    let id = session(said + 1);
    assert_eq!(worker.say(link, |writer| announce(writer, id) && writer.payload(id, b"on")), 0);
    until(&mut rig, &mut worker, &mut agent, "it goes on", |_, _, agent| {
        agent.payloads.last() == Some(&(id, b"on".to_vec()))
    });
}

/// Payloads both ways without a pause, numbered, and now and then a session that is new: whatever
/// happens meanwhile, all of it arrives, once and in order.
struct Talk {
    link: SocketId,
    said: u32,
    pushed: u32,
    serial: u64,
}

impl Talk {
    fn turn(&mut self, worker: &mut Worker, agent: &mut Agent) {
        let Self { link, said, pushed, serial } = self;
        if (*said as usize) < agent.payloads.len() + 200 {
            let (is_new, number) = (*said % 16 == 0, said.to_le_bytes());
            *serial += u64::from(is_new);
            let id = session(*serial);
            let refused = worker.say(*link, |writer| {
                (!is_new || announce(writer, id)) && writer.payload(id, &number)
            });
            assert_eq!(refused, 0, "there is room");
            *said += 1;
        }
        if (*pushed as usize) < worker.heard.len() + 200 {
            let number = pushed.to_le_bytes();
            agent.push(0, 7, |writer| writer.payload(session(1), &number));
            *pushed += 1;
        }
        worker.turn();
        agent.turn();
    }

    fn is_whole(&self, worker: &Worker, agent: &Agent) -> bool {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("a number"));
        let there = agent.payloads.iter().map(|(_, bytes)| number(bytes));
        let here = worker.heard.iter().map(|(_, bytes)| number(bytes));
        assert!(there.eq(0..agent.payloads.len() as u32), "one is missing, or not in its place");
        assert!(here.eq(0..worker.heard.len() as u32), "one is missing, or not in its place");
        (agent.payloads.len(), worker.heard.len()) == (self.said as usize, self.pushed as usize)
    }
}

/// Says so when it is dropped: a test that fails does not leave a thread behind that goes on.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another process goes on with trunks, or cannot after all, while this thread turns.
fn hand_over_meanwhile(rig: &mut Rig, has_failed: bool, mut turn: impl FnMut()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _flag = Flag(&is_over);
            rig.hand_over(&["arena-1"], has_failed);
        });
        while !is_over.load(Ordering::Relaxed) {
            turn();
        }
    });
}

#[test]
fn lanes_go_to_workers_again_after_a_hand_over_and_nothing_is_lost() {
    for choice in CHOICES {
        let Some((mut rig, mut worker)) = rig(choice, &["arena-1"]) else { continue };
        let mut agent = rig.agent(AGENT);
        let link = begin(&mut rig, &mut worker, &mut agent, 7);
        let mut talk = Talk { link, said: 0, pushed: 0, serial: 0 };
        let is_lent = |rig: &Rig| rig.shown_agent().trunk.is_some_and(|trunk| trunk.lent[0]);
        for round in 0..6 {
            let has_failed = round % 3 == 2;
            // A worker of the next process knows nothing of the lanes that another one had.
            let lanes = Lanes::new(worker.clock);
            if !has_failed {
                rig.set_desks(vec![lanes.desk(worker.driver.bell())]);
            }
            hand_over_meanwhile(&mut rig, has_failed, || talk.turn(&mut worker, &mut agent));
            if !has_failed {
                worker.lanes = lanes;
            }
            let start = Clock::start();
            while !is_lent(&rig) || worker.lanes.is_calling() {
                talk.turn(&mut worker, &mut agent);
                assert!(start.now_ns() < 60_000_000_000, "the lane does not come back");
            }
            let before = agent.payloads.len() + worker.heard.len();
            while agent.payloads.len() + worker.heard.len() < before + 500 {
                talk.turn(&mut worker, &mut agent);
            }
            until(&mut rig, &mut worker, &mut agent, "all have come", |_, worker, agent| {
                talk.is_whole(worker, agent)
            });
        }
        until(&mut rig, &mut worker, &mut agent, "pages show it", |rig, _, _| {
            let shown = rig.shown_agent();
            let lanes = shown.lanes();
            let expected = [u64::from(talk.said), u64::from(talk.pushed)];
            lanes.first().is_some_and(|lane| lane.payloads == expected) && shown.trunks == 1
        });
        let shown = rig.shown_agent();
        // A thread that has lent a lane counts as lost what it would have to push itself.
        assert_eq!(shown.links, crate::gateway::LinkCounts::default());
        let refused = agent.trunk.stats().map(|stats| stats.lane.refusals);
        let over: u64 = refused.map(|refusals| refusals.of(crate::gateway::Refusal::Over)).sum();
        assert_eq!(over, 0, "no mark was behind what it stands for");
        worker.close(link);
        until(&mut rig, &mut worker, &mut agent, "the agent knows", |_, _, agent| {
            agent.ended == [(0, 7)]
        });
    }
}

#[test]
fn a_worker_that_does_not_turn_in_time_keeps_its_lane() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let link = begin(&mut rig, &mut worker, &mut agent, 7);
    let mut talk = Talk { link, said: 0, pushed: 0, serial: 0 };
    for _ in 0..3 {
        let before = agent.payloads.len() + worker.heard.len();
        while agent.payloads.len() + worker.heard.len() < before + 500 {
            talk.turn(&mut worker, &mut agent);
        }
        // It is asked for its lane now, and looks for that only when nobody wants it any more.
        rig.hand_over(&["arena-1"], true);
        until(&mut rig, &mut worker, &mut agent, "all have come", |_, worker, agent| {
            talk.is_whole(worker, agent)
        });
    }
    let shown = rig.shown_agent();
    assert!(shown.trunk.is_some_and(|trunk| trunk.lent[0]) && shown.trunks == 1);
    assert!(shown.ended.is_empty(), "{:?}", shown.ended);
    assert_eq!(shown.links, crate::gateway::LinkCounts::default());

    // A trunk that lacks a lane cannot go on in another process, and its agent is told so.
    rig.hand_over(&["arena-1"], false);
    until(&mut rig, &mut worker, &mut agent, "it is over", |_, _, agent| {
        agent.trunk.over().is_some()
    });
    assert!(matches!(agent.trunk.over(), Some(End::Theirs(Reason::ShuttingDown))));
}

#[test]
fn a_link_that_ends_while_it_is_called_ends_for_all() {
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    let links: Vec<_> =
        [1, 2, 3].map(|number| begin(&mut rig, &mut worker, &mut agent, number)).into();
    let id = session(1);
    let lanes = Lanes::new(worker.clock);
    rig.set_desks(vec![lanes.desk(worker.driver.bell())]);
    hand_over_meanwhile(&mut rig, false, || worker.turn());
    // Before its worker has come across it, the first is closed here, behind its last word, and
    // the agent ends the second.
    assert_eq!(worker.say(links[0], |writer| announce(writer, id)), 0);
    worker.close(links[0]);
    agent.end(0, 2);
    agent.turn();
    worker.lanes = lanes;
    until(&mut rig, &mut worker, &mut agent, "both are over", |_, worker, agent| {
        agent.ended.contains(&(0, 1)) && worker.closed == [links[1]]
    });
    assert_eq!(agent.open, [id], "what it has said last is not lost");
    agent.push(0, 3, |writer| writer.payload(id, b"on"));
    until(&mut rig, &mut worker, &mut agent, "the third goes on", |_, worker, _| {
        worker.heard == [(links[2], b"on".to_vec())] && !worker.lanes.is_calling()
    });
}

#[test]
fn a_crowd_of_links_comes_a_few_at_a_time_and_each_with_its_name() {
    const LINKS: u16 = 100;
    let Some((mut rig, mut worker)) = rig(Choice::Mmsg, &["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    for number in 0..LINKS {
        agent.tell(0, number, |writer| writer.hello(&Hello::new(1, "arena-1")));
    }
    let most = std::cell::Cell::new(0);
    until(&mut rig, &mut worker, &mut agent, "all are there", |_, worker, _| {
        most.set(most.get().max(worker.links.len() - worker.greeted.len()));
        worker.greeted.len() == usize::from(LINKS)
    });
    assert!(most.get() <= 32, "{} at a time have not said who they are", most.get());
}
