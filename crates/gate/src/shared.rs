//! What all workers agree on: claims, where addresses have sessions, the secrets of cookies.

pub(crate) mod buckets;
pub(crate) mod claims;
pub(crate) mod cookies;
pub(crate) mod fleet_players;
pub(crate) mod fleet_tokens;
pub(crate) mod homes;
pub(crate) mod shares;
pub(crate) mod standbys;
pub(crate) mod upgrades;
pub(crate) mod whereabouts;
