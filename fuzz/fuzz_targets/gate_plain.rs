//! Plain gates in any sequence of events: see `ringgate_testkit::turmoil` for what must hold.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    ringgate_testkit::turmoil::plain(data);
});
