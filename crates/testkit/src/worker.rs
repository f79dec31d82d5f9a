//! One worker of a simulated gateway: a host, and what has arrived for it.

use std::collections::VecDeque;

use ringgate_batch::{Endpoint, IoEvent, LocalIp, SocketId, Wait};
use ringgate_gate::handover::SocketUse;
use ringgate_gate::pace::Rules;
use ringgate_gate::{Gate, Mail};

use crate::host::Host;

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
    /// When its driver comes back from a wait on purpose.
    gathers_until_ns: u64,
    /// Whether what comes on a link ends that.
    awaits_answers: bool,
}

impl Worker {
    /// A worker with an empty mailbox, in a world as slow as these rules.
    pub fn new(gate: Gate, pace: Rules, mailbox_max: usize, secrets: u64) -> Self {
        Self {
            host: Host::paced(gate, pace).with_secrets(secrets),
            inbox: VecDeque::new(),
            events: Vec::new(),
            sockets: SocketIds::default(),
            mailbox_max,
            gathers_until_ns: 0,
            awaits_answers: false,
        }
    }

    /// Whether it waits on purpose, whatever players have sent. Mail has rung its bell.
    pub fn is_gathering(&self, now_ns: u64) -> bool {
        now_ns < self.gathers_until_ns && self.host.mail_count() == 0
    }

    /// Whether a link ends such a wait, because something has come on it.
    pub fn is_answered(&self) -> bool {
        self.awaits_answers && self.inbox.iter().any(|arrival| self.is_link(arrival.socket))
    }

    fn is_link(&self, socket: SocketId) -> bool {
        let mut links = self.host.gate().sockets().filter(|(_, is)| *is == SocketUse::Link);
        links.any(|(id, _)| id == socket)
    }

    /// After a turn: begins to wait, where it wants to.
    pub fn gather(&mut self, now_ns: u64) {
        let wait = self.host.wait();
        self.awaits_answers = matches!(wait, Wait::GatherAnswers(_));
        self.gathers_until_ns = match wait {
            Wait::Gather(time) | Wait::GatherAnswers(time) => now_ns + time.as_nanos() as u64,
            Wait::No | Wait::AtMost(_) => 0,
        };
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

    /// Gives the next turn what has arrived on links, as much as a batch holds.
    pub fn deliver_answers(&mut self) {
        let all = std::mem::take(&mut self.inbox);
        let (answers, rest) = all.into_iter().partition(|arrival| self.is_link(arrival.socket));
        self.inbox = answers;
        self.deliver();
        self.inbox.extend::<VecDeque<_>>(rest);
        self.host.look_at_links();
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
