//! As much of bunches as a gateway looks for, and as test players and test servers read: unreliable
//! data on the control channel, and its closing.
//!
//! ```text
//! control 1 [open 1 | close 1 [reason, up to 4]] | paused 1 | reliable 1 | channel, packed
//!     | exports 1 | guids 1 | partial 1
//! [sequence 10, where reliable] [name, where open or reliable] | bits of data 13 | data
//! ```
//!
//! What is partial, exports names, or belongs to another channel is not read here either.

use super::bits::BitReader;

/// One bunch of the control channel.
#[derive(Clone, Copy, Debug)]
pub enum Bunch<'a> {
    /// Unreliable data.
    Data(BitReader<'a>),
    /// The channel is closed, and with it the connection.
    Close,
}

impl<'a> Bunch<'a> {
    /// Reads the first of some bunches; `None` where it is none of these.
    pub fn read(mut bunches: BitReader<'a>) -> Option<Self> {
        let reader = &mut bunches;
        let (mut is_open, mut is_close) = (false, false);
        if reader.flag()? {
            (is_open, is_close) = (reader.flag()?, reader.flag()?);
            if is_close {
                read_below(CLOSE_REASONS, reader)?;
            }
        }
        let _is_paused = reader.flag()?;
        let is_reliable = reader.flag()?;
        let channel = read_packed(reader)?;
        let has_more = reader.flag()? | reader.flag()? | reader.flag()?;
        if channel != CONTROL_CHANNEL || has_more {
            return None;
        }
        if is_reliable {
            reader.skip(SEQUENCE_BITS)?;
        }
        if is_open || is_reliable {
            // No control channel has a name that is spelled out.
            reader.flag()?.then_some(())?;
            read_packed(reader)?;
        }
        let bits = reader.read(LENGTH_BITS)? as usize;
        let data = reader.take(bits)?;
        Some(if is_close { Self::Close } else { Self::Data(data) })
    }
}

/// Whether a packet closes the control channel, and with it the connection, as far as that can be
/// read in a packet of a game.
///
/// It is the last that an engine says, so it is the packet's last bunch, and has no data: these are
/// its bits, but for the reason, the number and whether replication pauses. Random bits look like
/// that once in 2^45. It may also be the first bunch. Anything between would need every bunch of
/// every packet to be read, and is not seen.
#[inline]
pub fn closes_connection(payload: BitReader<'_>) -> bool {
    ends_with_close(payload) || begins_with_close(payload)
}

#[inline]
fn ends_with_close(mut payload: BitReader<'_>) -> bool {
    let last = payload.remaining().checked_sub(CLOSE_BITS).and_then(|before| {
        payload.skip(before)?;
        payload.read(CLOSE_BITS)
    });
    last.is_some_and(|bits| bits & CLOSE_MASK == CLOSE)
}

#[inline]
fn begins_with_close(payload: BitReader<'_>) -> bool {
    let Some(bunches) = behind_packet_info(payload) else { return false };
    let mut first = bunches;
    first.flag() == Some(true) && matches!(Bunch::read(bunches), Some(Bunch::Close))
}

/// What follows the packet info, which is a clock of 10 bits and, from servers, a frame time of 8;
/// `None` where it is cut off.
pub fn behind_packet_info(mut payload: BitReader<'_>) -> Option<BitReader<'_>> {
    if payload.flag()? {
        payload.skip(10)?;
        if payload.flag()? {
            payload.skip(8)?;
        }
    }
    Some(payload)
}

/// A number below `end`: bits from the lowest up, as long as the next one could still be set.
fn read_below(end: u32, reader: &mut BitReader<'_>) -> Option<u32> {
    let (mut value, mut mask) = (0, 1);
    while value + mask < end {
        if reader.flag()? {
            value |= mask;
        }
        mask <<= 1;
    }
    Some(value)
}

/// A number in groups of seven bits, the lowest first; the first bit of each byte says whether
/// another one follows.
fn read_packed(reader: &mut BitReader<'_>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..u32::BITS).step_by(7) {
        let byte = u32::from(reader.byte()?);
        value |= (byte >> 1).checked_shl(shift)?;
        if byte & 1 == 0 {
            return Some(value);
        }
    }
    None
}

const CONTROL_CHANNEL: u32 = 0;
const CLOSE_REASONS: u32 = 15;

const SEQUENCE_BITS: usize = 10;

/// A bunch that closes the control channel, as an engine writes it.
const CLOSE_BITS: usize = 60;

/// Its bits that are always the same: all but the reason at 3 to 6, the pause at 7 and the number
/// at 20 to 29.
const CLOSE_MASK: u64 = !(0b1_1111 << 3 | 0x3ff << 20) & ((1 << CLOSE_BITS) - 1);

/// Control and close, reliable, hard-coded, and the name 255 in two groups. All others are zero.
const CLOSE: u64 = 0b101 | 1 << 8 | 1 << 30 | 0x02ff << 31;
const LENGTH_BITS: usize = 13;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::proto::unreal::bits::{BitWriter, store};

    #[test]
    fn packet_info_is_passed_over_in_all_its_forms() {
        for (bits, len) in [(0, 1), (0x7ff, 12), (0x55fff, 20)] {
            let bytes = u32::to_le_bytes(bits);
            let left = |len| {
                let payload = BitReader::new(&bytes).take(len).expect("there");
                behind_packet_info(payload).map(|rest| rest.remaining())
            };
            assert_eq!(left(len + 3), Some(3), "{bits:x}");
            assert_eq!(left(len - 1), None, "{bits:x}");
        }
    }

    #[test]
    fn what_belongs_to_others_is_not_read() {
        // An unreliable bunch of channel 1, without data.
        let mut buf = [0; 8];
        let mut out = BitWriter::new(&mut buf);
        out.write(0, 3);
        out.write(1 << 1, 8);
        out.write(0, 3 + 13);
        assert!(Bunch::read(BitReader::new(&buf).take(27).expect("written")).is_none());
        // A partial one of the control channel.
        buf = [0; 8];
        store(&mut buf, 13, 1, 1);
        assert!(Bunch::read(BitReader::new(&buf).take(40).expect("there")).is_none());
    }

    proptest! {
        #[test]
        fn no_bits_are_too_strange(bytes in vec(any::<u8>(), 0..64)) {
            let _ = Bunch::read(BitReader::new(&bytes));
            let _ = closes_connection(BitReader::new(&bytes));
        }

        #[test]
        fn packed_numbers_come_back(value: u32) {
            let mut buf = [0; 8];
            let mut out = BitWriter::new(&mut buf);
            let mut rest = value;
            while rest > 0x7f {
                out.write(u64::from(rest & 0x7f) << 1 | 1, 8);
                rest >>= 7;
            }
            out.write(u64::from(rest) << 1, 8);
            prop_assert_eq!(read_packed(&mut BitReader::new(&buf)), Some(value));
        }
    }
}
