//! What small packets from addresses without a session have brought in, so that an answer never
//! takes out more.
//!
//! A player whose game is quiet sends keep-alives of 10 bytes, and a request to restart has 19. So
//! the bytes of packets that are too small to be answered are added up for each address, and when
//! they suffice, one request is paid for with them: two keep-alives, less than half a second.
//! So an attacker who forges an address sends at least as many bytes as arrive there.
//!
//! The memory is an array that a keyed hash indexes. Two addresses that meet in one place do not
//! share: the later one begins anew, which can only make answers rarer. So a flood makes players
//! wait whose port has just changed, and does no other harm.

use crate::store::hash::HashKey;
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// Bytes received and not yet answered, by address.
pub(crate) struct Credits {
    key: HashKey,
    /// Invariant: a power of two of them, or none.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    address: Endpoint,
    /// Invariant: no more than came from that address, less what was sent to it.
    bytes: u8,
}

impl Credits {
    /// Writes what addresses may still be sent.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { key: _, entries } = self;
        let owed = (0_u32..).zip(entries).filter(|(_, entry)| entry.bytes > 0);
        (owed.clone().count() as u32).write(out);
        for (at, entry) in owed {
            at.write(out);
            entry.write(out);
        }
    }

    /// Goes on with it.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        for (at, entry) in Vec::<(u32, Entry)>::read(from)? {
            *self.entries.get_mut(at as usize).ok_or(Broken::Invalid("credit"))? = entry;
        }
        Ok(())
    }
}

ringgate_core::carried!(Entry { address, bytes });

impl Credits {
    /// No memory where no listener needs any.
    pub(crate) fn new(is_served: bool, key: HashKey) -> Self {
        let nobody = Entry { address: Endpoint::v4([0; 4], 0), bytes: 0 };
        Self { key, entries: vec![nobody; if is_served { ENTRIES } else { 0 }] }
    }

    /// Adds what has come from an address, and says how much may be sent to it now.
    pub(crate) fn earn(&mut self, from: &Endpoint, bytes: usize) -> usize {
        let Some(entry) = self.entry(from) else { return 0 };
        if entry.address != *from {
            *entry = Entry { address: *from, bytes: 0 };
        }
        entry.bytes = entry.bytes.saturating_add(u8::try_from(bytes).unwrap_or(u8::MAX));
        entry.bytes.into()
    }

    /// Takes off what is sent to an address.
    pub(crate) fn spend(&mut self, to: &Endpoint, bytes: usize) {
        let Some(entry) = self.entry(to).filter(|entry| entry.address == *to) else { return };
        entry.bytes = entry.bytes.saturating_sub(u8::try_from(bytes).unwrap_or(u8::MAX));
    }

    fn entry(&mut self, address: &Endpoint) -> Option<&mut Entry> {
        let (high, low) = address.ip_words();
        let hash = self.key.hash([high, low, address.port().into()]);
        let at = hash as usize & self.entries.len().wrapping_sub(1);
        self.entries.get_mut(at)
    }
}

/// 24 bytes each.
const ENTRIES: usize = 1 << 13;

const _: () = assert!(ENTRIES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: HashKey = HashKey::new([1, 2]);

    fn at(port: u16) -> Endpoint {
        Endpoint::v4([192, 0, 2, 1], port)
    }

    #[test]
    fn bytes_add_up_for_each_address_and_are_spent_once() {
        let mut credits = Credits::new(true, KEY);
        assert_eq!((credits.earn(&at(1), 10), credits.earn(&at(2), 10)), (10, 10));
        assert_eq!(credits.earn(&at(1), 10), 20);
        credits.spend(&at(1), 19);
        assert_eq!((credits.earn(&at(1), 10), credits.earn(&at(2), 10)), (11, 20));
    }

    #[test]
    fn what_is_saved_has_a_bound_and_nothing_is_saved_where_nobody_asks() {
        let mut credits = Credits::new(true, KEY);
        assert_eq!((0..100).map(|_| credits.earn(&at(1), 18)).max(), Some(255));
        let mut none = Credits::new(false, KEY);
        assert_eq!(none.earn(&at(1), 18), 0);
        none.spend(&at(1), 18);
    }

    #[test]
    fn no_address_is_ever_sent_more_than_it_has_sent_however_many_there_are() {
        let mut credits = Credits::new(true, KEY);
        let mut balance = vec![0_i64; 60_000];
        let mut draw = 1_u64;
        for _ in 0..200_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let port = (draw >> 33) as usize % balance.len();
            balance[port] += 10;
            if credits.earn(&at(port as u16), 10) >= 19 {
                credits.spend(&at(port as u16), 19);
                balance[port] -= 19;
            }
            assert!(balance[port] >= 0);
        }
    }
}
