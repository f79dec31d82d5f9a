//! Which process holds a socket, as `/proc` tells: exactly for root, and for others as far as they
//! may look.

use std::net::SocketAddr;
use std::path::Path;
use std::{fmt, fs};

use crate::diag::{SocketTable, Transport};

/// A process that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The name of its program, as the kernel keeps it.
    pub name: String,
}

/// Who holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This very process.
    Ourselves,
    /// Another one.
    Process(Process),
    /// None that can be looked into: it has ended and the kernel has not let go of its sockets yet,
    /// or it belongs to another user or another container.
    Unknown {
        /// Every process that is to be seen could be looked into.
        all_seen: bool,
    },
}

/// Finds the owner of a socket by its inode. Of several it is not the service manager, which keeps
/// sockets for the process that uses them.
pub fn owner_of(inode: u32) -> Owner {
    let wanted = format!("socket:[{inode}]");
    // Another process may have a second descriptor of it: a service manager, or our successor.
    if holds(std::process::id(), &wanted) == Some(true) {
        return Owner::Ourselves;
    }
    let mut all_seen = true;
    let mut is_kept = false;
    for pid in pids() {
        match holds(pid, &wanted) {
            Some(true) if pid == FIRST_PROCESS => is_kept = true,
            Some(true) => return named(pid),
            Some(false) => {}
            None => all_seen &= !is_alive(pid),
        }
    }
    if is_kept { named(FIRST_PROCESS) } else { Owner::Unknown { all_seen } }
}

fn named(pid: u32) -> Owner {
    Owner::Process(Process { pid, name: name_of(pid).unwrap_or_default() })
}

/// The service manager, where there is one.
const FIRST_PROCESS: u32 = 1;

/// A process by its id, if it lives: a zombie holds nothing.
pub fn living(pid: u32) -> Option<Process> {
    is_alive(pid).then(|| Process { pid, name: name_of(pid).unwrap_or_default() })
}

/// Other processes that live, have our program's name and were started to run with these words.
pub fn others(words: &[&str]) -> impl Iterator<Item = u32> {
    let own = name_of(std::process::id());
    let is_such = move |pid: &u32| {
        let line = command_line(*pid);
        words.iter().all(|word| line.iter().any(|it| it == word))
            && own.is_some()
            && name_of(*pid) == own
    };
    let others = pids().filter(|pid| *pid != std::process::id() && is_alive(*pid));
    others.filter(is_such)
}

/// The words that a process was started with.
pub fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// A variable of the environment that a process was started with, where it has one that says
/// something and we may look.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let said = bytes
        .split(|byte| *byte == 0)
        .find_map(|it| it.strip_prefix(name.as_bytes()).and_then(|it| it.strip_prefix(b"=")))?;
    Some(String::from_utf8_lossy(said).into_owned()).filter(|it| !it.is_empty())
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process holds what a descriptor's link calls `wanted`; `None` where we may not look.
fn holds(pid: u32, wanted: &str) -> Option<bool> {
    let folder = format!("/proc/{pid}/fd");
    let mut entries = fs::read_dir(&folder).ok()?;
    let is_wanted = |path: &Path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == wanted);
    Some(entries.any(|entry| entry.is_ok_and(|entry| is_wanted(&entry.path()))))
}

fn name_of(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

fn is_alive(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether a signal or a debugger has stopped the process.
pub fn is_stopped(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| matches!(state, 'T' | 't'))
}

/// In `/proc/PID/stat` the state stands behind the name, which is in parentheses and may contain
/// any.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Who is at an address that we want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process.
    Process(Process),
    /// Another socket of ours.
    Ourselves,
    /// A socket that no process holds which could be looked into.
    Unknown {
        /// Who made it, where the kernel has said.
        uid: Option<u32>,
        /// Every process could be looked into, so its owner has ended or is in another container.
        all_seen: bool,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(Process { pid, name }) => write!(f, "process {pid} ({name}) holds it"),
            Self::Ourselves => f.write_str("this process holds it"),
            Self::Unknown { uid: Some(uid), .. } => {
                write!(f, "a process of user {uid} holds it that cannot be seen from here")
            }
            Self::Unknown { uid: None, .. } => {
                f.write_str("a process holds it that cannot be seen from here")
            }
        }
    }
}

/// Who is at an address: a process if there is one, else whatever else is there. Only looks.
pub fn holder(transport: Transport, address: SocketAddr) -> Option<Holder> {
    let bound = SocketTable::open().and_then(|mut table| table.bound(transport, address.port()));
    let Ok(bound) = bound else {
        return Some(Holder::Unknown { uid: None, all_seen: false });
    };
    let mut holders: Vec<_> = bound
        .iter()
        .filter(|bound| bound.overlaps(address))
        .map(|bound| match owner_of(bound.inode) {
            Owner::Process(process) => Holder::Process(process),
            Owner::Ourselves => Holder::Ourselves,
            Owner::Unknown { all_seen } => Holder::Unknown { uid: Some(bound.uid), all_seen },
        })
        .collect();
    holders.sort_by_key(|holder| match holder {
        Holder::Process(_) => 0,
        Holder::Unknown { .. } => 1,
        Holder::Ourselves => 2,
    });
    holders.into_iter().next()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;

    use super::*;
    use crate::diag::{Bound, SocketTable, Transport};

    #[test]
    fn our_own_sockets_are_ours_and_closed_ones_nobodys() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = socket.local_addr().expect("bound").port();
        let mut table = SocketTable::open().expect("this kernel has it");
        let bound = table.bound(Transport::Udp, port).expect("an answer");
        let is_ours = |bound: &&Bound| Some(bound.address) == socket.local_addr().ok();
        let inode = bound.iter().find(is_ours).expect("it is there").inode;
        // Programs that other tests start have copies of our descriptors until they run.
        let wait_for = |is_wanted: fn(&Owner) -> bool| {
            while !is_wanted(&owner_of(inode)) {
                crate::clock::sleep(std::time::Duration::from_millis(1));
            }
        };
        wait_for(|owner| *owner == Owner::Ourselves);
        drop(socket);
        wait_for(|owner| matches!(owner, Owner::Unknown { .. }));
    }

    #[test]
    fn a_process_that_has_ended_does_not_live() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("a program");
        let pid = child.id();
        // Until it is another program it has our name, and after that no arguments for a moment.
        let is_begun = || matches!(name_of(pid), Some(name) if name == "sleep");
        while !is_begun() || command_line(pid).is_empty() {
            crate::clock::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(command_line(pid), ["sleep", "100"]);
        assert!(living(pid).is_some_and(|process| process.name == "sleep"));
        child.kill().expect("ours");
        // Not waited for yet, so a zombie once it is dead.
        while living(pid).is_some() {
            crate::clock::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().expect("ours");
        assert_eq!(living(pid), None);
    }
}
