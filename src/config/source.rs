//! Where a secret comes from: `{ file = … }`, `{ env = … }`, `{ hex = … }` or `{ credential = … }`.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::keys::{KeyError, KeySources};
use super::mistake::{Place, Report};
use super::section::{Node, kind_of};
use super::{Token, keys, values};
use ringgate_core::secret::SharedKey;

/// A secret that has such a source.
pub(super) trait Secret: Sized {
    /// From a file that is closed to others.
    fn of_file(path: &Path) -> Result<Self, KeyError>;
    /// From an environment variable.
    fn of_environment(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError>;
    /// The one that is written in the config itself.
    fn of_hex(text: &str) -> Result<Self, KeyError>;
    /// From a credential of the service.
    fn of_credential(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError>;
}

impl Secret for SharedKey {
    fn of_file(path: &Path) -> Result<Self, KeyError> {
        keys::file(path)
    }

    fn of_environment(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        sources.environment(name)
    }

    fn of_hex(text: &str) -> Result<Self, KeyError> {
        keys::hex(text)
    }

    fn of_credential(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        sources.credential(name)
    }
}

impl Secret for Token {
    fn of_file(path: &Path) -> Result<Self, KeyError> {
        Self::file(path)
    }

    fn of_environment(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        Self::text(&sources.variable(name, "one that holds the token")?)
    }

    fn of_hex(text: &str) -> Result<Self, KeyError> {
        Self::hex(text)
    }

    fn of_credential(sources: &KeySources<'_>, name: &str) -> Result<Self, KeyError> {
        Self::opened(&mut sources.open_credential(name)?)
    }
}

/// Reads the secret that a field describes; relative paths start at `base`.
pub(super) fn read<S: Secret>(
    node: Node<'_>,
    sources: &KeySources<'_>,
    base: &Path,
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
    let secret = match source {
        Source::File => S::of_file(&base.join(text)),
        Source::Env => S::of_environment(sources, text),
        Source::Hex => S::of_hex(text),
        Source::Credential => S::of_credential(sources, text),
    };
    secret.map_err(|error| report.note(&place, error.to_string())).ok()
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

/// Where one secret comes from.
#[derive(Clone, Copy)]
enum Source {
    Credential,
    Env,
    File,
    Hex,
}

impl values::Word for Source {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("file", Self::File),
        ("env", Self::Env),
        ("hex", Self::Hex),
        ("credential", Self::Credential),
    ];
}

const FORMS: &str = "exactly one of { file = … }, { env = … }, { hex = … } and { credential = … }";
