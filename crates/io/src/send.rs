//! Sending a batch, the same way for both drivers: one `sendmmsg` per socket and 64 messages.
//!
//! io_uring's send operations were measured to be 4 to 6 % slower than this for small datagrams,
//! and its zero-copy sends slower still; what pays is segmentation (docs/BENCHMARKS.md, the wire).
//! The kernel stops a `sendmmsg` at the first message it cannot send and keeps the reason to
//! itself; asked again from there, it tells. A message that fails alone is noted and passed over;
//! when the socket is full or gone, the rest of its queue fails with it, because trying each would
//! cost a system call per datagram just when time is short.

mod plan;

use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::AsFd;

use arrayvec::ArrayVec;

use self::plan::{Ability, Message, Plan, SEGMENTS_MAX};
use super::cmsg::Control;
use super::errno::{self, SendTrouble};
use super::interface::SocketKind;
use super::sockaddr::{Family, Name};
use super::table::{Registered, Table};
use ringgate_batch::{IoStats, SendFailure, SocketId, TxBatch};
use ringgate_os::message::{self, MESSAGES_MAX, Outgoing};

/// Sends batches. Holds memory that is used again, and the sockets whose error queues should be
/// read.
#[derive(Debug, Default)]
pub(super) struct Sender {
    plan: Plan,
    failures: Vec<(u32, SendFailure)>,
    /// Sockets that reported an error of an earlier datagram. The driver empties the list.
    pub(super) troubled: Vec<SocketId>,
    /// Links that were sent to, some of them where there are many. The driver empties it as well.
    pub(super) asked: ArrayVec<SocketId, ASKED_MAX>,
}

impl Sender {
    /// Sends every entry, notes those that failed in the batch, and empties it.
    pub(super) fn flush<S>(&mut self, table: &Table<S>, tx: &mut TxBatch, stats: &mut IoStats) {
        let Self { plan, failures, troubled, asked } = self;
        failures.clear();
        let ability = |id| match table.get(id) {
            None => Ability::Gone,
            Some(socket) => match socket.kind {
                SocketKind::Datagram | SocketKind::ConnectedDatagram => Ability::Segments,
                SocketKind::Link | SocketKind::LinkListener => Ability::Plain,
            },
        };
        plan.make(tx.entries(), ability, |entry| failures.push((entry, SendFailure::Gone)));
        for queue in plan.queues() {
            let Some(socket) = table.get(queue.socket) else { continue };
            if socket.kind == SocketKind::Link && !asked.contains(&queue.socket) {
                let _ = asked.try_push(queue.socket);
            }
            let before = failures.len();
            let mut run = Run { plan, tx, failures, stats, saw_earlier: false };
            run.send_all(socket, plan.messages(queue));
            if run.saw_earlier {
                troubled.push(queue.socket);
            }
            let mut failed = failures[before..].iter();
            if socket.kind == SocketKind::Link && failed.any(|(_, why)| *why != SendFailure::Full) {
                // Whatever it was, reading comes to an end now, behind what the peer has said.
                let _ = socket2::SockRef::from(&socket.fd).shutdown(Shutdown::Both);
            }
        }
        stats.tx_failures += failures.len() as u64;
        for &(entry, why) in failures.iter() {
            tx.fail(entry as usize, why);
        }
        tx.end_flush();
    }
}

/// The sending of one socket's queue.
struct Run<'a> {
    plan: &'a Plan,
    tx: &'a TxBatch,
    failures: &'a mut Vec<(u32, SendFailure)>,
    stats: &'a mut IoStats,
    saw_earlier: bool,
}

impl<'a> Run<'a> {
    fn send_all<S>(&mut self, socket: &Registered<S>, messages: impl Iterator<Item = &'a Message>) {
        let mut chunk = Chunk::default();
        let mut outcome = Ok(());
        for message in messages {
            if outcome.is_ok() && !chunk.has_room_for(message) {
                outcome = self.send(socket, &chunk);
                chunk.clear();
            }
            match outcome {
                Ok(()) => chunk.push(message, self.plan, self.tx, socket.family),
                Err(why) => self.fail(message, why),
            }
        }
        if outcome.is_ok() {
            let _ = self.send(socket, &chunk);
        }
    }

    /// Sends a chunk. An error stands for the whole socket and has been noted for the rest of the
    /// chunk.
    fn send<S>(&mut self, socket: &Registered<S>, chunk: &Chunk<'a>) -> Result<(), SendFailure> {
        let mut outgoing = chunk.outgoing();
        let mut next = 0;
        let mut tried_twice = false;
        while next < outgoing.len() {
            self.stats.syscalls += 1;
            let trouble = match message::send(socket.fd.as_fd(), &mut outgoing[next..]) {
                Ok(sent) => {
                    chunk.messages[next..][..sent].iter().for_each(|m| self.count(m));
                    next += sent;
                    tried_twice = false;
                    continue;
                }
                Err(error) => errno::of_send(errno::of(&error)),
            };
            match trouble {
                SendTrouble::Interrupted => {}
                SendTrouble::Earlier if !tried_twice => {
                    self.saw_earlier = true;
                    tried_twice = true;
                }
                SendTrouble::Earlier | SendTrouble::Failed(SendFailure::Refused) => {
                    self.refuse(socket, &chunk.messages[next]);
                    next += 1;
                    tried_twice = false;
                }
                SendTrouble::Failed(why) => {
                    chunk.messages[next..].iter().for_each(|m| self.fail(m, why));
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// A message was refused. If it had segments, they may be the reason, so each is tried alone.
    ///
    /// Nothing is concluded for later: what refuses segments (a device without checksums, a smaller
    /// MTU) lies on the way to this peer, and the way to the next may be another.
    fn refuse<S>(&mut self, socket: &Registered<S>, message: &Message) {
        if message.count == 1 {
            return self.fail(message, SendFailure::Refused);
        }
        let mut chunk = Chunk::default();
        for entry in self.plan.entries(message) {
            let single = Message::single(entry, &self.tx.entries()[entry as usize]);
            chunk.push(&single, self.plan, self.tx, socket.family);
        }
        let _ = self.send(socket, &chunk);
    }

    fn fail(&mut self, message: &Message, why: SendFailure) {
        self.failures.extend(self.plan.entries(message).map(|entry| (entry, why)));
    }

    fn count(&mut self, message: &Message) {
        self.stats.tx_datagrams += u64::from(message.count);
        self.stats.tx_bytes += u64::from(message.bytes);
        self.stats.tx_gso_sends += u64::from(message.count > 1);
    }
}

/// Messages for one system call, in the form that the kernel wants them.
#[derive(Default)]
struct Chunk<'a> {
    messages: ArrayVec<Message, MESSAGES_MAX>,
    names: ArrayVec<Name, MESSAGES_MAX>,
    controls: ArrayVec<Option<Control>, MESSAGES_MAX>,
    /// The entries of all messages, in order.
    parts: ArrayVec<IoSlice<'a>, PARTS_MAX>,
}

impl<'a> Chunk<'a> {
    fn has_room_for(&self, message: &Message) -> bool {
        !self.messages.is_full() && self.parts.remaining_capacity() >= usize::from(message.count)
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.names.clear();
        self.controls.clear();
        self.parts.clear();
    }

    fn push(&mut self, message: &Message, plan: &Plan, tx: &'a TxBatch, family: Family) {
        let target = &tx.entries()[message.first as usize].target;
        let segment_bytes = (message.count > 1).then_some(message.segment_bytes);
        self.controls.push(Control::new(&target.source, segment_bytes, family));
        self.names.push(target.peer.map_or(Name::NONE, |peer| Name::new(&peer, family)));
        for entry in plan.entries(message) {
            self.parts.push(IoSlice::new(tx.bytes(&tx.entries()[entry as usize])));
        }
        self.messages.push(*message);
    }

    fn outgoing(&self) -> ArrayVec<Outgoing<'_>, MESSAGES_MAX> {
        let mut parts = self.parts.as_slice();
        let each = self.messages.iter().zip(&self.names).zip(&self.controls);
        each.map(|((message, name), control)| {
            let (mine, rest) = parts.split_at(usize::from(message.count));
            parts = rest;
            let control = control.as_ref().map_or(&[][..], Control::as_bytes);
            Outgoing::new(name.as_bytes(), control, mine)
        })
        .collect()
    }
}

/// To wait for one link more costs some 0.1 µs, and with so many the first answer is one of many.
pub(super) const ASKED_MAX: usize = 8;

/// Entries per system call: four for each message, and at least one message of the largest kind.
const PARTS_MAX: usize = 4 * MESSAGES_MAX;
const _: () = assert!(SEGMENTS_MAX as usize <= MESSAGES_MAX && MESSAGES_MAX <= PARTS_MAX);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::SocketKind;
    use crate::socket;
    use ringgate_batch::{Endpoint, LocalIp, TxTarget};

    fn no_checksums(socket: &socket2::SockRef<'_>, value: i32) {
        socket::set_flag(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, value).expect("an option");
    }

    #[test]
    fn segments_that_are_refused_leave_one_by_one_and_the_next_are_tried_again() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let handle = socket.try_clone().expect("a second handle");
        let handle = socket2::SockRef::from(&handle);
        let mut table = Table::new();
        let id = table.insert(socket.into(), SocketKind::Datagram, ()).expect("room");
        let peer = Some(Endpoint::from(client.local_addr().expect("bound")));
        let target = TxTarget { socket: id, peer, source: LocalIp::UNSPECIFIED };
        let (mut sender, mut stats) = (Sender::default(), IoStats::default());
        // Segments need checksums, so without them every message with segments is refused.
        for (round, refused, gso_sends, syscalls) in [(0, 1, 0, 2), (1, 1, 0, 4), (2, 0, 1, 5)] {
            no_checksums(&handle, refused);
            let mut tx = TxBatch::new(10, 0);
            for n in 0..10 {
                tx.room().expect("free").send_copy(&[round, n], target, 0);
            }
            sender.flush(&table, &mut tx, &mut stats);
            assert!(!tx.has_failures());
            for n in 0..10 {
                let mut bytes = [0; 2];
                client.recv(&mut bytes).expect("sent");
                assert_eq!(bytes, [round, n]);
            }
            assert_eq!((stats.tx_gso_sends, stats.syscalls), (gso_sends, syscalls));
        }
        assert_eq!(stats.tx_datagrams, 30);
    }
}
