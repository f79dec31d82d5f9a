//! What an errno of the running data path means for us: try again, shed, or give the socket up.
//!
//! Lists follow udp(7), ip(7), unix(7) and `io_uring_enter(2)`. What is not listed is treated as
//! the milder neighbour would be: an unknown send error fails its datagram, an unknown receive
//! error costs one turn, and neither ends the worker.

use ringgate_batch::SendFailure;

/// What to do after a failed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendTrouble {
    /// A signal came first: the same again.
    Interrupted,
    /// The error may belong to a datagram that left earlier: with `IP_RECVERR` the kernel reports
    /// an ICMP error at the next call on the socket, whatever that call is about. The error queue
    /// names the culprit; this datagram deserves a second try.
    Earlier,
    /// The datagram will not leave.
    Failed(SendFailure),
}

/// Sorts the errno of a send.
pub(super) fn of_send(errno: i32) -> SendTrouble {
    match errno {
        libc::EINTR => SendTrouble::Interrupted,
        libc::ECONNREFUSED
        | libc::EHOSTUNREACH
        | libc::EHOSTDOWN
        | libc::ENETUNREACH
        | libc::ENETDOWN
        | libc::EPROTO
        | libc::ENOPROTOOPT
        | libc::ETIMEDOUT
        // Too long for its path, or for that of an earlier one: a second try tells.
        | libc::EMSGSIZE => SendTrouble::Earlier,
        libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => SendTrouble::Failed(SendFailure::Full),
        libc::EPIPE
        | libc::ECONNRESET
        | libc::ENOTCONN
        | libc::EBADF
        | libc::ENOTSOCK
        | libc::EDESTADDRREQ
        | libc::ESHUTDOWN => SendTrouble::Failed(SendFailure::Gone),
        // EINVAL, EPERM, EACCES, EADDRNOTAVAIL, EAFNOSUPPORT, EIO, …: this datagram, not the
        // socket.
        _ => SendTrouble::Failed(SendFailure::Refused),
    }
}

/// What to do after a failed receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveTrouble {
    /// Nothing is there.
    Empty,
    /// A signal came first, or the word that a link's peer has closed with something of ours
    /// unread: it is told once, before what the peer had sent. The same again.
    Interrupted,
    /// No provided buffer was left, or no memory: again, once there is.
    NoRoom,
    /// The socket reports something that happened to a datagram we had sent; the error queue knows
    /// more.
    Earlier,
    /// We cancelled the receive ourselves.
    Cancelled,
    /// A stream of records ends here; a UDP socket goes on.
    Broken,
}

/// Sorts the errno of a receive.
pub(super) fn of_receive(errno: i32) -> ReceiveTrouble {
    match errno {
        libc::EAGAIN => ReceiveTrouble::Empty,
        libc::EINTR | libc::ECONNRESET => ReceiveTrouble::Interrupted,
        libc::ENOBUFS | libc::ENOMEM => ReceiveTrouble::NoRoom,
        libc::EACCES => ReceiveTrouble::Earlier,
        _ if of_send(errno) == SendTrouble::Earlier => ReceiveTrouble::Earlier,
        libc::ECANCELED => ReceiveTrouble::Cancelled,
        _ => ReceiveTrouble::Broken,
    }
}

/// Whether an entry of an error queue means that nobody answers at the address (as opposed to a
/// path's MTU).
pub(super) fn is_unreachable(errno: i32) -> bool {
    matches!(errno, libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::EHOSTDOWN | libc::ENETUNREACH)
}

/// The errno of an error that came from the kernel.
pub(super) fn of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_socket_a_gone_peer_and_a_bad_datagram_are_told_apart() {
        use SendFailure::{Full, Gone, Refused};
        for (errno, why) in [
            (libc::EAGAIN, Full),
            (libc::ENOBUFS, Full),
            (libc::EPIPE, Gone),
            (libc::ECONNRESET, Gone),
            (libc::EINVAL, Refused),
            (libc::EADDRNOTAVAIL, Refused),
            (libc::EPERM, Refused),
            (9999, Refused),
        ] {
            assert_eq!(of_send(errno), SendTrouble::Failed(why), "errno {errno}");
        }
    }

    #[test]
    fn icmp_errors_are_nobodys_fault_yet() {
        assert_eq!(of_send(libc::ECONNREFUSED), SendTrouble::Earlier);
        assert_eq!(
            of_send(libc::EMSGSIZE),
            SendTrouble::Earlier,
            "told of a packet that was too big"
        );
        assert_eq!(of_receive(libc::ECONNREFUSED), ReceiveTrouble::Earlier);
        assert_eq!(of_receive(libc::ECONNRESET), ReceiveTrouble::Interrupted);
        assert!(is_unreachable(libc::ECONNREFUSED) && !is_unreachable(libc::EMSGSIZE));
    }
}
