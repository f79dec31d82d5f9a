//! What docs/GAMES.md has game programmers paste, pasted: for each language from nothing to a
//! player's payload that comes back.

use std::path::Path;
use std::process::Command;

use crate::command::{Ran, run};
use crate::folder::Folder;
use crate::own::own_address;
use crate::token_languages::{go_cache, skip};

const DOCUMENT: &str = include_str!("../../docs/GAMES.md");

/// The block that begins so.
fn block(fence: &str) -> &'static str {
    let start = format!("```{fence}\n");
    let (_, rest) = DOCUMENT.split_once(&start).expect("the document has this block");
    rest.split_once("```").expect("which ends").0
}

/// The blocks without a language, in order.
fn common(number: usize) -> &'static str {
    let rest = DOCUMENT.split("```sh\n").nth(1 + number).expect("the document has this block");
    rest.split_once("```").expect("which ends").0
}

fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the document has no {old}");
    text.replace(old, new)
}

/// Everything but what takes a release build, by a shell, in a folder and at a port of its own.
fn paste(language: &str, server: &str) {
    let folder = Folder::new();
    let repository = env!("CARGO_MANIFEST_DIR");
    let bin = Path::new(env!("CARGO_BIN_EXE_ringgate")).parent().expect("it lies in a folder");
    let gateway = with(common(0), "cargo build --release -p ringgate ", "# ");
    let gateway = with(&gateway, "$PWD/target/release", &bin.display().to_string());
    let gateway = with(&gateway, "GAMES=\"$PWD\"", &format!("GAMES={repository}"));
    let script = format!("{gateway}{server}{}", common(1));
    let script = with(&script, "127.0.0.1:40000", &own_address().to_string());
    let script = format!("set -em\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n{script}");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).current_dir(folder.path());
    shell.env_remove("RINGGATE_LOG").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    shell.envs([("GOPROXY", "off"), ("GOFLAGS", "-mod=readonly"), ("GO111MODULE", "on")]);
    shell.env("GOCACHE", go_cache());
    let Ran { code, stdout, stderr } = run(shell);
    let said = format!("{language}:\n{stdout}\n--- stderr\n{stderr}");
    assert_eq!(code, Some(0), "{said}");
    assert!(stdout.contains("answered with 5 bytes, the same"), "{said}");
}

fn paste_where(language: &str, programs: &[&str], server: &str) {
    for program in programs {
        let asked = Command::new("bash").args(["-c", &format!("command -v {program}")]).output();
        if !asked.is_ok_and(|asked| asked.status.success()) {
            return skip(language, &format!("{program} is missing"));
        }
    }
    paste(language, server);
}

/// Lines without what stands before and behind them.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

#[test]
fn what_is_said_of_moves_is_what_the_examples_do() {
    let (_, section) = DOCUMENT.split_once("## Moving a player\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("which is not the last");
    for (fence, example) in [
        ("```c\n", include_str!("../../crates/link/examples/c/zones.c")),
        ("```rust\n", include_str!("../../crates/link/examples/zones.rs")),
    ] {
        let example = lines(example);
        let blocks: Vec<_> = section.split(fence).skip(1).collect();
        assert_eq!(blocks.len(), 2, "{fence}");
        for block in blocks {
            let block = lines(block.split_once("```").expect("which ends").0);
            let is_there = example.windows(block.len()).any(|part| part == block);
            assert!(is_there, "the example has no such lines: {block:#?}");
        }
    }
}

#[test]
fn a_server_in_c_works_when_pasted() {
    paste("C", block("sh c"));
}

#[test]
fn a_server_in_rust_works_when_pasted() {
    let built = Path::new(env!("CARGO_BIN_EXE_ringgate")).with_file_name("examples");
    if !built.join("echo_backend").exists() {
        return skip("Rust", "the whole workspace's tests build the example, these alone do not");
    }
    let server = with(block("sh rust"), "cargo build", "# cargo build");
    paste("Rust", &with(&server, "$GAMES/target/release/examples", &built.display().to_string()));
}

#[test]
fn a_server_in_go_works_when_pasted() {
    paste_where("Go", &["go"], block("sh go"));
}

#[test]
fn a_server_in_python_works_when_pasted() {
    paste_where("Python", &["python3", "make"], block("sh python"));
}

#[test]
fn a_server_in_csharp_works_when_pasted() {
    paste_where("C#", &["mcs", "mono", "make"], block("sh csharp"));
}
