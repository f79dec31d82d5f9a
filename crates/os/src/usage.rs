//! What this process takes of the host: time, memory, descriptors, as the kernel counts them.

use std::fs::File;
use std::io::{Read, Seek};

/// The kernel's files, kept open because a confined daemon cannot open them later.
#[derive(Debug)]
pub struct Usage {
    stat: Option<File>,
    status: Option<File>,
    limits: Option<File>,
    descriptors: Option<File>,
}

/// What is known at one moment; `None` where the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Time on a CPU, in user and kernel mode, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Memory that is there.
    pub resident_bytes: Option<u64>,
    /// Address space.
    pub virtual_bytes: Option<u64>,
    /// Descriptors that are open.
    pub open_files: Option<u64>,
    /// Descriptors that may be open.
    pub open_files_max: Option<u64>,
}

impl Usage {
    /// Opens what there is.
    pub fn open() -> Self {
        let open = |name: &str| File::open(format!("/proc/self/{name}")).ok();
        Self {
            stat: open("stat"),
            status: open("status"),
            limits: open("limits"),
            descriptors: open("fd"),
        }
    }

    /// Looks.
    pub fn used(&mut self) -> Used {
        let status = text_of(&mut self.status).unwrap_or_default();
        Used {
            cpu_seconds: text_of(&mut self.stat).and_then(|stat| cpu_seconds(&stat)),
            resident_bytes: kilobytes(&status, "VmRSS:"),
            virtual_bytes: kilobytes(&status, "VmSize:"),
            open_files: self.descriptors.as_ref().and_then(count_of),
            open_files_max: text_of(&mut self.limits).and_then(|limits| files_max(&limits)),
        }
    }
}

/// The size of this directory is the number of descriptors, from Linux 6.2 on.
fn count_of(descriptors: &File) -> Option<u64> {
    let count = descriptors.metadata().ok()?.len();
    (count > 0).then_some(count)
}

fn text_of(file: &mut Option<File>) -> Option<String> {
    let file = file.as_mut()?;
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    Some(text)
}

/// Seconds of a processor that this process's thread of a name has had.
pub fn thread_seconds(name: &str) -> Option<f64> {
    let mut threads = std::fs::read_dir("/proc/self/task").ok()?.flatten().map(|it| it.path());
    let read = |path: &std::path::Path, file| std::fs::read_to_string(path.join(file));
    let is_it =
        |path: &std::path::PathBuf| read(path, "comm").is_ok_and(|it| it.trim_end() == name);
    cpu_seconds(&read(&threads.find(is_it)?, "stat").ok()?)
}

/// The process's name comes second, in brackets, and may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((user + system) as f64 / TICKS_PER_S)
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Linux counts for programs in hundredths of a second, whatever its own clock does.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_what_it_takes() {
        let used = Usage::open().used();
        assert!(used.resident_bytes > Some(1 << 16) && used.virtual_bytes > used.resident_bytes);
        assert!(used.cpu_seconds.is_some() && used.open_files_max > Some(8));
        assert!(used.open_files.is_none_or(|count| count > 2));
    }

    #[test]
    fn a_thread_is_told_by_its_name() {
        let named = std::thread::Builder::new().name("usage-test".to_owned());
        // To look takes time too, so that some has passed before long.
        let looks = || (0..LOOKS_MAX).any(|_| thread_seconds("usage-test") > Some(0.0));
        let thread = named.spawn(looks).expect("a thread");
        assert!(thread.join().expect("it ends"), "it has had no time");
        assert_eq!(thread_seconds("usage-none"), None);
    }

    #[test]
    fn a_name_with_brackets_hides_nothing() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a"), None);
        assert_eq!(kilobytes("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        let limits = "Max open files            1024                 4096                 files\n";
        assert_eq!(files_max(limits), Some(1024));
    }

    /// Some hundreds of them take a hundredth of a second.
    const LOOKS_MAX: u32 = 100_000;
}
