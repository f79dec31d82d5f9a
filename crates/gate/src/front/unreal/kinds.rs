//! Which counter a packet of an Unreal game goes to.

use crate::front::protocol::Front;
use ringgate_core::proto::unreal::handshake::Kind;

/// Game packets.
pub(crate) const UNREAL_GAME: usize = Front::Unreal.first_kind();

/// The counter of a type of handshake packets.
pub(crate) const fn kind_index(kind: Kind) -> usize {
    UNREAL_GAME + 1 + kind as usize
}
