//! What happens on sockets besides datagrams: errors of what was sent earlier, processes that
//! connect. Cold, and the same for both drivers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::interface::{Interface, SocketKind};
use super::table::Registered;
use super::{cmsg, errno, sockaddr, socket};
use ringgate_batch::{IoEvent, IoStats, RxBatch, SocketId};
use ringgate_os::{message, notify};

/// Empties a socket's error queue. Each unreachable peer becomes an event, once per row of the
/// same. A link has no such queue: who asks it for errors is given its next bundle.
pub(super) fn read_errors<S>(
    id: SocketId,
    socket: &Registered<S>,
    rx: &mut RxBatch,
    stats: &mut IoStats,
) {
    if matches!(socket.kind, SocketKind::Link | SocketKind::LinkListener) {
        return;
    }
    for _ in 0..ERRORS_MAX {
        stats.syscalls += 1;
        let read =
            |name: &[u8], control: &[u8]| (sockaddr::decode(name), cmsg::decode_error(control));
        let Ok(Some((peer, error))) = message::receive_error(socket.fd.as_fd(), read) else {
            return;
        };
        let (Some(peer), Some(error)) = (peer, error) else { continue };
        let event = IoEvent::Unreachable { socket: id, peer };
        if errno::is_unreachable(error) && rx.events.last() != Some(&event) {
            rx.events.push(event);
        }
    }
}

/// Accepts processes that wait at a listener, a few in each turn: those who connect may do so as
/// fast as we accept. Registers their links. One that there is no descriptor for is turned away:
/// left waiting, it would keep the listener readable and the driver awake for as long as
/// descriptors are short. Returns how many were.
pub(super) fn accept_all<E: Interface>(
    interface: &mut E,
    reserve: &mut Reserve,
    listener: SocketId,
    rx: &mut RxBatch,
) -> u64 {
    let mut turned_away = 0;
    // Another thread may have been quicker when it was given up.
    reserve.refill();
    for _ in 0..ACCEPTS_MAX {
        let Some(fd) = interface.fd(listener) else { break };
        let (connection, peer) = match socket::accept(fd) {
            Ok(Some(link)) => {
                let Ok(peer) = socket::peer_credentials(link.as_fd()) else { continue };
                (interface.register(link, SocketKind::Link), peer.into())
            }
            Err(_) if reserve.turn_away(fd) => {
                turned_away += 1;
                continue;
            }
            Ok(None) | Err(_) => break,
        };
        match connection {
            Ok(connection) => {
                rx.events.push(IoEvent::Accepted { socket: listener, connection, peer });
            }
            Err(_) => turned_away += 1,
        }
    }
    turned_away
}

/// A descriptor that is kept so that there is one to give up when the last is gone.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    descriptor: Option<OwnedFd>,
}

impl Reserve {
    /// Takes a descriptor, if there is none in reserve.
    pub(super) fn refill(&mut self) {
        if self.descriptor.is_none() {
            self.descriptor = notify::event_counter().ok();
        }
    }

    /// Gives up the reserve, accepts with it and hangs up. Returns whether a process has been dealt
    /// with.
    fn turn_away(&mut self, listener: BorrowedFd<'_>) -> bool {
        if self.descriptor.take().is_none() {
            return false;
        }
        let is_away = matches!(socket::accept(listener), Ok(Some(_)));
        self.refill();
        is_away
    }
}

/// As many as there are slots for bundles: what each has said with its connection is read in the
/// next turn.
const ACCEPTS_MAX: usize = 16;

/// More errors than any turn's sends can have caused.
const ERRORS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmsg::Mmsg;
    use crate::options::DriverOptions;

    #[test]
    fn a_reserve_that_could_not_be_had_again_is_had_once_there_are_descriptors() {
        let name = format!("ringgate-reserve-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let (mut driver, mut rx) = Mmsg::open(&DriverOptions::default(), None).expect("it opens");
        let listener = socket::link_listener(&path, 0o600).expect("it listens");
        let listener = driver.register(listener, SocketKind::LinkListener).expect("room");
        let mut lost = Reserve { descriptor: None };
        assert_eq!(accept_all(&mut driver, &mut lost, listener, &mut rx), 0);
        assert!(lost.descriptor.is_some());
        std::fs::remove_file(path).expect("our own");
    }
}
