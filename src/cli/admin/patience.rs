//! How long a command waits for the answer of a process, and what it says meanwhile: a process that
//! was stopped never answers, and a person at a terminal does not look at nothing for half a
//! minute.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use ringgate_io::socket::peer_credentials;
use ringgate_os::owners;

/// What a request goes out through.
pub(super) trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// A connection whose reads end with an error that is a sentence where nothing comes. Each of them
/// is interrupted after [`LOOK_EVERY`].
pub(super) struct Patient {
    stream: Box<dyn Connection>,
    place: String,
    /// The process that listens there, where it is known.
    holder: Option<u32>,
    silent: Duration,
    has_spoken: bool,
}

impl Patient {
    pub(super) fn new(stream: impl Connection + 'static, place: String) -> Self {
        let stream = Box::new(stream);
        Self { stream, place, holder: None, silent: Duration::ZERO, has_spoken: false }
    }

    /// One to a socket of this host, whose holder the kernel tells.
    pub(super) fn local(stream: impl Connection + AsFd + 'static, place: String) -> Self {
        let peer = peer_credentials(stream.as_fd()).ok();
        let pid = peer.and_then(|peer| u32::try_from(peer.pid).ok());
        let holder = pid.filter(|pid| owners::living(*pid).is_some());
        Self { holder, ..Self::new(stream, place) }
    }

    /// What is wrong where nothing has come once more; `None` if it is worth waiting on.
    fn trouble(&mut self) -> Option<String> {
        self.silent += LOOK_EVERY;
        let place = &self.place;
        let who = match self.holder {
            Some(pid) => format!("process {pid} holds {place} and"),
            None => format!("the process that holds {place}"),
        };
        if self.holder.is_some_and(owners::is_stopped) {
            return Some(format!("{who} does not answer (stopped)"));
        }
        let waits = ANSWER_WITHIN.as_secs();
        if self.silent >= ANSWER_WITHIN {
            return Some(format!("{who} has not answered for {waits} s"));
        }
        if !std::mem::replace(&mut self.has_spoken, true) && io::stderr().is_terminal() {
            // Nothing is left to be done when stderr is gone.
            let _ = writeln!(io::stderr(), "{who} has not answered yet; waiting for {waits} s");
        }
        None
    }
}

impl Read for Patient {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        use io::ErrorKind::{TimedOut, WouldBlock};
        loop {
            match self.stream.read(buf) {
                Err(why) if matches!(why.kind(), TimedOut | WouldBlock) => {
                    if let Some(why) = self.trouble() {
                        return Err(io::Error::new(TimedOut, Silence(why)));
                    }
                }
                read => {
                    self.silent = Duration::ZERO;
                    return read;
                }
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
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
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(3);

/// A reload reads files, and a busy machine may keep the control thread waiting.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
