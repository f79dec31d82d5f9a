//! How a worker is reached from other threads: a bounded queue and the driver's bell.
//!
//! The bell is rung once per message; the driver takes any number of rings as one wake-up. A full mailbox refuses: whoever
//! sends a player's datagram counts the loss, whoever sends a command waits.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

use crate::gate::Mail;
use crate::io::Bell;

/// A worker's end.
pub(super) struct Mailbox {
    queue: Arc<ArrayQueue<Mail>>,
    bell: Bell,
}

/// Everybody else's end.
#[derive(Clone)]
pub struct Post {
    queue: Arc<ArrayQueue<Mail>>,
    bell: Bell,
}

/// The message that did not fit.
#[derive(Debug)]
pub struct MailboxFull(pub Box<Mail>);

impl Mailbox {
    pub(super) fn new(bell: Bell) -> Self {
        Self { queue: Arc::new(ArrayQueue::new(MAIL_MAX)), bell }
    }

    pub(super) fn post(&self) -> Post {
        Post { queue: Arc::clone(&self.queue), bell: self.bell.clone() }
    }

    pub(super) fn take(&self) -> Option<Mail> {
        self.queue.pop()
    }
}

impl Post {
    /// Delivers a message and wakes its worker.
    pub fn send(&self, mail: Mail) -> Result<(), MailboxFull> {
        self.queue.push(mail).map_err(|mail| MailboxFull(Box::new(mail)))?;
        self.bell.ring();
        Ok(())
    }
}

/// Mail a worker may have waiting: about 650 KiB where all of it is datagrams, several turns' worth of players whom the kernel
/// hashes to the wrong worker.
const MAIL_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_refuses_and_gives_the_message_back() {
        let mailbox = Mailbox::new(Bell::new().expect("an event counter"));
        let post = mailbox.post();
        for _ in 0..MAIL_MAX {
            post.send(Mail::Stop).expect("room");
        }
        let MailboxFull(mail) = post.send(Mail::Stop).expect_err("full");
        assert!(matches!(*mail, Mail::Stop));
        assert!(mailbox.take().is_some());
        assert!(post.send(Mail::Stop).is_ok());
    }
}
