//! Another address from which something of a lane has come, until it is known whether the other end
//! is there. It has a socket of its own meanwhile, so that nothing of what comes from there is
//! lost; all that goes there are questions, a few dozen bytes ten times a second at most.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;
use ringgate_os::notify::Epoll;
use ringgate_trunk::address::{self, ASK_AGAIN_NS, Verdict};
use ringgate_trunk::lane::Lane;

use crate::port::Port;

/// Addresses that are asked, one at a time.
#[derive(Debug, Default)]
pub(super) struct Trials {
    current: Option<Trial>,
    /// The latest at which the other end is not.
    unproven: Option<SocketAddr>,
    /// No other one is asked before this.
    rest_until_ns: u64,
}

#[derive(Debug)]
struct Trial {
    port: Port,
    asked: address::Trial,
    is_due: bool,
    looked_ns: u64,
}

impl Trials {
    /// Asks `peer` from now on, and the address before where there is one, unless it is too soon
    /// for that.
    pub(super) fn begin(
        &mut self,
        (own, peer): (SocketAddr, SocketAddr),
        has_before: bool,
        (epoll, token): (&Epoll, u64),
        now_ns: u64,
    ) {
        if self.current.is_some() || now_ns < self.rest_until_ns {
            return;
        }
        let begun = Trial::new((own, peer), has_before, now_ns).and_then(|trial| {
            epoll.add(trial.port.as_fd(), token)?;
            Ok(trial)
        });
        match begun {
            Ok(trial) => self.current = Some(trial),
            // Nobody can be sent anything there.
            Err(_) => self.refuse(peer, now_ns),
        }
    }

    /// Asks no more: somebody else is about to have the lane.
    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// What comes from the address that is asked.
    pub(super) fn port(&mut self) -> Option<&mut Port> {
        self.current.as_mut().map(|trial| &mut trial.port)
    }

    /// What was answered, and what follows from it: a socket to where the other end is now.
    pub(super) fn judge(&mut self, lane: &mut Lane, now_ns: u64) -> Option<Port> {
        while let Some(answer) = lane.take_answer() {
            if let Some(trial) = &mut self.current {
                trial.asked.handle_answer(answer, now_ns);
            }
        }
        let trial = self.current.as_mut()?;
        trial.looked_ns = now_ns;
        match trial.asked.verdict(now_ns) {
            Verdict::Open => {
                trial.is_due = trial.asked.is_due(now_ns);
                None
            }
            Verdict::Moved => self.current.take().map(|trial| trial.port),
            Verdict::Unproven => {
                let peer = trial.port.peer();
                self.current = None;
                self.refuse(peer, now_ns);
                None
            }
        }
    }

    /// Something has come from an address that is not asked yet.
    pub(super) const fn note(&mut self, peer: SocketAddr) {
        self.unproven = Some(peer);
    }

    fn refuse(&mut self, peer: SocketAddr, now_ns: u64) {
        (self.unproven, self.rest_until_ns) = (Some(peer), now_ns + REST_NS);
    }

    /// An address that was asked and is not the other end's, once.
    pub(super) const fn take_unproven(&mut self) -> Option<SocketAddr> {
        self.unproven.take()
    }

    /// Whether one is asked.
    pub(super) const fn is_going_on(&self) -> bool {
        self.current.is_some()
    }

    /// When it is to be looked at again.
    pub(super) fn due_ns(&self) -> u64 {
        self.current.as_ref().map_or(u64::MAX, |trial| trial.looked_ns + LOOK_NS)
    }

    /// Whether both addresses are to be asked.
    pub(super) fn must_ask(&self) -> bool {
        self.current.as_ref().is_some_and(|trial| trial.is_due)
    }

    /// Asks both addresses, while nothing else waits to be sent.
    pub(super) fn ask(
        &mut self,
        before: Option<&mut Port>,
        lane: &mut Lane,
        (aead, now_ns): (&mut Aead, u64),
    ) {
        let Some(trial) = self.current.as_mut().filter(|it| it.is_due && lane.is_empty()) else {
            return;
        };
        trial.is_due = false;
        trial.asked.note_asked(now_ns);
        let (new, at_before) = trial.asked.questions();
        ask_at(&mut trial.port, new, lane, (aead, now_ns));
        if let Some((port, question)) = before.zip(at_before) {
            ask_at(port, question, lane, (aead, now_ns));
        }
    }
}

/// Sends one question. Where the kernel has no room for it, it is given up: nobody else may get it.
fn ask_at(port: &mut Port, question: u64, lane: &mut Lane, (aead, now_ns): (&mut Aead, u64)) {
    if lane.ask(question).is_ok() {
        lane.seal(now_ns, aead);
        let _ = port.send(lane, now_ns);
        lane.handle_sent(usize::MAX);
    }
}

impl Trial {
    fn new(
        (own, peer): (SocketAddr, SocketAddr),
        has_before: bool,
        now_ns: u64,
    ) -> io::Result<Self> {
        let port = Port::open(own, peer)?;
        let random = Key::generate().map_err(io::Error::other)?;
        let number = |at: usize| {
            let bytes = random.as_bytes()[at..].first_chunk().expect("a key is longer");
            u64::from_le_bytes(*bytes)
        };
        let questions = (number(0), has_before.then(|| number(8)));
        let asked = address::Trial::new(questions, now_ns);
        Ok(Self { port, asked, is_due: true, looked_ns: now_ns })
    }
}

/// How often it is looked whether an answer has come in time.
const LOOK_NS: u64 = ASK_AGAIN_NS / 20;

/// After an address that was not the other end's, none is asked for so long.
const REST_NS: u64 = 500_000_000;
