//! What a source may be sent while nothing proves that it is where it says.
//!
//! Half open, it is a small multiple of what it has sent. Once it is open, each datagram that is
//! heard earns a larger one, which the game needs: a spectator says little and is sent much. What a
//! spoofer brings upon its victim is that many times its own bytes, and ends with them.

use crate::front::plain::session::Session;
use crate::setup::{Credit, Plain};
use ringgate_core::drops::DropReason;

/// What a source may be sent for a datagram of so many bytes while its session is half open.
pub(crate) fn credit_for(rules: &Plain, len: usize) -> u32 {
    match rules.answer_times {
        0 => u32::MAX,
        times => times.saturating_mul(len as u32),
    }
}

impl Session {
    /// The source of a half-open session has sent a datagram of so many bytes.
    pub(crate) fn pay_ahead(&mut self, rules: &Plain, len: usize) {
        self.credit = self.credit.saturating_add(credit_for(rules, len));
    }

    /// A datagram of so many bytes was heard of its source.
    #[inline]
    pub(crate) fn earn(&mut self, rules: &Credit, len: usize) {
        let earned = rules.ratio.saturating_mul((len + HEADER_BYTES) as u32);
        self.credit = self.credit.saturating_add(earned).min(rules.burst);
    }

    /// Pays for a datagram of so many bytes to its source.
    #[inline]
    pub(crate) fn draw(
        &mut self,
        rules: &Credit,
        len: usize,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        if rules.pause_ns > 0 && now_ns >= self.heard_ns + rules.pause_ns {
            return Err(DropReason::SourcePaused);
        }
        if rules.ratio > 0 {
            let rest = self.credit.checked_sub((len + HEADER_BYTES) as u32);
            self.credit = rest.ok_or(DropReason::CreditSpent)?;
        }
        Ok(())
    }
}

/// IPv4's and UDP's, which a spoofer pays for too.
const HEADER_BYTES: usize = 28;
