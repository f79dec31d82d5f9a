//! What a game server sends without being asked, and what it tells about what it has heard.
//!
//! A push bears the complement of the run's number, so that nobody takes it for an echo. From the
//! acknowledgement in it a player learns how many of its payloads have arrived, which is the loss
//! of the way up, and how long the newest of them was on its way and back, less the time that the
//! server kept it. Its filler is checked as that of a [`Stamp`](super::Stamp) is.

use crate::rng::mix;
use ringgate_bots::stamp::filler;

/// Bytes of the shortest push.
pub const PUSH_BYTES: usize = 48;

/// A game server's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// Which run it is for.
    pub run: u32,
    /// Which session of the run.
    pub session: u32,
    /// Which push of the session, from 0.
    pub counter: u32,
    /// When it left, in nanoseconds since 1970: server and players share no other clock.
    pub sent_unix_ns: u64,
    /// Since when the game server has known the session, see [`since`]. A server that was
    /// restarted, or had forgotten the session, counts from 0 again.
    pub since: u32,
    /// What the server has heard from the session.
    pub ack: Ack,
}

/// A moment as pushes bear it: in steps of two milliseconds or so, which wrap after seven weeks;
/// never 0.
pub const fn since(unix_ns: u64) -> u32 {
    (unix_ns >> 20) as u32 | 1
}

/// What a game server has heard from a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Payloads, each once.
    pub heard: u32,
    /// When the newest was to leave, by the players' clock.
    pub intended_ns: u64,
    /// For how many nanoseconds the server has kept it.
    pub held_ns: u64,
}

impl Push {
    /// Whether a payload claims to be a push of a run.
    #[inline]
    pub fn is_claimed_by(payload: &[u8], run: u32) -> bool {
        payload.get(4..8) == Some(&(!run).to_le_bytes()[..])
    }

    /// Fills a payload of any length from [`PUSH_BYTES`] on.
    ///
    /// # Panics
    /// Where `out` is shorter.
    pub fn write(&self, out: &mut [u8]) {
        out[4..8].copy_from_slice(&(!self.run).to_le_bytes());
        out[8..12].copy_from_slice(&self.session.to_le_bytes());
        out[12..16].copy_from_slice(&self.counter.to_le_bytes());
        out[16..24].copy_from_slice(&self.sent_unix_ns.to_le_bytes());
        out[24..28].copy_from_slice(&self.ack.heard.to_le_bytes());
        out[28..36].copy_from_slice(&self.ack.intended_ns.to_le_bytes());
        out[36..44].copy_from_slice(&self.ack.held_ns.to_le_bytes());
        out[44..48].copy_from_slice(&self.since.to_le_bytes());
        let sum = self.checksum(out.len());
        out[..4].copy_from_slice(&sum.to_le_bytes());
        let rest = filler(self.session, self.counter, out.len() - PUSH_BYTES);
        out[PUSH_BYTES..].copy_from_slice(rest);
    }

    /// Reads a payload. `None` where any byte of it is not what was written.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let head: &[u8; PUSH_BYTES] = payload.first_chunk()?;
        let word =
            |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let long =
            |at: usize| head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let push = Self {
            run: !word(4),
            session: word(8),
            counter: word(12),
            sent_unix_ns: long(16),
            since: word(44),
            ack: Ack { heard: word(24), intended_ns: long(28), held_ns: long(36) },
        };
        let rest = &payload[PUSH_BYTES..];
        let is_whole = payload.len() <= ringgate_core::limits::PAYLOAD_BYTES_MAX
            && word(0) == push.checksum(payload.len())
            && *rest == *filler(push.session, push.counter, rest.len());
        is_whole.then_some(push)
    }

    const fn checksum(&self, len: usize) -> u32 {
        let who = (self.run as u64) << 32 | self.session as u64;
        let which = (self.counter as u64) << 32 | self.ack.heard as u64;
        let sent = mix(mix(who) ^ which) ^ self.sent_unix_ns ^ (len as u64) << 48;
        let kept = mix(mix(mix(sent) ^ self.ack.intended_ns) ^ self.ack.held_ns);
        let sum = mix(kept ^ self.since as u64);
        (sum >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back_and_no_bit_may_differ() {
        let ack = Ack { heard: 9, intended_ns: 1 << 41, held_ns: 1 << 33 };
        let push =
            Push { run: 7, session: 2, counter: 3, sent_unix_ns: 1 << 60, since: 1 << 30, ack };
        for len in [PUSH_BYTES, 49, 400, 1200] {
            let mut payload = vec![0; len];
            push.write(&mut payload);
            assert!(Push::is_claimed_by(&payload, 7) && !Push::is_claimed_by(&payload, 8));
            assert_eq!(Push::read(&payload), Some(push));
            assert_eq!(super::super::Stamp::read(&payload), None, "it is no echo");
            for bit in 0..len * 8 {
                payload[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Push::read(&payload), None, "bit {bit} of {len} bytes");
                payload[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(Push::read(&[0; PUSH_BYTES - 1]), None);
    }
}
