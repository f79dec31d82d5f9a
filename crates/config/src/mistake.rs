//! Mistakes in a config file, collected until the whole file has been looked at.
//!
//! A mistake names the line, the path of the field, what was found there and what is expected, in
//! one line of text that editors can jump by (`file:line:`). Key material is never quoted: the key
//! readers describe what they found by size.

use std::fmt;
use std::path::{Path, PathBuf};

use super::values;

/// One mistake. `Display` is the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line in the file, from 1.
    pub line: usize,
    /// Path of the field, such as `listener[0].keys[1].file`.
    pub field: String,
    /// What was found, and what is expected.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All mistakes of one file, in the order of its lines. `Display` gives one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    file: PathBuf,
    list: Vec<Mistake>,
}

impl Mistakes {
    /// The mistakes.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.list.iter()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.list.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{}: {mistake}", self.file.display(), mistake.line)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Where something stands: its path, and its offset in the text.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) at: usize,
}

impl Place {
    pub(super) fn new(path: impl Into<String>, at: usize) -> Self {
        Self { path: path.into(), at }
    }
}

/// Collects mistakes while a text is read.
pub(super) struct Report {
    /// Where lines of the text end.
    ends: Vec<usize>,
    found: Vec<(usize, Mistake)>,
}

impl Report {
    pub(super) fn new(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        Self { ends, found: Vec::new() }
    }

    /// Notes "found …, expected …".
    pub(super) fn expected(
        &mut self,
        place: &Place,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) {
        let (found, expected) = (found.to_string(), expected.to_string());
        let is_address = expected.starts_with("an IP:port");
        let odd = is_address.then(|| values::oddity(found.trim_matches('"'))).flatten();
        let odd = odd.map_or(String::new(), |odd| format!(" ({odd})"));
        self.note(place, format!("found {found}, expected {expected}{odd}"));
    }

    /// Notes a name that does not exist, with the nearest one that does, or else all of them.
    pub(super) fn unknown(&mut self, place: &Place, name: &str, known: &[&str]) {
        let message = match nearest(name, known.iter().copied()) {
            Some(near) => format!("found an unknown field, did you mean {near}?"),
            None => format!("found an unknown field, expected one of {}", known.join(", ")),
        };
        self.note(place, message);
    }

    /// Notes a mistake in free words.
    pub(super) fn note(&mut self, place: &Place, message: String) {
        let line = self.line(place.at);
        self.found.push((place.at, Mistake { line, field: place.path.clone(), message }));
    }

    /// The line of an offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|end| *end < at)
    }

    /// Takes back what was noted of where a secret comes from.
    pub(super) fn forgive(&mut self, secret: &str) -> Option<Mistake> {
        let is_of = |field: &str| field.strip_prefix(secret).is_some_and(|it| it.starts_with('.'));
        let at = self.found.iter().position(|(_, mistake)| is_of(&mistake.field))?;
        Some(self.found.remove(at).1)
    }

    pub(super) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// All that was noted, in the order of the text.
    pub(super) fn into_mistakes(mut self, file: &Path) -> Mistakes {
        assert!(!self.found.is_empty(), "a config is refused for a reason");
        self.found.sort_by_key(|(at, _)| *at);
        let list = self.found.into_iter().map(|(_, mistake)| mistake).collect();
        Mistakes { file: file.to_owned(), list }
    }
}

/// The known name that is most likely meant: at most one edit for each three letters away.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    known
        .map(|candidate| (edits(&plain, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in bytes.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (left, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[left + 1];
            row[left + 1] = replaced.min(diagonal + 1).min(row[left] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("same", "same"), 0);
    }

    #[test]
    fn the_nearest_name_wins_and_a_far_one_is_not_offered() {
        let known = ["max_sessions", "bind", "backends"];
        assert_eq!(nearest("max-session", known.into_iter()), Some("max_sessions"));
        assert_eq!(nearest("Bind", known.into_iter()), Some("bind"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }

    #[test]
    fn lines_count_from_one() {
        let report = Report::new("a\nb\nc");
        assert_eq!([0, 1, 2, 4].map(|at| report.line(at)), [1, 1, 2, 3]);
    }
}
