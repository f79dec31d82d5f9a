//! A trunk's datagram from outside: a header in clear, which says under which key the rest opens,
//! the sealed body, and the tag.

use std::fmt;

/// Bytes in clear before the body. All of them are authenticated.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the tag behind the body.
pub const TAG_BYTES: usize = ringgate_core::limits::TAG_BYTES;

/// The longest datagram that every path must carry: what QUIC asks for, too.
pub const PATH_BYTES_MIN: usize = 1200;

/// The longest datagram that is ever sent: fits into a frame of 9,000 bytes, with IPv6 and options.
pub const PATH_BYTES_MAX: usize = 8900;

/// The first byte of each datagram of this version.
const FORMAT: u8 = 0xd1;

/// What stands in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The worker of the gateway.
    pub lane: u8,
    /// The lowest bits of the number of the sender's key.
    pub epoch: u16,
    /// Which trunk: the gateway's choice, in its welcome.
    pub trunk: u32,
    /// Never used twice in one direction of a lane.
    pub sequence: u64,
}

impl Header {
    /// The bytes before the body.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = FORMAT;
        bytes[1] = self.lane;
        bytes[2..4].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.trunk.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// Reads the header of a datagram that is long enough for one, a body and a tag.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (bytes, rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let is_one = rest.len() > TAG_BYTES && bytes[0] == FORMAT;
        is_one.then(|| Self {
            lane: bytes[1],
            epoch: u16::from_le_bytes([bytes[2], bytes[3]]),
            trunk: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            sequence: u64::from_le_bytes(*bytes[8..].first_chunk().expect("eight are left")),
        })
    }
}

ringgate_core::named! {
    /// Why a datagram, or something in one, went no further.
    pub enum Refusal;
    /// It is no datagram of a trunk.
    Foreign = "foreign",
    /// It is of another trunk or another lane.
    Elsewhere = "elsewhere",
    /// Its key is not one that is in use.
    Epoch = "epoch",
    /// It was accepted before.
    Duplicate = "duplicate",
    /// It is older than the replay window reaches.
    TooOld = "too_old",
    /// Its tag does not verify.
    Forged = "forged",
    /// It is authentic, and what is in it breaks the format.
    Malformed = "malformed",
    /// A record that came before what announces it, and too many others wait already.
    Early = "early",
    /// A record of a session or a link that is over, or was never announced.
    Over = "over",
    /// A record that lacked a piece when a later one needed its place.
    Incomplete = "incomplete",
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each refusal was pronounced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

ringgate_core::carried_alone!(Refusals);

impl Refusals {
    /// How often this one was.
    pub const fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize]
    }

    pub(crate) const fn count(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_what_is_none_is_refused() {
        let header = Header { lane: 7, epoch: 0xabcd, trunk: 0x1234_5678, sequence: u64::MAX - 1 };
        let mut datagram = [0; HEADER_BYTES + TAG_BYTES + 1];
        datagram[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        assert_eq!(Header::read(&datagram), Some(header));
        for len in 0..datagram.len() {
            assert_eq!(Header::read(&datagram[..len]), None, "{len} bytes");
        }
        datagram[0] ^= 1;
        assert_eq!(Header::read(&datagram), None);
    }

    #[test]
    fn each_refusal_has_its_own_count() {
        let mut refusals = Refusals::default();
        for (times, refusal) in Refusal::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| refusals.count(refusal));
        }
        for (times, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusals.of(refusal), times as u64, "{refusal}");
        }
    }
}
