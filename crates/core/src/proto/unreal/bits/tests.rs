//! Bit streams against a list of single bits.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The stream, one bit after the other.
fn bits_of(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).collect()
}

fn number(bits: &[bool]) -> u64 {
    bits.iter().rev().fold(0, |number, &bit| number << 1 | u64::from(bit))
}

fn fields() -> impl Strategy<Value = Vec<(u64, usize)>> {
    vec((any::<u64>(), 0..=64_usize), 0..20)
}

proptest! {
    #[test]
    fn fields_come_back_whatever_the_buffer_held(fields in fields(), garbage in any::<u8>()) {
        let mut buf = [garbage; 200];
        let mut writer = BitWriter::new(&mut buf);
        for &(value, width) in &fields {
            writer.write(value, width);
        }
        let bits = writer.position();
        let len = writer.finish(1);
        prop_assert_eq!(terminator(&buf[..len]), Some(bits));
        let mut reader = BitReader::of_datagram(&buf[..len]).expect("terminated");
        for &(value, width) in &fields {
            prop_assert_eq!(reader.read(width), Some(value & mask(width)));
        }
        prop_assert_eq!((reader.remaining(), reader.flag()), (0, None));
        prop_assert!(buf[len..].iter().all(|&byte| byte == garbage));
    }

    #[test]
    fn a_field_is_its_bits_in_order(bytes in vec(any::<u8>(), 1..24), at in 0..192_usize, width in 0..=64_usize) {
        let bits = bits_of(&bytes);
        let mut reader = BitReader::new(&bytes);
        let expected = bits.get(at..at + width).map(number);
        let read = reader.skip(at).and_then(|()| reader.read(width));
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn storing_changes_the_field_alone(
        mut bytes in vec(any::<u8>(), 17),
        at in 0..72_usize,
        width in 0..=64_usize,
        value in any::<u64>(),
    ) {
        let mut expected = bits_of(&bytes);
        for (offset, bit) in expected[at..at + width].iter_mut().enumerate() {
            *bit = value >> offset & 1 == 1;
        }
        store(&mut bytes, at, width, value);
        prop_assert_eq!(bits_of(&bytes), expected);
        prop_assert_eq!(load(&bytes, at, width), value & mask(width));
    }

    #[test]
    fn copying_moves_bits_to_any_alignment(bytes in vec(any::<u8>(), 0..40), skip in 0..9_usize, shift in 0..9_usize) {
        let mut source = BitReader::new(&bytes);
        prop_assume!(source.skip(skip).is_some());
        let mut buf = [0xff; 64];
        let mut writer = BitWriter::new(&mut buf);
        writer.write(0, shift);
        writer.copy(source);
        let end = writer.position();
        prop_assert_eq!(&bits_of(&buf)[shift..end], &bits_of(&bytes)[skip..]);
    }
}

#[test]
fn the_highest_bit_of_the_last_byte_ends_a_stream() {
    assert_eq!(terminator(&[]), None);
    assert_eq!(terminator(&[0xff, 0]), None);
    assert_eq!(terminator(&[1]), Some(0));
    assert_eq!(terminator(&[0, 0x80]), Some(15));
    assert_eq!(terminator(&[0xff, 0x0d]), Some(11));
    assert!(BitReader::of_datagram(&[0]).is_none());
}

#[test]
fn a_game_packet_ends_twice() {
    // Six bits of content, the inner terminator, the outer one.
    let reader = BitReader::of_datagram(&[0b1100_1010]).expect("terminated");
    assert_eq!(reader.remaining(), 7);
    let inner = reader.without_terminator().expect("terminated twice");
    assert_eq!(inner.remaining(), 6);
    // The bit before the outer terminator is no terminator, or is not there.
    assert!(inner.without_terminator().is_none());
    assert!(BitReader::of_datagram(&[1]).expect("terminated").without_terminator().is_none());
}

#[test]
fn bytes_are_bytes_at_any_bit() {
    let mut buf = [0xee; 6];
    let mut writer = BitWriter::new(&mut buf);
    writer.flag(true);
    writer.bytes(&[0xa5, 0x00, 0xff]);
    assert_eq!(writer.finish(1), 4);
    assert_eq!(buf, [0x4b, 0x01, 0xfe, 0x03, 0xee, 0xee]);
    let mut reader = BitReader::of_datagram(&buf[..4]).expect("terminated");
    assert_eq!((reader.flag(), reader.byte()), (Some(true), Some(0xa5)));
    assert_eq!((reader.array(), reader.array::<1>()), (Some([0x00, 0xff]), None));
    assert_eq!(reader.position(), 25);
}
