//! What a field of the config file is described by.
//!
//! The rows are made of declarations (`declare`), which stand beside the code that reads their
//! table. The reader (`section`) takes from a row what a field accepts and what it is when absent,
//! and uses these same texts in its messages; `explain` prints the tables; a reload takes from here
//! which fields it may change. A field that is read by hand and was forgotten fails an assertion in
//! the reader, and every parse runs it.
//!
//! Left out: conditions between fields (a route that needs one backend, a name that must exist).
//! They stand next to the code that reads the table in question.

use std::fmt;

use super::agent::AGENT;
use super::backend::BACKEND;
use super::cluster::CLUSTER;
use super::fleet::FLEET;
use super::gateway::{ADMIN, GATEWAY, HISTOGRAMS};
use super::listener::{LIMITS, LISTENER, XDP};
use super::values::{Word, worded};
use ringgate_core::limits::WORKERS_MAX;
use ringgate_gate::Front;

/// One table of the file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Whether it is written `[[name]]`, any number of times.
    pub(super) repeated: bool,
    pub(super) meaning: &'static str,
    /// Its fields, of each structure that is declared for it.
    pub(super) parts: &'static [&'static [Field]],
    /// What `explain` shows: for each variant, the values of the fields that have no default.
    pub(super) examples: &'static [Example],
}

/// One table as `explain` shows it. A field is explained in the first that has it.
#[derive(Debug)]
pub(super) struct Example {
    /// Selects the fields of this variant only.
    pub(super) variant: &'static str,
    pub(super) values: &'static [(&'static str, &'static str)],
}

/// An example whose values are written as in a file.
macro_rules! example {
    ($variant:literal: $($field:ident = $value:tt),*) => {
        $crate::schema::Example {
            variant: $variant,
            values: &[$((stringify!($field), stringify!($value))),*],
        }
    };
}
pub(super) use example;

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// What it is called in the file.
    pub name: &'static str,
    /// What it takes to change it.
    pub changes: Changes,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
    /// The variants of the table that have this field, such as `netcode`; empty for all.
    pub(super) only: &'static [&'static str],
    pub(super) meaning: &'static str,
}

/// What a field accepts. `Display` is the text after "expected".
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of the words of a type.
    Choice(fn() -> Vec<&'static str>),
    /// A whole number in this range.
    Integer { min: u64, max: u64 },
    /// A duration in this range.
    Duration { min: &'static str, max: &'static str },
    /// A path of at most so many bytes.
    Path { bytes_max: usize },
    /// Anything else that is one value.
    Value(&'static str),
    /// One or more values.
    List { items: &'static str, item: &'static str },
    /// A table inside of the table, written `[outer.name]`.
    Table(&'static Table),
}

/// What an absent field means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Presence {
    /// A mistake.
    Required,
    /// The same as this TOML value.
    Default(&'static str),
    /// Something of its own; this is an example of a present one.
    Optional(&'static str),
}

/// What it takes to change a field of a gateway that runs. `Display` is the text after "Changes:".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// A reload changes it, and no player notices.
    Reload,
    /// A reload changes it, with this restriction.
    ReloadBut(&'static str),
    /// It is decided at the start; a reload that would change it is refused.
    Restart,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reload => f.write_str("with a reload"),
            Self::ReloadBut(restriction) => write!(f, "with a reload; {restriction}"),
            Self::Restart => f.write_str("with a restart"),
        }
    }
}

/// Every field, by table and name, and what it takes to change it.
pub fn changes() -> impl Iterator<Item = (&'static str, &'static str, Changes)> {
    let tables = TABLES.iter().copied().chain([&LIMITS, &XDP]);
    tables.flat_map(|table| table.fields().map(|it| (table.name, it.name, it.changes)))
}

impl Table {
    /// A table that may be left out, and whose fields have defaults.
    pub(super) const fn new(
        name: &'static str,
        meaning: &'static str,
        parts: &'static [&'static [Field]],
    ) -> Self {
        let examples = &[Example { variant: "", values: &[] }];
        Self { name, repeated: false, meaning, parts, examples }
    }

    /// A table inside of a field, which is explained with it.
    pub(super) const fn inline(name: &'static str, parts: &'static [&'static [Field]]) -> Self {
        Self::new(name, "", parts)
    }

    /// All fields, in the order in which they are explained.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        self.parts.iter().copied().flatten()
    }

    /// The fields of a variant.
    pub(super) fn fields_of(&self, variant: &str) -> impl Iterator<Item = &'static Field> {
        self.fields().filter(move |field| field.applies_to(variant))
    }
}

impl Field {
    /// Whether a table of this variant may have the field.
    pub(super) fn applies_to(&self, variant: &str) -> bool {
        self.only.is_empty() || self.only.contains(&variant)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("true or false"),
            Self::Choice(words) => write!(f, "{}", OneOf(&words())),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Duration { min, max } => {
                write!(f, "a duration from \"{min}\" to \"{max}\" (units us, ms, s, m, h)")
            }
            Self::Path { bytes_max } => write!(f, "a path of at most {bytes_max} bytes"),
            Self::Value(text) => f.write_str(text),
            Self::List { items, item } => write!(f, "a list of one or more {items}, each {item}"),
            Self::Table(table) => write!(f, "one table [{}]", table.name),
        }
    }
}

/// `"a", "b" or "c"`.
struct OneOf<'a>(&'a [&'a str]);

impl fmt::Display for OneOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            let separator = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}\"{word}\"")?;
        }
        Ok(())
    }
}

/// What a listener may speak. The words select the variant of its table.
impl Word for Front {
    const WORDS: &'static [(&'static str, Self)] = &{
        let mut words = [("", Self::ALL[0]); Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = (Self::ALL[at].word(), Self::ALL[at]);
            at += 1;
        }
        words
    };
}

worded! {
    /// How a backend may be reached. The words select the variant of its table.
    pub(super) enum LinkWord {
        Udp = "udp",
        Bundle = "bundle",
    }
}

/// What is told by a log.
pub(super) const LEVELS: &str = "off, error, warn, info, debug or trace, or PART=LEVEL such as \"info,ringgate::control=debug\"";
pub(super) const FLEET_NAME: &str =
    "a name of 1 to 64 letters, digits, '.', '_' or '-' that begins with a letter or a digit";
/// The key of a trunk's certificate.
pub(super) const TRUNK_KEY: &str =
    "the path of a file in PEM that is closed to group and others, or { credential = … }";
pub(super) const NAME: &str = "a name of 1 to 31 letters, digits, '.', '_' or '-'";
pub(super) const REACHABLE: &str = "an IP:port that can be sent to (no wildcard, no port 0)";
pub(super) const IDS: &str = "a number from 0 to 4294967294";

/// `worker-127.sock`, its slash and the final NUL must fit the 108 bytes of a Unix socket address
/// with the directory.
pub(super) const RUN_DIR_BYTES_MAX: usize = 108 - "/worker-127.sock\0".len();
const _: () = assert!(WORKERS_MAX <= 128);

/// `PATH_MAX` is 4096; the file's own name needs some of it.
pub(super) const DIR_BYTES_MAX: usize = 3800;

/// All tables, in the order in which they are explained.
pub(super) const TABLES: &[&Table] =
    &[&GATEWAY, &LISTENER, &BACKEND, &AGENT, &FLEET, &CLUSTER, &ADMIN, &HISTOGRAMS];
