//! Keys reach the config from each of their sources, and only in good shape.

use std::ffi::OsString;
use std::path::Path;

use ringgate::config::{self, Config, Mistakes, Protocol, keys::KeySources};
use ringgate_core::secret::Key;

use crate::config_mistakes::KEY;
use crate::folder::Folder;

fn load(folder: &Folder, keys: &str) -> Result<Config, Mistakes> {
    let text = format!(
        "[[listener]]\nname = \"eu\"\nprotocol = \"netcode\"\nbind = [\"127.0.0.1:0\"]\nprotocol_id = 7\n\
         keys = [{keys}]\nbackends = [\"a\"]\n[[backend]]\nname = \"a\"\nlink = \"bundle\"\nslots = 1\n"
    );
    let environment = |name: &str| (name == "GATE_KEY").then(|| OsString::from(KEY));
    let sources = KeySources::new(&environment, Some(folder.path().to_owned()));
    config::parse(&text, &folder.join("gate.toml"), &sources)
}

#[track_caller]
fn keys_of(folder: &Folder, keys: &str) -> Vec<Key> {
    let config = load(folder, keys).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    match config.listeners.into_iter().next().map(|listener| listener.protocol) {
        Some(Protocol::Netcode(rules)) => rules.keys.iter().map(|key| (**key).clone()).collect(),
        other => panic!("not a netcode listener: {other:?}"),
    }
}

#[track_caller]
fn refused(folder: &Folder, keys: &str, expected: &str) {
    let mistakes = load(folder, keys).expect_err("a bad key").to_string();
    let found = mistakes.split_once(": found ").map(|(_, found)| found);
    assert_eq!(found, Some(expected));
}

fn key() -> Key {
    Key::from_hex(KEY).expect("the test's key is one")
}

#[test]
fn a_file_holds_digits_or_bytes() {
    let folder = Folder::new();
    let raw: Vec<u8> = (1..=32).collect();
    folder.file("hex.key", format!("{KEY}\n"), 0o600);
    folder.file("raw.key", &raw, 0o400);
    let keys = keys_of(&folder, "{ file = \"hex.key\" }, { file = \"raw.key\" }");
    let raw: [u8; 32] = raw.try_into().expect("32 bytes");
    assert_eq!(keys, [key(), Key::from_bytes(raw)]);
}

#[test]
fn relative_key_files_stand_beside_the_config_file() {
    let folder = Folder::new();
    let absolute = folder.file("k", KEY, 0o600);
    assert_eq!(keys_of(&folder, "{ file = \"k\" }"), [key()]);
    assert_eq!(keys_of(&folder, &format!("{{ file = {absolute:?} }}")), [key()]);
}

#[test]
fn the_environment_and_credentials_hold_keys() {
    let folder = Folder::new();
    // The service manager hands credentials over with group bits set by an access list.
    folder.file("netcode", KEY, 0o440);
    assert_eq!(keys_of(&folder, "{ credential = \"netcode\" }"), [key()]);
    assert_eq!(keys_of(&folder, "{ env = \"GATE_KEY\" }"), [key()]);
    // What the unit sets where the file is missing.
    folder.file("netcode.key", "\n", 0o440);
    refused(
        &folder,
        "{ credential = \"netcode.key\" }",
        "nothing in it, expected a key: LoadCredential= in the unit names the file, which was missing or empty at the start",
    );
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let folder = Folder::new();
    for mode in [0o640, 0o604, 0o620, 0o644] {
        folder.file("k", KEY, mode);
        refused(
            &folder,
            "{ file = \"k\" }",
            &format!(
                "a key file that others may use (mode {mode:04o}), expected one that is closed to group and others \
                 (chmod 600)"
            ),
        );
    }
}

#[test]
fn a_file_of_any_other_shape_is_refused() {
    let folder = Folder::new();
    for (content, found) in [
        ("", "a file with 0 hex digits"),
        (&KEY[..32], "a file with 32 hex digits"),
        (&KEY[..63], "a file with 63 hex digits"),
        ("not a key at all, but 33 bytes ...", "a file with 34 bytes that are not all hex digits"),
        (&" ".repeat(257), "a file of more than 256 bytes"),
    ] {
        folder.file("k", content, 0o600);
        let expected = format!("{found}, expected 64 hex digits or 32 raw bytes");
        refused(&folder, "{ file = \"k\" }", &expected);
    }
    folder.file("k", [0; 32], 0o600);
    refused(
        &folder,
        "{ file = \"k\" }",
        "a key of zeros, expected a random one (ringgate keygen makes one)",
    );
}

#[test]
fn no_key_shows_in_debug_output() {
    let folder = Folder::new();
    let config = load(&folder, "{ env = \"GATE_KEY\" }").expect("a good config");
    let shown = format!("{config:?}");
    assert!(shown.contains("Key(..)") && !shown.contains(&KEY[..8]), "{shown}");
}

#[test]
fn a_directory_is_not_a_key_file() {
    let folder = Folder::new();
    let path = Path::new("/");
    refused(&folder, &format!("{{ file = {path:?} }}"), "a folder, expected a key file in it");
}
