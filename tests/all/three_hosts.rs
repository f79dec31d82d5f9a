//! The chapter "From three hosts to one address" of docs/FLEET.md, typed as it stands there: its
//! commands for each host, in network namespaces, while a load generator plays.
//!
//! ```text
//!   player 203.0.113.2 ── 203.0.113.1 router 192.0.2.1 ── 192.0.2.11, .12, .13 gateways
//!                                                      └─ 192.0.2.20 game host
//! ```
//!
//! Skipped aloud where this process may make no network namespaces, and where `etcd`, openssl or
//! the load generator's program is missing.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::cluster_rig::set;
use crate::control_rig::wait_for;
use crate::folder::Folder;
use crate::two_hosts::{blocks_of, signal_all_in};
use ringgate_os::process::effective_uid;

/// Each host, as the chapter calls it, and the end of its namespace's name.
const HOSTS: [(&str, &str); 6] = [
    ("gate-1", "g1"),
    ("gate-2", "g2"),
    ("gate-3", "g3"),
    ("the game host", "h"),
    ("the router", "r"),
    ("a player's host", "p"),
];

struct Hosts {
    tag: String,
    folder: Folder,
    path: String,
}

impl Hosts {
    fn start() -> Self {
        let programs = Path::new(env!("CARGO_BIN_EXE_ringgate")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs.display());
        let hosts =
            Self { tag: format!("rg3-{}", std::process::id()), folder: Folder::new(), path };
        for (name, _) in HOSTS {
            set(&format!("netns add {}", hosts.of(name)));
            set(&format!("-n {} link set lo up", hosts.of(name)));
        }
        let router = hosts.of("the router");
        set(&format!("-n {router} link add lan type bridge"));
        set(&format!("-n {router} addr add 192.0.2.1/24 dev lan"));
        set(&format!("-n {router} link set lan up"));
        for (number, address) in [(1, 11), (2, 12), (3, 13), (4, 20)] {
            let (host, _) = HOSTS[number - 1];
            let there = hosts.wire(host, &format!("w{number}"), &format!("192.0.2.{address}/24"));
            set(&format!("-n {router} link set w{number} master lan"));
            set(&format!("-n {there} route add default via 192.0.2.1"));
        }
        let there = hosts.wire("a player's host", "p", "203.0.113.2/24");
        set(&format!("-n {router} addr add 203.0.113.1/24 dev p"));
        set(&format!("-n {there} route add default via 203.0.113.1"));
        hosts
    }

    /// The namespace of a host.
    fn of(&self, name: &str) -> String {
        let (_, end) = HOSTS.iter().find(|(host, _)| *host == name).expect(name);
        format!("{}-{end}", self.tag)
    }

    /// A wire from the router's port to a host with this address, whose namespace it says.
    fn wire(&self, host: &str, port: &str, address: &str) -> String {
        let (router, there) = (self.of("the router"), self.of(host));
        set(&format!("link add {port} netns {router} type veth peer name e0 netns {there}"));
        set(&format!("-n {there} addr add {address} dev e0"));
        set(&format!("-n {there} link set e0 up"));
        set(&format!("-n {router} link set {port} up"));
        there
    }

    /// Commands as they are typed on a host. One folder stands for that of each: what is copied
    /// from host to host is there already.
    fn typed(&self, host: &str, commands: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.of(host), "bash", "-e", "-c", commands]);
        command.current_dir(self.folder.path()).env("PATH", &self.path).stdin(Stdio::null());
        command
    }

    fn play(&self, host: &str, commands: &str) -> Output {
        self.typed(host, commands).output().expect("`ip` is there")
    }

    #[track_caller]
    fn must_play(&self, host: &str, commands: &str) -> String {
        let said = self.play(host, commands);
        let errors = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "on {host}: {commands}\n{errors}\n{}", self.logs());
        String::from_utf8(said.stdout).expect("text")
    }

    /// What a command says, once that is what is waited for.
    fn wait_for(&self, host: &str, commands: &str, is_it: impl Fn(&str) -> bool) -> String {
        wait_for(commands, || {
            let said = String::from_utf8(self.play(host, commands).stdout).expect("text");
            is_it(&said).then_some(said)
        })
    }

    /// How many sessions these gateways have, and for how many of them another one stands by.
    fn sums(&self, gateways: &[&str]) -> Option<[u64; 2]> {
        let mut sums = [0; 2];
        for gateway in gateways {
            let said = self.play(gateway, &format!("ringgate cluster --json --control {gateway}"));
            let cluster: serde_json::Value = serde_json::from_slice(&said.stdout).ok()?;
            let members = cluster["members"].as_array()?;
            sums[0] += cluster["sessions"]["owned"].as_u64()?;
            sums[1] += members.iter().filter_map(|it| it["stands_by"].as_u64()).sum::<u64>();
        }
        Some(sums)
    }

    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).expect("it is there");
        let paths = files.map(|file| file.expect("an entry").path());
        let logs = paths.filter(|path| path.extension().is_some_and(|it| it == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (name, _) in HOSTS {
            signal_all_in(&self.of(name), "KILL");
            let _ = Command::new("ip").args(["netns", "del", &self.of(name)]).status();
        }
    }
}

/// What is missing here, if anything is.
fn missing() -> Option<String> {
    if effective_uid() != 0 {
        return Some("network namespaces take root".to_owned());
    }
    let loadgen = Path::new(env!("CARGO_BIN_EXE_ringgate")).with_file_name("ringgate-loadgen");
    let answers = |program: &str, word: &str| {
        let mut command = Command::new(program);
        command.arg(word).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|it| it.success())
    };
    let programs =
        [("ip", "-V"), ("etcd", "--version"), ("openssl", "version"), (loadgen.to_str()?, "-V")];
    let mut missing = programs.into_iter().filter(|(program, word)| !answers(program, word));
    missing.next().map(|(program, _)| format!("{program} is missing"))
}

#[test]
fn the_chapter_brings_three_hosts_to_one_address_of_which_one_dies() {
    if let Some(why) = missing() {
        let required = std::env::var_os("REQUIRE_ETCD").is_some_and(|it| it == "1");
        assert!(!required || effective_uid() != 0, "REQUIRE_ETCD=1, but {why}");
        return eprintln!("SKIPPED: {why}");
    }
    let document = include_str!("../../docs/FLEET.md");
    let blocks = blocks_of(document, "From three hosts to one address");
    let hosts = Hosts::start();
    let mut players: Option<Child> = None;
    for (host, commands) in &blocks {
        let host = host.as_str();
        match (host, &mut players) {
            ("each gateway", _) => {
                for number in ["1", "2", "3"] {
                    let own = commands.replace("number=1", &format!("number={number}"));
                    hosts.must_play(&format!("gate-{number}"), &own);
                }
            }
            ("gate-1", None) => {
                let is_whole =
                    |said: &str| said.matches(" up ").count() == 2 && !said.contains("note:");
                hosts.wait_for(host, commands, is_whole);
            }
            ("a player's host", _) => {
                let log = std::fs::File::create(hosts.folder.join("players.log")).expect("a log");
                let mut command = hosts.typed(host, commands);
                command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
                players = Some(command.spawn().expect("`ip` is there"));
                wait_for("all players, each with a standby", || {
                    let [owned, stood_for] = hosts.sums(&["gate-1", "gate-2", "gate-3"])?;
                    (owned == 60 && stood_for == 60).then_some(())
                });
            }
            ("gate-2", _) => {
                wait_for("sessions that have gone on", || {
                    let [owned, _] = hosts.sums(&["gate-2", "gate-3"])?;
                    (owned == 60).then_some(())
                });
                let said = hosts.must_play(host, commands);
                assert!(said.contains(" taken over "), "{said}");
            }
            _ => drop(hosts.must_play(host, commands)),
        }
    }
    // Ctrl-C, long before their minute is over.
    signal_all_in(&hosts.of("a player's host"), "INT");
    players.expect("they play").wait().expect("our child");
    let said = std::fs::read_to_string(hosts.folder.join("players.log")).expect("a log");
    for it in ["60 were let in, 0 lost their session", " 0 twice, 0 corrupt"] {
        assert!(said.contains(it), "{it} is missing\n{}", hosts.logs());
    }
}
