//! The local connections to game processes: who is there, what they are told, and what they say.

pub(crate) mod allowance;
pub(crate) mod backlog;
pub(crate) mod from_game;
pub(crate) mod handed;
pub(crate) mod listening;
pub(crate) mod loopback;
pub(crate) mod players;
pub(crate) mod presence;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod to_game;

use ringgate_core::limits;
use ringgate_link::bundle;

const _: () = assert!(
    bundle::BUNDLE_BYTES_MAX == limits::BUNDLE_BYTES_MAX
        && bundle::PAYLOAD_BYTES_MAX == limits::PAYLOAD_BYTES_MAX
        && bundle::WORKERS_MAX == limits::WORKERS_MAX,
    "the link's format has the gateway's limits"
);
