//! A line of an interval log, taken apart.

use std::time::Duration;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// The log's times count from here.
    Base(Duration),
    Interval {
        /// Empty where there is none.
        tag: &'a str,
        start: Duration,
        length: Duration,
        histogram: &'a str,
    },
    /// A comment, or the names of the columns.
    Nothing,
    /// The log begins here.
    Start(Duration),
}

/// Without its end. `None` where it is none of these.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let said =
        std::str::from_utf8(line).ok().and_then(|text| time(text).or_else(|| interval(text)));
    let is_nothing = || line.starts_with(b"#") || line.starts_with(b"\"StartTimestamp\"");
    said.or_else(|| is_nothing().then_some(Line::Nothing))
}

fn time(text: &str) -> Option<Line<'_>> {
    let of = |head| seconds(text.strip_prefix(head)?.split_once(' ')?.0);
    of("#[StartTime: ").map(Line::Start).or_else(|| of("#[BaseTime: ").map(Line::Base))
}

fn interval(text: &str) -> Option<Line<'_>> {
    let (tag, rest) = match text.strip_prefix("Tag=") {
        Some(tagged) => tagged.split_once(',')?,
        None => ("", text),
    };
    // Tags are shown on terminals.
    if tag.contains(char::is_control) {
        return None;
    }
    let (start, rest) = rest.split_once(',')?;
    let (length, rest) = rest.split_once(',')?;
    let (max, histogram) = rest.split_once(',')?;
    max.parse::<f64>().ok()?;
    let histogram = histogram.trim_end_matches('\r');
    Some(Line::Interval { tag, start: seconds(start)?, length: seconds(length)?, histogram })
}

/// Seconds with a fraction, of which nanoseconds count.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.')?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.len().min(9);
    let nanos = fraction[..digits].parse::<u32>().ok()? * 10_u32.pow(9 - digits as u32);
    Some(Duration::new(whole.parse().ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_writer_are_taken_apart() {
        let second = Duration::from_secs(1);
        let whole = Line::Interval {
            tag: "a tag",
            start: second,
            length: Duration::from_nanos(1_500_000_001),
            histogram: "HIST",
        };
        assert_eq!(parse(b"Tag=a tag,1.0,1.5000000019,2e1,HIST\r"), Some(whole));
        assert_eq!(parse(b"#[StartTime: 1.0 (seconds)]"), Some(Line::Start(second)));
        assert_eq!(parse(b"#[BaseTime: 1.000 x"), Some(Line::Base(second)));
        for nothing in [&b"#"[..], b"#[StartTime: 1]", b"#\xff", b"\"StartTimestamp\",\"x\""] {
            assert_eq!(parse(nothing), Some(Line::Nothing), "{nothing:?}");
        }
        for other in ["", "Tag=x", "1.0,1.0,HIST", "1,1.0,1.0,HIST", "1.0,1.,1.0,H", "1.0,1.0,x,H"]
        {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parse(b"1.0,1.0,1.0,\xff"), None);
    }
}
