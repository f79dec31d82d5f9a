//! The run's latencies in time: an interval log with one line for each stage and interval.

use std::io::{self, Write};
use std::time::Duration;

use ringgate_os::host;
use ringgate_report::hlog;

use crate::measure::tally::{Stage, Tally};

/// Writes a log.
#[derive(Debug)]
pub struct Log<W> {
    out: W,
}

impl<W: Write> Log<W> {
    /// Begins a log whose times count from `start_unix_ns`.
    pub fn begin(mut out: W, start_unix_ns: u64, comment: &str) -> io::Result<Self> {
        let (version, host) = (env!("CARGO_PKG_VERSION"), host::name());
        let writer = format!("ringgate-loadgen {version} on {host}: {comment}");
        out.write_all(hlog::head(Duration::from_nanos(start_unix_ns), &writer).as_bytes())?;
        Ok(Self { out })
    }

    /// Writes what an interval has gathered, a line for each stage that has anything.
    pub fn write(&mut self, start: Duration, length: Duration, tally: &Tally) -> io::Result<()> {
        let mut lines = String::new();
        for stage in Stage::ALL.iter().filter(|stage| !tally.of(**stage).is_empty()) {
            hlog::write_line(&mut lines, stage.tag(), start, length, tally.of(*stage))?;
        }
        self.out.write_all(lines.as_bytes())
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interval_is_there_with_its_tag() {
        let mut log =
            Log::begin(Vec::new(), 1_700_000_000_500_000_000, "test").expect("a Vec takes it");
        for interval in 0..3_u64 {
            let mut tally = Tally::new();
            tally.record(Stage::RoundTrip, 1000 * (interval + 1));
            tally.record(Stage::Handshake, 5_000_000);
            log.write(Duration::from_secs(interval), Duration::from_secs(1), &tally)
                .expect("written");
        }
        let read = hlog::read(&log.finish().expect("flushed")).expect("valid");
        assert_eq!(read.intervals.len(), 6);
        let last = &read.intervals[4];
        assert_eq!(last.tag, "round_trip:both");
        assert_eq!(last.start, Duration::from_millis(1_700_000_002_500));
        assert!((3000..3005).contains(&last.histogram.max()));
    }
}
