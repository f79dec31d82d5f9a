//! One worker in memory: production's loop over a [`MemoryDriver`](crate::memory::MemoryDriver), a
//! clock that stands still in a turn, and lists where the mail goes. Tests of the gate read this
//! file too.

use std::collections::VecDeque;
use std::time::Duration;

use ringgate_batch::{Endpoint, IoEvent, Moment, RxMeta, SocketId, Wait};
use ringgate_core::secret::CookieSecret;
use ringgate_gate::body::{Body, Gathers, Stage, Surroundings};
use ringgate_gate::pace::Rules;
use ringgate_gate::{ForwardedDatagram, Gate, Mail, MemberId, Now, Party, WorkerId};

use crate::memory::{Memory, Wire};

/// A worker with memory for what it receives and sends.
pub struct Host {
    body: Body,
    memory: Memory,
    letters: Letters,
}

/// The mail of a worker in memory, and its secrets.
#[derive(Default)]
struct Letters {
    waiting: VecDeque<Mail>,
    written: Vec<(WorkerId, Mail)>,
    for_members: Vec<(MemberId, ForwardedDatagram)>,
    secrets: u64,
}

impl Host {
    /// Takes a gate over.
    pub fn new(gate: Gate) -> Self {
        Self::paced(gate, Rules::new(u32::MAX))
    }

    /// Takes a gate over, and waits for more by these rules.
    pub fn paced(gate: Gate, pace: Rules) -> Self {
        Self {
            body: Body::new(gate, Duration::ZERO, pace, 0),
            memory: Memory::new(TX_DATAGRAMS, TX_BUNDLES),
            letters: Letters::default(),
        }
    }

    /// Draws other secrets for cookies than other hosts, the same in every run.
    #[must_use]
    pub fn with_secrets(mut self, first: u64) -> Self {
        self.letters.secrets = first;
        self
    }

    /// The gate, to ask it.
    pub const fn gate(&self) -> &Gate {
        self.body.gate()
    }

    /// The gate, to tell it something between two turns.
    pub const fn gate_mut(&mut self) -> &mut Gate {
        self.body.gate_mut()
    }

    /// Gives the next turn a datagram to find. What else there is to say about it goes into what
    /// comes back; `None` when a turn has to be run first.
    pub fn receive(
        &mut self,
        socket: SocketId,
        peer: Endpoint,
        bytes: &[u8],
    ) -> Option<&mut RxMeta> {
        self.memory.receive(socket, peer, bytes)
    }

    /// Gives the next turn an event to find.
    pub fn notice(&mut self, event: IoEvent) {
        self.memory.notice(event);
    }

    /// Gives the next turn a message to find.
    pub fn post(&mut self, mail: Mail) {
        self.letters.waiting.push_back(mail);
    }

    /// Gives the next turn nothing to find but what links have: one of them has answered.
    pub fn look_at_links(&mut self) {
        self.memory.look_at_links();
    }

    /// How many messages the next turn will find.
    pub fn mail_count(&self) -> usize {
        self.letters.waiting.len()
    }

    /// What has been written to other workers, with their index. What cannot be delivered goes back
    /// by [`Gate::mail_refused`].
    pub fn take_written(&mut self) -> Vec<(WorkerId, Mail)> {
        std::mem::take(&mut self.letters.written)
    }

    /// What has been given to other members of the cluster. What cannot be sent goes back by
    /// [`Gate::member_refused`].
    pub fn take_for_members(&mut self) -> Vec<(MemberId, ForwardedDatagram)> {
        std::mem::take(&mut self.letters.for_members)
    }

    /// How long its driver would wait in the next turn, were it one that can.
    pub fn wait(&self) -> Wait {
        self.body.wait(&self.letters, u64::MAX)
    }

    /// Whether nothing of a turn is left that a hand-over would lose.
    pub fn can_be_handed_over(&self) -> bool {
        let gate = self.gate();
        self.letters.written.is_empty()
            && self.letters.for_members.is_empty()
            && !gate.is_stopped()
            && !gate.is_ending_sessions()
    }

    /// What was waited on purpose.
    pub const fn gathers(&self) -> Gathers {
        self.body.gathers()
    }

    /// One turn over everything that was received since the last.
    pub fn turn(&mut self, now: Now, wire: &mut impl Wire) {
        let Self { body, memory, letters } = self;
        let unix_ns = now.unix_s.saturating_mul(NS_PER_S);
        let clock = Moment { mono_ns: now.mono_ns, unix_ns };
        let turned = body.turn(&mut memory.driver(wire), &clock, letters, u64::MAX);
        turned.expect("memory does not fail");
    }
}

impl Surroundings for Letters {
    fn take_mail(&mut self, handle: impl FnMut(Mail)) {
        self.waiting.drain(..).for_each(handle);
    }

    fn has_mail(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn send(&mut self, to: WorkerId, mail: Mail) -> Result<(), Box<Mail>> {
        self.written.push((to, mail));
        Ok(())
    }

    fn send_to_member(&mut self, to: MemberId, datagram: &ForwardedDatagram) -> bool {
        self.for_members.push((to, datagram.clone()));
        true
    }

    fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]> {
        self.secrets += 1;
        Some([1, 2].map(|half| {
            let mut bytes = [half; 64];
            bytes[..8].copy_from_slice(&self.secrets.to_le_bytes());
            CookieSecret::from_bytes(bytes)
        }))
    }

    fn record(&mut self, _of: (Party, Stage), _durations: impl Iterator<Item = (u64, u64)>) {}
}

/// Small enough that a busy turn has to flush in its middle.
const TX_DATAGRAMS: usize = 96;
const TX_BUNDLES: usize = 6;

const NS_PER_S: u64 = 1_000_000_000;
