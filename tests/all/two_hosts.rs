//! docs/start/two-hosts.md, typed as it stands there: its commands for the
//! gateway's host and for the game host, in two network namespaces.
//!
//! Skipped aloud where this process may not make namespaces, or openssl is missing.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::control_rig::wait_for;
use crate::folder::Folder;
use crate::netns::Pair;

/// The commands of a chapter, each with the host that its first line names.
pub(crate) fn blocks_of(document: &str, chapter: &str) -> Vec<(String, String)> {
    let (_, chapter) = document.split_once(&format!("\n## {chapter}\n")).expect("the chapter");
    let chapter = chapter.split("\n## ").next().expect("at least one part");
    let blocks = chapter.split("```sh\n").skip(1).map(|rest| rest.split("```").next());
    let blocks = blocks.map(|block| block.expect("it ends"));
    let host = |block: &str| block.lines().next()?.strip_prefix("# on ").map(str::to_owned);
    blocks.map(|it| (host(it).expect("it says whose commands these are"), it.to_owned())).collect()
}

/// Sends a signal to all that runs in a namespace.
pub(crate) fn signal_all_in(namespace: &str, name: &str) {
    let pids = Command::new("ip").args(["netns", "pids", namespace]).output();
    let pids = pids.map(|said| said.stdout).unwrap_or_default();
    for pid in String::from_utf8_lossy(&pids).lines() {
        let _ = Command::new("kill").args(["-s", name, pid]).status();
    }
}

/// Namespaces in which nothing runs any more once this is dropped.
struct Hosts<'a>(&'a Pair);

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        for name in [&self.0.gateway, &self.0.player] {
            signal_all_in(name, "KILL");
        }
    }
}

#[test]
fn the_chapter_brings_a_newcomer_from_one_host_to_two() {
    let has_openssl = Command::new("openssl").arg("version").stdout(Stdio::null()).status();
    if !has_openssl.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: openssl is missing");
        return;
    }
    let Some(pair) = Pair::new() else { return };
    for (name, address) in [(&pair.gateway, "192.0.2.10/24"), (&pair.player, "192.0.2.20/24")] {
        let added = ["-n", name, "addr", "add", address, "dev", "wire0"];
        assert!(Command::new("ip").args(added).status().expect("`ip` is there").success());
    }
    let hosts = Hosts(&pair);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/start/two-hosts.md");
    let document = std::fs::read_to_string(document).expect("it is there");
    let blocks = blocks_of(&document, "From one host to two");
    // One folder in the place of two: what is copied from host to host is there already.
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_ringgate")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let play = |host: &str, block: &str| {
        let namespace = match host {
            "the gateway's host" => &pair.gateway,
            "the game host" => &pair.player,
            other => panic!("whose commands are these? {other}"),
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "bash", "-e", "-c", block]);
        command.current_dir(folder.path()).env("PATH", &path).stdin(Stdio::null());
        command.output().expect("`ip` is there")
    };
    let (last, first) = blocks.split_last().expect("there are commands");
    for (host, block) in first {
        let said = play(host, block);
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{block}\n{errors}\n{}", logs(&folder));
    }
    // The last block is a player's, who comes when everything has found each other.
    let answer = wait_for("a player is answered", || {
        let said = play(&last.0, &last.1);
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        said.status.success().then_some(text)
    });
    assert_eq!(answer.matches("answered with 5 bytes, the same").count(), 2, "{answer}");
    drop(hosts);
}

fn logs(folder: &Folder) -> String {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    ["gate.log", "agent.log", "arena.log", "any.log"].map(read).join("\n")
}
