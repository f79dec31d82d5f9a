//! What the kernel says it has dropped: socket by socket, and on the way between sockets.
//!
//! These are books that neither the generator nor the gateway keeps, so they settle who is right
//! when those two differ. A socket counts what found its receive buffer full and what its filter
//! refused. What never reached a socket is counted for the whole host: a burst over loopback that
//! outruns the kernel's own backlog (`net.core.netdev_max_backlog`) is counted in
//! `/proc/net/softnet_stat` and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The kernel's books at one moment.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Drops of each UDP socket of the gateway's and our own network namespace, by inode.
    sockets: BTreeMap<u64, u64>,
    ours: BTreeSet<u64>,
    gateways: BTreeSet<u64>,
    backlog_drops: u64,
    /// The `Udp:` counters of `/proc/net/snmp`, by name.
    udp: BTreeMap<String, u64>,
}

/// How the kernel's books have grown during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDrops {
    /// At our own sockets that were open at both ends of the run or opened in between.
    pub ours: u64,
    /// At the gateway's sockets, links included.
    pub gateways: u64,
    /// At all other UDP sockets, the game process's among them.
    pub others: u64,
    /// Before any socket, on the whole host.
    pub backlog: u64,
    /// The host's `Udp:` counters that tell of trouble: `InErrors`, `RcvbufErrors` and the like.
    pub udp: BTreeMap<String, u64>,
}

impl Kernel {
    /// Looks now. The gateway's table is that of its process, which may have a network namespace of
    /// its own.
    pub fn look(gateway: Option<u32>) -> Self {
        let own = Path::new("/proc/self");
        let gateway = gateway.map(|pid| Path::new("/proc").join(pid.to_string()));
        let mut sockets = BTreeMap::new();
        for process in [Some(own), gateway.as_deref()].into_iter().flatten() {
            for table in ["udp", "udp6"] {
                let text = fs::read_to_string(process.join("net").join(table)).unwrap_or_default();
                sockets.extend(text.lines().skip(1).filter_map(socket_drops));
            }
        }
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            sockets,
            ours: inodes(own),
            gateways: gateway.as_deref().map(inodes).unwrap_or_default(),
            backlog_drops: backlog_drops(&read("/proc/net/softnet_stat")),
            udp: udp_counters(&read("/proc/net/snmp")),
        }
    }

    /// What was dropped since `before`.
    pub fn since(&self, before: &Self) -> KernelDrops {
        let mut drops = KernelDrops {
            backlog: self.backlog_drops.saturating_sub(before.backlog_drops),
            ..KernelDrops::default()
        };
        for (inode, count) in &self.sockets {
            let grown =
                count.saturating_sub(before.sockets.get(inode).copied().unwrap_or_default());
            match (self.ours.contains(inode), self.gateways.contains(inode)) {
                (true, _) => drops.ours += grown,
                (_, true) => drops.gateways += grown,
                _ => drops.others += grown,
            }
        }
        let grown = |(name, count): (&String, &u64)| {
            let earlier = before.udp.get(name).copied().unwrap_or_default();
            TROUBLE.contains(&name.as_str()).then(|| (name.clone(), count.saturating_sub(earlier)))
        };
        drops.udp = self.udp.iter().filter_map(grown).collect();
        drops
    }
}

/// Inode and drops of a line of `/proc/net/udp` (`proc_net_udp(5)`: the tenth column and the last).
fn socket_drops(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let inode = fields.nth(9)?.parse().ok()?;
    Some((inode, fields.next_back()?.parse().ok()?))
}

/// The sockets that a process holds.
fn inodes(process: &Path) -> BTreeSet<u64> {
    let Ok(entries) = fs::read_dir(process.join("fd")) else { return BTreeSet::new() };
    let inode = |entry: std::io::Result<fs::DirEntry>| {
        let link = fs::read_link(entry.ok()?.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(inode).collect()
}

/// The second column, hexadecimal, of every core's line.
fn backlog_drops(text: &str) -> u64 {
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).sum()
}

/// Names and values stand on two lines, both of which begin with `Udp:`.
fn udp_counters(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Counters whose growth means that something was lost.
const TROUBLE: &[&str] =
    &["InErrors", "RcvbufErrors", "SndbufErrors", "InCsumErrors", "MemErrors", "NoPorts"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn tables_are_read_as_the_kernel_writes_them() {
        let line = "16007: 0100007F:A028 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
                    0        0 566741 2 000000009c5a6f14 3337     ";
        assert_eq!(socket_drops(line), Some((566_741, 3337)));
        assert_eq!(socket_drops("   sl  local_address rem_address"), None);
        assert_eq!(backlog_drops("106c8db8 0000000a 0000000b\n005c9d4c 00000001 00000004\n"), 11);
        let counters = udp_counters("Tcp: 1\nUdp: InDatagrams InErrors\nUdp: 7 2\nUdpLite: a\n");
        assert_eq!(counters["InErrors"], 2);
        assert_eq!(counters.len(), 2);
    }

    #[test]
    fn what_a_full_socket_drops_is_found_at_its_owner() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let address = receiver.local_addr().expect("bound");
        let before = Kernel::look(None);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        // More than any default buffer holds.
        for _ in 0..2000 {
            sender.send_to(&[0; 1000], address).expect("loopback takes it");
        }
        receiver.set_nonblocking(true).expect("a flag");
        let arrived = std::iter::from_fn(|| receiver.recv(&mut [0; 1000]).ok()).count() as u64;
        let drops = Kernel::look(None).since(&before);
        assert!(arrived < 2000, "the buffer is larger than thought: {arrived}");
        assert!(drops.ours >= 2000 - arrived, "{drops:?}, {arrived} arrived");
        let as_seen_by_another = Kernel { ours: BTreeSet::new(), ..Kernel::look(None) };
        assert!(as_seen_by_another.since(&before).others >= drops.ours);
    }
}
