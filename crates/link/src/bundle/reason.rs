//! The reasons that records carry, and the reasons why a record is refused.
//!
//! Numbers are the wire's and never change their meaning. A game process takes a reason it does not
//! know for `Other`, so that a newer gateway can add one without a new version; the gateway refuses
//! what it does not know.

use std::fmt;

macro_rules! wire_reasons {
    (
        $(#[$type_doc:meta])* $type:ident;
        $( $(#[$doc:meta])* $variant:ident = $number:literal, $name:literal );+ $(;)?
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $type { $( $(#[$doc])* $variant = $number ),+ }

        impl $type {
            /// Every variant, in the order of the numbers.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];

            /// What this means in a few words, for logs and documents.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$variant => $name ),+ }
            }

            /// The number that records carry.
            #[inline]
            pub const fn as_u8(self) -> u8 {
                self as u8
            }

            /// The variant with this number.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number { $( $number => Some(Self::$variant), )+ _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

wire_reasons! {
    /// Why a session ended. The game process may choose those from 128 on
    /// ([`CloseReason::is_games_choice`]) in `close`, and sees its choice again in the `closed`
    /// that answers.
    CloseReason;
    /// A reason that this version has no name for.
    Other = 0, "another reason";
    /// The player said goodbye.
    PlayerLeft = 1, "the player left";
    /// Nothing authentic came from the player for its token's timeout.
    TimedOut = 2, "the player timed out";
    /// The player's sequence jumped further than `gap_limit` allows.
    SequenceGap = 3, "the sequence jumped too far";
    /// The session has used up its sequence numbers.
    SequenceExhausted = 4, "sequence numbers are used up";
    /// The gateway shuts down.
    Shutdown = 5, "the gateway shuts down";
    /// An operator ended it.
    Operator = 6, "closed by an operator";
    /// The listener or the backend is no longer part of the configuration.
    Unconfigured = 7, "no longer configured";
    /// The player has broken the rules of the delivery layer, or has not acknowledged anything for
    /// half a minute.
    Delivery = 8, "the player broke the delivery layer";
    /// More was sent to the player on reliable channels than the gateway keeps.
    Overflow = 9, "more was sent than the player takes";
    /// The player has logged in again, here or at another gateway of the fleet.
    NewerLogin = 10, "the player has logged in again";
    /// The player was moved to another game process. Said only to one that does not know moves.
    Moved = 11, "moved to another game process";
    /// The game is over for this player.
    Finished = 128, "the game is over";
    /// The game threw the player out.
    Kicked = 129, "kicked";
    /// The game does not want this player (full, banned, wrong version).
    Refused = 130, "refused by the game";
    /// The game process shuts down.
    GameShutdown = 131, "the game shuts down";
}

impl CloseReason {
    /// Whether a game process may give this reason.
    pub const fn is_games_choice(self) -> bool {
        self as u8 >= 128
    }
}

wire_reasons! {
    /// Why the gateway ends a link.
    GoodbyeReason;
    /// A reason that this version has no name for.
    Other = 0, "another reason";
    /// The gateway shuts down.
    Shutdown = 1, "the gateway shuts down";
    /// The gateway does not speak the version that `hello` asked for.
    VersionUnsupported = 2, "version not supported";
    /// The peer's user and group may not connect as this backend.
    Unauthorised = 3, "peer not authorised";
    /// No backend of that name with `link = "bundle"` is configured (any more).
    NameUnknown = 4, "no such backend";
    /// Another process is connected under this name.
    NameTaken = 5, "name taken";
    /// The first record was not `hello`, or a later one was.
    HelloExpected = 6, "hello expected once, first";
    /// A record broke the format; `error` says how.
    RecordInvalid = 7, "invalid record";
}

wire_reasons! {
    /// Why a player was not moved to another game process.
    MoveRefusal;
    /// A reason that this version has no name for.
    Other = 0, "another reason";
    /// No backend of that name is configured (any more).
    NoSuchBackend = 1, "no such backend";
    /// The player is there already.
    Itself = 2, "the player plays there";
    /// No slot is free there.
    Full = 3, "no slot is free there";
    /// No process is connected there, or it went before it had answered.
    NotLinked = 4, "the game process is not connected";
    /// The process there does not want the player.
    Denied = 5, "denied by the game process";
    /// The process there has not answered in time.
    Time = 6, "no answer in time";
    /// The process there speaks an earlier version.
    Version = 7, "the game process is too old";
    /// The players of this protocol, or of servers on a udp link, cannot be moved.
    Front = 8, "such players cannot be moved";
    /// The listener's config does not allow it.
    NotAllowed = 9, "not allowed by the config";
    /// The player is being moved already.
    Busy = 10, "the player is being moved already";
    /// As many players are offered there as may be.
    Offers = 11, "too many players are offered there";
    /// The process there takes nobody new, or the gateway is about to stop.
    Closed = 12, "nobody new is taken there";
    /// There is no such player of this process, or not any more.
    SessionOver = 13, "no such player";
    /// Too much waits for the player to send it a message more.
    PlayerFull = 14, "too much waits for the player";
    /// The process that the player plays with has gone.
    SourceGone = 15, "the player's game process has gone";
}

wire_reasons! {
    /// How a record breaks the format.
    RecordError;
    /// Fewer bytes are left than a header has.
    HeaderTruncated = 1, "header truncated";
    /// The record's length is less than its header's, or reaches past the datagram's end.
    RecordLength = 2, "record length out of range";
    /// No record of this kind travels in this direction.
    KindUnknown = 3, "unknown kind";
    /// The header's flags are not 0.
    FlagsUnknown = 4, "unknown flags";
    /// The body is shorter or longer than its kind's fields.
    BodyLength = 5, "body length does not match the kind";
    /// A session id of 0.
    SessionZero = 6, "session 0";
    /// A payload of no bytes or of more than 1200.
    PayloadLength = 7, "payload length out of range";
    /// A name that is not 1 to 32 printable ASCII characters without spaces.
    NameInvalid = 8, "invalid name";
    /// A list of sessions that is empty or longer than 1024.
    SessionCount = 9, "session count out of range";
    /// A worker's index that is not below the number of workers, or more workers than there can be.
    WorkerInvalid = 10, "worker index out of range";
    /// A `close` with a reason that a game process cannot give.
    ReasonUnknown = 11, "unknown reason";
    /// A datagram of more than 16384 bytes.
    DatagramTooLong = 12, "datagram too long";
    /// A message on a channel of no known kind.
    ChannelUnknown = 13, "unknown kind of channel";
    /// A message, or a part of one, that is empty or too long for its channel.
    MessageLength = 14, "message length out of range";
    /// A part of a message where no part of it can be.
    MessageMarks = 15, "message begins or ends where it cannot";
    /// A text of more than 200 bytes for a player whose session is closed.
    FarewellLength = 16, "farewell too long";
    /// More than 1024 bytes for the process that a player is moved to.
    MoveLength = 17, "too much data for a move";
    /// An answer to an offer that is none.
    AnswerUnknown = 18, "unknown answer";
}

impl std::error::Error for RecordError {}
