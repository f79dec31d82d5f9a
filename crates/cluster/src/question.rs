//! What a gateway asks the arbiter of a session, and what it hears.
//!
//! A question may be lost, doubled and late; the gateway that has asked asks again until there is
//! an answer. The same question has the same effect however often it arrives.

use std::sync::Arc;

use ringgate_core::proto::replay::Window;

use crate::number::Tenure;

/// A session, in all of its cluster and for all time: random, made where it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

/// A player who has one session at a time, because nothing but an address and a token tells one
/// from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Player {
    /// Where it plays: at another backend it is another player.
    pub backend: Arc<str>,
    /// What all gateways of its cluster call it; no other player has this name.
    pub name: [u8; 16],
}

/// How often a process has slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake(pub u32);

/// A question, with what makes its answer known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// About which session.
    pub session: SessionId,
    /// As whom: the tenure that the asking gateway has, or wants.
    pub tenure: Tenure,
    /// Since when it has not slept.
    pub wake: Wake,
    /// What.
    pub asked: Asked,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    /// To own a session that another tenure has: the session is taken if that tenure still has it.
    /// A gateway that claims what it has asks whether it still does.
    Claim {
        /// The tenure that had it.
        over: Tenure,
    },
    /// To end the session, for good.
    End,
    /// To own a new session.
    Open {
        /// When its token expires, in seconds since 1970.
        token_until_s: u64,
    },
    /// To own a session that the tenure which has it gives away. What that one has sent on its
    /// player's behalf before it heard of it is handed over, too.
    Take {
        /// The tenure that has it.
        over: Tenure,
    },
}

/// What the arbiter has said to a question, with what makes it known again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// About which session.
    pub session: SessionId,
    /// The tenure that has asked, or is told without.
    pub tenure: Tenure,
    /// Since when that gateway had not slept when it asked.
    pub wake: Wake,
    /// What.
    pub reply: Reply,
}

/// What an arbiter says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The session is over, for everybody and for good.
    Ended,
    /// Another tenure has the session.
    Fenced {
        /// Which.
        holder: Tenure,
    },
    /// There is no room for another session.
    Full,
    /// The session is the asking gateway's.
    Granted {
        /// Which of the player's packets were handed over.
        handed: Window,
    },
    /// Its player has another session, which stays the only one.
    Second {
        /// That one.
        first: SessionId,
        /// Which tenure has it.
        holder: Tenure,
    },
}

ringgate_core::carried!(Player { backend, name });
ringgate_core::carried_alone!(SessionId);
