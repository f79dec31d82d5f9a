//! One player of an Unreal game.

use crate::front::unreal::guard::Guard;
use crate::ids::{BackendId, WorkerId};
use crate::sessions::Kept;
use crate::shared::claims::Claim;
use crate::store::table::{Address, Tenant};
use ringgate_batch::{Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::proto::unreal::client::Client;
use ringgate_core::proto::unreal::cookie::{Cookie, Proof};
use ringgate_core::proto::unreal::front::Standing;
use ringgate_core::proto::unreal::handshake::Handshake;
use ringgate_core::proto::unreal::prefix::Ids;

/// A player who has answered a challenge.
pub(crate) struct Session {
    pub(crate) stage: Stage,
    /// What the player's packets begin with, in both directions.
    pub(crate) player_ids: Ids,
    /// What packets begin with at the server.
    pub(crate) server_ids: Ids,
    /// When a packet of the player's last passed; while the server is asked, when the player last
    /// asked.
    pub(crate) heard_ns: u64,
    /// Our socket that the player talks to.
    pub(crate) socket: SocketId,
    /// The address the player talks to, where the socket has several.
    pub(crate) local: LocalIp,
    /// Number, backend and slot, to be given back.
    pub(crate) claim: Claim,
    /// The cookie of the response that opened the session.
    pub(crate) accepted: Cookie,
    /// When the newest cookie was made with which the player has proven its address.
    pub(crate) proven_ns: u64,
    /// When the handshake was last acknowledged.
    pub(crate) acknowledged_ns: u64,
    /// When a proof was last noted that its player did not need; 0 before the first.
    pub(crate) noted_ns: u64,
    /// When it last moved to another address; 0 before it has.
    pub(crate) moved_ns: u64,
    /// When a packet last passed, from either side, that closes the connection; 0 while none has.
    pub(crate) closed_ns: u64,
    /// The link of its server on which it was announced, as that one counts them; 0 for none.
    pub(crate) announced: u32,
    /// Whether another gateway may have it by now: no backend can name it meanwhile.
    pub(crate) is_unsure: bool,
    /// The worker that forwards this player's datagrams to us, after a port switch.
    pub(crate) steered_by: Option<WorkerId>,
}

/// How far a session is.
#[expect(clippy::large_enum_variant, reason = "sessions are open nearly all their life")]
pub(crate) enum Stage {
    /// The server is being asked.
    Opening(Box<Opening>),
    /// Packets pass.
    Open {
        /// The cookie that player and server share.
        cookie: Cookie,
        guard: Guard,
    },
}

/// A session that its server does not know yet.
pub(crate) struct Opening {
    /// Speaks to the server in the player's place.
    pub(crate) client: Client,
    /// The response that waits for its acknowledgement.
    pub(crate) response: Handshake,
    /// How long it was.
    pub(crate) response_bytes: usize,
    pub(crate) since_ns: u64,
}

impl Stage {
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

impl Tenant for Session {
    fn nobody() -> Self {
        Self {
            stage: Stage::Open { cookie: Cookie::ZERO, guard: Guard::Pass },
            player_ids: Ids::default(),
            server_ids: Ids::default(),
            heard_ns: 0,
            socket: SocketId(u32::MAX),
            local: LocalIp::UNSPECIFIED,
            claim: Claim::NOBODYS,
            accepted: Cookie::ZERO,
            proven_ns: 0,
            acknowledged_ns: 0,
            noted_ns: 0,
            moved_ns: 0,
            closed_ns: 0,
            announced: 0,
            is_unsure: false,
            steered_by: None,
        }
    }
}

impl Session {
    /// The cookie that player and server share, once they do.
    pub(crate) const fn cookie(&self) -> Option<&Cookie> {
        match &self.stage {
            Stage::Open { cookie, .. } => Some(cookie),
            Stage::Opening(_) => None,
        }
    }

    /// What further handshake packets from the player's address are checked against.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            ids: self.player_ids,
            accepted: self.accepted,
            proven_ns: self.proven_ns,
            heard_ns: self.heard_ns.max(self.acknowledged_ns),
            over_ns: None,
        }
    }

    /// When the connection was closed, as far as it can be told. Where the player plays on, it was
    /// not: the packet was forged or misread.
    pub(crate) fn closed_ns(&self) -> Option<u64> {
        let is_closed = self.closed_ns > 0 && self.heard_ns <= self.closed_ns + LAST_WORDS_NS;
        is_closed.then_some(self.closed_ns)
    }

    /// The player has proven where it is.
    pub(crate) fn prove(&mut self, proof: &Proof) {
        self.proven_ns = self.proven_ns.max(proof.timestamp.to_ns().unwrap_or(0));
    }

    /// The way to the player at that address.
    pub(crate) const fn target(&self, player: Endpoint) -> TxTarget {
        TxTarget { socket: self.socket, peer: Some(player), source: self.local }
    }

    pub(crate) const fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening(_))
    }
}

impl Kept for Session {
    fn at_backend(&self) -> BackendId {
        if self.is_unsure { BackendId::NOBODYS } else { self.claim.backend }
    }

    fn held(&self, _address: &Address) -> Option<Claim> {
        Some(self.claim)
    }

    fn steered_by(&self) -> Option<WorkerId> {
        self.steered_by
    }
}

ringgate_core::carried!(Session {
    stage,
    player_ids,
    server_ids,
    heard_ns as time,
    socket,
    local,
    claim,
    accepted,
    proven_ns as time,
    acknowledged_ns as time,
    noted_ns as anew,
    moved_ns as anew,
    closed_ns as time,
    announced as anew,
    is_unsure as anew,
    steered_by,
});
ringgate_core::carried!(Opening { client, response, response_bytes, since_ns as time });

impl Carry for Stage {
    fn write(&self, out: &mut Writer<'_>) {
        self.is_open().write(out);
        match self {
            Self::Opening(opening) => opening.write(out),
            Self::Open { cookie, guard } => {
                cookie.write(out);
                guard.write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(if bool::read(from)? {
            Self::Open { cookie: Cookie::read(from)?, guard: Guard::read(from)? }
        } else {
            Self::Opening(Box::read(from)?)
        })
    }
}

/// How long packets may come behind one that closes the connection: what was on the way, and what
/// the player said before it heard of a server's.
const LAST_WORDS_NS: u64 = 2_000_000_000;
