//! The socket between predecessor and successor, which keeps messages apart and carries
//! descriptors.
//!
//! Two properties of the kernel's make a hand-over safe, and `ringgate_os::rights` has their tests:
//! a message is either queued before the receiver shuts its door or refused to the sender, and a
//! process that has died takes no message and leaves what it has said.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::message::Message;
use super::steps::Heard;
use ringgate_os::rights;

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: Socket,
}

/// A message, and the descriptors that came along.
pub type Packet = (Message, Vec<OwnedFd>);

impl Channel {
    /// Two ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let kind = Type::SEQPACKET.cloexec();
        let (one, other) = Socket::pair(Domain::UNIX, kind, None)?;
        Ok((Self::over(one)?, Self::over(other)?))
    }

    /// Over a socket that somebody has made.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(fd);
        let is_ours = socket.domain()? == Domain::UNIX && socket.r#type()? == Type::SEQPACKET;
        if !is_ours {
            return Err(io::Error::other("it is no socket that keeps messages apart"));
        }
        Self::over(socket)
    }

    /// Connects to who listens at a path.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
        // It bounds the wait for a place in a queue that is full, too.
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        socket.connect(&SockAddr::unix(path)?)?;
        Self::over(socket)
    }

    fn over(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self { socket })
    }

    /// For the program that takes it over.
    pub fn into_fd(self) -> OwnedFd {
        self.socket.into()
    }

    /// Says something.
    pub fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        rights::send(self.socket.as_fd(), &message.encode(), fds)
    }

    /// The next message, for which it waits so long.
    pub fn hear(&self, at_most: Duration) -> (Heard, Option<Packet>) {
        // None at all would be to wait for ever.
        let _ = self.socket.set_read_timeout(Some(at_most.max(Duration::from_millis(1))));
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        match rights::receive(self.socket.as_fd(), &mut bytes) {
            Ok((0, _)) => (Heard::Gone, None),
            Ok((len, fds)) => match Message::decode(&bytes[..len]) {
                Some(message) => (Heard::of(&message), Some((message, fds))),
                None => (Heard::Nonsense, None),
            },
            Err(why) => match why.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => (Heard::Late, None),
                // The kernel says once that the peer went with unread messages; what it has said is
                // still there.
                io::ErrorKind::ConnectionReset => self.hear_last(),
                _ => (Heard::Nonsense, None),
            },
        }
    }

    fn hear_last(&self) -> (Heard, Option<Packet>) {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        match rights::receive(self.socket.as_fd(), &mut bytes) {
            Ok((len, fds)) if len > 0 => match Message::decode(&bytes[..len]) {
                Some(message) => (Heard::of(&message), Some((message, fds))),
                None => (Heard::Nonsense, None),
            },
            _ => (Heard::Gone, None),
        }
    }

    /// Lets no further message in, and says whether the peer has taken the gateway with one that
    /// was in already.
    pub fn shut_door(&self) -> Heard {
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        for _ in 0..QUEUED_MAX {
            match self.hear(Duration::from_millis(1)).0 {
                Heard::Taken => return Heard::Taken,
                Heard::Gone | Heard::Late => break,
                // Whatever it was, it is one less.
                _ => {}
            }
        }
        Heard::Gone
    }
}

/// Far more than any message.
pub const MESSAGE_BYTES_MAX: usize = 8192;

/// More messages than the kernel queues for one sender.
const QUEUED_MAX: usize = 4096;

/// For messages that nobody reads.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(5);

    #[test]
    fn a_take_that_is_in_counts_whatever_is_in_front_of_it() {
        let (predecessor, successor) = Channel::pair().expect("a pair");
        successor.say(&Message::Prepared, &[]).expect("said");
        successor.say(&Message::Taken, &[]).expect("said");
        drop(successor);
        assert_eq!(predecessor.shut_door(), Heard::Taken);
    }

    #[test]
    fn behind_a_door_that_is_shut_nobody_takes_and_the_word_gets_out() {
        let (predecessor, successor) = Channel::pair().expect("a pair");
        assert_eq!(predecessor.shut_door(), Heard::Gone);
        assert!(successor.say(&Message::Taken, &[]).is_err());
        predecessor.say(&Message::TakenBack, &[]).expect("said");
        assert_eq!(successor.hear(SOON).0, Heard::TakenBack);
        assert_eq!(successor.hear(SOON).0, Heard::Late);
        drop(predecessor);
        assert_eq!(successor.hear(SOON).0, Heard::Gone);
    }

    #[test]
    fn who_died_with_unread_messages_has_gone_after_its_last_word() {
        let (dead, living) = Channel::pair().expect("a pair");
        living.say(&Message::Prepared, &[]).expect("said");
        dead.say(&Message::TakenBack, &[]).expect("said");
        drop(dead);
        assert!(living.say(&Message::Taken, &[]).is_err());
        assert_eq!(living.hear(SOON).0, Heard::TakenBack);
        assert_eq!(living.hear(SOON).0, Heard::Gone);
    }

    #[test]
    fn strangers_say_nonsense() {
        let (one, other) = Channel::pair().expect("a pair");
        rights::send(one.socket.as_fd(), b"GET / HTTP/1.1\r\n", &[]).expect("sent");
        assert_eq!(other.hear(SOON).0, Heard::Nonsense);
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        assert!(Channel::from_fd(udp.into()).is_err());
    }
}
