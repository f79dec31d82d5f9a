//! One chart: lines over an axis, as SVG that takes its colours from the page.

use std::fmt::Write as _;

use super::axis::Scale;

/// A line with its name.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// For the legend.
    pub(super) name: String,
    /// Which of the page's colours.
    pub(super) colour: usize,
    /// Drawn with gaps: a second kind of line of the same run.
    pub(super) is_dashed: bool,
    /// Points, left to right.
    pub(super) points: Vec<(f64, f64)>,
}

/// A place on the horizontal axis that has a name.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// What is there.
    pub(super) name: String,
    /// Which of the page's colours.
    pub(super) colour: usize,
    /// Where.
    pub(super) x: f64,
}

/// A chart.
#[derive(Debug)]
pub(super) struct Chart {
    /// What it shows.
    pub(super) title: &'static str,
    /// Name and unit of the horizontal axis.
    pub(super) x_name: &'static str,
    /// The horizontal axis.
    pub(super) x: Scale,
    /// Name and unit of the vertical axis.
    pub(super) y_name: &'static str,
    /// The vertical axis.
    pub(super) y: Scale,
    /// How numbers are written on it.
    pub(super) y_text: fn(f64) -> String,
    /// What is drawn.
    pub(super) lines: Vec<Line>,
    /// What stands out on the horizontal axis.
    pub(super) marks: Vec<Mark>,
}

impl Chart {
    /// The chart with its legend.
    pub(super) fn svg(&self) -> String {
        let mut svg = format!(
            "<figure><figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.title, self.title
        );
        for tick in self.y.ticks() {
            let y = self.y_at(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                (self.y_text)(tick)
            );
        }
        for tick in self.x.ticks() {
            let x = self.x_at(tick);
            let bottom = HEIGHT - BOTTOM;
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                plain(tick)
            );
        }
        let middle = f64::midpoint(TOP, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"name\" transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 8.0,
            self.x_name,
            self.y_name
        );
        for (number, mark) in self.marks.iter().enumerate() {
            self.draw_mark(number, mark, &mut svg);
        }
        for line in &self.lines {
            self.draw(line, &mut svg);
        }
        svg.push_str("</svg>\n");
        self.legend(&mut svg);
        svg.push_str("</figure>\n");
        svg
    }

    fn draw(&self, line: &Line, svg: &mut String) {
        let mut path = String::new();
        for (x, y) in &line.points {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", self.x_at(*x), self.y_at(*y));
        }
        let dashed = if line.is_dashed { " dashed" } else { "" };
        let _ =
            writeln!(svg, "<path class=\"line c{}{dashed}\" d=\"{path}\"/>", line.colour % COLOURS);
        if let [(x, y)] = line.points[..] {
            let (x, y) = (self.x_at(x), self.y_at(y));
            let _ = writeln!(
                svg,
                "<circle class=\"dot c{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>",
                line.colour % COLOURS
            );
        }
    }

    /// A line from top to bottom with its name beside it, each name below the one before.
    fn draw_mark(&self, number: usize, mark: &Mark, svg: &mut String) {
        let (x, bottom) = (self.x_at(mark.x), HEIGHT - BOTTOM);
        let (anchor, text_x) = if x > WIDTH * 0.75 { ("end", x - 6.0) } else { ("start", x + 6.0) };
        let text_y = TOP + 12.0 + 15.0 * (number % 12) as f64;
        let _ = writeln!(
            svg,
            "<path class=\"line mark c{}\" d=\"M{x:.1} {TOP:.1}L{x:.1} {bottom:.1}\"/><text class=\"name\" x=\"{text_x:.1}\" y=\"{text_y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            mark.colour % COLOURS,
            escape(&mark.name)
        );
    }

    fn legend(&self, html: &mut String) {
        html.push_str("<ul class=\"legend\">");
        for line in &self.lines {
            let dashed = if line.is_dashed { " dashed" } else { "" };
            let _ = write!(
                html,
                "<li><svg viewBox=\"0 0 24 8\" width=\"24\" height=\"8\"><path class=\"line c{}{dashed}\" d=\"M0 4L24 4\"/></svg>{}</li>",
                line.colour % COLOURS,
                escape(&line.name)
            );
        }
        html.push_str("</ul>\n");
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)
    }
}

/// A number without a tail of zeros.
pub(super) fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that the page may contain.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Colours that the page has.
pub(super) const COLOURS: usize = 6;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
