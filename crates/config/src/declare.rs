//! How a field of the file is declared: once, with everything that there is to say of it.
//!
//! [`declare!`] makes of it the row of the schema (which `explain` prints and mistakes quote), the
//! reader, the member of the structure that a config consists of, and the comparison by which a
//! reload knows what differs. A declaration looks like this:
//!
//! ```text
//! declare! {
//!     /// What the structure is.
//!     pub struct Histograms {
//!         /// What the field means, as the explanation has it and as the member's documentation.
//!         interval: Duration = duration("1s", "1h"), default: "10s", Restart;
//!     }
//! }
//! ```
//!
//! Behind `=` stands what the field accepts (the forms are the arms of [`kind!`] and [`read!`]);
//! then what an absent one means: `required`, `default:` with a TOML value, or `optional:` with an
//! example; then what it takes to change it ([`Changes`](super::schema::Changes)). `only` names the
//! variants of a table that have the field, in a field or for a whole structure; elsewhere the
//! member has the default of its type. A field whose form is `by_hand` is read by the code beside
//! the declaration; `beside` has members that are no fields.

use super::schema::Field;
use super::section::Section;

/// A structure whose members are fields of the file.
pub(super) trait Declared: Sized {
    /// The same members, as far as they could be read.
    type Found;
    /// Its fields, in the order in which they are explained.
    const FIELDS: &'static [Field];
    /// Reads all fields but those that are read by hand.
    fn find(section: &mut Section<'_, '_>) -> Self::Found;
    /// The structure, where every member is there. What is missing was noted.
    fn whole(found: Self::Found) -> Option<Self>;

    /// Reads and finishes a section that has no more than these fields.
    fn read(mut section: Section<'_, '_>) -> Option<Self> {
        let found = Self::find(&mut section);
        section.finish();
        Self::whole(found)
    }
}

/// A structure of two configs, which may differ.
pub trait Compared {
    /// The fields in which they do. `judge` may say of some by their names whether they differ.
    fn differences_by(
        &self,
        other: &Self,
        judge: impl Fn(&str) -> Option<bool>,
    ) -> Vec<&'static Field>;

    /// The fields in which they do.
    fn differences(&self, other: &Self) -> Vec<&'static Field> {
        self.differences_by(other, |_| None)
    }
}

/// Where the table is new or gone, it is its first field that differs.
impl<T: Declared + Compared> Compared for Option<T> {
    fn differences_by(
        &self,
        other: &Self,
        judge: impl Fn(&str) -> Option<bool>,
    ) -> Vec<&'static Field> {
        match (self, other) {
            (Some(one), Some(other)) => one.differences_by(other, judge),
            (None, None) => Vec::new(),
            _ => T::FIELDS.iter().take(1).collect(),
        }
    }
}

macro_rules! declare {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $Struct:ident $(only $variants:tt)? {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident: $type:ty = $form:ident $(($($argument:expr),+ $(,)?))?,
                $presence:ident $(: $sample:tt)?, $changes:ident $(($but:literal))?
                $(, only $only:tt)?;
            )*
        }
        $(beside { $($(#[$more_attribute:meta])* $more:ident: $more_type:ty,)+ })?
    ) => {
        $(#[$attribute])*
        #[allow(
            rustdoc::broken_intra_doc_links,
            reason = "an explanation is written for operators, whose tables stand in brackets"
        )]
        $vis struct $Struct {
            $(#[doc = concat!($($meaning),+)] $vis $field: $type,)*
            $($($(#[$more_attribute])* $vis $more: $more_type,)+)?
        }

        const _: () = {
            use $crate::declare::{Compared, Declared};
            use $crate::schema::{Changes, Field};
            use $crate::section::Section;

            #[doc = concat!("[`", stringify!($Struct), "`], as far as it could be read.")]
            pub(in crate) struct Found {
                $(pub(in crate) $field: Option<$type>,)*
                $($(pub(in crate) $more: Option<$more_type>,)+)?
            }

            const ONLY: &[&str] = $crate::declare::only!([] $($variants)?);

            impl Declared for $Struct {
                type Found = Found;

                const FIELDS: &'static [Field] = &[$(Field {
                    name: stringify!($field),
                    changes: Changes::$changes $(($but))?,
                    kind: $crate::declare::kind!($form $(($($argument),+))?, $type),
                    presence: $crate::declare::presence!($presence $($sample)?),
                    only: $crate::declare::only!(ONLY $($only)?),
                    meaning: concat!($($meaning),+),
                },)*];

                fn find(section: &mut Section<'_, '_>) -> Found {
                    Found {
                        $($field: $crate::declare::read!(
                            $(only $only,)? section, stringify!($field), $presence, $form $(($($argument),+))?
                        ),)*
                        $($($more: None,)+)?
                    }
                }

                fn whole(found: Found) -> Option<Self> {
                    Some(Self { $($field: found.$field?,)* $($($more: found.$more?,)+)? })
                }
            }

            impl Compared for $Struct {
                fn differences_by(
                    &self,
                    other: &Self,
                    judge: impl Fn(&str) -> Option<bool>,
                ) -> Vec<&'static Field> {
                    let differ = [$(self.$field != other.$field),*];
                    let fields = Self::FIELDS.iter().zip(differ);
                    let found = fields.filter(|(it, differ)| judge(it.name).unwrap_or(*differ));
                    found.map(|(field, _)| field).collect()
                }
            }
        };
    };
}

/// What a form accepts, as the schema has it.
macro_rules! kind {
    (flag, $type:ty) => {
        $crate::schema::Kind::Flag
    };
    (word, $type:ty) => {
        $crate::schema::Kind::Choice($crate::values::words::<$type>)
    };
    (integer($min:expr, $max:expr $(, $read:expr)?), $type:ty) => {
        $crate::schema::Kind::Integer { min: $min, max: $max }
    };
    (duration($min:expr, $max:expr), $type:ty) => {
        $crate::schema::Kind::Duration { min: $min, max: $max }
    };
    (path($bytes_max:expr), $type:ty) => {
        $crate::schema::Kind::Path { bytes_max: $bytes_max }
    };
    (list($items:expr, $item:expr, $read:expr), $type:ty) => {
        $crate::schema::Kind::List { items: $items, item: $item }
    };
    (set($items:expr, $item:expr, $read:expr, $shown:expr), $type:ty) => {
        $crate::declare::kind!(list($items, $item, $read), $type)
    };
    (inline($expected:expr, $table:expr), $type:ty) => {
        $crate::schema::Kind::Value($expected)
    };
    (by_hand($kind:expr), $type:ty) => {
        $kind
    };
    (custom($kind:expr, $read:expr), $type:ty) => {
        $kind
    };
    // `text`, `value`, `file`, `secret`: what is expected stands first.
    ($form:ident($expected:expr $(, $read:expr)?), $type:ty) => {
        $crate::schema::Kind::Value($expected)
    };
}

/// What an absent field means, as the schema has it.
macro_rules! presence {
    (required) => {
        $crate::schema::Presence::Required
    };
    (default $value:tt) => {
        $crate::schema::Presence::Default(stringify!($value))
    };
    (optional $example:tt) => {
        $crate::schema::Presence::Optional(stringify!($example))
    };
}

/// The variants that have a field: its own, or else those of all fields around it.
macro_rules! only {
    ([]) => {
        &[]
    };
    (ONLY) => {
        ONLY
    };
    ($all:tt $own:tt) => {
        &$own
    };
}

/// Reads a field. An absent optional list is empty, and any other absent optional field `None`.
macro_rules! read {
    (only $only:tt, $section:ident, $name:expr, $($how:tt)+) => {
        if $section.lacks($name) { Some(Default::default()) } else { $crate::declare::read!($section, $name, $($how)+) }
    };
    ($section:ident, $name:expr, $presence:ident, by_hand($kind:expr)) => { None };
    ($section:ident, $name:expr, $presence:ident, custom($kind:expr, $read:expr)) => { $read($section, $name) };
    ($section:ident, $name:expr, $presence:ident, list($items:expr, $item:expr, $read:expr)) => {
        $section.list($name, $read)
    };
    ($section:ident, $name:expr, $presence:ident, set($items:expr, $item:expr, $read:expr, $shown:expr)) => {
        $section.set($name, $read, $shown)
    };
    ($section:ident, $name:expr, optional, inline($expected:expr, $table:expr)) => {
        $section.optional_inner($name, $table)
    };
    ($section:ident, $name:expr, optional, $($form:tt)+) => {
        if $section.is_absent($name) { Some(None) } else { $crate::declare::read!($section, $name, required, $($form)+).map(Some) }
    };
    ($section:ident, $name:expr, $presence:ident, flag) => { $section.flag($name) };
    ($section:ident, $name:expr, $presence:ident, word) => { $section.word($name) };
    ($section:ident, $name:expr, $presence:ident, integer($min:expr, $max:expr)) => { $section.integer($name) };
    ($section:ident, $name:expr, $presence:ident, integer($min:expr, $max:expr, $read:expr)) => {
        $section.integer($name).map($read)
    };
    ($section:ident, $name:expr, $presence:ident, duration($min:expr, $max:expr)) => { $section.duration($name) };
    ($section:ident, $name:expr, $presence:ident, path($bytes_max:expr)) => { $section.path($name) };
    ($section:ident, $name:expr, $presence:ident, file($expected:expr)) => { $section.file($name) };
    ($section:ident, $name:expr, $presence:ident, text($expected:expr, $read:expr)) => {
        $section.text($name, $read).map(|(value, _)| value)
    };
    ($section:ident, $name:expr, $presence:ident, value($expected:expr, $read:expr)) => {
        $section.value($name, $read).map(|(value, _)| value)
    };
    ($section:ident, $name:expr, $presence:ident, secret($expected:expr)) => { $section.secret($name) };
}

pub(super) use {declare, kind, only, presence, read};

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;
    use crate::keys::KeySources;
    use crate::read::Document;
    use crate::schema::{Changes, Table};
    use crate::{LogFormat, values};

    declare! {
        /// One field of each form.
        #[derive(Clone, Debug)]
        struct Sample {
            /// A flag
            /// of two lines.
            flag: bool = flag, default: true, Restart;
            /// A word.
            word: LogFormat = word, default: "human", ReloadBut("for later lines");
            /// A number.
            number: u8 = integer(1, 9), required, Reload;
            /// A number that is made something else of.
            half: u64 = integer(0, 100, |number: u64| number / 2), default: 8, Reload;
            /// A time.
            time: Duration = duration("1s", "1m"), default: "2s", Reload;
            /// A path.
            path: PathBuf = path(20), default: "here", Restart;
            /// Text.
            text: Option<String> = text("a user's name", values::user), optional: "anna", Reload;
            /// A set.
            set: Vec<SocketAddr> = set(
                "addresses", "an address", |value| values::address(value.as_str()?), Clone::clone
            ), optional: ["127.0.0.1:1"], Reload;
            /// What only one variant has.
            own: u8 = integer(1, 9), default: 3, Reload, only ["one"];
        }
        beside {
            /// No field.
            more: u8,
        }
    }

    const SAMPLE: Table = Table::new("sample", "", &[Sample::FIELDS]);

    fn read(text: &str) -> Result<Sample, Vec<String>> {
        let keys = KeySources::new(&|_| None, None);
        let document = Document::new(text, Path::new("/etc/s.toml"), &keys);
        let read = document.read(&[&SAMPLE], |document| {
            let mut section = document.table(&SAMPLE)?;
            let mut found = Sample::find(&mut section);
            found.more = Some(7);
            section.finish();
            Sample::whole(found)
        });
        read.map_err(|all| all.iter().map(|it| format!("{}: {}", it.field, it.message)).collect())
    }

    #[test]
    fn a_declaration_is_row_reader_and_member() {
        let sample = read("[sample]\nnumber = 4\n").expect("the rest has defaults");
        assert!(sample.flag && sample.word == LogFormat::Human && sample.text.is_none());
        assert_eq!((sample.number, sample.half, sample.more), (4, 4, 7));
        assert_eq!((sample.time, sample.set.len()), (Duration::from_secs(2), 0));
        assert_eq!(sample.path, Path::new("/etc/here"));
        // The table has no variants, so this one has no such field.
        assert_eq!(sample.own, 0);
        let [flag, word, ..] = Sample::FIELDS else { panic!("there are more") };
        assert_eq!((flag.name, flag.meaning), ("flag", " A flag of two lines."));
        assert_eq!(
            (flag.changes, word.changes),
            (Changes::Restart, Changes::ReloadBut("for later lines"))
        );
        assert_eq!(word.kind.to_string(), "\"human\" or \"json\"");
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let text = "[sample]\nflag = 1\nword = \"loud\"\ntime = \"2m\"\nset = [\"127.0.0.1:1\", \"127.0.0.1:1\"]\n\
                    numbr = 4\nown = 1\n";
        let said = read(text).expect_err("much of it is wrong");
        let begins = [
            "sample.number: found nothing, expected a whole number from 1 to 9",
            "sample.flag: found 1, expected true or false",
            "sample.word: found \"loud\", expected \"human\" or \"json\"",
            "sample.time: found \"2m\", expected a duration from",
            "sample.set[1]: found 127.0.0.1:1 again, expected it once (line 5 has it)",
            "sample.numbr: found an unknown field, did you mean number?",
            "sample.own: found a field of one samples",
        ];
        assert_eq!(said.len(), begins.len(), "{said:#?}");
        assert!(said.iter().zip(begins).all(|(said, begin)| said.starts_with(begin)), "{said:#?}");
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let before = read("[sample]\nnumber = 4\n").expect("fine");
        let names = |other: &Sample| -> Vec<_> {
            before.differences(other).into_iter().map(|field| field.name).collect()
        };
        assert_eq!(names(&before), [""; 0]);
        let changed = [
            "flag = false",
            "word = \"json\"",
            "number = 5",
            "half = 9",
            "half = 20",
            "time = \"3s\"",
            "path = \"/x\"",
            "text = \"a\"",
            "set = [\"127.0.0.1:2\"]",
        ];
        for line in changed {
            let number = if line.starts_with("number") { "" } else { "number = 4\n" };
            let after = read(&format!("[sample]\n{number}{line}\n")).expect(line);
            let name = line.split(' ').next().expect("a name");
            let expected = if line == "half = 9" { vec![] } else { vec![name] };
            assert_eq!(names(&after), expected, "{line}");
        }
        let judged = before.differences_by(&before, |field| (field == "own").then_some(true));
        assert_eq!(judged.len(), 1);
        assert_eq!(Some(before.clone()).differences(&None)[0].name, "flag");
    }
}
