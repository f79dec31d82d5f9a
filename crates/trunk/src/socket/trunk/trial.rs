//! Another address from which something of a lane has come, until it is known whether the other end
//! is there. It has a socket of its own meanwhile, so that nothing of what comes from there is
//! lost; all that goes there are questions, a few dozen bytes ten times a second at most. They wait
//! for nothing: what the lane has to say has no way yet where this is its first address.

use std::io;
use std::net::SocketAddr;

use crate::protocol::address::{self, ASK_AGAIN_NS, Verdict};
use crate::protocol::lane::Lane;
use ringgate_core::crypto::Aead;
use ringgate_core::secret::Key;

use crate::socket::wire::Wire;

/// Addresses that are asked, one at a time.
#[derive(Debug)]
pub(super) struct Trials<W> {
    current: Option<Trial<W>>,
    /// The latest at which the other end is not.
    unproven: Option<SocketAddr>,
    /// No other one is asked before this.
    rest_until_ns: u64,
}

#[derive(Debug)]
struct Trial<W> {
    port: W,
    asked: address::Trial,
    is_due: bool,
    looked_ns: u64,
}

impl<W> Default for Trials<W> {
    fn default() -> Self {
        Self { current: None, unproven: None, rest_until_ns: 0 }
    }
}

impl<W: Wire> Trials<W> {
    /// Asks `peer` from now on, and the address before where there is one, unless it is too soon
    /// for that.
    pub(super) fn begin(
        &mut self,
        (own, peer): (SocketAddr, SocketAddr),
        has_before: bool,
        set: (&W::Set, u64),
        now_ns: u64,
    ) {
        if self.current.is_some() || now_ns < self.rest_until_ns {
            return;
        }
        match Trial::new((own, peer), has_before, set, now_ns) {
            Ok(trial) => self.current = Some(trial),
            // Nobody can be sent anything there.
            Err(_) => self.refuse(peer, now_ns),
        }
    }

    /// Asks no more: another thread is about to have the lane, or it has an address without that.
    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// What comes from the address that is asked.
    pub(super) fn port(&mut self) -> Option<&mut W> {
        self.current.as_mut().map(|trial| &mut trial.port)
    }

    /// What was answered, and what follows from it: a socket to where the other end is now.
    pub(super) fn judge(&mut self, lane: &mut Lane, now_ns: u64) -> Option<W> {
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

    /// Asks both addresses, where that is due.
    pub(super) fn ask(
        &mut self,
        before: Option<&mut W>,
        lane: &mut Lane,
        (aead, now_ns): (&mut Aead, u64),
    ) {
        let Some(trial) = self.current.as_mut().filter(|it| it.is_due) else { return };
        trial.is_due = false;
        trial.asked.note_asked(now_ns);
        let (new, at_before) = trial.asked.questions();
        trial.port.send_alone(&lane.question(new, now_ns, aead));
        if let Some((port, question)) = before.zip(at_before) {
            port.send_alone(&lane.question(question, now_ns, aead));
        }
    }
}

impl<W: Wire> Trial<W> {
    fn new(
        at: (SocketAddr, SocketAddr),
        has_before: bool,
        set: (&W::Set, u64),
        now_ns: u64,
    ) -> io::Result<Self> {
        let port = W::open(at, set)?;
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
