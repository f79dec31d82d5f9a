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

use super::declare::Declared;
use super::distinct::Distinct;
use super::keys::{KeyError, KeySources};
use super::mistake::{Mistake, Place, Report};
use super::schema::{Field, Kind, Presence, Table};
use super::source::{self, Secret};
use super::values::{self, Word};
use ringgate_fleet::keyspace::Name;

/// A value with its place.
pub(super) struct Node<'a> {
    pub(super) place: Place,
    pub(super) value: DeValue<'a>,
}

/// A field that is there is wrong, and that was noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted;

/// Where relative paths of a file start, and where its secrets come from.
#[derive(Clone, Copy)]
pub(super) struct Origin<'s> {
    pub(super) base: &'s Path,
    pub(super) keys: &'s KeySources<'s>,
}

/// A field as far as it could be read: `None` where that was noted.
pub(super) type Read<T> = Option<T>;

/// A table that is being read.
pub(super) struct Section<'r, 'a> {
    pub(super) report: &'r mut Report,
    pub(super) origin: Origin<'r>,
    description: &'static Table,
    place: Place,
    values: DeTable<'a>,
    /// Which of the table's variants this is: empty where there are none, `None` where the file
    /// does not say.
    variant: Option<&'static str>,
    /// What was read, and where it stood.
    read: Vec<(&'static str, usize)>,
}

impl<'r, 'a> Section<'r, 'a> {
    pub(super) fn new(
        report: &'r mut Report,
        origin: Origin<'r>,
        description: &'static Table,
        place: Place,
        values: DeTable<'a>,
    ) -> Self {
        Self { report, origin, description, place, values, variant: Some(""), read: Vec::new() }
    }

    /// Notes that the table wants a feature which this build is without.
    pub(super) fn left_out(&mut self, feature: &str) {
        let why = format!("this ringgate was built without the feature {feature}");
        self.report.note(&self.place, why);
    }

    /// Where an absent field would stand.
    pub(super) fn place_of(&self, name: &str) -> Place {
        Place::new(format!("{}.{name}", self.place.path), self.place.at)
    }

    /// The word that selects which of the table's variants this one is.
    pub(super) fn variant<T: Word + PartialEq>(&mut self, name: &str) -> Option<T> {
        let chosen = self.word(name);
        let word = |chosen| T::WORDS.iter().find(|(_, value)| *value == chosen);
        self.variant = chosen.and_then(word).map(|(word, _)| *word);
        chosen
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.value(name, flag).map(|(flag, _)| flag)
    }

    /// One of the words of `T`.
    pub(super) fn word<T: Word>(&mut self, name: &str) -> Option<T> {
        self.text(name, values::word).map(|(word, _)| word)
    }

    /// A number in the range of its description.
    pub(super) fn integer<T: TryFrom<u64>>(&mut self, name: &str) -> Option<T> {
        let Kind::Integer { min, max } = self.field(name).kind else {
            unreachable!("{name} is described as a whole number");
        };
        let read = |value: &DeValue<'_>| integer(value).filter(|n| (min..=max).contains(n));
        let (number, _) = self.value(name, read)?;
        Some(T::try_from(number).ok().expect("the type holds the range"))
    }

    /// A number in the range of its description, or something else where it is absent.
    pub(super) fn integer_or<T: TryFrom<u64>>(&mut self, name: &str, absent: T) -> Option<T> {
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
                let (origin, variant) = (self.origin, self.variant);
                let section = Section::new(self.report, origin, description, place, values);
                Some(Section { variant, ..section })
            }
            other => {
                self.report.expected(&place, kind_of(&other), self.field(name).kind);
                None
            }
        }
    }

    /// An optional field that is a table with no more than these fields.
    pub(super) fn optional_inner<T: Declared>(
        &mut self,
        name: &str,
        description: &'static Table,
    ) -> Read<Option<T>> {
        match self.inline(name, description).ok()? {
            Some(section) => T::read(section).map(Some),
            None => Some(None),
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
                Ok(Some(Section::new(self.report, self.origin, description, place, values)))
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

    /// Where a field stands or stood, or would stand.
    pub(super) fn place(&self, name: &str) -> Place {
        let absent = self.place_of(name);
        let read = self.read.iter().find(|(read, _)| *read == name).map(|(_, at)| *at);
        let there = self.values.get(name).map(|value| value.span().start);
        Place::new(absent.path, there.or(read).unwrap_or(absent.at))
    }

    /// Notes that a field has something else than what is expected there.
    pub(super) fn expected(
        &mut self,
        name: &str,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) {
        let place = self.place(name);
        self.report.expected(&place, found, expected);
    }

    /// Notes a name that cannot stand in a key of the fleet's etcd.
    pub(super) fn check_fleet_name(&mut self, name: &str) {
        if Name::new(name).is_none() {
            let expected = "a name that begins with a letter or a digit, as all do in a fleet";
            self.expected("name", format_args!("{name:?}"), expected);
        }
    }

    /// Notes what is wrong with a field.
    pub(super) fn note(&mut self, name: &str, message: String) {
        let place = self.place(name);
        self.report.note(&place, message);
    }

    /// Whether this is a variant of the table.
    pub(super) fn is_of(&self, variant: &str) -> bool {
        self.variant == Some(variant)
    }

    /// Whether this variant of the table has no such field, or the file, where it does not say
    /// which variant it is.
    pub(super) fn lacks(&self, name: &str) -> bool {
        match self.variant {
            Some(variant) => !self.field(name).applies_to(variant),
            None => !self.has(name),
        }
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

    /// A path; a relative one starts at the file's directory.
    pub(super) fn path(&mut self, name: &str) -> Option<PathBuf> {
        let Kind::Path { bytes_max } = self.field(name).kind else {
            unreachable!("{name} is described as a path");
        };
        let base = self.origin.base;
        let read = |text: &str| path(text, base).filter(|it| it.as_os_str().len() <= bytes_max);
        self.text(name, read).map(|(path, _)| path)
    }

    /// The path of a file that is read, so that nobody has to count its bytes.
    pub(super) fn file(&mut self, name: &str) -> Option<PathBuf> {
        let base = self.origin.base;
        self.text(name, |text| path(text, base)).map(|(path, _)| path)
    }

    /// A secret from where the file says.
    pub(super) fn secret<S: Secret>(&mut self, name: &str) -> Option<S> {
        let (node, origin) = (self.take(name)?, self.origin);
        source::read(node, origin, self.report)
    }

    /// Takes back that a secret could not be had from there, and says why it could not.
    pub(super) fn forgive(&mut self, secret: &str) -> Option<Mistake> {
        let place = self.place(secret);
        self.report.forgive(&place.path)
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
            self.read.push((field.name, self.place.at));
        }
        absent
    }

    /// Puts what the environment holds in the place of each `${NAME}` in the texts of a field.
    pub(super) fn fill(&mut self, name: &str) -> Read<()> {
        let (field, keys) = (self.place(name), self.origin.keys);
        let Some(value) = self.values.get_mut(name) else { return Some(()) };
        let mut texts: Vec<(Place, &mut DeValue<'a>)> = Vec::new();
        match value.get_mut() {
            DeValue::Array(list) => texts.extend(list.iter_mut().enumerate().map(|(index, it)| {
                let path = format!("{}[{index}]", field.path);
                (Place::new(path, it.span().start), it.get_mut())
            })),
            text => texts.push((field, text)),
        }
        let mut is_filled = true;
        for (place, value) in texts {
            let DeValue::String(text) = value else { continue };
            match filled(text, keys) {
                Ok(whole) => *text = whole.into(),
                Err(why) => {
                    self.report.note(&place, why.to_string());
                    is_filled = false;
                }
            }
        }
        // What is not whole would only be called wrong once more.
        if !is_filled {
            let _ = self.take(name);
        }
        is_filled.then_some(())
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

    /// A list of values that `read` understands. An absent optional list is empty.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Kind::List { item, .. } = self.field(name).kind else {
            unreachable!("{name} is described as a list");
        };
        let nodes = self.nodes(name)?;
        let count = nodes.len();
        let mut list = Vec::with_capacity(count);
        for Node { place, value } in nodes {
            match read(&value) {
                Some(element) => list.push(element),
                None => self.report.expected(&place, Found(&value), item),
            }
        }
        (list.len() == count).then_some(list)
    }

    /// A list of values that are all different, each as `shown` says.
    pub(super) fn set<T, S: PartialEq + fmt::Debug>(
        &mut self,
        name: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
        shown: impl Fn(&T) -> S,
    ) -> Option<Vec<T>> {
        let list = self.list(name, read)?;
        let mut seen = Distinct::default();
        for (index, value) in list.iter().enumerate() {
            let place = self.place_in(name, index);
            seen.check(self.report, &place, shown(value));
        }
        Some(list)
    }

    /// Where an element of a list stood that was read.
    pub(super) fn place_in(&self, name: &str, index: usize) -> Place {
        let mut read = self.read.iter().filter(|(read, _)| *read == name);
        let at = read.nth(index + 1).map_or(self.place.at, |(_, at)| *at);
        Place::new(format!("{}.{name}[{index}]", self.place.path), at)
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
                self.read.extend(list.iter().map(|element| (field.name, element.span().start)));
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
        let (field, place) = (self.field(name), self.place(name));
        self.read.push((field.name, place.at));
        let absent = self.place_of(name);
        if let Some(value) = self.values.remove(name) {
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
        let variant = self.variant.into_iter();
        for field in variant.flat_map(|variant| self.description.fields_of(variant)) {
            let is_read = self.read.iter().any(|(name, _)| *name == field.name);
            assert!(is_read, "{} is read", field.name);
        }
    }

    /// A field of this variant, or else of any: several may have one of this name.
    fn field(&self, name: &str) -> &'static Field {
        let variant = self.variant.unwrap_or_default();
        let fields = || self.description.fields().filter(|field| field.name == name);
        let own = fields().find(|field| field.applies_to(variant)).or_else(|| fields().next());
        own.expect("the reader asks for described fields only")
    }
}

impl Table {
    /// Notes that a field exists nowhere, or in another variant only.
    fn judge(&self, name: &str, place: &Place, variant: Option<&'static str>, report: &mut Report) {
        let named = || self.fields().filter(|field| field.name == name);
        match variant {
            _ if named().next().is_none() => {
                let fits = |field: &&Field| variant.is_none_or(|it| field.applies_to(it));
                let known: Vec<_> = self.fields().filter(fits).map(|field| field.name).collect();
                report.unknown(place, name, &known);
            }
            Some(variant) if named().all(|field| !field.only.is_empty()) => {
                // An inner table's variants are those of the table around it.
                let noun = self.name.split('.').next().unwrap_or(self.name);
                let all: Vec<_> = named().flat_map(|field| field.only).copied().collect();
                let found = format_args!("a field of {} {noun}s", all.join(" and "));
                report.expected(place, found, format_args!("fields of {variant} {noun}s only"));
            }
            // Without a readable variant nobody can say which fields belong here.
            _ => {}
        }
    }
}

fn filled(text: &str, keys: &KeySources<'_>) -> Result<String, KeyError> {
    let mut parts = text.split("${");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Without its end it is no name.
        let (variable, rest) = part.split_once('}').unwrap_or_default();
        let held = keys.variable(variable, "one that ${…} stands for")?;
        whole.push_str(str::from_utf8(&held).unwrap_or_default());
        whole.push_str(rest);
    }
    Ok(whole)
}

fn path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| base.join(text))
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
