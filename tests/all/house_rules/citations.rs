//! Files that code comments and documents send their reader to: they must be there.

use std::path::Path;

use super::source::{Source, Violation};

/// Every path of a file of ours that the text names, unless `exists` knows it.
pub(crate) fn dead_citations(source: &Source, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let missing = |(_, path): &(usize, &str)| !exists(path);
    cited_paths(&source.text)
        .filter(missing)
        .map(|(offset, path)| source.violation(offset, format!("`{path}` is not there")))
        .collect()
}

/// Whether a path leads somewhere, from the workspace's root.
pub(crate) fn is_there(path: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists()
}

/// Words that begin with one of our folders and end like a file. A word with a `*` or a placeholder
/// in capitals is a pattern.
fn cited_paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-*".contains(c);
    FOLDERS.iter().flat_map(move |folder| {
        text.match_indices(folder).filter_map(move |(start, _)| {
            let begins = !text[..start].ends_with(is_part);
            let rest = &text[start..];
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let path = rest[..length].trim_end_matches('.');
            let ends = ENDINGS.iter().any(|ending| path.ends_with(ending));
            (begins && ends && !path.contains('*')).then_some((start, path))
        })
    })
}

const FOLDERS: &[&str] = &[
    "benches/",
    "crates/",
    "docs/",
    "examples/",
    "fuzz/",
    "include/",
    "loadgen/",
    "src/",
    "tests/",
    "tuning/",
];
const ENDINGS: &[&str] = &[".c", ".csv", ".h", ".json", ".md", ".rs", ".service", ".toml"];

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(text: &str) -> Vec<String> {
        let exists = |path: &str| path == "docs/HERE.md";
        let source = Source::new("a.rs", text);
        dead_citations(&source, exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_that_is_gone_is_found_with_its_line() {
        let text = "// See docs/HERE.md.\n// See docs/GONE.md, or (benches/gone.rs).";
        assert_eq!(
            dead(text),
            ["a.rs:2: `benches/gone.rs` is not there", "a.rs:2: `docs/GONE.md` is not there"]
        );
    }

    #[test]
    fn folders_patterns_and_longer_paths_are_left_alone() {
        let text = "docs/ src/crypto/*.rs /etc/docs/x.md ../../tests/x.rs https://a.b/docs/x.md";
        assert_eq!(dead(text), Vec::<String>::new());
    }
}
