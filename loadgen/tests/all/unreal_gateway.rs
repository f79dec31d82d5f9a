//! An Unreal fleet end to end: players, the real gateway and stand-in servers that judge it, each
//! in a process of its own.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output};

use super::command::{PATIENT, folder, loadgen, wrong};
use super::gateway::{ringgate, text};

/// Gateway and servers; killed when dropped.
struct Fleet {
    servers: (Child, Lines<BufReader<ChildStdout>>),
    gateway: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Fleet {
    fn start(name: &str, servers: usize) -> Self {
        let addresses = vec!["127.0.0.1:0"; servers].join(",");
        let (child, stdout) = ringgate(&[], &["echo", "--unreal", &addresses, "--magic", "1011"]);
        let mut lines = BufReader::new(stdout).lines();
        let folder = folder(name);
        let mut config = format!(
            "[gateway]\nworkers = 2\npin = false\nrun_dir = \"{}\"\n\
             [[listener]]\nname = \"n\"\nprotocol = \"unreal\"\nbind = [\"127.0.0.1:0\"]\n\
             magic = \"1011\"\nroute = \"least-players\"\nidle_timeout = \"5s\"\nbackends = [{}]\n",
            folder.display(),
            (0..servers).map(|n| format!("\"s{n}\"")).collect::<Vec<_>>().join(", ")
        );
        let mut starts = lines.by_ref().map_while(Result::ok);
        for number in 0..servers {
            let line = starts.find(|line| line.starts_with("echo:")).expect("it starts");
            let address = line.rsplit(' ').next().expect("an address");
            let name = format!("name = \"s{number}\"\nlink = \"udp\"\n");
            let backend = ["[[backend]]\n", &name, "address = \"", address, "\"\nslots = 500\n"];
            config.extend(backend);
        }
        let file = folder.join("gate.toml");
        std::fs::write(&file, config).expect("written");
        let (gateway, stdout) = ringgate(&[], &["run", "--config", text(&file)]);
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
        Self { servers: (child, lines), gateway, folder, address }
    }

    fn load(&self, command: &str, more: &[&str]) -> String {
        let output = self.try_load(command, more);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    fn try_load(&self, command: &str, more: &[&str]) -> Output {
        let (server, admin) = (self.address.to_string(), self.folder.join("control.sock"));
        let common = [command, "--unreal", "--server", &server, "--admin", text(&admin)];
        let rest = ["--magic", "1011", "--timeout", "8"];
        let waits = if more.contains(&"--impair") { &[][..] } else { &PATIENT };
        loadgen(&[&common[..], &rest, waits, more].concat())
    }

    /// What the servers have seen.
    fn end(mut self) -> HashMap<String, u64> {
        let pid = self.servers.0.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill is there");
        assert!(sent.success());
        let lines = self.servers.1.by_ref().map_while(Result::ok);
        let row = |line: String| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        lines.filter_map(row).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in [&mut self.servers.0, &mut self.gateway] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn forgeries_at_live_players_do_not_get_past_the_gateway_but_by_chance() {
    let fleet = Fleet::start("unreal-forged", 1);
    let attack = ["--kind", "unreal-forged-game", "--rate", "500", "--ramp", "1s", "--each", "1s"];
    let players = ["--sessions", "10", "--hz", "10"];
    // What gets past by chance is in nobody's books, so the exit code says nothing here.
    let output = fleet.try_load("attack", &[&attack[..], &players].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The one answer is the challenge that the attacker has learned from.
    assert!(text.contains("10 of 10 in, 0 sessions lost") && text.contains(" 1 answers"), "{text}");
    let seen = fleet.end();
    // With the right ids, one in a thousand hits a number and an acknowledgement that could be an
    // honest packet's.
    assert!(seen["packets"] > 100 && seen["implausible"] + seen["late"] <= 5, "{seen:?}");
}

#[track_caller]
fn assert_honest(seen: &HashMap<String, u64>) {
    assert_eq!((seen["duplicates"], seen["implausible"], seen["restarts"]), (0, 0, 0), "{seen:?}");
}

#[test]
fn a_fleet_plays_through_the_gateway_and_all_books_balance() {
    let fleet = Fleet::start("unreal-fleet", 4);
    let players = ["--sessions", "200", "--ramp", "1s", "--hold", "2s", "--hz", "5"];
    let text = fleet.load("run", &players);
    assert!(text.contains("200 connected of 200") && text.contains("ok  payloads: sent"), "{text}");
    assert!(wrong(&text).is_empty() && !text.contains("UNEXPLAINED"), "{text}");
    let seen = fleet.end();
    assert_eq!((seen["connections"], seen["goodbyes"]), (200, 200));
    assert_honest(&seen);
}

#[test]
fn on_a_bad_network_every_packet_reaches_its_server_at_most_once() {
    let fleet = Fleet::start("unreal-bad", 2);
    let players = ["--sessions", "60", "--ramp", "1s", "--hold", "13s", "--hz", "10"];
    let network = "PktLoss=2 PktDup=5 PktIncomingLoss=2 NatSwitchSeconds=11";
    let text = fleet.load("run", &[&players[..], &["--impair", network]].concat());
    assert!(text.contains("60 connected of 60") && text.contains("0 twice, 0 corrupt"), "{text}");
    assert!(!text.contains("UNEXPLAINED"), "{text}");
    let seen = fleet.end();
    assert!(seen["packets"] > 60 * 10 * 10, "{seen:?}");
    assert_honest(&seen);
}

#[test]
fn attackers_get_no_more_than_they_send_and_servers_hear_nothing_of_them() {
    let kinds =
        "junk,unreal-junk,unreal-initial,unreal-forged-response,unreal-forged-restart,unreal-game";
    let fleet = Fleet::start("unreal-attack", 2);
    let text = fleet.load(
        "attack",
        &[
            &["--kind", kinds, "--rate", "500", "--ramp", "1s", "--each", "1s"][..],
            &["--sessions", "10", "--hz", "10"],
        ]
        .concat(),
    );
    assert_eq!(text.matches("10 of 10 in, 0 sessions lost").count(), 6, "{text}");
    for line in text.lines().filter(|line| line.contains("amplification")) {
        let ratio: f64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a ratio");
        assert!(ratio <= 1.0, "{line}");
    }
    let seen = fleet.end();
    assert_honest(&seen);
    // Only honest players were let in, and nothing that came was refused but by players who had
    // left.
    assert_eq!(seen["connections"], 60, "{seen:?}");
    let refused = seen.iter().filter(|(name, _)| name.starts_with("refused_"));
    assert_eq!(refused.map(|(_, count)| count).sum::<u64>(), 0, "{seen:?}");
}
