//! One source of datagrams at a plain listener.

use crate::front::plain::addresses::Loopback;
use crate::ids::BackendId;
use crate::sessions::Kept;
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::table::{Address, Tenant};
use ringgate_batch::{Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// A source that a game server may know.
pub(crate) struct Session {
    pub(crate) stage: Stage,
    /// Where it plays.
    pub(crate) backend: BackendId,
    /// The hash of its token, where the listener's datagrams have one.
    pub(crate) token: u64,
    /// When it was last heard, or when its session ended by a gap.
    pub(crate) heard_ns: u64,
    pub(crate) began_ns: u64,
    /// Our socket that the player talks to.
    pub(crate) socket: SocketId,
    /// Counts the sequence rules of its listener: those that its guards go by.
    pub(crate) guarded_by: u32,
    /// The link of its backend on which it was announced, as the backend counts them; 0 for none.
    pub(crate) announced: u32,
    /// That link was told its slot.
    pub(crate) slot_told: bool,
    /// The same for its server's numbers, and how often the server had arrived; `None` before its
    /// first.
    pub(crate) server_guarded: Option<(u32, u32)>,
    /// The address the player talks to, where the socket has several.
    pub(crate) local: LocalIp,
    /// Its address toward the game server, where that is on a udp link.
    pub(crate) loopback: Option<Entry<Loopback>>,
    /// Bytes that it may still be sent: see [`credit`](crate::front::plain::credit).
    pub(crate) credit: u32,
    /// What it holds once it has answered; nobody's before.
    pub(crate) claim: Claim,
    /// Whether another gateway may have it by now: no backend can name it meanwhile.
    pub(crate) is_unsure: bool,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing shows that the source is where it says.
    HalfOpen {
        /// The source was sent an answer.
        is_answered: bool,
    },
    /// It has sent again after an answer.
    Open {
        /// It has sent back what only its server has sent.
        is_proven: bool,
    },
    /// A gap has ended the session. The entry remembers its source for a while.
    Barred,
}

impl Tenant for Session {
    fn nobody() -> Self {
        Self {
            stage: Stage::Barred,
            backend: BackendId(0),
            server_guarded: None,
            token: 0,
            heard_ns: 0,
            began_ns: 0,
            socket: SocketId(u32::MAX),
            guarded_by: 0,
            announced: 0,
            slot_told: false,
            local: LocalIp::UNSPECIFIED,
            loopback: None,
            credit: 0,
            claim: Claim::NOBODYS,
            is_unsure: false,
        }
    }
}

impl Kept for Session {
    fn at_backend(&self) -> BackendId {
        if self.is_unsure { BackendId::NOBODYS } else { self.backend }
    }

    fn held(&self, _address: &Address) -> Option<Claim> {
        self.is_open().then_some(self.claim)
    }

    fn plays_at(&self, backend: BackendId) -> bool {
        self.at_backend() == backend && !self.is_barred()
    }
}

impl Session {
    /// The way to the player at that address.
    pub(crate) const fn target(&self, player: Endpoint) -> TxTarget {
        TxTarget { socket: self.socket, peer: Some(player), source: self.local }
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.stage, Stage::HalfOpen { .. })
    }

    pub(crate) const fn is_barred(&self) -> bool {
        matches!(self.stage, Stage::Barred)
    }
}

ringgate_core::carried!(Session {
    stage,
    backend,
    token,
    heard_ns as time,
    began_ns as time,
    socket,
    guarded_by,
    announced,
    slot_told,
    server_guarded,
    local,
    loopback,
    credit,
    claim,
    is_unsure as anew,
});

impl Carry for Stage {
    fn write(&self, out: &mut Writer<'_>) {
        let number: u8 = match self {
            Self::HalfOpen { is_answered: false } => 0,
            Self::HalfOpen { is_answered: true } => 1,
            // Whether it is proven is in a record of its own.
            Self::Open { .. } => 2,
            Self::Barred => 3,
        };
        number.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Ok(Self::HalfOpen { is_answered: false }),
            1 => Ok(Self::HalfOpen { is_answered: true }),
            2 => Ok(Self::Open { is_proven: false }),
            3 => Ok(Self::Barred),
            _ => Err(Broken::Invalid("stage")),
        }
    }
}
