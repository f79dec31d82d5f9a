//! Which records may be handed on: no payload of a session before it was announced, none after its
//! end; at the gateway, none of a link before its hello.
//!
//! Announcements come by the stream and payloads beside it, and either may be faster. So each
//! datagram says how many records the stream had carried for its lane (its *mark*). What is known
//! is handed on at once, however slow the stream is: one player's announcement that was lost and is
//! sent again holds up nobody else. What is not known waits if its mark was not reached yet, and
//! there is room for so much; if it was, it is over, and refused.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_link::bundle::{Frame, Frames, Opened, OpenedPlain, SessionId, ToGame};

use crate::protocol::datagram::Refusal;

/// Bytes of records that may wait.
const BYTES_MAX: usize = 1 << 20;

/// Records that may wait.
const RECORDS_MAX: usize = 4096;

/// Sessions that are known of a lane. A gateway that announces more has more than it may.
const SESSIONS_MAX: usize = 1 << 20;

/// How far the stream is, and what it has announced.
#[derive(Debug)]
pub(crate) struct Order {
    seen: u32,
    links: Numbers,
    /// Sessions that are open, by the link on which they are. A gateway knows its sessions itself.
    sessions: Option<HashMap<u64, u16, BuildHasherDefault<SessionHasher>>>,
}

impl Carry for Order {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { seen, links, sessions } = self;
        seen.write(out);
        links.write(out);
        sessions.is_some().write(out);
        let Some(sessions) = sessions else { return };
        (sessions.len() as u32).write(out);
        for (session, link) in sessions {
            (*session, *link).write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (seen, links) = (u32::read(from)?, Numbers::read(from)?);
        let mut order = Self { seen, links, ..Self::new(bool::read(from)?) };
        if let Some(sessions) = &mut order.sessions {
            let count = u32::read(from)? as usize;
            if count > SESSIONS_MAX {
                return Err(Broken::Invalid("number of sessions"));
            }
            for _ in 0..count {
                let (session, link) = Carry::read(from)?;
                sessions.insert(session, link);
            }
        }
        Ok(order)
    }
}

impl Order {
    pub(crate) const fn knows_sessions(&self) -> bool {
        self.sessions.is_some()
    }

    /// With sessions, which is what an agent asks for.
    pub(crate) fn new(with_sessions: bool) -> Self {
        let sessions = with_sessions.then(HashMap::default);
        Self { seen: 0, links: Numbers::default(), sessions }
    }

    /// How many ordered records and ends have come.
    pub(crate) const fn seen(&self) -> u32 {
        self.seen
    }

    /// So many have come, which were handled elsewhere.
    pub(crate) const fn set_seen(&mut self, seen: u32) {
        self.seen = seen;
    }

    /// A link has begun, whose records come another way.
    pub(crate) fn begin(&mut self, link: u16) -> About {
        self.links.insert(link);
        About::Link(link)
    }

    /// An ordered record has come. What it is about.
    pub(crate) fn note(&mut self, link: u16, frame: Frame<'_>) -> About {
        self.seen = self.seen.wrapping_add(1);
        let is_new = self.links.insert(link);
        let Some(sessions) = &mut self.sessions else { return About::Link(link) };
        let session = match ToGame::decode(frame) {
            Ok(
                ToGame::Opened(Opened { session, .. })
                | ToGame::OpenedPlain(OpenedPlain { session, .. }),
            ) => {
                if sessions.len() < SESSIONS_MAX {
                    sessions.insert(session.as_u64(), link);
                }
                session
            }
            // A player who is moved may have been announced on the other link before.
            Ok(ToGame::Closed { session, .. } | ToGame::Moved { session, .. }) => {
                if sessions.get(&session.as_u64()) == Some(&link) {
                    sessions.remove(&session.as_u64());
                }
                session
            }
            _ => return About::Link(link),
        };
        if is_new { About::Link(link) } else { About::Session(session) }
    }

    /// A session goes on elsewhere, and its end is not announced.
    pub(crate) fn forget(&mut self, session: SessionId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.remove(&session.as_u64());
        }
    }

    /// A link has ended, and every session on it.
    pub(crate) fn note_end(&mut self, link: u16) -> About {
        self.seen = self.seen.wrapping_add(1);
        self.end(link)
    }

    /// The same of a link whose records come another way.
    pub(crate) fn end(&mut self, link: u16) -> About {
        self.links.remove(link);
        if let Some(sessions) = &mut self.sessions {
            sessions.retain(|_, on| *on != link);
        }
        About::Link(link)
    }

    /// Whether records are still to come that were sent before something with this mark.
    #[inline]
    const fn is_early(&self, mark: u32) -> bool {
        (mark.wrapping_sub(self.seen) as i32) > 0
    }

    /// Whether all that may be lost may be handed to a link, whoever it is for: then there is
    /// nothing to be asked of each record.
    #[inline]
    pub(crate) fn takes_all(&self, link: u16) -> bool {
        self.sessions.is_none() && self.links.contains(link)
    }

    /// Whether a record that came in a datagram may be handed to its link.
    #[inline]
    pub(crate) fn judge(&self, mark: u32, link: u16, frame: Frame<'_>) -> Result<(), Refusal> {
        if !frame.may_be_lost() {
            return Err(Refusal::Malformed);
        }
        let is_known = match (&self.sessions, frame.payload_session()) {
            (Some(sessions), Some(session)) => sessions.get(&session.as_u64()) == Some(&link),
            // A payload for nobody, or a multicast to a game.
            (Some(_), None) if frame.payloads() > 0 => return Err(Refusal::Malformed),
            _ => self.links.contains(link),
        };
        match is_known {
            true => Ok(()),
            false if self.is_early(mark) => Err(Refusal::Early),
            false => Err(Refusal::Over),
        }
    }
}

/// A set of links: asked for each record, so it is a bit for each number that there is.
#[derive(Debug)]
struct Numbers(Box<[u64]>);

impl Default for Numbers {
    fn default() -> Self {
        Self(vec![0; (usize::from(u16::MAX) + 1) / 64].into_boxed_slice())
    }
}

impl Carry for Numbers {
    fn write(&self, out: &mut Writer<'_>) {
        let words = self.0.iter().enumerate().filter(|(_, word)| **word != 0);
        let set = words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| (at * 64 + bit) as u16)
        });
        set.collect::<Vec<_>>().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut numbers = Self::default();
        for number in Vec::<u16>::read(from)? {
            numbers.insert(number);
        }
        Ok(numbers)
    }
}

impl Numbers {
    /// Whether it was not in there.
    fn insert(&mut self, number: u16) -> bool {
        let is_new = !self.contains(number);
        self.0[usize::from(number) / 64] |= 1 << (number % 64);
        is_new
    }

    fn remove(&mut self, number: u16) {
        self.0[usize::from(number) / 64] &= !(1 << (number % 64));
    }

    #[inline]
    fn contains(&self, number: u16) -> bool {
        self.0[usize::from(number) / 64] & 1 << (number % 64) != 0
    }
}

/// What an ordered record is about: who waits for something else goes on waiting, without being
/// looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Link(u16),
    Session(SessionId),
    /// Whatever it was, that was handled elsewhere.
    Elsewhere,
}

/// Session numbers are a gateway's own, so nobody chooses them to collide.
#[derive(Clone, Copy, Debug, Default)]
struct SessionHasher(u64);

impl Hasher for SessionHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("session numbers are hashed as numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Records that wait for their mark, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Whole records, back to back.
    bytes: Vec<u8>,
    queue: VecDeque<Waiter>,
}

/// One of them: what it waits for, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    mark: u32,
    link: u16,
    session: Option<SessionId>,
    bytes: usize,
}

impl Waiter {
    /// Whether a record that is about this may have changed what is to be said of it.
    fn is_concerned(&self, about: About) -> bool {
        match about {
            About::Link(link) => self.link == link,
            About::Session(session) => self.session == Some(session),
            About::Elsewhere => false,
        }
    }
}

impl Carry for Waiting {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { bytes, queue } = self;
        (queue.len() as u32).write(out);
        let mut records = Frames::new(bytes).flatten();
        for Waiter { mark, link, session: _, bytes: _ } in queue {
            (*mark, *link).write(out);
            let record = records.next().map_or(&[][..], |frame| frame.bytes());
            (record.len() as u16).write(out);
            out.bytes(record);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut waiting = Self::new();
        for _ in 0..u32::read(from)? {
            let (mark, link): (u32, u16) = Carry::read(from)?;
            let len = u16::read(from)?;
            let mut frames = Frames::new(from.bytes(len.into())?);
            let frame = frames.next().and_then(Result::ok).ok_or(Broken::Invalid("record"))?;
            if frames.next().is_some() || !waiting.keep(mark, link, frame) {
                return Err(Broken::Invalid("record"));
            }
        }
        Ok(waiting)
    }
}

impl Waiting {
    pub(crate) fn new() -> Self {
        let (bytes, queue) = (Vec::with_capacity(BYTES_MAX), VecDeque::with_capacity(RECORDS_MAX));
        Self { bytes, queue }
    }

    /// Keeps a record. `false` where there is no room.
    pub(crate) fn keep(&mut self, mark: u32, link: u16, frame: Frame<'_>) -> bool {
        let bytes = frame.bytes().len();
        if self.bytes.len() + bytes > BYTES_MAX || self.queue.len() == RECORDS_MAX {
            return false;
        }
        self.bytes.extend_from_slice(frame.bytes());
        let session = frame.payload_session();
        self.queue.push_back(Waiter { mark, link, session, bytes });
        true
    }

    /// Passes on every record about which something else can be said now than that it is early.
    pub(crate) fn release(
        &mut self,
        order: &Order,
        about: About,
        mut pass_on: impl FnMut(u16, Frame<'_>, Result<(), Refusal>),
    ) {
        let (mut from, mut kept) = (0, 0);
        for _ in 0..self.queue.len() {
            let Some(waiter) = self.queue.pop_front() else { break };
            let Waiter { mark, link, bytes, .. } = waiter;
            let record = from..from + bytes;
            from += bytes;
            if !order.is_early(mark) || waiter.is_concerned(about) {
                let frame = Frames::new(&self.bytes[record.clone()]).next();
                let Some(Ok(frame)) = frame else { continue };
                let judged = order.judge(mark, link, frame);
                if judged != Err(Refusal::Early) {
                    pass_on(link, frame, judged);
                    continue;
                }
            }
            if kept < record.start {
                self.bytes.copy_within(record, kept);
            }
            kept += bytes;
            self.queue.push_back(waiter);
        }
        self.bytes.truncate(kept);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_link::bundle::{CloseReason, Writer};

    fn with_frame<T>(
        write: impl Fn(&mut Writer<'_>) -> bool,
        then: impl FnOnce(Frame<'_>) -> T,
    ) -> T {
        let mut buf = [0; 2000];
        let mut writer = Writer::new(&mut buf);
        assert!(write(&mut writer));
        then(Frames::new(writer.bytes()).next().expect("one").expect("own"))
    }

    fn open(order: &mut Order, link: u16, session: SessionId) -> About {
        let address = "192.0.2.7:9".parse().expect("literal");
        let opened = OpenedPlain { session, slot: None, slots_max: 4, address, listener: "any" };
        with_frame(|writer| writer.opened_plain(&opened), |frame| order.note(link, frame))
    }

    fn judge(order: &Order, mark: u32, link: u16, session: SessionId) -> Result<(), Refusal> {
        with_frame(|writer| writer.payload(session, b"x"), |frame| order.judge(mark, link, frame))
    }

    #[test]
    fn a_session_is_open_between_its_announcement_and_its_end_on_its_link_alone() {
        let session = SessionId::new(3, 9);
        let mut order = Order::new(true);
        assert_eq!(judge(&order, 0, 1, session), Err(Refusal::Over));
        assert_eq!(judge(&order, 1, 1, session), Err(Refusal::Early));
        open(&mut order, 1, session);
        assert_eq!(judge(&order, 1, 1, session), Ok(()));
        assert_eq!(judge(&order, 9, 1, session), Ok(()), "nobody waits for others' records");
        assert_eq!(judge(&order, 1, 2, session), Err(Refusal::Over));
        assert_eq!(judge(&order, 1, 1, SessionId::new(3, 10)), Err(Refusal::Over));
        let closes = |writer: &mut Writer<'_>| writer.closed(session, CloseReason::Kicked);
        with_frame(closes, |frame| order.note(1, frame));
        assert_eq!(judge(&order, 1, 1, session), Err(Refusal::Over));
        open(&mut order, 1, session);
        order.forget(session);
        assert_eq!(judge(&order, 2, 1, session), Err(Refusal::Over));
        open(&mut order, 1, session);
        order.note_end(2);
        assert_eq!(judge(&order, 1, 1, session), Ok(()));
        order.note_end(1);
        assert_eq!(judge(&order, 1, 1, session), Err(Refusal::Over));
    }

    #[test]
    fn a_gateway_takes_what_comes_on_links_that_have_begun() {
        let mut order = Order::new(false);
        let session = SessionId::new(3, 9);
        assert_eq!(judge(&order, 0, 1, session), Err(Refusal::Over));
        assert_eq!(judge(&order, 1, 1, session), Err(Refusal::Early));
        let hello = ringgate_link::bundle::Hello::new(1, "arena");
        with_frame(|writer| writer.hello(&hello), |frame| order.note(1, frame));
        assert_eq!(judge(&order, 0, 1, session), Ok(()));
        let judged = with_frame(|writer| writer.hello(&hello), |frame| order.judge(0, 1, frame));
        assert_eq!(judged, Err(Refusal::Malformed), "that must not be lost");
    }

    #[test]
    fn a_stream_that_is_read_elsewhere_says_how_far_it_is() {
        let (mut order, session) = (Order::new(false), SessionId::new(3, 9));
        let mut waiting = Waiting::new();
        let mut keep = |mark| {
            with_frame(|writer| writer.payload(session, b"x"), |it| waiting.keep(mark, 1, it))
        };
        assert!(keep(2) && keep(3));
        order.set_seen(2);
        let mut judged = Vec::new();
        waiting.release(&order, About::Elsewhere, |_, _, it| judged.push(it));
        assert_eq!(judged, [Err(Refusal::Over)], "its link has not begun, the other may yet");
        let about = order.begin(1);
        waiting.release(&order, about, |_, _, it| judged.push(it));
        assert_eq!((&judged[1..], waiting.len()), (&[Ok(())][..], 0));
        order.end(1);
        assert_eq!(judge(&order, 2, 1, session), Err(Refusal::Over));
        assert_eq!(order.seen(), 2);
    }

    #[test]
    fn a_multicast_to_a_game_is_refused() {
        let order = Order::new(true);
        let sessions = [SessionId::new(3, 9)];
        let judged = with_frame(
            |writer| writer.multicast(&sessions, b"x"),
            |frame| order.judge(0, 1, frame),
        );
        assert_eq!(judged, Err(Refusal::Malformed));
    }

    #[test]
    fn marks_are_compared_across_their_end() {
        let mut order = Order::new(false);
        order.seen = u32::MAX;
        assert!(!order.is_early(u32::MAX) && order.is_early(0) && !order.is_early(3 << 30));
        order.note_end(0);
        assert!(!order.is_early(0) && order.is_early(1) && !order.is_early(u32::MAX));
    }

    #[test]
    fn records_wait_in_order_and_not_without_bound() {
        let mut waiting = Waiting::new();
        let mut order = Order::new(true);
        let session = |serial: u64| SessionId::new(3, serial);
        let keep = |waiting: &mut Waiting, serial: u64, len: usize| {
            let payload = vec![serial as u8; len];
            with_frame(
                |writer| writer.payload(session(serial), &payload),
                |frame| waiting.keep(serial as u32, 1, frame),
            )
        };
        for serial in (1..=4).cycle().take(RECORDS_MAX) {
            assert!(keep(&mut waiting, serial, 8));
        }
        assert!(!keep(&mut waiting, 1, 8));
        let release = |waiting: &mut Waiting, order: &Order, about: About| {
            let mut released = Vec::new();
            waiting.release(order, about, |link, frame, judged| {
                assert_eq!(link, 1);
                released.push((frame.payload_session(), judged));
            });
            released
        };
        assert_eq!(release(&mut waiting, &order, About::Link(1)), []);
        let about = open(&mut order, 1, session(2));
        assert_eq!(about, About::Link(1), "its first record begins a link");
        let released = release(&mut waiting, &order, about);
        let expected = [(Some(session(1)), Err(Refusal::Over)), (Some(session(2)), Ok(()))];
        assert_eq!(released[..2], expected, "the first was never announced");
        assert_eq!((released.len(), waiting.len()), (RECORDS_MAX / 2, RECORDS_MAX / 2));
        let about = open(&mut order, 1, session(4));
        assert_eq!(about, About::Session(session(4)));
        assert_eq!(release(&mut waiting, &order, about).len(), RECORDS_MAX / 4);
        assert_eq!(waiting.len(), RECORDS_MAX / 4, "the third waits on");
        let about = open(&mut order, 1, session(3));
        assert_eq!(release(&mut waiting, &order, about).len(), RECORDS_MAX / 4);
        assert_eq!((waiting.len(), waiting.bytes.len()), (0, 0));
        while keep(&mut waiting, 9, 1472) {}
        assert_eq!(waiting.len(), BYTES_MAX / 1484);
    }
}
