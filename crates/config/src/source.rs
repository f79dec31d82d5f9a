//! Where a secret comes from: `{ file = … }`, `{ env = … }`, `{ hex = … }` or `{ credential = … }`.

use std::fs::File;

use toml::de::{DeTable, DeValue};

use super::keys::KeyError;
use super::mistake::{Place, Report};
use super::section::{Node, Origin, kind_of};
use super::{Token, keys, values};
use ringgate_core::secret::SharedKey;

/// A secret that has such a source.
pub(super) trait Secret: Sized {
    /// What an environment variable has to be.
    const VARIABLE: &str;
    /// From a file, of an operator who has closed it to others, or of the service manager.
    fn opened(file: &mut File) -> Result<Self, KeyError>;
    /// From what an environment variable holds.
    fn text(bytes: &[u8]) -> Result<Self, KeyError>;
    /// The one that is written in the config itself.
    fn hex(text: &str) -> Result<Self, KeyError>;
}

impl Secret for SharedKey {
    const VARIABLE: &str = "one that holds 64 hex digits";

    fn opened(file: &mut File) -> Result<Self, KeyError> {
        keys::key_in(file)
    }

    fn text(bytes: &[u8]) -> Result<Self, KeyError> {
        keys::hex(str::from_utf8(bytes).unwrap_or_default())
    }

    fn hex(text: &str) -> Result<Self, KeyError> {
        keys::hex(text)
    }
}

impl Secret for Token {
    const VARIABLE: &str = "one that holds the token";

    fn opened(file: &mut File) -> Result<Self, KeyError> {
        Self::opened(file)
    }

    fn text(bytes: &[u8]) -> Result<Self, KeyError> {
        Self::text(bytes)
    }

    fn hex(text: &str) -> Result<Self, KeyError> {
        Self::hex(text)
    }
}

/// Reads the secret that a field describes.
pub(super) fn read<S: Secret>(
    node: Node<'_>,
    Origin { base, keys: sources }: Origin<'_>,
    report: &mut Report,
) -> Option<S> {
    let DeValue::Table(table) = node.value else {
        report.expected(&node.place, kind_of(&node.value), FORMS);
        return None;
    };
    let (source, value, place) = source(&table, &node.place, report)?;
    let Some(text) = value.as_str() else {
        report.expected(&place, kind_of(value), "a string");
        return None;
    };
    let read = || match source {
        Source::File => S::opened(&mut keys::open_closed(&base.join(text))?),
        Source::Env => S::text(&sources.variable(text, S::VARIABLE)?),
        Source::Hex => S::hex(text),
        Source::Credential => S::opened(&mut sources.open_credential(text)?),
    };
    read().map_err(|error| report.note(&place, error.to_string())).ok()
}

/// The only entry of a secret's table.
fn source<'v>(
    table: &'v DeTable<'v>,
    place: &Place,
    report: &mut Report,
) -> Option<(Source, &'v DeValue<'v>, Place)> {
    let mut sources = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let path = format!("{}.{name}", place.path);
        if let Some(source) = values::word(name) {
            sources.push((source, value.get_ref(), Place::new(path, value.span().start)));
        } else {
            let place = Place::new(path, key.span().start);
            report.unknown(&place, name, &values::words::<Source>());
        }
    }
    if sources.len() > 1 || table.is_empty() {
        report.expected(place, format_args!("{} sources of one key", sources.len()), FORMS);
        return None;
    }
    sources.pop()
}

values::worded! {
    /// Where one secret comes from.
    enum Source {
        File = "file",
        Env = "env",
        Hex = "hex",
        Credential = "credential",
    }
}

/// What such a field accepts.
pub(super) const FORMS: &str =
    "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }";
