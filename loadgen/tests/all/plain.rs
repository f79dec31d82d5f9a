//! Plain players and their attackers over real sockets: any echo is a valid far end.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::command::{PATIENT, loadgen, wrong};

/// A bare echo in a process of its own; killed when dropped.
struct Echo {
    process: Child,
    address: String,
}

impl Echo {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"))
            .args(["bare-echo", "--bind", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { process, address }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the far end has seen of each token.
type Seen = HashMap<Vec<u8>, HashMap<SocketAddr, Vec<u16>>>;

/// An echo that takes tokens of four bytes away, as a gateway does that routes by them, and keeps
/// the numbers that it has seen.
struct Stripping {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Stripping {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let address = socket.local_addr().expect("bound");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut seen, mut bytes) = (Seen::new(), [0; 2048]);
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                let (body, token) = bytes[..len].split_at(len - 4);
                let number = u16::from_be_bytes([body[6], body[7]]);
                let sources = seen.entry(token.to_vec()).or_default();
                sources.entry(from).or_default().push(number);
                socket.send_to(body, from).expect("loopback takes it");
            }
            seen
        });
        Self { address, stop, thread }
    }

    fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the echo did not panic")
    }
}

const FEW: [&str; 8] = ["--sessions", "20", "--hz", "50", "--ramp", "200ms", "--hold", "1s"];

#[test]
fn players_carry_tokens_in_turns_and_count_their_datagrams() {
    let server = Stripping::start();
    let address = server.address.to_string();
    let plain = ["--plain", "--routing-token", "0a0b0c0d,FFEEDDCC", "--sequence", "6:16"];
    let where_to = ["run", "--server", &address, "--json"];
    let output = loadgen(&[&where_to[..], &plain, &FEW, &PATIENT].concat());
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let count = |name: &str| json["counters"][name].as_u64().expect("a counter");
    assert_eq!(count("echoed"), count("payloads_due"));
    assert_eq!(count("corrupt") + count("duplicates"), 0);
    let overhead = 21 + 4 + 2;
    assert_eq!(count("bytes_out"), (100 + overhead) * count("datagrams_out"));
    let seen = server.end();
    let tokens = [vec![10, 11, 12, 13], vec![0xff, 0xee, 0xdd, 0xcc]];
    assert_eq!(seen.len(), 2);
    for token in &tokens {
        assert_eq!(seen[token].len(), 10);
        for numbers in seen[token].values() {
            assert!(numbers.windows(2).all(|two| two[1] == two[0].wrapping_add(1)), "{numbers:?}");
        }
    }
    assert!(tokens.iter().flat_map(|token| seen[token].values()).any(|numbers| numbers[0] > 1000));
}

#[test]
fn what_an_echo_leaves_in_place_is_read_as_well() {
    let echo = Echo::start();
    for more in [
        &["--token", "0102030405060708", "--token-at", "start", "--sequence", "8:32"][..],
        &["--token", "07", "--sequence", "0:8"],
        &["--impair", "PktLoss=5 PktDup=5 PktOrder=1", "--sequence", "3:16"],
    ] {
        let run = ["run", "--plain", "--server", &echo.address];
        let all = [&run[..], &FEW, &PATIENT, more].concat();
        let output = loadgen(&all);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(table.contains("0 corrupt") && wrong(&table).is_empty(), "{table}");
    }
}

#[test]
fn the_floor_compares_whatever_echoes_with_a_bare_echo() {
    let echo = Echo::start();
    let pid = echo.process.id().to_string();
    let plain = ["--plain", "--server", &echo.address, "--sequence", "4:16", "--token", "aabb"];
    let shape = ["--sessions", "10", "--hz", "50", "--ramp", "200ms", "--hold", "3s"];
    let rounds = ["--rounds", "1", "--gateway-pid", &pid];
    let output = loadgen(&[&["floor"][..], &plain, &shape, &rounds].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && table.contains("median of 1;"), "{output:?}");
}

#[test]
fn every_attack_that_suits_the_listener_is_made_and_no_other() {
    let echo = Echo::start();
    let shape = ["--sessions", "5", "--hz", "20", "--ramp", "200ms", "--each", "1s"];
    let attack = ["attack", "--plain", "--server", &echo.address, "--rate", "500"];
    let all = ["--token", "0102", "--sequence", "3:16"];
    let output = loadgen(&[&attack[..], &shape, &all].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let names = ["plain-sources", "plain-duplicates", "plain-jumps", "plain-unknown-token"];
    for name in [&["junk", "plain-short"][..], &names].concat() {
        assert!(text.contains(&format!("{name}: ")), "{name}: {output:?}");
    }
    // An echo answers everybody, which is what a gateway has to keep within bounds.
    assert_eq!(text.matches("amplification 1.0000").count(), 6, "{text}");
    assert_eq!(text.matches("5 of 5 in").count(), 6, "{text}");
    let output = loadgen(&[&attack[..], &shape, &["--kind", "plain-jumps"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = loadgen(&[&attack[..], &shape, &["--kind", "forged-request"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn plain_arguments_that_make_no_sense_are_refused_in_words() {
    let plain = ["run", "--plain", "--server", "127.0.0.1:9"];
    for (more, expected) in [
        (&["--token", "abc"][..], "hex digits"),
        (&["--token", "aa,bbcc"], "one length"),
        (&["--token-at", "start"], "--routing-token"),
        (&["--sequence", "4"], "4:16"),
        (&["--sequence", "4:24"], "8, 16 or 32"),
        (&["--sequence", "48:16"], "beyond"),
        (&["--token", "aabb", "--token-at", "start", "--sequence", "1:8"], "in the token"),
        (&["--unreal"], "--unreal"),
    ] {
        let output = loadgen(&[&plain[..], more].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {text}");
        assert!(text.contains(expected), "{more:?}: {text}");
    }
    let output = loadgen(&["run", "--server", "127.0.0.1:9", "--token", "aa", "--key", "/x"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--plain"), "{output:?}");
}
