//! Packets of the delivery layer: what is read could have been written, and in one way only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::proto::delivery::{Frame, HEADER_BYTES_MIN, read_header};

fuzz_target!(|data: &[u8]| {
    let Some((header, mut rest)) = read_header(data) else { return };
    let words = (data.len() - rest.len()) / 4 - 1;
    assert!((1..=8).contains(&words) && data.len() >= HEADER_BYTES_MIN);
    assert!(header.history[words..].iter().all(|word| *word == 0));
    let fields = (words - 1) as u32
        | (header.acked.value() as u32) << 4
        | (header.sequence.value() as u32) << 18;
    assert_eq!(data[..4], fields.to_le_bytes());
    let known = header.acked.wrapping_sub(u64::from(data[4]));
    assert_eq!(header.news_since(known).count(), usize::from(data[4]));
    while !rest.is_empty() {
        let before = rest;
        let Some(frame) = Frame::read(&mut rest) else { return };
        let len = before.len() - rest.len();
        assert_eq!(len, frame.wire_bytes());
        let mut again = vec![0xee; len];
        assert_eq!(frame.write(&mut again), len);
        assert_eq!(again, before[..len]);
    }
});
