//! Coming to a gateway: its name is looked up anew for each attempt, in a thread of its own,
//! because a resolver may take its time. Attempts come less often the more of them have failed.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use ringgate_core::splitmix;
use ringgate_io::Bell;

use crate::agent::options::Gateway;
use crate::socket::{End, Trunk};

/// The next attempt.
#[derive(Debug)]
pub(crate) struct Dial {
    resolver: Resolver,
    state: State,
    failures: u32,
    random: u64,
    /// Where a trunk was that had a lane.
    proven: Option<SocketAddr>,
}

#[derive(Debug)]
enum State {
    /// Nothing is done before this.
    Waiting(u64),
    /// The name is being looked up.
    Resolving,
    /// There is a connection, or one is being made. The addresses that are left, should that fail.
    Connecting(Vec<SocketAddr>),
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DialAction {
    /// Wait until then.
    Wait(u64),
    /// Connect to this address.
    Connect(SocketAddr),
    /// The name leads nowhere.
    NoAddress(String),
}

impl Dial {
    /// The first attempt is made at once. The bell is rung when a name was looked up; the seed
    /// makes this agent unlike others.
    pub(crate) fn new(gateway: &Gateway, bell: Bell, seed: u64) -> Self {
        let resolver = Resolver::start(gateway.clone(), bell);
        Self { resolver, state: State::Waiting(0), failures: 0, random: seed, proven: None }
    }

    /// There is a connection already.
    pub(crate) fn go_on(&mut self) {
        self.state = State::Connecting(Vec::new());
    }

    /// While there is no connection: what to do now.
    pub(crate) fn step(&mut self, now_ns: u64) -> DialAction {
        match &mut self.state {
            State::Waiting(until_ns) if *until_ns > now_ns => DialAction::Wait(*until_ns),
            State::Waiting(_) => {
                self.resolver.ask();
                self.state = State::Resolving;
                DialAction::Wait(u64::MAX)
            }
            State::Resolving => match self.resolver.answer() {
                None => DialAction::Wait(u64::MAX),
                Some(Ok(mut addresses)) => {
                    // The first is tried first, and before it the one that was good before.
                    addresses.reverse();
                    addresses.sort_by_key(|it| Some(*it) == self.proven);
                    self.state = State::Connecting(addresses);
                    self.step(now_ns)
                }
                Some(Err(why)) => {
                    self.wait(now_ns);
                    DialAction::NoAddress(why)
                }
            },
            State::Connecting(left) => match left.pop() {
                Some(address) => DialAction::Connect(address),
                None => {
                    self.wait(now_ns);
                    self.step(now_ns)
                }
            },
        }
    }

    /// A trunk is over, which had begun then, if it had.
    pub(crate) fn note_over(&mut self, trunk: &Trunk, begun_ns: Option<u64>, now_ns: u64) {
        let was_deaf = trunk.was_deaf();
        if begun_ns.is_some() && !was_deaf {
            self.proven = Some(trunk.peer());
        }
        match (begun_ns, trunk.over()) {
            // Another of its addresses may take what comes by UDP as well.
            _ if was_deaf => {}
            (Some(begun_ns), _) => self.end(now_ns.saturating_sub(begun_ns), now_ns),
            // It has answered, so another of its addresses says the same.
            (None, Some(End::Theirs(_))) => self.wait(now_ns),
            (None, _) => {}
        }
    }

    /// A connection on which the gateway had let the agent in is over. One that lasted is tried
    /// again at once; one that did not was no better than none.
    fn end(&mut self, lasted_ns: u64, now_ns: u64) {
        if lasted_ns >= STEADY_NS {
            self.failures = 0;
        }
        if self.failures > 0 {
            return self.wait(now_ns);
        }
        self.failures = 1;
        self.state = State::Waiting(now_ns + self.jittered(AGAIN_AFTER_NS));
    }

    /// What is tried after this waits from now on.
    fn wait(&mut self, now_ns: u64) {
        let step = (FIRST_WAIT_NS << self.failures.min(DOUBLINGS_MAX)).min(LAST_WAIT_NS);
        self.failures += 1;
        self.state = State::Waiting(now_ns + self.jittered(step));
    }

    /// Between half of it and all: hundreds of agents do not come back to a gateway
    /// in one moment.
    const fn jittered(&mut self, ns: u64) -> u64 {
        ns / 2 + splitmix::next(&mut self.random) % (ns / 2 + 1)
    }
}

const FIRST_WAIT_NS: u64 = 200_000_000;
const LAST_WAIT_NS: u64 = 5_000_000_000;
const DOUBLINGS_MAX: u32 = 20;

/// After a connection that had worked for so long, or for the first time.
const AGAIN_AFTER_NS: u64 = 100_000_000;
const STEADY_NS: u64 = 10_000_000_000;

/// Looks a name up, again and again.
#[derive(Debug)]
struct Resolver {
    ask: Sender<()>,
    answers: Receiver<Result<Vec<SocketAddr>, String>>,
    is_asked: bool,
}

impl Resolver {
    fn start(gateway: Gateway, bell: Bell) -> Self {
        let (ask, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let work = move || {
            while asked.recv().is_ok() {
                let found = (gateway.host.as_str(), gateway.port).to_socket_addrs();
                let found = found.map(Iterator::collect).map_err(|why| why.to_string());
                if answer.send(found).is_err() {
                    return;
                }
                bell.ring();
            }
        };
        // Without the thread no answer comes: the channel says so.
        let _ = thread::Builder::new().name("agent-names".to_owned()).spawn(work);
        Self { ask, answers, is_asked: false }
    }

    fn ask(&mut self) {
        if !self.is_asked {
            self.is_asked = self.ask.send(()).is_ok();
        }
    }

    fn answer(&mut self) -> Option<Result<Vec<SocketAddr>, String>> {
        let answer = match self.answers.try_recv() {
            Err(mpsc::TryRecvError::Empty) => return None,
            Err(mpsc::TryRecvError::Disconnected) => Err("no thread looks names up".to_owned()),
            Ok(Ok(addresses)) if addresses.is_empty() => Err("it has no address".to_owned()),
            Ok(answer) => answer,
        };
        self.is_asked = false;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(host: &str) -> (Dial, Bell) {
        let bell = Bell::new().expect("descriptors are left");
        let gateway = Gateway { host: host.to_owned(), port: 7200 };
        (Dial::new(&gateway, bell.clone(), 7), bell)
    }

    fn answered(dial: &mut Dial, now_ns: u64) -> DialAction {
        loop {
            match dial.step(now_ns) {
                DialAction::Wait(u64::MAX) => thread::yield_now(),
                step => return step,
            }
        }
    }

    #[test]
    fn attempts_that_fail_come_less_often_and_each_looks_the_name_up() {
        let (mut dial, _bell) = dial("127.0.0.1");
        let mut now_ns = 0;
        for step_ns in [200, 400, 800, 1600, 3200, 5000, 5000].map(|ms| ms * 1_000_000) {
            assert_eq!(
                answered(&mut dial, now_ns),
                DialAction::Connect(([127, 0, 0, 1], 7200).into())
            );
            let DialAction::Wait(until_ns) = dial.step(now_ns) else { panic!("no other address") };
            assert!((step_ns / 2..=step_ns).contains(&(until_ns - now_ns)), "{until_ns}");
            now_ns = until_ns;
        }
        dial.end(1_000_000, now_ns);
        let DialAction::Wait(until_ns) = dial.step(now_ns) else { panic!("not at once") };
        assert!(until_ns - now_ns >= LAST_WAIT_NS / 2, "it was let in, and sent away");
        dial.end(STEADY_NS, now_ns);
        let DialAction::Wait(until_ns) = dial.step(now_ns) else { panic!("not at once") };
        assert!(until_ns - now_ns <= AGAIN_AFTER_NS);
        dial.end(1_000_000, now_ns);
        let DialAction::Wait(until_ns) = dial.step(now_ns) else { panic!("not at once") };
        assert!(until_ns - now_ns > AGAIN_AFTER_NS, "twice in a row");
    }

    #[test]
    fn where_nothing_comes_by_udp_the_next_address_is_tried_and_the_good_one_first() {
        let Some(deaf) = crate::socket::tests::rig::deaf() else { return };
        let (mut dial, _bell) = dial("127.0.0.1");
        let next = SocketAddr::from(([192, 0, 2, 1], 7200));
        dial.state = State::Connecting(vec![next]);
        dial.note_over(&deaf, Some(0), STEADY_NS);
        assert_eq!(dial.step(STEADY_NS), DialAction::Connect(next));
        assert!(matches!(dial.step(STEADY_NS), DialAction::Wait(1..)), "no other address");

        let (answer, answers) = mpsc::channel();
        (dial.resolver.answers, dial.state) = (answers, State::Resolving);
        dial.proven = Some(next);
        let first = SocketAddr::from(([192, 0, 2, 9], 7200));
        answer.send(Ok(vec![first, next])).expect("it is heard");
        assert_eq!([(); 2].map(|()| dial.step(0)), [next, first].map(DialAction::Connect));
    }

    #[test]
    fn a_name_that_leads_nowhere_is_tried_again() {
        let (mut dial, _bell) = dial("no-such-host.invalid");
        assert!(matches!(answered(&mut dial, 0), DialAction::NoAddress(_)));
        assert!(matches!(dial.step(0), DialAction::Wait(1..=FIRST_WAIT_NS)));
    }
}
