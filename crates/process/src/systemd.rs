//! What the service manager is told, in systemd's notification protocol: lines of text in one
//! datagram to `$NOTIFY_SOCKET`.
//!
//! Without that variable nobody listens, and nothing is sent. A message that cannot be delivered is
//! not worth an error: the service manager acts on what it does not hear.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use ringgate_os::clock;
use ringgate_os::patience::patiently;
use serde::{Deserialize, Serialize};

/// Where messages go.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// Where the socket is, and `WATCHDOG_USEC`: for the process after this one.
    known: ServiceManager,
}

/// What a service manager says in the environment, or the process before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceManager {
    /// `NOTIFY_SOCKET`, if there is one.
    pub notify: Option<String>,
    /// `WATCHDOG_USEC`, if the watchdog is this process's.
    pub watchdog_us: Option<String>,
}

impl Notifier {
    /// As the environment of this process says.
    pub fn own() -> Self {
        Self::from_env(ServiceManager::default())
    }

    /// As the environment of this process says, or else the process before it.
    pub fn from_env(before: ServiceManager) -> Self {
        let of = |name: &str| std::env::var(name).ok();
        Self::of(ServiceManager::of(of, std::process::id(), before))
    }

    fn of(known: ServiceManager) -> Self {
        Self {
            socket: known.notify.as_deref().and_then(connect),
            watchdog: known.watchdog_us.as_deref().and_then(interval),
            known,
        }
    }

    /// For the process after this one, which may be started where the manager says nothing.
    pub const fn known(&self) -> &ServiceManager {
        &self.known
    }

    /// How often [`alive`](Self::alive) wants to be called.
    pub fn watchdog(&self) -> Option<Duration> {
        self.socket.as_ref().and(self.watchdog)
    }

    /// This process serves, in another's place where it is an heir.
    pub fn serves(&self, is_heir: bool) {
        if is_heir { self.taken_over() } else { self.ready() }
    }

    /// The daemon serves, or serves again after a reload.
    pub fn ready(&self) {
        self.insist("READY=1\nSTATUS=serving");
    }

    /// Another process is the daemon from now on.
    pub fn handed_over(&self, pid: u32) {
        self.insist(&format!("MAINPID={pid}"));
    }

    /// This process is.
    fn taken_over(&self) {
        let pid = std::process::id();
        self.insist(&format!("MAINPID={pid}\nREADY=1\nSTATUS=serving\nWATCHDOG=1"));
    }

    /// The config is being read again; [`ready`](Self::ready) follows.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", clock::monotonic_us()));
    }

    /// The daemon drains. Only of a drain that nobody takes back the manager hears as of an end:
    /// from `STOPPING=1` no way leads back, and who is there after the time is killed.
    pub fn draining(&self, within: Duration, is_by_signal: bool) {
        if is_by_signal {
            self.stopping(within);
        } else {
            self.send("STATUS=draining");
        }
    }

    /// The daemon will be gone after this time at the latest.
    pub fn stopping(&self, within: Duration) {
        let extend_us = (within + STOP_MARGIN).as_micros();
        self.send(&format!("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={extend_us}"));
    }

    /// The workers turn.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let _ = self.try_send(message);
    }

    /// Says what ends a process where it is not heard: a manager may be late for a moment.
    fn insist(&self, message: &str) {
        let is_full = |why: &io::Error| why.kind() == io::ErrorKind::WouldBlock;
        let _ = patiently(HEARD_WITHIN, is_full, || self.try_send(message));
    }

    fn try_send(&self, message: &str) -> io::Result<()> {
        let Some((socket, address)) = &self.socket else { return Ok(()) };
        socket.send_to_addr(message.as_bytes(), address).map(drop)
    }
}

impl ServiceManager {
    /// What stands in the environment comes first: whoever started this process has put it there.
    fn of(environment: impl Fn(&str) -> Option<String>, pid: u32, before: Self) -> Self {
        let is_ours = environment("WATCHDOG_PID").is_none_or(|it| it == pid.to_string());
        let watchdog_us = environment("WATCHDOG_USEC").filter(|_| is_ours);
        Self {
            notify: environment("NOTIFY_SOCKET").or(before.notify),
            watchdog_us: watchdog_us.or(before.watchdog_us),
        }
    }
}

/// A path, or a name in the abstract namespace after an `@`.
fn connect(name: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    // A service manager that does not read must not hold us up.
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}

/// Twice as often as the service manager wants.
fn interval(watchdog_us: &str) -> Option<Duration> {
    let us: u64 = watchdog_us.parse().ok()?;
    (us > 1).then(|| Duration::from_micros(us / 2))
}

/// Nobody is held up for longer by a manager that does not read.
const HEARD_WITHIN: Duration = Duration::from_millis(500);

/// Goodbyes and the last histograms take a moment after the drain.
const STOP_MARGIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn said_to(name: &str, listener: &UnixDatagram) -> Vec<String> {
        let notifier =
            Notifier::of(ServiceManager { notify: Some(name.to_owned()), watchdog_us: None });
        notifier.reloading();
        notifier.ready();
        notifier.draining(Duration::from_secs(30), false);
        notifier.draining(Duration::from_secs(30), true);
        let mut buffer = [0; 256];
        let mut receive = || {
            let len = listener.recv(&mut buffer).expect("said");
            String::from_utf8(buffer[..len].to_vec()).expect("text")
        };
        (0..4).map(|_| receive()).collect()
    }

    #[test]
    fn the_manager_hears_it_by_path_and_by_abstract_name() {
        let name = format!("ringgate-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let at_path = UnixDatagram::bind(&path).expect("bind");
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("short");
        let at_name = UnixDatagram::bind_addr(&abstract_name).expect("bind");
        let spoken = [
            said_to(path.to_str().expect("text"), &at_path),
            said_to(&format!("@{name}"), &at_name),
        ];
        std::fs::remove_file(&path).expect("removed");
        for lines in spoken {
            assert!(lines[0].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{}", lines[0]);
            assert_eq!(lines[1], "READY=1\nSTATUS=serving");
            assert_eq!(lines[2], "STATUS=draining");
            let stopping = "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=35000000";
            assert_eq!(lines[3], stopping);
        }
    }

    #[test]
    fn a_process_that_root_has_started_serves_the_same_manager_as_the_one_before() {
        let known = |notify: &str, us: &str| ServiceManager {
            notify: Some(notify.to_owned()),
            watchdog_us: Some(us.to_owned()),
        };
        let before = || known("/run/systemd/notify", "30000000");
        assert_eq!(ServiceManager::of(|_| None, 7, before()), before());
        let environment = |watchdog_pid: &'static str| {
            move |name: &str| {
                let value = match name {
                    "NOTIFY_SOCKET" => "@other",
                    "WATCHDOG_USEC" => "5000000",
                    _ => watchdog_pid,
                };
                Some(value.to_owned())
            }
        };
        assert_eq!(ServiceManager::of(environment("7"), 7, before()), known("@other", "5000000"));
        let others = ServiceManager::of(environment("8"), 7, ServiceManager::default());
        assert_eq!(others, ServiceManager { notify: Some("@other".to_owned()), watchdog_us: None });
    }

    #[test]
    fn nobody_listens_without_a_socket() {
        let watchdog_us = Some("3000000".to_owned());
        let notifier = Notifier::of(ServiceManager { notify: None, watchdog_us });
        notifier.ready();
        assert_eq!(notifier.watchdog(), None);
        assert_eq!(interval("3000000"), Some(Duration::from_millis(1500)));
        assert_eq!(interval("0"), None);
        assert_eq!(interval("soon"), None);
    }
}
