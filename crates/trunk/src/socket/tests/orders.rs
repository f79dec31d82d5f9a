//! A lane finds its other end, whatever becomes of the first datagrams: every fate of each of them
//! is tried, over a network that has neither sockets nor a clock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Lane, NoteTold, Role, Secrets};
use ringgate_core::crypto::{Aead, Key};
use ringgate_link::bundle::Run;

use super::rig::{only, written};
use super::{opened, session};
use crate::socket::port::Buffers;
use crate::socket::trunk::SocketLane;
use crate::socket::wire::Wire;

const MS: u64 = 1_000_000;

/// How long a datagram is under way, and a late one.
const DELAY_NS: u64 = 10 * MS;
const LATE_NS: u64 = 160 * MS;

/// How much sooner a copy is there than what it is of.
const SOONER_NS: u64 = 3 * MS;

/// A payload by which its datagram is known: beats and answers are shorter, probes are longer.
const PAYLOAD: [u8; 700] = [7; 700];

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

fn gateway() -> SocketAddr {
    address(1, 40_000)
}

/// Where the stream comes from.
fn stream() -> SocketAddr {
    address(2, 50_000)
}

/// A socket of this network: from where to where, and what has come to it.
type Socket = (SocketAddr, SocketAddr, VecDeque<Vec<u8>>);

#[derive(Default)]
struct Net {
    sockets: Vec<Option<Socket>>,
    sent: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

type Set = Rc<RefCell<Net>>;

/// One end's socket.
struct End {
    net: Set,
    index: usize,
    own: SocketAddr,
    peer: SocketAddr,
}

impl Drop for End {
    fn drop(&mut self) {
        self.net.borrow_mut().sockets[self.index] = None;
    }
}

impl Wire for End {
    type Set = Set;

    fn open((own, peer): (SocketAddr, SocketAddr), (net, _): (&Set, u64)) -> io::Result<Self> {
        let sockets = &mut net.borrow_mut().sockets;
        sockets.push(Some((own, peer, VecDeque::new())));
        Ok(Self { net: Rc::clone(net), index: sockets.len() - 1, own, peer })
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn receive(
        &mut self,
        _: &mut Buffers,
        (lane, aead): (&mut Lane, &mut Aead),
        now_ns: u64,
        deliver: impl FnMut(u16, Run<'_>),
        _: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<(bool, bool)> {
        let come = self.net.borrow_mut().sockets[self.index].as_mut().map(|it| it.2.split_off(0));
        let mut come = come.unwrap_or_default();
        let mut datagrams: Vec<_> = come.iter_mut().map(|it| &mut it[..]).collect();
        Ok((false, lane.receive_runs(now_ns, aead, &mut datagrams, deliver)))
    }

    fn send(&mut self, lane: &mut Lane, _: u64) -> io::Result<bool> {
        let datagrams = lane.pending().map(|it| (self.own, self.peer, it.to_vec()));
        self.net.borrow_mut().sent.extend(datagrams);
        lane.handle_sent(usize::MAX);
        Ok(true)
    }

    fn send_alone(&self, datagram: &[u8]) {
        self.net.borrow_mut().sent.push((self.own, self.peer, datagram.to_vec()));
    }

    fn watch_for_room(&self, _: (&Set, u64), _: bool) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self) -> [u64; 2] {
        [0; 2]
    }
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Comes,
    Late,
    Lost,
}

const FATES: [Fate; 3] = [Fate::Comes, Fate::Late, Fate::Lost];

/// Every row of so many, one after the other.
fn rows(of: &[Fate], length: u32) -> impl Iterator<Item = Vec<Fate>> {
    let base = of.len();
    (0..base.pow(length))
        .map(move |row| (0..length).map(|place| of[row / base.pow(place) % base]).collect())
}

/// Where an agent is, and what is done to it.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Where its datagrams come from.
    outside: SocketAddr,
    /// How long they may be.
    carries: usize,
    /// Where copies come from that are there sooner; what goes there comes to the agent.
    thief: Option<SocketAddr>,
}

/// What all worlds share, because it is large.
struct Tools {
    aead: Aead,
    buffers: Buffers,
}

impl Default for Tools {
    fn default() -> Self {
        Self { aead: Aead::detect(), buffers: Buffers::default() }
    }
}

struct World<'a> {
    tools: &'a mut Tools,
    place: Place,
    net: Set,
    now_ns: u64,
    /// The agent, and the gateway.
    ways: [SocketLane<End>; 2],
    /// When each arrives, from where and to where.
    under_way: Vec<(u64, SocketAddr, SocketAddr, Vec<u8>)>,
    /// Of what the agent sends next, and of what the gateway does.
    fates: [VecDeque<Fate>; 2],
    is_up: bool,
    /// Payloads that have come to the agent, and such that were lost.
    payloads: [usize; 2],
}

fn secrets() -> Secrets {
    Secrets { to_gateway: Key::from_bytes([1; 32]), to_agent: Key::from_bytes([2; 32]) }
}

impl<'a> World<'a> {
    /// Something waits at the gateway for a session of the agent's.
    fn new(tools: &'a mut Tools, place: Place, fates: [&[Fate]; 2]) -> Self {
        let net = Set::default();
        let way = |role| SocketLane::new(role, (9, 0), secrets(), Rekey::default(), 0);
        let [mut agent, mut gate] = [Role::Agent, Role::Gateway].map(way);
        let inside = address(200, 1);
        agent.set_port(End::open((inside, gateway()), (&net, 0)).expect("it cannot fail"));
        let begun = written(|writer| writer.opened(&opened(1)));
        agent.lane().handle_record(7, only(&begun), |_, _| {});
        gate.lane().note_told();
        let payload = written(|writer| writer.payload(session(1), &PAYLOAD));
        gate.push(7, only(&payload), &mut tools.aead, 0);
        let fates = fates.map(|fates| fates.iter().copied().collect());
        let (under_way, payloads) = (Vec::new(), [0; 2]);
        let ways = [agent, gate];
        Self { tools, place, net, now_ns: 0, ways, under_way, fates, is_up: false, payloads }
    }

    /// What is ready at either end, then what time brings: as threads of trunks do it.
    fn turn(&mut self) {
        let Self { tools: Tools { aead, buffers }, net, now_ns, ways, payloads, .. } = self;
        let now_ns = *now_ns;
        for (which, way) in ways.iter_mut().enumerate() {
            let deliver = |_: u16, run: Run<'_>| payloads[which] += run.payloads() as usize;
            let taken = way.receive(buffers, aead, now_ns, deliver, |_, _| panic!("a stray"));
            let (_, is_authentic) = taken.expect("it cannot fail");
            self.is_up |= which == 1 && (is_authentic && way.peer().is_some() || way.take_risen());
            way.poll(now_ns);
            way.flush(aead, net, 0, now_ns).expect("it cannot fail");
        }
        self.carry();
    }

    /// Takes what was sent.
    fn carry(&mut self) {
        let Self { place, net, now_ns, under_way, fates, payloads, .. } = self;
        for (from, to, datagram) in net.borrow_mut().sent.drain(..) {
            let is_agents = from != gateway();
            let is_known = is_agents || to == place.outside || Some(to) == place.thief;
            if datagram.len() > place.carries || !is_known {
                continue;
            }
            let mut at_ns = *now_ns + DELAY_NS;
            if let Some(thief) = place.thief.filter(|_| is_agents) {
                under_way.push((at_ns - SOONER_NS, thief, to, datagram.clone()));
            }
            match fates[usize::from(!is_agents)].pop_front().unwrap_or(Fate::Comes) {
                Fate::Comes => {}
                Fate::Late => at_ns = *now_ns + LATE_NS,
                Fate::Lost => {
                    payloads[1] += usize::from(datagram.len() > 700 && datagram.len() < 1200);
                    continue;
                }
            }
            let from = if is_agents { place.outside } else { from };
            under_way.push((at_ns, from, to, datagram));
        }
    }

    /// Lets time pass up to where something happens.
    fn pass(&mut self) {
        let arrivals = self.under_way.iter().map(|it| it.0);
        let due_ns = self.ways.iter().map(SocketLane::due_ns).chain(arrivals).min();
        self.now_ns = due_ns.unwrap_or(0).max(self.now_ns + 1);
        let now_ns = self.now_ns;
        let come: Vec<_> = self.under_way.extract_if(.., |it| it.0 <= now_ns).collect();
        for (_, from, to, mut datagram) in come {
            // What is for the agent, a router or a thief passes on to its only socket.
            let is_gateways = to == gateway();
            let is_for = |(own, peer, _): &Socket| {
                if is_gateways { (*own, *peer) == (to, from) } else { *own != gateway() }
            };
            let mut net = self.net.borrow_mut();
            if let Some(socket) = net.sockets.iter_mut().flatten().find(|it| is_for(it)) {
                socket.2.push_back(datagram);
                continue;
            }
            drop(net);
            let (gate, aead) = (&mut self.ways[1], &mut self.tools.aead);
            let places = (gateway(), stream());
            let set = (&self.net, 0);
            let tools = (aead, now_ns);
            let taken = gate.handle_at_door((from, &mut datagram), places, set, tools, |_, _| {});
            self.is_up |= taken.expect("it cannot fail") && gate.peer().is_some();
        }
    }

    /// Both ends go on until that is so. Returns when it was.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> u64 {
        loop {
            self.turn();
            if is_so(self) {
                return self.now_ns;
            }
            let silent = [0, 1].map(|end| self.ways[end].is_silent(self.now_ns));
            assert_eq!(silent, [false; 2], "{what}: it ends by silence");
            self.pass();
        }
    }

    /// Until the lane is up, and what has waited for that has come.
    fn connect(&mut self, what: &str) -> u64 {
        let at_ns = self.until(what, |world| world.is_up);
        assert_eq!(self.ways[1].peer(), Some(self.place.outside), "{what}");
        self.until(what, |world| world.payloads != [0; 2]);
        let stats = self.ways[1].stats();
        assert_eq!((self.payloads[0] + self.payloads[1], stats.full), (1, 0), "{what}");
        at_ns
    }
}

/// A host where the stream comes from, and two that are elsewhere: on a network of common frames,
/// and on one that carries probes of every length.
const PLACES: [(u8, usize); 4] = [(2, 1472), (2, 8900), (3, 1472), (3, 8900)];

#[test]
fn a_lane_finds_an_agent_at_once_wherever_its_datagrams_come_from() {
    let mut tools = Tools::default();
    for (host, carries) in PLACES {
        let place = Place { outside: address(host, 7), carries, thief: None };
        let at_ns = World::new(&mut tools, place, [&[]; 2]).connect("nothing is lost");
        let most_ns = if host == 2 { DELAY_NS } else { 3 * DELAY_NS + 2 * DELAY_NS + 205 * MS };
        assert!(at_ns <= most_ns, "{place:?} took {} ms", at_ns / MS);
    }
}

#[test]
fn a_lane_finds_an_agent_whatever_becomes_of_the_first_datagrams() {
    let mut tools = Tools::default();
    for (host, carries) in PLACES {
        let place = Place { outside: address(host, 7), carries, thief: None };
        for to_gateway in rows(&FATES, if host == 2 { 2 } else { 3 }) {
            for to_agent in rows(&FATES, 2) {
                let what = format!("{place:?} {to_gateway:?} {to_agent:?}");
                let mut world = World::new(&mut tools, place, [&to_gateway, &to_agent]);
                let at_ns = world.connect(&what);
                assert!(at_ns < 1500 * MS, "{what}: {} ms", at_ns / MS);
            }
        }
    }
}

#[test]
fn a_lane_follows_an_agent_whatever_becomes_of_the_first_datagrams() {
    let mut tools = Tools::default();
    for (host, carries) in PLACES.into_iter().filter(|(_, carries)| *carries == 1472) {
        for to_gateway in rows(&FATES, 3) {
            for to_agent in rows(&FATES, 2) {
                let what = format!("{host} {carries} {to_gateway:?} {to_agent:?}");
                let place = Place { outside: address(host, 7), carries, thief: None };
                let mut world = World::new(&mut tools, place, [&[]; 2]);
                world.connect(&what);
                let moved = address(host, 8);
                world.place.outside = moved;
                world.fates = [&to_gateway, &to_agent].map(|it| it.iter().copied().collect());
                world.until(&what, |world| world.ways[1].peer() == Some(moved));
                assert_eq!(world.ways[1].stats().moved, 1, "{what}");
            }
        }
    }
}

#[test]
fn a_sender_of_quicker_copies_is_not_taken_for_the_agent() {
    let mut tools = Tools::default();
    for carries in [1472, 8900] {
        let place = Place { outside: address(2, 7), carries, thief: Some(address(9, 7)) };
        let few = |row: &Vec<Fate>| row.iter().filter(|it| **it == Fate::Lost).count() <= 3;
        for to_gateway in rows(&[Fate::Comes, Fate::Lost], 8).filter(few) {
            let what = format!("{place:?} {to_gateway:?}");
            let mut world = World::new(&mut tools, place, [&to_gateway, &[]]);
            world.connect(&what);
        }
    }
}
