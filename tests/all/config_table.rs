//! Mistakes that operators make in the config, and what `ringgate check` says of each: the table in
//! docs/reference/config.md. With `WRITE_CONFIG_REFERENCE=1` this test writes it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::command::{ringgate, run};
use crate::folder::Folder;

/// A config without a mistake, of which each case replaces a line.
const GOOD: &str = r#"[gateway]
workers = 2
run_dir = "/run/ringgate"

[[listener]]
name = "eu"
protocol = "netcode"
bind = ["203.0.113.9:40000"]
protocol_id = "0x1122334455667788"
keys = [{ file = "listener.key" }]
backends = ["arena-1"]
max_sessions = 1000

[[backend]]
name = "arena-1"
link = "bundle"
slots = 64

[admin]
bind = "127.0.0.1:9464"
"#;

/// What is wrong, the line that is replaced, and by what.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("a name that is not known", "max_sessions = 1000", "max-sessions = 1000"),
    ("a name with a typing error", "workers = 2", "worker = 2"),
    ("a section that is not known", "[admin]", "[adnim]"),
    ("text without quotes", "run_dir = \"/run/ringgate\"", "run_dir = /run/ringgate"),
    ("a field twice", "workers = 2", "workers = 2\nworkers = 4"),
    ("too many workers", "workers = 2", "workers = 500"),
    ("a number where a word belongs", "workers = 2", "pin = 1"),
    ("a word that does not exist", "workers = 2", "io = \"epoll\""),
    ("a time without its unit", "workers = 2", "drain_timeout = 30"),
    ("a time out of range", "workers = 2", "batch_delay = \"5ms\""),
    ("a protocol that is not spoken", "protocol = \"netcode\"", "protocol = \"raknet\""),
    (
        "a name where an address belongs",
        "bind = [\"203.0.113.9:40000\"]",
        "bind = [\"eu.example:40000\"]",
    ),
    ("an address without a list", "bind = [\"203.0.113.9:40000\"]", "bind = \"203.0.113.9:40000\""),
    (
        "a wildcard that no token can name",
        "bind = [\"203.0.113.9:40000\"]",
        "bind = [\"0.0.0.0:40000\"]",
    ),
    (
        "the same address twice",
        "bind = [\"203.0.113.9:40000\"]",
        "bind = [\"203.0.113.9:40000\", \"203.0.113.9:40000\"]",
    ),
    ("a public address without a port", "max_sessions = 1000", "public = [\"203.0.113.9\"]"),
    (
        "a protocol id that is no number",
        "protocol_id = \"0x1122334455667788\"",
        "protocol_id = \"my game\"",
    ),
    ("a key without a source", "keys = [{ file = \"listener.key\" }]", "keys = [\"listener.key\"]"),
    (
        "a key file that is not there",
        "keys = [{ file = \"listener.key\" }]",
        "keys = [{ file = \"lost.key\" }]",
    ),
    (
        "a key that is too short",
        "keys = [{ file = \"listener.key\" }]",
        "keys = [{ hex = \"0123\" }]",
    ),
    (
        "a key from an unset variable",
        "keys = [{ file = \"listener.key\" }]",
        "keys = [{ env = \"NETCODE_KEY\" }]",
    ),
    ("a backend with a typing error", "backends = [\"arena-1\"]", "backends = [\"arena-l\"]"),
    ("a backend that is not there", "backends = [\"arena-1\"]", "backends = [\"lobby\"]"),
    ("no room for anybody", "max_sessions = 1000", "max_sessions = 0"),
    ("a replay window of any size", "max_sessions = 1000", "replay_window = 300"),
    ("a field of another protocol", "max_sessions = 1000", "magic = \"1011\""),
    ("a route that needs other players", "max_sessions = 1000", "route = \"token\""),
    ("a link that does not exist", "link = \"bundle\"", "link = \"tcp\""),
    ("a udp backend without an address", "link = \"bundle\"", "link = \"udp\""),
    ("slots that are no number", "slots = 64", "slots = \"64\""),
];

/// What the command says of each, and what else is to be said.
fn rendered() -> String {
    let mut table =
        String::from("\n| mistake | written | `ringgate check` says |\n|---|---|---|\n");
    let folder = Folder::new();
    folder.file("listener.key", "00112233445566778899aabbccddeeff".repeat(2), 0o600);
    for (what, line, by) in MISTAKES {
        assert_eq!(GOOD.matches(line).count(), 1, "{line}");
        folder.file("gate.toml", GOOD.replace(line, by), 0o600);
        let mut check = ringgate(["check", "gate.toml"]);
        let ran = run({
            check.current_dir(folder.path());
            check
        });
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{what}: {}", ran.stderr);
        let said: Vec<_> = ran.stderr.lines().map(|line| format!("`{line}`")).collect();
        let written: Vec<_> = by.lines().map(|line| format!("`{line}`")).collect();
        let _ = writeln!(table, "| {what} | {} | {} |", written.join(" "), said.join("<br>"));
    }
    table.push('\n');
    table
}

#[test]
fn the_handbook_shows_what_is_said_of_each_mistake() {
    let folder = Folder::new();
    folder.file("listener.key", "00112233445566778899aabbccddeeff".repeat(2), 0o600);
    let good = folder.file("gate.toml", GOOD, 0o600);
    assert_eq!(run(ringgate(["check".as_ref(), good.as_os_str()])).code, Some(0));
    let different: HashSet<_> = MISTAKES.iter().collect();
    assert!(different.len() >= 25 && different.len() == MISTAKES.len());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/config.md");
    let document = fs::read_to_string(&path).expect("it is there");
    let (before, rest) = document.split_once(BEGIN).expect("where the table begins");
    let (table, after) = rest.split_once(END).expect("where it ends");
    let rendered = rendered();
    if std::env::var_os("WRITE_CONFIG_REFERENCE").is_some_and(|value| value == "1") {
        let document = format!("{before}{BEGIN}{rendered}{END}{after}");
        return fs::write(&path, document).expect("our own folder");
    }
    assert!(
        table == rendered,
        "the table of mistakes in docs/reference/config.md is not what the command says: run this test with \
         WRITE_CONFIG_REFERENCE=1 and commit the document; it should be\n{rendered}"
    );
}

const BEGIN: &str = "<!-- mistakes: begin -->\n";
const END: &str = "<!-- mistakes: end -->\n";
