//! Sessions whose owners are gone, on their way to the next process: nobody else may have them.
//! What owners that live have given, they give again.

use super::{Entry, Standbys, lock};
use crate::store::table::Address;
use ringgate_cluster::{RECORD_BYTES_MAX, Record};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use zeroize::Zeroizing;

impl Standbys {
    /// Where they are.
    pub(crate) fn orphans(&self) -> Vec<Address> {
        let mut orphans = Vec::new();
        for near in &self.orphans {
            orphans.extend(lock(near).values().flatten());
        }
        orphans.sort_unstable_by_key(|it: &Address| it.wide_hash(self.key));
        orphans
    }

    /// Writes one, if it still is one.
    pub(crate) fn hand_over_orphan(&self, address: &Address, out: &mut Writer<'_>) {
        let stood = lock(self.stood_at(address));
        let Some(it) = stood.entries.get(address) else { return };
        let mut bytes = Zeroizing::new([0; RECORD_BYTES_MAX]);
        let (Some(gone_at_ns), Ok(len)) = (it.gone_at_ns, it.record.write_to(&mut bytes)) else {
            return;
        };
        address.write(out);
        gone_at_ns.write(out);
        out.bytes(&bytes[..len]);
    }

    /// Stands by for it again. Where its owner is back meanwhile, that one says so.
    pub(crate) fn take_orphan(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        if from.rest().is_empty() {
            return Ok(());
        }
        let (address, gone_at_ns) = (Address::read(from)?, u64::read(from)?);
        let record = Record::read_from(from.bytes(from.rest().len())?)?;
        let mut places = lock(&self.places);
        if places.len() < self.standing_max {
            self.insert(&mut places, address, Entry::new(None, record, Some(gone_at_ns)));
        }
        Ok(())
    }
}
