//! The processors: how fast they run, how they sleep, who else has them.

use super::Finding;
use super::host::Host;
use ringgate_config::{Config, WorkersAwake};
use ringgate_core::crypto::Kernel;

/// Of all time since the start, in per mille: from here on it shows in the tails.
const STEAL_PER_MILLE_MAX: u64 = 10;

/// A state that takes longer to leave than this is felt by a player's packet.
const IDLE_EXIT_US_MAX: u64 = 50;

pub(super) fn governor(host: &Host) -> Option<Finding> {
    let mut names: Vec<_> = host
        .names("sys/devices/system/cpu/cpufreq")
        .into_iter()
        .filter_map(|policy| {
            host.text(&format!("sys/devices/system/cpu/cpufreq/{policy}/scaling_governor"))
        })
        .collect();
    names.sort();
    names.dedup();
    let finding = Finding::ok("CPU frequency", names.join(", "));
    match names.iter().find(|name| *name != "performance") {
        _ if names.is_empty() => None,
        None => Some(finding),
        Some(_) => Some(finding.could(
            "a core that was clocked down while it waited handles the next burst late",
            "cpupower frequency-set -g performance",
        )),
    }
}

/// What a sleep costs, which was measured as so much. It is by that that a busy worker chooses how
/// long it waits for more.
pub(super) fn sleep(host: &Host, cost_ns: u64) -> Finding {
    let (us, tenths) = (cost_ns / 1000, cost_ns / 100 % 10);
    let finding = Finding::ok("a sleep", format!("{us}.{tenths} us of a core"));
    if cost_ns < DEAR_SLEEP_NS {
        return finding;
    }
    let change = if is_guest(host) {
        "polling in the guest before it halts (CPU idle, above), a host that leaves timers and halts \
         to the guest, a tickless core for each worker (nohz_full=, rcu_nocbs=)"
    } else {
        "shallow idle states (cpupower idle-set -D 50), a tickless core for each worker (nohz_full=, \
         rcu_nocbs=)"
    };
    finding.could(
        "a busy worker waits up to 32 times that for more (batch_delay = \"auto\", within \
         batch_delay_max), so that sleeping stays below a tenth of its core, and players wait with it",
        change,
    )
}

/// Whether workers that are not needed may sleep, where the config says so.
pub(super) fn awake(config: &Config, may_load: bool) -> Option<Finding> {
    (config.gateway.workers_awake == WorkersAwake::Auto).then(|| {
        let what = "workers that sleep";
        if may_load {
            return Finding::ok(what, "the right to load their program is there");
        }
        Finding::ok(what, "no right to load their program, as doctor was started").could(
            "without CAP_BPF at its start all workers of the gateway are awake, whatever workers_awake says",
            "AmbientCapabilities=CAP_BPF, CapabilityBoundingSet=CAP_BPF and SystemCallFilter=bpf in the \
             unit (docs/howto/install.md); run doctor as the service would run",
        )
    })
}

/// From here on it is what decides how long a worker waits at the load that fleets run at.
const DEAR_SLEEP_NS: u64 = 7500;

fn is_guest(host: &Host) -> bool {
    host.text("proc/cpuinfo")
        .is_some_and(|text| text.split_whitespace().any(|flag| flag == "hypervisor"))
}

pub(super) fn idle(host: &Host) -> Option<Finding> {
    let driver = host.text("sys/devices/system/cpu/cpuidle/current_driver")?;
    if is_guest(host) {
        return Some(idle_guest(host, &driver));
    }
    let folder = "sys/devices/system/cpu/cpu0/cpuidle";
    let slowest = host
        .names(folder)
        .into_iter()
        .filter(|state| host.value(&format!("{folder}/{state}/disable")) != Some(1_u64))
        .filter_map(|state| host.value::<u64>(&format!("{folder}/{state}/latency")))
        .max()?;
    let finding = Finding::ok("CPU idle", format!("{driver}, {slowest} us to wake at most"));
    Some(if slowest <= IDLE_EXIT_US_MAX {
        finding
    } else {
        finding.could(
            "a core in a deep sleep takes that long to look at the first packet after it",
            format!("cpupower idle-set -D {IDLE_EXIT_US_MAX}, or `spin` in the config"),
        )
    })
}

fn idle_guest(host: &Host, driver: &str) -> Finding {
    let why = "waking a halted virtual CPU goes through the host, tens of us for each quiet moment";
    if driver != "haltpoll" {
        return Finding::ok("CPU idle", format!("{driver}, virtual machine"))
            .could(why, "modprobe cpuidle_haltpoll (boot with cpuidle_haltpoll.force=1)");
    }
    let poll_ns = host.value::<u64>(HALT_POLL_NS).unwrap_or(HALT_POLL_NS_DEFAULT);
    let finding = Finding::ok("CPU idle", format!("{driver} for {} us", poll_ns / 1000));
    if poll_ns > 0 {
        return finding;
    }
    let change = format!("echo {HALT_POLL_NS_DEFAULT} > /{HALT_POLL_NS}");
    finding.could(why, change)
}

/// How long a virtual CPU looks for work before it halts, and what the kernel has it do where
/// nobody has said otherwise.
const HALT_POLL_NS: &str = "sys/module/haltpoll/parameters/guest_halt_poll_ns";
const HALT_POLL_NS_DEFAULT: u64 = 200_000;

pub(super) fn steal(host: &Host) -> Option<Finding> {
    let stat = host.text("proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; what follows is counted in the first two
    // already.
    let (steal, all) = (*times.get(7)?, times.iter().take(8).sum::<u64>());
    let per_mille = steal * 1000 / all.max(1);
    let found = format!("{}.{} % since the start", per_mille / 10, per_mille % 10);
    let finding = Finding::ok("CPU time stolen", found);
    Some(if per_mille <= STEAL_PER_MILLE_MAX {
        finding
    } else {
        finding.bites(
            "the host runs somebody else on our cores, for milliseconds at a time",
            "another machine, or one whose cores are not shared",
        )
    })
}

pub(super) fn cipher() -> Finding {
    let kernel = Kernel::best();
    let finding = Finding::ok("cipher", kernel.name());
    if kernel == Kernel::Portable && cfg!(target_arch = "x86_64") {
        return finding.could(
            "without AVX2 a packet costs several times as much to open and seal",
            "a CPU, or a virtual machine's CPU model, with AVX2 (better AVX-512)",
        );
    }
    finding
}
