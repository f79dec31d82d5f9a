//! The receiving half: from what the poller found to one event after the other.

use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

use super::super::bundle::{
    Assembly, BUNDLE_BYTES_MAX, Channel, CloseReason, Frames, Goodbye, GoodbyeReason, MessagePart,
    MoveRefusal, Offered, Opened, OpenedPlain, Quality, RecordError, SessionId, ToGame,
    VERSION_MAX, VERSION_MIN, Welcome,
};
use super::link::Received;
use super::poller::{READY_REGISTRATION, READY_TIMER};
use super::{BACKOFF_MIN, Backend, Outbox};
use crate::announce::Standing;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A link is up: from now on it can be sent to.
    LinkUp {
        /// The worker at its other end.
        worker: usize,
        /// How many workers there are.
        workers: usize,
        /// Differs from one start of the gateway to the next.
        incarnation: u64,
        /// The version of the format that both sides speak on this link.
        version: u16,
    },
    /// A player is connected.
    Opened(Opened<'a>),
    /// There is a player of a plain listener; the same again once it has its slot.
    OpenedPlain(OpenedPlain<'a>),
    /// A player's payload.
    Payload {
        /// Whose.
        session: SessionId,
        /// 1 to 1472 bytes; of a player of netcode at most 1200.
        bytes: &'a [u8],
    },
    /// A whole message of a player of a listener with `delivery = "gateway"`.
    Message {
        /// Whose.
        session: SessionId,
        /// Where it comes from.
        channel: Channel,
        /// 1 byte to 64 KiB; at most 1159 bytes where the channel is not reliable.
        bytes: &'a [u8],
    },
    /// What became of a message that was sent with a token, also before the session was moved away
    /// and came back, so no token of a session is used twice. There is one for each, before the
    /// session's [`Closed`](Self::Closed), unless the link is lost, or the message was sent when
    /// the gateway had ended the session already: that one was not delivered.
    Report {
        /// Whose.
        session: SessionId,
        /// The token of the message.
        token: u64,
        /// Whether it has arrived. One on a reliable channel always does, as long as the session
        /// lives.
        is_delivered: bool,
    },
    /// So much waits at the gateway for a player that no more should be sent on reliable channels,
    /// or it has become less again.
    Room {
        /// Whose.
        session: SessionId,
        /// No more should be sent.
        is_full: bool,
        /// What waits.
        waiting_bytes: u32,
    },
    /// The answer to [`Outbox::ask_quality`].
    Quality {
        /// Whose.
        session: SessionId,
        /// How good the way to the player is.
        quality: Quality,
    },
    /// What became of a session that was [closed after delivery](Outbox::close_after). Right before
    /// its [`Closed`](Self::Closed), whoever ended it.
    Lingered {
        /// Which.
        session: SessionId,
        /// How much of what was sent on reliable channels is not known to have arrived.
        undelivered_bytes: u32,
        /// The player's library has the reason and the text.
        is_told: bool,
    },
    /// A player of another game process may come here: [`Outbox::answer`] says whether. It is not
    /// this process's player before its [`Opened`](Self::Opened).
    Offered(Offered<'a>),
    /// What was [offered](Self::Offered) is not any more. There is no such event once it was
    /// answered with no.
    OfferOver {
        /// Whose session it was.
        session: SessionId,
        /// Which offer.
        offer: u64,
        /// Why.
        reason: MoveRefusal,
    },
    /// A player has been moved to another game process: by [`Outbox::move_session`], or by an
    /// operator. The last event about the session, but for reports of messages that were sent
    /// before.
    Moved {
        /// Which.
        session: SessionId,
        /// The ticket of the move.
        ticket: u64,
    },
    /// A player was not moved, and plays on here.
    MoveRefused {
        /// Which.
        session: SessionId,
        /// The ticket of the move.
        ticket: u64,
        /// Why.
        reason: MoveRefusal,
    },
    /// A session is over. The last event about it.
    Closed {
        /// Which.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// The answer to [`Backend::ping`].
    Pong {
        /// The worker that answered.
        worker: usize,
        /// From the call of `ping` to this event.
        round_trip: Duration,
    },
    /// The gateway takes no new players and will shut down.
    Draining {
        /// The worker that says so; every one does.
        worker: usize,
        /// How long the players who are here may go on.
        left: Duration,
    },
    /// The gateway takes players again: what [`Draining`](Self::Draining) said does not hold any
    /// more. Gateways of the first releases did not say so.
    Undrained {
        /// The worker that says so; every one does.
        worker: usize,
    },
    /// Another process has the gateway from here on. Nothing changes: links and sessions go on.
    /// Gateways of the first releases did not say so.
    TakenOver {
        /// The worker that says so; every one does.
        worker: usize,
        /// Processes that have had the gateway, this one included.
        generation: u32,
    },
    /// A link is down: forget every session of its worker. It is tried again until it is up, and
    /// players who are still there then are opened again.
    LinkLost {
        /// The worker at its other end.
        worker: usize,
        /// Why.
        loss: LinkLoss,
        /// Payloads that had been taken and were not sent.
        payloads_unsent: u64,
    },
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLoss {
    /// The gateway ended it.
    Goodbye(Goodbye),
    /// The gateway hung up without a word: it crashed or was stopped.
    HungUp,
    /// The gateway broke the format.
    RecordInvalid(RecordError),
    /// The gateway's first record was not a welcome, or a later one was.
    WelcomeExpected,
    /// The gateway has chosen a version that was not offered.
    VersionUnsupported(u16),
    /// The kernel failed to read from the socket.
    Failed(io::ErrorKind),
}

impl fmt::Display for LinkLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goodbye(Goodbye { reason, error }) => {
                write!(f, "the gateway has closed the link: {reason}")?;
                error.iter().try_for_each(|error| write!(f, " ({error})"))?;
                f.write_str(what_to_do(*reason))
            }
            Self::HungUp => {
                f.write_str("the gateway has hung up without a word: it was stopped, or crashed")
            }
            Self::RecordInvalid(error) => write!(f, "the gateway broke the format: {error}"),
            Self::WelcomeExpected => f.write_str("the gateway did not begin with one welcome"),
            Self::VersionUnsupported(version) => {
                write!(f, "the gateway has chosen version {version}, which was not offered")
            }
            Self::Failed(why) => write!(f, "the link cannot be read: {why}"),
        }
    }
}

/// What helps against a refusal.
const fn what_to_do(reason: GoodbyeReason) -> &'static str {
    match reason {
        GoodbyeReason::NameTaken => {
            "; another process is connected as this backend: end it, or use another name"
        }
        GoodbyeReason::NameUnknown => {
            "; the gateway's config has no [[backend]] of this name with link = \"bundle\""
        }
        GoodbyeReason::Unauthorised => {
            "; run as the gateway's user, or list this user in the backend's allow_uids or allow_gids"
        }
        GoodbyeReason::VersionUnsupported => {
            "; gateway and library have no version of the link in common: update the older one"
        }
        _ => "",
    }
}

/// The events of one turn. Dropping it early loses nothing: the next poll goes on where it stopped.
#[derive(Debug)]
pub struct Events<'a> {
    pub(super) backend: &'a mut Backend,
}

impl Events<'_> {
    /// The next event, and where to send the answer.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from its `Events`")]
    #[inline]
    pub fn next(&mut self) -> Option<(Event<'_>, &mut Outbox)> {
        let step = self.backend.next_step()?;
        let Backend { inbox, outbox, .. } = &mut *self.backend;
        let event = match step {
            Step::Payload { session, at } => Event::Payload { session, bytes: &inbox.buf[at] },
            Step::Borrowed { at } => inbox.borrowed(at),
            Step::Message { session, channel, at } => {
                Event::Message { session, channel, bytes: &inbox.buf[at] }
            }
            Step::Assembled { session, channel, worker } => {
                Event::Message { session, channel, bytes: inbox.assemblies[worker].message() }
            }
            Step::Plain(event) => event,
        };
        Some((event, outbox))
    }
}

/// The datagram that is being read, and how far.
#[derive(Debug)]
pub(super) struct Inbox {
    /// One byte longer than a bundle may be, so that one that is too long shows.
    buf: Box<[u8]>,
    /// What is left of the datagram.
    unread: Range<usize>,
    /// The link that is read until it has nothing more, and how many bundles it may still yield.
    reading: Option<(usize, usize)>,
    /// Bundles that have come since somebody asked.
    bundles: u64,
    /// By worker: the message that is being put together.
    assemblies: Vec<Assembly>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let buf = vec![0; BUNDLE_BYTES_MAX + 1].into_boxed_slice();
        Self { buf, unread: 0..0, reading: None, bundles: 0, assemblies: Vec::new() }
    }

    /// How many bundles have come since the last call.
    pub(super) const fn take_bundle_count(&mut self) -> u64 {
        std::mem::replace(&mut self.bundles, 0)
    }

    /// Whether a turn was left before its events were taken.
    pub(super) const fn has_unread(&self) -> bool {
        self.reading.is_some()
    }

    /// Whether records have been received and not been taken: the kernel does not know of them.
    pub(super) const fn has_records(&self) -> bool {
        self.unread.start < self.unread.end
    }

    /// Nothing follows of what has begun for a session.
    fn forget(&mut self, worker: usize, session: SessionId) {
        if let Some(assembly) = self.assemblies.get_mut(worker) {
            assembly.forget(session);
        }
    }

    fn borrowed(&self, at: Range<usize>) -> Event<'_> {
        match ToGame::read(&self.buf[at]).next() {
            Some(Ok(ToGame::Offered(offered))) => Event::Offered(offered),
            Some(Ok(ToGame::Opened(opened))) => Event::Opened(opened),
            Some(Ok(ToGame::OpenedPlain(opened))) => Event::OpenedPlain(opened),
            _ => unreachable!("the step was made from this very record"),
        }
    }
}

/// An event that does not borrow yet: ranges in place of slices.
enum Step {
    Payload {
        session: SessionId,
        at: Range<usize>,
    },
    /// An opening or an offer.
    Borrowed {
        at: Range<usize>,
    },
    Message {
        session: SessionId,
        channel: Channel,
        at: Range<usize>,
    },
    /// One that has come in several parts.
    Assembled {
        session: SessionId,
        channel: Channel,
        worker: usize,
    },
    Plain(Event<'static>),
}

impl Backend {
    #[inline]
    fn next_step(&mut self) -> Option<Step> {
        loop {
            let step = match self.inbox.reading {
                Some((worker, _)) if !self.inbox.unread.is_empty() => self.take_record(worker),
                Some((worker, bundles_left)) => self.receive(worker, bundles_left),
                None => {
                    match self.poller.next_ready() {
                        None => {
                            self.poller.show_unread(false);
                            return None;
                        }
                        Some(READY_TIMER) => self.handle_timer(),
                        Some(READY_REGISTRATION) => self.hear_registration(),
                        Some(worker) => self.handle_ready(worker as usize),
                    }
                    None
                }
            };
            if step.is_some() {
                if self.inbox.has_records() {
                    self.poller.show_unread(true);
                }
                return step;
            }
        }
    }

    fn handle_timer(&mut self) {
        self.is_retry_armed = false;
        self.open_links();
        self.register();
    }

    /// The gateway has said how the registration stands, or has gone.
    fn hear_registration(&mut self) {
        let is_news = self.registration.hear(&self.poller);
        if is_news && self.registration.standing() == Standing::Registered {
            // Its workers hear of us now.
            self.backoff = BACKOFF_MIN;
        }
        if self.registration.is_down() {
            self.retry_later();
        }
    }

    fn handle_ready(&mut self, worker: usize) {
        let link = &mut self.outbox.links[worker];
        // Not otherwise: the answers to this turn leave together.
        if link.is_watched_for_room() {
            link.flush(&mut self.outbox.stats);
            link.watch_for_room(&self.poller, worker as u64);
        }
        self.inbox.reading = Some((worker, TURN_BUNDLES_MAX));
    }

    fn receive(&mut self, worker: usize, bundles_left: usize) -> Option<Step> {
        if bundles_left == 0 {
            self.inbox.reading = None;
            return None;
        }
        match self.outbox.links[worker].receive(&mut self.inbox.buf) {
            Ok(Received::Bundle { bytes }) if bytes > BUNDLE_BYTES_MAX => {
                Some(self.lose(worker, LinkLoss::RecordInvalid(RecordError::DatagramTooLong)))
            }
            Ok(Received::Bundle { bytes }) => {
                self.inbox.unread = 0..bytes;
                self.inbox.bundles += 1;
                self.inbox.reading = Some((worker, bundles_left - 1));
                None
            }
            Ok(Received::Nothing) => {
                self.inbox.reading = None;
                None
            }
            Ok(Received::HungUp) => Some(self.lose(worker, LinkLoss::HungUp)),
            Err(error) => Some(self.lose(worker, LinkLoss::Failed(error.kind()))),
        }
    }

    /// Takes one record off the datagram. None of a later version makes an event.
    #[inline]
    fn take_record(&mut self, worker: usize) -> Option<Step> {
        let start = self.inbox.unread.start;
        let unread = &self.inbox.buf[self.inbox.unread.clone()];
        let frame = Frames::new(unread).next().expect("called with something unread");
        let decoded = frame.and_then(|frame| {
            let end = start + frame.bytes().len();
            ToGame::decode(frame).map(|record| (record, end))
        });
        let (record, end) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => return Some(self.lose(worker, LinkLoss::RecordInvalid(error))),
        };
        let is_welcomed = self.outbox.links[worker].is_welcomed();
        let event = match record {
            ToGame::Welcome(welcome) => return Some(self.handle_welcome(worker, welcome, end)),
            ToGame::Goodbye(goodbye) => {
                return Some(self.lose(worker, LinkLoss::Goodbye(goodbye)));
            }
            _ if !is_welcomed => return Some(self.lose(worker, LinkLoss::WelcomeExpected)),
            ToGame::Payload { session, bytes } => {
                self.inbox.unread.start = end;
                return Some(Step::Payload { session, at: end - bytes.len()..end });
            }
            ToGame::Opened(_) | ToGame::OpenedPlain(_) | ToGame::Offered(_) => {
                if let ToGame::Opened(Opened { session, delivers, .. }) = record {
                    self.outbox.links[worker].note_opened(session, delivers);
                }
                self.inbox.unread.start = end;
                return Some(Step::Borrowed { at: start..end });
            }
            ToGame::Message(part) => {
                self.inbox.unread.start = end;
                let at = end - part.bytes.len()..end;
                return match take_part(&mut self.inbox.assemblies, worker, &part, at) {
                    Ok(step) => step,
                    Err(error) => Some(self.lose(worker, LinkLoss::RecordInvalid(error))),
                };
            }
            ToGame::Report { session, token, is_delivered } => {
                Event::Report { session, token, is_delivered }
            }
            ToGame::Room { session, is_full, waiting_bytes } => {
                Event::Room { session, is_full, waiting_bytes }
            }
            ToGame::Quality { session, quality } => Event::Quality { session, quality },
            ToGame::Lingered { session, undelivered_bytes, is_told } => {
                Event::Lingered { session, undelivered_bytes, is_told }
            }
            ToGame::OfferOver { session, offer, reason } => {
                Event::OfferOver { session, offer, reason }
            }
            ToGame::Moved { session, ticket } => {
                self.outbox.links[worker].note_moved(session);
                self.inbox.forget(worker, session);
                Event::Moved { session, ticket }
            }
            ToGame::MoveRefused { session, ticket, reason } => {
                Event::MoveRefused { session, ticket, reason }
            }
            ToGame::Closed { session, reason } => {
                self.outbox.links[worker].note_closed(session);
                self.inbox.forget(worker, session);
                Event::Closed { session, reason }
            }
            ToGame::Pong { token } => {
                let waited_ns = self.clock.now_ns().saturating_sub(token);
                Event::Pong { worker, round_trip: Duration::from_nanos(waited_ns) }
            }
            ToGame::Draining { left_ms } => {
                Event::Draining { worker, left: Duration::from_millis(left_ms.into()) }
            }
            ToGame::Undrained => Event::Undrained { worker },
            ToGame::TakenOver { generation } => Event::TakenOver { worker, generation },
            // Whoever plays is announced; how many are still to come matters to agents.
            ToGame::Players { gather_us, .. } => {
                self.pace.note_told(gather_us);
                self.inbox.unread.start = end;
                return None;
            }
            ToGame::Unknown(_) => {
                self.inbox.unread.start = end;
                return None;
            }
        };
        self.inbox.unread.start = end;
        Some(Step::Plain(event))
    }

    fn handle_welcome(&mut self, worker: usize, welcome: Welcome, end: usize) -> Step {
        if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
            return self.lose(worker, LinkLoss::VersionUnsupported(welcome.version));
        }
        if usize::from(welcome.worker) != worker {
            return self.lose(worker, LinkLoss::RecordInvalid(RecordError::WorkerInvalid));
        }
        if self.outbox.links[worker].is_welcomed() {
            return self.lose(worker, LinkLoss::WelcomeExpected);
        }
        self.inbox.unread.start = end;
        self.outbox.links[worker].welcome(welcome.version);
        self.workers = welcome.workers.into();
        self.backoff = BACKOFF_MIN;
        self.open_links();
        let workers = self.workers;
        let Welcome { incarnation, version, .. } = welcome;
        Step::Plain(Event::LinkUp { worker, workers, incarnation, version })
    }

    fn lose(&mut self, worker: usize, loss: LinkLoss) -> Step {
        let payloads_unsent = self.outbox.links[worker].close(&self.poller);
        self.outbox.stats.payloads_lost += payloads_unsent;
        if let Some(assembly) = self.inbox.assemblies.get_mut(worker) {
            assembly.clear();
        }
        self.inbox.unread = 0..0;
        self.inbox.reading = None;
        self.retry_later();
        Step::Plain(Event::LinkLost { worker, loss, payloads_unsent })
    }
}

/// A message, or a part of one: which is no event before the last.
fn take_part(
    assemblies: &mut Vec<Assembly>,
    worker: usize,
    part: &MessagePart<'_>,
    at: Range<usize>,
) -> Result<Option<Step>, RecordError> {
    let MessagePart { session, channel, .. } = *part;
    if assemblies.get(worker).unwrap_or(&Assembly::new()).is_passed_by(part) {
        return Ok(Some(Step::Message { session, channel, at }));
    }
    if assemblies.len() <= worker {
        assemblies.resize_with(worker + 1, Assembly::new);
    }
    let is_whole = assemblies[worker].take(part)?;
    Ok(is_whole.then_some(Step::Assembled { session, channel, worker }))
}

/// One link cannot keep the others, and the flush, waiting for longer than this. A megabyte is more
/// than a socket holds, so only a gateway that sends faster than we read comes this far.
const TURN_BUNDLES_MAX: usize = 64;
