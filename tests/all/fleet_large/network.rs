//! A router with a network namespace for each part of a fleet around it, so that any two of them
//! can be cut off from each other, and nothing reaches this host's own network.
//!
//! ```text
//!   etcd        gate1..3       tokens1..2     players         agent1..2      game0..
//!   10.97.1.2   10.97.2..4.2   10.97.5..6.2   10.97.7.2       10.97.8..9.2   10.97.10.2..
//!      │             │              │         10.80.0.0/12       │               │
//!      └─────────────┴─────── router ┴─────────────┴─────────────┴───────────────┘
//! ```
//!
//! The game servers behind an agent are in its own namespace, at loopback.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};

use ringgate_os::process::effective_uid;

use super::parts::BEHIND;
use crate::netns::missing;

/// What has a namespace of its own beside the game servers, in the order of their networks.
const PARTS: [&str; 9] =
    ["etcd", "gate1", "gate2", "gate3", "tokens1", "tokens2", "players", "agent1", "agent2"];

/// Where the load generator's players live.
const PLAYERS: &str = "10.80.0.0/12";

/// All namespaces, removed when dropped.
pub(super) struct Network {
    pub(super) tag: String,
    parts: Vec<String>,
}

impl Network {
    /// `None`, said aloud, where this process may not make one.
    pub(super) fn new(games: u32) -> Option<Self> {
        if effective_uid() != 0 || Command::new("ip").arg("-V").output().is_err() {
            return missing("network namespaces take root and the program `ip`");
        }
        let games = (0..games - BEHIND).map(|number| format!("game{number}"));
        let parts = PARTS.map(str::to_owned).into_iter().chain(games).collect();
        let network = Self { tag: std::process::id().to_string(), parts };
        let router = namespace(&network.tag, "router");
        let made = ip(&["netns", "add", &router]);
        if !made.status.success() {
            return missing(&String::from_utf8_lossy(&made.stderr));
        }
        set(&router, "link set lo up");
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        assert!(ip(&["netns", "exec", &router, "sh", "-c", forward]).status.success());
        network.parts.iter().for_each(|part| network.join(part));
        set(&router, &format!("route add {PLAYERS} via {}", address("players")));
        set(&namespace(&network.tag, "players"), &format!("route add local {PLAYERS} dev lo"));
        Some(network)
    }

    fn join(&self, part: &str) {
        let (router, own) = (namespace(&self.tag, "router"), namespace(&self.tag, part));
        assert!(ip(&["netns", "add", &own]).status.success());
        let host = address(part);
        let [a, b, c, _] = host.octets();
        let gateway = Ipv4Addr::new(a, b, c, 1);
        set(
            &router,
            &format!(
                "link add {part} type veth peer name wire netns {own}\n\
                 addr add {gateway}/24 dev {part}\nlink set {part} up"
            ),
        );
        set(
            &own,
            &format!(
                "link set lo up\naddr add {host}/24 dev wire\nlink set wire up\n\
                 route add default via {gateway}"
            ),
        );
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for part in self.parts.iter().map(String::as_str).chain(["router"]) {
            let _ = ip(&["netns", "del", &namespace(&self.tag, part)]);
        }
    }
}

/// What a part's namespace is called.
pub(super) fn namespace(tag: &str, part: &str) -> String {
    format!("rgf-{tag}-{part}")
}

/// A part's address.
pub(super) fn address(part: &str) -> Ipv4Addr {
    let at = PARTS.iter().position(|it| *it == part).or_else(|| {
        let number: usize = part.strip_prefix("game")?.parse().ok()?;
        Some(PARTS.len() + number)
    });
    Ipv4Addr::new(10, 97, at.expect("a part of the fleet") as u8 + 1, 2)
}

/// Two that do not hear each other, until this is dropped.
pub(super) struct Cut {
    router: String,
    rules: [String; 2],
}

impl Cut {
    /// Cuts one address off from a network such as `10.97.1.2` or `10.97.0.0/16`.
    pub(super) fn between(tag: &str, one: Ipv4Addr, other: &str) -> Self {
        let router = namespace(tag, "router");
        let rules = [(one.to_string(), other.to_owned()), (other.to_owned(), one.to_string())]
            .map(|(from, to)| format!("from {from} to {to} blackhole pref 100"));
        for rule in &rules {
            set(&router, &format!("rule add {rule}"));
        }
        Self { router, rules }
    }

    /// Cuts a part off from everything.
    pub(super) fn off(tag: &str, one: Ipv4Addr) -> Self {
        Self::between(tag, one, "0.0.0.0/0")
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        for rule in &self.rules {
            let args: Vec<_> =
                ["-n", &self.router, "rule", "del"].into_iter().chain(rule.split(' ')).collect();
            let _ = ip(&args);
        }
    }
}

/// Says some commands of `ip` in a namespace, one in each line.
fn set(namespace: &str, what: &str) {
    let mut child = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("`ip` was there a moment ago");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(what.as_bytes()).expect("it reads all");
    drop(stdin);
    let done = child.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&done.stderr));
}

fn ip(args: &[&str]) -> Output {
    Command::new("ip").args(args).output().expect("`ip` was there a moment ago")
}
