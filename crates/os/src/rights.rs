//! Descriptors that go to another process along with a message (`SCM_RIGHTS`), over sockets that
//! keep messages apart.
//!
//! What arrives is the same socket, with its queue, options and place among those that share its
//! port; only its number is another.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::control::{bytes_of, messages, write};
use crate::message::{EMPTY_HEADER, control_bytes};

/// Descriptors in one message: the kernel's own limit (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;

/// Sends a message with descriptors, waiting for room as long as the socket's own time allows.
/// Both processes have them afterwards.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > DESCRIPTORS_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut control = control(fds);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut header = EMPTY_HEADER.msg_hdr;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len() as _;
    }
    loop {
        // SAFETY: `header` points to live buffers with their true lengths, which are only read.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) if sent == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(_) => match io::Error::last_os_error() {
                why if why.kind() == io::ErrorKind::Interrupted => {}
                why => return Err(why),
            },
        }
    }
}

/// Receives a message and the descriptors that have come along, waiting as long as the socket's own
/// time allows. No bytes mean that the peer has hung up. A message that is longer than `bytes`, or
/// that brings more descriptors than fit or than this process may have, is an error.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = [0; CONTROL_BYTES];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = EMPTY_HEADER.msg_hdr;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES as _;
    let len = loop {
        // SAFETY: `header` points to live buffers with their true lengths.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(received) {
            Ok(len) => break len,
            Err(_) => match io::Error::last_os_error() {
                why if why.kind() == io::ErrorKind::Interrupted => {}
                why => return Err(why),
            },
        }
    };
    let told = control_bytes(&header).min(CONTROL_BYTES);
    let numbers = descriptors(&control[..told]);
    // SAFETY: the kernel has made these descriptors for us with this message, and nobody else knows
    // their numbers.
    let owned = |raw| unsafe { OwnedFd::from_raw_fd(raw) };
    let fds = numbers.into_iter().map(owned).collect();
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::other("a message was cut off"));
    }
    Ok((len, fds))
}

/// The control data that carries descriptors: their numbers.
fn control(fds: &[BorrowedFd<'_>]) -> Vec<u8> {
    if fds.is_empty() {
        return Vec::new();
    }
    let numbers: Vec<u8> = fds.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
    let mut control = vec![0; bytes_of(numbers.len())];
    write(&mut control, libc::SOL_SOCKET, libc::SCM_RIGHTS, &numbers);
    control
}

/// The numbers of the descriptors that control data of the kernel's has brought.
fn descriptors(control: &[u8]) -> Vec<RawFd> {
    let rights = messages(control)
        .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS));
    let numbers = rights.flat_map(|(.., data)| data.as_chunks().0);
    numbers.map(|raw| RawFd::from_ne_bytes(*raw)).collect()
}

const CONTROL_BYTES: usize = bytes_of(DESCRIPTORS_MAX * size_of::<RawFd>());

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn pair() -> (Socket, Socket) {
        let kind = Type::SEQPACKET.cloexec();
        let (one, other) = Socket::pair(Domain::UNIX, kind, None).expect("a pair");
        for end in [&one, &other] {
            end.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        }
        (one, other)
    }

    #[test]
    fn descriptors_arrive_in_order_and_belong_to_us() {
        let (one, other) = pair();
        let sockets: Vec<_> = (0..DESCRIPTORS_MAX)
            .map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback"))
            .collect();
        let wanted: Vec<_> = sockets.iter().map(|it| it.local_addr().expect("bound")).collect();
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        send(one.as_fd(), b"take these", &fds).expect("sent");
        drop(sockets);
        let mut bytes = [0; 32];
        let (len, fds) = receive(other.as_fd(), &mut bytes).expect("received");
        assert_eq!(&bytes[..len], b"take these");
        let sockets: Vec<_> = fds.into_iter().map(UdpSocket::from).collect();
        let found: Vec<_> = sockets.iter().map(|it| it.local_addr().expect("bound")).collect();
        assert_eq!(found, wanted);
        drop(one);
        assert_eq!(receive(other.as_fd(), &mut bytes).expect("it has hung up").0, 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (one, other) = pair();
        let fds = vec![one.as_fd(); DESCRIPTORS_MAX + 1];
        assert!(send(one.as_fd(), b"x", &fds).is_err());
        send(one.as_fd(), b"too long", &[]).expect("sent");
        assert!(receive(other.as_fd(), &mut [0; 3]).is_err());
    }

    /// What a hand-over stands on: which of two processes owns the gateway is decided by whether a
    /// message has got in before its receiver shut the door.
    #[test]
    fn a_message_is_either_in_before_the_door_is_shut_or_refused() {
        let (sender, receiver) = pair();
        send(sender.as_fd(), b"in", &[]).expect("sent");
        receiver.shutdown(std::net::Shutdown::Read).expect("shut");
        let late = send(sender.as_fd(), b"late", &[]).expect_err("refused");
        assert_eq!(late.raw_os_error(), Some(libc::EPIPE));
        let mut bytes = [0; 8];
        assert_eq!(receive(receiver.as_fd(), &mut bytes).expect("still there").0, 2);
        assert_eq!(receive(receiver.as_fd(), &mut bytes).expect("no more").0, 0);
        // The other way is open.
        send(receiver.as_fd(), b"why", &[]).expect("sent");
        assert_eq!(receive(sender.as_fd(), &mut bytes).expect("received").0, 3);
    }

    #[test]
    fn who_has_died_takes_no_message_and_has_left_what_was_said() {
        let (dead, living) = pair();
        send(dead.as_fd(), b"last words", &[]).expect("sent");
        drop(dead);
        assert!(send(living.as_fd(), b"hello?", &[]).is_err());
        let mut bytes = [0; 16];
        // An error that the kernel keeps for us may come first.
        let heard = receive(living.as_fd(), &mut bytes);
        let heard = heard.or_else(|_| receive(living.as_fd(), &mut bytes)).expect("kept");
        assert_eq!(heard.0, 10);
        assert_eq!(receive(living.as_fd(), &mut bytes).expect("the end").0, 0);
    }
}
