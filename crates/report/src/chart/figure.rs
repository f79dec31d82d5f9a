//! A chart as a figure of a page. The page has [`super::style`] in its style sheet.

use super::colours::{DASHES, LINES};
use super::content::{Chart, escape};
use super::panel::{Panel, draw};
use crate::text::Append as _;

impl Chart {
    /// The chart with its caption and legend, in HTML.
    pub fn figure(&self) -> String {
        let panel = Panel { width: 720.0, height: 300.0 };
        let Panel { width, height } = panel;
        let title = escape(&self.title);
        let mut html = format!(
            "<figure><figcaption>{title}</figcaption>\n\
             <svg viewBox=\"0 0 {width} {height}\" font-size=\"12\" role=\"img\" aria-label=\"{title}\">\n"
        );
        draw(self, panel, &mut html);
        html.push_str("</svg>\n<ul class=\"legend\">");
        for line in &self.lines {
            let (at, dash) = (line.colour % LINES.len(), DASHES[line.dash % DASHES.len()]);
            write!(
                html,
                "<li><svg viewBox=\"0 0 24 8\" width=\"24\" height=\"8\"><path class=\"c{at}\" stroke=\"{}\" \
                     stroke-width=\"2\" stroke-dasharray=\"{dash}\" d=\"M0 4L24 4\"/></svg>{}</li>",
                LINES[at].light,
                escape(&line.name)
            );
        }
        html.push_str("</ul>\n</figure>\n");
        html
    }
}
