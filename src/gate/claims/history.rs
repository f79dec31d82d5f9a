//! Used connect tokens, each remembered until it expires.
//!
//! A token that was used belongs to the address that used it first, so that nobody else gets in with a copy of it. And each
//! of its sessions must start its sequence where no earlier one can have come, because they share their keys.

use super::super::bag::Bag;
use super::super::wheel::Wheel;
use crate::drops::DropReason;
use crate::proto::netcode::server::SessionSequence;

/// The tag of a connect token's private part, which tells tokens apart.
pub(crate) type TokenMac = [u8; 16];

/// Which tokens were used from where, and until when that matters.
pub(super) struct History {
    uses: Bag<Use>,
    /// In seconds. A place is a position in `uses`, which stays armed as long as it is taken.
    expiries: Wheel<1>,
}

/// How a token was used.
#[derive(Clone, Copy)]
struct Use {
    mac: TokenMac,
    /// Hash of the address and port it was first used from.
    source: u64,
    /// Where the next session of this token starts its sequence, if there was one.
    next_sequence: SessionSequence,
    /// Seconds since 1970. What expires after 2106 is remembered until then.
    expire_s: u32,
    had_session: bool,
}

impl History {
    pub(super) fn new(tokens_max: usize) -> Self {
        Self { uses: Bag::new(tokens_max), expiries: Wheel::new(tokens_max, 0) }
    }

    /// How many tokens are remembered.
    pub(super) fn len(&self) -> usize {
        self.uses.len()
    }

    /// Records that a token is used from `source`, or refuses it. Returns whether it has had a session.
    pub(super) fn use_token(
        &mut self,
        mac: &TokenMac,
        source: u64,
        expire_s: u64,
        now_s: u64,
    ) -> Result<bool, DropReason> {
        self.forget_expired(now_s);
        if let Some(position) = self.find(mac) {
            let used = self.uses.at(position);
            return if used.source == source {
                Ok(used.had_session)
            } else {
                Err(DropReason::TokenUsedElsewhere)
            };
        }
        let fresh = Use {
            mac: *mac,
            source,
            next_sequence: SessionSequence::begin(None, 0),
            expire_s: u32::try_from(expire_s).unwrap_or(u32::MAX),
            had_session: false,
        };
        let position = self.uses.insert(hash(mac), fresh).ok_or(DropReason::TokenHistoryFull)?;
        self.expiries.arm(position, fresh.expire_s.into());
        Ok(false)
    }

    /// A range of sequence numbers that no other session of the token has.
    pub(super) fn take_range(&mut self, mac: &TokenMac, random: u64) -> SessionSequence {
        // A token that expired during its handshake is forgotten already: then the random start has to do.
        let Some(position) = self.find(mac) else {
            return SessionSequence::begin(None, random);
        };
        let used = self.uses.at_mut(position);
        let next = used.had_session.then_some(used.next_sequence);
        let sequence = SessionSequence::begin(next, random);
        used.next_sequence = sequence.after();
        used.had_session = true;
        sequence
    }

    fn find(&self, mac: &TokenMac) -> Option<u32> {
        self.uses.find(hash(mac), |used| used.mac == *mac)
    }

    /// Forgets a few of the tokens that have expired: more than come in meanwhile.
    fn forget_expired(&mut self, now_s: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(position) = self.expiries.pop_due(now_s) else { return };
            let used = self.uses.at(position);
            // The request check refuses a token from `expire <= now` on, so nothing live is forgotten here. What is live
            // has come to the wheel's horizon.
            if u64::from(used.expire_s) > now_s {
                self.expiries.arm(position, used.expire_s.into());
            } else {
                let hash = hash(&used.mac);
                self.uses.remove(hash, position);
            }
        }
    }
}

/// A tag is random to everybody who has not the key of tokens, and only good tokens come here.
fn hash(mac: &TokenMac) -> u32 {
    u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]])
}

/// A few microseconds' work.
const FORGOTTEN_AT_ONCE: usize = 32;

const _: () = assert!(size_of::<Use>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: u32) -> TokenMac {
        let mut mac = [7; 16];
        mac[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b9).to_le_bytes());
        mac
    }

    #[test]
    fn a_token_belongs_to_its_first_address_until_it_expires() {
        let mut history = History::new(8);
        assert_eq!(history.use_token(&mac(7), 1, 100, 10), Ok(false));
        assert_eq!(history.use_token(&mac(7), 1, 100, 99), Ok(false));
        let elsewhere = history.use_token(&mac(7), 2, 100, 99);
        assert_eq!(elsewhere, Err(DropReason::TokenUsedElsewhere));
        assert_eq!(history.len(), 1);
        let _ = history.use_token(&mac(8), 3, 200, 100);
        assert_eq!(history.len(), 1, "the expired one is gone");
    }

    #[test]
    fn a_full_history_refuses_new_tokens_and_keeps_the_old() {
        let mut history = History::new(2);
        for n in 0..2 {
            assert_eq!(history.use_token(&mac(n), 1, 100, 10), Ok(false));
        }
        let third = history.use_token(&mac(2), 1, 100, 10);
        assert_eq!(third, Err(DropReason::TokenHistoryFull));
        let stolen = history.use_token(&mac(0), 2, 100, 10);
        assert_eq!(stolen, Err(DropReason::TokenUsedElsewhere));
        assert_eq!(history.use_token(&mac(2), 1, 200, 100), Ok(false), "room after expiry");
    }

    #[test]
    fn every_token_is_remembered_exactly_until_it_expires() {
        let mut history = History::new(4096);
        // Some expire soon, some beyond the wheel's horizon, some never.
        let expire_s = |n: u32| match n % 8 {
            0 => u64::MAX,
            _ => 1_700_000_000 + u64::from(n.wrapping_mul(0x9e37_79b9) % 2000),
        };
        for n in 0..1000 {
            assert_eq!(history.use_token(&mac(n), n.into(), expire_s(n), 1_699_999_999), Ok(false));
        }
        for now_s in (1_700_000_000..1_700_002_000).step_by(7) {
            // The busy life of a gateway: each repeated request clears a little away.
            for _ in 0..10 {
                let _ = history.use_token(&mac(0), 0, u64::MAX, now_s);
            }
            for n in 0..1000 {
                let is_live = expire_s(n) > now_s;
                assert!(history.find(&mac(n)).is_some() || !is_live, "{n} was forgotten too soon");
            }
        }
        for _ in 0..100 {
            let _ = history.use_token(&mac(0), 0, u64::MAX, 1_700_003_000);
        }
        assert_eq!(history.len(), 125, "those that never expire");
    }

    #[test]
    fn a_jump_of_the_clock_clears_away_little_at_a_time() {
        let mut history = History::new(1000);
        for n in 0..900 {
            assert_eq!(history.use_token(&mac(n), 1, 100, 10), Ok(false));
        }
        assert_eq!(history.use_token(&mac(2000), 1, 1_000_100, 1_000_000), Ok(false));
        assert_eq!(history.len(), 901 - FORGOTTEN_AT_ONCE);
        for _ in 0..900 {
            let _ = history.use_token(&mac(2000), 1, 1_000_100, 1_000_000);
        }
        assert_eq!(history.len(), 1);
    }
}
