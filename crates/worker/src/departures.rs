//! Players' datagrams on their way to other members of the cluster: a bounded queue for each
//! worker, and the bell of the thread that sends them.
//!
//! A queue that is full refuses, and the worker counts the loss. The bell is rung once for all that
//! comes until the thread looks again.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;

use ringgate_gate::{ForwardedDatagram, MemberId};
use ringgate_io::Bell;

/// The queues of all workers, and who empties them.
#[derive(Clone)]
pub struct Departures(Arc<Inner>);

struct Inner {
    queues: Vec<ArrayQueue<(MemberId, ForwardedDatagram)>>,
    /// Of the thread that empties them, once that is there.
    bell: OnceLock<Bell>,
    is_rung: AtomicBool,
}

impl Departures {
    pub(super) fn new(workers: usize) -> Self {
        let queues = (0..workers).map(|_| ArrayQueue::new(WAITING_MAX)).collect();
        let (bell, is_rung) = (OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(Inner { queues, bell, is_rung }))
    }

    /// Has a bell rung, the first that is given, when something has come since
    /// [`take`](Self::take).
    pub fn ring(&self, bell: Bell) {
        bell.ring();
        let _ = self.0.bell.set(bell);
    }

    /// Takes what has come, of each worker so much at the most. What is left rings no bell: where
    /// [`has_more`](Self::has_more), the thread looks again by itself.
    pub fn take(&self, max: usize, mut handle: impl FnMut(MemberId, ForwardedDatagram)) {
        self.0.is_rung.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        for queue in &self.0.queues {
            for (member, datagram) in std::iter::from_fn(|| queue.pop()).take(max) {
                handle(member, datagram);
            }
        }
    }

    /// Whether anything waits.
    pub fn has_more(&self) -> bool {
        self.0.queues.iter().any(|queue| !queue.is_empty())
    }

    pub(super) fn send(
        &self,
        worker: usize,
        to: MemberId,
        datagram: ForwardedDatagram,
    ) -> Result<(), Box<ForwardedDatagram>> {
        let Some(queue) = self.0.queues.get(worker) else { return Err(Box::new(datagram)) };
        queue.push((to, datagram)).map_err(|(_, datagram)| Box::new(datagram))?;
        self.wake();
        Ok(())
    }

    /// Rings, unless that was done since the thread has last looked.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if let Some(bell) = self.0.bell.get()
            && !self.0.is_rung.swap(true, Ordering::AcqRel)
        {
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
    fn a_full_queue_refuses_and_the_bell_is_rung_once_until_somebody_looks() {
        let (departures, bell) = (Departures::new(2), Bell::new().expect("an event counter"));
        departures.ring(bell.clone());
        assert!(bell.take());
        let send = |worker| departures.send(worker, MemberId(3), datagram()).is_ok();
        assert!((0..WAITING_MAX).all(|_| send(0)));
        assert!(!send(0) && send(1) && !send(2));
        assert!(bell.take());
        assert!(!bell.take());
        let mut taken = Vec::new();
        departures.take(WAITING_MAX - 1, |member, _| taken.push(member));
        assert!(taken.len() == WAITING_MAX && taken.iter().all(|it| *it == MemberId(3)));
        assert!(departures.has_more());
        assert!(send(0) && bell.take());
        departures.take(2, |_, _| {});
        assert!(!departures.has_more());
    }
}
