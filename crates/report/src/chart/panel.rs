//! The drawing itself: axes, heat, marks and lines in a field of a given size.

use super::colours::{DASHES, GRID, HEAT, INK, LINES, SOFT};
use super::content::{Cell, Chart, Line, Mark, escape};
use crate::text::Append as _;

/// How large the drawing is, with the numbers at its axes.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Appends the drawing.
pub(super) fn draw(chart: &Chart, panel: Panel, svg: &mut String) {
    let field = Field { chart, panel };
    chart.heat.iter().for_each(|cell| field.heat(cell, svg));
    field.axes(svg);
    for (number, mark) in chart.marks.iter().enumerate() {
        field.mark(number, mark, svg);
    }
    chart.lines.iter().for_each(|line| field.line(line, svg));
}

struct Field<'c> {
    chart: &'c Chart,
    panel: Panel,
}

impl Field<'_> {
    fn axes(&self, svg: &mut String) {
        let (right, bottom) = (self.panel.width - RIGHT, self.panel.height - BOTTOM);
        let Chart { x: x_axis, y: y_axis, .. } = self.chart;
        for tick in y_axis.scale.ticks() {
            let y = self.y(tick);
            grid(svg, (LEFT, y), (right, y));
            number(svg, (LEFT - 8.0, y + 4.0), "end", &(y_axis.text)(tick));
        }
        for tick in x_axis.scale.ticks() {
            let x = self.x(tick);
            grid(svg, (x, TOP), (x, bottom));
            number(svg, (x, bottom + 18.0), "middle", &(x_axis.text)(tick));
        }
        let (across, down) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
        let (x_name, y_name, ink) = (escape(&x_axis.name), escape(&y_axis.name), INK.light);
        writeln!(
            svg,
            "<text class=\"ink\" fill=\"{ink}\" x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text>\
                 <text class=\"ink\" fill=\"{ink}\" transform=\"translate(16 {down:.1}) rotate(-90)\" \
                 text-anchor=\"middle\">{y_name}</text>",
            self.panel.height - 8.0
        );
    }

    fn line(&self, line: &Line, svg: &mut String) {
        let (at, dash) = (line.colour % LINES.len(), DASHES[line.dash % DASHES.len()]);
        let colour = LINES[at].light;
        if let [point] = line.points[..] {
            let (x, y) = self.place(point);
            writeln!(
                svg,
                "<circle class=\"f{at}\" fill=\"{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
        if line.points.len() < 2 {
            return;
        }
        write!(
            svg,
            "<path class=\"c{at}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-linejoin=\"round\" stroke-dasharray=\"{dash}\" d=\""
        );
        for (index, point) in line.points.iter().enumerate() {
            let (x, y) = self.place(*point);
            let step = if index == 0 { 'M' } else { 'L' };
            write!(svg, "{step}{x:.1} {y:.1}");
        }
        svg.push_str("\"/>\n");
    }

    /// A line from top to bottom with its name beside it, each name below the one before.
    fn mark(&self, number: usize, mark: &Mark, svg: &mut String) {
        let (x, bottom) = (self.x(mark.x), self.panel.height - BOTTOM);
        let is_right = x > self.panel.width * 0.75;
        let (anchor, text_x) = if is_right { ("end", x - 6.0) } else { ("start", x + 6.0) };
        let text_y = TOP + 12.0 + 15.0 * (number % 12) as f64;
        let at = mark.colour % LINES.len();
        writeln!(
            svg,
            "<path class=\"c{at}\" stroke=\"{}\" stroke-width=\"1.2\" stroke-dasharray=\"2 3\" \
                 d=\"M{x:.1} {TOP:.1}L{x:.1} {bottom:.1}\"/><text class=\"ink\" fill=\"{}\" x=\"{text_x:.1}\" \
                 y=\"{text_y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            LINES[at].light,
            INK.light,
            escape(&mark.name)
        );
    }

    fn heat(&self, cell: &Cell, svg: &mut String) {
        let ((x0, y0), (x1, y1)) =
            (self.place((cell.x.0, cell.y.0)), self.place((cell.x.1, cell.y.1)));
        // A little wider than they are: viewers leave seams between fields that only touch.
        let (width, height) = (x1 - x0 + 0.3, y0 - y1 + 0.3);
        let opacity = cell.strength.clamp(0.0, 1.0);
        writeln!(
            svg,
            "<rect class=\"heat\" fill=\"{}\" fill-opacity=\"{opacity:.2}\" x=\"{x0:.1}\" y=\"{y1:.1}\" \
                 width=\"{width:.1}\" height=\"{height:.1}\"/>",
            HEAT.light
        );
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x(x), self.y(y))
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.chart.x.scale.place(value) * (self.panel.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let height = self.panel.height - TOP - BOTTOM;
        self.panel.height - BOTTOM - self.chart.y.scale.place(value) * height
    }
}

fn grid(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let colour = GRID.light;
    write!(
        svg,
        "<line class=\"grid\" stroke=\"{colour}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn number(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let (colour, text) = (SOFT.light, escape(text));
    writeln!(
        svg,
        "<text class=\"soft\" fill=\"{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

const LEFT: f64 = 84.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
