//! A table on its way to the next process: every place with its generation, because places are
//! session ids and loopback addresses, and the free ones with how long they have rested.
//!
//! A process that takes a table over puts entries where they were. Until all have come, places are
//! missing, and what was copied while the other process went on may be out of date: then a later
//! copy takes its place.

use std::ops::Range;

use super::{Address, GENERATION_MAX, Generation, Place, Rest, Stored, Table, Tenant};
use crate::ids::ListenerId;
use crate::store::entry::Entry;
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};

ringgate_core::carried!(Address { listener, endpoint });

ringgate_core::carried!(Place { index, generation }
    if |it| (1..=GENERATION_MAX).contains(&it.generation), "generation");

/// The generation of a place that has not come yet.
const MISSING: Generation = Generation(0);

impl<T: Tenant> Table<T> {
    /// How many places are free.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// How many places there may be.
    pub(crate) const fn places_max(&self) -> usize {
        self.places_max
    }

    /// Writes some of the free places, the one that was left first before the others.
    pub(crate) fn hand_over_free(&self, some: Range<usize>, out: &mut Writer<'_>) {
        (some.len() as u32).write(out);
        for Rest { entry, since_ns } in self.free.range(some) {
            self.place(*entry).write(out);
            since_ns.write(out);
        }
    }

    /// Whether every entry that was removed has given its place up.
    pub(crate) fn is_settled(&self) -> bool {
        self.removed.is_empty()
    }

    /// The live entry at an index.
    pub(crate) fn live_at(&self, index: u32) -> Option<Entry<T>> {
        let entry = Entry::numbered(index);
        self.is_live(entry).then_some(entry)
    }

    /// The entry that has this place and this address already.
    pub(crate) fn same_at(&self, place: Place, address: &Address) -> Option<Entry<T>> {
        let is_same = |it: &Entry<T>| self.place(*it) == place && self.address(*it) == address;
        self.live_at(place.index).filter(is_same)
    }

    /// What has to be [taken out](Self::take_out) before a tenant can be [put](Self::put) there:
    /// the one before it in its place, and one that has left its address since it was copied.
    pub(crate) fn in_the_way(
        &self,
        place: Place,
        address: &Address,
    ) -> impl Iterator<Item = Entry<T>> + use<T> {
        let before = self.live_at(place.index);
        let other = self.find(self.hash(address), address).filter(|it| Some(*it) != before);
        before.into_iter().chain(other)
    }

    /// Puts a tenant where it was. There must be no other in its place, and none of its address.
    pub(crate) fn put(
        &mut self,
        place: Place,
        address: Address,
        tenant: T,
    ) -> Result<Entry<T>, Broken> {
        self.grow_to(place.index)?;
        if self.live_count + 1 >= self.index.len() {
            return Err(Broken::Invalid("number of entries"));
        }
        let hash = self.hash(&address);
        let entry = Entry::numbered(place.index);
        let stored = &mut self.stored[entry.index()];
        if stored.generation.0 != MISSING.0 {
            return Err(Broken::Invalid("place"));
        }
        *stored = Stored { address, generation: Generation::indexed(place.generation), tenant };
        self.index.insert(hash, entry.number());
        self.live_count += 1;
        self.enter(&address, true);
        Ok(entry)
    }

    /// Forgets an entry that was put: its place is missing again.
    pub(crate) fn take_out(&mut self, entry: Entry<T>) {
        let address = *self.address(entry);
        self.index.remove(self.hash(&address), entry.number());
        let stored = &mut self.stored[entry.index()];
        stored.generation = MISSING;
        stored.tenant = T::nobody();
        self.live_count -= 1;
        self.leave(&address);
    }

    /// Frees a place that is missing.
    pub(crate) fn free(&mut self, place: Place, since_ns: u64) -> Result<(), Broken> {
        self.grow_to(place.index)?;
        let entry = Entry::numbered(place.index);
        let stored = &mut self.stored[entry.index()];
        if stored.generation.0 != MISSING.0 {
            return Err(Broken::Invalid("free place"));
        }
        stored.generation = Generation(place.generation);
        self.free.push_back(Rest { entry, since_ns });
        Ok(())
    }

    /// Whether a place has not come, or its tenant could not be carried.
    pub(crate) fn is_missing(&self, index: u32) -> bool {
        self.stored.get(index as usize).is_none_or(|stored| stored.generation.0 == MISSING.0)
    }

    /// Whether every place has come, and there are no more entries than there may be.
    pub(crate) fn check_whole(&self) -> Result<(), Broken> {
        if self.live_count + self.free.len() != self.stored.len() {
            return Err(Broken::Invalid("number of places"));
        }
        if self.live_count > self.capacity {
            return Err(Broken::Invalid("number of entries"));
        }
        Ok(())
    }

    fn grow_to(&mut self, index: u32) -> Result<(), Broken> {
        if index as usize >= self.places_max {
            return Err(Broken::Invalid("place"));
        }
        let nowhere = Address { listener: ListenerId(0), endpoint: Endpoint::v4([0; 4], 0) };
        while self.stored.len() <= index as usize {
            let missing = Stored { address: nowhere, generation: MISSING, tenant: T::nobody() };
            self.stored.push(missing);
        }
        Ok(())
    }
}

/// Where a list of free places was, before each of its pieces had a record of its own.
pub(crate) fn write_none(out: &mut Writer<'_>) {
    0_u32.write(out);
}

/// Reads what [`Table::hand_over_free`] has written, one after the other.
pub(crate) fn read_free(
    from: &mut Reader<'_>,
    mut free: impl FnMut(Place, u64) -> Result<(), Broken>,
) -> Result<(), Broken> {
    for _ in 0..u32::read(from)? {
        let place = Place::read(from)?;
        free(place, time::read(from)?)?;
    }
    Ok(())
}
