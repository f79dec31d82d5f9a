//! What `/proc` tells: who used how much of a core, and what kind of machine this is.
//!
//! CPU time is read for each thread, user and system apart, in the kernel's ticks of 10 ms; the
//! scheduler's own figure in nanoseconds, where the kernel keeps it, makes the sum exact. Both come
//! from the kernel's books, so the generator cannot flatter the gateway or itself.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One thread's CPU time since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// Thread id.
    pub id: u32,
    /// The thread's name.
    pub name: String,
    /// Seconds in user mode, to 10 ms.
    pub user_s: f64,
    /// Seconds in the kernel, to 10 ms.
    pub system_s: f64,
    /// Seconds on a core, exact where the kernel keeps it.
    pub total_s: f64,
}

/// Every thread of a process. Empty where there is no such process.
pub fn threads(pid: u32) -> Vec<ThreadCpu> {
    let folder = Path::new("/proc").join(pid.to_string()).join("task");
    let Ok(tasks) = fs::read_dir(folder) else { return Vec::new() };
    let mut threads: Vec<_> = tasks.filter_map(|task| thread(&task.ok()?.path())).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// When a process was started, in ticks since the kernel booted: with it a process id is not taken
/// for an earlier owner's. None that has ended, though its parent has not asked for it yet.
pub fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold any character; behind it are the state and, as the twentieth field, the
    // time (proc_pid_stat(5)).
    let mut fields = text.get(text.rfind(')')? + 2..)?.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok();
    started.filter(|_| !matches!(state, "Z" | "X"))
}

/// The thread that asks.
pub fn this_thread() -> Option<ThreadCpu> {
    thread(&Path::new("/proc").join(fs::read_link("/proc/thread-self").ok()?))
}

fn thread(task: &Path) -> Option<ThreadCpu> {
    let id = task.file_name()?.to_str()?.parse().ok()?;
    let (name, user_s, system_s) = parse_stat(&fs::read_to_string(task.join("stat")).ok()?)?;
    let exact = fs::read_to_string(task.join("schedstat")).ok();
    let exact = exact.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let total_s = exact.map_or(user_s + system_s, |ns| ns / 1e9);
    Some(ThreadCpu { id, name, user_s, system_s, total_s })
}

/// Name, user and system seconds. The name is in brackets and may hold any character.
fn parse_stat(text: &str) -> Option<(String, f64, f64)> {
    let (start, end) = (text.find('(')?, text.rfind(')')?);
    let mut fields = text.get(end + 2..)?.split(' ').skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_S);
    Some((text.get(start + 1..end)?.to_owned(), seconds()?, seconds()?))
}

/// What each thread used between two readings. Threads that began meanwhile count from 0.
pub fn used(before: &[ThreadCpu], after: &[ThreadCpu]) -> Vec<ThreadCpu> {
    let earlier = |id| before.iter().find(|thread| thread.id == id);
    let difference = |thread: &ThreadCpu| {
        let start = earlier(thread.id).cloned().unwrap_or_default();
        ThreadCpu {
            id: thread.id,
            name: thread.name.clone(),
            user_s: (thread.user_s - start.user_s).max(0.0),
            system_s: (thread.system_s - start.system_s).max(0.0),
            total_s: (thread.total_s - start.total_s).max(0.0),
        }
    };
    after.iter().map(difference).collect()
}

/// Seconds on a core, of all threads together.
pub fn cpu_s(threads: &[ThreadCpu]) -> f64 {
    threads.iter().map(|thread| thread.total_s).sum()
}

/// How long a core has been idle since the kernel booted, waiting for disks included.
pub fn idle_s(core: usize) -> Option<f64> {
    parse_idle(&fs::read_to_string("/proc/stat").ok()?, core)
}

fn parse_idle(text: &str, core: usize) -> Option<f64> {
    let name = format!("cpu{core} ");
    let fields = text.lines().find_map(|line| line.strip_prefix(name.as_str()))?;
    let mut fields = fields.split_whitespace().skip(3);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_S);
    Some(seconds()? + seconds()?)
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The process that listens at a TCP address of this host.
pub fn listener_pid(address: SocketAddr) -> Option<u32> {
    holder(listening_inode(address)?)
}

/// The process that listens at a socket of this host's file system.
pub fn socket_pid(path: &Path) -> Option<u32> {
    let text = fs::read_to_string("/proc/net/unix").ok()?;
    let listens = |fields: &[&str]| fields.get(3) == Some(&"00010000");
    let inode = text.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_it = listens(&fields) && fields.get(7).is_some_and(|it| Path::new(it) == path);
        is_it.then(|| fields.get(6)?.parse().ok())?
    });
    holder(inode?)
}

/// An address as the kernel prints it there: words of 32 bits in its own order of bytes.
fn in_hex(ip: IpAddr) -> String {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]));
    words.fold(String::new(), |text, word| text + &format!("{word:08X}"))
}

fn holder(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.find_map(|entry| {
        let path = entry.ok()?.path();
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        let has_it = fs::read_dir(path.join("fd")).ok()?.any(|fd| {
            let link = fd.ok().and_then(|fd| fs::read_link(fd.path()).ok());
            link.is_some_and(|link| link.as_os_str() == wanted.as_str())
        });
        has_it.then_some(pid)
    })
}

/// Of the socket that takes connections to an address: another may listen at its port elsewhere.
fn listening_inode(address: SocketAddr) -> Option<u64> {
    let (ip, port) = (in_hex(address.ip()), address.port());
    let is_it = |it: &str| it == ip || it.bytes().all(|digit| digit == b'0');
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables.iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (local_ip, local_port) = fields.get(1)?.split_once(':')?;
            let local_port = u16::from_str_radix(local_port, 16).ok()?;
            (local_port == port && is_it(local_ip) && *fields.get(3)? == "0A")
                .then(|| fields.get(9)?.parse().ok())?
        })
    })
}

/// What the figures depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// Cores that can be used.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split(':').nth(1).unwrap_or_default().trim().to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024,
        }
    }
}

/// `USER_HZ`, which has been 100 on every platform we run on (proc(5)).
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let text = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 99";
        assert_eq!(parse_stat(text), Some(("a) b (c".into(), 2.5, 0.5)));
        assert_eq!(parse_stat("12 (x) S 1"), None);
    }

    #[test]
    fn a_core_s_idle_time_is_its_own() {
        let text = "cpu  9 9 9 9 9 9\ncpu0 1 2 3 400 50 6 7\ncpu1 1 2 3 800 0 6 7\nintr 5\n";
        assert_eq!((parse_idle(text, 0), parse_idle(text, 1)), (Some(4.5), Some(8.0)));
        assert_eq!(parse_idle(text, 2), None);
        assert!(idle_s(0).is_some_and(|idle_s| idle_s > 0.0));
    }

    #[test]
    fn our_own_threads_and_their_work_are_seen() {
        let pid = std::process::id();
        let before = threads(pid);
        assert!(!before.is_empty());
        let mut sum = 0_u64;
        while used(&before, &threads(pid)).iter().map(|t| t.total_s).sum::<f64>() < 0.02 {
            sum = (0..100_000_u64).fold(sum, |sum, x| std::hint::black_box(sum ^ x));
        }
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 1 << 20));
        assert!(threads(u32::MAX).is_empty());
        assert!(started(pid).is_some_and(|ticks| ticks > 0) && started(u32::MAX).is_none());
    }

    #[test]
    fn a_listener_is_found_by_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        assert_eq!(listener_pid(address), Some(std::process::id()));
    }
}
