//! Which records a front has.

use crate::front::protocol::Front;
use crate::handover::record::Kind;

/// The records that every front has.
pub(crate) struct Records {
    pub(crate) session: Kind,
    pub(crate) rest: Kind,
    /// Where it remembers something of its listeners.
    pub(crate) listener: Option<Kind>,
    /// What its table is called where free places are told.
    pub(crate) table: u8,
}

impl Front {
    pub(crate) const fn records(self) -> Records {
        match self {
            Self::Netcode => Records {
                session: Kind::NetcodeSession,
                rest: Kind::NetcodeRest,
                listener: Some(Kind::NetcodeListener),
                table: 0,
            },
            Self::Unreal => Records {
                session: Kind::UnrealSession,
                rest: Kind::UnrealRest,
                listener: Some(Kind::UnrealListener),
                table: 1,
            },
            Self::Plain => Records {
                session: Kind::PlainSession,
                rest: Kind::PlainRest,
                listener: Some(Kind::PlainListener),
                table: 2,
            },
            #[cfg(test)]
            Self::Third => Records {
                session: Kind::ThirdSession,
                rest: Kind::ThirdRest,
                listener: None,
                table: 4,
            },
        }
    }
}

/// The table of handshakes.
pub(crate) const HANDSHAKES: u8 = 3;
