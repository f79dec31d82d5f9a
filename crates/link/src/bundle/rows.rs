//! The records that are nothing but their fields.

use super::fields::{Body, Field, Fields, fields, put, records, writers};
use super::{
    CloseReason, Frame, MoveRefusal, Quality, RecordError, SessionId, ToGame, ToGateway, Welcome,
    Writer, kind,
};

fields!(Welcome { version, worker, workers, incarnation });
fields!(Quality { round_trip_us, variation_us, loss_per_mille, waiting_bytes });

records! { ToGame:
    /// From the gateway: what became of a message that was sent with a token.
    REPORT: report(session: SessionId, token: u64, is_delivered: bool) =>
        Self::Report { session, token, is_delivered };
    /// From the gateway: whether there is room for more on a player's reliable channels.
    ROOM: room(session: SessionId, is_full: bool, waiting_bytes: u32) =>
        Self::Room { session, is_full, waiting_bytes };
    /// From the gateway: how good the way to a player is.
    QUALITY: quality(session: SessionId, quality: &Quality) => Self::Quality { session, quality };
    /// From the gateway: an offer does not stand any more.
    OFFER_OVER: offer_over(session: SessionId, offer: u64, reason: MoveRefusal) =>
        Self::OfferOver { session, offer, reason };
    /// From the gateway: a player was moved to another game process.
    MOVED: moved(session: SessionId, ticket: u64) => Self::Moved { session, ticket };
    /// From the gateway: a player was not moved.
    MOVE_REFUSED: move_refused(session: SessionId, ticket: u64, reason: MoveRefusal) =>
        Self::MoveRefused { session, ticket, reason };
    /// From the gateway: a session is over.
    CLOSED: closed(session: SessionId, reason: CloseReason) => Self::Closed { session, reason };
    /// From the gateway: what became of a session that was closed after delivery. Only on links
    /// from [`VERSION_FAREWELL`](super::VERSION_FAREWELL) on.
    LINGERED: lingered(session: SessionId, undelivered_bytes: u32, is_told: bool) =>
        Self::Lingered { session, undelivered_bytes, is_told };
    /// From the gateway: the answer to a ping.
    PONG: pong(token: u64) => Self::Pong { token };
    /// From the gateway: no new players, and an end in `left_ms`.
    DRAINING: draining(left_ms: u32) => Self::Draining { left_ms };
}

records! { ToGateway:
    /// From the game process: how good is the way to that player?
    ASK_QUALITY: ask_quality(session: SessionId) => Self::AskQuality { session };
    /// From the game process: send this back.
    PING: ping(token: u64) => Self::Ping { token };
    /// From the game process: may new players be sent to it by this link? Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on, and on those of an agent.
    INTAKE: intake(is_open: bool) => Self::Intake { is_open };
}

// `read` reads these, as each has its own answer to a body that is not exactly its fields.
writers! {
    /// From the gateway: it takes players again. Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    UNDRAINED: undrained();
    /// From the gateway: another process has it. Only on links from
    /// [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    TAKEN_OVER: taken_over(generation: u32);
    /// From the gateway: how many players it has for this game process, how long they wait for one
    /// that is gone, and how long gateway and game process together may wait for more. Only on
    /// links from [`VERSION_SKIPPABLE`](super::VERSION_SKIPPABLE) on.
    PLAYERS: players(count: u32, grace_ms: u32, gather_us: u32);
    /// From the game process: it has heard that a player was moved.
    CONFIRM: confirm(session: SessionId);
}
