//! Why something could not be set up: what was tried, what the kernel said, and what most likely
//! has to be done about it.
//!
//! For the start only. A running driver answers trouble with counters, failures and events
//! (`errno`).

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;

use super::errno;

/// An operation at start that failed.
#[derive(Debug)]
pub struct StartError {
    operation: String,
    error: io::Error,
    advice: Cow<'static, str>,
}

/// What was being set up. The same errno means different things at different steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Bind,
    BindDevice,
    Card,
    Connect,
    Filter,
    Link,
    Other,
    Program,
    Ring,
}

impl StartError {
    pub(super) fn new(operation: impl Into<String>, step: Step, error: io::Error) -> Self {
        let advice = Cow::Borrowed(advice(step, errno::of(&error)));
        Self { operation: operation.into(), error, advice }
    }

    /// An address that could not be bound.
    pub fn bind(operation: impl Into<String>, error: io::Error) -> Self {
        Self::new(operation, Step::Bind, error)
    }

    /// A queue of a network interface, or the program on it.
    pub fn card(operation: impl Into<String>, error: io::Error) -> Self {
        Self::new(operation, Step::Card, error)
    }

    /// The program for a network interface.
    pub fn program(operation: impl Into<String>, error: io::Error) -> Self {
        Self::new(operation, Step::Program, error)
    }

    /// Somebody listens for game processes where we want to.
    pub fn neighbour(path: &Path) -> Self {
        let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
        Self::new(format!("listen on {}", path.display()), Step::Link, error)
    }

    /// The same with better advice than the error alone allows.
    #[must_use]
    pub fn advised(self, advice: String) -> Self {
        Self { advice: Cow::Owned(advice), ..self }
    }

    /// Whether somebody else has what was wanted.
    pub fn is_in_use(&self) -> bool {
        self.error.raw_os_error() == Some(libc::EADDRINUSE)
    }

    /// Something else that a worker needs at its start.
    pub fn other(operation: impl Into<String>, error: io::Error) -> Self {
        Self::new(operation, Step::Other, error)
    }

    /// What was tried, such as `bind UDP 0.0.0.0:40000`.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// What the kernel said.
    pub const fn io_error(&self) -> &io::Error {
        &self.error
    }

    /// The likely cause and what to do about it; empty where nothing better is known than the error
    /// itself.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, self.error)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[rustfmt::skip]
fn advice(step: Step, errno: i32) -> &'static str {
    match (step, errno) {
        (_, libc::EMFILE) =>
            "this process may open no more descriptors: raise `LimitNOFILE=` in the unit (or `ulimit -n`)",
        (_, libc::ENFILE) => "the system's table of open files is full: raise sysctl fs.file-max",
        (Step::Bind, libc::EADDRINUSE) =>
            "another process holds this port (`ss -tulpn` shows which), or a gateway that has just ended has not let go of it yet",
        (Step::Bind, libc::EADDRNOTAVAIL) =>
            "no interface of this host has that address: bind 0.0.0.0 or [::], or wait for the network (`After=network-online.target`)",
        (Step::Bind, libc::EACCES) =>
            "ports below 1024 need CAP_NET_BIND_SERVICE (`AmbientCapabilities=` in the unit) or a lower sysctl net.ipv4.ip_unprivileged_port_start",
        (Step::Card, libc::EAFNOSUPPORT) => "this kernel was built without AF_XDP",
        (_, libc::EAFNOSUPPORT) => "IPv6 is switched off on this host: leave the [::] address out",
        (Step::BindDevice, libc::EPERM) =>
            "before Linux 5.7 binding a socket to a device needs CAP_NET_RAW: add it, or use a newer kernel",
        (Step::BindDevice, libc::ENODEV) =>
            "there is no loopback device in this network namespace: `ip link set lo up`",
        (Step::Connect, libc::ENETUNREACH | libc::EHOSTUNREACH) =>
            "this host has no route to that address",
        (Step::Filter, libc::EPERM | libc::ENOMEM) =>
            "the filter is larger than sysctl net.core.optmem_max allows, or seccomp forbids it",
        (Step::Link, libc::EADDRINUSE) =>
            "a running process listens there: is another gateway using this run_dir?",
        (Step::Link, libc::EACCES | libc::EPERM) =>
            "the directory must be writable (to listen) or searchable (to connect) for this user: check run_dir's owner and mode",
        (Step::Link, libc::ENOENT) =>
            "the directory does not exist (`RuntimeDirectory=` in the unit makes it), or the gateway is not running",
        (Step::Link, libc::ECONNREFUSED) =>
            "the socket file is left over and nobody listens: is the gateway running?",
        (Step::Link, libc::EINVAL | libc::ENAMETOOLONG) =>
            "the path of a Unix socket has at most 107 bytes: choose a shorter run_dir",
        (Step::Link, libc::EPROTOTYPE) => "the socket at that path is not a ringgate link",
        (Step::Program, libc::EBUSY) =>
            "another program is on this interface (`ip link show` tells): take it off, or serve by sockets",
        (Step::Program, libc::EOPNOTSUPP) =>
            "this driver runs no programs: say mode = \"generic\", or \"auto\", which takes it by itself",
        (Step::Program, libc::ERANGE | libc::EINVAL | libc::E2BIG) =>
            "the driver wants shorter packets (`ip link set DEVICE mtu 1500`; 3000 at the most as a rule), fewer queues, or its \
             receive offload switched off (`ethtool -K DEVICE lro off`)",
        (Step::Card | Step::Program, libc::EPERM | libc::EACCES) =>
            "AF_XDP takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF at the start (`AmbientCapabilities=` in the unit), and before Linux 5.11 \
             `LimitMEMLOCK=infinity`",
        (Step::Card, libc::EBUSY) =>
            "another process has this queue of the interface, or a program on it (`ip link show` tells)",
        (Step::Card, libc::ENOBUFS | libc::ENOMEM) =>
            "not enough lockable memory for the frames: raise `LimitMEMLOCK=` in the unit (or `ulimit -l`)",
        (Step::Card, libc::EOPNOTSUPP) =>
            "this interface cannot do zero-copy: say mode = \"auto\" or \"copy\"",
        (Step::Card, libc::EINVAL | libc::ENXIO) =>
            "the interface has no such queue in use (`ethtool -l` tells how many there are), or its frames are longer than ours",
        (Step::Ring, libc::ENOSYS) =>
            "this kernel has no io_uring, or a seccomp profile hides it (container runtimes do by default)",
        (Step::Ring, libc::EPERM | libc::EACCES) =>
            "io_uring is forbidden here: sysctl kernel.io_uring_disabled (0 allows it), a seccomp profile or SELinux",
        (Step::Ring, libc::ENOMEM) =>
            "not enough lockable memory for the ring: raise `LimitMEMLOCK=` in the unit (or `ulimit -l`)",
        (Step::Ring, libc::EINVAL | libc::EOPNOTSUPP) =>
            "this kernel's io_uring is too old: multishot recvmsg needs Linux 6.0",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_why_and_what_to_do() {
        let refused = io::Error::from_raw_os_error(libc::EADDRINUSE);
        let text = StartError::new("bind UDP 0.0.0.0:40000", Step::Bind, refused).to_string();
        assert!(text.starts_with("cannot bind UDP 0.0.0.0:40000: "), "{text}");
        assert!(text.contains("os error 98") && text.contains("ss -tulpn"), "{text}");
    }

    #[test]
    fn an_unknown_cause_gets_no_guess() {
        let error = StartError::new("x", Step::Other, io::Error::from_raw_os_error(libc::EXDEV));
        assert_eq!(error.advice(), "");
        assert!(!error.to_string().ends_with("; "));
    }
}
