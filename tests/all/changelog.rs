//! What has changed lies in a file for each change, and a release joins them.

use std::path::Path;
use std::process::{Command, Output};

use crate::folder::Folder;

fn changelog(what: &str, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/changelog");
    Command::new(script).arg(what).arg(folder).output().expect("bash is there")
}

#[test]
fn a_release_puts_what_has_changed_above_what_was_there_and_the_files_go() {
    let folder = Folder::new();
    std::fs::create_dir(folder.join("changelog.d")).expect("our own folder");
    folder.file("CHANGELOG.md", "# C\n\n## Unreleased\n\n- old\n\n## 0.1\n\n- older\n", 0o644);
    folder.file("changelog.d/README.md", "how\n", 0o644);
    folder.file("changelog.d/b.md", "- two\n", 0o644);
    folder.file("changelog.d/a.md", "- one\n  and more\n- another\n", 0o644);
    assert!(changelog("look", folder.path()).status.success());
    assert!(changelog("join", folder.path()).status.success());
    let joined = std::fs::read_to_string(folder.join("CHANGELOG.md")).expect("it is there");
    let points = "- one\n  and more\n- another\n- two\n- old\n";
    assert_eq!(joined, format!("# C\n\n## Unreleased\n\n{points}\n## 0.1\n\n- older\n"));
    let left = std::fs::read_dir(folder.join("changelog.d")).expect("it is there");
    assert_eq!(left.count(), 1, "how it is done stays");
    for (name, text) in [("c.md", "no point\n"), ("c.md", ""), ("c.txt", "- a point\n")] {
        let file = folder.file(&format!("changelog.d/{name}"), text, 0o644);
        let refused = changelog("join", folder.path());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(name), "{text:?}: {said}");
        std::fs::remove_file(file).expect("our own file");
    }
    let after = std::fs::read_to_string(folder.join("CHANGELOG.md")).expect("it is there");
    assert_eq!(after, joined);
}
