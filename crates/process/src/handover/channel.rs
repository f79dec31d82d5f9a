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
use super::steps::Silence;
use ringgate_os::rights::{self, DESCRIPTORS_MAX};

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: Socket,
}

/// A message, and the descriptors that came along.
pub type Packet = (Message, Vec<OwnedFd>);

/// Why a successor does not go on, if this is what it has heard of a "gateway", or an "agent".
pub fn why_not(heard: Result<&Message, Silence>, of: &str) -> String {
    match heard {
        Ok(Message::Refused { why }) => why.clone(),
        Ok(Message::TakenBack) => format!("it took too long, and the {of} that ran goes on"),
        Err(Silence::Late) => format!("the {of} that runs does not answer in time"),
        _ => format!("what answers there is no {of} of this kind"),
    }
}

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

    /// Says something, with any number of descriptors: what one packet cannot take goes ahead.
    pub fn say(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let ahead = fds.len().saturating_sub(1) / DESCRIPTORS_MAX * DESCRIPTORS_MAX;
        let (ahead, rest) = fds.split_at(ahead);
        for some in ahead.chunks(DESCRIPTORS_MAX) {
            rights::send(self.socket.as_fd(), &Message::More.encode(), some)?;
        }
        rights::send(self.socket.as_fd(), &message.encode(), rest)
    }

    /// The next message, for which it waits so long, with the descriptors that went ahead of it: as
    /// many as this process may have open.
    pub fn hear(&self, at_most: Duration) -> Result<Packet, Silence> {
        let mut ahead = Vec::new();
        loop {
            let (message, fds) = self.hear_one(at_most)?;
            match message {
                Message::More if fds.is_empty() => return Err(Silence::Nonsense),
                Message::More => ahead.extend(fds),
                message => {
                    ahead.extend(fds);
                    return Ok((message, ahead));
                }
            }
        }
    }

    fn hear_one(&self, at_most: Duration) -> Result<Packet, Silence> {
        // None at all would be to wait for ever.
        let _ = self.socket.set_read_timeout(Some(at_most.max(Duration::from_millis(1))));
        self.receive().unwrap_or_else(|why| match why.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Silence::Late),
            // The kernel says once that the peer went with unread messages; what it has said is
            // still there.
            io::ErrorKind::ConnectionReset => self.receive().unwrap_or(Err(Silence::Gone)),
            _ => Err(Silence::Nonsense),
        })
    }

    fn receive(&self) -> io::Result<Result<Packet, Silence>> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let (len, fds) = rights::receive(self.socket.as_fd(), &mut bytes)?;
        let message = match len {
            0 => Err(Silence::Gone),
            _ => Message::decode(&bytes[..len]).ok_or(Silence::Nonsense),
        };
        Ok(message.map(|message| (message, fds)))
    }

    /// A second end on this side, by which another thread may end what is heard here.
    pub fn second(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    /// Lets no further message in: whoever waits for one hears that nothing more comes.
    pub fn hear_no_more(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
    }

    /// Lets no further message in, and says whether the peer has taken the gateway with one that
    /// was in already.
    pub fn shut_door(&self) -> bool {
        self.hear_no_more();
        for _ in 0..QUEUED_MAX {
            match self.hear(Duration::from_millis(1)) {
                Ok((Message::Taken, _)) => return true,
                Err(Silence::Gone | Silence::Late) => break,
                // Whatever it was, it is one less.
                _ => {}
            }
        }
        false
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
    use crate::handover::message::Moment;

    const SOON: Duration = Duration::from_millis(5);

    fn said(to: &Channel) -> Result<Message, Silence> {
        to.hear(SOON).map(|(message, _)| message)
    }

    #[test]
    fn a_take_that_is_in_counts_whatever_is_in_front_of_it() {
        let (predecessor, successor) = Channel::pair().expect("a pair");
        successor.say(&Message::Prepared, &[]).expect("said");
        successor.say(&Message::Taken, &[]).expect("said");
        drop(successor);
        assert!(predecessor.shut_door());
    }

    #[test]
    fn behind_a_door_that_is_shut_nobody_takes_and_the_word_gets_out() {
        let (predecessor, successor) = Channel::pair().expect("a pair");
        assert!(!predecessor.shut_door());
        assert!(successor.say(&Message::Taken, &[]).is_err());
        predecessor.say(&Message::TakenBack, &[]).expect("said");
        assert_eq!(said(&successor), Ok(Message::TakenBack));
        assert_eq!(said(&successor), Err(Silence::Late));
        drop(predecessor);
        assert_eq!(said(&successor), Err(Silence::Gone));
    }

    #[test]
    fn who_died_with_unread_messages_has_gone_after_its_last_word() {
        let (dead, living) = Channel::pair().expect("a pair");
        living.say(&Message::Prepared, &[]).expect("said");
        dead.say(&Message::TakenBack, &[]).expect("said");
        drop(dead);
        assert!(living.say(&Message::Taken, &[]).is_err());
        assert_eq!(said(&living), Ok(Message::TakenBack));
        assert_eq!(said(&living), Err(Silence::Gone));
    }

    #[test]
    fn any_number_of_descriptors_comes_with_a_message_in_order() {
        use std::os::unix::fs::MetadataExt;
        let number = |file: &std::fs::File| file.metadata().expect("open").ino();
        let files: Vec<_> = (0..5)
            .map(|_| std::fs::File::from(OwnedFd::from(std::io::pipe().expect("a pipe").0)))
            .collect();
        for count in [0, 1, DESCRIPTORS_MAX, DESCRIPTORS_MAX + 1, 2 * DESCRIPTORS_MAX + 1] {
            let (predecessor, successor) = Channel::pair().expect("a pair");
            let fds: Vec<_> = files.iter().cycle().take(count).map(AsFd::as_fd).collect();
            let welcome = Message::at(Moment::Welcome, 9, true);
            predecessor.say(&welcome, &fds).expect("said");
            predecessor.say(&Message::Sockets, &fds[..count.min(1)]).expect("said");
            let (message, came) = successor.hear(SOON).expect("a message");
            assert_eq!(message, welcome);
            let came: Vec<_> = came.into_iter().map(|fd| number(&fd.into())).collect();
            let wanted: Vec<_> = files.iter().cycle().take(count).map(number).collect();
            assert_eq!(came, wanted, "{count}");
            let (_, next) = successor.hear(SOON).expect("a message");
            assert_eq!(next.len(), count.min(1));
        }
    }

    #[test]
    fn packets_ahead_bring_descriptors_and_without_a_message_they_are_nothing() {
        let (predecessor, successor) = Channel::pair().expect("a pair");
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        for _ in 0..100 {
            predecessor.say(&Message::More, &[file.as_fd()]).expect("said");
        }
        predecessor.say(&Message::Prepared, &[]).expect("said");
        let (message, came) = successor.hear(SOON).expect("a message");
        assert_eq!((message, came.len()), (Message::Prepared, 100));
        predecessor.say(&Message::More, &[file.as_fd()]).expect("said");
        assert_eq!(said(&successor), Err(Silence::Late));
        predecessor.say(&Message::More, &[]).expect("said");
        assert_eq!(said(&successor), Err(Silence::Nonsense));
        predecessor.say(&Message::More, &[file.as_fd()]).expect("said");
        drop(predecessor);
        assert_eq!(said(&successor), Err(Silence::Gone));
    }

    #[test]
    fn nothing_that_is_heard_leaves_a_successor_without_a_reason() {
        let refused = Message::refused(&"it drains");
        assert_eq!(why_not(Ok(&refused), "agent"), "it drains");
        let silence = [Silence::Late, Silence::Gone, Silence::Nonsense].map(Err);
        let hello = Message::hello();
        for heard in silence.into_iter().chain([Ok(&Message::TakenBack), Ok(&hello)]) {
            let why = why_not(heard, "agent");
            assert!(why.contains("agent"), "{heard:?}: {why}");
        }
    }

    #[test]
    fn strangers_say_nonsense() {
        let (one, other) = Channel::pair().expect("a pair");
        rights::send(one.socket.as_fd(), b"GET / HTTP/1.1\r\n", &[]).expect("sent");
        assert_eq!(said(&other), Err(Silence::Nonsense));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
        assert!(Channel::from_fd(udp.into()).is_err());
    }
}
