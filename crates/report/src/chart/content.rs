//! What a chart shows, before anything is drawn.

use super::axis::Axis;

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
