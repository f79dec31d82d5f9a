//! `ringgate keygen` at the shell.

use std::fs;
use std::os::unix::fs::symlink;

use crate::command::{ringgate, run};
use crate::folder::{Folder, mode};

#[test]
fn keys_are_64_digits_and_never_the_same() {
    let keys = [(); 2].map(|()| run(ringgate(["keygen"])).succeeded());
    for key in &keys {
        let digits = key.strip_suffix('\n').expect("a line");
        assert_eq!(digits.len(), 64);
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn a_key_file_is_for_its_owner_only_and_says_nothing_on_stdout() {
    let folder = Folder::new();
    let file = folder.join("key");
    let output = run(ringgate(["keygen".as_ref(), "--out".as_ref(), file.as_os_str()])).succeeded();
    assert_eq!(output, "");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(fs::read_to_string(&file).expect("it was written").len(), 65);
    assert_eq!(folder.names(), ["key"]);
}

#[test]
fn an_existing_key_stays_unless_forced() {
    let folder = Folder::new();
    let file = folder.file("key", "old", 0o644);
    let keygen = || ringgate(["keygen".as_ref(), "--out".as_ref(), file.as_os_str()]);
    let sentence = run(keygen()).refused();
    assert_eq!(sentence, format!("{} already exists (--force replaces it)", file.display()));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "old");

    let mut forced = keygen();
    forced.arg("--force");
    run(forced).succeeded();
    assert_eq!(fs::read_to_string(&file).expect("it is there").len(), 65);
    assert_eq!(mode(&file), 0o600);
    assert_eq!(folder.names(), ["key"]);
}

#[test]
fn only_plain_files_are_written() {
    let folder = Folder::new();
    let link = folder.join("link");
    symlink("/dev/null", &link).expect("links can be made");
    for target in [link.as_path(), folder.path()] {
        let args = ["keygen".as_ref(), "--force".as_ref(), "--out".as_ref(), target.as_os_str()];
        let sentence = run(ringgate(args)).refused();
        assert!(sentence.ends_with("exists and is not a plain file"), "{sentence}");
    }
    let nowhere = folder.join("missing/key");
    let args = ["keygen".as_ref(), "--out".as_ref(), nowhere.as_os_str()];
    let sentence = run(ringgate(args)).refused();
    assert!(sentence.starts_with("cannot write "), "{sentence}");
    assert_eq!(folder.names(), ["link"]);
}
