//! Whole commands against the real gateway: what they print, what they exit with, and that all
//! books balance. Small and bounded; nothing depends on how fast the machine is.

use std::process::Output;

use ringgate_core::secret::Key;
use ringgate_loadgen::players::tokens::Mint;

use super::command::{PATIENT, loadgen, wrong};
use super::gateway::{Game, Gateway, Link, PROTOCOL_ID, text};

/// A few players for a moment.
const SMALL: &[&str] = &[
    "--sessions",
    "20",
    "--hz",
    "20",
    "--ramp",
    "500ms",
    "--hold",
    "1500ms",
    PATIENT[0],
    PATIENT[1],
];

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> ringgate_loadgen::report::record::Record {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a record")
}

fn assert_balanced(output: &Output) -> String {
    let text = stdout(output);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("ok  datagrams up") && text.contains("ok  payloads: sent"), "{text}");
    assert!(wrong(&text).is_empty() && !text.contains("UNEXPLAINED"), "{text}");
    text
}

#[test]
fn the_books_of_a_run_balance_on_either_link() {
    for (name, link) in [("bundle", Link::Bundle), ("udp", Link::Udp)] {
        let gateway = Gateway::start(&format!("whole-{name}"), link, Game::Echo);
        let text = assert_balanced(&gateway.load("run", SMALL));
        for part in ["20 connected of 20", "µs per datagram", "by way      up:"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}

#[test]
fn the_books_of_messages_balance_on_every_kind_of_channel() {
    let gateway = Gateway::start_with("whole-messages", "delivery = \"gateway\"");
    let bad = "PktLag=20 PktLagVariance=10 PktLoss=5 PktIncomingLoss=5";
    for (kind, bytes) in
        [("reliable", "100-60000"), ("sequenced", "28-1159"), ("unreliable", "100")]
    {
        let more = ["--delivery", kind, "--bytes", bytes, "--sessions", "8", "--hz", "4"];
        let more = [&more[..], &["--ramp", "300ms", "--hold", "1500ms", "--impair", bad]].concat();
        let text = stdout(&gateway.load("run", &[&more[..], &["--arrivals", "ticks"]].concat()));
        for part in ["8 connected of 8", "ok  messages: taken", "ok  messages at the gateway"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(wrong(&text).is_empty() && !text.contains("UNEXPLAINED"), "{text}");
    }
}

#[test]
fn whoever_else_talks_to_the_gateway_unbalances_the_books_which_is_exit_code_four() {
    let gateway = Gateway::start("whole-stranger", Link::Bundle, Game::Echo);
    let address = gateway.address;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let stranger = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        // A plausible payload packet, which the socket's filter lets pass.
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            socket.send_to(&[0x15; 40], address).expect("loopback takes it");
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
    });
    let output = gateway.load("run", SMALL);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("datagrams up") && why.contains("UNEXPLAINED"), "{why}");
    stranger.join().expect("it ends");
}

fn attack(kind: &str) -> String {
    let gateway = Gateway::start(&format!("whole-{kind}"), Link::Bundle, Game::Echo);
    let output = gateway.load(
        "attack",
        &[
            &["--kind", kind, "--rate", "500", "--ramp", "1s", "--each", "1s"][..],
            &["--sessions", "10", "--hz", "10"],
        ]
        .concat(),
    );
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    for line in ["before", "during", "after", "10 of 10 in, 0 sessions lost", "books    balance"] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    text
}

#[test]
fn junk_is_not_answered() {
    let text = attack("junk");
    assert!(text.contains("0 answers, amplification 0.0000"), "{text}");
}

#[test]
fn forged_requests_are_not_answered() {
    let text = attack("forged-request");
    assert!(text.contains("0 answers, amplification 0.0000"), "{text}");
    assert!(text.contains("dropped  request_forged"), "{text}");
}

#[test]
fn a_replayed_token_is_answered_once() {
    let text = attack("replayed-token");
    assert!(text.contains(" 1 answers") && text.contains("token_used_elsewhere"), "{text}");
}

#[test]
fn a_replayed_capture_moves_nobody_and_delivers_nothing_twice() {
    // That no payload is delivered twice is in the books: opened are as many as were recorded.
    let text = attack("replayed-capture");
    assert!(text.contains("dropped  replay_duplicate"), "{text}");
    assert!(!text.contains("port_switches"), "{text}");
}

#[test]
fn forged_payloads_reach_no_game_and_forged_disconnects_end_no_session() {
    for kind in ["forged-payload", "forged-disconnect"] {
        let text = attack(kind);
        assert!(text.contains("0 answers, amplification 0.0000"), "{text}");
        assert!(text.contains("dropped  packet_forged"), "{text}");
    }
}

#[test]
fn handshakes_that_never_finish_get_less_than_they_send() {
    let text = attack("slow-handshake");
    let amplification = text.split("amplification ").nth(1).and_then(|text| text.get(..6));
    let amplification: f64 = amplification.expect("a figure").parse().expect("a number");
    assert!(amplification > 0.0 && amplification < 0.4, "{text}");
}

#[test]
fn a_ladder_ends_where_it_is_told_to() {
    let gateway = Gateway::start("whole-ladder", Link::Bundle, Game::Echo);
    let csv = gateway.folder.join("steps.csv");
    let output = gateway.load(
        "ladder",
        &[
            &["--from", "200", "--factor", "2", "--to", "400", "--loss", "100", "--p99", "60s"][..],
            &["--sessions", "10", "--ramp", "300ms", "--hold", "1s"],
            &["--csv", csv.to_str().expect("UTF-8")],
        ]
        .concat(),
    );
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("knee: above 400 payloads/s"), "{text}");
    let steps = std::fs::read_to_string(csv).expect("written");
    assert_eq!(steps.lines().count(), 3, "{steps}");
    assert!(steps.lines().skip(1).all(|line| line.contains(",true,spread,")), "{steps}");
}

/// The gateway lets nobody in with a token that it has seen from somewhere else.
#[test]
fn a_ladder_shows_no_token_twice() {
    let gateway = Gateway::start("whole-ladder-tokens", Link::Bundle, Game::Echo);
    let key = std::fs::read_to_string(gateway.folder.join("key")).expect("written");
    let mint = Mint {
        key: Key::from_hex(&key).expect("a key"),
        protocol_id: PROTOCOL_ID,
        servers: gateway.address.to_string().parse().expect("an address"),
        timeout_seconds: 10,
        user_data: [0; 256],
    };
    let token = |id| mint.token(id, ringgate_os::clock::unix_seconds()).expect("random bytes");
    let (tokens, admin) = (gateway.folder.join("tokens"), gateway.control());
    let bytes: Vec<_> = (1..=8).flat_map(|id| token(id).to_bytes()).collect();
    std::fs::write(&tokens, bytes).expect("written");
    let output = loadgen(
        &[
            &["ladder", "--tokens", text(&tokens), "--admin", text(&admin)][..],
            &["--at", "20,40", "--sessions", "4", "--ramp", "300ms", "--hold", "1s"],
            &PATIENT,
        ]
        .concat(),
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_ladder_whose_first_rate_is_too_much_has_no_knee() {
    let gateway = Gateway::start("whole-ladder-bad", Link::Bundle, Game::Echo);
    let output = gateway.load(
        "ladder",
        &[
            &["--from", "100", "--p99", "1ns", "--sessions", "5"][..],
            &["--ramp", "200ms", "--hold", "500ms"],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("already too much"), "{output:?}");
}

#[test]
fn the_floor_is_one_hop_for_a_bundle_link_and_two_for_a_udp_link() {
    for (name, link, hops) in [("one", Link::Bundle, "1"), ("two", Link::Udp, "2")] {
        let gateway = Gateway::start(&format!("whole-floor-{name}"), link, Game::Echo);
        let output = gateway.load(
            "floor",
            &[
                &["--hops", hops, "--rounds", "1", "--sessions", "10", "--hz", "20"][..],
                &["--ramp", "500ms", "--hold", "3s"],
            ]
            .concat(),
        );
        let text = stdout(&output);
        assert!(output.status.success(), "{output:?}");
        assert_has_ratio(&text);
        assert!(!text.contains("lost "), "{text}");
    }
}

fn assert_has_ratio(text: &str) {
    let ratio = text.split("\nratio ").nth(1).and_then(|text| text.split(' ').next());
    let ratio: f64 = ratio.expect("a figure").parse().expect("a number");
    assert!(ratio.is_finite() && ratio > 0.0, "{text}");
}

#[test]
fn the_floor_of_full_queues_is_measured_burst_by_burst() {
    let gateway = Gateway::start("whole-floor-bursts", Link::Bundle, Game::Echo);
    let output = gateway.load(
        "floor",
        &[
            &["--gather", "50ms", "--rounds", "1", "--sessions", "10", "--hz", "20"][..],
            &["--ramp", "500ms", "--hold", "3s"],
        ]
        .concat(),
    );
    if String::from_utf8_lossy(&output.stderr).contains("Operation not permitted") {
        eprintln!("SKIPPED: bursts that nobody interrupts need CAP_SYS_NICE");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    assert_has_ratio(&stdout(&output));
}

#[test]
fn a_nat_that_changes_its_mind_loses_no_session() {
    for (name, more) in [("shared", &[][..]), ("sockets", &["--own-sockets"][..])] {
        let gateway = Gateway::start(&format!("whole-nat-{name}"), Link::Bundle, Game::Echo);
        let output = gateway.load(
            "run",
            &[
                &["--sessions", "4", "--hz", "20", "--ramp", "200ms", "--hold", "3s", "--json"][..],
                &["--impair", "NatSwitchSeconds=1"],
                more,
            ]
            .concat(),
        );
        let record = json(&output);
        let count = |name: &str| record.counters[name];
        assert!(count("port_switches") >= 4, "{:?}", record.counters);
        assert_eq!((count("connected"), count("sessions_lost")), (4, 0));
        let followed = record.gateway_metrics["ringgate_port_switches_total"];
        assert!(followed >= 4.0, "{followed} followed");
        assert_eq!(record.imbalances(), [""; 0]);
    }
}

#[test]
fn players_with_sockets_of_their_own_balance_too() {
    let gateway = Gateway::start("whole-sockets", Link::Bundle, Game::Echo);
    assert_balanced(&gateway.load("run", &[SMALL, &["--own-sockets"]].concat()));
}

#[test]
fn tokens_that_run_out_are_missed_aloud() {
    let gateway = Gateway::start("whole-tokens", Link::Bundle, Game::Echo);
    let key = std::fs::read_to_string(gateway.folder.join("key")).expect("written");
    let key = ringgate_core::secret::Key::from_hex(&key).expect("hex");
    let servers = ringgate_core::netcode::ServerAddresses::new(&[gateway.address]).expect("one");
    let pile: Vec<u8> = (0..3)
        .flat_map(|client| {
            let spec = ringgate_core::netcode::TokenSpec::new(PROTOCOL_ID, client, servers.clone());
            let now = ringgate_os::clock::unix_seconds();
            ringgate_core::netcode::mint(&spec, &key, now).expect("random bytes").to_bytes()
        })
        .collect();
    let file = gateway.folder.join("tokens");
    std::fs::write(&file, pile).expect("written");
    let admin = gateway.control().display().to_string();
    let output = super::command::loadgen(
        &[
            &["run", "--tokens", file.to_str().expect("UTF-8"), "--admin", &admin][..],
            &["--sessions", "5", "--hz", "20", "--ramp", "500ms", "--hold", "1s"],
            &["--require", "failed<1"],
        ]
        .concat(),
    );
    let text = stdout(&output);
    // Players outside spoil more than a condition that was missed; both are said.
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(why.contains("5 came, 3 were let in") && why.contains("failed<1 is missed: it was 2"));
    assert!(text.contains("2 never dialled: the connect tokens ran out"), "{text}");
    assert!(text.contains("3 connected of 5"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("tokenless 2"), "{output:?}");
}

#[test]
fn a_game_whose_server_speaks_of_its_own_accord_counts_each_direction() {
    for (name, link) in [("bundle", Link::Bundle), ("udp", Link::Udp)] {
        let gateway =
            Gateway::start(&format!("whole-game-{name}"), link, Game::Serve(&["--hz", "20"]));
        let shape = ["--shape", "game", "--sessions", "10", "--ramp", "500ms", "--hold", "2s"];
        let record = json(&gateway.load("run", &[&shape[..], &PATIENT, &["--json"]].concat()));
        let count = |name: &str| record.counters[name];
        assert_eq!((count("connected"), count("sessions_lost"), count("echoed")), (10, 0, 0));
        assert!(count("payloads_due") > 0 && count("heard") == count("payloads_due"));
        assert!(count("pushes_due") > 0 && count("pushed_down") == count("pushes_due"));
        assert_eq!((count("missing"), count("corrupt"), count("misdelivered")), (0, 0, 0));
        assert_eq!(record.imbalances(), [""; 0]);
        let has = |stage: &str| record.stages.iter().any(|s| s.stage == stage && s.count > 0);
        assert!(has("round_trip") && has("push_down"));
    }
}

#[test]
fn loss_of_one_direction_is_told_from_that_of_the_other() {
    let gateway = Gateway::start("whole-game-lossy", Link::Bundle, Game::Serve(&[]));
    for (impair, up, down) in [("PktLoss=20", true, false), ("PktIncomingLoss=20", false, true)] {
        let shape = ["--shape", "game", "--sessions", "10", "--ramp", "500ms", "--hold", "2s"];
        let output = gateway.load("run", &[&shape[..], &["--json", "--impair", impair]].concat());
        let record = json(&output);
        let count = |name: &str| record.counters[name];
        assert_eq!(count("payloads_impaired_up") > 0, up, "{impair}");
        assert_eq!(count("payloads_impaired_down") > 0, down, "{impair}");
        // What the way up lost is exactly what the server has not heard, unless its last words are
        // lost too.
        let not_heard = count("payloads_due") - count("heard");
        if up {
            assert_eq!(not_heard, count("payloads_impaired_up"), "{:?}", record.counters);
            assert_eq!(count("pushes_due"), count("pushed_down"));
        } else {
            assert!(count("pushes_due") > count("pushed_down"), "{:?}", record.counters);
        }
        assert_eq!(record.imbalances(), [""; 0]);
    }
}

/// A command in a pseudo-terminal of Python's, so that it draws its live view.
const TERMINAL: &str = r"
import os, pty, sys
chunks = []
def read(fd):
    data = os.read(fd, 65536)
    chunks.append(data)
    return data
status = pty.spawn(sys.argv[1:], read)
sys.exit(os.waitstatus_to_exitcode(status))
";

#[test]
fn on_a_terminal_a_view_is_drawn_again_and_again_and_elsewhere_lines_are_printed() {
    let gateway = Gateway::start("whole-live", Link::Bundle, Game::Echo);
    let plain = gateway.load("run", SMALL);
    let text = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(text.contains(" s  hold ") && text.contains("sessions 20"), "{text}");
    assert!(!text.contains('\u{1b}'), "no escapes where there is no terminal: {text}");
    if !std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        eprintln!("SKIPPED: no python3 to make a terminal with");
        return;
    }
    let (server, key) = (gateway.address.to_string(), gateway.folder.join("key"));
    let output = std::process::Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_ringgate-loadgen"), "run", "--server", &server])
        .args(["--key", key.to_str().expect("UTF-8"), "--protocol-id", "7"])
        .args(SMALL)
        .args(["--require", "p50<1ns"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    for part in
        ["\u{1b}[5F\u{1b}[J", "round trip p50", "sessions   20 in", "█", "20 connected of 20"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// A network namespace with a wire to ours; gone with it.
struct Namespace {
    name: String,
}

impl Namespace {
    /// `None` where there are no rights, or no `ip`.
    fn new() -> Option<Self> {
        let id = std::process::id() % 1_000_000;
        let this = Self { name: format!("rg{id}") };
        let (ours, theirs) = (format!("rga{id}"), format!("rgb{id}"));
        let name = this.name.as_str();
        let steps: [&[&str]; 6] = [
            &["netns", "add", name],
            &["link", "add", &ours, "type", "veth", "peer", "name", &theirs, "netns", name],
            &["addr", "add", "10.213.77.1/30", "dev", &ours],
            &["link", "set", &ours, "up"],
            &["-n", name, "addr", "add", "10.213.77.2/30", "dev", &theirs],
            &["-n", name, "link", "set", &theirs, "up"],
        ];
        let run = |words: &&[&str]| {
            std::process::Command::new("ip").args(*words).output().is_ok_and(|o| o.status.success())
        };
        steps.iter().all(run).then_some(this)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The wire goes with its end in there.
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

#[test]
fn a_gateway_beyond_a_wire_gets_a_socket_for_each_player_and_the_books_balance() {
    let Some(namespace) = Namespace::new() else {
        eprintln!("SKIPPED: no network namespace can be made here (it takes root and `ip`)");
        return;
    };
    let before = ["ip", "netns", "exec", &namespace.name];
    let gateway = Gateway::start_at("whole-wire", "10.213.77.2", &before, Link::Bundle, Game::Echo);
    let text = assert_balanced(&gateway.load("run", SMALL));
    assert!(text.contains("20 connected of 20"), "{text}");
}
