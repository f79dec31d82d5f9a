//! `--from` and `--to`: which part of the files a command looks at.

use std::time::Duration;

use ringgate_config::values;
use ringgate_os::{clock, local, utc};
use ringgate_report::hlog::Interval;

/// A span of time with open ends.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Span {
    /// Leave out what ended before: a time of this host's day such as 12:00, a time in UTC such as
    /// "2026-01-31 20:00", or how long ago, such as 30m
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Duration>,
    /// Leave out what began later
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Duration>,
}

impl Span {
    /// Keeps the intervals of which any part lies in the span.
    pub(super) fn cut(&self, intervals: &mut Vec<Interval>) {
        let (from, to) = (self.from.unwrap_or_default(), self.to.unwrap_or(Duration::MAX));
        intervals.retain(|it| it.start.saturating_add(it.length) > from && it.start < to);
    }
}

fn moment(text: &str) -> Result<Duration, String> {
    let now = Duration::from_nanos(clock::unix_ns());
    moment_at(text, now).ok_or_else(|| {
        format!(
            "found {text:?}, expected a time of the day such as 12:00, a time in UTC such as \"2026-01-31 20:00\", or \
             how long ago, such as 30m or 12h"
        )
    })
}

fn moment_at(text: &str, now: Duration) -> Option<Duration> {
    let ago = values::duration(text).map(|ago| now.saturating_sub(ago));
    let of_day = || local::last(text, now.as_secs());
    ago.or_else(|| of_day().or_else(|| utc::parse(text)).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;

    #[test]
    fn moments_are_dates_or_how_long_ago() {
        let now = Duration::from_secs(1_700_000_000);
        assert_eq!(moment_at("2023-11-14 22:13:20", now), Some(now));
        assert_eq!(moment_at("30m", now), Some(Duration::from_secs(1_700_000_000 - 1800)));
        assert_eq!(moment_at("yesterday", now), None);
        assert!(moment("10").expect_err("no unit").starts_with("found \"10\", expected"));
    }

    #[test]
    fn an_interval_counts_if_any_part_of_it_is_in_the_span() {
        let starts = |from: Option<u64>, to: Option<u64>| {
            let mut all: Vec<_> = [0, 10, 20, 30].map(|at| interval("turn", at, &[1])).into();
            let seconds = |it: Option<u64>| it.map(Duration::from_secs);
            Span { from: seconds(from), to: seconds(to) }.cut(&mut all);
            all.iter().map(|it| it.start.as_secs()).collect::<Vec<_>>()
        };
        assert_eq!(starts(None, None), [0, 10, 20, 30]);
        assert_eq!(starts(Some(15), None), [10, 20, 30]);
        assert_eq!(starts(Some(20), Some(30)), [20]);
        assert_eq!(starts(None, Some(31)), [0, 10, 20, 30]);
        assert!(starts(Some(40), None).is_empty());
    }
}
