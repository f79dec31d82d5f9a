//! Copies of the last known truth, as a disk may give them back: read or refused, and what was read
//! is the same after it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_fleet::copy;

fuzz_target!(|data: &[u8]| {
    if let Ok(copy) = copy::decode(data) {
        assert!(copy.truth.entries.len() <= data.len());
        let written = copy::encode(&copy.prefix, &copy.truth, copy.saved_s);
        assert_eq!(copy::decode(&written).ok(), Some(copy));
    }
});
