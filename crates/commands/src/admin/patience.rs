//! How long a command waits for the answer of a process, and what it says meanwhile: a process that
//! was stopped never answers, and a person at a terminal does not look at nothing for half a
//! minute.

use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringgate_io::socket::peer_credentials;
use ringgate_os::owners;
use ringgate_process::client::Patience;

/// The process at the other end of a socket of this host, as the kernel tells.
pub(super) fn holder(stream: BorrowedFd<'_>) -> Option<u32> {
    let pid = peer_credentials(stream).ok().and_then(|peer| u32::try_from(peer.pid).ok());
    pid.filter(|pid| owners::living(*pid).is_some())
}

/// Patience with what listens at a place, and with the process where it is known, beyond how long
/// what is asked for takes. Its end is a sentence.
pub(super) fn with(place: &str, holder: Option<u32>, takes: Duration) -> Patience {
    let who = match holder {
        Some(pid) => format!("process {pid} holds {place} and"),
        None => format!("the process that holds {place}"),
    };
    let mut has_spoken = false;
    let within = ANSWER_WITHIN + takes;
    let waits = within.as_secs();
    let judge = move |silent| {
        let trouble = |why| Err(io::Error::new(io::ErrorKind::TimedOut, Silence(why)));
        if holder.is_some_and(owners::is_stopped) {
            return trouble(format!("{who} does not answer (stopped)"));
        }
        if silent >= within {
            return trouble(format!("{who} has not answered for {waits} s"));
        }
        if !std::mem::replace(&mut has_spoken, true) && io::stderr().is_terminal() {
            // Nothing is left to be done when stderr is gone.
            let _ = writeln!(io::stderr(), "{who} has not answered yet; waiting for {waits} s");
        }
        Ok(())
    };
    Patience { look_every: LOOK_EVERY, judge: Box::new(judge) }
}

/// A sentence about a process that does not answer.
#[derive(Debug)]
pub(super) struct Silence(pub(super) String);

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Silence {}

/// How often a silent process is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// A reload reads files, and a busy machine may keep the control thread waiting.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_waited_for_that_much_longer() {
        let seconds = Duration::from_secs;
        for (takes, waits) in [(0, 30), (90, 120)] {
            let Patience { mut judge, .. } = with("/run/control.sock", None, seconds(takes));
            assert!(judge(seconds(waits - 3)).is_ok());
            let why = judge(seconds(waits)).expect_err("it is over").to_string();
            assert!(why.ends_with(&format!("has not answered for {waits} s")), "{why}");
        }
    }
}
