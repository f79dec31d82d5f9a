//! A lane: one worker's part of a trunk, at one of its ends.
//!
//! The caller's turn is always the same: take in what the socket has ([`Lane::receive_runs`]) and
//! what the stream has ([`Lane::handle_record`]), push what local links have ([`Lane::push`]), let
//! time pass ([`Lane::poll`]), seal ([`Lane::seal`]), send what is [pending](Lane::pending).
//!
//! Who handles the stream may be somebody else than who has the lane. Then they tell each other
//! how far it is ([`Lane::set_told`], [`Lane::set_heard`]) and which links there are
//! ([`Lane::begin_link`]), no more.

use arrayvec::ArrayVec;
use ringgate_core::crypto::{Aead, Key};
use ringgate_link::bundle::{Frame, Run, SessionId};

use crate::protocol::beat::{Arrived, Pulse};
use crate::protocol::datagram::Refusals;
use crate::protocol::keys::{ReceiveKeys, Rekey, SendKeys};
use crate::protocol::path::Path;
use crate::protocol::receiver::{DatagramPart, Receiver};
use crate::protocol::sender::Sender;
pub use crate::protocol::sender::{Full, QUESTION_BYTES, Sent};

/// Which end of the trunk this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the game processes.
    Agent,
    /// It has the players.
    Gateway,
}

ringgate_core::carried_by_number!(Role { Agent = 0, Gateway = 1 });

/// What both ends get from the TLS exporter, for one lane.
#[derive(Debug)]
pub struct Secrets {
    /// For datagrams to the gateway.
    pub to_gateway: Key,
    /// For datagrams to the agent.
    pub to_agent: Key,
}

/// The exporter's label.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-ringgate-trunk-1";

impl Secrets {
    /// Asks the exporter, which takes a context and writes a secret.
    pub fn export<E>(
        lane: u8,
        mut exporter: impl FnMut([u8; 2]) -> Result<Key, E>,
    ) -> Result<Self, E> {
        Ok(Self { to_gateway: exporter([lane, 0])?, to_agent: exporter([lane, 1])? })
    }
}

/// What there is to say about a lane.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// What has left here.
    pub sent: Sent,
    /// What of it has arrived there, as the other side said last.
    pub arrived_there: Arrived,
    /// What has arrived here.
    pub arrived_here: Arrived,
    /// Payloads that were handed on here.
    pub payloads_received: u64,
    /// What went no further, by name.
    pub refusals: Refusals,
    /// How long a datagram may be.
    pub path_bytes: usize,
    /// How often the way became narrower.
    pub path_narrowed: u64,
    /// There and back.
    pub round_trip_ns: Option<u64>,
    /// Datagrams that wait for records of the stream.
    pub waiting: usize,
    /// How often the own key and the other side's have changed.
    pub epochs: [u64; 2],
}

/// One end of a lane.
#[derive(Debug)]
pub struct Lane {
    sender: Sender,
    receiver: Receiver,
    path: Path,
    pulse: Pulse,
    /// To questions of ours, which nobody has looked at.
    answers: ArrayVec<u64, ANSWERS_MAX>,
}

// What was pushed and is not sealed does not go along: seal before. Nor does what was asked.
ringgate_core::carried!(Lane { sender, receiver, path, pulse, answers as anew });

/// Two are asked at a time, and each perhaps several times.
const ANSWERS_MAX: usize = 8;

impl Lane {
    /// A lane that has just come up.
    pub fn new(
        role: Role,
        (trunk, lane): (u32, u8),
        secrets: Secrets,
        rekey: Rekey,
        now_ns: u64,
    ) -> Self {
        let Secrets { to_gateway, to_agent } = secrets;
        let (sends, receives) = match role {
            Role::Agent => (to_gateway, to_agent),
            Role::Gateway => (to_agent, to_gateway),
        };
        let keys = ReceiveKeys::new(receives);
        Self {
            sender: Sender::new(trunk, lane, SendKeys::new(sends, rekey, now_ns)),
            receiver: Receiver::new(trunk, lane, keys, role == Role::Agent),
            path: Path::new(now_ns),
            pulse: Pulse::new(now_ns),
            answers: ArrayVec::new(),
        }
    }

    /// Between gateways nothing is announced: what comes on this one link is handed on at once.
    pub(crate) fn open_link(&mut self, link: u16) {
        self.receiver.open_link(link);
    }

    /// Whether this is what that end of a trunk has.
    pub fn is_of(&self, role: Role, which: (u32, u8)) -> bool {
        self.sender.is_of(which) && self.receiver.is_of(which, role == Role::Agent)
    }

    /// Another process may have gone on with this lane and has not: no number that it can have used
    /// is used again.
    pub const fn jump(&mut self) {
        self.sender.jump();
    }

    /// Appends a record that may be lost. Where there is no room, what there is has to be sent
    /// first; a record that still finds none is the caller's to drop and to count.
    #[inline]
    pub fn push(&mut self, link: u16, frame: Frame<'_>) -> Result<(), Full> {
        debug_assert!(frame.may_be_lost(), "what must arrive goes by the stream");
        self.sender.push(link, frame)
    }

    /// Appends records that may be lost, and takes off those for which there was room.
    #[inline]
    pub fn push_run(&mut self, link: u16, run: &mut Run<'_>) -> Result<(), Full> {
        self.sender.push_run(link, run)
    }

    /// Takes in what the socket had. `deliver` gets runs of records for local links.
    ///
    /// Returns whether any of it was authentic, and new: only then may an address count as the
    /// other side's.
    pub fn receive_runs(
        &mut self,
        now_ns: u64,
        aead: &mut Aead,
        datagrams: &mut [&mut [u8]],
        mut deliver: impl FnMut(u16, Run<'_>),
    ) -> bool {
        let Self { sender, receiver, path, pulse, answers } = self;
        let taken = receiver.receive(now_ns, aead, datagrams, |heard| match heard {
            DatagramPart::Records(link, run) => deliver(link, run),
            DatagramPart::Beat(beat) => {
                if pulse.handle(beat, now_ns) {
                    path.doubt(now_ns);
                }
            }
            // Without room for it, the probe comes again.
            DatagramPart::Probe(bytes) => _ = sender.push_probed(bytes),
            DatagramPart::Probed(bytes) => {
                path.handle_answer(usize::from(bytes), now_ns);
                sender.set_path(path.bytes());
            }
            // Without room for it, it is asked again.
            DatagramPart::Question(question) => _ = sender.push_answer(question),
            DatagramPart::Answer(answer) => _ = answers.try_push(answer),
        });
        if taken > 0 {
            pulse.hear(now_ns);
        }
        taken > 0
    }

    /// A record has come by the stream and was handed to its link: what has waited for it follows.
    pub fn handle_record(
        &mut self,
        link: u16,
        frame: Frame<'_>,
        mut deliver: impl FnMut(u16, Frame<'_>),
    ) {
        self.receiver.handle_record(link, frame, |heard| hand_on(heard, &mut deliver));
    }

    /// A session goes on at another gateway, and this one announces no end of it.
    pub fn forget_session(&mut self, session: SessionId) {
        self.receiver.forget_session(session);
    }

    /// The end of a link has come by the stream.
    pub fn handle_end(&mut self, link: u16, mut deliver: impl FnMut(u16, Frame<'_>)) {
        self.receiver.handle_end(link, |heard| hand_on(heard, &mut deliver));
    }

    /// How far the stream is: frames of this lane that it was given, and that have come by it.
    pub const fn stream(&self) -> [u32; 2] {
        [self.sender.mark(), self.receiver.heard()]
    }

    /// The stream was given so many by now, by somebody else.
    pub const fn set_told(&mut self, told: u32) {
        self.sender.set_mark(told);
    }

    /// So many have come by it, to somebody else. What has waited for them follows.
    pub fn set_heard(&mut self, heard: u32, mut deliver: impl FnMut(u16, Frame<'_>)) {
        if self.receiver.heard() != heard {
            self.receiver.set_heard(heard, |heard| hand_on(heard, &mut deliver));
        }
    }

    /// A link has begun, of which the stream is in somebody else's hands.
    pub fn begin_link(&mut self, link: u16, mut deliver: impl FnMut(u16, Frame<'_>)) {
        self.receiver.begin_link(link, |heard| hand_on(heard, &mut deliver));
    }

    /// And has ended.
    pub fn end_link(&mut self, link: u16, mut deliver: impl FnMut(u16, Frame<'_>)) {
        self.receiver.end_link(link, |heard| hand_on(heard, &mut deliver));
    }

    /// What time brings: beats, probes, the end of old keys.
    pub fn poll(&mut self, now_ns: u64) {
        let Self { sender, receiver, path, pulse, .. } = self;
        receiver.forget_old_key(now_ns);
        // What finds no room is due again soon.
        if let Some(beat) = pulse.poll(now_ns, receiver.arrived) {
            let _ = sender.push_beat(beat);
        }
        if let Some(bytes) = path.poll(now_ns, pulse.round_trip_ns) {
            let _ = sender.push_probe(bytes);
        }
        sender.set_path(path.bytes());
    }

    /// When [`poll`](Self::poll) or [`is_silent`](Self::is_silent) has something new.
    pub fn due_ns(&self) -> u64 {
        self.pulse.due_ns().min(self.path.due_ns()).min(self.pulse.silent_at_ns())
    }

    /// Whether the other side was not heard on this lane for too long.
    pub const fn is_silent(&self, now_ns: u64) -> bool {
        self.pulse.is_silent(now_ns)
    }

    /// The highest number of a datagram that has come. One that is authentic and changes this is
    /// newer than all before.
    pub const fn latest(&self) -> Option<u64> {
        self.receiver.latest()
    }

    /// A question for one address, in a datagram that waits for nothing else that is to be sent:
    /// only the other side can read it, and [answers](Self::take_answer).
    pub fn question(
        &mut self,
        question: u64,
        now_ns: u64,
        aead: &mut Aead,
    ) -> [u8; QUESTION_BYTES] {
        self.sender.question(question, now_ns, aead)
    }

    /// Whether the other side has sealed this, new or not. It is not taken in.
    pub fn is_authentic(&self, datagram: &[u8], aead: &mut Aead) -> bool {
        self.receiver.is_authentic(datagram, aead)
    }

    /// Something that was asked and has been answered.
    pub fn take_answer(&mut self) -> Option<u64> {
        self.answers.pop()
    }

    /// The other side is at another address now: the way there is looked at again.
    pub fn handle_moved(&mut self, now_ns: u64) {
        self.path.doubt(now_ns);
    }

    /// Seals what was pushed.
    pub fn seal(&mut self, now_ns: u64, aead: &mut Aead) {
        self.sender.seal(now_ns, aead);
    }

    /// Datagrams that are sealed and not sent.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.sender.pending()
    }

    /// The first so many of them were sent, or given up; all of them where there are fewer.
    pub fn handle_sent(&mut self, count: usize) {
        self.sender.handle_sent(count);
    }

    /// The kernel did not take a datagram because of its length.
    pub fn handle_too_long(&mut self, bytes: usize, now_ns: u64) {
        self.path.refuse(bytes, now_ns);
        self.sender.set_path(self.path.bytes());
    }

    /// Whether nothing waits to be sealed or sent.
    pub const fn is_empty(&self) -> bool {
        self.sender.is_empty()
    }

    /// What there is to say about it.
    pub fn stats(&self) -> Stats {
        Stats {
            sent: self.sender.counts,
            arrived_there: self.pulse.there,
            arrived_here: self.receiver.arrived,
            payloads_received: self.receiver.payloads(),
            refusals: *self.receiver.refusals(),
            path_bytes: self.path.bytes(),
            path_narrowed: self.path.narrowed(),
            round_trip_ns: self.pulse.round_trip_ns,
            waiting: self.receiver.waiting(),
            epochs: [self.sender.epoch(), self.receiver.epoch()],
        }
    }
}

/// Who has to know of each frame that the stream is given for a lane.
pub trait NoteTold {
    /// A record, or the end of a link, was given to the stream: the other side hands on nothing
    /// that is pushed from now on before it has that.
    fn note_told(&mut self);
}

impl NoteTold for Lane {
    fn note_told(&mut self) {
        self.sender.advance_mark();
    }
}

fn hand_on(heard: DatagramPart<'_>, deliver: &mut impl FnMut(u16, Frame<'_>)) {
    if let DatagramPart::Records(link, run) = heard {
        run.frames().for_each(|frame| deliver(link, frame));
    }
}
