//! `ringgate top` on a terminal and in a pipe, beside a gateway that comes and goes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::command::{Ending, ringgate};
use crate::control_rig::{Daemon, Text, wait_for};
use crate::folder::Folder;

#[test]
fn q_leaves_the_screen_as_it_was() {
    let daemon = Daemon::start(&Text::new());
    let control = daemon.control();
    let top = format!(
        "stty rows 30 cols 100; exec {} top --interval 50ms --control {}",
        env!("CARGO_BIN_EXE_ringgate"),
        control.display()
    );
    // A terminal of its own, typed into through a pipe.
    let child = Command::new("script")
        .args(["-qfec", &top, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("util-linux is there");
    let mut child = Ending(child);
    let mut typing = child.0.stdin.take().expect("piped");
    let mut out = BufReader::new(child.0.stdout.take().expect("piped"));
    let mut seen = Vec::new();
    let mut read_until = |part: &str| {
        while !String::from_utf8_lossy(&seen).contains(part) {
            let bytes = out.fill_buf().expect("readable");
            assert!(!bytes.is_empty(), "{part} is missing: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(bytes);
            let count = bytes.len();
            out.consume(count);
        }
    };
    read_until(ENTER);
    read_until("worker");
    typing.write_all(b"q").expect("it reads keys");
    read_until(LEAVE);
    let status = wait_for("its end", || child.0.try_wait().expect("ours"));
    assert_eq!(status.code(), Some(0));
}

/// Another screen, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn it_survives_a_restart_of_the_gateway() {
    let run_dir = Folder::new();
    let mut text = Text::new();
    text.run_dir = Some(run_dir.path().to_owned());
    let mut daemon = Daemon::start(&text);
    let control = run_dir.join("control.sock");
    let mut command = ringgate([
        "top".as_ref(),
        "--interval=50ms".as_ref(),
        "--control".as_ref(),
        control.as_os_str(),
    ]);
    let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut child = Ending(child);
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    let mut wait_for_line = |part: &str| {
        let found = lines.any(|line| line.expect("readable").contains(part));
        assert!(found, "no line has {part}");
    };
    wait_for_line("  serving  ");
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
    wait_for_line("  no answer: ");
    let _again = Daemon::start(&text);
    wait_for_line("  serving  ");
}
