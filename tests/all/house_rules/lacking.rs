//! What a test may lack, and the seeds beyond a number, stand in CONTRIBUTING.md: nothing else
//! leaves `cargo test`.

use std::collections::BTreeSet;

use super::source::Source;

/// Variables of tests and modules of tests that skip something, which a document does not name.
pub(super) fn unnamed(sources: &[Source], document: &str) -> Vec<String> {
    let mut named: BTreeSet<String> = BTreeSet::new();
    let others = sources.iter().filter(|it| !it.path.ends_with("house_rules/lacking.rs"));
    for source in others {
        let words = source.text.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
        let is_variable = |word: &&str| {
            let rest = word.strip_prefix("REQUIRE_").or_else(|| word.strip_suffix("_SEEDS"));
            // One writes what fuzzers begin with.
            let is_number = rest.is_some_and(|it| !it.is_empty() && it != "WRITE_FUZZ");
            is_number && !word.contains(char::is_lowercase)
        };
        named.extend(words.filter(is_variable).map(|word| format!("`{word}`")));
        let module = source.path.strip_prefix("tests/all/").and_then(|it| it.strip_suffix(".rs"));
        let is_rig = |it: &&str| it.contains('/') || it.ends_with("_rig") || *it == "netns";
        if source.text.contains("eprintln!(\"SKIPPED")
            && let Some(module) = module.filter(|it| !is_rig(it))
        {
            named.insert(format!("`{module}::"));
        }
    }
    let family = |module: &str| {
        let mut begins = module.match_indices('_').map(|(at, _)| &module[..=at]);
        begins.any(|begin| document.contains(&format!("{begin}…`")))
    };
    named.retain(|name| !document.contains(name.as_str()) && !family(name));
    named.into_iter().collect()
}

#[test]
fn what_a_test_may_lack_stands_in_the_list() {
    let document = include_str!("../../../CONTRIBUTING.md");
    let missing = unnamed(&super::all_code(), document);
    assert!(missing.is_empty(), "CONTRIBUTING.md does not say that these skip: {missing:?}");
}

#[test]
fn a_variable_and_a_module_that_are_not_listed_are_found() {
    let text = "//! X.\nset(\"REQUIRE_THIS\", \"MORE_SEEDS\"); eprintln!(\"SKIPPED: x\");\n";
    let sources = [Source::new("tests/all/some_thing.rs", text)];
    let all = ["`MORE_SEEDS`", "`REQUIRE_THIS`", "`some_thing::"];
    assert_eq!(unnamed(&sources, ""), all);
    assert_eq!(unnamed(&sources, "`some_…` `REQUIRE_THIS`"), ["`MORE_SEEDS`"]);
    assert!(unnamed(&sources, "`some_thing::x` `REQUIRE_THIS` `MORE_SEEDS`").is_empty());
}
