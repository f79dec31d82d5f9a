//! The keys of listeners that are known: what stands in etcd, and what has stood there or was known
//! to the process before and is not over. None of them goes before its own sealed end. What stands
//! in etcd stays sealed beyond that, because the wall clock may have been ahead.

use std::collections::BTreeMap;

use ringgate_core::secret::SharedKey;
use ringgate_fleet::copy::StateFile;
use ringgate_fleet::epochs::{self, Epoch};
use ringgate_fleet::keyspace::{Keyspace, Name, Place};
use ringgate_fleet::seal::{FleetKey, NotOurs};
use ringgate_fleet::values::{ListenerKey, Stored};

use super::super::kept::{self, Refused, Stood};

/// All of them.
#[derive(Default)]
pub(super) struct Keys {
    /// Of each epoch what stands there, and behind it what has stood there.
    known: BTreeMap<(Name, u32), Vec<Held>>,
    /// They have become otherwise since they were written down.
    are_news: bool,
    /// What the last process has left that could not be used.
    refused: Refused,
}

/// A key that is known.
struct Held {
    /// What it was opened from.
    sealed: ListenerKey,
    /// Wiped while it is over.
    key: Option<SharedKey>,
    stands: bool,
}

impl Held {
    fn open(fleet_key: &FleetKey, place: &[u8], sealed: ListenerKey) -> Result<Self, NotOurs> {
        let key = Some(fleet_key.open(place, &sealed)?);
        Ok(Self { sealed, key, stands: false })
    }
}

impl Keys {
    /// What stood in etcd does not any more.
    pub(super) fn fall(&mut self, (listener, epoch): (&Name, u32)) {
        let keys = self.known.get_mut(&(listener.clone(), epoch));
        keys.into_iter().flatten().for_each(|held| held.stands = false);
    }

    /// This stands in etcd.
    pub(super) fn learn(
        &mut self,
        fleet_key: &FleetKey,
        place: &[u8],
        (listener, epoch): (&Name, u32),
        value: &[u8],
    ) -> Result<(), String> {
        let sealed = ListenerKey::decode(value).map_err(|why| why.to_string())?;
        let held = Held::open(fleet_key, place, sealed).map_err(|why| why.to_string())?;
        self.hold(listener.clone(), epoch, Held { stands: true, ..held });
        Ok(())
    }

    /// Takes those besides that the last process has written down.
    pub(super) fn recall(&mut self, keyspace: &Keyspace, fleet_key: &FleetKey, file: &StateFile) {
        let mut refused = Refused::default();
        for (place, value) in kept::load(file, &mut refused) {
            let (at, sealed) = (keyspace.place(&place), ListenerKey::decode(&value));
            let (Some(Place::Key(listener, epoch)), Ok(sealed)) = (at, sealed) else {
                refused.add(kept::Refusal::Malformed);
                continue;
            };
            match Held::open(fleet_key, &place, sealed) {
                Ok(held) => self.hold(listener, epoch, held),
                Err(_) => refused.add(kept::Refusal::NotOurs),
            }
        }
        refused.tell(file);
        self.refused = refused;
    }

    /// A key is known, which is what stands there now or was known before that.
    fn hold(&mut self, listener: Name, epoch: u32, mut held: Held) {
        let all = self.known.entry((listener, epoch)).or_default();
        match all.iter().position(|known| known.key == held.key) {
            Some(_) if !held.stands => return,
            // It has one place in memory, and others know it by that.
            Some(at) => held.key = all.remove(at).key,
            None => {}
        }
        let at = if held.stands { 0 } else { all.len() };
        all.insert(at, held);
        all.truncate(epochs::ACCEPTED_MAX);
        self.are_news = true;
    }

    /// What is to be written down, where that has become otherwise.
    pub(super) fn take_news(&mut self, keyspace: &Keyspace) -> Option<Vec<Stood>> {
        let stood = |((listener, epoch), keys): (&(Name, u32), &Vec<Held>)| {
            let place = keyspace.key(&Place::Key(listener.clone(), *epoch));
            let values = keys.iter().filter_map(|held| held.sealed.encode().ok());
            values.map(|value| (place.clone(), value)).collect::<Vec<_>>()
        };
        let all = std::mem::take(&mut self.are_news).then(|| self.known.iter().flat_map(stood));
        all.map(Iterator::collect)
    }

    /// What was to be written down could not be.
    pub(super) const fn are_unwritten(&mut self) {
        self.are_news = true;
    }

    /// What the last process has left that could not be used.
    pub(super) const fn refused(&self) -> Refused {
        self.refused
    }

    /// Forgets those that are over, and wipes what stands in etcd still: that opens again where the
    /// clock was ahead.
    pub(super) fn forget_over(&mut self, keyspace: &Keyspace, fleet_key: &FleetKey, now_s: u64) {
        let Self { known, are_news, .. } = self;
        known.retain(|(listener, epoch), keys| {
            let before = keys.len();
            keys.retain(|held| held.stands || now_s < held.sealed.validity.accept_until);
            *are_news |= keys.len() != before;
            for held in &mut *keys {
                let place = || keyspace.key(&Place::Key(listener.clone(), *epoch));
                fleet_key.renew(&mut held.key, &held.sealed, place, now_s);
            }
            !keys.is_empty()
        });
    }

    /// When each of them is over, in seconds since 1970.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        self.known.values().flatten().map(|held| held.sealed.validity.accept_until)
    }

    /// Those that are not over, of each listener.
    pub(super) fn accepted(&self, now_s: u64) -> BTreeMap<String, Vec<(u32, SharedKey)>> {
        let mut all: BTreeMap<&Name, Vec<Epoch>> = BTreeMap::new();
        for ((listener, number), keys) in &self.known {
            let epochs = keys.iter().map(|held| held.sealed.validity);
            let epochs = epochs.map(|validity| Epoch { number: *number, validity });
            all.entry(listener).or_default().extend(epochs);
        }
        let newest = |(listener, epochs): (&Name, Vec<Epoch>)| {
            let numbers = epochs::accepted(now_s, &epochs);
            let keys = numbers.iter().rev().filter_map(|number| {
                let keys = self.known.get(&(listener.clone(), *number))?;
                Some(keys.iter().filter_map(|held| Some((*number, held.key.clone()?))))
            });
            (listener.to_string(), keys.flatten().take(epochs::ACCEPTED_MAX).collect())
        };
        all.into_iter().map(newest).filter(|(_, keys): &(_, Vec<_>)| !keys.is_empty()).collect()
    }
}
