//! `examples/fleet/run.sh`: a newcomer's fleet on one machine, with players who get their tokens
//! over HTTP, a gateway that is killed, and a rotation of keys.
//!
//! Played where `REQUIRE_ETCD=1` asks for it: it takes etcd, OpenSSL, Python, curl and the load
//! generator's program, and the better part of a minute.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::folder::Folder;

#[test]
fn the_example_of_a_fleet_plays_loses_a_gateway_and_rotates_its_keys() {
    let required = std::env::var_os("REQUIRE_ETCD").is_some_and(|it| it == "1");
    if !required {
        eprintln!("SKIPPED: the example of a fleet is played where REQUIRE_ETCD=1 asks for it");
        return;
    }
    let ringgate = Path::new(env!("CARGO_BIN_EXE_ringgate"));
    // Built along with the workspace's tests, and not by the tests of this package alone.
    let loadgen = ringgate.with_file_name("ringgate-loadgen");
    let is_there = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    let mut missing: Vec<_> =
        ["etcd", "etcdctl", "openssl", "python3"].into_iter().filter(|it| !is_there(it)).collect();
    if !loadgen.exists() {
        missing.push("ringgate-loadgen");
    }
    assert!(missing.is_empty(), "REQUIRE_ETCD=1, and these are missing: {missing:?}");
    let folder = Folder::new();
    let said = Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet/run.sh"))
        .env("BIN", ringgate.parent().expect("a folder"))
        .env("TMPDIR", folder.join(""))
        .envs([("PLAYERS", "30"), ("SECONDS_TO_PLAY", "1")])
        .output()
        .expect("bash is there");
    let text = String::from_utf8_lossy(&said.stdout);
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{text}\n{errors}");
    let plays =
        text.lines().filter(|line| line.starts_with("ok  everyone who came was let in")).count();
    assert!(plays >= 3, "{text}\n{errors}");
    // Within which time depends on the machine: the example says it, and fails for nobody.
    assert!(text.contains("ms until all of them play through gate-2"), "{text}\n{errors}");
    assert!(text.ends_with("== done\n"), "{text}\n{errors}");
}
