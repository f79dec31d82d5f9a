//! The Prometheus text format, version 0.0.4: families of samples, each family with its help and
//! type.

use std::fmt::Display;

use crate::text::put;

/// What to send as the content's type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that grows.
#[derive(Default)]
pub struct Text(String);

/// One family, whose samples follow its head.
pub struct Family<'t> {
    text: &'t mut String,
    name: &'t str,
}

/// What a family's numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bound.
    Histogram,
    /// Quantiles of the last while, beside what there has been since the start.
    Summary,
}

/// What a name goes on with, what its number means, and the number.
pub type Number<'a> = (&'a str, Kind, &'a str, u64);

/// A number that only grows.
pub const fn counter<'a>(name: &'a str, help: &'a str, value: u64) -> Number<'a> {
    (name, Kind::Counter, help, value)
}

/// One that goes up and down.
pub const fn gauge<'a>(name: &'a str, help: &'a str, value: u64) -> Number<'a> {
    (name, Kind::Gauge, help, value)
}

/// A label's name and value.
pub type Label<'a> = (&'static str, &'a str);

impl Text {
    /// Begins a family. All its samples have to follow before the next one begins.
    pub fn family<'t>(&'t mut self, name: &'t str, kind: Kind, help: &str) -> Family<'t> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        put(&mut self.0, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: &mut self.0, name }
    }

    /// Families of one number each, whose names begin like this.
    pub fn numbers(&mut self, begin: &str, all: &[Number<'_>]) {
        for (name, kind, help, value) in all {
            self.family(&format!("{begin}{name}"), *kind, help).sample(&[], value);
        }
    }

    /// The page, whole.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// One sample.
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        self.part("", labels, value);
    }

    /// A sample for each value of one label.
    pub fn by<N: AsRef<str>, V: Display>(
        &mut self,
        label: &'static str,
        samples: impl IntoIterator<Item = (N, V)>,
    ) {
        for (name, value) in samples {
            self.sample(&[(label, name.as_ref())], value);
        }
    }

    /// One sample of a histogram or a summary: its `_bucket`, `_sum` or `_count`.
    pub fn part(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        put(self.text, format_args!("{}{suffix}", self.name));
        for (at, (name, value)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            put(self.text, format_args!("{open}{name}=\""));
            escape(self.text, value);
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        put(self.text, format_args!("{close} {value}\n"));
    }
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_heads_and_labels_are_escaped() {
        let mut text = Text::default();
        text.family("a_total", Kind::Counter, "As.").sample(&[], 7);
        let mut family = text.family("b", Kind::Histogram, "Bs.");
        family.part("_bucket", &[("x", "1\"\\\n"), ("le", "0.5")], 0.25);
        assert_eq!(
            text.into_string(),
            "# HELP a_total As.\n# TYPE a_total counter\na_total 7\n\
             # HELP b Bs.\n# TYPE b histogram\nb_bucket{x=\"1\\\"\\\\\\n\",le=\"0.5\"} 0.25\n"
        );
    }
}
