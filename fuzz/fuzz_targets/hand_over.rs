//! A predecessor's streams with any records in them: see `ringgate_testkit::turmoil::streams`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    ringgate_testkit::turmoil::streams(data);
});
