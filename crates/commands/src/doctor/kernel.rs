//! The kernel, and what it grants this process.

use super::Finding;
use super::host::Host;

/// io_uring's multishot receive came with 6.0, deferred task work with 6.1.
const KERNEL_WANTED: (u32, u32) = (6, 1);

/// Udp backends off loopback take a descriptor for each player.
const DESCRIPTORS_WANTED: u64 = 65_536;

pub(super) fn version(host: &Host) -> Finding {
    let release = host.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let finding = Finding::ok("kernel", release.clone());
    match number(&release) {
        Some(version) if version >= KERNEL_WANTED => finding,
        _ => finding.could(
            "before 6.1 the gateway does without io_uring, or with more wake-ups than it needs",
            "use a newer kernel",
        ),
    }
}

fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn clock(host: &Host) -> Option<Finding> {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let name = host.text(&format!("{folder}/current_clocksource"))?;
    let finding = Finding::ok("clock source", name.clone());
    let is_slow = ["acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"].contains(&name.as_str());
    Some(if is_slow {
        finding.bites(
            "each look at the clock is a system call to a slow device, several times a turn",
            format!("boot with clocksource=tsc, or: echo tsc > /{folder}/current_clocksource"),
        )
    } else {
        finding
    })
}

pub(super) fn descriptors(host: &Host) -> Option<Finding> {
    let limits = host.text("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace();
    let soft = numbers.next()?;
    let finding = Finding::ok("open files", format!("{soft} for this user"));
    // The unit's own limit may be another; this says what a gateway that is started here gets.
    Some(match soft.parse::<u64>() {
        Ok(soft) if soft < DESCRIPTORS_WANTED => finding.could(
            "a udp backend that is not on 127.0.0.0/8 takes one for each player",
            "LimitNOFILE=1048576 in the unit (tuning/ringgate.service has it), or ulimit -n",
        ),
        _ => finding,
    })
}

pub(super) fn quota(host: &Host) -> Option<Finding> {
    let groups = host.text("proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("sys/fs/cgroup/{}", group.trim_start_matches('/'));
    let folder = folder.trim_end_matches('/');
    let quota = host.text(&format!("{folder}/cpu.max"))?;
    if quota.starts_with("max") {
        return Some(Finding::ok("CPU quota", "none"));
    }
    let throttled = host
        .text(&format!("{folder}/cpu.stat"))?
        .lines()
        .find_map(|line| line.strip_prefix("nr_throttled ")?.parse::<u64>().ok())
        .unwrap_or(0);
    let finding = Finding::ok("CPU quota", format!("{quota}, throttled {throttled} times"));
    let why = "a worker over its quota stands still for the rest of the period, tens of ms";
    let change = "CPUQuota= out of the unit, or whole cores by a cpuset instead of a quota";
    Some(if throttled > 0 { finding.bites(why, change) } else { finding.could(why, change) })
}

pub(super) fn swap(host: &Host) -> Option<Finding> {
    let areas = host.text("proc/swaps")?.lines().count().saturating_sub(1);
    let finding = Finding::ok("swap", if areas == 0 { "none" } else { "in use" });
    Some(if areas == 0 {
        finding
    } else {
        finding.could(
            "a session that was swapped out costs its player tens of ms, and its keys lie on the disk",
            "MemorySwapMax=0 in the unit (tuning/ringgate.service has it)",
        )
    })
}
