//! Histogram logs: any file is read or refused, with bounded memory, and what was read can be
//! written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_report::hlog;

fuzz_target!(|data: &[u8]| {
    let Ok(log) = hlog::read(data) else { return };
    for interval in log.intervals {
        let mut line = String::new();
        let written =
            hlog::write_line(&mut line, "", interval.start, interval.length, &interval.histogram);
        if written.is_err() {
            continue;
        }
        let again = hlog::read(line.as_bytes()).expect("a line of ours");
        assert_eq!(again.intervals.len(), 1);
        assert_eq!(again.intervals[0].histogram, interval.histogram);
    }
});
