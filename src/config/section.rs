//! One table of the file, read field by field against its description.
//!
//! A reader method returns `None` when the field is wrong, after it has noted why; the caller reads all its fields, calls
//! [`Section::finish`], and only then gives up. So one bad field never hides another.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::mistake::{Place, Report};
use super::schema::{Field, Kind, Presence, Table};
use super::values::{self, Word};

/// A value with its place.
pub(super) struct Node<'a> {
    pub(super) place: Place,
    pub(super) value: Cow<'a, DeValue<'a>>,
}

/// A table that is being read.
pub(super) struct Section<'a> {
    place: Place,
    values: &'a DeTable<'a>,
    description: &'static Table,
    /// The field that selects the variant has been read, and this is its word. Empty for tables without variants.
    variant: Option<&'static str>,
    read: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(super) fn new(description: &'static Table, place: Place, values: &'a DeTable<'a>) -> Self {
        Self { place, values, description, variant: Some(""), read: Vec::new() }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The word that selects which of the table's variants this one is.
    pub(super) fn variant<T: Word + PartialEq>(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
    ) -> Option<T> {
        let chosen = self.choice(report, name).map(|(chosen, _)| chosen);
        let word = |chosen| T::WORDS.iter().find(|(_, value)| *value == chosen);
        self.variant = chosen.and_then(word).map(|(word, _)| *word);
        chosen
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, report: &mut Report<'_>, name: &str) -> Option<bool> {
        self.value(report, name, flag).map(|(flag, _)| flag)
    }

    /// One of the words of `T`.
    pub(super) fn choice<T: Word>(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
    ) -> Option<(T, Place)> {
        self.text(report, name, values::word)
    }

    /// A number in the range of its description.
    pub(super) fn integer(&mut self, report: &mut Report<'_>, name: &str) -> Option<u64> {
        let Kind::Integer { min, max } = self.field(name).kind else {
            unreachable!("{name} is described as a whole number");
        };
        let read = |value: &DeValue<'_>| integer(value).filter(|n| (min..=max).contains(n));
        self.value(report, name, read).map(|(number, _)| number)
    }

    /// A duration in the range of its description.
    pub(super) fn duration(&mut self, report: &mut Report<'_>, name: &str) -> Option<Duration> {
        let Kind::Duration { min, max } = self.field(name).kind else {
            unreachable!("{name} is described as a duration");
        };
        let range = values::duration(min)?..=values::duration(max)?;
        let read = |value: &DeValue<'_>| {
            values::duration(value.as_str()?).filter(|duration| range.contains(duration))
        };
        self.value(report, name, read).map(|(duration, _)| duration)
    }

    /// A path; a relative one starts at `base`.
    pub(super) fn path(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
        base: &Path,
    ) -> Option<PathBuf> {
        let Kind::Path { bytes_max } = self.field(name).kind else {
            unreachable!("{name} is described as a path");
        };
        let read = |value: &DeValue<'_>| {
            let text = value.as_str().filter(|text| !text.is_empty() && !text.contains('\0'))?;
            Some(base.join(text)).filter(|path| path.as_os_str().len() <= bytes_max)
        };
        self.value(report, name, read).map(|(path, _)| path)
    }

    /// One value that `read` understands.
    pub(super) fn value<T>(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<(T, Place)> {
        let node = self.take(report, name)?;
        let value = read(&node.value);
        if value.is_none() {
            report.expected(&node.place, Found(&node.value), &self.field(name).kind);
        }
        value.map(|value| (value, node.place))
    }

    /// One string that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<(T, Place)> {
        self.value(report, name, |value| read(value.as_str()?))
    }

    /// A list of values that `read` understands, each with its place. An absent optional list is empty.
    pub(super) fn list<T>(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Vec<(T, Place)>> {
        let Kind::List { item, .. } = self.field(name).kind else {
            unreachable!("{name} is described as a list");
        };
        let nodes = self.nodes(report, name, false)?;
        let count = nodes.len();
        let mut list = Vec::with_capacity(count);
        for Node { place, value } in nodes {
            match read(&value) {
                Some(element) => list.push((element, place)),
                None => report.expected(&place, Found(&value), item),
            }
        }
        (list.len() == count).then_some(list)
    }

    /// The elements of a list. A `secret` one is not quoted in mistakes.
    pub(super) fn nodes(
        &mut self,
        report: &mut Report<'_>,
        name: &str,
        secret: bool,
    ) -> Option<Vec<Node<'a>>> {
        let field = self.field(name);
        let optional = matches!(field.presence, Presence::Optional(_));
        if optional && !self.values.contains_key(name) {
            self.read.push(field.name);
            return Some(Vec::new());
        }
        let node = self.take(report, name)?;
        let elements = elements(&node);
        match elements {
            Some(ref list) if !list.is_empty() => {}
            Some(_) => report.expected(&node.place, "an empty list", &field.kind),
            None if secret => report.expected(&node.place, kind_of(&node.value), &field.kind),
            None => report.expected(&node.place, Found(&node.value), &field.kind),
        }
        elements.filter(|list| !list.is_empty())
    }

    /// The value of a field, or its default.
    pub(super) fn take(&mut self, report: &mut Report<'_>, name: &str) -> Option<Node<'a>> {
        let field = self.field(name);
        self.read.push(field.name);
        let path = format!("{}.{name}", self.place.path);
        if let Some(value) = self.values.get(name) {
            let place = Place::new(path, value.span().start);
            return Some(Node { place, value: Cow::Borrowed(value.get_ref()) });
        }
        let place = Place::new(path, self.place.at);
        if let Presence::Default(text) = field.presence {
            let value = DeValue::parse(text).expect("defaults are TOML values").into_inner();
            return Some(Node { place, value: Cow::Owned(value) });
        }
        report.expected(&place, "nothing", &field.kind);
        None
    }

    /// Notes every field that this table does not have.
    pub(super) fn finish(self, report: &mut Report<'_>) {
        for key in self.values.keys() {
            self.judge(report, key);
        }
        if let Some(variant) = self.variant {
            let expected = self.description.fields.iter().filter(|field| field.applies_to(variant));
            for field in expected {
                assert!(self.read.contains(&field.name), "{} is read by someone", field.name);
            }
        }
    }

    /// Notes a field that exists nowhere, or in another variant only.
    fn judge(&self, report: &mut Report<'_>, key: &Spanned<Cow<'_, str>>) {
        let name = key.get_ref().as_ref();
        let place = Place::new(format!("{}.{name}", self.place.path), key.span().start);
        let fields = self.description.fields;
        match (fields.iter().find(|field| field.name == name), self.variant) {
            (None, variant) => {
                let fits = |field: &&Field| variant.is_none_or(|variant| field.applies_to(variant));
                let known: Vec<_> = fields.iter().filter(fits).map(|field| field.name).collect();
                report.unknown(&place, name, &known);
            }
            (Some(Field { only: Some(only), .. }), Some(variant)) if *only != variant => {
                let table = self.description.name;
                let found = format_args!("a field of {only} {table}s");
                report.expected(&place, found, format_args!("fields of {variant} {table}s only"));
            }
            _ => {}
        }
    }

    fn field(&self, name: &str) -> &'static Field {
        self.description
            .fields
            .iter()
            .find(|field| field.name == name)
            .expect("the reader asks for described fields only")
    }
}

/// The elements of a list node, each with its place. Elements of a default stand where the default does.
fn elements<'a>(node: &Node<'a>) -> Option<Vec<Node<'a>>> {
    let path = |index| format!("{}[{index}]", node.place.path);
    match &node.value {
        Cow::Borrowed(value) => Some(
            value
                .as_array()?
                .iter()
                .enumerate()
                .map(|(index, element)| Node {
                    place: Place::new(path(index), element.span().start),
                    value: Cow::Borrowed(element.get_ref()),
                })
                .collect(),
        ),
        Cow::Owned(value) => Some(
            value
                .as_array()?
                .iter()
                .enumerate()
                .map(|(index, element)| Node {
                    place: Place::new(path(index), node.place.at),
                    value: Cow::Owned(element.get_ref().clone()),
                })
                .collect(),
        ),
    }
}

fn flag(value: &DeValue<'_>) -> Option<bool> {
    value.as_bool()
}

/// A whole number that is not negative.
pub(super) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number: &DeInteger<'_> = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A number, or a string that holds one.
pub(super) fn number(value: &DeValue<'_>) -> Option<u64> {
    value.as_str().map_or_else(|| integer(value), values::number)
}

/// What was found, quoted. Long text is cut.
pub(super) struct Found<'a>(pub(super) &'a DeValue<'a>);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const QUOTED_CHARS_MAX: usize = 60;
        match self.0 {
            DeValue::String(text) => match text.char_indices().nth(QUOTED_CHARS_MAX) {
                Some((cut, _)) => write!(f, "{:?} and more", &text[..cut]),
                None => write!(f, "{text:?}"),
            },
            DeValue::Integer(number) => number.fmt(f),
            DeValue::Float(number) => number.fmt(f),
            DeValue::Boolean(flag) => flag.fmt(f),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                f.write_str(kind_of(self.0))
            }
        }
    }
}

/// What was found, without showing it.
pub(super) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
