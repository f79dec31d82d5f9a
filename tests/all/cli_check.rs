//! `ringgate check` at the shell.

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use crate::command::{ringgate, run};
use crate::config_mistakes::KEY;
use crate::folder::{Folder, IDENTITY};

/// An explained config with a key file that exists.
fn explained(folder: &Folder) -> String {
    folder.file("netcode.key", KEY, 0o600);
    for (name, text, mode) in IDENTITY {
        folder.file(name, text, mode);
    }
    let text = run(ringgate(["check", "--explain"])).succeeded();
    text.replace("/etc/ringgate/netcode.key", "netcode.key")
}

#[test]
fn the_explanation_checks() {
    let folder = Folder::new();
    let file = folder.file("gate.toml", explained(&folder), 0o644);
    let output = run(ringgate(["check".as_ref(), file.as_os_str()])).succeeded();
    let (ok, notes) = output.split_once('\n').expect("a line");
    assert_eq!(ok, format!("{}: ok, 3 listeners, 3 backends", file.display()));
    // Anybody may come there, from as many addresses of a block as there are.
    let notes: Vec<_> = notes.lines().collect();
    assert_eq!(notes.len(), 2, "{output}");
    assert!(notes.iter().all(|note| note.contains("could fill backend")), "{output}");
}

#[test]
fn mistakes_are_lines_that_editors_can_jump_by() {
    let folder = Folder::new();
    let text =
        explained(&folder).replace("pin = true", "pin = 1").replace("slots = 64", "slots = -1");
    let line_of = |what| text.lines().position(|line| line == what).expect("it is there") + 1;
    let (pin, slots) = (line_of("pin = 1"), line_of("slots = -1"));
    let file = folder.file("gate.toml", &text, 0o644);
    let ran = run(ringgate(["check".as_ref(), file.as_os_str()]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let name = file.display();
    assert_eq!(
        ran.stderr,
        format!(
            "{name}:{pin}: gateway.pin: found 1, expected true or false\n\
             {name}:{slots}: backend[0].slots: found -1, expected a whole number from 0 to 1000000\n"
        )
    );
}

#[test]
fn notices_do_not_fail_the_check() {
    let folder = Folder::new();
    let text = explained(&folder).replace("\"127.0.0.1:9464\"", "\"0.0.0.0:9464\"");
    let file = folder.file("gate.toml", text, 0o644);
    let output = run(ringgate(["check".as_ref(), file.as_os_str()])).succeeded();
    assert!(output.contains("\nnote: admin.bind 0.0.0.0:9464 can be reached"), "{output}");
}

#[test]
fn a_file_that_cannot_be_read_is_one_sentence() {
    let folder = Folder::new();
    let missing = folder.join("missing.toml");
    let sentence = run(ringgate(["check".as_ref(), missing.as_os_str()])).refused();
    assert!(sentence.starts_with("cannot read the config file "), "{sentence}");

    let binary = folder.join("binary.toml");
    fs::write(&binary, [0xff, 0xfe]).expect("temporary files can be written");
    let sentence = run(ringgate(["check".as_ref(), binary.as_os_str()])).refused();
    assert!(sentence.ends_with("stream did not contain valid UTF-8"), "{sentence}");
}

#[test]
fn arguments_that_do_not_fit_are_wrong_input_too() {
    for args in [&[][..], &["check"], &["check", "a", "b"], &["check", "a", "--explain"], &["chek"]]
    {
        assert_eq!(run(ringgate(args)).code, Some(2), "{args:?}");
    }
    assert_eq!(run(ringgate(["--version"])).code, Some(0));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = ringgate(["check", "--explain"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("the binary was built");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "ringgate: cannot write to stdout: No space left on device (os error 28)\n"
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = ringgate(["check", "--explain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &[][..]));
}
