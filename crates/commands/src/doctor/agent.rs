//! Trunks. Of a gateway's file its certificates; of an agent's whether it can connect to its
//! gateways as whom it says it is, and whether there is somebody whom it could serve.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::Finding;
use super::certificate;
use ringgate_config::{Cluster, Config, HostConfig, Link, member_name};
use ringgate_os::clock;
use ringgate_os::diag::Transport;

pub(super) fn examine(config: &HostConfig) -> Vec<Finding> {
    let (agent, now_s) = (&config.agent, clock::unix_seconds());
    let [own, authority] = agent.identity().good_s();
    let mut findings = vec![
        certificate::name("certificate", agent.identity().is_for(&agent.name), &agent.name),
        certificate::expiry("certificate expiry", own, now_s),
        certificate::expiry("authority expiry", authority, now_s),
    ];
    if agent.gateways.is_empty() {
        findings.push(Finding::ok("gateways", "those of the fleet"));
    }
    for gateway in &agent.gateways {
        let (what, addresses) = (format!("gateway {gateway}"), (&*gateway.host, gateway.port));
        findings.push(reached(what, addresses.to_socket_addrs().map(Iterator::collect)));
    }
    for backend in &config.backends {
        if let Link::Udp(address) = backend.link {
            findings.push(served(&backend.name, address));
        }
    }
    findings
}

/// The certificates of a gateway, and those of who has signed its agents', once for each address.
pub(super) fn of_gateway(config: &Config) -> Vec<Finding> {
    let (mut seen, mut findings) = (BTreeSet::new(), Vec::new());
    for agent in config.agents.iter().filter(|agent| seen.insert(agent.bind)) {
        let [own, authority] = agent.identity().good_s();
        let now_s = clock::unix_seconds();
        let bind = agent.bind;
        findings.extend([
            certificate::expiry(&format!("certificate at {bind}"), own, now_s),
            certificate::expiry(&format!("agents' authority at {bind}"), authority, now_s),
        ]);
    }
    findings.extend(config.cluster.iter().flat_map(|cluster| of_member(config, cluster)));
    findings
}

/// The certificate of a cluster's member.
fn of_member(config: &Config, cluster: &Cluster) -> Vec<Finding> {
    let [own, authority] = cluster.identity().good_s();
    let now_s = clock::unix_seconds();
    let member = config.fleet.as_ref().and_then(|fleet| member_name(fleet).ok());
    let (name, is_for) = cluster.certified_name(&member.unwrap_or_default());
    let word = if is_for { "for" } else { "not for" };
    let own_name = Finding::ok("cluster certificate", format!("{word} {name}"));
    let why = "the gateway does not start, and other members would refuse it (foreign_name)";
    let remedy = format!("a certificate with subjectAltName=DNS:{name}");
    vec![
        if is_for { own_name } else { own_name.bites(why, remedy) },
        certificate::expiry("cluster certificate expiry", own, now_s),
        certificate::expiry("cluster authority expiry", authority, now_s),
    ]
}

/// Whether somebody answers at a gateway's port, over TCP: datagrams are not answered to strangers.
fn reached(what: String, addresses: io::Result<Vec<SocketAddr>>) -> Finding {
    let why = "the agent has no trunk to it, and its players do not come here";
    let addresses = match addresses {
        Ok(addresses) if !addresses.is_empty() => addresses,
        Ok(_) => return Finding::ok(what, "no address").bites(why, RESOLVE),
        Err(error) => return Finding::ok(what, error.to_string()).bites(why, RESOLVE),
    };
    let mut failed = String::new();
    for address in addresses {
        match TcpStream::connect_timeout(&address, WITHIN) {
            Ok(_) => return Finding::ok(what, format!("{address} answers over TCP")),
            Err(error) => failed = format!("{address}: {error}"),
        }
    }
    Finding::ok(what, failed).bites(
        why,
        "[[agent]] bind at the gateway, and a way for TCP and UDP of that number between the two",
    )
}

/// Whether a server listens where players are to be sent.
fn served(name: &str, address: SocketAddr) -> Finding {
    let what = format!("backend {name}");
    match ringgate_os::owners::holder(Transport::Udp, address) {
        Some(holder) => Finding::ok(what, format!("UDP {address}: {holder}")),
        None => Finding::ok(what, format!("no server listens on UDP {address}"))
            .could("gateways send no players there until one does", "start the server"),
    }
}

const RESOLVE: &str = "a name that this host can resolve (getent hosts NAME), or an address";

/// Who does not answer by then is not there, or far away and unwell.
const WITHIN: Duration = Duration::from_secs(3);
