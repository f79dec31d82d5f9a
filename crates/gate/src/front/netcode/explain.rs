//! What is told of a datagram to who watches: whose it is, and the numbers behind a reason. Nothing
//! of this happens while nobody does.

use crate::arrivals::Origin;
use crate::common::Common;
use crate::front::netcode::state::NetcodeFront;
use crate::now::Now;
use crate::store::table::Address;
use crate::trace::{Detail, Fact};
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::{Header, Receiver};
use ringgate_core::proto::netcode::request::Claims;
use ringgate_core::proto::netcode::token::PrivateToken;

impl NetcodeFront {
    /// A datagram goes no further.
    pub(crate) fn drop_datagram(
        &self,
        common: &mut Common,
        now: Now,
        address: &Address,
        (why, bytes): (DropReason, &[u8]),
    ) {
        common.count_drop(address.listener, why);
        if !common.taps.is_empty() {
            let detail = self.detail(common, now, address, (why, bytes));
            common.taps.note_drop(address, self.player_at(address), why, detail);
        }
    }

    /// A datagram has come from another worker.
    #[cold]
    pub(crate) fn note_mailed(&self, common: &Common, address: &Address) {
        if let Some(client_id) = self.player_at(address) {
            common.taps.note_mailed(client_id);
        }
    }

    /// Who is at an address, in a session or in a handshake.
    pub(crate) fn player_at(&self, address: &Address) -> Option<u64> {
        let hash = self.sessions.hash(address);
        let session = self.sessions.find(hash, address);
        let session = session.map(|index| self.sessions.at(index).client_id);
        session.or_else(|| {
            let pending = self.pending.find(hash, address);
            pending.map(|index| self.pending.at(index).binding.client_id)
        })
    }

    #[cold]
    fn detail(
        &self,
        common: &Common,
        now: Now,
        address: &Address,
        (why, bytes): (DropReason, &[u8]),
    ) -> Detail {
        let detail = match why {
            DropReason::RequestProtocol => Claims::of(bytes).and_then(|claims| {
                let rules = common.setup.listeners[address.listener].netcode()?;
                let (found, expected) = (claims.protocol_id, rules.protocol_id);
                Some(Detail::Protocol { found, expected })
            }),
            DropReason::RequestExpired => Claims::of(bytes).map(|claims| Detail::Expired {
                ago_s: now.unix_s.saturating_sub(claims.expire_unix_s),
            }),
            DropReason::ReplayDuplicate | DropReason::ReplayTooOld | DropReason::SequenceGap => {
                self.sequence(address, bytes)
            }
            DropReason::Empty
            | DropReason::TooLong
            | DropReason::RequestLength
            | DropReason::PacketLength
            | DropReason::PacketTruncated => Some(Detail::Length { bytes: bytes.len() as u16 }),
            _ => None,
        };
        detail.unwrap_or(Detail::Nothing)
    }

    fn sequence(&self, address: &Address, bytes: &[u8]) -> Option<Detail> {
        let found = Header::decode(bytes, Receiver::Server).ok()?.sequence;
        let index = self.sessions.find(self.sessions.hash(address), address)?;
        let policy = &self.listeners[address.listener].replay;
        let newest = self.sessions.at(index).window.latest(policy)?;
        Some(Detail::Sequence { found, newest })
    }
}

/// Tells who watches that a token has opened, and under which key.
#[cold]
pub(crate) fn note_opened(
    turn: &mut Turn<'_>,
    origin: &Origin,
    token: &PrivateToken,
    (key, expire_s): (usize, u64),
) {
    let (address, taps) = (&origin.address, &mut turn.common.taps);
    let names = token.addresses.iter().next().map(|first| {
        let others = token.addresses.iter().count() as u8 - 1;
        Detail::Names { first: *first, others }
    });
    taps.set_player(address, token.client_id, names.unwrap_or(Detail::Nothing));
    let left_s = expire_s.saturating_sub(turn.now.unix_s);
    let opened = Fact::Opened { key: key as u16, left_s };
    taps.note(address, Some(token.client_id), opened);
}
