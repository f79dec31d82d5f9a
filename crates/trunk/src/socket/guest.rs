//! A connection to a gateway before it is a trunk: who is there has to be proven and said first,
//! and within a time.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use crate::protocol::control::{Reason, Welcome};
use crate::protocol::handshake::{Conversation, FrameAction};
use crate::protocol::lane::Role;
use crate::protocol::tls::{self, Failure, Proof};
use ringgate_os::notify::Epoll;

use crate::socket::line::Line;
use crate::socket::trunk::{End, READS_MAX, Settings, Trunk};

/// Somebody who has connected.
#[derive(Debug)]
pub struct Guest {
    line: Line,
    conversation: Conversation,
    since_ns: u64,
    is_watched_for_room: bool,
}

/// Who somebody says it is; TLS has proven that the other side has a certificate of the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The name.
    pub name: String,
    /// Whether the certificate is for it, and otherwise for whom.
    pub certified: Result<(), String>,
    /// The highest version that both speak.
    pub version: u16,
}

impl Guest {
    /// Takes a connection in.
    pub fn new(
        gateway: &tls::Gateway,
        (socket, peer): (TcpStream, SocketAddr),
        (epoll, token): (&Epoll, u64),
        now_ns: u64,
    ) -> io::Result<Self> {
        let stream = gateway.accept().map_err(io::Error::other)?;
        let line = Line::accepted(socket, peer, stream)?;
        epoll.add(line.as_fd(), token)?;
        let conversation = Conversation::new(Role::Gateway);
        Ok(Self { line, conversation, since_ns: now_ns, is_watched_for_room: false })
    }

    /// Who it is from.
    pub const fn peer(&self) -> SocketAddr {
        self.line.peer()
    }

    /// Since when it is here.
    pub const fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Whether its certificate is for this name, and otherwise for whom.
    pub fn certified_for(&self, name: &str) -> Result<(), String> {
        self.line.stream().certified_for(name)
    }

    /// What it has proven itself with, once it has said who it is.
    pub fn proof(&self, now_s: u64) -> Option<Proof> {
        self.line.stream().proof(now_s)
    }

    /// It is readable, or has room. What it says, once it has.
    pub fn handle_ready(&mut self, epoll: &Epoll, token: u64) -> Result<Option<Hello>, End> {
        let read = self.read();
        // Also what TLS has to say about a failure.
        let flushed = self.line.flush();
        let hello = read?;
        flushed.map_err(|why| End::Failed(Failure::Io(why)))?;
        if self.line.wants_room() != self.is_watched_for_room {
            self.is_watched_for_room = self.line.wants_room();
            let watched = epoll.watch_for_room(self.line.as_fd(), token, self.is_watched_for_room);
            watched.map_err(|why| End::Failed(Failure::Io(why)))?;
        }
        Ok(hello)
    }

    fn read(&mut self) -> Result<Option<Hello>, End> {
        for _ in 0..READS_MAX {
            let received = self.line.receive().map_err(End::Failed)?;
            let Self { line, conversation, .. } = self;
            // One frame: what follows it is for the trunk.
            if let Some(control) = line.next() {
                let control = control.map_err(|_| End::Ours(Reason::Format))?;
                match conversation.handle(control).map_err(End::Ours)? {
                    FrameAction::Decide { name, version } => {
                        let name = name.to_owned();
                        let certified = line.stream().certified_for(&name);
                        return Ok(Some(Hello { name, certified, version }));
                    }
                    FrameAction::Over(why) => return Err(End::Theirs(why)),
                    _ => {}
                }
            }
            match received {
                tls::Received::Something => {}
                tls::Received::Nothing => return Ok(None),
                tls::Received::Closed => {
                    return Err(End::Failed(Failure::Io(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
        // An agent begins with its hello. One that never pauses does not have the door to itself.
        Err(End::Ours(Reason::Format))
    }

    /// It is not let in, and told why as far as the kernel takes it at once.
    pub fn refuse(mut self, why: Reason) {
        let _ = self.line.outbox().refused(why);
        let _ = self.line.flush();
        self.line.close();
        let _ = self.line.flush();
    }

    /// Is watched no more: what it says from here on is for somebody else.
    pub fn leave(self, epoll: &Epoll) -> io::Result<Self> {
        epoll.remove(self.line.as_fd())?;
        Ok(self)
    }

    /// It is an agent, and welcome. It has left the set that it was watched in.
    pub fn welcome(
        self,
        welcome: Welcome,
        settings: Settings,
        epoll: &Epoll,
        now_ns: u64,
    ) -> io::Result<Trunk> {
        Trunk::welcome(self.line, self.conversation, welcome, settings, epoll, now_ns)
    }
}
