//! The rules that hold this code together, held by a program: which part may use which, where
//! unsafe code may stand, and what no file may contain. Every rule is also shown a bad sample,
//! because a rule that cannot fail holds nothing.

#[path = "house_rules/anchors.rs"]
mod anchors;
#[path = "house_rules/circles.rs"]
mod circles;
#[path = "house_rules/citations.rs"]
mod citations;
#[path = "house_rules/columns.rs"]
mod columns;
#[path = "house_rules/lacking.rs"]
mod lacking;
#[path = "house_rules/paths.rs"]
mod paths;
#[path = "house_rules/sentences.rs"]
mod sentences;
#[path = "house_rules/source.rs"]
mod source;

use std::path::Path;
use std::process::Command;

use anchors::dead_links;
use circles::circles;
use citations::{dead_citations, is_there};
use columns::wide_prose;
use paths::{Named, module_of, paths_in_crate, paths_into_packages};
use sentences::words_at_p90;
use source::{Source, Violation};

/// Which packages of the workspace each package needs, tests and benches aside. What is not here
/// cannot be named at all: the compiler holds it.
#[rustfmt::skip]
const NEEDS: &[(&str, &str)] = &[
    ("crates/batch", "core"),
    ("crates/bots", "core link"),
    ("crates/client", "core"),
    ("crates/client-c", "client core"),
    ("crates/cluster", "core"),
    ("crates/commands", "config core fleet gate io os process report state trunk"),
    ("crates/config", "core fleet gate io os process tokens trunk"),
    ("crates/core", ""),
    ("crates/fleet", "core os"),
    ("crates/gate", "batch cluster core link"),
    ("crates/io", "batch core os xdp"),
    ("crates/link", "os"),
    ("crates/os", ""),
    ("crates/process", "core os report"),
    ("crates/report", ""),
    ("crates/state", "gate os"),
    ("crates/testkit", "batch bots core gate impair link"),
    ("crates/tokens", "core fleet os process report"),
    ("crates/trunk", "batch cluster core io link os"),
    ("crates/worker", "batch core gate io os process trunk"),
    ("crates/xdp", "batch os"),
    ("loadgen", "batch bots client core impair io link os process report"),
    ("loadgen/impair", ""),
];

/// What each part of the daemon, the core and the load generator may name of other parts and
/// packages, and some packages as a whole. A longer path allows only what lies below it.
///
/// Drivers and gates meet in `worker` alone; leaves know nobody.
#[rustfmt::skip]
const MAY_USE: &[(&str, &str)] = &[
    ("crates/config/src", "core fleet gate::Front gate::Intake gate::Route gate::TokenPlace gate::TokenReuse io::CardMode io::Choice io::socket::overlap os::host os::processor process::levels process::logging::LogFormat tokens::Scope trunk::agent::options trunk::protocol::tls trunk::socket::provider"),
    ("crates/core/src/carry", ""),
    ("crates/core/src/crypto", "limits secret"),
    ("crates/core/src/delivery", "carry drops limits proto"),
    ("crates/core/src/drops", ""),
    ("crates/core/src/endpoint", "carry"),
    ("crates/core/src/limits", ""),
    ("crates/core/src/lists", ""),
    ("crates/core/src/netcode", "crypto drops limits proto secret"),
    ("crates/core/src/proto", "carry drops endpoint limits secret splitmix"),
    ("crates/core/src/secret", "carry"),
    ("crates/core/src/splitmix", ""),
    ("crates/core/src/sync", ""),
    ("crates/trunk/src/agent", "batch core io link os protocol socket"),
    ("crates/trunk/src/gateway", "core io::socket::overlap link os protocol socket worker"),
    ("crates/trunk/src/peers", "agent cluster core gateway io link os protocol socket"),
    ("crates/trunk/src/protocol", "core link"),
    ("crates/trunk/src/socket", "core link os protocol"),
    ("crates/trunk/src/worker", "batch core io::Bell io::SocketDriver io::SocketKind io::StartError io::socket link os socket"),
    ("loadgen/src/attack", "batch bots core io os players report::check rng"),
    ("loadgen/src/cli", "attack batch bots::echo core io link measure os players report run servers"),
    ("loadgen/src/measure", "core os process::client report::hlog"),
    ("loadgen/src/players", "batch bots client core impair measure os process::client rng"),
    ("loadgen/src/report", "measure report players::arrivals players::scenario"),
    ("loadgen/src/rng", "impair"),
    ("loadgen/src/run", "batch core io measure os players report"),
    ("loadgen/src/servers", "batch core io players rng"),
    ("src/cli", "batch bots commands config control core fleet gate hold hosting io link membership os process report state tokens trunk::agent worker"),
    ("src/control", "batch cluster config core fleet gate hold hosting io::CardChoice io::CardDrop io::CardMode io::Choice link::announce membership os process report state trunk worker"),
    ("src/hold", ""),
    ("src/hosting", "config core::shown_by fleet gate::Allowed link::announce membership os process::client process::handover::Part trunk::agent"),
    ("src/main", "ringgate"),
    ("src/membership", "cluster::Incarnation config core fleet gate::Allowed gate::Credentials gate::FleetPlayer gate::FleetPlayers gate::FleetTokens gate::Front gate::Intake gate::PlayerClaimed gate::PlayerNews gate::Prefix gate::SessionId gate::Standbys gate::TokenQuestion gate::Whose link::announce os state"),
];

/// Packages whose files still import each other in a circle, as those of the daemon itself do, of
/// which the commands and the config were parts. No other may.
const WITH_CIRCLES: &[&str] = &[
    "crates/client",
    "crates/client-c",
    "crates/commands",
    "crates/config",
    "crates/link",
    "crates/tokens",
    "crates/worker",
];

/// Where `allow(unsafe_code)` may stand: the files and folders in which it cannot be avoided.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/batch/src/arena.rs",
    "crates/batch/src/prefetch.rs",
    "crates/batch/src/rx.rs",
    "crates/batch/src/tx.rs",
    // What C calls: it hands over pointers.
    "crates/client-c/src/",
    "crates/core/src/crypto/avx2.rs",
    "crates/core/src/crypto/avx512.rs",
    "crates/core/src/crypto/tests/fenced.rs",
    "crates/core/src/crypto/tests/residue.rs",
    "crates/io/src/card.rs",
    "crates/io/src/mmsg.rs",
    "crates/io/src/receive.rs",
    "crates/io/src/socket.rs",
    "crates/io/src/uring.rs",
    "crates/os/src/",
    "crates/process/src/confine.rs",
    "crates/xdp/src/memory.rs",
    "crates/xdp/src/queue.rs",
    "crates/xdp/src/ring.rs",
    "crates/xdp/src/socket.rs",
    "tests/allocations.rs",
];

/// What no source file may contain, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("#[ignore", "an ignored test guards nothing: fix it or delete it"),
    ("dbg!(", "a debugging aid was left behind"),
    ("todo!(", "unfinished code does not land"),
    ("unimplemented!(", "unfinished code does not land"),
];

/// What the core may not contain, tests aside: it builds for platforms that have none of it.
const NOT_IN_CORE: &[&str] = &[
    "libc::",
    "cfg(unix",
    "cfg(windows",
    "target_os",
    "std::os::",
    "std::thread",
    "std::fs",
    "UdpSocket",
];

/// How long a line of a comment may be: code and documents are read side by side.
const COMMENT_COLUMNS: usize = 100;

/// Everything we have written in Rust.
const FOLDERS: &[&str] = &["src", "crates", "loadgen", "tests", "benches", "fuzz/fuzz_targets"];

#[test]
fn dependencies_point_one_way() {
    hold(dependency_violations);
}

#[test]
fn files_import_each_other_one_way() {
    let mut found = Vec::new();
    for (package, _) in NEEDS {
        let folder = format!("{package}/src");
        let sources = Source::read_all(Path::new(env!("CARGO_MANIFEST_DIR")), &[&folder], "rs");
        assert!(!sources.is_empty(), "{folder} is not there");
        let circles = circles(&sources);
        let is_known = WITH_CIRCLES.contains(package);
        assert!(!is_known || !circles.is_empty(), "{package} has no circle any more: say so");
        found.extend(circles.iter().filter(|_| !is_known).map(ToString::to_string));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Less is better: a change that makes the product longer says so where contributors read it.
#[test]
fn the_product_is_no_longer_than_its_contributors_are_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let not_product = ["tests", "benches", "bots", "examples", "testkit"];
    let is_product = |it: &&Source| {
        !it.is_unit_test() && !it.path.split('/').any(|part| not_product.contains(&part))
    };
    let lines: usize = Source::read_all(root, &["src", "crates"], "rs")
        .iter()
        .filter(is_product)
        .map(Source::shipped_lines)
        .sum();
    let said = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("it is there");
    let figure = said.split_once("The product has at most ").expect("a figure").1;
    let figure = figure.split_once(" lines").expect("of lines").0.replace(',', "");
    let figure: usize = figure.parse().expect("a number");
    assert!(lines <= figure, "{lines} lines, and CONTRIBUTING.md says {figure}");
    assert!(figure - lines < 500, "{lines} lines are fewer than CONTRIBUTING.md's {figure}");
}

#[test]
fn packages_need_only_what_they_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (package, allowed) in NEEDS {
        let manifest = std::fs::read_to_string(root.join(package).join("Cargo.toml"));
        let needed = packages_needed(&manifest.expect("the package is there"));
        assert_eq!(needed.join(" "), *allowed, "{package}");
    }
    let folders = std::fs::read_dir(root.join("crates")).expect("it is there");
    assert_eq!(folders.count() + 2, NEEDS.len(), "a package has no row in NEEDS");
}

/// Packages of ours that a manifest names for more than tests.
fn packages_needed(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().expect("cargo reads it");
    let tables =
        ["dependencies", "build-dependencies"].into_iter().filter_map(|it| manifest.get(it));
    let names = tables.flat_map(|table| table.as_table().expect("cargo reads it").keys());
    names.filter_map(|name| name.strip_prefix("ringgate-")).map(str::to_owned).collect()
}

#[test]
fn unsafe_code_stands_only_where_it_must() {
    hold(unsafe_violations);
}

#[test]
fn no_place_may_be_unsafe_without_need() {
    let sources = all_code();
    let needs = |place: &&&str| {
        let mut inside = sources.iter().filter(|source| source.path.starts_with(**place));
        inside.any(|source| !lifts_of_unsafe_code(source).is_empty())
    };
    let idle: Vec<_> = MAY_BE_UNSAFE.iter().filter(|place| !needs(place)).collect();
    assert!(idle.is_empty(), "no unsafe code is left in {idle:?}: take them off the list");
}

#[test]
fn every_file_says_why_it_exists() {
    hold(opening_violations);
}

#[test]
fn what_is_cited_is_there() {
    hold(citation_violations);
    hold_in_prose(citation_violations);
}

#[test]
fn documents_lead_where_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| match root.join(path) {
        folder if folder.is_dir() => Some(String::new()),
        file => std::fs::read_to_string(file).ok(),
    };
    hold_over(&documents(), |document| dead_links(document, read));
}

#[test]
fn documents_keep_to_their_columns() {
    let mut documents = documents();
    // A program writes it, a paragraph a line.
    documents.retain(|document| document.path != "docs/CONFIG.md");
    hold_over(&documents, |document| wide_prose(document, COMMENT_COLUMNS));
}

/// Of what is read in need: the first page, and the pages by what their reader wants.
#[test]
fn nine_of_ten_sentences_are_short() {
    const WORDS: usize = 25;
    let is_page = |path: &str| {
        let folders = ["docs/start/", "docs/howto/", "docs/reference/", "docs/why/"];
        let files = ["README.md", "docs/README.md", "docs/OPERATING.md", "docs/oncall.md"];
        files.contains(&path) || folders.iter().any(|folder| path.starts_with(folder))
    };
    let pages = documents().into_iter().filter(|page| is_page(&page.path));
    let long = pages.map(|page| (words_at_p90(&page.text), page.path));
    let long: Vec<_> = long.filter(|(words, _)| *words > WORDS).collect();
    assert!(long.is_empty(), "words of a sentence, of which one in ten is longer: {long:?}");
}

/// Programs read logs by the names of events: each has its row.
#[test]
fn every_event_of_the_logs_is_explained() {
    let page = include_str!("../../docs/reference/logs.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let mut names = std::collections::BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for source in Source::read_all(root, &["src", "crates"], "rs") {
        let told = source.text.split("event = \"").skip(1);
        names.extend(told.map(|rest| rest.split('"').next().expect("it ends").to_owned()));
    }
    assert!(names.len() > 60, "{names:?}");
    let has_row = |name: &String| {
        let name = format!("`{name}`");
        rows.iter().any(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&name)))
    };
    let missing: Vec<_> = names.iter().filter(|name| !has_row(name)).collect();
    assert!(missing.is_empty(), "docs/reference/logs.md has no row for {missing:?}");
}

/// The site has every page. Where `mdbook` is installed `.ci/site` makes it and follows its links.
#[test]
fn every_document_is_a_page_of_the_site() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let summary = std::fs::read_to_string(root.join("docs/SUMMARY.md")).expect("it is there");
    let pages = Source::read_all(root, &["docs"], "md");
    for page in pages.iter().filter(|page| page.path != "docs/SUMMARY.md") {
        let name = page.path.trim_start_matches("docs/");
        let count = summary.matches(&format!("]({name})")).count();
        assert_eq!(count, 1, "docs/SUMMARY.md and {name}");
    }
    if let Err(why) = Command::new("mdbook").arg("--version").output() {
        let required = std::env::var_os("REQUIRE_MDBOOK").is_some_and(|it| it == "1");
        assert!(!required, "REQUIRE_MDBOOK=1, but mdbook cannot be run: {why}");
        return eprintln!("SKIPPED: mdbook is not there");
    }
    let to = crate::folder::Folder::new();
    let built = Command::new(root.join(".ci/site")).arg(to.join("site")).output();
    let built = built.expect("there is a shell");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && to.join("site/docs/oncall.html").exists(), "{said}");
}

fn documents() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = Source::read_all(root, &["bindings", "crates", "docs", "examples"], "md");
    for name in ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"] {
        let text = std::fs::read_to_string(root.join(name)).expect("it is there");
        documents.push(Source::new(name, &text));
    }
    documents
}

#[test]
fn modules_lie_beside_their_folders() {
    hold(file_name_violations);
}

#[test]
fn nothing_unfinished_is_left() {
    hold(forbidden_violations);
}

#[test]
fn the_core_needs_no_operating_system() {
    hold(portability_violations);
}

#[test]
fn comments_fit_beside_code() {
    hold(comment_violations);
}

/// What no compiler reads: scripts, documents, configs.
#[test]
fn no_file_keeps_the_marks_of_a_merge() {
    let marks = ["-nIE", "^(<<<<<<<|>>>>>>>) "];
    let root = env!("CARGO_MANIFEST_DIR");
    match Command::new("git").args(["-C", root, "grep"]).args(marks).output() {
        Ok(found) if found.status.code() == Some(1) => {}
        Ok(found) if found.status.success() => {
            panic!("\n{}", String::from_utf8_lossy(&found.stdout))
        }
        _ => eprintln!("SKIPPED: git does not know these files"),
    }
}

fn all_code() -> Vec<Source> {
    let sources = Source::read_all(Path::new(env!("CARGO_MANIFEST_DIR")), FOLDERS, "rs");
    assert!(sources.iter().any(|source| source.path == "src/lib.rs"), "the sources are not here");
    sources
}

/// Holds one rule over all code, and lists every place that breaks it.
fn hold(rule: fn(&Source) -> Vec<Violation>) {
    hold_over(&all_code(), rule);
}

/// Holds one rule over all documents.
fn hold_in_prose(rule: fn(&Source) -> Vec<Violation>) {
    let documents = Source::read_all(Path::new(env!("CARGO_MANIFEST_DIR")), &["docs"], "md");
    assert!(!documents.is_empty(), "the documents are not here");
    hold_over(&documents, rule);
}

fn hold_over(sources: &[Source], rule: impl Fn(&Source) -> Vec<Violation>) {
    let violations: Vec<_> = sources.iter().flat_map(rule).map(|v| v.to_string()).collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

fn dependency_violations(source: &Source) -> Vec<Violation> {
    let covers = |(row, _): &&(&str, _)| {
        row.ends_with("/src") && source.path.strip_prefix(row).is_some_and(|it| it.starts_with('/'))
    };
    if let Some((row, allowed)) = MAY_USE.iter().find(covers) {
        let package = row.split('/').nth(1).expect("it lies in crates");
        return not_allowed(source, package, allowed, paths_into_packages(source));
    }
    let ruled = ["src/", "crates/core/src/", "loadgen/src/"];
    let Some(folder) = ruled.into_iter().find(|folder| source.path.starts_with(folder)) else {
        return Vec::new();
    };
    let Some(&part) = module_of(&source.path).first() else {
        return Vec::new();
    };
    if source.is_unit_test() {
        return Vec::new();
    }
    let row = format!("{folder}{part}");
    let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == row) else {
        let message = format!("`{row}` has no row in MAY_USE: say what it may use");
        return vec![source.violation(0, message)];
    };
    let named = [paths_in_crate(source), paths_into_packages(source)].concat();
    not_allowed(source, part, allowed, named)
}

fn not_allowed(source: &Source, part: &str, allowed: &str, named: Vec<Named>) -> Vec<Violation> {
    let is_package = |name: &str| NEEDS.iter().any(|(it, _)| it.rsplit('/').next() == Some(name));
    let is_part = |name: &str| MAY_USE.iter().any(|(it, _)| it.rsplit('/').next() == Some(name));
    let foreign = |named: &Named| {
        let head = named.segments[0].as_str();
        (is_package(head) || is_part(head)) && head != part
    };
    let covered =
        |named: &Named| allowed.split_whitespace().any(|path| lies_below(&named.segments, path));
    named
        .into_iter()
        .filter(|named| foreign(named) && !covered(named))
        .map(|named| {
            let path = named.segments.join("::");
            source.violation(named.offset, format!("`{part}` may not use `{path}`"))
        })
        .collect()
}

fn lies_below(segments: &[String], path: &str) -> bool {
    let mut segments = segments.iter();
    path.split("::").all(|part| segments.next().is_some_and(|segment| segment == part))
}

fn unsafe_violations(source: &Source) -> Vec<Violation> {
    if MAY_BE_UNSAFE.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let message = "unsafe code is not allowed here (MAY_BE_UNSAFE lists where it is)";
    let places = lifts_of_unsafe_code(source);
    places.into_iter().map(|offset| source.violation(offset, message)).collect()
}

/// Where a file lifts the crate's ban: `unsafe_code` within an `allow` or `expect`.
fn lifts_of_unsafe_code(source: &Source) -> Vec<usize> {
    let places = source.code.match_indices("unsafe_code").map(|(offset, _)| offset);
    let lifts = |offset: &usize| {
        let before = &source.code[..*offset];
        let attribute = before.rfind('#').map_or("", |start| &before[start..]);
        let is_open = !attribute.contains(']');
        is_open && (attribute.contains("allow(") || attribute.contains("expect("))
    };
    places.filter(lifts).collect()
}

fn portability_violations(source: &Source) -> Vec<Violation> {
    if !source.path.starts_with("crates/core/src/") || source.is_unit_test() {
        return Vec::new();
    }
    let code = source.shipped_code();
    let one = |word: &&str| {
        let places = code.match_indices(word).map(|(offset, _)| offset);
        let message = format!("the core knows no operating system, so it has no `{word}`");
        places.map(|offset| source.violation(offset, message.clone())).collect()
    };
    NOT_IN_CORE.iter().flat_map::<Vec<_>, _>(one).collect()
}

fn comment_violations(source: &Source) -> Vec<Violation> {
    let message = format!("a comment is at most {COMMENT_COLUMNS} columns wide");
    let places = long_comments(&source.text);
    places.map(|offset| source.violation(offset, message.clone())).collect()
}

/// Where lines begin that are a comment and too long.
fn long_comments(text: &str) -> impl Iterator<Item = usize> {
    text.lines().filter_map(|line| {
        let is_long = line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS;
        is_long.then(|| line.as_ptr() as usize - text.as_ptr() as usize)
    })
}

fn opening_violations(source: &Source) -> Vec<Violation> {
    let first_line = source.text.lines().next().unwrap_or_default();
    let opens = first_line.strip_prefix("//! ").is_some_and(|why| !why.trim().is_empty());
    let message = "a file opens with `//!` and says why it exists";
    if opens { Vec::new() } else { vec![source.violation(0, message)] }
}

fn citation_violations(source: &Source) -> Vec<Violation> {
    // The bad samples of these very rules cite what is not there.
    let is_sample = source.path.starts_with("tests/all/house_rules");
    if is_sample { Vec::new() } else { dead_citations(source, is_there) }
}

fn file_name_violations(source: &Source) -> Vec<Violation> {
    let message = "`foo/mod.rs` is called `foo.rs` here";
    if source.path.ends_with("/mod.rs") { vec![source.violation(0, message)] } else { Vec::new() }
}

fn forbidden_violations(source: &Source) -> Vec<Violation> {
    let one = |&(word, why): &(&str, &str)| {
        let places = source.code.match_indices(word);
        places.map(|(offset, _)| source.violation(offset, format!("`{word}`: {why}"))).collect()
    };
    FORBIDDEN.iter().flat_map::<Vec<_>, _>(one).collect()
}

mod bad_samples {
    //! Each rule against code that breaks it.
    use super::*;

    fn breaks(rule: fn(&Source) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        rule(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_in_the_wrong_direction_is_found_with_its_line() {
        let path = "crates/core/src/proto/x.rs";
        let found = breaks(dependency_violations, path, "//! X.\nuse crate::crypto::Aead;\n");
        assert_eq!(found, [format!("{path}:2: `proto` may not use `crypto::Aead`")]);
        for (path, text) in [
            ("crates/config/src/x.rs", "use ringgate_worker::Fleet;"),
            ("crates/config/src/x.rs", "use ringgate_gate::Gate;"),
            ("src/hosting/a/x.rs", "use super::super::super::control::Control;"),
            ("src/control/x.rs", "use crate::{config::Config, cli::run};"),
            ("src/control/x.rs", "use ringgate_io::{Choice, Driver};"),
            ("crates/core/src/proto/x.rs", "fn x() -> crate::crypto::Job { todo() }"),
            ("crates/core/src/drops.rs", "use crate::limits;"),
            ("loadgen/src/players/x.rs", "use crate::run::Run;"),
        ] {
            assert_eq!(breaks(dependency_violations, path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn dependencies_in_the_right_direction_are_left_alone() {
        for (path, text) in [
            ("crates/worker/src/x.rs", "use ringgate_gate::Gate; use ringgate_io::Driver;"),
            ("src/control/x.rs", "use crate::config::Config; use ringgate_worker::Fleet;"),
            ("crates/core/src/proto/x.rs", "#[cfg(test)]\nmod tests { use crate::crypto::Aead; }"),
            ("crates/core/src/proto/tests.rs", "use crate::crypto::Aead;"),
            ("crates/core/src/drops.rs", "mod inner { use super::DropReason; }"),
            ("loadgen/src/run/x.rs", "use ringgate_core::crypto::Aead; use crate::measure::tally;"),
            ("tests/all/x.rs", "use ringgate_gate::Gate;"),
        ] {
            assert_eq!(breaks(dependency_violations, path, text).len(), 0, "{path}: {text}");
        }
    }

    #[test]
    fn a_part_without_a_row_is_found() {
        let found = breaks(dependency_violations, "src/novel/x.rs", "//! X.\n");
        let message = "`src/novel` has no row in MAY_USE: say what it may use";
        assert_eq!(found, [format!("src/novel/x.rs:1: {message}")]);
    }

    #[test]
    fn packages_that_a_manifest_needs_are_found() {
        let manifest = "[dependencies]\nringgate-gate.workspace = true\nlibc = \"1\"\n\
            ringgate-os = { workspace = true, optional = true }\n\
            [dev-dependencies]\nringgate-io.workspace = true\n";
        assert_eq!(packages_needed(manifest), ["gate", "os"]);
    }

    #[test]
    fn unsafe_code_in_the_wrong_place_is_found() {
        let lifted = "//! X.\n#![allow(\n    unsafe_code,\n    reason = \"fast\"\n)]\n";
        assert_eq!(breaks(unsafe_violations, "src/gate/x.rs", lifted).len(), 1);
        assert_eq!(breaks(unsafe_violations, "crates/io/src/uring.rs", lifted).len(), 0);
        let expected = "#[expect(unsafe_code, reason = \"fast\")] fn x() {}";
        assert_eq!(breaks(unsafe_violations, "src/proto/x.rs", expected).len(), 1);
        assert_eq!(breaks(unsafe_violations, "src/proto.rs", "#![forbid(unsafe_code)]").len(), 0);
    }

    #[test]
    fn an_operating_system_in_the_core_is_found() {
        let path = "crates/core/src/x.rs";
        let text = "#[cfg(unix)]\nuse std::os::fd::AsFd;\n#[cfg(test)]\nmod tests { use std::fs; }";
        let found = breaks(portability_violations, path, text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(breaks(portability_violations, "crates/io/src/x.rs", text).len(), 0);
    }

    #[test]
    fn a_comment_that_is_too_long_is_found() {
        let long = format!("fn x() {{}}\n    // {}\n", "x".repeat(COMMENT_COLUMNS));
        let fits = format!("// {}\nlet x = \"{}\";", "x".repeat(90), "y".repeat(200));
        assert_eq!(
            breaks(comment_violations, "src/x.rs", &long),
            ["src/x.rs:2: a comment is at most 100 columns wide"]
        );
        assert_eq!(breaks(comment_violations, "src/x.rs", &fits).len(), 0);
    }

    #[test]
    fn a_file_without_an_opening_is_found() {
        assert_eq!(breaks(opening_violations, "src/x.rs", "use a;\n//! Late.").len(), 1);
        assert_eq!(breaks(opening_violations, "src/x.rs", "//!  \n//! Late.").len(), 1);
        assert_eq!(breaks(opening_violations, "src/x.rs", "//! Why.").len(), 0);
    }

    #[test]
    fn a_mod_file_is_found() {
        assert_eq!(breaks(file_name_violations, "src/x/mod.rs", "").len(), 1);
        assert_eq!(breaks(file_name_violations, "src/x/modern.rs", "").len(), 0);
    }

    #[test]
    fn what_is_unfinished_is_found_in_code_and_not_in_prose() {
        let text = "// todo!(prose)\nfn x() { todo!() }\n#[ignore = \"slow\"]\nfn y() { dbg!(1); }";
        assert_eq!(
            breaks(forbidden_violations, "src/x.rs", text),
            [
                "src/x.rs:3: `#[ignore`: an ignored test guards nothing: fix it or delete it",
                "src/x.rs:4: `dbg!(`: a debugging aid was left behind",
                "src/x.rs:2: `todo!(`: unfinished code does not land",
            ]
        );
    }
}
