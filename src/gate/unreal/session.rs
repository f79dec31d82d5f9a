//! One player of an Unreal game.

use super::guard::Guard;
use crate::buf::{Endpoint, LocalIp, SocketId, TxTarget};
use crate::gate::claims::Claim;
use crate::gate::table::Tenant;
use crate::proto::unreal::client::Client;
use crate::proto::unreal::cookie::Cookie;
use crate::proto::unreal::handshake::Handshake;
use crate::proto::unreal::prefix::Ids;

/// A player who has answered a challenge.
pub(in crate::gate) struct Session {
    pub(super) stage: Stage,
    /// What the player's packets begin with, in both directions.
    pub(super) player_ids: Ids,
    /// What packets begin with at the server.
    pub(super) server_ids: Ids,
    /// When a packet of the player's last passed.
    pub(super) heard_ns: u64,
    /// Our socket that the player talks to.
    pub(super) socket: SocketId,
    /// The address the player talks to, where the socket has several.
    pub(super) local: LocalIp,
    /// Number, backend and slot, to be given back.
    pub(super) claim: Claim,
    /// The cookie of the response that opened the session.
    pub(super) accepted: Cookie,
    /// When the handshake was last acknowledged.
    pub(super) acknowledged_ns: u64,
    /// The worker that forwards this player's datagrams to us, after a port switch.
    pub(super) steered_by: Option<u16>,
}

/// How far a session is.
#[expect(clippy::large_enum_variant, reason = "sessions are open nearly all their life")]
pub(super) enum Stage {
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
pub(super) struct Opening {
    /// Speaks to the server in the player's place.
    pub(super) client: Client,
    /// The response that waits for its acknowledgement.
    pub(super) response: Handshake,
    /// How long it was.
    pub(super) response_bytes: usize,
    pub(super) since_ns: u64,
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
            claim: Claim { listener: 0, client_id: 0, backend: 0, slot: 0 },
            accepted: Cookie::ZERO,
            acknowledged_ns: 0,
            steered_by: None,
        }
    }
}

impl Session {
    /// The cookie that player and server share, once they do.
    pub(super) const fn cookie(&self) -> Option<&Cookie> {
        match &self.stage {
            Stage::Open { cookie, .. } => Some(cookie),
            Stage::Opening(_) => None,
        }
    }

    /// The way to the player at that address.
    pub(super) const fn target(&self, player: Endpoint) -> TxTarget {
        TxTarget { socket: self.socket, peer: Some(player), source: self.local }
    }

    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening(_))
    }
}
