//! The records, decoded: plain values that borrow whatever is long from the datagram.

use std::fmt;
use std::net::SocketAddr;

use super::{
    Answer, CloseReason, Frame, GoodbyeReason, MessagePart, Move, MoveRefusal, NAME_BYTES_MAX,
    Offered, RecordError, SessionId, USER_DATA_BYTES, VERSION_MAX, VERSION_MIN,
};

/// What the gateway tells a game process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGame<'a> {
    /// The first record on every link that the gateway accepts.
    Welcome(Welcome),
    /// A player is connected.
    Opened(Opened<'a>),
    /// There is a player of a plain listener, or it has its slot now.
    OpenedPlain(OpenedPlain<'a>),
    /// A player's payload.
    Payload {
        /// Whose.
        session: SessionId,
        /// 1 to 1472 bytes; of a player of netcode at most 1200.
        bytes: &'a [u8],
    },
    /// A message of a player, or a part of one.
    Message(MessagePart<'a>),
    /// What became of a message that was sent with a token.
    Report {
        /// Whose.
        session: SessionId,
        /// The token of the message.
        token: u64,
        /// Whether it has arrived. One on a reliable channel always does, as long as the session
        /// lives.
        is_delivered: bool,
    },
    /// So much waits for a player on reliable channels that no more should be sent, or it has
    /// become less again.
    Room {
        /// Whose.
        session: SessionId,
        /// No more should be sent.
        is_full: bool,
        /// What waits.
        waiting_bytes: u32,
    },
    /// The answer to [`ToGateway::AskQuality`].
    Quality {
        /// Whose.
        session: SessionId,
        /// How good the way to the player is.
        quality: Quality,
    },
    /// What became of a session that was [closed after delivery](ToGateway::CloseAfter). Right
    /// before its [`Closed`](Self::Closed), whoever ended it.
    Lingered {
        /// Which.
        session: SessionId,
        /// How much of what was sent on reliable channels is not known to have arrived.
        undelivered_bytes: u32,
        /// The player's library has the reason and the text.
        is_told: bool,
    },
    /// A player of another game process may come here.
    Offered(Offered<'a>),
    /// What was [offered](Self::Offered) is not any more.
    OfferOver {
        /// Whose session it was.
        session: SessionId,
        /// Which offer.
        offer: u64,
        /// Why.
        reason: MoveRefusal,
    },
    /// A player has been moved to another game process. The last record about its session, but for
    /// reports of what was sent before.
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
    /// A session is over. The last record about it, and the answer to [`ToGateway::Close`].
    Closed {
        /// Which.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// The answer to [`ToGateway::Ping`].
    Pong {
        /// The token of the ping.
        token: u64,
    },
    /// The gateway takes no new players and will shut down.
    Draining {
        /// How long the sessions that exist may go on.
        left_ms: u32,
    },
    /// The gateway takes players again, and goes on.
    Undrained,
    /// Another process has the gateway from here on, and everything goes on.
    TakenOver {
        /// Processes that have had it, this one included.
        generation: u32,
    },
    /// How many players of this game process there are at the gateway, over all workers. Behind the
    /// welcome; those of this worker are announced one after the other.
    Players {
        /// So many, those included who wait because an earlier process is gone.
        count: u32,
        /// How long they wait for a process that is gone.
        grace_ms: u32,
        /// How long gateway and game process together may wait for more on purpose, each way, in
        /// microseconds; `None` from a gateway that does not say.
        gather_us: Option<u32>,
    },
    /// The gateway is about to close this link. The last record on it.
    Goodbye(Goodbye),
    /// A record of a later version, to be passed over.
    Unknown(Frame<'a>),
}

/// What a game process tells the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGateway<'a> {
    /// The first record on every link.
    Hello(Hello<'a>),
    /// A payload for one player.
    Payload {
        /// Whose.
        session: SessionId,
        /// 1 to 1472 bytes; for a player of netcode at most 1200.
        bytes: &'a [u8],
    },
    /// One payload for several players.
    Multicast {
        /// Whose: 1 to 1024 sessions.
        sessions: Sessions<'a>,
        /// 1 to 1200 bytes.
        bytes: &'a [u8],
    },
    /// A message for a player, or a part of one.
    Message(MessagePart<'a>),
    /// Asks how good the way to a player is.
    AskQuality {
        /// Whose.
        session: SessionId,
    },
    /// Ends a session.
    Close {
        /// Which.
        session: SessionId,
        /// Why; always [a game's choice](CloseReason::is_games_choice).
        reason: CloseReason,
    },
    /// Ends a session when what was sent has arrived.
    CloseAfter(CloseAfter<'a>),
    /// Moves a player to another game process.
    Move(Move<'a>),
    /// Says whether a player may come who was [offered](ToGame::Offered).
    Answer {
        /// Whose session it is.
        session: SessionId,
        /// The number of the offer.
        offer: u64,
        /// What is said.
        answer: Answer,
    },
    /// The process has heard that a player was [moved](ToGame::Moved).
    Confirm {
        /// Whose session it was.
        session: SessionId,
    },
    /// Measures the link.
    Ping {
        /// Comes back in the [`ToGame::Pong`].
        token: u64,
    },
    /// Whether new players may be sent to this process by this link. Before the first of these they
    /// may.
    Intake {
        /// They may. Who is there stays either way.
        is_open: bool,
    },
    /// A record of a later version, to be passed over.
    Unknown(Frame<'a>),
}

/// How a session is to end: what was sent before arrives first, as far as there is time, and the
/// player is told why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseAfter<'a> {
    /// Which.
    pub session: SessionId,
    /// Why; always [a game's choice](CloseReason::is_games_choice).
    pub reason: CloseReason,
    /// So long at the most; more than 30,000 counts as that.
    pub linger_ms: u32,
    /// For the player: at most 200 bytes, or none.
    pub text: &'a [u8],
}

/// How good the way to a player is, as the gateway sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The round trip in microseconds, smoothed; 0 before the first one.
    pub round_trip_us: u32,
    /// How far round trips differ from it.
    pub variation_us: u32,
    /// Lost packets out of a thousand, smoothed.
    pub loss_per_mille: u16,
    /// What waits on reliable channels, in bytes.
    pub waiting_bytes: u32,
}

/// Who the gateway is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the format that the gateway has chosen for this link.
    pub version: u16,
    /// The worker at the other end. Always less than `workers`.
    pub worker: u16,
    /// How many workers, and with them links, there are.
    pub workers: u16,
    /// Differs from one start of the gateway to the next: session ids are unique only under one
    /// incarnation.
    pub incarnation: u64,
}

/// Who the game process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest version of the format that the game process speaks.
    pub version_min: u16,
    /// The highest one; it speaks all between. 0 from a process of the first release, which speaks
    /// only one.
    pub version_max: u8,
    /// Its process id, for the operator to read; 0 where it does not say. Below
    /// [`PID_END`](Self::PID_END).
    pub pid: u32,
    /// The backend's name in the gateway's configuration. Always [a name](is_name).
    pub name: &'a str,
}

impl<'a> Hello<'a> {
    /// Process ids are below this: Linux has none above 4,194,304.
    pub const PID_END: u32 = 1 << 24;

    /// What this version of the library says.
    pub const fn new(pid: u32, name: &'a str) -> Self {
        Self { version_min: VERSION_MIN, version_max: VERSION_MAX as u8, pid, name }
    }

    /// The version that both sides speak on the link: the highest one that they have in common.
    pub fn common_version(&self) -> Option<u16> {
        let theirs = self.version_min.max(self.version_max.into());
        let highest = theirs.min(VERSION_MAX);
        (highest >= VERSION_MIN.max(self.version_min)).then_some(highest)
    }
}

/// A player who is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The session, until it is closed.
    pub session: SessionId,
    /// Who the player is: the id in its connect token.
    pub client_id: u64,
    /// Where the player is. IPv4 even where the gateway's socket is dual-stack.
    pub address: SocketAddr,
    /// The player's index in this backend. Free for another player once the session is closed.
    pub slot: u32,
    /// How many slots the backend has.
    pub slots_max: u32,
    /// The gateway delivers whole messages to the player, so a payload for it has at most
    /// [`SHORT_MESSAGE_BYTES_MAX`](super::SHORT_MESSAGE_BYTES_MAX) bytes. Said only on links from
    /// [`VERSION_DELIVERS`](super::VERSION_DELIVERS) on.
    pub delivers: bool,
    /// The ticket of the move by which the player has come from another game process, where it has.
    pub ticket: Option<u64>,
    /// The user data of the connect token, also when the session is opened again on a later link.
    pub user_data: &'a [u8; USER_DATA_BYTES],
    /// The listener that the player came in by. Always [a name](is_name).
    pub listener: &'a str,
}

/// A player of a plain listener. Nothing proves who that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedPlain<'a> {
    /// The session, until it is closed.
    pub session: SessionId,
    /// Where the player is, or says that it is. IPv4 even where the gateway's socket is dual-stack.
    pub address: SocketAddr,
    /// The player's index in this backend. `None` while the session is half open: its source has
    /// not sent again after an answer. Then the record comes once more.
    pub slot: Option<u32>,
    /// How many slots the backend has.
    pub slots_max: u32,
    /// The listener that the player came in by. Always [a name](is_name).
    pub listener: &'a str,
}

impl OpenedPlain<'_> {
    /// What stands for no slot.
    pub(super) const NO_SLOT: u32 = u32::MAX;
}

/// How the gateway ends a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// Why.
    pub reason: GoodbyeReason,
    /// What was wrong, where the reason is [`GoodbyeReason::RecordInvalid`].
    pub error: Option<RecordError>,
}

/// The sessions of a multicast, as they lie in the datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sessions<'a> {
    /// Invariant: no id among them is 0.
    ids: &'a [[u8; 8]],
}

impl<'a> Sessions<'a> {
    pub(super) fn decode(ids: &'a [[u8; 8]]) -> Result<Self, RecordError> {
        if ids.contains(&[0; 8]) { Err(RecordError::SessionZero) } else { Ok(Self { ids }) }
    }

    /// How many.
    #[inline]
    pub const fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none: never, in a record that was decoded.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// One after the other.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SessionId> + use<'a> {
        self.ids.iter().map(|id| {
            SessionId::from_u64(u64::from_le_bytes(*id)).expect("`decode` has refused id 0")
        })
    }
}

impl fmt::Debug for Sessions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Whether `text` may name a backend or a listener: 1 to 32 printable ASCII characters, no space.
/// Names end up in logs, metric labels and the user data of tokens, and mean the same bytes in all
/// three.
pub const fn is_name(text: &str) -> bool {
    is_name_bytes(text.as_bytes())
}

pub(super) const fn is_name_bytes(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if !name[at].is_ascii_graphic() {
            return false;
        }
        at += 1;
    }
    !name.is_empty() && name.len() <= NAME_BYTES_MAX
}
