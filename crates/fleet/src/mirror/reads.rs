//! What a mirror understands of what it copies: whose a registration is, whether it has taken its
//! leave, and what the fleet's key vouches for. Nothing else of a value is looked at here.

use bytes::Bytes;
use serde::Deserialize;

use super::truth::{CONFIRM_KIND, Entry, Truth};
use crate::keyspace::Class;
use crate::seal::FleetKey;
use crate::values::{Confirmation, ListenerKey, Stored, VALUE_BYTES_MAX};

/// Reads for a mirror, with the fleet's key or without it.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    key: Option<FleetKey>,
}

/// Whose a registration is: all that one host has goes with it, and all that one lease has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Host(String),
    Lease(i64),
}

/// What values of gateways and backends tell that matters here.
#[derive(Default, Deserialize)]
struct Told {
    host: Option<String>,
    state: Option<String>,
    draining: Option<bool>,
}

impl Reads {
    /// Without a key nothing is vouched for.
    pub const fn new(key: Option<FleetKey>) -> Self {
        Self { key }
    }

    /// Which kind of counter a key's word goes by.
    pub(super) fn kind(key: &[u8]) -> Option<usize> {
        if key.ends_with(CONFIRM) {
            return Some(CONFIRM_KIND);
        }
        Class::of(key).map(|class| class as usize)
    }

    /// What the fleet's key says how new a value is, if it is the fleet's word at this place.
    pub(super) fn counter(&self, key: &[u8], value: &[u8]) -> Option<u64> {
        let fleet = self.key.as_ref()?;
        if Class::of(key) != Some(Class::Keys) {
            return fleet.vouched(key, value);
        }
        let stored = ListenerKey::decode(value).ok()?;
        fleet.open(key, &stored).ok().map(|_| stored.validity.from.max(1))
    }

    /// An operator's word at this key, and how new it is.
    pub(super) fn confirmation(&self, key: &[u8], value: &[u8]) -> Option<(u64, Confirmation)> {
        let word = key.ends_with(CONFIRM).then(|| Confirmation::decode(value).ok()).flatten()?;
        Some((self.counter(key, value)?, word))
    }

    /// Whether an owner has said that this goes: it drains, it has ended, or its lease was given
    /// up.
    pub(super) fn has_taken_leave(
        &self,
        prefix: &[u8],
        (key, entry): (&[u8], &Entry),
        truth: &Truth,
    ) -> bool {
        let told = told(&entry.value);
        told.state.as_deref() == Some("draining")
            || told.draining == Some(true)
            || (entry.lease != 0 && self.is_given_up(prefix, entry.lease, truth))
            || self.has_ended(prefix, (key, entry), truth)
    }

    /// By a word that is not older than what stood there.
    fn has_ended(&self, prefix: &[u8], (key, entry): (&[u8], &Entry), truth: &Truth) -> bool {
        let Some(rest) = key.strip_prefix(prefix) else { return false };
        let at = [prefix, b"gone/", rest].concat();
        let found = truth.entries.get(&*at);
        let said = found.and_then(|found| self.counter(&at, &found.value));
        said.is_some_and(|said| self.counter(key, &entry.value).is_some_and(|it| it <= said))
    }

    fn is_given_up(&self, prefix: &[u8], lease: i64, truth: &Truth) -> bool {
        let key = [prefix, format!("gone/{lease}").as_bytes()].concat();
        let found = truth.entries.get(&*key);
        found.is_some_and(|entry| self.counter(&key, &entry.value).is_some())
    }

    /// Whose it is, where that can be known.
    pub(super) fn owner(entry: &Entry) -> Option<Owner> {
        let host = told(&entry.value).host.map(Owner::Host);
        host.or_else(|| (entry.lease != 0).then_some(Owner::Lease(entry.lease)))
    }
}

fn told(value: &Bytes) -> Told {
    let fits = value.len() <= VALUE_BYTES_MAX;
    fits.then(|| serde_json::from_slice(value).ok()).flatten().unwrap_or_default()
}

/// Where an operator's word stands, below what is mirrored.
pub(super) const CONFIRM: &[u8] = b"/truth/confirm";
