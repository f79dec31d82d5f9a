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
    /// Where its sessions may go on at other gateways.
    pub(crate) cluster: Option<ClusterRecords>,
}

/// The records of sessions that may go on at other gateways.
pub(crate) struct ClusterRecords {
    pub(crate) session: Kind,
    pub(crate) overs: Kind,
    pub(crate) doubt: Kind,
    /// One that this gateway has asked for.
    pub(crate) takeover: Kind,
}

impl Front {
    pub(crate) const fn records(self) -> Records {
        match self {
            Self::Netcode => Records {
                session: Kind::NetcodeSession,
                rest: Kind::NetcodeRest,
                listener: Some(Kind::NetcodeListener),
                table: 0,
                cluster: Some(ClusterRecords {
                    session: Kind::NetcodeClustered,
                    overs: Kind::NetcodeOvers,
                    doubt: Kind::NetcodeDoubt,
                    takeover: Kind::NetcodeTakeover,
                }),
            },
            Self::Unreal => Records {
                session: Kind::UnrealSession,
                rest: Kind::UnrealRest,
                listener: Some(Kind::UnrealListener),
                table: 1,
                cluster: Some(ClusterRecords {
                    session: Kind::UnrealClustered,
                    overs: Kind::UnrealOvers,
                    doubt: Kind::UnrealDoubt,
                    takeover: Kind::UnrealTakeover,
                }),
            },
            Self::Plain => Records {
                session: Kind::PlainSession,
                rest: Kind::PlainRest,
                listener: Some(Kind::PlainListener),
                table: 2,
                cluster: Some(ClusterRecords {
                    session: Kind::PlainClustered,
                    overs: Kind::PlainOvers,
                    doubt: Kind::PlainDoubt,
                    takeover: Kind::PlainTakeover,
                }),
            },
            #[cfg(test)]
            Self::Third => Records {
                session: Kind::ThirdSession,
                rest: Kind::ThirdRest,
                listener: None,
                table: 4,
                cluster: None,
            },
        }
    }
}

/// The table of handshakes.
pub(crate) const HANDSHAKES: u8 = 3;
