//! Numbers as people read them.

/// A time with a fitting unit and three digits.
pub fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => three(value / 1e3, "µs"),
        1_000_000..1_000_000_000 => three(value / 1e6, "ms"),
        _ => three(value / 1e9, "s"),
    }
}

fn three(value: f64, unit: &str) -> String {
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// A count with its thousands apart.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|digit| *digit as char));
    }
    text
}

/// A share as a percentage; few is not shown as none.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        percent if percent < 0.001 => "< 0.001 %".into(),
        percent => format!("{percent:.3} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        let times = [0, 999, 1_500, 15_550, 150_000, 2_100_000, 60_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.50 µs", "15.6 µs", "150 µs", "2.10 ms", "60.0 s"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 1e-6, 0.5].map(percent), ["0 %", "< 0.001 %", "50.000 %"]);
    }
}
