//! Ctrl-C and SIGTERM: the books are finished, every output is written, and everybody says goodbye.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use super::command::wrong;
use super::gateway::{Game, Gateway, Link, text};

/// A command that runs, read up to a line on stderr that was waited for.
struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    seen: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary runs");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, stderr, seen: String::new() }
    }

    /// Reads stderr until a line fits.
    #[track_caller]
    fn until(&mut self, fits: impl Fn(&str) -> bool) {
        loop {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).expect("a pipe");
            self.seen.push_str(&line);
            assert!(read > 0, "the line has never come: {}", self.seen);
            if fits(&line) {
                return;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is there");
        assert!(sent.success());
    }

    fn end(mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), self.seen.into_bytes());
        self.child.stdout.take().expect("piped").read_to_end(&mut stdout).expect("a pipe");
        self.stderr.read_to_end(&mut stderr).expect("a pipe");
        Output { status: self.child.wait().expect("it ends"), stdout, stderr }
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All who were in said goodbye: no session is left, and none ran into its time-out.
#[track_caller]
fn assert_all_said_goodbye(gateway: &Gateway) {
    let closed = |why: &str| gateway.metric(&format!("ringgate_sessions_closed_total{{{why}}}"));
    let opened = gateway.metric("ringgate_sessions_opened_total");
    let is_over = (0..1200).any(|_| {
        ringgate_os::clock::sleep(std::time::Duration::from_millis(25));
        closed("by_player") == opened
    });
    assert!(is_over, "{} of {opened} said goodbye", closed("by_player"));
    assert_eq!((gateway.metric("ringgate_sessions"), closed("timed_out")), (0, 0));
    assert!(opened > 0);
}

#[test]
fn a_run_that_is_interrupted_while_players_play_finishes_its_books() {
    for (driver, signal, code) in [("mmsg", "INT", 130), ("auto", "TERM", 143)] {
        let gateway = Gateway::start(&format!("int-run-{signal}"), Link::Bundle, Game::Echo);
        let out = gateway.folder.join("out");
        let few = ["--sessions", "20", "--hz", "20", "--ramp", "300ms", "--hold", "600s"];
        let files = ["--out", text(&out), "--io", driver, "--require", "p99<60s"];
        let mut run = Running::start(&mut gateway.command("run", &[&few[..], &files].concat()));
        run.until(|line| line.contains("hold") && line.contains("sessions 20"));
        run.signal(signal);
        let output = run.end();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let table = stdout(&output);
        let said = format!("interrupted by SIG{signal}");
        assert!(table.contains(&said) && table.contains("20 connected of 20"), "{table}");
        assert!(table.contains("ok  payloads: sent") && wrong(&table).is_empty(), "{table}");
        let record = ringgate_loadgen::report::read(&out).expect("run.json is whole");
        assert!(record.intervals.iter().map(|i| i.due).sum::<u64>() > 0);
        assert_eq!(record.imbalances(), [""; 0]);
        let page = std::fs::read_to_string(out.join("report.html")).expect("written");
        assert!(page.contains(&said) && page.ends_with("</html>\n"));
        let log = std::fs::read(out.join("run.hlog")).expect("written");
        let log = ringgate_report::hlog::read(&log).expect("the log is whole");
        assert!(log.intervals.iter().any(|interval| interval.tag == "round_trip:both"));
        assert_all_said_goodbye(&gateway);
    }
}

#[test]
fn a_run_that_is_interrupted_while_players_connect_says_goodbye_for_those_who_are_in() {
    let gateway = Gateway::start("int-ramp", Link::Bundle, Game::Echo);
    let few = ["--sessions", "1000", "--hz", "5", "--ramp", "100s", "--hold", "10s", "--json"];
    let mut run = Running::start(&mut gateway.command("run", &few[..8]));
    run.until(|line| line.contains("ramp") && !line.contains("sessions 0 "));
    run.signal("INT");
    let output = run.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(stdout(&output).contains("interrupted by SIGINT"), "{output:?}");
    assert!(!stdout(&output).contains("1,000 "), "those who never came are nowhere: {output:?}");
    assert_all_said_goodbye(&gateway);
    let mut run = Running::start(gateway.command("run", &few).stdin(Stdio::null()));
    // With --json nothing is told meanwhile.
    gateway.until(&mut run.child, "ringgate_sessions", 1);
    run.signal("TERM");
    run.seen.clear();
    let output = run.end();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(json["interrupted"]["signal"], "SIGTERM");
    assert_all_said_goodbye(&gateway);
}

#[test]
fn a_ladder_that_is_interrupted_shows_its_steps_and_names_no_knee() {
    let gateway = Gateway::start("int-ladder", Link::Bundle, Game::Echo);
    let csv = gateway.folder.join("steps.csv");
    let bounds = ["--from", "100", "--factor", "1.1", "--loss", "100", "--p99", "60s"];
    let few = ["--sessions", "5", "--ramp", "200ms", "--hold", "1s", "--csv", text(&csv)];
    let mut command = gateway.command("ladder", &[&bounds[..], &few].concat());
    let mut ladder = Running::start(&mut command);
    // Two steps have been opened, so one is over.
    gateway.until(&mut ladder.child, "ringgate_sessions_opened_total", 8);
    ladder.signal("INT");
    let output = ladder.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(!stdout(&output).contains("\nknee:"), "{output:?}");
    assert!(stdout(&output).contains("interrupted"), "{output:?}");
    let steps = std::fs::read_to_string(csv).expect("written");
    assert!(steps.lines().nth(1).is_some_and(|line| line.contains(",true,spread,")), "{steps}");
    assert_all_said_goodbye(&gateway);
}

#[test]
fn an_attack_that_is_interrupted_holds_its_fire_and_shows_what_there_is() {
    let gateway = Gateway::start("int-attack", Link::Bundle, Game::Echo);
    let csv = gateway.folder.join("parts.csv");
    let attack = ["--kind", "junk,forged-request", "--rate", "500", "--each", "60s"];
    let few = ["--sessions", "5", "--hz", "10", "--ramp", "1s", "--csv", text(&csv)];
    let mut command = gateway.command("attack", &[&attack[..], &few].concat());
    let mut attack = Running::start(&mut command);
    gateway.until(&mut attack.child, "ringgate_payloads_up_total", 20);
    attack.signal("INT");
    let output = attack.end();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(stdout(&output).contains("interrupted") && csv.is_file(), "{output:?}");
    assert_all_said_goodbye(&gateway);
}

#[test]
fn the_closing_wait_ends_when_it_is_interrupted() {
    let gateway = Gateway::start("int-closing", Link::Bundle, Game::Echo);
    let address = gateway.address;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    // As long as another program talks to the gateway, nothing is quiet.
    let stranger = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = socket.send_to(&[0x15; 40], address);
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    });
    // Without the signal it would be two minutes.
    let few = ["--sessions", "5", "--hz", "10", "--ramp", "200ms", "--hold", "500ms"];
    let out = gateway.folder.join("out");
    let long = ["--out", text(&out), "--timeout", "120"];
    let mut command = gateway.command("run", &[&few[..], &long].concat());
    let mut run = Running::start(&mut command);
    run.until(|line| line.contains("goodbye") && line.contains("sessions 0 "));
    run.signal("INT");
    let output = run.end();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    stranger.join().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let table = stdout(&output);
    assert!(table.contains("interrupted by SIGINT") && table.contains("5 connected of 5"));
    let record = ringgate_loadgen::report::read(&out).expect("run.json is whole");
    assert!(record.seconds < 60.0, "{}", record.seconds);
    assert_all_said_goodbye(&gateway);
}

#[test]
fn the_second_interrupt_ends_it_at_once() {
    let gateway = Gateway::start("int-twice", Link::Bundle, Game::Echo);
    let few = ["--sessions", "20", "--hz", "20", "--ramp", "300ms", "--hold", "600s"];
    let mut run = Running::start(&mut gateway.command("run", &few));
    run.until(|line| line.contains("hold") && line.contains("sessions 20"));
    run.signal("INT");
    run.until(|line| line.contains("saying goodbye"));
    run.signal("INT");
    let output = run.end();
    assert_eq!(output.status.signal(), Some(2), "{output:?}");
    assert_eq!(stdout(&output), "");
}

#[test]
fn a_game_server_of_ours_says_at_its_end_what_it_heard() {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"));
    let mut serve = Running::start(serve.args(["serve", "--udp", "127.0.0.1:0"]));
    let mut line = String::new();
    let mut out = BufReader::new(serve.child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("a pipe");
    assert!(line.starts_with("serve: udp on "), "{line}");
    serve.signal("TERM");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("a pipe");
    assert!(rest.contains("heard 0 payloads") && rest.contains("sent 0"), "{rest}");
    let status = serve.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(143), "{rest}");
}
