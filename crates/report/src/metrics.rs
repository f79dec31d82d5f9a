//! The Prometheus text format, version 0.0.4: families of samples, each family with its help and
//! type.

use std::fmt::Display;

use crate::text::Append as _;

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

/// One of several families that are alike: where its number is found in what it is about.
pub struct FamilyRow<T: ?Sized, N = u64> {
    /// Its name, whole.
    pub name: &'static str,
    /// What its numbers mean, as a type.
    pub kind: Kind,
    /// What they mean.
    pub help: &'static str,
    /// Its number.
    pub of: fn(&T) -> N,
}

/// Declares families that are alike: of each its type, its name, its meaning and where in what they
/// are about its number is found.
#[macro_export]
macro_rules! families {
    ($(
        $(#[$about:meta])* $table:ident: $of:ty => $number:ty {
            $( $kind:ident $name:literal, $help:literal, $find:expr; )+
        }
    )+) => { $(
        $(#[$about])*
        const $table: &[$crate::metrics::FamilyRow<$of, $number>] = &[ $( $crate::metrics::FamilyRow {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            help: $help,
            of: $find,
        } ),+ ];
    )+ };
}

/// Writes families of one number each: of each its type, what its name goes on with behind the
/// common beginning, its meaning and its number.
#[macro_export]
macro_rules! numbers {
    ($text:expr, $begin:expr; $( $kind:ident $name:literal, $help:literal, $value:expr; )+) => { $(
        $text.family(&format!("{}{}", $begin, $name), $crate::metrics::Kind::$kind, $help)
            .sample(&[], $value);
    )+ };
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
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    /// Begins a family of numbers that only grow.
    pub fn counter<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, Kind::Counter, help)
    }

    /// Begins a family of numbers that go up and down.
    pub fn gauge<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, Kind::Gauge, help)
    }

    /// Begins a family of a table.
    pub fn row<'t, T, N>(&'t mut self, row: &FamilyRow<T, N>) -> Family<'t> {
        self.family(row.name, row.kind, row.help)
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

    /// A sample for each value of two labels: of each value of the first, those of the second.
    pub fn by_two<M: AsRef<str>, N: AsRef<str>, V: Display>(
        &mut self,
        [one, other]: [&'static str; 2],
        samples: impl IntoIterator<Item = (M, impl IntoIterator<Item = (N, V)>)>,
    ) {
        for (of_one, samples) in samples {
            for (name, value) in samples {
                self.sample(&[(one, of_one.as_ref()), (other, name.as_ref())], value);
            }
        }
    }

    /// One sample of a histogram or a summary: its `_bucket`, `_sum` or `_count`.
    pub fn part(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        write!(self.text, "{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            write!(self.text, "{open}{name}=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.text, "{close} {value}");
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
