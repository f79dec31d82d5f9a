//! Numbers and tables as people read them.

use std::fmt;

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

/// `1 ms`: a time without the zeros that a round one does not need.
pub fn round_time(ns: u64) -> String {
    time(ns).replace(".00 ", " ").replace(".0 ", " ")
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

/// A number of bytes with a fitting unit and three digits.
pub fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => three(value / 1e3, "kB"),
        1_000_000..1_000_000_000 => three(value / 1e6, "MB"),
        _ => three(value / 1e9, "GB"),
    }
}

/// A share as a percentage; few is not shown as none.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        percent if percent < 0.001 => "< 0.001 %".into(),
        percent => format!("{percent:.3} %"),
    }
}

/// In scope, it lets `write!` and `writeln!` append to a text. That cannot fail, so there is no
/// result to look at.
pub trait Append {
    /// Appends.
    fn write_fmt(&mut self, arguments: fmt::Arguments<'_>);
}

impl Append for String {
    fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) {
        fmt::Write::write_fmt(self, arguments).expect("writing to a string cannot fail");
    }
}

/// Rows whose columns line up.
#[derive(Clone, Debug)]
pub struct Table {
    /// Of each column, whether its cells are numbers, which stand to the right.
    numeric: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings. One that ends in a colon, which is not shown, stands above
    /// numbers: `listener, sessions:, state`.
    pub fn new(head: &str) -> Self {
        let names = head.split(", ").map(|name| name.trim_end_matches(':').to_owned()).collect();
        let numeric = head.split(", ").map(|name| name.ends_with(':')).collect();
        Self { numeric, rows: vec![names] }
    }

    /// Appends a row, which has a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.numeric.len(), "a cell for each column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.numeric.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, is_number), width) in row.iter().zip(&self.numeric).zip(&widths) {
                let gap = if line.is_empty() { "" } else { "  " };
                if *is_number {
                    write!(line, "{gap}{cell:>width$}");
                } else {
                    write!(line, "{gap}{cell:<width$}");
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        let times = [0, 999, 1_500, 15_550, 150_000, 2_100_000, 60_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.50 µs", "15.6 µs", "150 µs", "2.10 ms", "60.0 s"]);
        assert_eq!([1_000, 1_500, 20_000_000].map(round_time), ["1 µs", "1.50 µs", "20 ms"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 1e-6, 0.5].map(percent), ["0 %", "< 0.001 %", "50.000 %"]);
    }

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new("name, µs:, note");
        table.row(["queue".into(), "1000".into(), "é".into()]);
        table.row(["up".into(), "7".into(), String::new()]);
        assert_eq!(table.to_string(), "name     µs  note\nqueue  1000  é\nup        7\n");
        assert_eq!([0, 999, 1_500, 2_000_000].map(bytes), ["0 B", "999 B", "1.50 kB", "2.00 MB"]);
    }
}
