//! From records to bytes.
//!
//! A writer borrows its buffer, so that a payload is copied once: from the packet it was opened in
//! to the bundle that is sent. A caller that keeps the buffer elsewhere between two records
//! remembers the length and [continues](Writer::resume).

use super::record::is_name_bytes;
use super::{
    Answer, BUNDLE_BYTES_MAX, CLOSE_AFTER_BYTES_MIN, COUNT_BYTES, CloseAfter, CloseReason,
    FAREWELL_BYTES_MAX, Frame, Goodbye, HEADER_BYTES, Hello, LONG_PAYLOAD_BYTES_MAX,
    MOVE_BYTES_MAX, MULTICAST_SESSIONS_MAX, MessagePart, Move, MoveRefusal, Offered, Opened,
    OpenedPlain, PART_OVERHEAD_BYTES, PAYLOAD_BYTES_MAX, Quality, RecordError, SESSION_BYTES,
    SessionId, USER_DATA_BYTES, Welcome, address, flags, kind, moves,
};

/// Appends records to a buffer.
///
/// Every method returns whether the record was written. One that does not fit changes nothing, and
/// the next bundle has room for it. One that no reader would accept (a payload of 0 or of more than
/// 1200 bytes, for example) is a mistake of the caller: it is not written either, and stops a debug
/// build.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    /// Invariant: not more than `buf.len()`.
    len: usize,
}

impl<'a> Writer<'a> {
    /// Begins a bundle. Of a buffer longer than a bundle may be, only that much is used.
    #[inline]
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self::resume(buf, 0)
    }

    /// Continues a bundle whose first `len` bytes are written.
    ///
    /// # Panics
    /// Where the buffer, or the longest bundle, is shorter than that.
    #[inline]
    pub fn resume(buf: &'a mut [u8], len: usize) -> Self {
        let bytes_max = buf.len().min(BUNDLE_BYTES_MAX);
        let buf = &mut buf[..bytes_max];
        assert!(len <= buf.len(), "a bundle is not longer than its buffer");
        Self { buf, len }
    }

    /// How many bytes are written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written: an empty bundle must not be sent, it would look like the link's
    /// end.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is written.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// Appends a record that is encoded already, such as one that a full link refused.
    #[inline]
    #[must_use]
    pub fn frame(&mut self, frame: Frame<'_>) -> bool {
        let bytes = frame.bytes();
        let Some(place) = self.buf[self.len..].get_mut(..bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        true
    }

    /// Both ways: a payload of 1 to 1472 bytes from or for one player. More than 1200 only on links
    /// from [`VERSION_PLAIN`](super::VERSION_PLAIN) on.
    #[inline]
    #[must_use]
    pub fn payload(&mut self, session: SessionId, bytes: &[u8]) -> bool {
        if !is_sendable(!bytes.is_empty() && bytes.len() <= LONG_PAYLOAD_BYTES_MAX) {
            return false;
        }
        self.record(kind::PAYLOAD, SESSION_BYTES + bytes.len(), |body| {
            body.u64(session.as_u64());
            body.bytes(bytes);
        })
    }

    /// Both ways: a message of a player or for one, or a part of it. Only on links from
    /// [`VERSION_MESSAGES`](super::VERSION_MESSAGES) on.
    #[inline]
    #[must_use]
    pub fn message(&mut self, part: &MessagePart<'_>) -> bool {
        if !is_sendable(part.check().is_ok()) {
            return false;
        }
        let fixed_bytes = PART_OVERHEAD_BYTES - HEADER_BYTES;
        self.record(kind::MESSAGE, fixed_bytes + part.bytes.len(), |body| {
            body.u64(part.session.as_u64());
            body.bytes(&part.channel.to_bytes());
            body.bytes(&[part.marks()]);
            body.u64(part.token);
            body.bytes(part.bytes);
        })
    }

    /// From the gateway: what became of a message that was sent with a token.
    #[must_use]
    pub fn report(&mut self, session: SessionId, token: u64, is_delivered: bool) -> bool {
        self.record(kind::REPORT, SESSION_BYTES + 8 + 1, |body| {
            body.u64(session.as_u64());
            body.u64(token);
            body.bytes(&[is_delivered.into()]);
        })
    }

    /// From the gateway: whether there is room for more on a player's reliable channels.
    #[must_use]
    pub fn room(&mut self, session: SessionId, is_full: bool, waiting_bytes: u32) -> bool {
        self.record(kind::ROOM, SESSION_BYTES + 1 + 4, |body| {
            body.u64(session.as_u64());
            body.bytes(&[is_full.into()]);
            body.u32(waiting_bytes);
        })
    }

    /// From the gateway: how good the way to a player is.
    #[must_use]
    pub fn quality(&mut self, session: SessionId, quality: &Quality) -> bool {
        self.record(kind::QUALITY, SESSION_BYTES + 4 + 4 + 2 + 4, |body| {
            body.u64(session.as_u64());
            body.u32(quality.round_trip_us);
            body.u32(quality.variation_us);
            body.u16(quality.loss_per_mille);
            body.u32(quality.waiting_bytes);
        })
    }

    /// From the game process: how good is the way to that player?
    #[must_use]
    pub fn ask_quality(&mut self, session: SessionId) -> bool {
        self.record(kind::ASK_QUALITY, SESSION_BYTES, |body| body.u64(session.as_u64()))
    }

    /// From the gateway: the answer to `hello`.
    #[must_use]
    pub fn welcome(&mut self, welcome: &Welcome) -> bool {
        if !is_sendable(welcome.worker < welcome.workers) {
            return false;
        }
        self.record(kind::WELCOME, 14, |body| {
            body.u16(welcome.version);
            body.u16(welcome.worker);
            body.u16(welcome.workers);
            body.u64(welcome.incarnation);
        })
    }

    /// From the gateway: a player is connected. That it gets messages may be said only on links
    /// from [`VERSION_DELIVERS`](super::VERSION_DELIVERS) on.
    #[must_use]
    pub fn opened(&mut self, opened: &Opened<'_>) -> bool {
        let listener = opened.listener.as_bytes();
        if !is_sendable(is_name_bytes(listener)) {
            return false;
        }
        let (ip, interface, port) = address::to_fields(opened.address);
        let fixed_bytes = 8 + 8 + 4 + 4 + 16 + 4 + 2 + USER_DATA_BYTES;
        let start = self.len;
        let ticket_bytes = opened.ticket.map_or(0, |_| size_of::<u64>());
        let body_bytes = fixed_bytes + ticket_bytes + listener.len();
        let is_written = self.record(kind::OPENED, body_bytes, |body| {
            body.u64(opened.session.as_u64());
            body.u64(opened.client_id);
            body.u32(opened.slot);
            body.u32(opened.slots_max);
            body.bytes(&ip);
            body.u32(interface);
            body.u16(port);
            body.bytes(opened.user_data);
            opened.ticket.into_iter().for_each(|ticket| body.u64(ticket));
            body.bytes(listener);
        });
        if is_written {
            let moved_in = if opened.ticket.is_some() { flags::MOVED_IN } else { 0 };
            let delivers = if opened.delivers { flags::DELIVERS } else { 0 };
            self.buf[start + FLAGS_AT] = moved_in | delivers;
        }
        is_written
    }

    /// From the gateway: a player of another game process may come. This and what follows from it
    /// only on links from [`VERSION_MOVES`](super::VERSION_MOVES) on.
    #[must_use]
    pub fn offered(&mut self, offered: &Offered<'_>) -> bool {
        let names = [offered.listener.as_bytes(), offered.from.as_bytes()];
        let has_names = names.iter().all(|name| is_name_bytes(name));
        if !is_sendable(has_names && offered.data.len() <= MOVE_BYTES_MAX) {
            return false;
        }
        let (ip, interface, port) = address::to_fields(offered.address);
        let fixed_bytes = 4 * 8 + 4 + 4 + 16 + 4 + 2 + 4 + USER_DATA_BYTES;
        let names_bytes = names.iter().map(|name| 1 + name.len()).sum::<usize>();
        let start = self.len;
        let body_bytes = fixed_bytes + names_bytes + offered.data.len();
        let is_written = self.record(kind::OFFERED, body_bytes, |body| {
            body.u64(offered.session.as_u64());
            body.u64(offered.offer);
            body.u64(offered.ticket);
            body.u64(offered.client_id);
            body.u32(offered.slot);
            body.u32(offered.slots_max);
            body.bytes(&ip);
            body.u32(interface);
            body.u16(port);
            body.u32(offered.left_ms);
            body.bytes(offered.user_data);
            for name in names {
                body.name(name);
            }
            body.bytes(offered.data);
        });
        if is_written && offered.delivers {
            self.buf[start + FLAGS_AT] = flags::DELIVERS;
        }
        is_written
    }

    /// From the gateway: an offer does not stand any more.
    #[must_use]
    pub fn offer_over(&mut self, session: SessionId, offer: u64, reason: MoveRefusal) -> bool {
        self.move_news(kind::OFFER_OVER, (session, offer), Some(reason))
    }

    /// From the gateway: a player was moved to another game process.
    #[must_use]
    pub fn moved(&mut self, session: SessionId, ticket: u64) -> bool {
        self.move_news(kind::MOVED, (session, ticket), None)
    }

    /// From the gateway: a player was not moved.
    #[must_use]
    pub fn move_refused(&mut self, session: SessionId, ticket: u64, reason: MoveRefusal) -> bool {
        self.move_news(kind::MOVE_REFUSED, (session, ticket), Some(reason))
    }

    fn move_news(
        &mut self,
        kind: u8,
        (session, number): (SessionId, u64),
        reason: Option<MoveRefusal>,
    ) -> bool {
        let reason = reason.map(|reason| [reason.as_u8()]);
        let reason = reason.as_ref().map_or(&[][..], |reason| &reason[..]);
        self.record(kind, SESSION_BYTES + 8 + reason.len(), |body| {
            body.u64(session.as_u64());
            body.u64(number);
            body.bytes(reason);
        })
    }

    /// From the gateway: there is a player of a plain listener. Only on links from
    /// [`VERSION_PLAIN`](super::VERSION_PLAIN) on.
    #[must_use]
    pub fn opened_plain(&mut self, opened: &OpenedPlain<'_>) -> bool {
        let listener = opened.listener.as_bytes();
        if !is_sendable(is_name_bytes(listener) && opened.slot != Some(OpenedPlain::NO_SLOT)) {
            return false;
        }
        let (ip, interface, port) = address::to_fields(opened.address);
        let fixed_bytes = 8 + 4 + 4 + 16 + 4 + 2;
        self.record(kind::OPENED_PLAIN, fixed_bytes + listener.len(), |body| {
            body.u64(opened.session.as_u64());
            body.u32(opened.slot.unwrap_or(OpenedPlain::NO_SLOT));
            body.u32(opened.slots_max);
            body.bytes(&ip);
            body.u32(interface);
            body.u16(port);
            body.bytes(listener);
        })
    }

    /// From the gateway: a session is over.
    #[must_use]
    pub fn closed(&mut self, session: SessionId, reason: CloseReason) -> bool {
        self.session_and_reason(kind::CLOSED, session, reason)
    }

    /// From the gateway: what became of a session that was closed after delivery. Only on links
    /// from [`VERSION_FAREWELL`](super::VERSION_FAREWELL) on.
    #[must_use]
    pub fn lingered(&mut self, session: SessionId, undelivered_bytes: u32, is_told: bool) -> bool {
        self.record(kind::LINGERED, SESSION_BYTES + 4 + 1, |body| {
            body.u64(session.as_u64());
            body.u32(undelivered_bytes);
            body.bytes(&[is_told.into()]);
        })
    }

    /// From the gateway: the answer to a ping.
    #[must_use]
    pub fn pong(&mut self, token: u64) -> bool {
        self.record(kind::PONG, 8, |body| body.u64(token))
    }

    /// From the gateway: no new players, and an end in `left_ms`.
    #[must_use]
    pub fn draining(&mut self, left_ms: u32) -> bool {
        self.record(kind::DRAINING, 4, |body| body.u32(left_ms))
    }

    /// From the gateway: it takes players again. Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    #[must_use]
    pub fn undrained(&mut self) -> bool {
        self.record(kind::UNDRAINED, 0, |_| ())
    }

    /// From the gateway: another process has it. Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    #[must_use]
    pub fn taken_over(&mut self, generation: u32) -> bool {
        self.record(kind::TAKEN_OVER, 4, |body| body.u32(generation))
    }

    /// From the gateway: how many players it has for this game process, how long they wait for one
    /// that is gone, and how long gateway and game process together may wait for more. Only on
    /// links from [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    #[must_use]
    pub fn players(&mut self, count: u32, grace_ms: u32, gather_us: u32) -> bool {
        self.record(kind::PLAYERS, 12, |body| {
            body.u32(count);
            body.u32(grace_ms);
            body.u32(gather_us);
        })
    }

    /// From the gateway: the link ends here.
    #[must_use]
    pub fn goodbye(&mut self, goodbye: Goodbye) -> bool {
        self.record(kind::GOODBYE, 2, |body| {
            body.bytes(&[goodbye.reason.as_u8()]);
            body.bytes(&[goodbye.error.map_or(0, RecordError::as_u8)]);
        })
    }

    /// From the game process: the first record.
    #[must_use]
    pub fn hello(&mut self, hello: &Hello<'_>) -> bool {
        let name = hello.name.as_bytes();
        if !is_sendable(is_name_bytes(name) && hello.pid < Hello::PID_END) {
            return false;
        }
        self.record(kind::HELLO, 6 + name.len(), |body| {
            body.u16(hello.version_min);
            body.u32(hello.pid | u32::from(hello.version_max) << 24);
            body.bytes(name);
        })
    }

    /// From the game process: a payload of 1 to 1200 bytes for 1 to 1024 players.
    #[must_use]
    pub fn multicast(&mut self, sessions: &[SessionId], bytes: &[u8]) -> bool {
        let sessions_fit = !sessions.is_empty() && sessions.len() <= MULTICAST_SESSIONS_MAX;
        let payload_fits = !bytes.is_empty() && bytes.len() <= PAYLOAD_BYTES_MAX;
        if !is_sendable(sessions_fit && payload_fits) {
            return false;
        }
        let ids_bytes = sessions.len() * SESSION_BYTES;
        self.record(kind::MULTICAST, COUNT_BYTES + ids_bytes + bytes.len(), |body| {
            body.u16(sessions.len() as u16);
            for session in sessions {
                body.u64(session.as_u64());
            }
            body.bytes(bytes);
        })
    }

    /// From the game process: end this session, for a reason that is [its
    /// choice](CloseReason::is_games_choice).
    #[must_use]
    pub fn close(&mut self, session: SessionId, reason: CloseReason) -> bool {
        is_sendable(reason.is_games_choice())
            && self.session_and_reason(kind::CLOSE, session, reason)
    }

    /// From the game process: end this session when what was sent has arrived. Only on links from
    /// [`VERSION_FAREWELL`](super::VERSION_FAREWELL) on.
    #[must_use]
    pub fn close_after(&mut self, close: &CloseAfter<'_>) -> bool {
        let fits = close.text.len() <= FAREWELL_BYTES_MAX;
        if !is_sendable(fits && close.reason.is_games_choice()) {
            return false;
        }
        let fixed_bytes = CLOSE_AFTER_BYTES_MIN - HEADER_BYTES;
        self.record(kind::CLOSE_AFTER, fixed_bytes + close.text.len(), |body| {
            body.u64(close.session.as_u64());
            body.bytes(&[close.reason.as_u8()]);
            body.u32(close.linger_ms);
            body.bytes(close.text);
        })
    }

    /// From the game process: move a player to another. This and what follows from it only on links
    /// from [`VERSION_MOVES`](super::VERSION_MOVES) on.
    #[must_use]
    pub fn move_session(&mut self, asked: &Move<'_>) -> bool {
        if !is_sendable(asked.check().is_ok()) {
            return false;
        }
        let Move { session, backend, ticket, time_ms, confirms, message, data } = *asked;
        let message_bytes = message.map_or(0, |(_, bytes)| 4 + bytes.len());
        let has_message = if message.is_some() { moves::HAS_MESSAGE } else { 0 };
        let marks = has_message | if confirms { moves::CONFIRMS } else { 0 };
        let fixed_bytes = SESSION_BYTES + 8 + 4 + 1 + 1;
        let body_bytes = fixed_bytes + backend.len() + message_bytes + data.len();
        self.record(kind::MOVE, body_bytes, |body| {
            body.u64(session.as_u64());
            body.u64(ticket);
            body.u32(time_ms);
            body.bytes(&[marks]);
            body.name(backend.as_bytes());
            if let Some((channel, bytes)) = message {
                body.bytes(&channel.to_bytes());
                body.u16(bytes.len() as u16);
                body.bytes(bytes);
            }
            body.bytes(data);
        })
    }

    /// From the game process: may a player come who was offered?
    #[must_use]
    pub fn answer(&mut self, session: SessionId, offer: u64, answer: Answer) -> bool {
        self.record(kind::ANSWER, SESSION_BYTES + 8 + 1, |body| {
            body.u64(session.as_u64());
            body.u64(offer);
            body.bytes(&[answer.as_u8()]);
        })
    }

    /// From the game process: it has heard that a player was moved.
    #[must_use]
    pub fn confirm(&mut self, session: SessionId) -> bool {
        self.record(kind::CONFIRM, SESSION_BYTES, |body| body.u64(session.as_u64()))
    }

    /// From the game process: send this back.
    #[must_use]
    pub fn ping(&mut self, token: u64) -> bool {
        self.record(kind::PING, 8, |body| body.u64(token))
    }

    /// From the game process: may new players be sent to it by this link? Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on, and on those of an agent.
    #[must_use]
    pub fn intake(&mut self, is_open: bool) -> bool {
        self.record(kind::INTAKE, 1, |body| body.bytes(&[is_open.into()]))
    }

    fn session_and_reason(&mut self, kind: u8, session: SessionId, reason: CloseReason) -> bool {
        self.record(kind, SESSION_BYTES + 1, |body| {
            body.u64(session.as_u64());
            body.bytes(&[reason.as_u8()]);
        })
    }

    /// Appends a record whose body `fill` writes to its last byte.
    #[inline]
    pub(super) fn record(
        &mut self,
        kind: u8,
        body_bytes: usize,
        fill: impl FnOnce(&mut Fields<'_>),
    ) -> bool {
        let record_bytes = HEADER_BYTES + body_bytes;
        let Some(place) = self.buf[self.len..].get_mut(..record_bytes) else { return false };
        let mut fields = Fields(place);
        fields.u16(record_bytes as u16);
        fields.bytes(&[kind, 0]);
        fill(&mut fields);
        debug_assert!(fields.0.is_empty(), "the fields fill the record");
        self.len += record_bytes;
        true
    }
}

/// Whether a record may be written, which in a debug build it has to be.
#[inline]
fn is_sendable(condition: bool) -> bool {
    debug_assert!(condition, "no reader accepts this record");
    condition
}

/// The part of a record that is still to be written.
pub(super) struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.0 = rest;
    }

    /// A name with its length before it.
    fn name(&mut self, name: &[u8]) {
        self.bytes(&[name.len() as u8]);
        self.bytes(name);
    }

    #[inline]
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline]
    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    #[inline]
    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Where a record's flags lie.
const FLAGS_AT: usize = 3;
