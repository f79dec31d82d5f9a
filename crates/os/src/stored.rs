//! Sockets that the service manager has kept for us since the process before (systemd's descriptor
//! store), and how it is told to keep some.
//!
//! They come as numbers that follow each other, from 3 on, with their names in the environment.
//! Everything that was kept comes, wanted or not, so who takes them has to close what it does not
//! need.
#![allow(unsafe_code, reason = "descriptors that another process has put there")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rights;

/// A descriptor that was kept, and what it was called.
#[derive(Debug)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// It closes when this is dropped.
    pub fd: OwnedFd,
}

/// Everything that the service manager has kept for this process. Only the first call returns it.
pub fn take() -> Vec<Stored> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let say = |name: &str| std::env::var(name).unwrap_or_default();
    let names = names(&say("LISTEN_PID"), &say("LISTEN_FDS"), &say("LISTEN_FDNAMES"));
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    (FIRST..).zip(names).filter_map(|(raw, name)| adopt(raw, name)).collect()
}

/// The name of each descriptor, if they are for this process.
fn names(pid: &str, count: &str, names: &str) -> Vec<String> {
    if pid.parse() != Ok(std::process::id()) {
        return Vec::new();
    }
    let count = count.parse().unwrap_or(0).min(COUNT_MAX);
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    names.take(count).collect()
}

fn adopt(raw: RawFd, name: String) -> Option<Stored> {
    // Programs that we start have no use for it. SAFETY: takes integers only.
    let is_open = unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: it is open, it was opened for this process before that began, as the environment
    // says, and nobody else takes it: this runs once.
    is_open.then(|| Stored { name, fd: unsafe { OwnedFd::from_raw_fd(raw) } })
}

/// The way to the service manager.
#[derive(Debug)]
pub struct Store {
    socket: UnixDatagram,
}

impl Store {
    /// Where `NOTIFY_SOCKET` says: a path, or a name in the abstract namespace after an `@`.
    pub fn connect(name: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        match name.strip_prefix('@') {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => socket.connect(name)?,
        }
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket })
    }

    /// Has descriptors kept under a name. What it has already it keeps once.
    pub fn keep(&self, name: &str, fds: &[impl AsFd]) -> io::Result<()> {
        // Watched, a socket would be given up for an error that has nothing to say.
        let message = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        for some in fds.chunks(rights::DESCRIPTORS_MAX) {
            let fds: Vec<_> = some.iter().map(AsFd::as_fd).collect();
            rights::send(self.socket.as_fd(), message.as_bytes(), &fds)?;
        }
        Ok(())
    }

    /// Has everything closed that was kept under a name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let message = format!("FDSTOREREMOVE=1\nFDNAME={name}");
        rights::send(self.socket.as_fd(), message.as_bytes(), &[])
    }

    /// Waits until everything is done that was said before, but no longer than that. Returns
    /// whether it is.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let (ours, its) = io::pipe()?;
        rights::send(self.socket.as_fd(), b"BARRIER=1", &[its.as_fd()])?;
        drop(its);
        let mut poll = libc::pollfd { fd: ours.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one live `pollfd`, and its number.
        let ready = unsafe { libc::poll(&raw mut poll, 1, at_most.as_millis() as i32) };
        Ok(ready > 0)
    }
}

/// The first number that such descriptors have (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// As many as systemd keeps of one service at the most is less.
const COUNT_MAX: usize = 1 << 16;

/// A service manager that does not read must not hold us up for long.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        let own = std::process::id().to_string();
        assert_eq!(names(&own, "3", "one:two"), ["one", "two", ""]);
        assert_eq!(names(&own, "1", "one:two"), ["one"]);
        for (pid, count) in [("1", "3"), ("", "3"), (&*own, ""), (&own, "-1"), (&own, "many")] {
            assert!(names(pid, count, "one").is_empty(), "{pid} {count}");
        }
    }

    #[test]
    fn a_manager_hears_what_it_should_keep_and_says_when_it_has_done_it() {
        let name = format!("ringgate-stored-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let manager = UnixDatagram::bind_addr(&address).expect("bind");
        let store = Store::connect(&format!("@{name}")).expect("it listens");
        let kept = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        store.keep("udp-1", &[&kept]).expect("said");
        store.remove("udp-1").expect("said");
        let mut bytes = [0; 128];
        let mut hear = || {
            let (len, fds) = rights::receive(manager.as_fd(), &mut bytes).expect("said");
            (String::from_utf8(bytes[..len].to_vec()).expect("text"), fds)
        };
        let (said, fds) = hear();
        assert_eq!((&*said, fds.len()), ("FDSTORE=1\nFDPOLL=0\nFDNAME=udp-1", 1));
        assert_eq!(hear().0, "FDSTOREREMOVE=1\nFDNAME=udp-1");
        assert!(!store.wait(Duration::from_millis(1)).expect("said"), "it has not closed it");
        drop(hear());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| store.wait(Duration::from_secs(20)).expect("said"));
            let (said, fds) = hear();
            assert_eq!((&*said, fds.len()), ("BARRIER=1", 1));
            drop(fds);
            assert!(waits.join().expect("it only waits"));
        });
        drop(manager);
        assert!(store.remove("udp-1").is_err());
    }
}
