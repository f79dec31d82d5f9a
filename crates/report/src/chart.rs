//! Charts: lines and heat maps over axes, as SVG for a file of its own or for a figure on a page.
//!
//! One drawing serves both. Its colours are plain attributes, which every viewer knows; dark ones
//! are style rules behind a media query, which browsers follow and other viewers pass over. The
//! file's title, its notes (where the numbers come from, and of which time) and its legend are part
//! of the picture, because a picture is handed on without what was around it.

pub mod axis;
mod colours;
mod content;
mod figure;
mod file;
mod panel;

pub use self::axis::{Axis, Scale};
pub use self::colours::{COLOURS, style};
pub use self::content::{Cell, Chart, Line, Mark, escape};
pub use self::file::{Head, file};

#[cfg(test)]
mod tests;
