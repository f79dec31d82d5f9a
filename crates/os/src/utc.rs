//! Seconds of the Unix epoch as people read them.

/// `2023-11-14 22:13:20 UTC`, in the Gregorian calendar.
pub fn date(unix_s: u64) -> String {
    let (day, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The second that a date of [`date`] stands for. `T` may stand between day and time, `Z` behind
/// both, and the time or its seconds may be missing.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(" UTC").trim_end_matches('Z');
    let (day, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let [year, month, day] = numbers(day, '-')?[..] else { return None };
    let (hour, minute, second) = match numbers(time, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let days = days(year, month, day).filter(|days| civil(*days) == (year, month, day))?;
    (hour < 24 && minute < 60 && second < 60)
        .then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    let number = |part: &str| {
        let is_number = matches!(part.len(), 1..=4) && part.bytes().all(|it| it.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    };
    text.split(between).map(number).collect()
}

/// The other way around than [`civil`]. What is no day of the calendar is some other day.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    days.checked_sub(719_469)
}

/// `20231114T221320Z`, for file names.
pub fn stamp(unix_s: u64) -> String {
    date(unix_s).replace(['-', ':'], "").replacen(' ', "T", 1).replace(" UTC", "Z")
}

/// A length of time in its largest fitting unit: exact up to ten minutes, rounded down beyond.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..600 => format!("{seconds} s"),
        600..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Year, month and day from days since 1970-01-01. Years are counted from March, so that the leap
/// day is their last and months follow one formula; a calendar cycle has 400 years or 146,097 days,
/// and 1970 began 719,468 days into the first.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * cycle + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (1_709_164_799, "2024-02-28 23:59:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(unix_s), text);
            assert_eq!(parse(text), Some(unix_s));
        }
    }

    #[test]
    fn dates_are_read_with_and_without_their_ends() {
        for text in [
            "2023-11-14 22:13:20",
            "2023-11-14T22:13:20Z",
            "2023-11-14T22:13:20",
            "2023-11-14 22:13:20 UTC",
        ] {
            assert_eq!(parse(text), Some(1_700_000_000), "{text}");
        }
        assert_eq!(parse("2023-11-14 22:13"), Some(1_699_999_980));
        assert_eq!(parse("2023-11-14"), Some(1_699_920_000));
        for text in [
            "",
            "2023",
            "2023-02-29",
            "2023-13-01",
            "2023-00-01",
            "2023-01-00",
            "1969-12-31",
            "0-1-1",
            "2023-11-14 24:00",
            "2023-11-14 22",
            "2023-11-14 22:60",
            "2023-11-14 +2:10",
            "2023-11-14 22:13:20.5",
            "99999-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn stamps_sort_like_the_seconds_they_stand_for() {
        assert_eq!(stamp(1_700_000_000), "20231114T221320Z");
        assert!(stamp(1_700_000_000) < stamp(1_700_000_001));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = civil(0);
        for day in 1..200_000 {
            let (year, month, date) = civil(day);
            let follows = match (year - before.0, month as i64 - before.1 as i64) {
                (0, 0) => date == before.2 + 1,
                (0, 1) | (1, -11) => date == 1 && before.2 >= 28,
                _ => false,
            };
            assert!(follows, "{before:?} then {year}-{month}-{date}");
            before = (year, month, date);
        }
    }

    #[test]
    fn the_last_second_there_is_has_a_date() {
        assert!(date(u64::MAX).ends_with(" UTC"));
    }

    #[test]
    fn spans_use_one_unit() {
        let texts = [599, 600, 7199, 7200, 172_800].map(span);
        assert_eq!(texts, ["599 s", "10 min", "119 min", "2 h", "2 days"]);
    }
}
