//! Which files of a crate import each other in a circle: code that does so can neither be read nor
//! moved one file at a time.
//!
//! An import is any path to another file of the crate: `crate::…`, `self::…`, `super::…`, or one
//! that begins with a child module. A path to what a file only re-exports is an import from where
//! that is defined, and a re-export alone imports nothing: what makes a circle is use. Nor does a
//! path that says how far an item is visible.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::paths::{Named, module_of, paths_after};
use super::source::{Source, Violation};

/// A circle for each file that is in one, by way of the fewest files: each circle once.
pub(crate) fn circles(sources: &[Source]) -> Vec<Violation> {
    let modules = Modules::new(sources);
    let imports = modules.imports();
    let mut seen = BTreeSet::new();
    let mut violations = Vec::new();
    for &start in imports.keys() {
        let Some(circle) = shortest_circle(&imports, start) else { continue };
        if seen.insert(circle.iter().copied().collect::<BTreeSet<_>>()) {
            let names: Vec<_> = circle.iter().map(|index| modules.name(*index)).collect();
            let message = format!("imports itself: {} ▶ {}", names.join(" ▶ "), names[0]);
            let offset = imports[&start][&circle[1]];
            violations.push(sources[start].violation(offset, message));
        }
    }
    violations
}

/// For each file the files it imports from, and where it does so first.
type Imports = BTreeMap<usize, BTreeMap<usize, usize>>;

/// The files of a crate by their module path; the root's is empty.
struct Modules<'a> {
    sources: &'a [Source],
    places: BTreeMap<Vec<String>, usize>,
    /// What each file re-exports: absolute paths, and whether the file itself uses the name.
    reexports: Vec<Vec<(Vec<String>, bool)>>,
}

impl<'a> Modules<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let shipped = sources.iter().enumerate().filter(|(_, source)| !source.is_unit_test());
        let places: BTreeMap<_, _> = shipped.map(|(index, it)| (path_of(it), index)).collect();
        let mut modules = Self { sources, places, reexports: Vec::new() };
        modules.reexports = sources.iter().map(|source| modules.reexports_of(source)).collect();
        modules
    }

    fn name(&self, index: usize) -> &str {
        let path = &self.sources[index].path;
        path.rsplit_once("src/").map_or(path, |(_, inside)| inside)
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for &index in self.places.values() {
            let targets = imports.entry(index).or_default();
            for (named, is_reexport) in self.paths(&self.sources[index]) {
                let is_used = self.reexports[index]
                    .iter()
                    .any(|(path, used)| *used && *path == named.segments);
                if is_reexport && !is_used {
                    continue;
                }
                if let Some(target) = self.home(&named.segments).filter(|it| *it != index) {
                    targets.entry(target).or_insert(named.offset);
                }
            }
        }
        imports
    }

    /// The file that defines what an absolute path leads to.
    fn home(&self, path: &[String]) -> Option<usize> {
        let mut ends = (0..=path.len()).rev();
        let (end, index) = ends.find_map(|end| Some((end, *self.places.get(&path[..end])?)))?;
        let Some(name) = path.get(end) else { return Some(index) };
        let further = self.reexports[index].iter().find(|(path, _)| path.last() == Some(name));
        further.map_or(Some(index), |(path, _)| self.home(path))
    }

    fn reexports_of(&self, source: &Source) -> Vec<(Vec<String>, bool)> {
        let code = source.shipped_code();
        let paths = self.paths(source).into_iter().filter(|(_, is_reexport)| *is_reexport);
        let named = paths.map(|(named, _)| {
            let is_used = named.segments.last().is_some_and(|name| words(&code, name) > 1);
            (named.segments, is_used)
        });
        named.collect()
    }

    /// Absolute paths into the crate, and whether they stand in a re-export.
    fn paths(&self, source: &Source) -> Vec<(Named, bool)> {
        let code = source.shipped_code();
        let own = path_of(source);
        let children = self
            .places
            .keys()
            .filter(|path| path.split_last().is_some_and(|(_, parent)| parent == own));
        let mut heads = vec![(String::from("crate::"), Vec::new())];
        heads.push((String::from("self::"), own.clone()));
        if let Some((_, parent)) = own.split_last() {
            heads.push((String::from("super::"), parent.to_vec()));
        }
        heads.extend(children.map(|child| (format!("{}::", child[own.len()]), child.clone())));
        let mut paths = Vec::new();
        for (head, base) in heads {
            for Named { offset, segments } in paths_after(&code, &head) {
                if code[..offset].ends_with("pub(in ") {
                    continue;
                }
                let is_reexport = stands_in_reexport(&code[..offset]);
                paths.push((Named { offset, segments: joined(&base, segments) }, is_reexport));
            }
        }
        paths
    }
}

fn path_of(source: &Source) -> Vec<String> {
    module_of(&source.path).into_iter().map(str::to_owned).collect()
}

/// The path behind a base, which each leading `super` shortens.
fn joined(base: &[String], segments: Vec<String>) -> Vec<String> {
    let climbs = segments.iter().take_while(|segment| *segment == "super").count();
    let kept = base[..base.len().saturating_sub(climbs)].iter().cloned();
    kept.chain(segments.into_iter().skip(climbs).filter(|segment| segment != "self")).collect()
}

/// Whether the item that the code ends in is a `pub use`.
fn stands_in_reexport(before: &str) -> bool {
    let item = before.rsplit([';', '}']).next().unwrap_or_default();
    let item = item.split_once("pub").map_or("", |(_, item)| item.trim_start());
    let visible = match item.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
        None => item,
    };
    visible.trim_start().starts_with("use ")
}

/// How often a word stands in the code.
fn words(code: &str, word: &str) -> usize {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|it| *it == word).count()
}

/// A shortest way from a file back to itself.
fn shortest_circle(imports: &Imports, start: usize) -> Option<Vec<usize>> {
    let mut came_from = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(at) = waiting.pop_front() {
        for &next in imports[&at].keys() {
            if next == start {
                return Some(way_to(at, start, &came_from));
            }
            came_from.entry(next).or_insert_with(|| {
                waiting.push_back(next);
                at
            });
        }
    }
    None
}

fn way_to(end: usize, start: usize, came_from: &BTreeMap<usize, usize>) -> Vec<usize> {
    let mut way = vec![end];
    while let Some(&last) = way.last().filter(|last| **last != start) {
        way.push(came_from[&last]);
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        circles(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_with_its_way_and_line() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c;"),
            ("x/src/a.rs", "//! A.\nuse crate::b::B;"),
            ("x/src/b.rs", "use super::{c::C};"),
            ("x/src/c.rs", "fn c() -> crate::a::A { b() }"),
        ];
        assert_eq!(found(&files), ["x/src/a.rs:2: imports itself: a.rs ▶ b.rs ▶ c.rs ▶ a.rs"]);
    }

    #[test]
    fn a_parent_and_its_child_that_use_each_other_are_a_circle() {
        for parent in ["mod b; use b::B;", "mod b; use self::b::B;", "mod b; fn a() { b::b(); }"] {
            let files = [("src/a.rs", parent), ("src/a/b.rs", "use super::A;")];
            assert_eq!(found(&files).len(), 1, "{parent}");
        }
    }

    #[test]
    fn a_reexport_is_an_import_only_where_its_file_uses_it() {
        let child = ("src/a/b.rs", "use super::c::C;");
        let sibling = ("src/a/c.rs", "pub struct C;");
        let facade = ("src/a.rs", "mod b; mod c; pub(crate) use self::{b::B, c::C}; pub struct A;");
        assert_eq!(found(&[facade, child, sibling]), Vec::<String>::new());
        let through_facade = ("src/a/b.rs", "use super::C;");
        assert_eq!(found(&[facade, through_facade, sibling]), Vec::<String>::new());
        let user = ("src/a.rs", "mod b; pub use self::b::B; pub struct A(B);");
        assert_eq!(found(&[user, ("src/a/b.rs", "use crate::a::A;")]).len(), 1);
    }

    #[test]
    fn how_far_an_item_is_visible_makes_no_circle() {
        let files =
            [("src/a.rs", "mod b; use b::B;"), ("src/a/b.rs", "pub(in crate::a) struct B;")];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn unit_tests_make_no_circle() {
        let files = [
            ("src/a.rs", "mod b; use b::B; #[cfg(test)]\nmod tests;"),
            ("src/a/b.rs", "#[cfg(test)] mod tests { use super::super::A; }"),
            ("src/a/tests.rs", "use super::A;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
