//! A plain fleet end to end: players with tokens and numbers, the real gateway, two echoes behind
//! it, each in a process of its own; then what strangers can do to it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Output};

use super::command::{PATIENT, folder, loadgen, wrong};
use super::gateway::{ringgate, text};

/// Gateway and game servers; killed when dropped.
struct Fleet {
    processes: Vec<Child>,
    folder: PathBuf,
    address: SocketAddr,
}

/// The tokens of the two servers.
const TOKENS: &str = "1122334455667788,99aabbccddeeff00";

impl Fleet {
    /// With more words of the listener.
    fn start(name: &str, more: &str) -> Self {
        let folder = folder(name);
        let mut config = format!(
            "[gateway]\nworkers = 2\npin = false\nrun_dir = \"{}\"\n\
             [[listener]]\nname = \"n\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:0\"]\n\
             backends = [\"a\", \"b\"]\nroute = \"token\"\ntoken = {{ bytes = 8 }}\n\
             tokens = [{{ hex = \"1122334455667788\", backend = \"a\" }}, \
             {{ hex = \"99aabbccddeeff00\", backend = \"b\" }}]\n\
             sequence = {{ offset = 3, bits = 16 }}\nreplay_window = 512\ngap_limit = 512\n{more}\n",
            folder.display(),
        );
        let mut processes = Vec::new();
        for name in ["a", "b"] {
            let (child, stdout) = ringgate(&[], &["echo", "--udp", "127.0.0.1:0"]);
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let line = lines.find(|line| line.starts_with("echo:")).expect("it starts");
            let address = line.split(' ').find_map(|word| word.parse::<SocketAddr>().ok());
            let address = address.expect("it says where it listens").to_string();
            let name = ["[[backend]]\nname = \"", name, "\"\nlink = \"udp\"\naddress = \""];
            config.extend(name.into_iter().chain([&*address, "\"\nslots = 500\n"]));
            processes.push(child);
        }
        let file = folder.join("gate.toml");
        std::fs::write(&file, config).expect("written");
        let (gateway, stdout) = ringgate(&[], &["run", "--config", text(&file)]);
        processes.push(gateway);
        let mut address = None;
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(text) = line.strip_prefix("listener n on ") {
                address = Some(text.parse().expect("an address"));
            }
            if line.starts_with("ready:") {
                break;
            }
        }
        let address = address.expect("the gateway did not start");
        Self { processes, folder, address }
    }

    fn load(&self, command: &str, more: &[&str]) -> Output {
        let (server, admin) = (self.address.to_string(), self.folder.join("control.sock"));
        let common = [command, "--plain", "--server", &server, "--admin", text(&admin)];
        let plain = ["--token", TOKENS, "--sequence", "3:16"];
        loadgen(&[&common[..], &plain, &PATIENT, more].concat())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_fleet_plays_through_the_gateway_and_all_books_balance() {
    let fleet = Fleet::start("plain-fleet", "");
    let players = ["--sessions", "200", "--ramp", "1s", "--hold", "2s", "--hz", "10"];
    let output = fleet.load("run", &players);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("200 connected of 200") && text.contains("ok  payloads: sent"), "{text}");
    assert!(wrong(&text).is_empty() && text.contains("lost 0 (0"), "{text}");
}

#[test]
fn what_a_bad_network_doubles_passes_once() {
    let fleet = Fleet::start("plain-bad", "");
    let players = ["--sessions", "40", "--ramp", "500ms", "--hold", "3s", "--hz", "20"];
    let output = fleet.load("run", &[&players[..], &["--impair", "PktLoss=2 PktDup=5"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("0 twice, 0 corrupt") && !text.contains("UNEXPLAINED"), "{text}");
    assert!(text.contains("dropped     gateway: replay_duplicate"), "{text}");
}

/// Attacks of these kinds, and what the gateway has to have counted.
#[track_caller]
fn attacked(name: &str, kinds: &str, reasons: &[&str]) {
    let fleet = Fleet::start(name, "limits = { starts = 0, starts_per_block = 0 }");
    let shape =
        ["--sessions", "10", "--hz", "20", "--rate", "2000", "--ramp", "1s", "--each", "1s"];
    let output = fleet.load("attack", &[&shape[..], &["--kind", kinds]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let count = kinds.split(',').count();
    assert_eq!(text.matches("10 of 10 in, 0 sessions lost").count(), count, "{text}");
    assert_eq!(text.matches("books    balance to the datagram").count(), count, "{text}");
    for reason in reasons {
        assert!(text.contains(&format!("dropped  {reason} ")), "{reason}: {text}");
    }
    for line in text.lines().filter(|line| line.contains("amplification")) {
        let ratio: f64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a ratio");
        assert!(ratio <= 1.0, "{line}");
    }
}

#[test]
fn strangers_take_nothing_from_players_and_every_datagram_is_accounted_for() {
    let kinds = "junk,plain-sources,plain-unknown-token,plain-short";
    attacked("plain-strangers", kinds, &["token_unknown"]);
}

#[test]
fn numbers_that_no_player_sends_are_dropped_by_name() {
    let reasons = ["replay_duplicate", "sequence_gap", "after_gap"];
    attacked("plain-numbers", "plain-duplicates,plain-jumps", &reasons);
}
