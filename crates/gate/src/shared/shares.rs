//! How many players of each backend, and of each address, site and block, have proven by nothing
//! that they are where they say, over all workers: they may hold a share of its slots, and of what
//! such a source may have.

use std::sync::Mutex;

use crate::ids::{BackendId, ListenerId};
use crate::setup::Limits;
use crate::store::area::Area;
use crate::store::census::Census;
use crate::store::hash::HashKey;
use crate::store::table::Address;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::sync::lock;

pub(crate) struct Shares {
    players_max: usize,
    key: HashKey,
    /// Made for the first of them: most gateways have none.
    census: Mutex<Option<Census>>,
}

impl Shares {
    /// For so many players.
    pub(crate) const fn new(players_max: usize, key: HashKey) -> Self {
        Self { players_max, key, census: Mutex::new(None) }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Census) -> T) -> T {
        let make = || Census::new(AREAS * self.players_max, self.key);
        look(lock(&self.census).get_or_insert_with(make))
    }

    /// One more, if the backend has fewer than `max`, and its source fewer than the limits say.
    pub(crate) fn enter(
        &self,
        (backend, max): (BackendId, u32),
        address: &Address,
        limits: &Limits,
    ) -> Result<(), DropReason> {
        self.with(|census| {
            let has_room = check_source(census, address.listener, &address.endpoint, limits);
            if has_room.is_err() || census.of(&Area::backend(backend)) >= max {
                return Err(DropReason::UnprovenFull);
            }
            areas(backend, address).for_each(|area| census.enter(&area));
            Ok(())
        })
    }

    /// One more, a player that another process has had.
    pub(crate) fn resume(&self, backend: BackendId, address: &Address) {
        self.with(|census| areas(backend, address).for_each(|area| census.enter(&area)));
    }

    /// One less.
    pub(crate) fn leave(&self, backend: BackendId, address: &Address) {
        self.with(|census| areas(backend, address).for_each(|area| census.leave(&area)));
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn of(&self, backend: BackendId) -> u32 {
        self.with(|census| census.of(&Area::backend(backend)))
    }
}

fn areas(backend: BackendId, address: &Address) -> impl Iterator<Item = Area> + use<> {
    Area::all(address.listener, &address.endpoint).chain([Area::backend(backend)])
}

/// Whether a source may have one more of what is counted.
pub(crate) fn check_source(
    sources: &Census,
    listener: ListenerId,
    source: &Endpoint,
    limits: &Limits,
) -> Result<(), DropReason> {
    let is_full = |area, limit| limit > 0 && sources.of(&area) >= limit;
    if is_full(Area::address(listener, source), limits.sessions_per_address) {
        return Err(DropReason::AddressFull);
    }
    if Area::site(listener, source).is_some_and(|it| is_full(it, limits.sessions_per_site)) {
        return Err(DropReason::SiteFull);
    }
    if is_full(Area::block(listener, source), limits.sessions_per_block) {
        return Err(DropReason::BlockFull);
    }
    Ok(())
}

/// What a player counts for, at the most.
const AREAS: usize = 4;
