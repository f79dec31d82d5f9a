//! Players' datagrams on their way to other members of the cluster: a bounded queue for each
//! worker, and the bell of the thread that sends them.
//!
//! A queue that is full refuses, and the worker counts the loss.

use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use ringgate_gate::{ForwardedDatagram, MemberId};
use ringgate_io::Bell;

/// The queues of all workers, and who empties them.
#[derive(Clone)]
pub struct Departures(Arc<Inner>);

struct Inner {
    queues: Vec<Queue>,
    /// Of the thread that empties them, once that is there.
    bell: OnceLock<Bell>,
}

/// Of one worker. What is on its way is in memory that is there from the beginning, of which no
/// more is touched than a datagram is long.
struct Queue {
    waiting: ArrayQueue<(MemberId, Box<ForwardedDatagram>)>,
    spare: ArrayQueue<Box<ForwardedDatagram>>,
}

impl Queue {
    fn new() -> Self {
        let (waiting, spare) = (ArrayQueue::new(WAITING_MAX), ArrayQueue::new(WAITING_MAX));
        while spare.push(Box::new(ForwardedDatagram::blank())).is_ok() {}
        Self { waiting, spare }
    }

    fn push(&self, to: MemberId, datagram: &ForwardedDatagram) -> bool {
        let Some(mut memory) = self.spare.pop() else { return false };
        memory.copy_from(datagram);
        self.waiting.push((to, memory)).is_ok()
    }

    fn pop(&self, handle: impl FnOnce(MemberId, &ForwardedDatagram)) -> bool {
        let Some((member, datagram)) = self.waiting.pop() else { return false };
        handle(member, &datagram);
        self.spare.push(datagram).is_ok()
    }
}

impl Departures {
    pub(super) fn new(workers: usize) -> Self {
        let queues = (0..workers).map(|_| Queue::new()).collect();
        Self(Arc::new(Inner { queues, bell: OnceLock::new() }))
    }

    /// Has a bell rung, the first that is given, when something has come.
    pub fn ring(&self, bell: Bell) {
        bell.ring();
        let _ = self.0.bell.set(bell);
    }

    /// Takes what has come, of each worker so much at the most. What is left rings no bell: where
    /// [`has_more`](Self::has_more), the thread looks again by itself.
    pub fn take(&self, max: usize, mut handle: impl FnMut(MemberId, &ForwardedDatagram)) {
        for queue in &self.0.queues {
            let mut left = max;
            while left > 0 && queue.pop(&mut handle) {
                left -= 1;
            }
        }
    }

    /// Whether anything waits.
    pub fn has_more(&self) -> bool {
        self.0.queues.iter().any(|queue| !queue.waiting.is_empty())
    }

    /// Whether anything of one worker waits.
    pub(super) fn has_of(&self, worker: usize) -> bool {
        self.0.queues.get(worker).is_some_and(|queue| !queue.waiting.is_empty())
    }

    /// Whether there was room for it. Who sends [wakes](Self::wake) the thread for all of it.
    pub(super) fn send(&self, worker: usize, to: MemberId, datagram: &ForwardedDatagram) -> bool {
        self.0.queues.get(worker).is_some_and(|queue| queue.push(to, datagram))
    }

    /// Rings.
    pub(super) fn wake(&self) {
        if let Some(bell) = self.0.bell.get() {
            bell.ring();
        }
    }
}

/// As many as another worker's mailbox takes.
const WAITING_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::{Endpoint, LocalIp};
    use ringgate_gate::{Address, BindId, ListenerId, WorkerId};

    fn datagram() -> ForwardedDatagram {
        let endpoint = Endpoint::v4([192, 0, 2, 1], 1);
        let address = Address { listener: ListenerId(0), endpoint };
        let to = (BindId(0), LocalIp::UNSPECIFIED);
        let parties = (MemberId(0), WorkerId(0));
        ForwardedDatagram::of_member(parties, address, to, false, b"x").expect("short")
    }

    #[test]
    fn a_full_queue_refuses_and_one_bell_is_rung_for_all_that_waits() {
        let (departures, bell) = (Departures::new(2), Bell::new().expect("an event counter"));
        departures.ring(bell.clone());
        assert!(bell.take());
        let send = |worker| departures.send(worker, MemberId(3), &datagram());
        assert!((0..WAITING_MAX).all(|_| send(0)));
        assert!(!send(0) && send(1) && !send(2));
        assert!(!bell.take());
        departures.wake();
        assert!(bell.take());
        let mut taken = Vec::new();
        departures.take(WAITING_MAX - 1, |member, _| taken.push(member));
        assert!(taken.len() == WAITING_MAX && taken.iter().all(|it| *it == MemberId(3)));
        assert!(departures.has_more());
        assert!(send(0));
        departures.take(2, |_, _| {});
        assert!(!departures.has_more());
    }
}
