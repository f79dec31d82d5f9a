//! What the kernel knows of interfaces, addresses, routes and neighbours, by rtnetlink: dumped
//! whole, and word when something has changed.
//!
//! Nothing is followed change by change: whoever hears that there is one asks for everything again,
//! so nothing that was missed can stay wrong.

mod generic;
mod message;

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ringgate_os::netlink::{self, Message, Messages};
use ringgate_os::option;
use socket2::Socket;

pub use self::generic::Facts;
use self::message::Said;
pub use self::message::{Address, Link, Neighbour, Out, Route, Rule, Way};

/// Everything that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Interfaces.
    pub links: Vec<Link>,
    /// Addresses of this host.
    pub addresses: Vec<Address>,
    /// Routes, of all tables.
    pub routes: Vec<Route>,
    /// Hosts on the same wires.
    pub neighbours: Vec<Neighbour>,
    /// Which table is asked when.
    pub rules: Vec<Rule>,
}

/// A connection to the kernel, to ask.
#[derive(Debug)]
pub struct Asking {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Asking {
    /// Connects.
    pub fn open() -> io::Result<Self> {
        let socket = netlink::open(libc::NETLINK_ROUTE)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks for everything.
    pub fn snapshot(&mut self) -> io::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        for what in message::QUESTIONS {
            self.ask(what, &mut snapshot)?;
        }
        Ok(snapshot)
    }

    /// The interface of this name.
    pub fn link(&mut self, name: &str) -> io::Result<Link> {
        let mut snapshot = Snapshot::default();
        self.ask(message::LINKS, &mut snapshot)?;
        let mut links = snapshot.links.into_iter();
        links.find(|link| link.name == name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Asks for one kind of thing, until the answer is of one piece.
    fn ask(&mut self, what: u16, snapshot: &mut Snapshot) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let mut part = Snapshot::default();
            if self.dump(what, &mut part)? {
                snapshot.links.append(&mut part.links);
                snapshot.addresses.append(&mut part.addresses);
                snapshot.routes.append(&mut part.routes);
                snapshot.neighbours.append(&mut part.neighbours);
                snapshot.rules.append(&mut part.rules);
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's tables change faster than they can be read"))
    }

    /// Returns whether nothing has changed while the kernel was telling.
    fn dump(&mut self, what: u16, part: &mut Snapshot) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message::question(what, self.sequence))?;
        let mut is_whole = true;
        let mut socket = &self.socket;
        loop {
            let len = socket.read(&mut self.buffer)?;
            for Message { kind, flags, sequence, body } in Messages(&self.buffer[..len]) {
                if sequence != self.sequence {
                    continue;
                }
                is_whole &= flags & message::INTERRUPTED == 0;
                match message::read(kind, body) {
                    Said::Link(link) => part.links.push(link),
                    Said::Address(address) => part.addresses.push(address),
                    Said::Route(route) => part.routes.push(route),
                    Said::Neighbour(neighbour) => part.neighbours.push(neighbour),
                    Said::Rule(rule) => part.rules.push(rule),
                    Said::Nothing => {}
                    Said::End => return Ok(is_whole),
                    // A kernel without rules has none of its own either.
                    Said::Error(libc::EOPNOTSUPP) if what == message::RULES => return Ok(true),
                    Said::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
                }
            }
        }
    }
}

/// A connection to the kernel, to hear that something has changed.
#[derive(Debug)]
pub struct Listening {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Listening {
    /// Connects. What changes from here on is heard.
    pub fn open() -> io::Result<Self> {
        let socket = netlink::open(libc::NETLINK_ROUTE)?;
        socket.set_nonblocking(true)?;
        for group in message::GROUPS {
            let (level, name) = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
            option::set(socket.as_fd(), level, name, group)?;
        }
        // The kernel gives a socket its number when it first sends, and tells nothing to one that
        // has none. The answer is taken for news.
        socket.send(&message::question(message::LINKS, 1))?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Readable while there is news.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether anything has changed since this was last asked.
    pub fn take(&mut self) -> bool {
        let mut is_news = false;
        loop {
            match (&self.socket).read(&mut self.buffer) {
                Ok(_) => is_news = true,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return is_news,
                // More has changed than there was room for.
                Err(_) => return true,
            }
        }
    }
}

const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// As large as the kernel makes one message of a dump.
const BUFFER_BYTES: usize = 64 << 10;

const ATTEMPTS: usize = 16;
