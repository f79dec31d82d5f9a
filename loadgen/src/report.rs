//! The HTML report of one or more runs: one file, no network, charts as inline SVG, light and dark
//! by the reader's choice.
//!
//! Runs that are compared share every axis and keep their colour through the whole page. Charts
//! have few marks, named axes with units and a legend; exact figures stand in tables below them.

pub mod books;
pub mod check;
pub mod curve;
mod figures;
mod page;
pub mod record;
pub mod require;
pub mod summary;

pub use self::page::html;

use crate::report::curve::Curve;
use crate::report::record::Record;

/// Whether a path is a ladder's directory or its JSON file.
pub fn is_curve(path: &std::path::Path) -> bool {
    path.is_dir() && path.join(CURVE_FILE).exists()
        || path.file_name().is_some_and(|name| name == CURVE_FILE)
}

/// Reads a ladder from its directory, or from its JSON file.
pub fn read_curve(path: &std::path::Path) -> Result<Curve, String> {
    let file = if path.is_dir() { path.join(CURVE_FILE) } else { path.to_owned() };
    let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|why| fail(&why))?;
    serde_json::from_str(&text).map_err(|why| fail(&why))
}

/// What a ladder is written to.
pub const CURVE_FILE: &str = "ladder.json";

/// Reads a record from a run's directory, or from its JSON file.
pub fn read(path: &std::path::Path) -> Result<Record, String> {
    let file = if path.is_dir() { path.join("run.json") } else { path.to_owned() };
    let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|why| fail(&why))?;
    serde_json::from_str(&text).map_err(|why| fail(&why))
}
