//! How a worker is reached from other threads: two queues and the driver's bell.
//!
//! What other workers send (players' datagrams above all) goes into a bounded queue that refuses
//! when it is full: whoever sends counts the loss. Commands of the control thread have a queue of
//! their own, which datagrams cannot fill and which takes everything at once, in order: the control
//! thread never waits for a worker. It grows by what an operator does, a few hundred bytes each,
//! while a worker does not turn, which its health shows.
//!
//! Sockets of new listeners lie beside both: they are not the gate's to know, and are taken now and
//! then.
//!
//! The bell is rung with each message; any number of rings is one wake-up, and one system call.

use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_queue::{ArrayQueue, SegQueue};

use super::opened::NewSockets;
use ringgate_core::sync::lock;
use ringgate_gate::{Mail, WorkerId};
use ringgate_io::Bell;

/// A worker's end.
pub(super) struct Mailbox {
    commands: Arc<SegQueue<Mail>>,
    sockets: Arc<SegQueue<NewSockets>>,
    queue: Arc<ArrayQueue<Mail>>,
    bell: Bell,
}

/// Everybody else's end.
#[derive(Clone)]
pub(super) struct Post {
    commands: Arc<SegQueue<Mail>>,
    sockets: Arc<SegQueue<NewSockets>>,
    queue: Arc<ArrayQueue<Mail>>,
    bell: Bell,
}

/// The message that did not fit.
#[derive(Debug)]
pub(super) struct MailboxFull(pub(super) Box<Mail>);

/// What a thread posts through that the barrier does not stop, as the one that talks to other
/// members of a cluster. It is shut while the workers stand, and for good where another process
/// goes on with them. What comes then is refused, like what finds a mailbox full.
#[derive(Clone)]
pub struct Hatch {
    posts: Vec<Post>,
    is_shut: IsShut,
}

/// Whether a hatch is shut. Who posts holds the lock meanwhile.
#[derive(Clone, Default)]
pub(super) struct IsShut(Arc<Mutex<bool>>);

impl IsShut {
    /// Once this has returned, nothing comes through or everything does.
    pub(super) fn set(&self, is_shut: bool) {
        *self.lock() = is_shut;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        lock(&self.0)
    }
}

impl Hatch {
    pub(super) const fn new(posts: Vec<Post>, is_shut: IsShut) -> Self {
        Self { posts, is_shut }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.posts.len()
    }

    /// Delivers a message and wakes its worker. Whether it was taken.
    pub fn send(&self, to: WorkerId, mail: Mail) -> bool {
        let is_shut = self.is_shut.lock();
        !*is_shut && self.posts.get(to.index()).is_some_and(|post| post.send(mail).is_ok())
    }
}

impl Mailbox {
    pub(super) fn new(bell: Bell) -> Self {
        let queue = Arc::new(ArrayQueue::new(MAIL_MAX));
        Self { commands: Arc::default(), sockets: Arc::default(), queue, bell }
    }

    pub(super) fn post(&self) -> Post {
        Post {
            commands: Arc::clone(&self.commands),
            sockets: Arc::clone(&self.sockets),
            queue: Arc::clone(&self.queue),
            bell: self.bell.clone(),
        }
    }

    /// What one turn takes: every command that waits by now, and then so much of the rest that
    /// players do not wait for it.
    pub(super) fn take_some(&self) -> impl Iterator<Item = Mail> {
        let commands = std::iter::from_fn(|| self.commands.pop()).take(self.commands.len());
        commands.chain(std::iter::from_fn(|| self.queue.pop()).take(MAIL_PER_TURN))
    }

    /// What listeners that were added are heard on. Empties the list.
    pub(super) fn take_sockets(&self) -> impl Iterator<Item = NewSockets> {
        std::iter::from_fn(|| self.sockets.pop())
    }

    /// Whether a command waits.
    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Whether a turn has left something.
    pub(super) fn has_mail(&self) -> bool {
        !self.queue.is_empty() || !self.commands.is_empty()
    }
}

impl Post {
    /// Wakes the worker.
    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    /// Whether anything waits for it.
    pub(super) fn has_mail(&self) -> bool {
        !self.queue.is_empty() || !self.commands.is_empty() || !self.sockets.is_empty()
    }

    /// Gives a command, which is never refused, and wakes the worker.
    pub(super) fn command(&self, mail: Mail) {
        self.commands.push(mail);
        self.bell.ring();
    }

    /// Gives the sockets of a listener whose setup was given before.
    pub(super) fn give(&self, sockets: NewSockets) {
        self.sockets.push(sockets);
    }

    /// Delivers a message and wakes its worker.
    pub(super) fn send(&self, mail: Mail) -> Result<(), MailboxFull> {
        self.queue.push(mail).map_err(|mail| MailboxFull(Box::new(mail)))?;
        self.bell.ring();
        Ok(())
    }
}

/// Mail a worker may have waiting: about 650 KiB where all of it is datagrams, several turns' worth
/// of players whom the kernel hashes to the wrong worker.
const MAIL_MAX: usize = 512;

/// Messages of other workers per turn: as many as a turn takes datagrams from its own sockets. Each
/// costs about as much as one, and senders may refill the queue as fast as it is emptied.
const MAIL_PER_TURN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn left_ms(mail: &Mail) -> Option<u32> {
        if let Mail::Drain { left_ms } = mail { Some(*left_ms) } else { None }
    }

    #[test]
    fn a_full_mailbox_refuses_and_gives_the_message_back() {
        let mailbox = Mailbox::new(Bell::new().expect("an event counter"));
        let post = mailbox.post();
        for _ in 0..MAIL_MAX {
            post.send(Mail::Stop).expect("room");
        }
        let MailboxFull(mail) = post.send(Mail::Stop).expect_err("full");
        assert!(matches!(*mail, Mail::Stop));
        assert!(mailbox.take_some().next().is_some());
        assert!(post.send(Mail::Stop).is_ok());
    }

    #[test]
    fn who_never_stops_giving_commands_does_not_have_the_worker_for_them() {
        let mailbox = Mailbox::new(Bell::new().expect("an event counter"));
        let post = mailbox.post();
        post.command(Mail::Stop);
        post.command(Mail::Stop);
        let again = |_: &Mail| post.command(Mail::Stop);
        assert_eq!(mailbox.take_some().inspect(again).take(1_000_000).count(), 2);
        assert!(mailbox.has_commands());
    }

    #[test]
    fn commands_reach_a_worker_whose_mailbox_is_full_first_once_and_in_order() {
        const COMMANDS: u32 = 2000;
        let mailbox = Mailbox::new(Bell::new().expect("an event counter"));
        let post = mailbox.post();
        while post.send(Mail::Stop).is_ok() {}
        for left_ms in 0..COMMANDS {
            post.command(Mail::Drain { left_ms });
        }
        let turn: Vec<_> = mailbox.take_some().map(|mail| left_ms(&mail)).collect();
        let commands: Vec<_> = (0..COMMANDS).map(Some).collect();
        assert_eq!(turn[..commands.len()], commands);
        assert_eq!(turn.len() - commands.len(), MAIL_PER_TURN);
        assert!(mailbox.has_mail());
        let later: usize = (0..MAIL_MAX).map(|_| mailbox.take_some().count()).sum();
        assert_eq!((later, mailbox.has_mail()), (MAIL_MAX - MAIL_PER_TURN, false));
    }
}
