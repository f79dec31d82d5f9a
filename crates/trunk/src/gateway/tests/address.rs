//! Somebody between an agent and its gateway who copies datagrams, is quicker than they are, and
//! sends the copies from an address of its own: the agent stays where it is.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ringgate_link::bundle::Hello;
use ringgate_os::clock::{self, Clock};

use super::lent;
use super::own::own_address;
use super::rig::{Agent, Rig, pass_the_stream_on};
use super::{WELCOME, session};
use crate::protocol::tls::fixtures::AGENT;

/// How much later than their copies datagrams of the agent come.
const LATER_NS: u64 = 3_000_000;

/// What is changed and seen from outside.
#[derive(Default)]
struct Marks {
    copies: AtomicBool,
    /// What comes to the thief is passed on to the agent.
    relays: AtomicBool,
    /// Of each of the agent's sockets, so many datagrams are lost first, each way.
    loses: AtomicUsize,
    /// Datagrams that have come to the thief, and the longest of them.
    taken: AtomicUsize,
    longest: AtomicUsize,
}

/// Passes everything on: the stream from one address, datagrams perhaps from another.
struct Between {
    gateway: SocketAddr,
    back: [u8; 4],
    thief: UdpSocket,
    front: UdpSocket,
    backs: HashMap<SocketAddr, Back>,
    waiting: VecDeque<(u64, SocketAddr, Vec<u8>)>,
}

/// Where one of the agent's sockets comes out, and what is to be lost of it, each way.
struct Back {
    socket: UdpSocket,
    to_lose: [usize; 2],
}

impl Back {
    /// Whether one more that way is lost.
    const fn loses(&mut self, way: usize) -> bool {
        let is_lost = self.to_lose[way] > 0;
        self.to_lose[way] -= is_lost as usize;
        is_lost
    }
}

fn udp(ip: [u8; 4]) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((ip, 0))).expect("loopback");
    socket.set_nonblocking(true).expect("an option");
    socket
}

impl Between {
    /// Datagrams come from `back`, copies from `thief`.
    fn start(gateway: SocketAddr, back: [u8; 4], thief: [u8; 4]) -> (SocketAddr, Arc<Marks>) {
        let address = own_address();
        let front = UdpSocket::bind(address).expect("it is ours");
        front.set_nonblocking(true).expect("an option");
        let (backs, waiting) = (HashMap::new(), VecDeque::new());
        let mut between = Self { gateway, back, thief: udp(thief), front, backs, waiting };
        let marks = Arc::<Marks>::default();
        let is_over = Arc::downgrade(&marks);
        pass_the_stream_on(address, gateway);
        std::thread::spawn(move || {
            let clock = Clock::start();
            while let Some(marks) = is_over.upgrade() {
                between.turn(&marks, clock.now_ns());
                clock::sleep(Duration::from_micros(200));
            }
        });
        (address, marks)
    }

    fn turn(&mut self, marks: &Marks, now_ns: u64) {
        let Self { gateway, back, thief, front, backs, waiting } = self;
        let mut bytes = vec![0; 1 << 16];
        while let Ok((len, from)) = front.recv_from(&mut bytes) {
            let mut due_ns = now_ns;
            if marks.copies.load(Ordering::Relaxed) {
                let _ = thief.send_to(&bytes[..len], *gateway);
                due_ns += LATER_NS;
            }
            waiting.push_back((due_ns, from, bytes[..len].to_vec()));
        }
        while let Some((_, from, datagram)) = waiting.pop_front_if(|it| it.0 <= now_ns) {
            let back = backs.entry(from).or_insert_with(|| {
                let to_lose = [marks.loses.load(Ordering::Relaxed); 2];
                Back { socket: udp(*back), to_lose }
            });
            if !back.loses(0) {
                let _ = back.socket.send_to(&datagram, *gateway);
            }
        }
        for (agent, back) in &mut *backs {
            while let Ok(len) = back.socket.recv(&mut bytes) {
                if !back.loses(1) {
                    let _ = front.send_to(&bytes[..len], agent);
                }
            }
        }
        while let Ok(len) = thief.recv(&mut bytes) {
            marks.taken.fetch_add(1, Ordering::Relaxed);
            marks.longest.fetch_max(len, Ordering::Relaxed);
            if marks.relays.load(Ordering::Relaxed) {
                // It does not know which of the agent's sockets it is for.
                for agent in backs.keys() {
                    let _ = front.send_to(&bytes[..len], agent);
                }
            }
        }
    }
}

/// A gateway whose lanes are its trunk's thread's, or its worker's.
enum Side {
    Thread(Rig, usize),
    Worker(Rig, Box<lent::Worker>, ringgate_batch::SocketId),
}

impl Side {
    /// With a link, whose agent is welcome.
    fn with(is_lent: bool, begin: impl Fn(&Rig) -> Agent) -> Option<(Self, Agent)> {
        if is_lent {
            let (mut rig, mut worker) = lent::rig(ringgate_io::Choice::Mmsg, &["arena-1"])?;
            let mut agent = begin(&rig);
            let link = lent::begin(&mut rig, &mut worker, &mut agent, 7);
            assert_eq!(worker.say(link, |writer| lent::announce(writer, session(1))), 0);
            return Some((Self::Worker(rig, Box::new(worker), link), agent));
        }
        let mut rig = Rig::new(&["arena-1"])?;
        let mut agent = begin(&rig);
        agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
        let link = rig.accept(&mut agent, 0);
        rig.workers
            .say(link, |writer| writer.welcome(&WELCOME) && lent::announce(writer, session(1)));
        Some((Self::Thread(rig, link), agent))
    }

    const fn rig(&self) -> &Rig {
        match self {
            Self::Thread(rig, _) | Self::Worker(rig, ..) => rig,
        }
    }

    /// One payload each way.
    fn say(&mut self, agent: &mut Agent) {
        agent.push(0, 7, |writer| writer.payload(session(1), b"to the game"));
        match self {
            Self::Thread(rig, link) => {
                rig.workers.say(*link, |writer| writer.payload(session(1), b"to players"));
            }
            Self::Worker(_, worker, link) => {
                let refused = worker.say(*link, |it| it.payload(session(1), b"to players"));
                assert_eq!(refused, 0);
            }
        }
    }

    /// Payloads that have come to the worker.
    fn heard(&self) -> usize {
        match self {
            // The first is the hello.
            Self::Thread(rig, link) => rig.workers.heard(*link).len().saturating_sub(1),
            Self::Worker(_, worker, _) => worker.heard.len(),
        }
    }

    fn until(&mut self, agent: &mut Agent, what: &str, is_so: impl Fn(&Self, &Agent) -> bool) {
        let start = Clock::start();
        while !is_so(self, agent) {
            let over = agent.trunk.over();
            assert!(
                start.now_ns() < 60_000_000_000 && over.is_none(),
                "{what} does not come true: {over:?} {:?}",
                self.rig().shown_agent()
            );
            match self {
                Self::Thread(rig, _) => rig.until(agent, what, |_, _| true),
                Self::Worker(_, worker, _) => worker.turn(),
            }
            agent.turn();
            if let Self::Thread(rig, _) = self {
                rig.turn_workers();
            }
        }
    }

    /// So many payloads each way: all of them arrive.
    fn talk(&mut self, agent: &mut Agent, count: usize) {
        let (here, there) = (self.heard(), agent.payloads.len());
        for said in 1..=count {
            self.say(agent);
            self.until(agent, "they keep up", |side, agent| {
                side.heard() + 20 >= here + said && agent.payloads.len() + 20 >= there + said
            });
        }
        self.until(agent, "all have come", |side, agent| {
            (side.heard(), agent.payloads.len()) == (here + count, there + count)
        });
    }

    fn moved(&self) -> u64 {
        self.rig().shown_agent().lanes().first().map_or(0, |lane| lane.moved)
    }

    fn unproven(&self) -> u64 {
        self.rig().door().refused.get("address_unproven").copied().unwrap_or_default()
    }
}

#[test]
fn whoever_copies_datagrams_and_is_quicker_does_not_get_what_is_for_the_agent() {
    const THIEVES: [[u8; 4]; 2] = [[127, 0, 0, 9], [127, 0, 0, 1]];
    for (is_lent, thief) in [false, true].into_iter().zip(THIEVES) {
        let marks = std::cell::OnceCell::new();
        let begun = Side::with(is_lent, |rig| {
            let (address, those) = Between::start(rig.address, [127, 0, 0, 1], thief);
            // Where both have one address, there is nothing to tell them by before the first.
            those.copies.store(thief[3] != 1, Ordering::Relaxed);
            let agent = rig.agent_at(address, AGENT, "host-7");
            assert!(marks.set(those).is_ok(), "there is one");
            agent
        });
        let Some((mut side, mut agent)) = begun else { return };
        let marks = marks.get().expect("it has begun");
        marks.copies.store(true, Ordering::Relaxed);
        side.talk(&mut agent, 300);
        side.until(&mut agent, "it is told of", |side, _| side.unproven() >= 1);
        // The thief passes on what it gets: the agent is reached without it, too.
        marks.relays.store(true, Ordering::Relaxed);
        side.talk(&mut agent, 300);
        let asked = marks.taken.load(Ordering::Relaxed);
        side.until(&mut agent, "it is asked again", |_, _| {
            marks.taken.load(Ordering::Relaxed) > asked
        });
        side.talk(&mut agent, 300);
        assert_eq!(side.moved(), 0);
        let longest = marks.longest.load(Ordering::Relaxed);
        assert!(longest < 64, "nothing but questions came to the thief: {longest} bytes");
    }
}

#[test]
fn an_agent_whose_datagrams_come_from_elsewhere_than_its_stream_proves_it() {
    for (is_lent, lost) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
        let begun = Side::with(is_lent, |rig| {
            let (address, marks) = Between::start(rig.address, [127, 0, 0, 5], [127, 0, 0, 9]);
            marks.loses.store(lost, Ordering::Relaxed);
            let agent = rig.agent_at(address, AGENT, "host-7");
            // For as long as the process runs.
            std::mem::forget(marks);
            agent
        });
        let Some((mut side, mut agent)) = begun else { return };
        side.talk(&mut agent, 100);
        assert_eq!(side.moved(), 0);
    }
}
