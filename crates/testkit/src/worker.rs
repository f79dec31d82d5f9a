//! One worker of a simulated gateway: a host, and what has arrived for it.

use std::collections::VecDeque;

use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId};
use ringgate_gate::host::{Carry, Host};
use ringgate_gate::{Gate, Mail, Now};

/// A datagram that waits in a socket's queue.
pub struct Arrival {
    /// Which socket.
    pub socket: SocketId,
    /// Whom it is from.
    pub peer: Endpoint,
    /// Which of the socket's addresses it was sent to, where that matters.
    pub local: LocalIp,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// A worker.
pub struct Worker {
    /// Its gate.
    pub host: Host,
    /// What its sockets have received.
    pub inbox: VecDeque<Arrival>,
    /// What has happened to its sockets.
    pub events: Vec<IoEvent>,
    mailbox: VecDeque<Mail>,
    mailbox_max: usize,
    sockets: SocketIds,
}

impl Worker {
    /// A worker with an empty mailbox.
    pub fn new(gate: Gate, mailbox_max: usize) -> Self {
        Self {
            host: Host::new(gate),
            inbox: VecDeque::new(),
            events: Vec::new(),
            mailbox: VecDeque::new(),
            mailbox_max,
            sockets: SocketIds::default(),
        }
    }

    /// A socket that nothing else is.
    pub fn open_socket(&mut self) -> SocketId {
        self.sockets.take()
    }

    /// The index of a socket may be used again.
    pub fn close_socket(&mut self, socket: SocketId) {
        self.sockets.give(socket);
        self.inbox.retain(|arrival| arrival.socket != socket);
    }

    /// Puts a message into the mailbox, or gives it back when that is full.
    pub fn post(&mut self, mail: Mail) -> Result<(), Box<Mail>> {
        if self.mailbox.len() >= self.mailbox_max {
            return Err(Box::new(mail));
        }
        self.mailbox.push_back(mail);
        Ok(())
    }

    /// One turn over the mail and as much of what has arrived as a batch holds. False when nothing
    /// is left for another.
    pub fn turn(&mut self, now: Now, carry: Carry<'_>) -> bool {
        while let Some(mail) = self.mailbox.pop_front() {
            self.host.handle_mail(now, mail, carry);
        }
        self.events.drain(..).for_each(|event| self.host.notice(event));
        while let Some(Arrival { socket, peer, local, bytes }) = self.inbox.front() {
            let Some(meta) = self.host.receive(*socket, *peer, bytes) else { break };
            meta.local = *local;
            self.inbox.pop_front();
        }
        self.host.turn(now, carry);
        !self.inbox.is_empty()
    }
}

/// Socket ids as a driver makes them: a small index that is used again, and a generation.
#[derive(Default)]
struct SocketIds {
    generations: Vec<u16>,
    free: VecDeque<u16>,
}

impl SocketIds {
    fn take(&mut self) -> SocketId {
        let index = self.free.pop_front().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u16 - 1
        });
        let generation = self.generations[usize::from(index)];
        SocketId(u32::from(generation) << 16 | u32::from(index))
    }

    fn give(&mut self, socket: SocketId) {
        let index = socket.index();
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.free.push_back(index as u16);
    }
}
