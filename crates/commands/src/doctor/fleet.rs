//! The host against one config file.

use super::Finding;
use super::host::Host;
use ringgate_config::{Config, Workers};
use ringgate_report::text::{bytes, count};

/// A session with everything that hangs on it, rounded up.
pub const SESSION_BYTES: u64 = 1024;

pub(super) fn memory(host: &Host, config: &Config) -> Option<Finding> {
    let sessions = config.reserved_sessions() as u64;
    let text = host.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let needed = sessions * SESSION_BYTES;
    let found =
        format!("{} for {} sessions, {} free", bytes(needed), count(sessions), bytes(available));
    let finding = Finding::ok("memory", found);
    Some(if needed <= available {
        finding
    } else {
        finding.bites(
            "when the listeners are full, the kernel ends a process, and ours is the largest",
            "a smaller max_sessions, or more memory",
        )
    })
}

/// Ports that any program's outgoing socket may be given before we bind them.
pub(super) fn ports(host: &Host, config: &Config) -> Option<Finding> {
    let range = host.text("proc/sys/net/ipv4/ip_local_port_range")?;
    let (first, last) = range.split_once(char::is_whitespace)?;
    let (first, last): (u16, u16) = (first.parse().ok()?, last.trim().parse().ok()?);
    let reserved = host.text("proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let mut taken: Vec<u16> = config
        .listeners
        .iter()
        .flat_map(|listener| &listener.bind)
        .map(std::net::SocketAddr::port)
        .filter(|port| (first..=last).contains(port) && !names(&reserved, *port))
        .collect();
    taken.sort_unstable();
    taken.dedup();
    let finding = Finding::ok("ports", format!("outgoing ones are {first} to {last}"));
    if taken.is_empty() {
        return Some(finding);
    }
    let list = taken.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let all = if reserved.is_empty() { list.clone() } else { format!("{reserved},{list}") };
    Some(Finding { found: format!("{}; we bind {list}", finding.found), ..finding }.could(
        "another program's outgoing socket may have the port when the gateway starts",
        format!("sysctl -w net.ipv4.ip_local_reserved_ports={all}"),
    ))
}

/// Whether a kernel list like `8080,9000-9010` names a port.
fn names(list: &str, port: u16) -> bool {
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(a), Ok(b)) if a <= port && port <= b)
    })
}

pub(super) fn workers(host: &Host, config: &Config) -> Option<Finding> {
    let Workers::Count(wanted) = config.gateway.workers else { return None };
    let processors = host.processors();
    let finding = Finding::ok("workers", format!("{wanted} on {processors} processors"));
    Some(if wanted.get() <= processors {
        finding
    } else {
        finding.bites(
            "workers that share a processor wait for each other, milliseconds at a time",
            format!("workers = {processors}, or \"auto\""),
        )
    })
}
