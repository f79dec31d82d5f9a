//! What one gateway of a cluster gives another: sessions to stand by for. Whatever is read is
//! written as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_cluster::{RECORD_BYTES_MAX, Record};

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = Record::read_from(data) {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let len = record.write_to(&mut bytes).expect("what is read can be written");
        assert_eq!(&bytes[..len], data);
    }
});
