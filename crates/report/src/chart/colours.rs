//! Colours for light paper and for dark: hues that stay apart for most kinds of colour blindness.

use crate::text::Append as _;

/// A colour on light paper and on dark.
pub(super) struct Colour {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

const fn colour(light: &'static str, dark: &'static str) -> Colour {
    Colour { light, dark }
}

/// How many lines can be told apart by colour.
pub const COLOURS: usize = LINES.len();

pub(super) const LINES: [Colour; 7] = [
    colour("#0063b8", "#58a6ff"),
    colour("#c2410c", "#ff9a5c"),
    colour("#00795c", "#3fcf9f"),
    colour("#8a3ffc", "#c297ff"),
    colour("#a8123e", "#ff7b93"),
    colour("#7a5c00", "#e3b341"),
    colour("#3d4852", "#b1bac4"),
];

pub(super) const DASHES: [&str; 4] = ["none", "6 4", "2 4", "10 4 2 4"];

pub(super) const PAPER: Colour = colour("#ffffff", "#0d1117");
pub(super) const INK: Colour = colour("#1f2328", "#e6edf3");
pub(super) const SOFT: Colour = colour("#59636e", "#9198a1");
pub(super) const GRID: Colour = colour("#dfe4e8", "#262c36");
pub(super) const HEAT: Colour = colour("#5b8fc4", "#3f7cc0");

/// Style rules for a page with figures: dark colours for readers who prefer them, and `k0`, `k1`
/// and so on for the keys that tables have.
pub fn style() -> String {
    let mut css = String::new();
    for (at, Colour { light, .. }) in LINES.iter().enumerate() {
        write!(css, ".k{at} {{ background: {light}; }} ");
    }
    css.push_str(&dark());
    css
}

/// The dark colours of everything that is drawn.
pub(super) fn dark() -> String {
    let mut css = String::from("@media (prefers-color-scheme: dark) {\n");
    for (name, Colour { dark, .. }) in
        [("paper", PAPER), ("ink", INK), ("soft", SOFT), ("heat", HEAT)]
    {
        write!(css, ".{name} {{ fill: {dark}; }} ");
    }
    writeln!(css, ".grid {{ stroke: {}; }}", GRID.dark);
    for (at, Colour { dark, .. }) in LINES.iter().enumerate() {
        write!(css, ".c{at} {{ stroke: {dark}; }} .f{at} {{ fill: {dark}; }} ");
        writeln!(css, ".k{at} {{ background: {dark}; }}");
    }
    css.push_str("}\n");
    css
}
