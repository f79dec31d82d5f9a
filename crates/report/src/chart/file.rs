//! A picture in a file of its own: title, notes, charts below each other, and their legends.

use super::colours::{DASHES, INK, LINES, PAPER, SOFT, dark};
use super::content::{Chart, Line, escape};
use super::panel::{Panel, draw};
use crate::text::Append as _;

/// What stands above the charts.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// What the picture shows.
    pub title: String,
    /// Where the numbers come from and of which time, a line each.
    pub notes: Vec<String>,
}

/// The whole file.
pub fn file(head: &Head, charts: &[Chart]) -> String {
    let mut body = String::new();
    let mut bottom = heading(head, &mut body);
    let panel = match charts {
        [_] => Panel { width: WIDTH, height: 440.0 },
        _ => Panel { width: WIDTH, height: 300.0 },
    };
    for chart in charts {
        if charts.len() > 1 {
            bottom += LINE_HEIGHT + 8.0;
            text(&mut body, bottom - 6.0, "ink", INK.light, &chart.title, " font-weight=\"600\"");
        }
        writeln!(body, "<g transform=\"translate(0 {bottom:.1})\">");
        draw(chart, panel, &mut body);
        body.push_str("</g>\n");
        bottom = legend(&chart.lines, bottom + panel.height, &mut body);
    }
    let height = bottom + 10.0;
    let title = escape(&head.title);
    let notes = escape(&head.notes.join(". "));
    let (dark, paper) = (dark(), PAPER.light);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n<desc>{notes}</desc>\n<style>\n{dark}</style>\n\
         <rect class=\"paper\" fill=\"{paper}\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>\n"
    )
}

/// Title and notes; returns where they end.
fn heading(head: &Head, svg: &mut String) -> f64 {
    let mut y = 28.0;
    text(svg, y, "ink", INK.light, &head.title, " font-size=\"17\" font-weight=\"600\"");
    for note in &head.notes {
        y += LINE_HEIGHT;
        text(svg, y, "soft", SOFT.light, note, "");
    }
    y + 10.0
}

fn text(svg: &mut String, y: f64, class: &str, colour: &str, text: &str, more: &str) {
    let text = escape(text);
    writeln!(
        svg,
        "<text class=\"{class}\" fill=\"{colour}\" x=\"{MARGIN}\" y=\"{y:.1}\"{more}>{text}</text>"
    );
}

/// Names of lines, as many in a row as fit; returns where they end. How wide a name is is known to
/// the viewer alone, so room is left for wide letters.
fn legend(lines: &[Line], top: f64, svg: &mut String) -> f64 {
    let (mut x, mut y) = (MARGIN, top + 12.0);
    for Line { name, colour, dash, .. } in lines {
        let width = 46.0 + 7.6 * name.chars().count() as f64;
        if x > MARGIN && x + width > WIDTH {
            (x, y) = (MARGIN, y + LINE_HEIGHT);
        }
        let (at, dash) = (colour % LINES.len(), DASHES[dash % DASHES.len()]);
        writeln!(
            svg,
            "<path class=\"c{at}\" fill=\"none\" stroke=\"{}\" stroke-width=\"3\" stroke-dasharray=\"{dash}\" \
                 d=\"M{x:.1} {:.1}h22\"/><text class=\"ink\" fill=\"{}\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            LINES[at].light,
            y - 4.0,
            INK.light,
            x + 28.0,
            escape(name)
        );
        x += width;
    }
    if lines.is_empty() { top } else { y + 6.0 }
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
const LINE_HEIGHT: f64 = 20.0;
