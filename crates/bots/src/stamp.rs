//! What a payload says about itself: which session sent it, as which of its packets, when it should
//! have left and when it did.
//!
//! The rest of a payload is filler that follows from the stamp, so that a receiver checks every
//! byte without being told any: a payload with one wrong bit, a payload cut short and a payload
//! that belongs to another player are three findings.

use ringgate_core::splitmix::mixed as mix;

/// Bytes of a stamp, and so of the shortest payload.
pub const STAMP_BYTES: usize = 28;

/// What stands at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which run of the generator; what is left over from another one is not ours.
    pub run: u32,
    /// Which session of the run.
    pub session: u32,
    /// Which payload of the session, from 0.
    pub counter: u32,
    /// When it was to leave, by the run's clock.
    pub intended_ns: u64,
    /// How much later it left.
    pub late_ns: u32,
}

impl Stamp {
    /// Fills a payload of any length from [`STAMP_BYTES`] on.
    ///
    /// # Panics
    /// Where `out` is shorter.
    pub fn write(&self, out: &mut [u8]) {
        out[4..8].copy_from_slice(&self.run.to_le_bytes());
        out[8..12].copy_from_slice(&self.session.to_le_bytes());
        out[12..16].copy_from_slice(&self.counter.to_le_bytes());
        out[16..24].copy_from_slice(&self.intended_ns.to_le_bytes());
        out[24..28].copy_from_slice(&self.late_ns.to_le_bytes());
        let sum = self.checksum(out.len());
        out[..4].copy_from_slice(&sum.to_le_bytes());
        let rest = filler(self.session, self.counter, out.len() - STAMP_BYTES);
        out[STAMP_BYTES..].copy_from_slice(rest);
    }

    /// Reads a payload. `None` where any byte of it is not what was written.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let head: &[u8; STAMP_BYTES] = payload.first_chunk()?;
        let word =
            |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let stamp = Self {
            run: word(4),
            session: word(8),
            counter: word(12),
            intended_ns: u64::from(word(16)) | u64::from(word(20)) << 32,
            late_ns: word(24),
        };
        let rest = &payload[STAMP_BYTES..];
        let is_whole = payload.len() <= PAYLOAD_BYTES_MAX
            && word(0) == stamp.checksum(payload.len())
            && *rest == *filler(stamp.session, stamp.counter, rest.len());
        is_whole.then_some(stamp)
    }

    /// How long after its intended time a payload that arrives now has arrived.
    pub const fn latency_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.intended_ns)
    }

    /// How long after it was really sent.
    pub const fn service_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.intended_ns + self.late_ns as u64)
    }

    const fn checksum(&self, len: usize) -> u32 {
        let who = (self.run as u64) << 32 | self.session as u64;
        let which = (self.counter as u64) << 32 | self.late_ns as u64;
        let sum = mix(mix(mix(who) ^ which) ^ self.intended_ns ^ (len as u64) << 48);
        (sum >> 32) as u32
    }
}

/// What fills a payload behind its stamp: so many bytes that follow from whose it is.
pub fn filler(session: u32, counter: u32, len: usize) -> &'static [u8] {
    let start = mix(u64::from(session) << 32 | u64::from(counter)) as usize & OFFSET_MASK;
    &FILLER[start..][..len]
}

/// Fillers start at any of so many places.
const OFFSET_MASK: usize = 511;

/// Where fillers are cut from.
static FILLER: [u8; FILLER_BYTES] = {
    let mut bytes = [0; FILLER_BYTES];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = mix(at as u64) as u8;
        at += 1;
    }
    bytes
};

/// Longest payload: a message. Without delivery it is a datagram.
const PAYLOAD_BYTES_MAX: usize = ringgate_core::proto::delivery::MESSAGE_BYTES_MAX;

const FILLER_BYTES: usize = PAYLOAD_BYTES_MAX + OFFSET_MASK;

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp =
        Stamp { run: 7, session: 0x0100_0002, counter: 3, intended_ns: 1 << 40, late_ns: 9 };

    #[test]
    fn every_length_comes_back_and_no_bit_may_differ() {
        for len in [STAMP_BYTES, 29, 100, 1200] {
            let mut payload = vec![0; len];
            STAMP.write(&mut payload);
            assert_eq!(Stamp::read(&payload), Some(STAMP));
            for bit in 0..len * 8 {
                payload[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Stamp::read(&payload), None, "bit {bit} of {len} bytes");
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_payload_that_was_cut_or_grew_is_not_whole() {
        let mut payload = vec![0; 101];
        STAMP.write(&mut payload[..100]);
        assert_eq!(Stamp::read(&payload[..99]), None);
        assert_eq!(Stamp::read(&payload), None);
        assert_eq!(Stamp::read(&[]), None);
    }

    #[test]
    fn latency_counts_from_the_intended_time_and_service_from_the_actual_one() {
        let stamp = Stamp { intended_ns: 1000, late_ns: 400, ..STAMP };
        assert_eq!((stamp.latency_ns(2000), stamp.service_ns(2000)), (1000, 600));
    }
}
