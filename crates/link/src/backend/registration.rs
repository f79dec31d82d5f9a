//! The connection over which the gateway registers this process with its fleet.
//!
//! It is a socket of its own beside the workers': a gateway knows no backend of this name before it
//! is registered, so its workers would refuse the link. While the socket lives, the process stands
//! in the fleet; what is said again replaces what was said.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, Type};

use super::poller::{Poller, READY_REGISTRATION};
use crate::announce::{ANNOUNCE_BYTES_MAX, ANNOUNCE_SOCKET, Announcement, Standing};

#[derive(Debug)]
pub(super) struct Registration {
    path: PathBuf,
    instance: u64,
    socket: Option<Socket>,
    /// What is to be said; none before the game has said anything.
    record: Vec<u8>,
    /// The latest has not been said.
    is_due: bool,
    standing: Standing,
}

impl Registration {
    pub(super) fn new(mut run_dir: PathBuf, instance: u64) -> Self {
        run_dir.push(ANNOUNCE_SOCKET);
        Self {
            path: run_dir,
            instance,
            socket: None,
            record: Vec::new(),
            is_due: false,
            standing: Standing::Waiting,
        }
    }

    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether there is something to say to a gateway that is not there.
    pub(super) const fn is_down(&self) -> bool {
        self.socket.is_none() && !self.record.is_empty()
    }

    /// Has this said from now on.
    pub(super) fn set(&mut self, what: &Announcement, name: &str) -> io::Result<()> {
        let record = what.encode(name, self.instance).ok_or_else(|| {
            let why = "an announcement with a name, a group, labels or slots that cannot be";
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        if record != self.record {
            (self.record, self.is_due) = (record, true);
        }
        Ok(())
    }

    /// Connects, where it is not connected, and says what is due. False where the gateway is not
    /// there, or does not take it: that is tried again.
    pub(super) fn say(&mut self, poller: &Poller) -> bool {
        if self.record.is_empty() {
            return true;
        }
        if self.socket.is_none() && self.connect(poller).is_err() {
            return false;
        }
        let Some(socket) = self.socket.as_ref().filter(|_| self.is_due) else { return true };
        match socket.send_with_flags(&self.record, libc::MSG_NOSIGNAL) {
            Ok(_) => self.is_due = false,
            // It does not read fast enough: the latest is what counts, later.
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            // It has hung up. What it has said before still holds.
            Err(_) => {
                self.hear(poller);
                self.close(poller);
            }
        }
        !self.is_due
    }

    fn connect(&mut self, poller: &Poller) -> io::Result<()> {
        let kind = Type::SEQPACKET.nonblocking().cloexec();
        let socket = Socket::new_raw(Domain::UNIX, kind, None)?;
        socket.connect(&SockAddr::unix(&self.path)?)?;
        poller.watch(socket.as_fd(), READY_REGISTRATION)?;
        self.socket = Some(socket);
        self.is_due = true;
        Ok(())
    }

    /// Reads what the gateway has answered. Returns whether its word has changed.
    pub(super) fn hear(&mut self, poller: &Poller) -> bool {
        let before = self.standing;
        let mut answer = [0; 64];
        const { assert!(64 < ANNOUNCE_BYTES_MAX) };
        while let Some(mut socket) = self.socket.as_ref() {
            match socket.read(&mut answer) {
                Ok(0) => self.close(poller),
                Ok(len) => {
                    if let Some(standing) = Standing::decode(&answer[..len]) {
                        self.standing = standing;
                    }
                }
                Err(why) => match why.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // As for a link: the kernel reports first that our record was left unread.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                    _ => self.close(poller),
                },
            }
        }
        self.standing != before
    }

    /// Whoever refuses hangs up, and what it has said last still holds.
    fn close(&mut self, poller: &Poller) {
        poller.close(&mut self.socket);
        if self.standing == Standing::Registered {
            self.standing = Standing::Waiting;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_heard_from_a_gateway_that_left_what_was_said_unread() {
        let name = format!("ringgate-registration-{}", std::process::id());
        let run_dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&run_dir).expect("temporary folders can be made");
        let gateway = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a descriptor");
        let at = SockAddr::unix(run_dir.join(ANNOUNCE_SOCKET)).expect("a path");
        gateway.bind(&at).and_then(|()| gateway.listen(1)).expect("our own folder");
        let poller = Poller::new().expect("a descriptor");
        let mut registration = Registration::new(run_dir.clone(), 1);
        registration.set(&Announcement::new("arena", 4), "arena-1").expect("it can be said");
        assert!(registration.say(&poller));
        let (guest, _) = gateway.accept().expect("it has connected");
        guest.send(&Standing::Unauthorised.encode()).expect("there is room");
        drop(guest);
        assert!(registration.hear(&poller));
        assert_eq!(registration.standing(), Standing::Unauthorised);
        assert!(registration.is_down());
        std::fs::remove_dir_all(run_dir).expect("our own folder");
    }
}
