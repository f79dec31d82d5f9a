//! Sessions whose owners are gone, on their way to the next process: nobody else may have them. And
//! those that this process has asked for without hearing the answer. What else owners that live
//! have given, they give again.

use super::stood::Entry;
use super::{Orphan, Standbys, lock};
use crate::store::table::Address;
use ringgate_cluster::Record;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};

impl Standbys {
    /// Which they are.
    pub(crate) fn orphans(&self) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        for near in &self.orphans {
            orphans.extend(lock(near).values().flatten());
        }
        for stood in &self.stood {
            let stood = lock(stood);
            let is_asked_for = |it: &&Entry| it.gone_at_ns.is_none() && it.unanswered.is_some();
            let asked_for = stood.pairs().filter(|(_, it)| is_asked_for(it));
            orphans.extend(asked_for.map(|(address, it)| (*address, it.record.session)));
        }
        orphans.sort_unstable_by_key(|(address, id): &Orphan| (address.wide_hash(self.key), id.0));
        orphans
    }

    /// Writes one, if it still is one.
    pub(crate) fn hand_over_orphan(&self, (address, id): &Orphan, out: &mut Writer<'_>) {
        let mut stood = lock(self.stood_at(address));
        let Some(it) = stood.get_mut(address, *id) else { return };
        let asked_again = if it.gone_at_ns.is_none() { it.asked_again() } else { None };
        let Entry { gone_at_ns, record, .. } = asked_again.as_ref().unwrap_or(it);
        let Some(gone_at_ns) = gone_at_ns else { return };
        address.write(out);
        time::write(gone_at_ns, out);
        // One without a record is passed over there.
        let _ = record.append_to(out);
    }

    /// Stands by for it again. Where its owner is back meanwhile, that one says so.
    pub(crate) fn take_orphan(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        if from.rest().is_empty() {
            return Ok(());
        }
        let (address, gone_at_ns) = (Address::read(from)?, time::read(from)?);
        let record = Record::read_rest(from)?;
        let mut places = lock(&self.places);
        if places.of.len() < self.standing_max {
            self.insert(&mut places, address, Entry::new(None, record, Some(gone_at_ns)));
        }
        Ok(())
    }
}
