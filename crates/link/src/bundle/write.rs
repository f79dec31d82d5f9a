//! From records to bytes.
//!
//! A writer borrows its buffer, so that a payload is copied once: from the packet it was opened in
//! to the bundle that is sent. A caller that keeps the buffer elsewhere between two records
//! remembers the length and [continues](Writer::resume).

use super::fields::{Field, Fields, put};
use super::record::is_name_bytes;
use super::{
    Answer, BUNDLE_BYTES_MAX, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, Frame, Goodbye,
    HEADER_BYTES, Hello, LONG_PAYLOAD_BYTES_MAX, MOVE_BYTES_MAX, MULTICAST_SESSIONS_MAX,
    MessagePart, Move, Offered, Opened, OpenedPlain, PAYLOAD_BYTES_MAX, RecordError, SESSION_BYTES,
    SessionId, Welcome, flags, kind, moves,
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
        is_sendable(!bytes.is_empty() && bytes.len() <= LONG_PAYLOAD_BYTES_MAX)
            && put!(self, [kind::PAYLOAD, 0]; session, bytes)
    }

    /// Both ways: a message of a player or for one, or a part of it. Only on links from
    /// [`VERSION_MESSAGES`](super::VERSION_MESSAGES) on.
    #[inline]
    #[must_use]
    pub fn message(&mut self, part: &MessagePart<'_>) -> bool {
        is_sendable(part.check().is_ok())
            && put!(self, [kind::MESSAGE, 0];
                part.session, part.channel.to_bytes(), part.marks(), part.token, part.bytes)
    }

    /// From the gateway: the answer to `hello`.
    #[must_use]
    pub fn welcome(&mut self, welcome: &Welcome) -> bool {
        is_sendable(welcome.worker < welcome.workers) && put!(self, [kind::WELCOME, 0]; welcome)
    }

    /// From the gateway: a player is connected. That it gets messages may be said only on links
    /// from [`VERSION_DELIVERS`](super::VERSION_DELIVERS) on.
    #[must_use]
    pub fn opened(&mut self, it: &Opened<'_>) -> bool {
        let listener = it.listener.as_bytes();
        let moved_in = if it.ticket.is_some() { flags::MOVED_IN } else { 0 };
        let delivers = if it.delivers { flags::DELIVERS } else { 0 };
        is_sendable(is_name_bytes(listener))
            && put!(self, [kind::OPENED, moved_in | delivers];
                it.session, it.client_id, it.slot, it.slots_max, it.address,
                it.user_data, it.ticket, listener)
    }

    /// From the gateway: a player of another game process may come. This and what follows from it
    /// only on links from [`VERSION_MOVES`](super::VERSION_MOVES) on.
    #[must_use]
    pub fn offered(&mut self, it: &Offered<'_>) -> bool {
        let has_names = [it.listener, it.from].iter().all(|name| is_name_bytes(name.as_bytes()));
        let delivers = if it.delivers { flags::DELIVERS } else { 0 };
        is_sendable(has_names && it.data.len() <= MOVE_BYTES_MAX)
            && put!(self, [kind::OFFERED, delivers];
                it.session, it.offer, it.ticket, it.client_id, it.slot, it.slots_max, it.address,
                it.left_ms, it.user_data, it.listener, it.from, it.data)
    }

    /// From the gateway: there is a player of a plain listener. Only on links from
    /// [`VERSION_PLAIN`](super::VERSION_PLAIN) on.
    #[must_use]
    pub fn opened_plain(&mut self, it: &OpenedPlain<'_>) -> bool {
        let (slot, listener) = (it.slot.unwrap_or(OpenedPlain::NO_SLOT), it.listener.as_bytes());
        is_sendable(is_name_bytes(listener) && it.slot != Some(OpenedPlain::NO_SLOT))
            && put!(self, [kind::OPENED_PLAIN, 0];
                it.session, slot, it.slots_max, it.address, listener)
    }

    /// From the gateway: the link ends here.
    #[must_use]
    pub fn goodbye(&mut self, goodbye: Goodbye) -> bool {
        let error = goodbye.error.map_or(0, RecordError::as_u8);
        put!(self, [kind::GOODBYE, 0]; goodbye.reason, error)
    }

    /// From the game process: the first record.
    #[must_use]
    pub fn hello(&mut self, hello: &Hello<'_>) -> bool {
        let name = hello.name.as_bytes();
        let process = hello.pid | u32::from(hello.version_max) << 24;
        is_sendable(is_name_bytes(name) && hello.pid < Hello::PID_END)
            && put!(self, [kind::HELLO, 0]; hello.version_min, process, name)
    }

    /// From the game process: a payload of 1 to 1200 bytes for 1 to 1024 players.
    #[must_use]
    pub fn multicast(&mut self, sessions: &[SessionId], bytes: &[u8]) -> bool {
        let sessions_fit = !sessions.is_empty() && sessions.len() <= MULTICAST_SESSIONS_MAX;
        let payload_fits = !bytes.is_empty() && bytes.len() <= PAYLOAD_BYTES_MAX;
        if !is_sendable(sessions_fit && payload_fits) {
            return false;
        }
        let count = sessions.len() as u16;
        let ids_bytes = sessions.len() * SESSION_BYTES;
        self.record([kind::MULTICAST, 0], count.size() + ids_bytes + bytes.len(), |body| {
            count.write(body);
            for session in sessions {
                session.write(body);
            }
            body.bytes(bytes);
        })
    }

    /// From the game process: end this session, for a reason that is [its
    /// choice](CloseReason::is_games_choice).
    #[must_use]
    pub fn close(&mut self, session: SessionId, reason: CloseReason) -> bool {
        is_sendable(reason.is_games_choice()) && put!(self, [kind::CLOSE, 0]; session, reason)
    }

    /// From the game process: end this session when what was sent has arrived. Only on links from
    /// [`VERSION_FAREWELL`](super::VERSION_FAREWELL) on.
    #[must_use]
    pub fn close_after(&mut self, it: &CloseAfter<'_>) -> bool {
        is_sendable(it.text.len() <= FAREWELL_BYTES_MAX && it.reason.is_games_choice())
            && put!(self, [kind::CLOSE_AFTER, 0]; it.session, it.reason, it.linger_ms, it.text)
    }

    /// From the game process: move a player to another. This and what follows from it only on links
    /// from [`VERSION_MOVES`](super::VERSION_MOVES) on.
    #[must_use]
    pub fn move_session(&mut self, asked: &Move<'_>) -> bool {
        let Move { session, backend, ticket, time_ms, confirms, message, data } = *asked;
        let has_message = if message.is_some() { moves::HAS_MESSAGE } else { 0 };
        let marks = has_message | if confirms { moves::CONFIRMS } else { 0 };
        let head = message.map(|(channel, _)| channel.to_bytes());
        let (len, bytes) = message.map(|(_, bytes)| (bytes.len() as u16, bytes)).unzip();
        is_sendable(asked.check().is_ok())
            && put!(self, [kind::MOVE, 0];
                session, ticket, time_ms, marks, backend, head, len, bytes, data)
    }

    /// From the game process: may a player come who was offered?
    #[must_use]
    pub fn answer(&mut self, session: SessionId, offer: u64, answer: Answer) -> bool {
        put!(self, [kind::ANSWER, 0]; session, offer, answer.as_u8())
    }

    /// Appends a record whose body `fill` writes to its last byte.
    #[inline]
    pub(super) fn record(
        &mut self,
        head: [u8; 2],
        body_bytes: usize,
        fill: impl FnOnce(&mut Fields<'_>),
    ) -> bool {
        let record_bytes = HEADER_BYTES + body_bytes;
        let Some(place) = self.buf[self.len..].get_mut(..record_bytes) else { return false };
        let mut fields = Fields(place);
        (record_bytes as u16).write(&mut fields);
        head.write(&mut fields);
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
