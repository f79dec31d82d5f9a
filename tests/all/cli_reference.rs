//! docs/CONFIG.md is what `ringgate check --explain` says, rendered, and docs/reference/commands.md
//! and loadgen.md what `--help` says: these tests render them and hold the two together. With
//! `WRITE_CONFIG_REFERENCE=1` they write the documents.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::command::{ringgate, run};

#[test]
fn the_config_reference_is_what_the_command_explains() {
    let explained = run(ringgate(["check", "--explain"])).succeeded();
    let mut rendered = String::from(HEAD);
    rendered.push_str(&render(&explained));
    // [fleet] is the same table in both files.
    let of_tokens = run(ringgate(["tokens", "--explain"])).succeeded();
    let blocks: Vec<_> = of_tokens.split("\n\n").collect();
    let own = blocks.iter().position(|block| block.lines().any(|line| line == "[tokens]"));
    let own = blocks[own.expect("the table is there") - 1..].join("\n\n");
    rendered.push_str(TOKENS);
    rendered.push_str(&render(&own));
    rendered.push_str(AGENT);
    rendered.push_str(&render(&own_tables(&run(ringgate(["agent", "--explain"])).succeeded())));
    must_be("docs/CONFIG.md", &rendered);
}

#[test]
fn the_reference_of_commands_is_what_they_say_of_themselves() {
    let mut rendered = String::from(COMMANDS);
    let help = run(ringgate(["--help"])).succeeded();
    let named = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = named.filter(|line| line.starts_with(|it: char| it.is_ascii_lowercase()));
    names.for_each(|line| explain(&mut rendered, &[first_word(line)]));
    must_be("docs/reference/commands.md", &rendered);
}

#[test]
fn the_reference_of_the_load_generator_is_what_it_says_of_itself() {
    let mut rendered = String::from(LOADGEN);
    let mut all = ringgate_loadgen::cli::commands();
    all.build();
    let shown = |it: &&mut clap::Command| !it.is_hide_set() && it.get_name() != "help";
    for command in all.get_subcommands_mut().filter(shown) {
        let help = command.render_long_help().to_string();
        section(&mut rendered, command.get_bin_name().expect("it was built"), &help);
    }
    must_be("docs/reference/loadgen.md", &rendered);
}

fn section(page: &mut String, command: &str, help: &str) {
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {command}\n\n```text\n{}\n```\n", lines.join("\n"));
}

/// What a command says of itself, and what those below it do.
fn explain(page: &mut String, words: &[&str]) {
    if words.last() == Some(&"help") {
        return;
    }
    let help = run(ringgate(words.iter().chain(&["--help"]))).succeeded();
    section(page, &format!("ringgate {}", words.join(" ")), &help);
    let below = help.split_once("\nCommands:\n").map(|(_, rest)| rest);
    let below = below.and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    for line in below.lines().filter(|line| !line.starts_with("   ")) {
        explain(page, &[words, &[first_word(line)]].concat());
    }
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().expect("a name")
}

/// Holds a document to what the program says, or writes it.
fn must_be(document: &str, rendered: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    if std::env::var_os("WRITE_CONFIG_REFERENCE").is_some_and(|value| value == "1") {
        fs::write(&path, rendered).expect("our own folder");
    }
    let is = fs::read_to_string(&path).expect("it is there");
    let differs = is.lines().zip(rendered.lines()).position(|(is, should)| is != should);
    let shorter = || is.lines().count().min(rendered.lines().count());
    let line = differs.unwrap_or_else(shorter) + 1;
    assert!(
        is == rendered,
        "{document}:{line} is not what the command says: run this test with \
         WRITE_CONFIG_REFERENCE=1 and commit the document"
    );
}

/// The tables of an agent's file that a gateway's has not.
fn own_tables(explained: &str) -> String {
    let blocks: Vec<_> = explained.split("\n\n").collect();
    let begins = |table: &str| {
        let is_it = |block: &&str| block.lines().any(|line| line == table);
        blocks.iter().position(is_it).expect("the table is there")
    };
    blocks[begins("[agent]") - 1..begins("[admin]")].join("\n\n")
}

/// Paragraphs of the explanation: comments, and below them what they are about.
fn render(explained: &str) -> String {
    let mut page = String::new();
    for block in explained.split("\n\n").map(str::trim_end).skip(1) {
        let about = block.lines().find(|line| is_about(line));
        let words: Vec<_> = block
            .lines()
            .take_while(|line| !is_about(line))
            .map(|line| line.trim_start_matches('#').trim())
            .collect();
        let (facts, text) = facts_of(&words);
        match about {
            Some(section) if section.starts_with('[') => {
                let _ = write!(page, "\n## `{section}`\n\n{text}\n");
                // What a section of one kind begins with, so that the example is a whole one.
                let given: Vec<_> = block.lines().skip_while(|line| !is_about(line)).collect();
                if given.len() > 1 {
                    let _ = write!(page, "\n```toml\n{}\n```\n", given.join("\n"));
                }
            }
            Some(field) => {
                let field = field.trim_start_matches("# ");
                let _ = write!(page, "\n### `{field}`\n\n{text}\n\n{facts}");
            }
            None => panic!("neither a section nor a field: {block}"),
        }
    }
    page
}

/// A section's or a field's own line; an optional field's is a comment.
fn is_about(line: &str) -> bool {
    let line = line.strip_prefix("# ").unwrap_or(line);
    let name = line.split(" = ").next().unwrap_or("");
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    line.starts_with('[') && line.ends_with(']') && !line.contains(' ')
        || line.contains(" = ") && is_name && line.parse::<toml::Table>().is_ok()
}

/// What is said of a field line by line, as a list, and the text before.
fn facts_of(words: &[&str]) -> (String, String) {
    let fact_of = |word: &str| FACTS.into_iter().find(|fact| word.starts_with(fact));
    let first = words.iter().position(|word| fact_of(word).is_some()).unwrap_or(words.len());
    let mut facts: Vec<(&str, String)> = Vec::new();
    for word in &words[first..] {
        match (fact_of(word), facts.last_mut()) {
            (Some(fact), _) => facts.push((fact, word[fact.len()..].to_owned())),
            (None, Some((_, rest))) => {
                let _ = write!(rest, " {word}");
            }
            (None, None) => unreachable!("it begins with one"),
        }
    }
    let mut list = String::new();
    for (fact, rest) in facts {
        // What is a value stands as the file has it.
        let code = if ["Values: ", "Changes: "].contains(&fact) { "" } else { "`" };
        let _ = writeln!(list, "- *{}*: {code}{rest}{code}", fact.trim_end_matches(": "));
    }
    (list, words[..first].join(" "))
}

const FACTS: [&str; 5] =
    ["Default: ", "Required, for example: ", "Optional, for example: ", "Values: ", "Changes: "];
const COMMANDS: &str = "\
# Commands

This page is what each command says with `--help`; a test holds the two together. What a command is
for, by groups: `ringgate --help`.
";

const LOADGEN: &str = "\
# Commands of the load generator

This page is what each command of `ringgate-loadgen` says with `--help`; a test holds the two
together. What to measure with them, and how: [A test under load](../start/load-test.md).
";

const HEAD: &str = "\
# The config file, field by field

This page is `ringgate check --explain`, rendered; a test holds the two together. The command prints it as a config file that can be
edited. A field that has a *default* may be left out and then has that value; an *optional* one means something else when it is
absent. The values of *optional* and *required* ones are examples. *Values* says what is accepted, and
*Changes* what makes a new value count: a reload (`ringgate reload`) or a restart. What belongs together, and why, is in [the other pages](README.md).
";

const TOKENS: &str = "
# The file of a token service, field by field

`ringgate tokens --config FILE` reads a file of its own: `[fleet]` as above (what concerns sessions and backends is of no effect there, and it needs `key`),
and these tables. The rest of this page is `ringgate tokens --explain`.
";

const AGENT: &str = "
# The file of an agent, field by field

`ringgate agent --config FILE` reads a file of its own: `[agent]` and a `[[backend]]` for each game process of its host, which follow, and `[admin]` and
`[fleet]` as above (what concerns sessions and keys has no effect there, and `name` is `agent.name`). `grace` is the gateway's to keep, and outside of a fleet
so are `slots`. Of `[fleet]` a reload changes `grace`, `allow_uids`, `allow_gids`, `backends_per_process` and `backends_per_user` here. The rest of this page is `ringgate agent --explain`.
";
