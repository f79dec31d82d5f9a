//! A network for the cluster's demo, in namespaces of the kernel: a router that spreads one address
//! over the gateways.
//!
//! ```text
//!   players, etcd, agent ── 10.2.0.0/24 ── router ── 10.1.N.0/24 ── gateway N, with 10.9.9.9
//! ```

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::Failure;
use super::players::Home;

pub(super) const GATEWAYS: usize = 3;
/// The address that all gateways have.
pub(super) const PUBLIC: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// Where the players are, and where etcd answers.
pub(super) const PLAYERS: Home = Home([10, 3]);
pub(super) const HOST: &str = "10.2.0.2";

/// The namespaces of the demo whose process this is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names(pub(super) u32);

impl Names {
    fn router(self) -> String {
        format!("ringgate-demo-{}-router", self.0)
    }

    pub(super) fn players(self) -> String {
        format!("ringgate-demo-{}-players", self.0)
    }

    pub(super) fn gateway(self, number: usize) -> String {
        format!("ringgate-demo-{}-gate-{number}", self.0)
    }

    fn all(self) -> impl Iterator<Item = String> {
        let gateways = (1..=GATEWAYS).map(move |number| self.gateway(number));
        [self.router(), self.players()].into_iter().chain(gateways)
    }

    /// The router sends players to these gateways from now on.
    pub(super) fn spread(self, over: &[usize]) -> Result<(), Failure> {
        let over: Vec<_> = over.iter().map(ToString::to_string).collect();
        ip(&format!("-n {} nexthop replace id 10 group {}", self.router(), over.join("/")))
    }
}

/// The namespaces, which go with this.
pub(super) struct Network(Names);

impl Network {
    pub(super) fn create(names: Names) -> Result<Self, Failure> {
        let network = Self(names);
        for name in names.all() {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        // Answers may take another way than questions.
        let router = names.router();
        let script = "cd /proc/sys/net/ipv4 && echo 1 >ip_forward && echo 0 >conf/all/rp_filter \
                      && echo 0 >conf/default/rp_filter && echo 1 >fib_multipath_hash_policy";
        done(Command::new("ip").args(["netns", "exec", &router, "sh", "-c", script]))?;
        wire(&router, "players", &names.players(), "10.2.0")?;
        let Home([first, second]) = PLAYERS;
        let homes = format!("{first}.{second}.0.0/16");
        ip(&format!("-n {} route add local {homes} dev lo", names.players()))?;
        ip(&format!("-n {router} route add {homes} via {HOST}"))?;
        for number in 1..=GATEWAYS {
            let (gateway, port) = (names.gateway(number), format!("gate-{number}"));
            let net = format!("10.1.{number}");
            wire(&router, &port, &gateway, &net)?;
            ip(&format!("-n {gateway} addr add {PUBLIC}/32 dev lo"))?;
            ip(&format!("-n {router} nexthop add id {number} via {net}.2 dev {port}"))?;
        }
        names.spread(&(1..=GATEWAYS).collect::<Vec<_>>())?;
        ip(&format!("-n {router} route add {PUBLIC}/32 nhid 10"))?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.0.all() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// A cable from a port of the router to a host, which has the second address of the network.
fn wire(router: &str, port: &str, host: &str, net: &str) -> Result<(), Failure> {
    ip(&format!("-n {router} link add {port} type veth peer name eth0 netns {host}"))?;
    for (name, end, link) in [(router, 1, port), (host, 2, "eth0")] {
        ip(&format!("-n {name} addr add {net}.{end}/24 dev {link}"))?;
        ip(&format!("-n {name} link set {link} up"))?;
    }
    ip(&format!("-n {host} route add default via {net}.1"))
}

fn ip(words: &str) -> Result<(), Failure> {
    done(Command::new("ip").args(words.split(' ')))
}

/// Runs a program that says nothing when all is well.
pub(super) fn done(command: &mut Command) -> Result<(), Failure> {
    let said = command.stdin(Stdio::null()).output();
    let why = match said {
        Ok(said) if said.status.success() => return Ok(()),
        Ok(said) => String::from_utf8_lossy(&said.stderr).trim_end().replace('\n', "; "),
        Err(why) => why.to_string(),
    };
    Err(Failure::failed(format_args!("{command:?}: {why}")))
}
