//! What stands between the wire and the workers' sockets.

use super::Finding;
use super::host::Host;
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_io::socket::UdpOptions;
use ringgate_report::text::{bytes, count};

/// IP and UDP headers of the larger family.
const HEADERS_BYTES: usize = 40 + 8;

/// Holds a burst of a thousand datagrams, with the kernel's overhead for each.
const BURST_BYTES: u64 = 1 << 20;

/// Datagrams that one softirq may leave for the next.
const BACKLOG_WANTED: u64 = 10_000;

/// Shares of a table, in per cent: from here on it may be full before an operator looks again.
const CONNECTIONS_PERCENT_MAX: u64 = 70;

pub(super) fn buffers(host: &Host) -> Vec<Finding> {
    let options = UdpOptions::default();
    let limit = |name: &str, wanted: usize| -> Option<Finding> {
        let granted: u64 = host.value(&format!("proc/sys/net/core/{name}"))?;
        let finding = Finding::ok(format!("net.core.{name}"), bytes(granted));
        let change = format!("sysctl -w net.core.{name}={wanted} (undo: {granted})");
        Some(if granted >= wanted as u64 {
            finding
        } else if granted < BURST_BYTES {
            finding.bites(
                "an unprivileged gateway's sockets get no larger buffer; bursts overflow it, and players lose packets",
                change,
            )
        } else {
            finding.could("an unprivileged gateway's sockets get no larger buffer", change)
        })
    };
    let receive = limit("rmem_max", options.receive_buffer_bytes);
    let send = limit("wmem_max", options.send_buffer_bytes);
    receive.into_iter().chain(send).collect()
}

/// The queue between the card's interrupt and the socket, on each processor.
pub(super) fn backlog(host: &Host) -> Option<Finding> {
    let limit: u64 = host.value("proc/sys/net/core/netdev_max_backlog")?;
    let rows = host.text("proc/net/softnet_stat")?;
    let dropped: u64 = rows
        .lines()
        .filter_map(|row| u64::from_str_radix(row.split_whitespace().nth(1)?, 16).ok())
        .sum();
    let found = format!("{limit}, {} dropped since the start", count(dropped));
    let finding = Finding::ok("net.core.netdev_max_backlog", found);
    let change = format!("sysctl -w net.core.netdev_max_backlog={BACKLOG_WANTED} (undo: {limit})");
    Some(if dropped > 0 {
        finding.bites(
            "the queue before the sockets has overflowed, whoever the packets were for",
            change,
        )
    } else if limit < BACKLOG_WANTED {
        finding.could("a burst through loopback or a steered queue can overflow it", change)
    } else {
        finding
    })
}

pub(super) fn overflows(host: &Host) -> Option<Finding> {
    let received = host.named("proc/net/snmp", "Udp:", "InDatagrams")?;
    let lost = host.named("proc/net/snmp", "Udp:", "RcvbufErrors")?;
    let found = format!("{} of {} since the start, all programs", count(lost), count(received));
    let finding = Finding::ok("UDP receive overflows", found);
    Some(if lost * 1000 > received {
        finding.could(
            "more than one in a thousand datagrams met a full receive buffer",
            "ringgate_socket_drops_total says whether it was ours: then more workers, or net.core.rmem_max",
        )
    } else {
        finding
    })
}

pub(super) fn connections(host: &Host) -> Option<Finding> {
    let read = |name: &str| host.value::<u64>(&format!("proc/sys/net/netfilter/{name}"));
    let (used, limit) = (read("nf_conntrack_count")?, read("nf_conntrack_max")?);
    let found = format!("{} of {} entries", count(used), count(limit));
    let finding = Finding::ok("connection tracking", found);
    let change = "nft add rule inet raw prerouting udp dport PORT notrack (and sport in output)";
    Some(if used * 100 >= limit * CONNECTIONS_PERCENT_MAX {
        finding.bites(
            "every source address takes an entry, a flood of spoofed ones takes all: then nobody gets in",
            change,
        )
    } else {
        finding.could("every source address takes an entry, so a flood can fill the table", change)
    })
}

/// A network card.
pub(super) fn card(host: &Host, name: &str) -> Vec<Finding> {
    let folder = format!("sys/class/net/{name}");
    [mtu(host, name, &folder), queues(host, name, &folder), losses(host, name, &folder)]
        .into_iter()
        .flatten()
        .collect()
}

fn mtu(host: &Host, name: &str, folder: &str) -> Option<Finding> {
    let mtu: usize = host.value(&format!("{folder}/mtu"))?;
    let finding = Finding::ok(format!("{name} MTU"), mtu.to_string());
    let wanted = DATAGRAM_BYTES_MAX + HEADERS_BYTES;
    Some(if mtu >= wanted {
        finding
    } else {
        finding.bites(
            "our datagrams are never fragmented: the largest ones cannot be sent at all",
            format!("ip link set {name} mtu {wanted} or more"),
        )
    })
}

fn queues(host: &Host, name: &str, folder: &str) -> Option<Finding> {
    let names = host.names(&format!("{folder}/queues"));
    let receive: Vec<_> = names.iter().filter(|queue| queue.starts_with("rx-")).collect();
    let processors = host.processors();
    let steered = receive.iter().any(|queue| {
        let mask = host.text(&format!("{folder}/queues/{queue}/rps_cpus")).unwrap_or_default();
        mask.chars().any(|digit| !matches!(digit, '0' | ','))
    });
    if receive.is_empty() {
        return None;
    }
    let steering = if steered { ", steered by software" } else { "" };
    let found = format!("{} for {processors} processors{steering}", receive.len());
    let finding = Finding::ok(format!("{name} receive queues"), found);
    Some(if receive.len() >= processors || steered {
        finding
    } else {
        finding.could(
            "all interrupts of a queue load one processor, before any worker sees a packet",
            format!(
                "ethtool -L {name} combined {processors}; where the card has no more: \
                 echo {:x} > /{folder}/queues/rx-0/rps_cpus",
                (1_u128 << processors.min(127)) - 1
            ),
        )
    })
}

fn losses(host: &Host, name: &str, folder: &str) -> Option<Finding> {
    let read = |counter: &str| host.value::<u64>(&format!("{folder}/statistics/{counter}"));
    let received = read("rx_packets")?;
    let lost: u64 = ["rx_missed_errors", "rx_fifo_errors"].into_iter().filter_map(read).sum();
    let found = format!("{} of {} since the start", count(lost), count(received));
    let finding = Finding::ok(format!("{name} receive losses"), found);
    Some(if lost == 0 {
        finding
    } else {
        finding.bites(
            "the card's ring was full: packets were lost before the kernel saw them",
            format!("ethtool -G {name} rx 4096 (ethtool -g {name} says what it takes)"),
        )
    })
}
