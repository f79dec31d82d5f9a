//! The binary: exit codes, files, and what it says about wrong input.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::fleet::{Server, key};

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("ringgate-loadgen-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

pub(crate) fn loadgen(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"));
    command.args(arguments).output().expect("the binary runs")
}

/// On a machine that has much else to do, answers take seconds. A run that loses nothing ends when
/// they are here.
pub(crate) const PATIENT: [&str; 2] = ["--linger", "30s"];

/// What a table says does not hold. That the generator kept its pace is the machine's business: in
/// tests it has no core of its own.
pub(crate) fn wrong(table: &str) -> Vec<&str> {
    let is_wrong = |line: &&str| line.starts_with("NO  ") && !line.contains("kept its pace");
    table.lines().filter(is_wrong).collect()
}

/// A small run that writes its files to a folder.
pub(crate) fn small_run(folder: &std::path::Path, more: &[&str]) -> Output {
    small("run", folder, more)
}

fn small(command: &str, folder: &std::path::Path, more: &[&str]) -> Output {
    let server = Server::start();
    let key_file = folder.join("key");
    std::fs::write(&key_file, key().to_hex()).expect("written");
    let address = server.address.to_string();
    let mut arguments =
        vec![command, "--server", &address, "--key", key_file.to_str().expect("UTF-8")];
    arguments.extend([
        "--protocol-id",
        "7",
        "--sessions",
        "10",
        "--ramp",
        "200ms",
        "--hold",
        "1300ms",
    ]);
    let out = folder.join("out");
    arguments.extend(["--out", out.to_str().expect("UTF-8")]);
    arguments.extend(more);
    loadgen(&arguments)
}

#[test]
fn a_run_prints_a_table_and_leaves_its_files() {
    let folder = folder("run");
    let output = small_run(&folder, &["--require", "p99<60s,loss<100%,failed<1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("10 connected of 10") && text.contains("0 corrupt"), "{text}");
    for file in ["run.json", "run.hlog", "report.html"] {
        assert!(folder.join("out").join(file).metadata().expect(file).len() > 500, "{file}");
    }
    let page = folder.join("both.html");
    let out = folder.join("out");
    let (out, page_name) = (out.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    let output = loadgen(&["report", out, out, "--html", page_name]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(page).expect("written").contains("2 runs"));
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_missed_condition_is_exit_code_three_and_json_is_json() {
    let folder = folder("require");
    let output = small_run(&folder, &["--json", "--require", "p50<1ns"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("p50<1ns is missed"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(json["counters"]["connected"], 10);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn wrong_input_is_exit_code_two_and_one_clear_sentence() {
    for (arguments, expected) in [
        (vec!["run"], "--server"),
        (vec!["run", "--server", "127.0.0.1:1", "--key", "/does/not/exist"], "/does/not/exist"),
        (vec!["run", "--tokens", "/does/not/exist"], "/does/not/exist"),
        (vec!["run", "--tokens", "/", "--impair", "PktLoss=500"], "PktLoss"),
        (vec!["run", "--tokens", "/", "--require", "p99"], "p99<2ms"),
        (vec!["report", "/does/not/exist"], "/does/not/exist"),
        ([&["floor", "--plain", "--hops", "2"][..], &OWN].concat(), "--own-sockets"),
        (
            [&["attack", "--unreal", "--kind", "unreal-forged-game"][..], &OWN].concat(),
            "--own-sockets",
        ),
    ] {
        let output = loadgen(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

const OWN: [&str; 3] = ["--own-sockets", "--server", "127.0.0.1:1"];

/// A disk that is full costs the files, and nothing else.
#[test]
fn what_cannot_be_written_is_said_beside_the_verdict() {
    for (file, more, code) in [
        ("run.hlog", &["--require", "p50<1ns"][..], 3),
        ("run.hlog", &[], 1),
        ("run.json", &["--require", "p50<1ns"], 3),
        ("run.json", &[], 1),
    ] {
        let folder = folder("full");
        let out = folder.join("out");
        std::fs::create_dir(&out).expect("made");
        std::os::unix::fs::symlink("/dev/full", out.join(file)).expect("linked");
        let output = small_run(&folder, more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{file}: {output:?}");
        assert!(said.contains("No space left"), "{file}: {said}");
        assert_eq!(said.contains("p50<1ns is missed"), code == 3, "{file}: {said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("10 connected of 10"));
        assert!(out.join("report.html").metadata().expect("written").len() > 500);
        std::fs::remove_dir_all(folder).expect("removed");
    }
}

#[test]
fn steps_that_were_played_are_kept_where_the_next_cannot_be() {
    let folder = folder("ladder-steps");
    let csv = folder.join("steps.csv");
    let at = ["--at", "20,2000000", "--csv", csv.to_str().expect("UTF-8")];
    let output = small("ladder", &folder, &at);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let steps = std::fs::read_to_string(csv).expect("written");
    assert_eq!(steps.lines().count(), 2, "{steps}");
    assert!(folder.join("out/ladder.json").is_file());
    std::fs::remove_dir_all(folder).expect("removed");
}
