//! `tokens` of plain listeners: whose each token is, in the config itself or in files beside it.
//!
//! A token is never quoted: who knows it reaches a server by it.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

use toml::de::DeValue;

use super::Surroundings;
use crate::declare::{Declared, declare};
use crate::keys::{KeyError, open_closed, shape};
use crate::mistake::Report;
use crate::schema::Table;
use crate::section::{Node, Origin, Section, kind_of};
use crate::{RoutingTokens, values};

/// Every source is tried, so that all that is wrong is known. `bytes` is the length of a token and
/// `backends` are the listener's, where they could be read.
pub(super) fn read(
    section: &mut Section<'_, '_>,
    bytes: Option<usize>,
    backends: Option<&[usize]>,
    around: &Surroundings<'_>,
) -> Option<RoutingTokens> {
    let (nodes, origin) = (section.nodes("tokens")?, section.origin);
    let count = nodes.len();
    let mut reader = Reader {
        origin,
        bytes,
        backends,
        around,
        seen: HashMap::new(),
        tokens: Vec::with_capacity(count),
    };
    let mut good = 0;
    for (index, node) in nodes.into_iter().enumerate() {
        good += usize::from(reader.read(index, node, section.report).is_some());
    }
    (good == count).then_some(RoutingTokens(reader.tokens))
}

/// What tokens are checked against, and those that were read.
struct Reader<'s> {
    origin: Origin<'s>,
    bytes: Option<usize>,
    backends: Option<&'s [usize]>,
    around: &'s Surroundings<'s>,
    seen: HashMap<Box<[u8]>, Source>,
    tokens: Vec<(Box<[u8]>, usize)>,
}

/// Where a token was read.
#[derive(Clone, Copy)]
struct Source {
    /// In the list.
    index: usize,
    /// In the file, where it is one.
    line: Option<usize>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            None => write!(f, "tokens[{}]", self.index),
            Some(line) => write!(f, "tokens[{}], line {line}", self.index),
        }
    }
}

impl Reader<'_> {
    /// One element of the list; `None` where it is wrong, which was noted.
    fn read(&mut self, index: usize, node: Node<'_>, report: &mut Report) -> Option<()> {
        let Node { place, value } = node;
        let DeValue::Table(table) = value else {
            report.expected(&place, kind_of(&value), FORMS);
            return None;
        };
        let is_strange =
            table.keys().any(|key| Fields::FIELDS.iter().all(|field| field.name != key.get_ref()));
        let mut section = Section::new(report, self.origin, &SOURCE, place.clone(), table);
        let Found { hex, backend, file } = Fields::find(&mut section);
        let [at_hex, at_backend, at_file] =
            ["hex", "backend", "file"].map(|word| section.place(word));
        section.finish();
        let source = Source { index, line: None };
        match (hex?, backend?, file?) {
            _ if is_strange => None,
            (Some(hex), Some(backend), None) => {
                let token = self.token(&hex).map_err(|wrong| report.note(&at_hex, wrong));
                let backend =
                    self.backend(&backend).map_err(|wrong| report.note(&at_backend, wrong));
                let pushed = self.push(token.ok()?, backend.ok()?, source);
                pushed.map_err(|wrong| report.note(&at_hex, wrong)).ok()
            }
            (None, None, Some(file)) => {
                let path = self.origin.base.join(file);
                self.file(&path, index).map_err(|wrong| report.note(&at_file, wrong)).ok()
            }
            _ => {
                report.expected(&place, "another combination", FORMS);
                None
            }
        }
    }

    /// All tokens of a file, to the first that is wrong.
    fn file(&mut self, path: &Path, index: usize) -> Result<(), String> {
        let text = text_of(path).map_err(|error| error.to_string())?;
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (hex, backend) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(hex), Some(backend), None) => (hex, backend),
                _ => {
                    return Err(format!(
                        "line {number}: found another form, expected a token in hex and the name of a backend"
                    ));
                }
            };
            let source = Source { index, line: Some(number) };
            self.token(hex)
                .and_then(|token| self.push(token, self.backend(backend)?, source))
                .map_err(|wrong| format!("line {number}: {wrong}"))?;
        }
        Ok(())
    }

    fn token(&self, hex: &str) -> Result<Box<[u8]>, String> {
        let digits = self.bytes.map_or_else(
            || "pairs of hex digits".to_owned(),
            |bytes| format!("{} hex digits (token.bytes is {bytes})", 2 * bytes),
        );
        let token = values::bytes(hex, self.bytes.unwrap_or(usize::MAX));
        let fits = |token: &Vec<u8>| self.bytes.is_none_or(|bytes| token.len() == bytes);
        let token = token.filter(fits).map(Vec::into_boxed_slice);
        token.ok_or_else(|| format!("found {}, expected {digits}", shape(hex.as_bytes())))
    }

    /// The index of one of the listener's backends.
    fn backend(&self, name: &str) -> Result<usize, String> {
        match self.around.backends.find(name) {
            Some((index, _)) if self.backends.is_none_or(|all| all.contains(&index)) => Ok(index),
            Some(_) => Err(format!(
                "found {name:?}, which backends does not name, expected one of this listener's backends"
            )),
            None if self.around.backends.is_complete() => Err(self.around.backends.unknown(name)),
            // A name that could not be read may have been this one; that is a mistake of its own.
            None => Ok(0),
        }
    }

    fn push(&mut self, token: Box<[u8]>, backend: usize, source: Source) -> Result<(), String> {
        if self.tokens.len() == TOKENS_MAX {
            return Err(format!("found more tokens, expected at most {TOKENS_MAX}"));
        }
        if let Some(before) = self.seen.insert(token.clone(), source) {
            return Err(format!("found the token of {before} again, expected each token once"));
        }
        self.tokens.push((token, backend));
        Ok(())
    }
}

/// What a file says that nobody but its owner may read.
fn text_of(path: &Path) -> Result<String, KeyError> {
    const EXPECTED: &str = "lines of text, each a token in hex and the name of a backend";
    let file = open_closed(path)?;
    let mut text = String::new();
    match file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text) {
        Err(why) => Err(KeyError::new(format!("a file that cannot be read ({why})"), EXPECTED)),
        Ok(len) if len as u64 > FILE_BYTES_MAX => {
            Err(KeyError::new(format!("a file of more than {FILE_BYTES_MAX} bytes"), EXPECTED))
        }
        Ok(_) => Ok(text),
    }
}

declare! {
    /// What an element of the list may say.
    struct Fields {
        /// The token.
        hex: Option<String> = text("a token in hex", |text| Some(text.to_owned())), optional: "00", Reload;
        /// Whose it is.
        backend: Option<String> =
            text("the name of a [[backend]]", |text| Some(text.to_owned())), optional: "any-1", Reload;
        /// A file of such pairs.
        file: Option<String> =
            text("the path of a file", |text| Some(text.to_owned())), optional: "tokens", Reload;
    }
}

type Found = <Fields as Declared>::Found;

const SOURCE: Table = Table::inline("tokens", &[Fields::FIELDS]);

/// What each element of the list is.
pub(super) const FORMS: &str = "{ hex = …, backend = … } or { file = … }";

/// So many that a fleet of the size of a host has enough, and a wrong file does not fill memory.
const TOKENS_MAX: usize = 100_000;

/// All tokens at their longest, each with the longest name.
const FILE_BYTES_MAX: u64 = 16 << 20;
