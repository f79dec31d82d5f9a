//! Which parts of the crate a source file names: the heads of all `crate::…`, `super::…` and
//! `ringgate_…` paths in it.

use super::source::Source;

/// A path as far as the rules need it: `["buf", "Endpoint"]` for `crate::buf::Endpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) offset: usize,
    pub(crate) segments: Vec<String>,
}

/// Every path from the crate's root that the code of a file names, whether it says `crate` or
/// climbs there with `super`.
pub(crate) fn paths_in_crate(source: &Source) -> Vec<Named> {
    let code = source.shipped_code();
    let depth = module_of(&source.path).len();
    let mut paths = paths_after(&code, "crate::");
    // In an inline module the same climb ends one level lower, at an item of the part itself, which
    // no rule knows.
    let climb = "super::".repeat(depth.max(1));
    paths.extend(paths_after(&code, &climb));
    paths
}

/// Every path into another package of the workspace: `["gate", "Gate"]` for `ringgate_gate::Gate`.
pub(crate) fn paths_into_packages(source: &Source) -> Vec<Named> {
    paths_after(&source.shipped_code(), "ringgate_")
}

/// `["proto", "replay"]` for `crates/core/src/proto/replay.rs`; nothing for a crate's root.
pub(crate) fn module_of(path: &str) -> Vec<&str> {
    let inside = path.rsplit_once("src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs");
    if matches!(inside, "lib" | "main") { Vec::new() } else { inside.split('/').collect() }
}

/// Every path that begins with `head`, without it.
pub(crate) fn paths_after(code: &str, head: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices(head) {
        let before = &code[..start];
        let is_head = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        if is_head {
            let offset = start + head.len();
            let trees = use_tree(&mut code[offset..].chars().peekable());
            found.extend(trees.into_iter().map(|segments| Named { offset: start, segments }));
        }
    }
    found
}

/// Reads `a::b`, `{a, b::{c, d}}` and so on up to whatever ends it, and lists the paths it stands
/// for.
fn use_tree(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Vec<Vec<String>> {
    skip_space(rest);
    if rest.next_if_eq(&'{').is_some() {
        return use_group(rest);
    }
    let mut segment = String::new();
    while let Some(character) = rest.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '*')) {
        segment.push(character);
    }
    if segment.is_empty() {
        return Vec::new();
    }
    skip_space(rest);
    if rest.next_if_eq(&':').is_some() && rest.next_if_eq(&':').is_some() {
        let tails = use_tree(rest);
        if !tails.is_empty() {
            let join = |tail: Vec<String>| [vec![segment.clone()], tail].concat();
            return tails.into_iter().map(join).collect();
        }
    }
    vec![vec![segment]]
}

fn use_group(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    loop {
        paths.extend(use_tree(rest));
        // What is left of an item is at most ` as name`.
        match rest.find(|c| matches!(c, ',' | '}')) {
            Some(',') => {}
            _ => return paths,
        }
    }
}

fn skip_space(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, text: &str) -> Vec<String> {
        let paths = paths_in_crate(&Source::new(path, text));
        paths.into_iter().map(|named| named.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let text = "use crate::{a::{self, b as c,\n d::E}, f};\nuse crate::g::*;";
        assert_eq!(named("src/x.rs", text), ["a::self", "a::b", "a::d::E", "f", "g::*"]);
    }

    #[test]
    fn paths_within_code_and_macros_count_and_prose_does_not() {
        let text = "// crate::a\nfn x() { crate::b::c(\"crate::d\"); $crate::e!(); mycrate::f(); }";
        assert_eq!(named("src/x.rs", text), ["b::c", "e"]);
    }

    #[test]
    fn climbing_to_the_root_counts() {
        assert_eq!(named("src/a/b.rs", "use super::super::c::D;"), ["c::D"]);
        assert_eq!(named("src/a/b.rs", "use super::c::D;"), Vec::<String>::new());
    }

    #[test]
    fn modules_have_the_names_of_their_files() {
        assert_eq!(module_of("src/a/b.rs"), ["a", "b"]);
        assert_eq!(module_of("src/a.rs"), ["a"]);
        assert!(module_of("src/lib.rs").is_empty());
    }
}
