//! What a game hears.

use std::net::SocketAddr;

use ringgate_core::delivery::{Channel, Fault, Report};
use ringgate_core::netcode::State;

use crate::session::SessionEvent;

/// What a game hears of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A server has taken the player in. Messages can be sent.
    Connected {
        /// The server.
        server: SocketAddr,
        /// The player's index at the game server.
        slot: u32,
        /// How many slots the game server has.
        slots: u32,
    },
    /// A whole message of the game server.
    Message(Channel, &'a [u8]),
    /// What became of a message that was sent with a token.
    Reported(Report),
    /// The server did not take or keep the player; the client turns to the token's next one.
    NextServer {
        /// The next one.
        server: SocketAddr,
    },
    /// It is over, and why. Nothing comes after that.
    Closed(Reason),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The game has left.
    Left,
    /// netcode says so: one of the states that are final.
    Ended(State),
    /// The server broke a rule of the delivery layer, or acknowledged nothing for half a minute.
    Fault(Fault),
}

/// What a game server has said last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Farewell {
    /// Why it has closed the session: 128 the game is over, 129 kicked, 130 refused by the game,
    /// 131 the game shuts down, as docs/PROTOCOLS.md has them.
    pub reason: u8,
    /// What the game server has for the player: at most 200 bytes, or none. Of what form is for the
    /// game to know.
    pub text: Box<[u8]>,
}

impl Farewell {
    pub(crate) fn of((reason, text): (u8, &[u8])) -> Self {
        Self { reason, text: text.into() }
    }
}

impl Reason {
    /// A few words for tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Ended(State::Disconnected) => "the server said goodbye",
            Self::Ended(state) => state.name(),
            Self::Fault(fault) => fault.name(),
        }
    }
}

impl From<SessionEvent> for Event<'_> {
    fn from(event: SessionEvent) -> Self {
        match event {
            SessionEvent::Connected { server, slot, slots } => {
                Event::Connected { server: server.into(), slot, slots }
            }
            SessionEvent::NextServer { server } => Event::NextServer { server: server.into() },
            SessionEvent::Reported(report) => Event::Reported(report),
            SessionEvent::Closed(reason) => Event::Closed(reason),
        }
    }
}
