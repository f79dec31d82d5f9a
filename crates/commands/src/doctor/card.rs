//! The interface that a config with `io = "xdp"` names: whether its packets can come past the
//! kernel's sockets, and in which way.

use super::Finding;
use super::host::Host;
use ringgate_config::{Config, Workers, Xdp, XdpMode};
use ringgate_io::{CardFacts, CardLink};
use ringgate_os::capabilities::{self, Capability};
use ringgate_report::text::bytes;

/// What is known of the interface and of this process.
pub(super) struct Seen {
    pub(super) link: CardLink,
    pub(super) facts: CardFacts,
    /// Whether a VLAN is in it.
    pub(super) has_vlans: bool,
    /// By the name of its driver, where there is a device behind it.
    pub(super) driver: Option<String>,
    /// What may be locked, where there is a limit.
    pub(super) lockable: Option<u64>,
    /// Whether all rights are there.
    pub(super) has_rights: bool,
}

/// Everything about the interface, where the config names one.
pub(super) fn card(host: &Host, config: &Config) -> Vec<Finding> {
    let Some(xdp) = config.listeners.iter().find_map(|listener| listener.xdp.as_ref()) else {
        return Vec::new();
    };
    match look(host, &xdp.interface) {
        Ok(seen) => findings(xdp, workers(host, config), &seen),
        Err(why) => vec![Finding::ok(&*xdp.interface, why.to_string()).bites(
            "the config says that players' packets come by it",
            "`ip link show` lists the interfaces of this network namespace",
        )],
    }
}

fn workers(host: &Host, config: &Config) -> u32 {
    match config.gateway.workers {
        Workers::Count(count) => count.get() as u32,
        Workers::Auto => host.processors() as u32,
    }
}

fn look(host: &Host, interface: &str) -> std::io::Result<Seen> {
    let (link, facts, has_vlans) = ringgate_io::look_at_card(interface)?;
    let driver = host.link_name(&format!("sys/class/net/{interface}/device/driver"));
    let limits = host.text("proc/self/limits").unwrap_or_default();
    let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let rights = [Capability::NetAdmin, Capability::NetRaw, Capability::Bpf];
    Ok(Seen {
        link,
        facts,
        has_vlans,
        driver,
        // Whoever may lock memory has no limit.
        lockable: locked
            .filter(|_| !capabilities::has(Capability::LockMemory))
            .and_then(|line| line.split_whitespace().next()?.parse().ok()),
        has_rights: rights.into_iter().all(capabilities::has),
    })
}

/// What is found, of a gateway with so many workers.
pub(super) fn findings(xdp: &Xdp, workers: u32, seen: &Seen) -> Vec<Finding> {
    vec![
        driver(xdp, seen),
        queues(xdp, workers, seen),
        mtu(xdp, seen),
        offload(xdp, seen),
        checksums(xdp, seen),
        vlans(xdp, seen),
        memory(xdp, workers, seen),
        rights(xdp, seen),
        program(xdp, seen),
    ]
}

fn finding(xdp: &Xdp, what: &str, found: impl Into<String>) -> Finding {
    Finding::ok(format!("{} {what}", xdp.interface), found)
}

/// Which way frames will come.
fn driver(xdp: &Xdp, seen: &Seen) -> Finding {
    let CardFacts { runs_programs, zero_copy, .. } = seen.facts;
    let kind = Some(seen.link.kind.as_str()).filter(|kind| !kind.is_empty());
    let name = seen.driver.as_deref().or(kind).unwrap_or("unknown");
    let ability = match (runs_programs, zero_copy) {
        (Some(true), Some(true)) => "runs programs, zero-copy",
        (Some(true), _) => "runs programs, no zero-copy",
        (Some(false), _) => "runs no programs",
        (None, _) => "this kernel does not say what it can",
    };
    let finding = finding(xdp, "driver", format!("{name}: {ability}"));
    match xdp.mode {
        _ if seen.link.mac.is_none() => finding.bites(
            "only Ethernet interfaces bring frames that the gateway can read",
            "another interface, or io = \"sockets\"",
        ),
        XdpMode::ZeroCopy if zero_copy == Some(false) => finding.bites(
            "the gateway refuses to start with mode = \"zerocopy\"",
            "mode = \"auto\", which copies",
        ),
        XdpMode::Copy | XdpMode::ZeroCopy if runs_programs == Some(false) => finding
            .bites("the gateway refuses to start with this mode", "mode = \"auto\" or \"generic\""),
        XdpMode::Auto if runs_programs == Some(false) => finding.could(
            "the kernel runs the program in front of its network stack, which gains less",
            "a card whose driver runs programs, or io = \"sockets\"",
        ),
        _ => finding,
    }
}

fn queues(xdp: &Xdp, workers: u32, seen: &Seen) -> Finding {
    let name = &xdp.interface;
    let in_use = seen.facts.queues.filter(|count| *count > 0).unwrap_or(seen.link.queues);
    let max = seen.facts.queues_max.map_or(String::new(), |max| format!(" of {max}"));
    let finding = finding(xdp, "queues", format!("{in_use}{max} in use, for {workers} workers"));
    let served = xdp.queues.unwrap_or(in_use);
    if served > in_use {
        return finding.bites(
            "the gateway refuses to start: the config asks for more queues",
            format!("ethtool -L {name} combined {served}, or queues = {in_use}"),
        );
    }
    if workers > served {
        return finding.bites(
            "the gateway refuses to start: each worker needs a queue of its own",
            format!("workers = {served}, or ethtool -L {name} combined {workers}"),
        );
    }
    if workers < in_use {
        return finding.could(
            "players whose packets come by the other queues are served by sockets",
            format!("ethtool -L {name} combined {workers}, or more workers"),
        );
    }
    finding
}

fn mtu(xdp: &Xdp, seen: &Seen) -> Finding {
    let finding = finding(xdp, "MTU with a program", seen.link.mtu.to_string());
    if seen.link.mtu <= MTU_MAX || xdp.mode == XdpMode::Generic {
        return finding;
    }
    finding.could(
        "most drivers run programs with an MTU of up to 3000 or so, and refuse them with more",
        format!("ip link set {} mtu 1500 (undo: {})", xdp.interface, seen.link.mtu),
    )
}

fn offload(xdp: &Xdp, seen: &Seen) -> Finding {
    let name = &xdp.interface;
    let is_on = |feature: &&str| seen.facts.has(feature);
    let on: Vec<_> = ["rx-lro", "rx-gro-hw"].into_iter().filter(is_on).collect();
    let found = match (&seen.facts.features, &on[..]) {
        (None, _) => "not told".to_owned(),
        (Some(_), []) => "off".to_owned(),
        (Some(_), on) => format!("on: {}", on.join(", ")),
    };
    let finding = finding(xdp, "receive offload", found);
    if on.is_empty() {
        return finding;
    }
    let off: Vec<_> = on.iter().map(|feature| format!("{feature} off")).collect();
    finding.bites(
        "packets that the card has joined are too long for programs, and most drivers refuse them then",
        format!("ethtool -K {name} {}", off.join(" ")),
    )
}

/// Who writes those of answers. Both are right; it is work that a worker need not do.
fn checksums(xdp: &Xdp, seen: &Seen) -> Finding {
    let is_copied = match xdp.mode {
        XdpMode::Copy | XdpMode::Generic => true,
        XdpMode::ZeroCopy => false,
        XdpMode::Auto => seen.facts.zero_copy != Some(true),
    };
    let by_card = seen.facts.writes_sums(&seen.link, !is_copied);
    let by = if by_card { "by the card" } else { "by software" };
    let how = if is_copied { "where frames are copied" } else { "with zero-copy" };
    finding(xdp, "checksums", format!("{by} {how}"))
}

fn vlans(xdp: &Xdp, seen: &Seen) -> Finding {
    let is_on = seen.facts.has("rx-vlan-hw-parse");
    let there = if seen.has_vlans { "VLANs on it" } else { "no VLAN on it" };
    let how = if is_on { "takes tags off" } else { "leaves tags" };
    let finding = finding(xdp, "VLAN offload", format!("{how}, {there}"));
    if !(is_on && seen.has_vlans) {
        return finding;
    }
    finding.could(
        "a tag that the card has taken off cannot be seen: players in VLANs are served by sockets",
        format!("ethtool -K {} rxvlan off", xdp.interface),
    )
}

fn memory(xdp: &Xdp, workers: u32, seen: &Seen) -> Finding {
    let needed = u64::from(workers) * ringgate_io::card_memory(seen.link.mtu);
    let lockable = seen.lockable.map_or_else(|| "any amount".to_owned(), bytes);
    let found = format!("{} for frames, {lockable} may be locked", bytes(needed));
    let finding = finding(xdp, "memory", found);
    if seen.lockable.is_none_or(|lockable| lockable >= needed) {
        return finding;
    }
    finding.bites(
        "the gateway refuses to start: the kernel locks the memory of frames",
        "LimitMEMLOCK=infinity in the unit (or `ulimit -l unlimited`)",
    )
}

fn rights(xdp: &Xdp, seen: &Seen) -> Finding {
    if seen.has_rights {
        return finding(xdp, "rights", "there");
    }
    finding(xdp, "rights", "not all there, as doctor was started").could(
        "the gateway needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF at its start, and gives them up then",
        "AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF in the unit; run doctor as the service would run",
    )
}

fn program(xdp: &Xdp, seen: &Seen) -> Finding {
    match seen.link.program {
        None => finding(xdp, "program", "none"),
        Some(number) => finding(xdp, "program", format!("number {number}")).could(
            "if it is not that of a gateway which runs with this config, the gateway refuses to start",
            format!("`ip link show {}` and `bpftool prog show id {number}` tell whose it is", xdp.interface),
        ),
    }
}

/// What drivers take as a rule.
const MTU_MAX: u32 = 3000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    fn xdp() -> Xdp {
        Xdp { interface: "eth0".to_owned(), queues: None, mode: XdpMode::Auto, fallback: false }
    }

    /// A card at which nothing is to be changed, for four workers.
    fn seen() -> Seen {
        let facts = CardFacts {
            queues: Some(4),
            queues_max: Some(8),
            runs_programs: Some(true),
            zero_copy: Some(true),
            zero_copy_sums: Some(true),
            features: Some(vec!["rx-gro".to_owned()]),
        };
        let link = CardLink { mac: Some([2; 6]), mtu: 1500, queues: 8, ..CardLink::default() };
        let driver = Some("ice".to_owned());
        Seen { link, facts, has_vlans: false, driver, lockable: None, has_rights: true }
    }

    #[track_caller]
    fn expect(xdp: &Xdp, seen: &Seen, what: &str, severity: Severity, change: &str) {
        let all = findings(xdp, 4, seen);
        let wanted = format!("eth0 {what}");
        let found = all.into_iter().find(|it| it.what == wanted).expect("it is looked at");
        assert_eq!(found.severity, severity, "{found:?}");
        assert!(found.change.contains(change), "{found:?}");
    }

    #[test]
    fn a_card_that_can_everything_is_fine() {
        let all = findings(&xdp(), 4, &seen());
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|it| it.severity == Severity::Ok), "{all:?}");
        assert_eq!(all[0].found, "ice: runs programs, zero-copy");
    }

    #[test]
    fn what_the_driver_cannot_do_is_said_by_the_mode_that_is_wanted() {
        let mut card = seen();
        card.facts.zero_copy = Some(false);
        let wants = |mode| Xdp { mode, ..xdp() };
        expect(&xdp(), &card, "driver", Severity::Ok, "");
        expect(&wants(XdpMode::ZeroCopy), &card, "driver", Severity::Bites, "mode = \"auto\"");
        card.facts.runs_programs = Some(false);
        expect(&xdp(), &card, "driver", Severity::Could, "sockets");
        expect(&wants(XdpMode::Copy), &card, "driver", Severity::Bites, "\"generic\"");
        expect(&wants(XdpMode::Generic), &card, "driver", Severity::Ok, "");
        card.link.mac = None;
        expect(&xdp(), &card, "driver", Severity::Bites, "another interface");
    }

    #[test]
    fn who_writes_checksums_is_said_for_the_mode_that_there_will_be() {
        let mut card = seen();
        let found = |xdp: &Xdp, card: &Seen| {
            let all = findings(xdp, 4, card);
            all.into_iter().find(|it| it.what == "eth0 checksums").expect("it is looked at").found
        };
        assert_eq!(found(&xdp(), &card), "by the card with zero-copy");
        card.facts.zero_copy_sums = None;
        assert_eq!(found(&xdp(), &card), "by software with zero-copy");
        expect(&xdp(), &card, "checksums", Severity::Ok, "");
        let copy = Xdp { mode: XdpMode::Copy, ..xdp() };
        card.facts.features = Some(vec!["tx-checksum-ip-generic".into()]);
        assert_eq!(found(&copy, &card), "by software where frames are copied");
        card.link.kind = "veth".into();
        assert_eq!(found(&copy, &card), "by the card where frames are copied");
        expect(&copy, &card, "checksums", Severity::Ok, "");
    }

    #[test]
    fn queues_are_counted_against_workers() {
        let mut card = seen();
        card.facts.queues = Some(2);
        expect(&xdp(), &card, "queues", Severity::Bites, "ethtool -L eth0 combined 4");
        card.facts.queues = Some(6);
        expect(&xdp(), &card, "queues", Severity::Could, "combined 4");
        let wanted = Xdp { queues: Some(7), ..xdp() };
        expect(&wanted, &card, "queues", Severity::Bites, "queues = 6");
    }

    #[test]
    fn what_stands_in_the_way_of_frames_is_named_with_the_command() {
        let mut card = seen();
        card.link.mtu = 9000;
        expect(&xdp(), &card, "MTU with a program", Severity::Could, "mtu 1500");
        card.facts.features = Some(vec!["rx-lro".into(), "rx-vlan-hw-parse".into()]);
        expect(&xdp(), &card, "receive offload", Severity::Bites, "ethtool -K eth0 rx-lro off");
        expect(&xdp(), &card, "VLAN offload", Severity::Ok, "");
        card.has_vlans = true;
        expect(&xdp(), &card, "VLAN offload", Severity::Could, "rxvlan off");
        card.lockable = Some(64 << 10);
        expect(&xdp(), &card, "memory", Severity::Bites, "LimitMEMLOCK");
        card.has_rights = false;
        expect(&xdp(), &card, "rights", Severity::Could, "CAP_BPF");
        card.link.program = Some(7);
        expect(&xdp(), &card, "program", Severity::Could, "bpftool prog show id 7");
    }
}
