//! `ringgate demo --cluster`, as somebody runs it who wants to see that nobody is lost.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringgate_os::process;

use crate::agent::certificates;
use crate::command::{Ending, ringgate, run};
use crate::control_rig::wait_for;
use crate::fleet_etcd::is_installed;
use crate::folder::Folder;
use crate::netns::Pair;

/// Whether this machine has what the demo takes; what is missing is said aloud.
fn can_be_run() -> bool {
    Pair::new().is_some() && is_installed() && certificates(&Folder::new(), &[])
}

fn demo(arguments: &[&str]) -> Ending {
    let mut command = ringgate(["demo", "--cluster"].iter().chain(arguments));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Ending(child.expect("the binary was built"))
}

/// How it has ended, and what it said; it has left nothing.
fn ended(mut demo: Ending, mut stdout: impl Read) -> (Option<i32>, String, String) {
    let [mut text, mut errors] = [String::new(), String::new()];
    stdout.read_to_string(&mut text).expect("text");
    let mut stderr = demo.stderr.take().expect("piped");
    stderr.read_to_string(&mut errors).expect("text");
    let code = demo.wait().expect("our child").code();
    let namespaces = Command::new("ip").args(["netns", "list"]).output().expect("`ip` is there");
    let namespaces = String::from_utf8(namespaces.stdout).expect("text");
    let name = format!("ringgate-demo-{}-", demo.id());
    assert!(!namespaces.contains(&name), "{namespaces}");
    assert!(!folder_of(&demo).exists());
    (code, text, errors)
}

fn folder_of(demo: &Ending) -> PathBuf {
    std::env::temp_dir().join(format!("ringgate-demo-{}", demo.id()))
}

#[test]
fn nobody_is_lost_when_a_gateway_of_the_demo_is_killed() {
    if !can_be_run() {
        return;
    }
    let mut demo = demo(&["--players", "40", "--seconds", "5"]);
    let stdout = demo.stdout.take().expect("piped");
    let (code, text, errors) = ended(demo, stdout);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{text}");
    assert!(text.contains("\nplayers        40 connected, 0 lost\n"), "{text}");
    assert!(text.contains(" echoed, 0 wrong or twice\n"), "{text}");
    let killed = text.lines().find_map(|line| line.strip_prefix("killed         "));
    let numbers = killed.expect("a line").split(' ').filter_map(|word| word.parse().ok());
    let numbers: Vec<f64> = numbers.collect();
    let [had, taken_over, median_ms, ..] = numbers[..] else { panic!("{text}") };
    assert!(had > 0.0 && taken_over > 0.0 && median_ms > 0.0, "{text}");
    let survivors = text.lines().filter(|line| line.ends_with("  everything")).count();
    assert_eq!(survivors, 2, "{text}");
}

#[test]
fn a_demo_of_a_cluster_that_is_told_to_stop_leaves_nothing() {
    if !can_be_run() {
        return;
    }
    for (signal, plays) in [(libc::SIGTERM, false), (libc::SIGINT, true)] {
        let mut demo = demo(&["--players", "3", "--seconds", "10m"]);
        let mut stdout = BufReader::new(demo.stdout.take().expect("piped"));
        let folder = folder_of(&demo);
        wait_for("its folder", || folder.exists().then_some(()));
        let mut line = String::new();
        while plays && !line.contains("3 sessions") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).expect("text"), 0, "it has ended");
        }
        process::signal(demo.id(), signal).expect("it runs");
        let (code, text, errors) = ended(demo, stdout);
        assert_eq!((code, errors.as_str()), (Some(1), "ringgate: stopped\n"), "{text}");
    }
}

#[test]
fn what_a_demo_of_a_cluster_lacks_is_said_before_anything_is_changed() {
    let mut command = ringgate(["demo", "--cluster"]);
    let nothing = Folder::new();
    command.env("PATH", nothing.path());
    let ran = run(command);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("ip, etcd, openssl (sudo; "), "{}", ran.stderr);
    let ran = run(ringgate(["demo", "--cluster", "--players", "2001"]));
    assert!(ran.refused().starts_with("--players: "));
}
