//! What players say on the control channel, as an engine writes it: data, and that the connection
//! is closed. The core's [`bunch`](ringgate_core::proto::unreal::bunch) reads both.

use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};

/// The longest data of one bunch, in whole bytes: what an engine leaves for it in a packet.
pub const DATA_BYTES_MAX: usize = 952;

/// The number that a side's first reliable bunch on any channel has, which follows from its first
/// packet's. This is why packet sequences cannot be shifted at will between the two sides of a
/// relay.
pub const fn first_reliable_bunch(first_packet: PacketSeq) -> u16 {
    (first_packet.value() as u16 & (RELIABLE_RANGE - 1)) + 1
}

/// Writes data as an unreliable bunch of the control channel.
///
/// # Panics
/// Where the buffer is too short, or the data longer than [`DATA_BYTES_MAX`].
pub fn write_data(data: &[u8], out: &mut BitWriter<'_>) {
    assert!(data.len() <= DATA_BYTES_MAX, "no engine puts that much into a bunch");
    let (is_control, is_paused, is_reliable) = (false, false, false);
    out.flag(is_control);
    out.flag(is_paused);
    out.flag(is_reliable);
    out.write(CONTROL_CHANNEL, 8);
    out.write(NOTHING_MORE, 3);
    out.write(8 * data.len() as u64, LENGTH_BITS);
    out.copy(BitReader::new(data));
}

/// Writes the bunch that closes the control channel. It is reliable, and has this number among the
/// channel's.
///
/// # Panics
/// Where the buffer is too short.
pub fn write_close(sequence: u16, out: &mut BitWriter<'_>) {
    let (is_control, is_open, is_close) = (true, false, true);
    out.flag(is_control);
    out.flag(is_open);
    out.flag(is_close);
    out.write(0, CLOSE_REASON_ZERO_BITS);
    let (is_paused, is_reliable) = (false, true);
    out.flag(is_paused);
    out.flag(is_reliable);
    out.write(CONTROL_CHANNEL, 8);
    out.write(NOTHING_MORE, 3);
    out.write(sequence.into(), SEQUENCE_BITS);
    let is_hardcoded = true;
    out.flag(is_hardcoded);
    out.write(NAME_CONTROL, 16);
    out.write(0, LENGTH_BITS);
}

/// Reliable bunches are numbered modulo this.
const RELIABLE_RANGE: u16 = 1024;

/// Channel 0, as one group of seven bits and no other.
const CONTROL_CHANNEL: u64 = 0;

/// The name 255, as two groups of seven bits.
const NAME_CONTROL: u64 = 0x02ff;

/// Reason 0 takes as many bits as there are masks below the 15 reasons.
const CLOSE_REASON_ZERO_BITS: usize = 4;
const SEQUENCE_BITS: usize = 10;
const LENGTH_BITS: usize = 13;

/// No exported names, no referred ones, not a part of something larger.
const NOTHING_MORE: u64 = 0;

const _: () = assert!(8 * DATA_BYTES_MAX < 1 << LENGTH_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_core::proto::unreal::bits::store;
    use ringgate_core::proto::unreal::bunch::{Bunch, closes_connection};

    fn bytes_of(mut data: BitReader<'_>) -> Vec<u8> {
        std::iter::from_fn(|| data.byte()).collect()
    }

    #[test]
    fn data_of_any_length_comes_back_at_any_bit() {
        for (len, at) in [(0, 0), (1, 3), (100, 1), (DATA_BYTES_MAX, 7)] {
            let data: Vec<_> = (0..len).map(|byte| byte as u8).collect();
            let mut buf = [0xff; DATA_BYTES_MAX + 8];
            let mut out = BitWriter::new(&mut buf);
            out.write(0, at);
            write_data(&data, &mut out);
            assert_eq!(out.position(), at + 27 + 8 * len);
            let end = out.position();
            let mut reader = BitReader::new(&buf).take(end).expect("written");
            reader.skip(at).expect("written");
            let Some(Bunch::Data(read)) = Bunch::read(reader) else { panic!("{len} at {at}") };
            assert_eq!(bytes_of(read), data);
        }
    }

    #[test]
    fn a_close_is_told_from_data_and_is_as_long_as_an_engine_writes_it() {
        let mut buf = [0; 16];
        let mut out = BitWriter::new(&mut buf);
        write_close(1023, &mut out);
        // 3 + 4 + 2 + 8 + 3 + 10 + (1 + 16) + 13.
        assert_eq!(out.position(), 60);
        let reader = BitReader::new(&buf).take(60).expect("written");
        assert!(matches!(Bunch::read(reader), Some(Bunch::Close)));
        let short = BitReader::new(&buf).take(59).expect("written");
        assert!(Bunch::read(short).is_none());
    }

    /// A packet's bits with these bunches, behind packet info of that many bits.
    fn payload(info_bits: usize, bunches: &[fn(&mut BitWriter<'_>)]) -> ([u8; 256], usize) {
        let mut buf = [0; 256];
        let mut out = BitWriter::new(&mut buf);
        let info = match info_bits {
            1 => 0,
            12 => 0x7ff,
            _ => 0x55fff,
        };
        out.write(info, info_bits);
        for bunch in bunches {
            bunch(&mut out);
        }
        let bits = out.position();
        (buf, bits)
    }

    fn is_close(buf: &[u8], bits: usize) -> bool {
        closes_connection(BitReader::new(buf).take(bits).expect("written"))
    }

    const CLOSE: fn(&mut BitWriter<'_>) = |out| write_close(700, out);
    const DATA: fn(&mut BitWriter<'_>) = |out| write_data(&[0xff; 40], out);

    #[test]
    fn a_close_is_found_alone_first_and_last() {
        for info_bits in [1, 12, 20] {
            let is_found = |bunches: &[fn(&mut BitWriter<'_>)]| {
                let (buf, bits) = payload(info_bits, bunches);
                is_close(&buf, bits)
            };
            assert!(is_found(&[CLOSE]));
            assert!(is_found(&[DATA, CLOSE]));
            assert!(is_found(&[CLOSE, DATA]));
            assert!(is_found(&[DATA, DATA, CLOSE]));
            assert!(!is_found(&[DATA]));
            assert!(!is_found(&[DATA, DATA]));
            assert!(!is_found(&[]));
        }
    }

    #[test]
    fn what_is_not_always_the_same_in_a_close_may_be_anything() {
        // Behind data, it is found by its own bits alone.
        let (buf, bits) = payload(1, &[DATA, |out| write_close(0, out)]);
        let begin = bits - 60;
        for at in begin..bits {
            let mut changed = buf;
            store(&mut changed, at, 1, u64::from(buf[at / 8] >> (at % 8) & 1 == 0));
            let is_free = matches!(at - begin, 3..=7 | 20..=29);
            assert_eq!(is_close(&changed, bits), is_free, "bit {}", at - begin);
        }
    }

    #[test]
    fn a_sides_first_reliable_bunch_follows_from_its_first_packet() {
        let first = |packet| first_reliable_bunch(PacketSeq::new(packet));
        assert_eq!([first(4368), first(4882)], [272 + 1, 786 + 1]);
        assert_eq!([first(0), first(0x3fff)], [1, RELIABLE_RANGE]);
    }
}
