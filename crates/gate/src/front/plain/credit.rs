//! What a source may be sent while nothing proves that it is where it says.
//!
//! Half open, it is a small multiple of what it has sent. Once it is open, each datagram that is
//! heard earns a larger one, which the game needs: a spectator says little and is sent much. What a
//! spoofer brings upon its victim is that many times its own bytes, and ends with them.

use crate::front::plain::session::Session;
use crate::setup::{Credit, Plain};
use ringgate_core::drops::DropReason;

/// What a source may be sent for a datagram of so many bytes while its session is half open: the
/// headers of one answer, and for each of its bytes so many. An answer more is paid for with its
/// headers, too.
pub(crate) fn credit_for(rules: &Plain, len: usize) -> u32 {
    match rules.answer_times {
        0 => u32::MAX,
        times => times.saturating_mul(len as u32).saturating_add(HEADER_BYTES),
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
        let earned = rules.ratio.saturating_mul(len as u32 + HEADER_BYTES);
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
            self.spend(len, DropReason::CreditSpent)?;
        }
        Ok(())
    }

    /// Pays for a datagram of so many bytes, where there is enough.
    #[inline]
    pub(crate) fn spend(&mut self, len: usize, why_not: DropReason) -> Result<(), DropReason> {
        self.credit = self.credit.checked_sub(len as u32 + HEADER_BYTES).ok_or(why_not)?;
        Ok(())
    }
}

/// IPv4's and UDP's: a spoofer pays for them, and its victim is hit by them, however little is in
/// a datagram.
const HEADER_BYTES: u32 = 28;
