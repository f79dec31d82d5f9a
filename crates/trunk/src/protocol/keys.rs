//! The keys of a lane's two directions, which change with time and use, without a pause.
//!
//! Each direction begins with a secret from the TLS exporter. A secret yields the key of one epoch
//! and the secret of the next, and is wiped: who takes a running process's memory cannot open what
//! was recorded before. Both sides can do this alone, so a change needs no message: the sender
//! moves on, and the receiver follows as soon as a datagram of the next epoch has opened.

use ringgate_core::crypto::{Key, token};

/// When a sender moves on to its next key.
///
/// A receiver follows one step at a time, so no key's datagrams may all be lost while the lane
/// lives: a key has to be in use for longer than a lane may be silent, or for many datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Rekey {
    /// So long after the last change.
    pub age_ns: u64,
    /// After so many datagrams.
    pub datagrams: u64,
}

ringgate_core::carried!(Rekey { age_ns, datagrams });

impl Default for Rekey {
    fn default() -> Self {
        Self { age_ns: 120_000_000_000, datagrams: 1 << 30 }
    }
}

/// How long a receiver still opens what was sealed under the key before: as long as a lane may be
/// silent.
pub const PREVIOUS_NS: u64 = 3_000_000_000;

/// A secret that yields one key after the other.
#[derive(Debug)]
struct Ratchet {
    secret: Key,
}

ringgate_core::carried!(Ratchet { secret });

impl Ratchet {
    /// The next epoch's key.
    fn advance(&mut self) -> Key {
        let yielded = |label: &[u8; 16]| {
            let mut nonce = [0; 24];
            nonce[..16].copy_from_slice(label);
            token::derive(&self.secret, &nonce).0
        };
        let key = yielded(b"ringgate: packet");
        self.secret = yielded(b"ringgate: secret");
        key
    }
}

/// The key under which one direction is sealed.
#[derive(Debug)]
pub struct SendKeys {
    ratchet: Ratchet,
    key: Key,
    epoch: u64,
    since_ns: u64,
    sealed: u64,
    rekey: Rekey,
}

ringgate_core::carried!(SendKeys { ratchet, key, epoch, since_ns as time, sealed, rekey });

impl SendKeys {
    /// Begins at epoch 0.
    pub fn new(secret: Key, rekey: Rekey, now_ns: u64) -> Self {
        let mut ratchet = Ratchet { secret };
        let key = ratchet.advance();
        Self { ratchet, key, epoch: 0, since_ns: now_ns, sealed: 0, rekey }
    }

    /// The key for that many more datagrams, and its epoch. A batch is sealed under one key.
    pub(crate) fn key_for(&mut self, datagrams: u64, now_ns: u64) -> (&Key, u16) {
        let is_old = now_ns.saturating_sub(self.since_ns) >= self.rekey.age_ns;
        if is_old || self.sealed >= self.rekey.datagrams {
            self.key = self.ratchet.advance();
            self.epoch += 1;
            (self.since_ns, self.sealed) = (now_ns, 0);
        }
        self.sealed = self.sealed.saturating_add(datagrams);
        (&self.key, self.epoch as u16)
    }

    /// How often the key has changed.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Which of the keys a receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Previous,
    Current,
    Next,
}

/// The keys that open one direction.
#[derive(Debug)]
pub struct ReceiveKeys {
    ratchet: Ratchet,
    previous: Option<Key>,
    current: Key,
    next: Key,
    epoch: u64,
    changed_ns: u64,
}

ringgate_core::carried!(ReceiveKeys {
    ratchet,
    previous,
    current,
    next,
    epoch,
    changed_ns as time,
});

impl ReceiveKeys {
    /// Begins at epoch 0.
    pub fn new(secret: Key) -> Self {
        let mut ratchet = Ratchet { secret };
        let (current, next) = (ratchet.advance(), ratchet.advance());
        Self { ratchet, previous: None, current, next, epoch: 0, changed_ns: 0 }
    }

    /// Which key has these lowest bits in its number. A forged number costs a comparison: no key is
    /// made for it.
    pub(crate) fn locate(&self, epoch: u16) -> Option<Which> {
        match epoch.wrapping_sub(self.epoch as u16) {
            0 => Some(Which::Current),
            1 => Some(Which::Next),
            u16::MAX if self.previous.is_some() => Some(Which::Previous),
            _ => None,
        }
    }

    pub(crate) fn key(&self, which: Which) -> &Key {
        match which {
            Which::Previous => self.previous.as_ref().unwrap_or(&self.current),
            Which::Current => &self.current,
            Which::Next => &self.next,
        }
    }

    /// Something authentic has come under this epoch's key.
    pub(crate) fn follow(&mut self, epoch: u16, now_ns: u64) {
        if self.locate(epoch) == Some(Which::Next) {
            let next = self.ratchet.advance();
            let current = std::mem::replace(&mut self.next, next);
            self.previous = Some(std::mem::replace(&mut self.current, current));
            self.epoch += 1;
            self.changed_ns = now_ns;
        }
    }

    /// Wipes the key before, once nothing that it has sealed can still be on its way.
    pub(crate) fn forget(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.changed_ns) >= PREVIOUS_NS {
            self.previous = None;
        }
    }

    /// How often the peer's key has changed.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Key {
        Key::from_bytes([7; 32])
    }

    #[test]
    fn both_ends_come_to_the_same_keys_and_never_to_one_twice() {
        let rekey = Rekey { age_ns: u64::MAX, datagrams: 1 };
        let mut sends = SendKeys::new(secret(), rekey, 0);
        let mut receives = ReceiveKeys::new(secret());
        let mut seen: Vec<Key> = Vec::new();
        for epoch in 0..70_000_u64 {
            let (key, low) = sends.key_for(1, 0);
            let which = receives.locate(low).expect("it is at most one ahead");
            assert_eq!(receives.key(which), key, "epoch {epoch}");
            if epoch < 100 {
                assert!(!seen.contains(key) && *key != secret());
                seen.push(key.clone());
            }
            receives.follow(low, 0);
            assert_eq!(receives.epoch(), epoch, "the lowest bits wrap, the number goes on");
        }
    }

    #[test]
    fn keys_change_by_time_and_by_count() {
        let mut keys = SendKeys::new(secret(), Rekey { age_ns: 100, datagrams: 10 }, 0);
        assert_eq!(keys.key_for(9, 99).1, 0);
        assert_eq!(keys.key_for(9, 99).1, 0, "a batch that has begun is sealed under one key");
        assert_eq!(keys.key_for(1, 99).1, 1);
        assert_eq!(keys.key_for(1, 198).1, 1);
        assert_eq!(keys.key_for(1, 199).1, 2);
    }

    #[test]
    fn only_neighbours_are_opened_and_the_one_before_not_for_ever() {
        let mut keys = ReceiveKeys::new(secret());
        assert_eq!(keys.locate(u16::MAX), None, "nothing lies before the first");
        assert_eq!((keys.locate(1), keys.locate(2)), (Some(Which::Next), None));
        keys.follow(2, 5);
        assert_eq!(keys.epoch(), 0);
        keys.follow(1, 5);
        assert_eq!((keys.locate(0), keys.locate(1)), (Some(Which::Previous), Some(Which::Current)));
        keys.forget(5 + PREVIOUS_NS - 1);
        assert_eq!(keys.locate(0), Some(Which::Previous));
        keys.forget(5 + PREVIOUS_NS);
        assert_eq!(keys.locate(0), None);
    }
}
