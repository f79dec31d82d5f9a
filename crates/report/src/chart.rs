//! Charts: lines and heat maps over axes, as SVG for a file of its own or for a figure on a page.
//!
//! One drawing serves both. Its colours are plain attributes, which every viewer knows; dark ones
//! are style rules behind a media query, which browsers follow and other viewers pass over. The
//! file's title, its notes (where the numbers come from, and of which time) and its legend are part
//! of the picture, because a picture is handed on without what was around it.

pub mod axis;
mod colours;
mod figure;
mod file;
mod panel;

pub use self::axis::{Axis, Scale};
pub use self::colours::{COLOURS, style};
pub use self::file::{Head, file};

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// How often values were where, behind the lines.
    pub heat: Vec<Cell>,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// What stands out on the horizontal axis.
    pub marks: Vec<Mark>,
}

/// A line with its name.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Which of the colours.
    pub colour: usize,
    /// Which of the kinds of dashes: 0 is none.
    pub dash: usize,
    /// Points, left to right.
    pub points: Vec<(f64, f64)>,
}

/// A place on the horizontal axis that has a name.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What is there.
    pub name: String,
    /// Which of the colours.
    pub colour: usize,
    /// Where.
    pub x: f64,
}

/// A field of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// From where to where, on the horizontal axis.
    pub x: (f64, f64),
    /// From where to where, on the vertical axis.
    pub y: (f64, f64),
    /// How strong, from 0 to 1.
    pub strength: f64,
}

impl Chart {
    /// Every line's values, to choose an axis by.
    pub fn values(lines: &[Line]) -> impl Iterator<Item = f64> + Clone + '_ {
        lines.iter().flat_map(|line| line.points.iter().map(|point| point.1))
    }
}

/// Text that SVG and HTML may contain.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
