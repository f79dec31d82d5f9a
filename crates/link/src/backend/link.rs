//! One link: a socket, whether it has been welcomed, and what waits to be sent on it.

use std::collections::HashSet;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use super::super::bundle::{
    Hello, MessagePart, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, SHORT_MESSAGE_BYTES_MAX, SessionId,
    VERSION_FAREWELL, VERSION_MESSAGES, VERSION_MOVES, VERSION_PLAIN, VERSION_SKIPPABLE, Writer,
};
use super::SendStats;
use super::outbox::SendError;
use super::poller::Poller;
use super::queue::Queue;

#[derive(Debug)]
pub(super) struct Link {
    socket: Option<Socket>,
    /// The version that the gateway has chosen; `None` before its welcome.
    version: Option<u16>,
    /// The kernel takes nothing any more. What it still has for us is read before the link is lost.
    is_send_broken: bool,
    is_watched_for_room: bool,
    /// The gateway was told that it is to send nobody new.
    is_told_closed: bool,
    /// The sessions of players of netcode: none of them takes a long payload.
    netcode: HashSet<SessionId>,
    /// Those of them to which the gateway delivers messages, as far as it says so. A set of its
    /// own, which is empty in most games and then asked at no cost.
    delivering: HashSet<SessionId>,
    queue: Queue,
}

/// What reading from a link yields.
pub(super) enum Received {
    Bundle { bytes: usize },
    HungUp,
    Nothing,
}

impl Link {
    /// A link that is down.
    pub(super) fn new(queue_bundles: usize) -> Self {
        Self {
            socket: None,
            version: None,
            is_send_broken: false,
            is_watched_for_room: false,
            is_told_closed: false,
            netcode: HashSet::new(),
            delivering: HashSet::new(),
            queue: Queue::new(queue_bundles),
        }
    }

    /// Connects and says hello. A local socket connects at once or not at all.
    pub(super) fn open(
        &mut self,
        path: &Path,
        name: &str,
        poller: &Poller,
        token: u64,
    ) -> io::Result<()> {
        let kind = Type::SEQPACKET.nonblocking().cloexec();
        let socket = Socket::new_raw(Domain::UNIX, kind, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        let mut hello = [0; HELLO_BYTES_MAX];
        let mut writer = Writer::new(&mut hello);
        let written = writer.hello(&Hello::new(std::process::id(), name));
        debug_assert!(written, "the name was checked");
        match socket.send_with_flags(writer.bytes(), libc::MSG_NOSIGNAL) {
            // A gateway that does not let us in may have said so and hung up by now: that is read.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
        poller.watch(socket.as_fd(), token)?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Closes the socket. Returns how many payloads had not been sent.
    pub(super) fn close(&mut self, poller: &Poller) -> u64 {
        poller.close(&mut self.socket);
        self.version = None;
        self.is_send_broken = false;
        self.is_watched_for_room = false;
        self.is_told_closed = false;
        self.netcode.clear();
        self.delivering.clear();
        self.queue.clear()
    }

    pub(super) const fn is_down(&self) -> bool {
        self.socket.is_none()
    }

    pub(super) const fn is_up(&self) -> bool {
        self.is_welcomed() && !self.is_send_broken
    }

    pub(super) const fn is_welcomed(&self) -> bool {
        self.version.is_some()
    }

    pub(super) const fn welcome(&mut self, version: u16) {
        self.version = Some(version);
    }

    /// A player of netcode has come.
    pub(super) fn note_opened(&mut self, session: SessionId, delivers: bool) {
        self.netcode.insert(session);
        if delivers {
            self.delivering.insert(session);
        }
    }

    /// A session is over.
    pub(super) fn note_closed(&mut self, session: SessionId) {
        self.netcode.remove(&session);
        self.delivering.remove(&session);
    }

    /// A player has been moved elsewhere. The gateway hears that this is known with the next flush,
    /// when the game has heard of it.
    pub(super) fn note_moved(&mut self, session: SessionId) {
        self.note_closed(session);
        self.push_late(|writer| writer.confirm(session));
    }

    /// Whether a payload of that length can go to one player. Only one that is longer than every
    /// player takes is looked at further.
    #[inline]
    pub(super) fn check_payload(
        &self,
        session: SessionId,
        bytes_len: usize,
    ) -> Result<(), SendError> {
        let is_short = bytes_len <= SHORT_MESSAGE_BYTES_MAX;
        if is_short { Ok(()) } else { self.check_long_payload(session, bytes_len) }
    }

    #[cold]
    fn check_long_payload(&self, session: SessionId, bytes_len: usize) -> Result<(), SendError> {
        if self.delivering.contains(&session) {
            return Err(SendError::MessageLength);
        }
        let fits = bytes_len <= PAYLOAD_BYTES_MAX || self.takes_long_payloads(session);
        if fits { Ok(()) } else { Err(SendError::PayloadLength) }
    }

    /// A session of which nothing is known is over, or about to be opened again: the gateway says
    /// what becomes of a payload for it.
    fn takes_long_payloads(&self, session: SessionId) -> bool {
        let has_long = self.version.is_some_and(|version| version >= VERSION_PLAIN);
        has_long && !self.netcode.contains(&session)
    }

    /// Reads one datagram. A `buf` that is filled to its end has cut one off.
    pub(super) fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        let Some(mut socket) = self.socket.as_ref() else { return Ok(Received::Nothing) };
        loop {
            match socket.read(buf) {
                Ok(0) => return Ok(Received::HungUp),
                Ok(bytes) => return Ok(Received::Bundle { bytes }),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                    // The kernel reports once that the peer closed with our data unread, before it
                    // hands out what the peer had sent until then: its goodbye, for example.
                    io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Appends a record with `payloads` payloads. When the queue is full, it makes room by sending,
    /// where the kernel has room.
    #[inline]
    pub(super) fn push(
        &mut self,
        payloads: u64,
        stats: &mut SendStats,
        write: impl Fn(&mut Writer<'_>) -> bool,
    ) -> bool {
        let pushed = self.queue.push(payloads, &write) || {
            self.flush(stats);
            self.queue.push(payloads, write)
        };
        stats.payloads_taken += if pushed { payloads } else { 0 };
        pushed
    }

    /// Whether a player can be sent messages. Where the gateway does not say who gets them, it says
    /// what becomes of one.
    pub(super) fn check_message(&self, session: SessionId) -> Result<(), SendError> {
        if self.version.is_none_or(|version| version < VERSION_MESSAGES) {
            return Err(SendError::NoMessages);
        }
        let is_known = self.takes_farewells();
        if is_known && !self.delivering.contains(&session) {
            return Err(SendError::NoDelivery);
        }
        Ok(())
    }

    /// Whether players can be moved from here, and come from elsewhere.
    pub(super) fn takes_moves(&self) -> bool {
        self.version.is_some_and(|version| version >= VERSION_MOVES)
    }

    /// Whether sessions can be closed after delivery.
    pub(super) fn takes_farewells(&self) -> bool {
        self.version.is_some_and(|version| version >= VERSION_FAREWELL)
    }

    /// Appends all parts of a message, or none of them.
    pub(super) fn push_message<'a>(
        &mut self,
        parts: impl Iterator<Item = MessagePart<'a>> + Clone,
        stats: &mut SendStats,
    ) -> bool {
        let count = parts.clone().count();
        if !self.queue.has_room_for(count) {
            self.flush(stats);
        }
        if !self.queue.has_room_for(count) {
            // A short one may fit behind what waits.
            let mut only = parts.filter(|_| count == 1);
            return only.next().is_some_and(|part| self.push(1, stats, |w| w.message(&part)));
        }
        for part in parts {
            let pushed = self.push(part.is_last.into(), stats, |writer| writer.message(&part));
            debug_assert!(pushed, "there is room for all of them");
        }
        true
    }

    /// Appends a question about a session, if there is room.
    pub(super) fn push_question(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) -> bool {
        self.queue.push(0, write)
    }

    /// Appends a record that must arrive.
    pub(super) fn push_late(&mut self, write: impl Fn(&mut Writer<'_>) -> bool) {
        self.queue.push_late(write);
    }

    /// Says whether new players may be sent here, where the gateway does not know it and knows the
    /// word.
    pub(super) fn tell_intake(&mut self, is_open: bool) {
        let knows_it = self.version.is_some_and(|version| version >= VERSION_SKIPPABLE);
        if self.is_up() && knows_it && self.is_told_closed == is_open {
            self.is_told_closed = !is_open;
            self.push_late(|writer| writer.intake(is_open));
        }
    }

    /// Appends a ping, if the link is up and has room.
    pub(super) fn ping(&mut self, token: u64) -> bool {
        self.is_up() && self.queue.push(0, |writer| writer.ping(token))
    }

    /// Sends what waits, as far as the kernel has room.
    pub(super) fn flush(&mut self, stats: &mut SendStats) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_send_broken) else { return };
        self.is_send_broken = !self.queue.send(socket, |payloads| {
            stats.payloads_sent += payloads;
            stats.bundles_sent += 1;
        });
    }

    /// How many datagrams wait to be sent, at the least.
    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting().filter(|part| !part.is_empty()).count()
    }

    /// Whether the last flush left something for when there is room.
    pub(super) const fn is_watched_for_room(&self) -> bool {
        self.is_watched_for_room
    }

    /// Has the poller wake us when there is room for what a flush has left.
    pub(super) fn watch_for_room(&mut self, poller: &Poller, token: u64) {
        let Some(socket) = &self.socket else { return };
        let wanted = !self.queue.is_empty() && !self.is_send_broken;
        if wanted != self.is_watched_for_room {
            poller.watch_for_room(socket.as_fd(), token, wanted);
            self.is_watched_for_room = wanted;
        }
    }
}

const HELLO_BYTES_MAX: usize = 10 + NAME_BYTES_MAX;
