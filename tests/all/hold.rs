//! Processes that stop at a point by its name, to be killed there.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, pipe};
use std::os::fd::AsRawFd;
use std::process::Command;

use ringgate_os::notify;
use socket2::SockRef;

use crate::control_rig::PATIENCE;
use crate::upgrade_rig::kill;

/// One or several processes, the first of which to come to the point stops there.
pub(crate) struct Hold {
    arrived: BufReader<PipeReader>,
    /// Until they may go on.
    go_on: Option<PipeWriter>,
    /// What processes inherit.
    theirs: (PipeWriter, PipeReader),
}

impl Hold {
    pub(crate) fn new() -> Self {
        let ((arrived, its_arrived), (its_go_on, go_on)) =
            (pipe().expect("a pipe"), pipe().expect("a pipe"));
        SockRef::from(&its_arrived).set_cloexec(false).expect("an option");
        SockRef::from(&its_go_on).set_cloexec(false).expect("an option");
        Self {
            arrived: BufReader::new(arrived),
            go_on: Some(go_on),
            theirs: (its_arrived, its_go_on),
        }
    }

    /// What tells a process that has inherited the pipes to stop there.
    pub(crate) fn told(&self, point: &str) -> String {
        let (arrived, go_on) = (self.theirs.0.as_raw_fd(), self.theirs.1.as_raw_fd());
        format!("{arrived} {go_on} {point}")
    }

    /// Has a process stop there.
    pub(crate) fn at(command: &mut Command, point: &str) -> Self {
        let hold = Self::new();
        command.env("RINGGATE_HOLD", hold.told(point));
        hold
    }

    /// Waits until a process is there, and says which.
    pub(crate) fn reached(&mut self) -> u32 {
        let mut comes = [notify::awaited(self.arrived.get_ref().as_raw_fd())];
        let came = notify::wait(&mut comes, PATIENCE).expect("ppoll works");
        assert_eq!(came, 1, "no process has come to its point");
        let mut line = String::new();
        self.arrived.read_line(&mut line).expect("text");
        line.trim().parse().expect("the number of a process")
    }

    /// Waits until a process is there, and ends it.
    pub(crate) fn kill(&mut self) -> u32 {
        let pid = self.reached();
        kill(pid);
        pid
    }

    /// It may go on, and so may every process that comes there later: one that was held may have
    /// ended without noticing, and its successor is told the same.
    pub(crate) fn release(&mut self) {
        self.go_on = None;
    }
}
