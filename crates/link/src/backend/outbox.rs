//! The sending half: where a record goes, and an account of what became of every payload.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use super::super::bundle::{
    Answer, Channel, CloseAfter, CloseReason, FAREWELL_BYTES_MAX, LINGER_MS_MAX,
    LONG_PAYLOAD_BYTES_MAX, MOVE_BYTES_MAX, MULTICAST_SESSIONS_MAX, MessagePart, Move,
    PAYLOAD_BYTES_MAX, SHORT_MESSAGE_BYTES_MAX, SessionId, is_name,
};
use super::link::Link;

/// Takes payloads for players. They leave with the next [`flush`](super::Backend::flush).
#[derive(Debug, Default)]
pub struct Outbox {
    pub(super) links: Vec<Link>,
    pub(super) stats: SendStats,
    /// The sessions of a multicast by worker. Empty between calls; kept for its memory.
    by_worker: Vec<Vec<SessionId>>,
}

/// Why something was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The link to the session's worker is down, or there is no such worker.
    LinkDown,
    /// The gateway does not read its end fast enough; the queue is full.
    LinkFull,
    /// A payload of 0 bytes or of more than 1200; to one player of a plain listener, on a link from
    /// [`VERSION_PLAIN`](super::super::bundle::VERSION_PLAIN) on, of more than 1472.
    PayloadLength,
    /// A message of no byte, or longer than one on its channel may be; also a payload of more than
    /// 1159 bytes for a player who gets messages.
    MessageLength,
    /// The gateway at the other end of the link is of an earlier version and takes no messages.
    NoMessages,
    /// The player gets no messages: its listener does not deliver, or the session is over.
    NoDelivery,
    /// A reason that is not [a game's choice](CloseReason::is_games_choice).
    NotAChoice,
    /// A text of more than 200 bytes for a player whose session is closed.
    FarewellLength,
    /// The gateway at the other end of the link is of an earlier version and moves nobody.
    NoMoves,
    /// What cannot name a backend.
    Name,
    /// More than 1024 bytes for the process that a player is moved to.
    MoveLength,
}

/// What became of payloads, one for each player that a multicast names, and of messages, which
/// count as one payload each. All counters only grow.
///
/// Every payload that was taken is sent, lost, or still waits for a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Payloads that were taken.
    pub payloads_taken: u64,
    /// Payloads that were handed to the kernel.
    pub payloads_sent: u64,
    /// Payloads that were taken and went down with their link.
    pub payloads_lost: u64,
    /// Payloads that were refused with [`SendError::LinkDown`].
    pub payloads_link_down: u64,
    /// Payloads that were refused with [`SendError::LinkFull`].
    pub payloads_link_full: u64,
    /// Datagrams sent.
    pub bundles_sent: u64,
}

impl Outbox {
    /// Sends 1 to 1200 bytes to one player; up to 1472 to one of a plain listener, up to 1159 to
    /// one of a listener with `delivery = "gateway"`: that one gets them as a message on the first
    /// unreliable channel.
    #[inline]
    pub fn send(&mut self, session: SessionId, payload: &[u8]) -> Result<(), SendError> {
        check_payload(payload, LONG_PAYLOAD_BYTES_MAX)?;
        let stats = &mut self.stats;
        let Some(link) = up(&mut self.links, session.worker()) else {
            stats.payloads_link_down += 1;
            return Err(SendError::LinkDown);
        };
        link.check_payload(session, payload.len())?;
        if !link.push(1, stats, |writer| writer.payload(session, payload)) {
            stats.payloads_link_full += 1;
            return Err(SendError::LinkFull);
        }
        Ok(())
    }

    /// Sends the same 1 to 1200 bytes to several players; the payload crosses each link once. With
    /// more than 1159, it is taken for none where one of them gets messages
    /// ([`SendError::MessageLength`]).
    ///
    /// Returns for how many players it was taken. [`stats`](Self::stats) says what stopped the
    /// rest.
    pub fn multicast(
        &mut self,
        sessions: &[SessionId],
        payload: &[u8],
    ) -> Result<usize, SendError> {
        check_payload(payload, PAYLOAD_BYTES_MAX)?;
        self.check_multicast(sessions, payload.len())?;
        self.by_worker.resize_with(self.links.len(), Vec::new);
        for &session in sessions {
            match self.by_worker.get_mut(session.worker()) {
                Some(list) => list.push(session),
                None => self.stats.payloads_link_down += 1,
            }
        }
        let stats = &mut self.stats;
        let mut taken = 0;
        for (worker, list) in self.by_worker.iter_mut().enumerate() {
            for part in list.chunks(MULTICAST_SESSIONS_MAX) {
                let players = part.len() as u64;
                match up(&mut self.links, worker) {
                    None => stats.payloads_link_down += players,
                    Some(link) => {
                        if link.push(players, stats, |writer| writer.multicast(part, payload)) {
                            taken += part.len();
                        } else {
                            stats.payloads_link_full += players;
                        }
                    }
                }
            }
            list.clear();
        }
        Ok(taken)
    }

    /// Whether a payload of that length can go to all of these players.
    fn check_multicast(&self, sessions: &[SessionId], bytes_len: usize) -> Result<(), SendError> {
        if bytes_len <= SHORT_MESSAGE_BYTES_MAX {
            return Ok(());
        }
        sessions.iter().try_for_each(|session| match self.links.get(session.worker()) {
            Some(link) => link.check_payload(*session, bytes_len),
            None => Ok(()),
        })
    }

    /// Sends a whole message to a player of a listener with `delivery = "gateway"`: 1 byte to 64
    /// KiB on a reliable channel, up to 1159 bytes on another. With a token, an
    /// [`Event::Report`](super::Event::Report) says what became of it.
    ///
    /// What the player cannot be sent yet waits at the gateway. [`Event::Room`](super::Event::Room)
    /// says when that is so much that no more should be sent on reliable channels; a session whose
    /// game process goes on all the same is ended.
    pub fn send_message(
        &mut self,
        session: SessionId,
        channel: Channel,
        message: &[u8],
        token: Option<NonZeroU64>,
    ) -> Result<(), SendError> {
        if message.is_empty() || message.len() > channel.message_bytes_max() {
            return Err(SendError::MessageLength);
        }
        let stats = &mut self.stats;
        let Some(link) = up(&mut self.links, session.worker()) else {
            stats.payloads_link_down += 1;
            return Err(SendError::LinkDown);
        };
        link.check_message(session)?;
        let token = token.map_or(0, NonZeroU64::get);
        if !link.push_message(MessagePart::of(session, channel, token, message), stats) {
            stats.payloads_link_full += 1;
            return Err(SendError::LinkFull);
        }
        Ok(())
    }

    /// Asks how good the way to a player is, which [`Event::Quality`](super::Event::Quality)
    /// answers.
    pub fn ask_quality(&mut self, session: SessionId) -> Result<(), SendError> {
        let link = up(&mut self.links, session.worker()).ok_or(SendError::LinkDown)?;
        link.check_message(session)?;
        let asked = link.push_question(|writer| writer.ask_quality(session));
        if asked { Ok(()) } else { Err(SendError::LinkFull) }
    }

    /// Ends a session. Is not lost while the link lives, however full it is; the gateway answers
    /// with [`Event::Closed`](super::Event::Closed) and the same reason.
    pub fn close(&mut self, session: SessionId, reason: CloseReason) -> Result<(), SendError> {
        if !reason.is_games_choice() {
            return Err(SendError::NotAChoice);
        }
        let link = up(&mut self.links, session.worker()).ok_or(SendError::LinkDown)?;
        link.push_late(|writer| writer.close(session, reason));
        Ok(())
    }

    /// Ends a session of a player who gets messages when everything that was sent on reliable
    /// channels has arrived, or after `linger`, of which more than 30 s count as that. The player's
    /// library has the reason and the text, at most 200 bytes, if it is of this release or later.
    /// From then on nothing more is sent to the player; what it still sends comes.
    ///
    /// Is not lost while the link lives, and needs the link no more once the gateway has read it.
    /// The gateway answers with [`Event::Lingered`](super::Event::Lingered), which says what has
    /// not arrived, and [`Event::Closed`](super::Event::Closed). Other players, and those of an
    /// earlier gateway, are [closed](Self::close) at once.
    pub fn close_after(
        &mut self,
        session: SessionId,
        reason: CloseReason,
        linger: Duration,
        text: &[u8],
    ) -> Result<(), SendError> {
        if !reason.is_games_choice() {
            return Err(SendError::NotAChoice);
        }
        if text.len() > FAREWELL_BYTES_MAX {
            return Err(SendError::FarewellLength);
        }
        let link = up(&mut self.links, session.worker()).ok_or(SendError::LinkDown)?;
        let linger_ms = u32::try_from(linger.as_millis()).unwrap_or(u32::MAX).min(LINGER_MS_MAX);
        let close = CloseAfter { session, reason, linger_ms, text };
        if link.takes_farewells() {
            link.push_late(|writer| writer.close_after(&close));
        } else {
            link.push_late(|writer| writer.close(session, reason));
        }
        Ok(())
    }

    /// Moves a player to another game process of the gateway, if that says yes and the listener's
    /// config allows it (`moves`). [`Event::Moved`](super::Event::Moved) or
    /// [`Event::MoveRefused`](super::Event::MoveRefused) answers, unless the session is closed
    /// before. Until then the player plays on here. Not lost while the link lives.
    ///
    /// [`Move::session`] and what goes along says the rest; a gateway that is rolled back to an
    /// earlier release meanwhile answers nothing, and moves nobody.
    pub fn move_session(&mut self, asked: &Move<'_>) -> Result<(), SendError> {
        if !is_name(asked.backend) {
            return Err(SendError::Name);
        }
        if asked.data.len() > MOVE_BYTES_MAX {
            return Err(SendError::MoveLength);
        }
        let link = up(&mut self.links, asked.session.worker()).ok_or(SendError::LinkDown)?;
        if !link.takes_moves() {
            return Err(SendError::NoMoves);
        }
        if let Some((_, message)) = asked.message {
            if message.is_empty() || message.len() > SHORT_MESSAGE_BYTES_MAX {
                return Err(SendError::MessageLength);
            }
            link.check_message(asked.session)?;
        }
        link.push_late(|writer| writer.move_session(asked));
        Ok(())
    }

    /// Says whether a player may come who was [offered](super::Event::Offered). Not lost while the
    /// link lives.
    pub fn answer(
        &mut self,
        session: SessionId,
        offer: u64,
        is_welcome: bool,
    ) -> Result<(), SendError> {
        let link = up(&mut self.links, session.worker()).ok_or(SendError::LinkDown)?;
        let answer = if is_welcome { Answer::Yes } else { Answer::No };
        link.push_late(|writer| writer.answer(session, offer, answer));
        Ok(())
    }

    /// What became of all payloads so far.
    pub const fn stats(&self) -> SendStats {
        self.stats
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkDown => "the link to the session's worker is down",
            Self::LinkFull => "the link to the session's worker is full",
            Self::PayloadLength => {
                "a payload has 1 to 1200 bytes, or 1472 for a plain listener's player"
            }
            Self::MessageLength => {
                "a message has 1 byte to 64 KiB on a reliable channel, to 1159 bytes on another, as a payload for a player who gets messages"
            }
            Self::NoMessages => "the gateway is too old for messages: update it",
            Self::NoDelivery => "the player gets no messages, or has left",
            Self::NotAChoice => "only the gateway closes for this reason",
            Self::FarewellLength => "a player is told at most 200 bytes",
            Self::NoMoves => "the gateway is too old to move players: update it",
            Self::Name => "a backend's name has 1 to 32 printable ASCII characters",
            Self::MoveLength => "a move has at most 1024 bytes for the other process",
        })
    }
}

impl std::error::Error for SendError {}

#[inline]
fn check_payload(payload: &[u8], bytes_max: usize) -> Result<(), SendError> {
    let fits = !payload.is_empty() && payload.len() <= bytes_max;
    if fits { Ok(()) } else { Err(SendError::PayloadLength) }
}

#[inline]
fn up(links: &mut [Link], worker: usize) -> Option<&mut Link> {
    links.get_mut(worker).filter(|link| link.is_up())
}
