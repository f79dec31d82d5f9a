//! One direction of a lane, at its receiver: which datagrams are taken in, and what is handed on.
//!
//! Nothing is decrypted that the header already rules out, nothing moves the replay window that has
//! not opened, and the second of two equal datagrams of a batch is caught. Everything that goes no
//! further is counted under its own name.

use arrayvec::ArrayVec;
use ringgate_core::crypto::{Aead, Job, Verdict};
use ringgate_core::proto::replay;
use ringgate_link::bundle::{Frame, Frames, Run, SessionId};

use crate::protocol::beat::{Arrived, Beat};
use crate::protocol::datagram::{
    HEADER_BYTES, Header, PATH_BYTES_MAX, Refusal, Refusals, TAG_BYTES,
};
use crate::protocol::keys::{ReceiveKeys, Which};
use crate::protocol::order::{About, Order, Waiting};
use crate::protocol::pieces::Pieces;
use crate::protocol::sections::{Piece, Section, take_apart};
use crate::protocol::sender::{JUMPED, nonce};

/// Datagrams that are opened side by side.
const BATCH: usize = 64;

/// How far datagrams may overtake each other: several milliseconds at full speed.
const WINDOW_BITS: u32 = 1024;
const POLICY: replay::Policy =
    replay::Policy::new(WINDOW_BITS, 0).expect("a window may have this size");

/// What a datagram brings.
#[derive(Clone, Copy)]
pub(crate) enum DatagramPart<'a> {
    /// Records for a link.
    Records(u16, Run<'a>),
    Beat(Beat),
    /// A probe of this length has arrived.
    Probe(u16),
    /// One of ours has.
    Probed(u16),
    /// Whether this side is where this was sent.
    Question(u64),
    /// The other side is where it was asked.
    Answer(u64),
}

#[derive(Debug)]
pub(crate) struct Receiver {
    lane: u8,
    trunk: u32,
    keys: ReceiveKeys,
    window: replay::Window,
    latest: Option<u64>,
    pub(crate) arrived: Arrived,
    pieces: Pieces,
    inner: Inner,
}

/// What handing on takes, apart from where pieces come together.
#[derive(Debug)]
struct Inner {
    order: Order,
    waiting: Waiting,
    refusals: Refusals,
    payloads: u64,
}

ringgate_core::carried!(Inner { order, waiting, refusals, payloads });

ringgate_core::carried!(Receiver { lane, trunk, keys, window, latest, arrived, pieces, inner });

impl Receiver {
    /// Whether it is the one of that lane, at an agent or at a gateway.
    pub(crate) fn is_of(&self, which: (u32, u8), with_sessions: bool) -> bool {
        (self.trunk, self.lane) == which && self.inner.order.knows_sessions() == with_sessions
    }

    pub(crate) fn new(trunk: u32, lane: u8, keys: ReceiveKeys, with_sessions: bool) -> Self {
        Self {
            lane,
            trunk,
            keys,
            window: replay::Window::new(),
            latest: None,
            arrived: Arrived::default(),
            pieces: Pieces::new(),
            inner: Inner {
                order: Order::new(with_sessions),
                waiting: Waiting::new(),
                refusals: Refusals::default(),
                payloads: 0,
            },
        }
    }

    /// Takes all that may be lost on this link, and no other.
    pub(crate) fn open_link(&mut self, link: u16) {
        self.inner.order = Order::new(false);
        self.inner.order.begin(link);
    }

    pub(crate) const fn refusals(&self) -> &Refusals {
        &self.inner.refusals
    }

    /// Payloads that were handed on.
    pub(crate) const fn payloads(&self) -> u64 {
        self.inner.payloads
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.keys.epoch()
    }

    /// The highest number that has come.
    pub(crate) const fn latest(&self) -> Option<u64> {
        self.latest
    }

    /// Records that wait for records of the stream.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.waiting.len()
    }

    pub(crate) fn forget_old_key(&mut self, now_ns: u64) {
        self.keys.forget(now_ns);
    }

    /// Takes datagrams in. Returns how many were authentic and new.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        aead: &mut Aead,
        datagrams: &mut [&mut [u8]],
        mut hear: impl FnMut(DatagramPart<'_>),
    ) -> usize {
        self.keys.forget(now_ns);
        let mut taken = 0;
        for batch in datagrams.chunks_mut(BATCH) {
            let opened = self.open(aead, batch);
            for (datagram, header) in batch.iter().zip(opened) {
                let Some(header) = header else { continue };
                let committed = self.window.commit(header.sequence, &POLICY);
                if let Err(why) = committed.map_err(Refusal::from) {
                    self.inner.refusals.count(why);
                    continue;
                }
                self.keys.follow(header.epoch, now_ns);
                self.note_arrival(header.sequence);
                taken += 1;
                self.handle_body(datagram, &mut hear);
            }
        }
        taken
    }

    /// An ordered record has come by the stream and was handed on: hands on what has waited for it.
    pub(crate) fn handle_record(
        &mut self,
        link: u16,
        frame: Frame<'_>,
        hear: impl FnMut(DatagramPart<'_>),
    ) {
        let about = self.inner.order.note(link, frame);
        self.inner.release(about, hear);
    }

    /// A session goes on elsewhere: nothing of it is passed on any more.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.inner.order.forget(session);
    }

    /// A link has ended.
    pub(crate) fn handle_end(&mut self, link: u16, hear: impl FnMut(DatagramPart<'_>)) {
        let about = self.inner.order.note_end(link);
        self.pieces.forget(link);
        self.inner.release(about, hear);
    }

    /// How many ordered records and ends have come by the stream.
    pub(crate) const fn heard(&self) -> u32 {
        self.inner.order.seen()
    }

    /// So many have, which were handled elsewhere.
    pub(crate) fn set_heard(&mut self, heard: u32, hear: impl FnMut(DatagramPart<'_>)) {
        self.inner.order.set_seen(heard);
        self.inner.release(About::Elsewhere, hear);
    }

    /// A link has begun, whose ordered records are handled elsewhere.
    pub(crate) fn begin_link(&mut self, link: u16, hear: impl FnMut(DatagramPart<'_>)) {
        let about = self.inner.order.begin(link);
        self.inner.release(about, hear);
    }

    /// And has ended.
    pub(crate) fn end_link(&mut self, link: u16, hear: impl FnMut(DatagramPart<'_>)) {
        let about = self.inner.order.end(link);
        self.pieces.forget(link);
        self.inner.release(about, hear);
    }

    /// Whether a datagram opens, whatever the window says of its number. Nothing is changed by it.
    pub(crate) fn is_authentic(&self, datagram: &[u8], aead: &mut Aead) -> bool {
        let mut copy = [0; PATH_BYTES_MAX];
        let Some(copy) = copy.get_mut(..datagram.len()) else { return false };
        let Ok((header, which)) = self.locate(datagram) else { return false };
        copy.copy_from_slice(datagram);
        let (aad, body) = copy.split_at_mut(HEADER_BYTES);
        let mut job = [Job::new(self.keys.key(which), nonce(header.sequence), aad, body)];
        aead.open(&mut job);
        job[0].verdict == Verdict::Done
    }

    /// Opens a batch in place. The headers of those that have opened.
    fn open(
        &mut self,
        aead: &mut Aead,
        batch: &mut [&mut [u8]],
    ) -> ArrayVec<Option<Header>, BATCH> {
        let mut headers: ArrayVec<_, BATCH> = batch
            .iter()
            .map(|datagram| match self.judge(datagram) {
                Ok(judged) => Some(judged),
                Err(why) => {
                    self.inner.refusals.count(why);
                    None
                }
            })
            .collect();
        let mut jobs: ArrayVec<Job<'_>, BATCH> = ArrayVec::new();
        for (datagram, judged) in batch.iter_mut().zip(&headers) {
            let Some((header, which)) = judged else { continue };
            let (aad, body) = datagram.split_at_mut(HEADER_BYTES);
            jobs.push(Job::new(self.keys.key(*which), nonce(header.sequence), aad, body));
        }
        aead.open(&mut jobs);
        let mut verdicts = jobs.iter().map(|job| job.verdict);
        for judged in headers.iter_mut().filter(|judged| judged.is_some()) {
            if verdicts.next() != Some(Verdict::Done) {
                *judged = None;
                self.inner.refusals.count(Refusal::Forged);
            }
        }
        headers.into_iter().map(|judged| judged.map(|(header, _)| header)).collect()
    }

    /// What the header alone says.
    fn judge(&self, datagram: &[u8]) -> Result<(Header, Which), Refusal> {
        let (header, which) = self.locate(datagram)?;
        self.window.check(header.sequence, &POLICY)?;
        Ok((header, which))
    }

    /// And which key opens it.
    fn locate(&self, datagram: &[u8]) -> Result<(Header, Which), Refusal> {
        let header = Header::read(datagram).ok_or(Refusal::Foreign)?;
        if (header.trunk, header.lane) != (self.trunk, self.lane) {
            return Err(Refusal::Elsewhere);
        }
        let which = self.keys.locate(header.epoch).ok_or(Refusal::Epoch)?;
        Ok((header, which))
    }

    fn note_arrival(&mut self, sequence: u64) {
        self.arrived.received += 1;
        let next = self.latest.map_or(0, |latest| latest.saturating_add(1));
        if sequence < next {
            self.arrived.filled += 1;
        } else {
            let gap = sequence - next;
            self.arrived.gaps += if gap < JUMPED { gap } else { 0 };
            self.latest = Some(sequence);
        }
    }

    fn handle_body(&mut self, datagram: &[u8], hear: &mut impl FnMut(DatagramPart<'_>)) {
        let body = &datagram[HEADER_BYTES..datagram.len() - TAG_BYTES];
        let Some((mark, sections)) = take_apart(body) else {
            self.inner.refusals.count(Refusal::Malformed);
            return;
        };
        for section in sections {
            match section {
                Some(Section::Records { link, bytes }) => {
                    self.inner.handle_records(mark, link, bytes, hear);
                }
                Some(Section::Piece(piece)) => self.handle_piece(mark, &piece, hear),
                Some(Section::Beat(beat)) => hear(DatagramPart::Beat(beat)),
                Some(Section::Probe { bytes }) if usize::from(bytes) == datagram.len() => {
                    hear(DatagramPart::Probe(bytes));
                }
                None | Some(Section::Probe { .. }) => {
                    self.inner.refusals.count(Refusal::Malformed);
                }
                Some(Section::Probed { bytes }) => hear(DatagramPart::Probed(bytes)),
                Some(Section::Question(question)) => hear(DatagramPart::Question(question)),
                Some(Section::Answer(answer)) => hear(DatagramPart::Answer(answer)),
                Some(Section::Unknown) => {}
            }
        }
    }

    fn handle_piece(
        &mut self,
        mark: u32,
        piece: &Piece<'_>,
        hear: &mut impl FnMut(DatagramPart<'_>),
    ) {
        let Self { pieces, inner, .. } = self;
        match pieces.take(piece) {
            Ok((whole, given_up)) => {
                (0..usize::from(given_up)).for_each(|_| inner.refusals.count(Refusal::Incomplete));
                inner.handle_records(mark, piece.link, whole.unwrap_or_default(), hear);
            }
            Err(why) => inner.refusals.count(why),
        }
    }
}

impl Inner {
    /// Records of a datagram.
    #[inline]
    fn handle_records(
        &mut self,
        mark: u32,
        link: u16,
        bytes: &[u8],
        hear: &mut impl FnMut(DatagramPart<'_>),
    ) {
        let mut frames = Frames::new(bytes);
        if self.order.takes_all(link) {
            let run = frames.take_run();
            self.payloads += run.payloads();
            if !run.is_empty() {
                hear(DatagramPart::Records(link, run));
            }
        }
        for frame in frames {
            let Ok(frame) = frame else { return self.refusals.count(Refusal::Malformed) };
            match self.order.judge(mark, link, frame) {
                Ok(()) => {
                    self.payloads += frame.payloads();
                    hear(DatagramPart::Records(link, frame.into()));
                }
                Err(Refusal::Early) if self.waiting.keep(mark, link, frame) => {}
                Err(why) => self.refusals.count(why),
            }
        }
    }

    /// Hands on what has waited for the latest record of the stream.
    fn release(&mut self, about: About, mut hear: impl FnMut(DatagramPart<'_>)) {
        let Self { order, waiting, refusals, payloads } = self;
        if waiting.len() == 0 {
            return;
        }
        waiting.release(order, about, |link, frame, judged| match judged {
            Ok(()) => {
                *payloads += frame.payloads();
                hear(DatagramPart::Records(link, frame.into()));
            }
            Err(why) => refusals.count(why),
        });
    }
}

impl From<replay::Refusal> for Refusal {
    fn from(refusal: replay::Refusal) -> Self {
        match refusal {
            replay::Refusal::Duplicate => Self::Duplicate,
            replay::Refusal::TooOld | replay::Refusal::Gap => Self::TooOld,
        }
    }
}
