//! The bundle link's format: many records in one datagram, in both directions.
//!
//! One `send` on a local socket costs as much as sealing a packet, so the format exists to pay for
//! it once per link and turn. A datagram is nothing but records, back to back; a record is a
//! four-byte header (length, kind, flags) and a body of little-endian fields at fixed offsets.
//! [`Writer`] appends records to a buffer that its caller owns and sends; [`Reader`] walks a
//! datagram and lends out what lies in it. Neither allocates, neither panics on any input.
//!
//! Records are not aligned. Fields are read bytewise, which costs nothing on the processors that
//! run game servers, while padding is bytes that every writer clears and every reader checks:
//! records padded to eight bytes take 1.3 to 2 times as long (benches/link.rs).
//!
//! The two directions are two enums, [`ToGame`] and [`ToGateway`]: a record that travels the wrong
//! way is not decodable, so no code has to handle it. A payload looks the same in both, and so does
//! a part of a message.
//!
//! Both sides name the versions that they speak before anything else ([`Hello`], [`Welcome`]); a
//! record that only a later version has may be passed over if its kind says so
//! ([`Frame::may_be_skipped`]).
//!
//! Left out on purpose: who may send what when (hello first, authorisation, flow control). That is
//! the gate's and the backend library's business.

mod address;
mod arbiter;
mod fields;
mod frame;
mod message;
mod moves;
mod read;
mod reason;
mod record;
mod rows;
mod session;
#[cfg(test)]
mod tests;
mod write;

pub use arbiter::{
    AgentDelivery, ArbiterReply, Arbitrated, CLUSTER_ID_BYTES, ClusterClaim, ClusterId, Clustered,
    FromArbiter, Plays, Standing, ToArbiter, WINDOW_BYTES_MAX,
};
pub use frame::{Frame, Frames, Run};
pub use message::{Assembly, Channel, MessagePart};
pub use moves::{Answer, Move, Offered};
pub use read::Reader;
pub use reason::{CloseReason, GoodbyeReason, MoveRefusal, RecordError};
pub use record::{
    CloseAfter, Goodbye, Hello, Opened, OpenedPlain, Quality, Sessions, ToGame, ToGateway, Welcome,
    is_name,
};
pub use session::SessionId;
pub use write::Writer;

/// The lowest version of the format that this code speaks: that of the first release, for ever.
pub const VERSION_MIN: u16 = 1;

/// The highest version of the format that this code speaks.
pub const VERSION_MAX: u16 = 6;

/// The first version in which a record may be passed over by a reader that does not know its kind.
pub const VERSION_SKIPPABLE: u16 = 2;

/// The first version with players of plain listeners, who have no client id, and with payloads of
/// up to [`LONG_PAYLOAD_BYTES_MAX`].
pub const VERSION_PLAIN: u16 = 3;

/// The first version with whole messages, for players of listeners with `delivery = "gateway"`.
pub const VERSION_MESSAGES: u16 = 4;

/// The first version in which an opening says whether the player gets messages.
pub const VERSION_DELIVERS: u16 = 5;

/// The first version in which a session can be closed after what was sent has arrived.
pub const VERSION_FAREWELL: u16 = 5;

/// The first version in which a player can be moved from one game process to another.
pub const VERSION_MOVES: u16 = 6;

/// Longest datagram, in both directions. 16 KiB hold 13 full-size payloads or 140 of 100 bytes;
/// longer ones gain less than 2 % (docs/BENCHMARKS.md, links).
pub const BUNDLE_BYTES_MAX: usize = 16 * 1024;

/// Longest payload of one player of netcode, and of a multicast.
pub const PAYLOAD_BYTES_MAX: usize = 1200;

/// Longest payload of one player of a plain listener, on links from [`VERSION_PLAIN`] on.
pub const LONG_PAYLOAD_BYTES_MAX: usize = 1472;

/// Longest message on a reliable channel.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Longest message on another channel: what fits into a packet for a player.
pub const SHORT_MESSAGE_BYTES_MAX: usize = 1159;

/// Longest part of a message in a record. A longer message takes several records.
pub const PART_BYTES_MAX: usize = 16_000;

/// Longest text that a player is told when its session is closed.
pub const FAREWELL_BYTES_MAX: usize = 200;

/// Longest time in which what was sent may arrive after a session was closed, in milliseconds. More
/// counts as this.
pub const LINGER_MS_MAX: u32 = 30_000;

/// Most bytes that the process that moves a player has for the one that is asked.
pub const MOVE_BYTES_MAX: usize = 1024;

/// Longest time in which the process that is asked may answer, in milliseconds. More counts as
/// this.
pub const MOVE_MS_MAX: u32 = 30_000;

/// So long where the process that moves a player does not say how long.
pub const MOVE_MS: u32 = 2000;

/// Bytes of a part's record that are not message: header, session, channel, marks and token.
pub const PART_OVERHEAD_BYTES: usize = HEADER_BYTES + SESSION_BYTES + 3 + 8;

/// Most workers, and with them links, that a gateway has.
pub const WORKERS_MAX: usize = 128;

/// Bytes before every record's body.
pub const HEADER_BYTES: usize = 4;

/// Bytes of a payload record that are not payload: header and session.
pub const PAYLOAD_OVERHEAD_BYTES: usize = HEADER_BYTES + SESSION_BYTES;

/// Bytes of the user data in a connect token.
pub const USER_DATA_BYTES: usize = 256;

/// Longest name of a backend or a listener. A backend's name must fit the 32 bytes that `route =
/// "user-data"` reserves for it.
pub const NAME_BYTES_MAX: usize = 32;

/// Most sessions that one multicast record names. Bounds what a single record can make a worker
/// send.
pub const MULTICAST_SESSIONS_MAX: usize = 1024;

const SESSION_BYTES: usize = 8;
const COUNT_BYTES: usize = 2;

/// A [`Move`] with everything.
pub const MOVE_RECORD_BYTES_MAX: usize = HEADER_BYTES
    + SESSION_BYTES
    + (8 + 4 + 1 + 1 + NAME_BYTES_MAX)
    + (4 + SHORT_MESSAGE_BYTES_MAX)
    + MOVE_BYTES_MAX;

/// An [`Offered`] with everything.
pub const OFFERED_RECORD_BYTES_MAX: usize =
    HEADER_BYTES + 4 * 8 + 34 + USER_DATA_BYTES + 2 * (1 + NAME_BYTES_MAX) + MOVE_BYTES_MAX;

const _: () = assert!(WORKERS_MAX <= 1 << 8, "a session id keeps its worker in eight bits");
const _: () = assert!(BUNDLE_BYTES_MAX <= u16::MAX as usize, "a record's length is 16 bits");
const _: () = assert!(
    HEADER_BYTES + COUNT_BYTES + MULTICAST_SESSIONS_MAX * SESSION_BYTES + PAYLOAD_BYTES_MAX
        <= BUNDLE_BYTES_MAX,
    "the largest multicast fits a bundle"
);

const _: () = assert!(PART_OVERHEAD_BYTES + PART_BYTES_MAX <= BUNDLE_BYTES_MAX);
const _: () = assert!(VERSION_MAX <= u8::MAX as u16, "a hello names it in eight bits");

/// What the header calls each record. Kinds below 16 come from the gateway, those below 128 from
/// the game process, and again those below 144 from the gateway; payloads and messages are the
/// records that go both ways.
mod kind {
    /// Kinds from here on may be skipped by those who do not know them.
    pub(super) const FIRST_SKIPPABLE: u8 = 128;

    pub(super) const PAYLOAD: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const OPENED: u8 = 3;
    pub(super) const CLOSED: u8 = 4;
    pub(super) const PONG: u8 = 5;
    pub(super) const DRAINING: u8 = 6;
    pub(super) const GOODBYE: u8 = 7;
    pub(super) const OPENED_PLAIN: u8 = 8;
    pub(super) const MESSAGE: u8 = 9;
    pub(super) const REPORT: u8 = 10;
    pub(super) const ROOM: u8 = 11;
    pub(super) const QUALITY: u8 = 12;

    pub(super) const HELLO: u8 = 16;
    pub(super) const MULTICAST: u8 = 17;
    pub(super) const CLOSE: u8 = 18;
    pub(super) const PING: u8 = 19;
    pub(super) const ASK_QUALITY: u8 = 20;

    pub(super) const UNDRAINED: u8 = 128;
    pub(super) const TAKEN_OVER: u8 = 129;
    pub(super) const PLAYERS: u8 = 130;
    pub(super) const LINGERED: u8 = 131;
    pub(super) const OFFERED: u8 = 132;
    pub(super) const OFFER_OVER: u8 = 133;
    pub(super) const MOVED: u8 = 134;
    pub(super) const MOVE_REFUSED: u8 = 135;
    /// Between gateways alone.
    pub(super) const FORWARDED: u8 = 136;
    /// To agents alone.
    pub(super) const NUMBERED: u8 = 137;
    pub(super) const CLUSTERED: u8 = 138;
    pub(super) const CLAIM: u8 = 139;
    pub(super) const TAKE: u8 = 140;
    pub(super) const GIVEN: u8 = 141;
    pub(super) const OVER: u8 = 142;
    pub(super) const WOKE: u8 = 143;

    pub(super) const INTAKE: u8 = 144;
    pub(super) const CLOSE_AFTER: u8 = 145;
    pub(super) const MOVE: u8 = 146;
    pub(super) const ANSWER: u8 = 147;
    pub(super) const CONFIRM: u8 = 148;
    /// From agents alone.
    /// By what is arbitrated, as `Arbitrated` has it.
    pub(super) const ARBITRATES: [u8; 3] = [149, 152, 154];
    pub(super) const STANDING: u8 = 150;
    pub(super) const SURE: u8 = 151;
    /// To agents alone.
    pub(super) const PLAYS: u8 = 153;
    pub(super) const THERE: u8 = 155;
    /// From agents alone.
    pub(super) const CROWDED: u8 = 156;
}

/// What a record's header says beside its kind.
mod flags {
    /// Of an opening and of an offer: the player gets whole messages.
    pub(super) const DELIVERS: u8 = 1;
    /// Of an opening: the player was moved here.
    pub(super) const MOVED_IN: u8 = 2;
}
