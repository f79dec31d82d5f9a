//! One worker of a simulated gateway: a host, and what has arrived for it.

use std::collections::VecDeque;

use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId};
use ringgate_gate::host::Host;
use ringgate_gate::{Gate, Mail};

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
    /// The ids of its sockets.
    pub sockets: SocketIds,
    mailbox_max: usize,
}

impl Worker {
    /// A worker with an empty mailbox.
    pub fn new(gate: Gate, mailbox_max: usize, secrets: u64) -> Self {
        Self {
            host: Host::new(gate).with_secrets(secrets),
            inbox: VecDeque::new(),
            events: Vec::new(),
            sockets: SocketIds::default(),
            mailbox_max,
        }
    }

    /// A socket that nothing else is.
    pub fn open_socket(&mut self) -> SocketId {
        self.sockets.take()
    }

    /// Puts a message into the mailbox, or gives it back when that is full.
    pub fn post(&mut self, mail: Mail) -> Result<(), Box<Mail>> {
        if self.host.mail_count() >= self.mailbox_max {
            return Err(Box::new(mail));
        }
        self.host.post(mail);
        Ok(())
    }

    /// Gives the next turn as much of what has arrived as a batch holds.
    pub fn deliver(&mut self) {
        self.events.drain(..).for_each(|event| self.host.notice(event));
        while let Some(Arrival { socket, peer, local, bytes }) = self.inbox.front() {
            let Some(meta) = self.host.receive(*socket, *peer, bytes) else { break };
            meta.local = *local;
            self.inbox.pop_front();
        }
    }
}

/// Socket ids as a driver makes them: a small index that is used again, and a generation.
#[derive(Default)]
pub struct SocketIds {
    generations: Vec<u16>,
    free: VecDeque<u16>,
}

impl SocketIds {
    /// An id that no other socket has.
    pub fn take(&mut self) -> SocketId {
        let index = self.free.pop_front().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u16 - 1
        });
        let generation = self.generations[usize::from(index)];
        SocketId(u32::from(generation) << 16 | u32::from(index))
    }

    /// The socket is closed: its index may be used again.
    pub fn give(&mut self, socket: SocketId) {
        let index = socket.index();
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.free.push_back(index as u16);
    }
}
