//! Values of arguments, as the command line writes them.

use std::time::Duration;

use ringgate_io::Choice;

/// A number, decimal or hexadecimal.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number, decimal or 0x…".into())
}

/// A span of time like `10s`, `500ms` or `10m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    // A condition has neither: `p99<2m` is a slip.
    let long = [("m", 60e9), ("h", 3600e9)];
    let long = long.iter().find_map(|(unit, ns)| {
        let count = text.strip_suffix(unit)?.parse::<u32>().ok()?;
        Some(f64::from(count) * ns)
    });
    let ns = long.or_else(|| crate::report::require::nanoseconds(text)).filter(|ns| *ns < 1e18);
    ns.map(|ns| Duration::from_nanos(ns as u64)).ok_or_else(|| "a time like 10s or 500ms".into())
}

/// A span of whole seconds like `10s`, or a number of them.
pub(super) fn seconds(text: &str) -> Result<i32, String> {
    let is_whole = |span: &Duration| span.subsec_nanos() == 0;
    let spelt = || duration(text).ok().filter(is_whole).and_then(|it| it.as_secs().try_into().ok());
    text.parse().ok().or_else(spelt).ok_or_else(|| "whole seconds, like 10s".into())
}

/// A driver's name.
pub(super) fn driver(text: &str) -> Result<Choice, String> {
    match text {
        "auto" => Ok(Choice::Auto),
        "mmsg" => Ok(Choice::Mmsg),
        "uring" => Ok(Choice::Uring),
        _ => Err("auto, mmsg or uring".into()),
    }
}

/// Sizes of payloads.
pub(super) fn range(text: &str) -> Result<(u16, u16), String> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) => Ok((min, max)),
        _ => Err("a number of bytes, or a range like 40-120".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_may_have_minutes_and_hours() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("1h"), Ok(Duration::from_hours(1)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("2m"), Ok(120));
        for text in ["", "m", "-1m", "1.5m", "10", "4294967295h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
