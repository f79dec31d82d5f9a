//! What is written comes back, and what comes back could have been written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn frame(choice: u8, channel: u8, sequence: u16, bytes: &[u8]) -> Frame<'_> {
    match choice & 3 {
        0 if choice & 16 != 0 => {
            Frame::Farewell { reason: choice, text: &bytes[..bytes.len().min(FAREWELL_BYTES_MAX)] }
        }
        0 => Frame::Ping,
        1 => Frame::Reliable(Part {
            channel,
            sequence: PartSeq::new(sequence.into()),
            is_first: choice & 4 != 0,
            is_last: choice & 8 != 0,
            bytes,
        }),
        2 => Frame::Sequenced { channel, bytes },
        _ => Frame::Unreliable { channel, bytes },
    }
}

fn any_frame() -> impl Strategy<Value = (u8, u8, u16, Vec<u8>)> {
    let len = prop_oneof![1..4_usize, 126..131_usize, 1..1200_usize];
    let bytes = len.prop_flat_map(|len| vec(any::<u8>(), len));
    (any::<u8>(), prop_oneof![Just(0), any::<u8>()], any::<u16>(), bytes)
}

/// All frames of a packet, unless one of them is none.
fn read_all(mut rest: &[u8]) -> Option<Vec<Frame<'_>>> {
    let mut frames = Vec::new();
    while !rest.is_empty() {
        frames.push(Frame::read(&mut rest)?);
    }
    Some(frames)
}

fn write_all(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = vec![0xee; frames.iter().map(Frame::wire_bytes).sum()];
    let mut at = 0;
    for frame in frames {
        let len = frame.write(&mut out[at..]);
        assert_eq!(len, frame.wire_bytes(), "{frame:?}");
        at += len;
    }
    assert_eq!(at, out.len());
    out
}

proptest! {
    #[test]
    fn frames_come_back(frames in vec(any_frame(), 0..8)) {
        let frames: Vec<_> =
            frames.iter().map(|(choice, channel, seq, b)| frame(*choice, *channel, *seq, b)).collect();
        let bytes = write_all(&frames);
        let read = read_all(&bytes);
        prop_assert_eq!(read.as_deref(), Some(&frames[..]));
        // Cut off anywhere, what is read is a beginning, or nothing.
        for len in 0..bytes.len() {
            if let Some(fewer) = read_all(&bytes[..len]) {
                prop_assert_eq!(&fewer[..], &frames[..fewer.len()]);
            }
        }
    }

    #[test]
    fn there_is_one_way_to_write_what_is_read(junk in vec(any::<u8>(), 0..64)) {
        if let Some(frames) = read_all(&junk) {
            prop_assert_eq!(write_all(&frames), junk);
        }
    }

    #[test]
    fn headers_come_back(first in any::<u64>(), other in any::<u64>(), packets in 0..256_u64) {
        let mut end = Notify::starting_at(PacketSeq::new(first), PacketSeq::new(other));
        let before = PacketSeq::new(first).wrapping_sub(1);
        for step in 0..packets {
            let sequence = PacketSeq::new(other).wrapping_add(step);
            let header = Header { sequence, acked: before, history: [0; HISTORY_WORDS_MAX] };
            end.handle_header(&header, step % 3 > 0, |_, _| ()).expect("it is newer");
        }
        let mut out = [0xee; HEADER_BYTES_MAX];
        let len = write_header(&end, &mut out);
        prop_assert_eq!(len, 4 + 4 * packets.div_ceil(32).max(1) as usize);
        let (header, rest) = read_header(&out[..len]).expect("a header");
        prop_assert_eq!((header.sequence, header.acked), (end.next(), end.latest()));
        prop_assert_eq!(&header.history[..end.history().len()], end.history());
        prop_assert!(rest.is_empty() && read_header(&out[..len - 1]).is_none());
    }
}

#[test]
fn the_examples_of_the_document() {
    let mut end = Notify::starting_at(PacketSeq::new(300), PacketSeq::new(1000));
    let acked = PacketSeq::new(299);
    for sequence in [1000, 1002] {
        let sequence = PacketSeq::new(sequence);
        let header = Header { sequence, acked, history: [0; HISTORY_WORDS_MAX] };
        end.handle_header(&header, true, |_, _| ()).expect("it is newer");
    }
    let mut packet = [0; 64];
    let mut len = write_header(&end, &mut packet);
    assert_eq!(packet[..len], [0xa0, 0x3e, 0xb0, 0x04, 0x05, 0, 0, 0]);
    let part = Part {
        channel: 2,
        sequence: PartSeq::new(771),
        is_first: true,
        is_last: false,
        bytes: b"map",
    };
    for frame in [
        Frame::Reliable(part),
        Frame::Sequenced { channel: 0, bytes: b"state" },
        Frame::Unreliable { channel: 9, bytes: b"!" },
        Frame::Ping,
    ] {
        len += frame.write(&mut packet[len..]);
    }
    let frames = b"\xd5\x02\x03\x03map\x02\x05state\x13\x09\x01!\x00";
    assert_eq!(packet[HEADER_BYTES_MIN..len], *frames);
}

#[test]
fn what_nobody_writes_is_refused() {
    for (bytes, why) in [
        (&[0x04_u8][..], "a ping with marks"),
        (&[0x20], "a ping with a reserved bit"),
        (&[0x21, 0, 1, 7], "a reserved bit"),
        (&[0x06, 1, 7], "first and last are for reliable channels"),
        (&[0x42, 1, 7], "numbers are for reliable channels"),
        (&[0x12, 0, 1, 7], "channel 0 is not written"),
        (&[0x02, 0], "an empty message"),
        (&[0x02, 0x80, 1, 7], "a length that is longer than it need be"),
        (&[0x02, 2, 7], "the end comes too early"),
        (&[0x11], "no channel"),
        (&[0x01], "no number"),
        (&[0x01, 0], "no length"),
        (&[0x02, 0x81], "half a length"),
    ] {
        assert_eq!(Frame::read(&mut &bytes[..]), None, "{why}");
    }
    let nine_words = [8_u8, 0, 0, 0].repeat(10);
    assert_eq!(read_header(&nine_words), None);
}

#[test]
fn the_longest_part_fits_behind_the_longest_header() {
    let len = part_bytes_max(PAYLOAD_BYTES_MAX);
    assert_eq!((len, HEADER_BYTES_MAX + part_bytes(9, len)), (1159, PAYLOAD_BYTES_MAX));
    assert!(MESSAGE_BYTES_MAX.div_ceil(len) < 256, "a message fits into a window");
}
