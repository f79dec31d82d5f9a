//! One table of the file, read field by field against its description.
//!
//! A reader method notes what is wrong with its field and then returns `None`; the caller reads all
//! its fields, calls [`Section::finish`], and only then gives up. So one bad field never hides
//! another. Reading a field takes it out of the table: what is left at the end does not belong
//! there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::mistake::{Place, Report};
use super::schema::{Field, Kind, Presence, Table};
use super::values::{self, Word};

/// A value with its place.
pub(super) struct Node<'a> {
    pub(super) place: Place,
    pub(super) value: DeValue<'a>,
}

/// A field that is there is wrong, and that was noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted;

/// A table that is being read.
pub(super) struct Section<'r, 'a> {
    pub(super) report: &'r mut Report,
    description: &'static Table,
    place: Place,
    values: DeTable<'a>,
    /// Which of the table's variants this is: empty where there are none, `None` where the file
    /// does not say.
    variant: Option<&'static str>,
    read: Vec<&'static str>,
}

impl<'r, 'a> Section<'r, 'a> {
    pub(super) fn new(
        report: &'r mut Report,
        description: &'static Table,
        place: Place,
        values: DeTable<'a>,
    ) -> Self {
        Self { report, description, place, values, variant: Some(""), read: Vec::new() }
    }

    /// Where an absent field would stand.
    pub(super) fn place_of(&self, name: &str) -> Place {
        Place::new(format!("{}.{name}", self.place.path), self.place.at)
    }

    /// The word that selects which of the table's variants this one is.
    pub(super) fn variant<T: Word + PartialEq>(&mut self, name: &str) -> Option<T> {
        let chosen = self.choice(name).map(|(chosen, _)| chosen);
        let word = |chosen| T::WORDS.iter().find(|(_, value)| *value == chosen);
        self.variant = chosen.and_then(word).map(|(word, _)| *word);
        chosen
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.value(name, flag).map(|(flag, _)| flag)
    }

    /// Whether a flag without an effect is there at all.
    pub(super) fn is_said(&mut self, name: &str) -> Option<bool> {
        if self.is_absent(name) { Some(false) } else { self.flag(name).map(|_| true) }
    }

    /// One of the words of `T`.
    pub(super) fn choice<T: Word>(&mut self, name: &str) -> Option<(T, Place)> {
        self.text(name, values::word)
    }

    /// A number in the range of its description.
    pub(super) fn integer(&mut self, name: &str) -> Option<u64> {
        let Kind::Integer { min, max } = self.field(name).kind else {
            unreachable!("{name} is described as a whole number");
        };
        let read = |value: &DeValue<'_>| integer(value).filter(|n| (min..=max).contains(n));
        self.value(name, read).map(|(number, _)| number)
    }

    /// A number in the range of its description, or something else where it is absent.
    pub(super) fn integer_or(&mut self, name: &str, absent: u64) -> Option<u64> {
        if self.is_absent(name) { Some(absent) } else { self.integer(name) }
    }

    /// A table inside of this one, to be read and finished like this one.
    pub(super) fn table(&mut self, name: &str) -> Option<Section<'_, 'a>> {
        let Kind::Table(description) = self.field(name).kind else {
            unreachable!("{name} is described as a table");
        };
        let Node { place, value } = self.take(name)?;
        match value {
            DeValue::Table(values) => {
                let variant = self.variant;
                Some(Section { variant, ..Section::new(self.report, description, place, values) })
            }
            other => {
                self.report.expected(&place, kind_of(&other), self.field(name).kind);
                None
            }
        }
    }

    /// An optional field that is a table of this description, to be read and finished likewise.
    pub(super) fn inline(
        &mut self,
        name: &str,
        description: &'static Table,
    ) -> Result<Option<Section<'_, 'a>>, Noted> {
        let Some(Node { place, value }) = self.node(name) else { return Ok(None) };
        match value {
            DeValue::Table(values) => {
                Ok(Some(Section::new(self.report, description, place, values)))
            }
            other => {
                self.report.expected(&place, kind_of(&other), self.field(name).kind);
                Err(Noted)
            }
        }
    }

    /// Whether a field that was not read yet is this text.
    pub(super) fn is_text(&self, name: &str, text: &str) -> bool {
        self.values.get(name).is_some_and(|value| value.get_ref().as_str() == Some(text))
    }

    /// Whether the file has a field that was not read yet.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A field that was not read yet, as it stands.
    pub(super) fn peek(&self, name: &str) -> Option<&DeValue<'a>> {
        self.values.get(name).map(toml::Spanned::get_ref)
    }

    /// What a field accepts.
    pub(super) fn form(&self, name: &str) -> &'static Kind {
        &self.field(name).kind
    }

    /// Where a field stands, or would stand.
    pub(super) fn place(&self, name: &str) -> Place {
        let absent = self.place_of(name);
        let at = self.values.get(name).map_or(absent.at, |value| value.span().start);
        Place::new(absent.path, at)
    }

    /// A duration in the range of its description, or something else where it is absent.
    pub(super) fn duration_or(&mut self, name: &str, absent: Duration) -> Option<Duration> {
        if self.is_absent(name) { Some(absent) } else { self.duration(name) }
    }

    /// A duration in the range of its description.
    pub(super) fn duration(&mut self, name: &str) -> Option<Duration> {
        let Kind::Duration { min, max } = self.field(name).kind else {
            unreachable!("{name} is described as a duration");
        };
        let bound = |text| values::duration(text).expect("bounds are durations");
        let range = bound(min)..=bound(max);
        let read = |text: &str| values::duration(text).filter(|found| range.contains(found));
        self.text(name, read).map(|(duration, _)| duration)
    }

    /// A path; a relative one starts at `base`.
    pub(super) fn path(&mut self, name: &str, base: &Path) -> Option<PathBuf> {
        let Kind::Path { bytes_max } = self.field(name).kind else {
            unreachable!("{name} is described as a path");
        };
        let read = |text: &str| {
            let path = base.join(text);
            let fits = path.as_os_str().len() <= bytes_max;
            (fits && !text.is_empty() && !text.contains('\0')).then_some(path)
        };
        self.text(name, read).map(|(path, _)| path)
    }

    /// One string that `read` understands.
    pub(super) fn text<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<(T, Place)> {
        self.value(name, |value| read(value.as_str()?))
    }

    /// One string that `read` understands, or something else where it is absent.
    pub(super) fn text_or<T>(
        &mut self,
        name: &str,
        absent: T,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if self.is_absent(name) {
            return Some(absent);
        }
        self.text(name, read).map(|(value, _)| value)
    }

    /// Whether an optional field is left out; it is read then.
    pub(super) fn is_absent(&mut self, name: &str) -> bool {
        let field = self.field(name);
        let absent =
            matches!(field.presence, Presence::Optional(_)) && !self.values.contains_key(name);
        if absent {
            self.read.push(field.name);
        }
        absent
    }

    /// One value that `read` understands.
    pub(super) fn value<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<(T, Place)> {
        let Node { place, value } = self.take(name)?;
        let result = read(&value);
        if result.is_none() {
            self.report.expected(&place, Found(&value), self.field(name).kind);
        }
        Some((result?, place))
    }

    /// A list of values that `read` understands, each with its place. An absent optional list is
    /// empty.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Vec<(T, Place)>> {
        let Kind::List { item, .. } = self.field(name).kind else {
            unreachable!("{name} is described as a list");
        };
        let nodes = self.nodes(name)?;
        let count = nodes.len();
        let mut list = Vec::with_capacity(count);
        for Node { place, value } in nodes {
            match read(&value) {
                Some(element) => list.push((element, place)),
                None => self.report.expected(&place, Found(&value), item),
            }
        }
        (list.len() == count).then_some(list)
    }

    /// The elements of a list, at least one. An absent optional list is empty.
    pub(super) fn nodes(&mut self, name: &str) -> Option<Vec<Node<'a>>> {
        if self.is_absent(name) {
            return Some(Vec::new());
        }
        let field = self.field(name);
        let Node { place, value } = self.take(name)?;
        let found = match value {
            DeValue::Array(list) if !list.is_empty() => {
                let nodes = list.into_iter().enumerate().map(|(index, element)| Node {
                    place: Place::new(format!("{}[{index}]", place.path), element.span().start),
                    value: element.into_inner(),
                });
                return Some(nodes.collect());
            }
            DeValue::Array(_) => "an empty list",
            // Not quoted: it may be a key in the place of a list of keys.
            other => kind_of(&other),
        };
        self.report.expected(&place, found, field.kind);
        None
    }

    /// An optional field as it stands.
    pub(super) fn node(&mut self, name: &str) -> Option<Node<'a>> {
        if self.is_absent(name) { None } else { self.take(name) }
    }

    /// The value of a field, or its default.
    fn take(&mut self, name: &str) -> Option<Node<'a>> {
        let field = self.field(name);
        self.read.push(field.name);
        let absent = self.place_of(name);
        if let Some(value) = self.values.remove(name) {
            let place = Place::new(absent.path, value.span().start);
            return Some(Node { place, value: value.into_inner() });
        }
        if let Presence::Default(text) = field.presence {
            let value = DeValue::parse(text).expect("defaults are TOML values").into_inner();
            return Some(Node { place: absent, value });
        }
        self.report.expected(&absent, "nothing", field.kind);
        None
    }

    /// Notes every field that does not belong here.
    pub(super) fn finish(self) {
        for key in self.values.keys() {
            let place =
                Place::new(format!("{}.{}", self.place.path, key.get_ref()), key.span().start);
            self.description.judge(key.get_ref(), &place, self.variant, self.report);
        }
        for field in self.description.fields {
            let applies = self.variant.is_some_and(|variant| field.applies_to(variant));
            assert!(!applies || self.read.contains(&field.name), "{} is read", field.name);
        }
    }

    fn field(&self, name: &str) -> &'static Field {
        let field = self.description.fields.iter().find(|field| field.name == name);
        field.expect("the reader asks for described fields only")
    }
}

impl Table {
    /// Notes that a field exists nowhere, or in another variant only.
    fn judge(&self, name: &str, place: &Place, variant: Option<&'static str>, report: &mut Report) {
        let fits = |field: &Field| variant.is_none_or(|variant| field.applies_to(variant));
        match (self.fields.iter().find(|field| field.name == name), variant) {
            (None, _) => {
                let known: Vec<_> = self
                    .fields
                    .iter()
                    .filter(|field| fits(field))
                    .map(|field| field.name)
                    .collect();
                report.unknown(place, name, &known);
            }
            (Some(Field { only, .. }), Some(variant)) if !only.is_empty() => {
                // An inner table's variants are those of the table around it.
                let noun = self.name.split('.').next().unwrap_or(self.name);
                let found = format_args!("a field of {} {noun}s", only.join(" and "));
                report.expected(place, found, format_args!("fields of {variant} {noun}s only"));
            }
            // Without a readable variant nobody can say which fields belong here.
            (Some(_), _) => {}
        }
    }
}

fn flag(value: &DeValue<'_>) -> Option<bool> {
    value.as_bool()
}

/// A whole number that is not negative.
pub(super) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A whole number, or a string that holds one.
pub(super) fn number(value: &DeValue<'_>) -> Option<u64> {
    value.as_str().map_or_else(|| integer(value), values::number)
}

/// What was found, quoted. Long text is cut.
struct Found<'a>(&'a DeValue<'a>);

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
            other => f.write_str(kind_of(other)),
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
