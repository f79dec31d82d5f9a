//! A gateway that is handed over from process to process, each of them the real program, and what
//! a test needs to do that or to get in between.

use std::mem::discriminant;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringgate_os::{clock, process};
use ringgate_process::handover::{Channel, Message, Silence};

use crate::command::{ringgate, upgrade_at};
use crate::control_rig::{Daemon, PATIENCE, Text, wait_for};
use crate::io_rig::Rig;

const IS_ROOT: u32 = 0;

/// A hand-over that the daemon has not started itself is root's.
pub(crate) fn is_root() -> bool {
    let is_root = process::effective_uid() == IS_ROOT;
    if !is_root {
        eprintln!("SKIPPED: only root may take a gateway over");
    }
    is_root
}

/// A gateway that may be another process by now; whichever it is, it ends with this.
pub(crate) struct Line {
    pub(crate) daemon: Daemon,
    /// Processes that have come after the first.
    pub(crate) heirs: Vec<u32>,
    /// Those of them that a test has started itself.
    own: Vec<Child>,
}

impl Line {
    pub(crate) fn start(text: &Text) -> Self {
        Self::of(Daemon::start(text))
    }

    /// One whose state goes over in many parts, however few players it has, and whose command a
    /// test changes.
    pub(crate) fn start_in_parts(text: &Text, change: impl FnOnce(&mut Command)) -> Self {
        Self::of(Daemon::start_with(text, |command, _| {
            command.env("RINGGATE_WINDOW_BYTES", WINDOW_BYTES);
            change(command);
        }))
    }

    pub(crate) fn of(daemon: Daemon) -> Self {
        Self { daemon, heirs: Vec::new(), own: Vec::new() }
    }

    /// `ringgate upgrade`: its exit code and what it says.
    pub(crate) fn upgrade(&mut self) -> (Option<i32>, String) {
        let ran = upgrade_at(&self.daemon.control());
        if ran.code == Some(0) {
            self.heirs.push(self.pid());
        }
        (ran.code, ran.stdout + &ran.stderr)
    }

    /// The process that serves now.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.status()["pid"].as_u64().expect("a number") as u32
    }

    pub(crate) fn generation(&self) -> u64 {
        self.daemon.ask("/status").json()["generation"].as_u64().expect("a number")
    }

    /// A successor that talks to us instead of the gateway.
    pub(crate) fn successor(&mut self) -> (Child, Channel) {
        let config = self.daemon.folder.join("gate.toml");
        let log = self.daemon.folder.join("successor.log");
        successor(ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]), &log)
    }

    /// A successor that comes by itself, as root would start it in a shell of its own. Waits until
    /// it has the gateway.
    pub(crate) fn take_over(&mut self) {
        let pid = self.come(|_| ());
        wait_for("the successor", || (self.pid() == pid).then_some(()));
    }

    /// The same by a command that a test changes, and does not wait.
    pub(crate) fn come(&mut self, change: impl FnOnce(&mut Command)) -> u32 {
        let config = self.daemon.folder.join("gate.toml");
        let log = self.daemon.folder.join("successor.log");
        let mut command = ringgate(["run".as_ref(), "--config".as_ref(), config.as_os_str()]);
        command.arg("--take-over").stdout(Stdio::null());
        command.stderr(std::fs::File::create(log).expect("a log"));
        change(&mut command);
        let successor = command.spawn().expect("the binary was built");
        let pid = successor.id();
        self.heirs.push(pid);
        self.own.push(successor);
        pid
    }

    /// What a successor connects to.
    pub(crate) fn connect(&self) -> Channel {
        Channel::connect(&self.daemon.run_dir().join("handover.sock")).expect("it listens")
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.daemon.folder.join(name)).unwrap_or_default()
    }
}

/// A program that takes over from whoever is at the end that comes with it.
pub(crate) fn successor(mut command: Command, log: &Path) -> (Child, Channel) {
    let (ours, its) = Channel::pair().expect("a pair");
    command.args(["--take-over", "--predecessor-on-stdin"]).stdin(Stdio::from(its.into_fd()));
    command.stdout(Stdio::null()).stderr(std::fs::File::create(log).expect("a log"));
    (command.spawn().expect("the binary was built"), ours)
}

impl Drop for Line {
    fn drop(&mut self) {
        for pid in &self.heirs {
            kill(*pid);
        }
        for child in &mut self.own {
            // Nobody else waits for it.
            let _ = child.wait();
        }
    }
}

pub(crate) fn kill(pid: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).output();
    // It has its locks and sockets for a moment; as a zombie it has none.
    wait_for("its end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        (stat.is_empty() || stat.contains(") Z ") && threads <= 1).then_some(())
    });
}

/// A message on its way, with its descriptors.
pub(crate) type Packet = (Message, Vec<OwnedFd>);

/// Whether two are the same, whatever they carry.
pub(crate) fn is_like(one: &Message, other: &Message) -> bool {
    discriminant(one) == discriminant(other)
}

/// Passes everything on between the two, changed, until the successor has ended.
pub(crate) fn pass_changed(
    its: &Channel,
    gateway: &Channel,
    mut change: impl FnMut(Packet) -> Packet,
) {
    let clock = clock::Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        for (from, to) in [(its, gateway), (gateway, its)] {
            match from.hear(Duration::from_millis(1)) {
                Ok(packet) => {
                    let (message, fds) = change(packet);
                    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                    // Whoever does not hear it has gone, which shows below.
                    let _ = to.say(&message, &fds);
                }
                Err(Silence::Gone) => return,
                Err(_) => {}
            }
        }
    }
    panic!("neither has ended");
}

/// Passes on what the two say, until `is_enough` of something that the successor or the gateway has
/// said: before that is passed on, unless it is the last word.
pub(crate) fn pass_until(
    its: &Channel,
    gateway: &Channel,
    mut is_enough: impl FnMut(&Message) -> bool,
) {
    let clock = clock::Clock::start();
    while clock.now_ns() < PATIENCE.as_nanos() as u64 {
        for (from, to) in [(its, gateway), (gateway, its)] {
            let Ok((message, fds)) = from.hear(Duration::from_millis(1)) else { continue };
            let is_enough = is_enough(&message);
            if !is_enough || matches!(message, Message::Recorded { .. }) {
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                to.say(&message, &fds).expect("it lives");
            }
            if is_enough {
                return;
            }
        }
    }
    panic!("it takes too long");
}

/// Has the first word not tell that the successor reads sections.
pub(crate) fn as_before((mut message, fds): Packet) -> Packet {
    if let Message::Hello { sections, .. } = &mut message {
        *sections = false;
    }
    (message, fds)
}

/// What a process takes of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) mappings: usize,
    pub(crate) threads: usize,
}

impl Footprint {
    /// `None` where we may not look.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let of = |name: &str| format!("/proc/{pid}/{name}");
        let count = |name| std::fs::read_dir(of(name)).ok().map(Iterator::count);
        let status = std::fs::read_to_string(of("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(Self {
            resident_kib: line.split_whitespace().next()?.parse().ok()?,
            descriptors: count("fd")?,
            mappings: std::fs::read_to_string(of("maps")).ok()?.lines().count(),
            threads: count("task")?,
        })
    }

    /// Whether it is no more than that of an earlier process in the same place. Memory differs by
    /// what an allocator and a page cache happen to do.
    pub(crate) fn is_within(&self, earlier: &Self) -> bool {
        self.descriptors <= earlier.descriptors
            && self.threads <= earlier.threads
            && self.mappings <= earlier.mappings + earlier.mappings / 4
            && self.resident_kib <= earlier.resident_kib + earlier.resident_kib / 4 + SHOWN_KIB
    }
}

/// Less than any worker's rest, and enough for any one session.
const WINDOW_BYTES: &str = "1024";

/// What histograms take that one process has shown already and another has not.
const SHOWN_KIB: u64 = 4096;

/// Two workers over one driver.
pub(crate) fn text(io: &str) -> Text {
    let mut text = Text::new();
    text.gateway = format!("workers = 2\npin = false\ndrain_timeout = \"1h\"\nio = \"{io}\"\n");
    text
}

/// The drivers that there are here.
pub(crate) fn drivers() -> Vec<&'static str> {
    if Rig::uring_works() { vec!["mmsg", "uring"] } else { vec!["mmsg"] }
}
