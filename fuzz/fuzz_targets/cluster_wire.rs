//! What a member of a cluster says on its trunk: messages one after the other, each with its length
//! before it, and a datagram behind them. Whatever is read is written as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_cluster::{RECORD_BYTES_MAX, Record};
use ringgate_cluster::wire::{DATAGRAM_BYTES_MAX, Datagram, Ear, Message};

fuzz_target!(|data: &[u8]| {
    let (mut ear, mut rest) = (Ear::default(), data);
    while let Some((len, behind)) = rest.split_first() {
        let (message, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        if let Ok(read) = Message::read(message) {
            let mut written = Vec::new();
            read.write(&mut written);
            // What a later version has behind its own number, or in a message, is passed over.
            let is_open = matches!(read, Message::Begin { .. } | Message::Unknown);
            assert!(is_open || written == message);
            if let Message::Record { bytes, .. } = read {
                look_at(bytes);
            }
        }
        let _ = ear.hear(message, |name| (name.len() == 2).then_some(name.len() as u16));
        let _ = ear.datagram(message);
    }
    ear.look_again(|name| (name.len() == 3).then_some(1));
    look_at(data);
    if let Ok(datagram) = Datagram::read(data) {
        let mut out = [0; DATAGRAM_BYTES_MAX];
        let len = datagram.write_to(&mut out);
        assert_eq!(&out[..len], data);
    }
});

/// A session that another member wants us to stand by for.
fn look_at(bytes: &[u8]) {
    if let Ok(record) = Record::read_from(bytes) {
        let mut written = [0; RECORD_BYTES_MAX];
        let len = record.write_to(&mut written).expect("what was read has room");
        assert_eq!(&written[..len], bytes);
    }
}
