//! What fills a terminal: styled lines, curves of blocks, and the bytes that show them.

use ringgate_report::text::Append as _;

/// One line of a screen, in one style.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    text: String,
    style: Style,
}

/// How a line's letters look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    Alarm,
    Bold,
    Curve,
    Dim,
    Good,
    #[default]
    Plain,
    Warning,
    Wrong,
}

impl Line {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// The bytes that put the lines on the screen in place of what was there. What is wider than the
/// terminal is cut off, and control characters, which a name from elsewhere may have, are left out.
pub(super) fn shown(lines: &[Line], columns: usize) -> String {
    let mut bytes = String::from(HOME);
    for (at, line) in lines.iter().enumerate() {
        let end = if at == 0 { "" } else { "\r\n" };
        let text: String = line.text.chars().filter(|it| !it.is_control()).take(columns).collect();
        let (begin, reset) = (line.style.sequence(), Style::Plain.sequence());
        write!(bytes, "{end}{begin}{text}{reset}{CLEAR_LINE}");
    }
    bytes + CLEAR_BELOW
}

/// The newest values as columns of blocks, from the highest row to the lowest, `height` rows of at
/// most `width` columns.
pub(super) fn curve(values: &[u64], width: usize, height: usize) -> Vec<String> {
    let newest = &values[values.len().saturating_sub(width)..];
    let most = newest.iter().copied().max().unwrap_or(0).max(1);
    let steps = (height * (BLOCKS.len() - 1)) as u128;
    let filled = |value: &u64| (u128::from(*value) * steps / u128::from(most)) as usize;
    let row = |row: usize| {
        let below = row * (BLOCKS.len() - 1);
        let block = |value| BLOCKS[filled(value).saturating_sub(below).min(BLOCKS.len() - 1)];
        newest.iter().map(block).collect()
    };
    (0..height).rev().map(row).collect()
}

impl Style {
    /// The sequence that chooses it, as ECMA-48 numbers them.
    const fn sequence(self) -> &'static str {
        match self {
            Self::Alarm => "\x1b[1;31m",
            Self::Bold => "\x1b[1m",
            Self::Curve => "\x1b[36m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[1;32m",
            Self::Plain => "\x1b[0m",
            Self::Warning => "\x1b[1;33m",
            Self::Wrong => "\x1b[31m",
        }
    }
}

/// A column's lowest eighths.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_grows_from_below_and_keeps_the_newest() {
        assert_eq!(curve(&[99, 0, 1, 2, 4], 4, 2), ["  ▄█".replace('▄', " "), " ▄██".into()]);
        assert_eq!(curve(&[], 4, 2), ["", ""]);
        assert_eq!(curve(&[u64::MAX, 0], 4, 1), ["█ "]);
    }

    #[test]
    fn what_is_shown_fits_and_controls_nothing() {
        let lines = [Line::new("ab\x1b[2Jcd", Style::Plain), Line::new("wide", Style::Good)];
        let bytes = shown(&lines, 3);
        assert!(bytes.contains("ab[") && !bytes.contains("[2J"), "{bytes:?}");
        assert!(bytes.contains("wid\x1b[0m"), "{bytes:?}");
    }
}
