//! Starting the next release, which takes over from the process that has started it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::channel::Channel;

/// How a process was started, to start the next one.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path: what lies there by then is the next release.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Program {
    /// Starts the program that lies where ours did, with our arguments.
    pub fn start(&self) -> Result<(Child, Channel), String> {
        let started = Channel::pair().and_then(|(ours, its)| {
            let mut command = Command::new(&self.path);
            command.args(&self.args).stdin(Stdio::from(its.into_fd()));
            // It answers for itself, and its watchdog is fed by its own number.
            command.env_remove("WATCHDOG_PID");
            Ok((command.spawn()?, ours))
        });
        started.map_err(|why| format!("cannot start {}: {why}", self.path.display()))
    }
}

/// Whether a process, confined or not, can hand over to one that has come by itself, or that it
/// would have to start.
pub fn may_hand_over(is_confined: bool, has_come: bool) -> Result<(), String> {
    match (is_confined, has_come) {
        (true, false) => Err(CONFINED.to_owned()),
        // It would have to see the successor, or end it with itself.
        (true, true) if std::process::id() == FIRST_PROCESS => Err(CAUGHT.to_owned()),
        _ => Ok(()),
    }
}

/// Why nobody takes over from a "gateway", or an "agent", that drains.
pub fn drains(role: &str, is_by_signal: bool) -> String {
    if is_by_signal {
        format!("the {role} drains and ends then: a signal has begun that")
    } else {
        format!("the {role} drains; `ringgate undrain` takes that back")
    }
}

/// Its container ends with it.
const FIRST_PROCESS: u32 = 1;

const CAUGHT: &str =
    "a confined daemon that is the first process of a container cannot be taken over from";

const CONFINED: &str = "a confined daemon cannot start programs: start the successor as root, with the arguments of the \
                        running one and --take-over";
