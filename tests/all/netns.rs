//! Two network namespaces with wires between them, for tests of what a network can do to a gateway.
//! A test runs itself again inside of them, one process for each role.
//!
//! ```text
//!   gateway  10.98.0.1, fd98::1 ──── mtu 1500 ──── 10.98.0.2, fd98::2  player
//!            10.98.1.1          ──── mtu 600  ──── 10.98.1.2
//! ```

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ringgate_os::process::effective_uid;

use crate::command::Ending;

/// What a process of this test binary is to do, in its environment.
const ROLE: &str = "RINGGATE_TEST_ROLE";

/// A pair of namespaces, removed when dropped.
pub(crate) struct Pair {
    pub(crate) gateway: String,
    pub(crate) player: String,
}

/// What no other test has in the names of its namespaces.
pub(crate) fn tag() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Says why a test that takes namespaces is skipped; `REQUIRE_ROOT=1` takes that for a failure.
pub(crate) fn missing<T>(why: &str) -> Option<T> {
    let is_required = std::env::var_os("REQUIRE_ROOT").is_some_and(|value| value == "1");
    assert!(!is_required, "REQUIRE_ROOT=1, but: {why}");
    eprintln!("SKIPPED: {why}");
    None
}

impl Pair {
    /// A pair with its wires up. `None`, said aloud, where this process may not make one.
    pub(crate) fn new() -> Option<Self> {
        if effective_uid() != 0 || Command::new("ip").arg("-V").output().is_err() {
            return missing("network namespaces take root and the program `ip`");
        }
        let tag = tag();
        let pair = Self { gateway: format!("rgg-{tag}"), player: format!("rgp-{tag}") };
        for name in [&pair.gateway, &pair.player] {
            let made = ip(&["netns", "add", name]);
            if !made.status.success() {
                return missing(&String::from_utf8_lossy(&made.stderr));
            }
            Self::set(name, "link set lo up");
        }
        pair.wire("0", 1500);
        pair.wire("1", 600);
        Self::set(&pair.gateway, "addr add fd98::1/64 dev wire0 nodad");
        Self::set(&pair.player, "addr add fd98::2/64 dev wire0 nodad");
        Some(pair)
    }

    /// A wire between both, with an address of each side.
    pub(crate) fn wire(&self, number: &str, mtu: u32) {
        let make = format!("link add wire{number} type veth peer name wire{number}");
        Self::set(&self.gateway, &format!("{make} netns {}", self.player));
        for (name, host) in [(&self.gateway, 1), (&self.player, 2)] {
            Self::set(name, &format!("addr add 10.98.{number}.{host}/24 dev wire{number}"));
            Self::set(name, &format!("link set wire{number} mtu {mtu} up"));
        }
    }

    /// One more wire, `wire2`, between addresses of the caller's.
    pub(crate) fn connect(&self, gateway: &str, player: &str, mtu: u32) {
        let make = format!("link add wire2 type veth peer name wire2 netns {}", self.player);
        Self::set(&self.gateway, &make);
        for (name, address) in [(&self.gateway, gateway), (&self.player, player)] {
            Self::set(name, &format!("addr add {address}/24 dev wire2"));
            Self::set(name, &format!("link set wire2 mtu {mtu} up"));
        }
    }

    fn set(name: &str, what: &str) {
        let args: Vec<_> = ["-n", name].into_iter().chain(what.split(' ')).collect();
        let done = ip(&args);
        assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The test of this name, in a namespace and in a role.
    pub(crate) fn role(&self, namespace: &str, test: &str, role: &str) -> Command {
        role_in(namespace, test, role, &self.gateway)
    }
}

/// The test of this name in the player's namespace, started from the gateway's.
pub(crate) fn role_beside(gateway: &str, test: &str, role: &str) -> Command {
    role_in(&gateway.replacen("rgg-", "rgp-", 1), test, role, gateway)
}

/// The test of this name in a namespace and in a role, with more words about it.
pub(crate) fn role_in(namespace: &str, test: &str, role: &str, words: &str) -> Command {
    let this = std::env::current_exe().expect("a test binary");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(this);
    command.args(["--exact", test, "--nocapture"]).env(ROLE, format!("{role} {words}"));
    command
}

/// A process that serves in a namespace, killed when dropped.
pub(crate) struct Serving {
    _process: Ending,
}

impl Serving {
    /// Starts it, and waits until it [says](say_that_it_serves) that it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = Ending(command.stdout(Stdio::piped()).spawn().expect("runs"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let is_said = lines.any(|said| said.is_ok_and(|said| said.contains(SERVES)));
        let serving = Self { _process: child };
        assert!(is_said, "it ended without a word");
        serving
    }
}

/// A process in a namespace that has [said](say_that_it_serves) that it serves, and goes on until
/// its input ends.
pub(crate) struct Staying {
    child: Ending,
    said: BufReader<ChildStdout>,
}

impl Staying {
    /// Starts it and waits until it serves, or has ended.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Ending(command.spawn().expect("runs"));
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains(SERVES) {
            line.clear();
            if said.read_line(&mut line).expect("text") == 0 {
                break;
            }
        }
        Self { child, said }
    }

    /// Ends its input and waits for it: what it has said, if it has failed.
    pub(crate) fn leave(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).expect("text");
        let mut errors = self.child.stderr.take().expect("piped");
        errors.read_to_string(&mut text).expect("text");
        let ended = self.child.wait().expect("our child");
        if ended.success() { Ok(()) } else { Err(text) }
    }
}

/// What a process says that is waited for.
pub(crate) fn say_that_it_serves() {
    println!("{SERVES}");
}

const SERVES: &str = "this process serves";

impl Drop for Pair {
    fn drop(&mut self) {
        for name in [&self.gateway, &self.player] {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// What this process is to do, and the name of the gateway's namespace. `None` in the process that
/// the tests were started in.
pub(crate) fn role() -> Option<(String, String)> {
    let text = std::env::var(ROLE).ok()?;
    let (role, gateway) = text.split_once(' ')?;
    Some((role.to_owned(), gateway.to_owned()))
}

/// What a program says inside of a namespace.
pub(crate) fn said(namespace: &str, words: &str) -> String {
    let args: Vec<_> = ["netns", "exec", namespace].into_iter().chain(words.split(' ')).collect();
    String::from_utf8(ip(&args).stdout).expect("text")
}

fn ip(args: &[&str]) -> Output {
    Command::new("ip").args(args).output().expect("`ip` was there a moment ago")
}
