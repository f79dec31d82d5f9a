//! What every drawing has to be, in a file and on a page.

use super::*;
use crate::text::time;

fn chart() -> Chart {
    let line = |name: &str, colour, dash| Line {
        name: name.into(),
        colour,
        dash,
        points: vec![(0.0, 1e3), (50.0, 2e3), (99.9, 5e6)],
    };
    let dot = Line { name: "once".into(), colour: COLOURS + 1, dash: 0, points: vec![(99.0, 4e4)] };
    let none = Line { name: "never".into(), colour: 3, dash: 0, points: Vec::new() };
    Chart {
        title: "up & down".into(),
        x: Axis::percentiles("percentile", 1000),
        y: Axis::new("latency", Scale::decades([1e3, 5e6].into_iter()), |ns| time(ns as u64)),
        heat: vec![Cell { x: (0.0, 90.0), y: (2e3, 4e3), strength: 0.5 }],
        lines: vec![line("a<b>", 0, 0), line("second", 1, 1), dot, none],
        marks: vec![Mark { name: "knee".into(), colour: 2, x: 90.0 }],
    }
}

/// Every element is closed by itself or by its end, in order.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for element in svg.split('<').skip(1) {
        let (element, text) = element.split_once('>').expect("every `<` has its `>`");
        assert!(!text.contains('>'), "{text}");
        let name = element.split([' ', '/']).next().unwrap_or_default();
        if let Some(name) = element.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !element.ends_with('/') {
            open.push(name);
        }
        assert_eq!(element.matches('"').count() % 2, 0, "{element}");
    }
    assert!(open.is_empty(), "{open:?}");
}

fn files() -> [String; 2] {
    let head = Head { title: "Latency".into(), notes: vec!["a.hlog, host-1, 9 to 10".into()] };
    [file(&head, &[chart()]), file(&head, &[chart(), chart()])]
}

#[test]
fn drawings_are_well_formed_and_have_every_name() {
    let [one, two] = files();
    for svg in [&one, &two, &chart().figure()] {
        assert_well_formed(svg);
        for text in ["up &amp; down", "a&lt;b&gt;", "second", "knee", "percentile", "99.9 %"] {
            assert!(svg.contains(text) || (text.starts_with("up") && svg == &one), "{text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    assert!(one.contains(">a.hlog, host-1, 9 to 10</text>"));
}

#[test]
fn a_file_has_its_colours_without_a_style_sheet() {
    for svg in files() {
        assert!(!svg.contains("var("), "viewers without CSS variables draw it black");
        let start = svg.find("</style>").expect("dark colours");
        for element in svg[start..].split('<').filter(|it| {
            ["text", "path", "rect", "line", "circle"].iter().any(|name| it.starts_with(name))
        }) {
            assert!(element.contains("fill=\"#") || element.contains("stroke=\"#"), "{element}");
        }
        assert!(svg[..start].contains("prefers-color-scheme: dark"));
    }
}

#[test]
fn everything_lies_inside() {
    let figure = chart().figure();
    for path in figure.split(" d=\"M").skip(1) {
        let path = path.split('"').next().unwrap_or_default();
        for point in path.split('L') {
            let (x, y) = point.split_once(' ').expect("two numbers");
            let (x, y): (f64, f64) = (x.parse().expect("number"), y.parse().expect("number"));
            assert!((0.0..=720.0).contains(&x) && (0.0..=300.0).contains(&y), "{point}");
        }
    }
}

#[test]
fn legends_of_many_lines_take_several_rows() {
    let line = |at| Line {
        name: format!("a line with a long name {at}"),
        colour: at,
        dash: at,
        points: Vec::new(),
    };
    let chart = Chart { lines: (0..20).map(line).collect(), ..chart() };
    let height = |svg: &str| {
        let text = svg.split(" height=\"").nth(1).and_then(|rest| rest.split('"').next());
        text.expect("a height").parse::<f64>().expect("a number")
    };
    let [one, _] = files();
    assert!(height(&file(&Head::default(), &[chart])) > height(&one));
}
