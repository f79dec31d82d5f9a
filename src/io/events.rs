//! What happens on sockets besides datagrams: errors of what was sent earlier, processes that connect. Cold, and the same for
//! both drivers.

use std::os::fd::AsFd;

use super::table::Registered;
use super::{Driver, IoStats, SocketKind, cmsg, errno, sockaddr, socket};
use crate::buf::{IoEvent, RxBatch, SocketId};
use crate::os::message;

/// Empties a socket's error queue. Each unreachable peer becomes an event, once per row of the same.
pub(super) fn read_errors<S>(
    id: SocketId,
    socket: &Registered<S>,
    rx: &mut RxBatch,
    stats: &mut IoStats,
) {
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

/// Accepts every process that waits at a listener, and registers its link.
pub(super) fn accept_all<D: Driver>(
    driver: &mut D,
    listener: SocketId,
    rx: &mut RxBatch,
) -> std::io::Result<()> {
    while let Some(fd) = driver.fd(listener) {
        let Some(link) = socket::accept(fd)? else { break };
        let connection = driver.register(link, SocketKind::Link)?;
        rx.events.push(IoEvent::Accepted { socket: listener, connection });
    }
    Ok(())
}

/// More errors than any turn's sends can have caused.
const ERRORS_MAX: usize = 1024;
