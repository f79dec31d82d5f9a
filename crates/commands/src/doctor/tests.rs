//! Sample hosts, each a folder of the kernel's files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::finding::{Severity, json};
use super::*;
use crate::doctor::host::count_list;

/// A folder that goes with its owner.
struct Sample {
    root: PathBuf,
}

impl Sample {
    fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringgate-doctor-{}-{number}", std::process::id());
        let sample = Self { root: std::env::temp_dir().join(name) };
        for (path, text) in files {
            sample.put(path, text);
        }
        sample
    }

    fn put(&self, path: &str, text: &str) {
        let file = self.root.join(path);
        fs::create_dir_all(file.parent().expect("below the root")).expect("temporary folders");
        fs::write(file, text).expect("temporary files");
    }

    fn host(&self) -> Host {
        Host::new(&self.root)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// What is found about one thing, where it is looked at.
fn about(sample: &Sample, what: &str, config: Option<&Config>) -> Option<Finding> {
    examine(&sample.host(), config).into_iter().find(|finding| finding.what == what)
}

#[track_caller]
fn expect(files: &[(&str, &str)], what: &str, severity: Severity, change: &str) {
    let finding = about(&Sample::new(files), what, None).expect("it is looked at");
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.change.contains(change), "{finding:?}");
    assert_eq!(finding.why.is_empty(), severity == Severity::Ok, "{finding:?}");
}

use Severity::{Bites, Could, Ok as Fine};

#[test]
fn an_empty_host_is_no_reason_to_fall_over() {
    let findings = examine(&Sample::new(&[]).host(), None);
    let names: Vec<_> = findings.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(names, ["kernel", "cipher"]);
}

#[test]
fn kernels_are_compared_by_number() {
    let path = "proc/sys/kernel/osrelease";
    expect(&[(path, "6.18.5-cloud\n")], "kernel", Fine, "");
    expect(&[(path, "10.0\n")], "kernel", Fine, "");
    expect(&[(path, "6.1\n")], "kernel", Fine, "");
    expect(&[(path, "5.15.0-91-generic\n")], "kernel", Could, "newer kernel");
    expect(&[(path, "what\n")], "kernel", Could, "newer kernel");
}

#[test]
fn a_slow_clock_bites() {
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    expect(&[(path, "tsc\n")], "clock source", Fine, "");
    expect(&[(path, "kvm-clock\n")], "clock source", Fine, "");
    expect(&[(path, "hpet\n")], "clock source", Bites, "clocksource=tsc");
}

#[test]
fn few_descriptors_could_be_more() {
    let limits = |soft| format!("Limit  Soft\nMax open files            {soft}   1048576  files\n");
    expect(&[("proc/self/limits", &limits("1024"))], "open files", Could, "LimitNOFILE");
    expect(&[("proc/self/limits", &limits("65536"))], "open files", Fine, "");
    expect(&[("proc/self/limits", &limits("unlimited"))], "open files", Fine, "");
}

#[test]
fn a_quota_bites_once_it_has_throttled() {
    let group = ("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/ringgate.service\n");
    let folder = "sys/fs/cgroup/system.slice/ringgate.service";
    let (max, stat) = (format!("{folder}/cpu.max"), format!("{folder}/cpu.stat"));
    expect(&[group, (&max, "max 100000\n")], "CPU quota", Fine, "");
    let calm = (stat.as_str(), "usage_usec 1\nnr_throttled 0\n");
    expect(&[group, (&max, "200000 100000\n"), calm], "CPU quota", Could, "cpuset");
    let tight = (stat.as_str(), "usage_usec 1\nnr_throttled 7\n");
    expect(&[group, (&max, "200000 100000\n"), tight], "CPU quota", Bites, "cpuset");
}

#[test]
fn swap_could_go() {
    let head = "Filename\tType\tSize\n";
    expect(&[("proc/swaps", head)], "swap", Fine, "");
    let file = format!("{head}/swapfile file 1000\n");
    expect(&[("proc/swaps", &file)], "swap", Could, "MemorySwapMax=0");
}

#[test]
fn one_slow_core_is_enough() {
    let path = |cpu| format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor");
    let (first, second) = (path(0), path(1));
    let fast = (first.as_str(), "performance\n");
    expect(&[fast, (&second, "performance\n")], "CPU frequency", Fine, "");
    expect(&[fast, (&second, "powersave\n")], "CPU frequency", Could, "cpupower");
}

#[test]
fn a_guest_polls_before_it_halts_and_metal_sleeps_lightly() {
    let driver = "sys/devices/system/cpu/cpuidle/current_driver";
    let guest = ("proc/cpuinfo", "flags\t\t: fpu hypervisor avx2\n");
    expect(&[guest, (driver, "haltpoll\n")], "CPU idle", Fine, "");
    expect(&[guest, (driver, "none\n")], "CPU idle", Could, "cpuidle_haltpoll");
    let poll = |ns| {
        [guest, (driver, "haltpoll\n"), ("sys/module/haltpoll/parameters/guest_halt_poll_ns", ns)]
    };
    expect(&poll("50000\n"), "CPU idle", Fine, "");
    expect(&poll("0\n"), "CPU idle", Could, "echo 200000 > /sys/module/haltpoll");

    let metal = ("proc/cpuinfo", "flags\t\t: fpu avx2\n");
    let state = |n, file| format!("sys/devices/system/cpu/cpu0/cpuidle/state{n}/{file}");
    let (light, deep, off) = (state(1, "latency"), state(2, "latency"), state(2, "disable"));
    let states = [metal, (driver, "intel_idle\n"), (&light, "2\n"), (&deep, "890\n")];
    expect(&states, "CPU idle", Could, "cpupower idle-set -D 50");
    let states = [&states[..], &[(off.as_str(), "1\n")]].concat();
    expect(&states, "CPU idle", Fine, "");
}

#[test]
fn a_dear_sleep_could_be_cheaper_and_who_can_do_what_is_told() {
    let found =
        |flags: &str, cost_ns| cpu::sleep(&Sample::new(&[("proc/cpuinfo", flags)]).host(), cost_ns);
    let cheap = found("flags : fpu hypervisor\n", 2540);
    assert_eq!((cheap.severity, cheap.found.as_str()), (Fine, "2.5 us of a core"));
    let guest = found("flags : fpu hypervisor\n", 20_449);
    assert_eq!((guest.severity, guest.found.as_str()), (Could, "20.4 us of a core"));
    assert!(guest.change.contains("before it halts") && guest.change.contains("nohz_full"));
    let metal = found("flags : fpu\n", 7500);
    assert_eq!(metal.severity, Could);
    assert!(metal.change.contains("idle-set") && !metal.change.contains("guest"));
}

#[test]
fn stolen_time_bites_from_one_per_cent_on() {
    let path = "proc/stat";
    expect(&[(path, "cpu  500 0 400 50 0 0 40 10 0 0\ncpu0 1\n")], "CPU time stolen", Fine, "");
    let stolen = [(path, "cpu  500 0 400 50 0 0 30 20 0 0\n")];
    expect(&stolen, "CPU time stolen", Bites, "not shared");
    // Guest time stands twice in the row, and counts once.
    expect(&[(path, "cpu  900 0 0 89 0 0 0 11 900 0\n")], "CPU time stolen", Bites, "");
}

#[test]
fn small_buffers_bite_and_the_old_value_is_named() {
    let (receive, send) = ("proc/sys/net/core/rmem_max", "proc/sys/net/core/wmem_max");
    let wanted = (8 << 20).to_string();
    expect(&[(receive, "212992\n")], "net.core.rmem_max", Bites, "undo: 212992");
    expect(&[(receive, "4194304\n")], "net.core.rmem_max", Could, &wanted);
    expect(&[(receive, &wanted)], "net.core.rmem_max", Fine, "");
    expect(&[(send, "212992\n")], "net.core.wmem_max", Bites, &wanted);
}

#[test]
fn a_backlog_that_has_dropped_bites() {
    let limit = |text| ("proc/sys/net/core/netdev_max_backlog", text);
    let rows = |text| ("proc/net/softnet_stat", text);
    let (calm, lossy) = ("00ff 00000000 00000001\n", "00ff 00000000 0\n00ff 0000000a 0\n");
    let what = "net.core.netdev_max_backlog";
    expect(&[limit("20000\n"), rows(calm)], what, Fine, "");
    expect(&[limit("1000\n"), rows(calm)], what, Could, "undo: 1000");
    expect(&[limit("20000\n"), rows(lossy)], what, Bites, "undo: 20000");
}

#[test]
fn overflows_count_by_their_share() {
    let snmp = |lost| {
        format!("Ip: A\nIp: 1\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 100000 5 {lost}\n")
    };
    let path = "proc/net/snmp";
    expect(&[(path, &snmp(100))], "UDP receive overflows", Fine, "");
    expect(&[(path, &snmp(101))], "UDP receive overflows", Could, "socket_drops");
}

#[test]
fn a_connection_table_bites_when_it_fills() {
    let used = |text| ("proc/sys/net/netfilter/nf_conntrack_count", text);
    let limit = ("proc/sys/net/netfilter/nf_conntrack_max", "1000\n");
    expect(&[used("10\n"), limit], "connection tracking", Could, "notrack");
    expect(&[used("700\n"), limit], "connection tracking", Bites, "notrack");
}

#[test]
fn cards_are_those_with_a_device_that_is_up() {
    let sample = Sample::new(&[
        ("sys/class/net/lo/mtu", "65536\n"),
        ("sys/class/net/eth0/mtu", "1500\n"),
        ("sys/class/net/eth0/device/vendor", "0x1af4\n"),
        ("sys/class/net/eth1/device/vendor", "0x1af4\n"),
        ("sys/class/net/eth1/operstate", "down\n"),
    ]);
    assert_eq!(sample.host().cards(), ["eth0"]);
    assert!(about(&sample, "lo MTU", None).is_none());
}

/// A machine of four processors with a card, and more files.
fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let device = ("sys/class/net/eth0/device/vendor", "0x1af4\n");
    let status = ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n");
    [&[device, status], more].concat()
}

#[test]
fn a_card_needs_room_queues_and_no_losses() {
    let mtu = |text| with(&[("sys/class/net/eth0/mtu", text)]);
    expect(&mtu("1500\n"), "eth0 MTU", Fine, "");
    expect(&mtu("1200\n"), "eth0 MTU", Bites, "ip link set eth0 mtu");

    let (steering, other) =
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "sys/class/net/eth0/queues/tx-0/xps_cpus");
    let what = "eth0 receive queues";
    expect(&with(&[(steering, "0,00000000\n"), (other, "f\n")]), what, Could, "combined 4");
    expect(&with(&[(steering, "0,00000000\n"), (other, "f\n")]), what, Could, "echo f >");
    expect(&with(&[(steering, "f\n")]), what, Fine, "");

    let received = ("sys/class/net/eth0/statistics/rx_packets", "1000\n");
    let missed = |text| ("sys/class/net/eth0/statistics/rx_missed_errors", text);
    expect(&with(&[received, missed("0\n")]), "eth0 receive losses", Fine, "");
    expect(&with(&[received, missed("3\n")]), "eth0 receive losses", Bites, "ethtool -G eth0");
}

#[test]
fn lists_of_processors_are_counted() {
    for (list, count) in [("0", 1), ("0-3", 4), ("0-1,8,10-11", 5), ("", 0), ("x,3-1", 0)] {
        assert_eq!(count_list(list), count, "{list}");
    }
}

/// A config that binds port 40000 for 1000 sessions with 4 workers.
fn config(sample: &Sample) -> Config {
    let key = "11".repeat(32);
    sample.put(
        "gate.toml",
        &format!(
            "[gateway]\nworkers = 4\n[[listener]]\nname = \"a\"\nprotocol = \"netcode\"\n\
             bind = [\"127.0.0.1:40000\"]\nprotocol_id = \"0x1\"\nkeys = [{{ hex = \"{key}\" }}]\n\
             backends = [\"b\"]\nmax_sessions = 1000\n\
             [[backend]]\nname = \"b\"\nlink = \"udp\"\naddress = \"127.0.0.1:7777\"\nslots = 64\n"
        ),
    );
    Config::load(&sample.root.join("gate.toml")).expect("a good config")
}

#[test]
fn a_config_is_held_against_the_host() {
    let sample = Sample::new(&[
        ("proc/self/status", "Cpus_allowed_list:\t0-1\n"),
        ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   999 kB\n"),
        ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    ]);
    let config = config(&sample);
    let judge = |what| about(&sample, what, Some(&config)).expect("it is looked at");
    assert_eq!(judge("memory").severity, Bites);
    assert_eq!(judge("workers").severity, Bites);
    let ports = judge("ports");
    assert_eq!(ports.severity, Could);
    assert!(ports.change.ends_with("ip_local_reserved_ports=40000"), "{ports:?}");

    sample.put("proc/self/status", "Cpus_allowed_list:\t0-3\n");
    sample.put("proc/meminfo", "MemAvailable:   1000 kB\n");
    sample.put("proc/sys/net/ipv4/ip_local_reserved_ports", "8080,39990-40010\n");
    for what in ["memory", "workers", "ports"] {
        let finding = about(&sample, what, Some(&config)).expect("it is looked at");
        assert_eq!(finding.severity, Fine, "{finding:?}");
    }
    sample.put("proc/sys/net/ipv4/ip_local_reserved_ports", "8080\n");
    let ports = about(&sample, "ports", Some(&config)).expect("it is looked at");
    assert!(ports.change.ends_with("=8080,40000"), "what is reserved stays: {ports:?}");
}

#[test]
fn a_finding_shows_what_why_and_what_to_do() {
    let findings = [
        Finding::ok("kernel", "6.18"),
        Finding::ok("swap", "in use").bites("it hurts", "swapoff -a"),
    ];
    let expected = "ok     kernel  6.18\nBITES  swap    in use\n       why: it hurts\n       \
                    do: swapoff -a\n\n1 ok, 0 could be better, 1 bite\n";
    assert_eq!(render(&findings), expected);
    let json: serde_json::Value = serde_json::from_str(&json(&findings)).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["findings"][1]["severity"], "bites");
    assert_eq!(json["findings"][0]["what"], "kernel");
}
