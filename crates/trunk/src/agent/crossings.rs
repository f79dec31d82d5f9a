//! What goes from one local worker to another: payloads of players whose gateway has died, between
//! the thread that has their game process and the one that has their new gateway.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringgate_io::Bell;
use ringgate_link::bundle::{Frame, Frames, SessionId};

use crate::protocol::relay::{Game, Passed};

/// Where each local worker's thread is reached.
#[derive(Debug, Default)]
pub(crate) struct Crossings(Mutex<BTreeMap<usize, Arc<Inbox>>>);

/// What waits for a thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<VecDeque<(usize, Parcel)>>,
    bell: Bell,
}

/// Something passed, on its way.
#[derive(Debug)]
pub(crate) struct Parcel {
    to: To,
    /// Nothing where there is only something to be done.
    record: Box<[u8]>,
}

#[derive(Debug)]
enum To {
    Game(Game, u8),
    Link(u16),
    HomeLost(u16),
    Fenced(u16, Option<SessionId>),
}

impl Crossings {
    /// A local worker is this thread's.
    pub(crate) fn register(&self, worker: usize, inbox: &Arc<Inbox>) {
        lock(&self.0).insert(worker, Arc::clone(inbox));
    }

    /// It is nobody's.
    pub(crate) fn remove(&self, worker: usize) {
        lock(&self.0).remove(&worker);
    }

    /// Sends something to a local worker. False where it goes no further.
    pub(crate) fn send(&self, worker: usize, passed: &Passed<'_>) -> bool {
        let inbox = lock(&self.0).get(&worker).cloned();
        inbox.is_some_and(|inbox| inbox.push(worker, passed))
    }
}

impl Inbox {
    /// An empty one, whose thread hears this bell.
    pub(crate) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), bell })
    }

    fn push(&self, worker: usize, passed: &Passed<'_>) -> bool {
        let parcel = Parcel::of(passed);
        let mut waiting = lock(&self.waiting);
        let max = if parcel.may_be_lost() { LOSSY_MAX } else { WAITING_MAX };
        if waiting.len() >= max {
            return false;
        }
        let was_empty = waiting.is_empty();
        waiting.push_back((worker, parcel));
        drop(waiting);
        if was_empty {
            self.bell.ring();
        }
        true
    }

    /// All that waits, with the local worker that it is for.
    pub(crate) fn take(&self) -> VecDeque<(usize, Parcel)> {
        std::mem::take(&mut lock(&self.waiting))
    }
}

impl Parcel {
    fn of(passed: &Passed<'_>) -> Self {
        let (to, frame) = match *passed {
            Passed::ForGame(game, turn, frame) => (To::Game(game, turn), Some(frame)),
            Passed::FromGame(link, frame) => (To::Link(link), Some(frame)),
            Passed::HomeLost(link) => (To::HomeLost(link), None),
            Passed::Fenced(link, session, frame) => (To::Fenced(link, session), Some(frame)),
        };
        Self { to, record: frame.map_or(&[][..], Frame::bytes).into() }
    }

    fn may_be_lost(&self) -> bool {
        Frames::new(&self.record).flatten().any(Frame::may_be_lost)
    }

    fn frame(&self) -> Frame<'_> {
        let frame = Frames::new(&self.record).next().and_then(Result::ok);
        frame.expect("it was one")
    }

    /// What was passed.
    pub(crate) fn passed(&self) -> Passed<'_> {
        match self.to {
            To::Game(game, turn) => Passed::ForGame(game, turn, self.frame()),
            To::Link(link) => Passed::FromGame(link, self.frame()),
            To::HomeLost(link) => Passed::HomeLost(link),
            To::Fenced(link, session) => Passed::Fenced(link, session, self.frame()),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Payloads that wait for a thread.
const LOSSY_MAX: usize = 4096;

/// Everything that waits for it: what must arrive is an opening or an end, so this is more than all
/// sessions of a gateway end at a time.
const WAITING_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use ringgate_link::bundle::{CloseReason, Writer};

    use super::*;

    #[test]
    fn what_is_passed_comes_in_order_and_payloads_are_bounded() {
        let session = SessionId::from_u64(7).expect("it is not 0");
        let mut bytes = [0; 64];
        let mut writer = Writer::new(&mut bytes);
        assert!(writer.payload(session, b"hi") && writer.closed(session, CloseReason::Other));
        let mut frames = Frames::new(writer.bytes()).map(|it| it.expect("whole"));
        let (payload, closed) = (frames.next().expect("one"), frames.next().expect("two"));
        let (crossings, inbox) = (Crossings::default(), Inbox::new(Bell::new().expect("fds")));
        let game = Game::at(3);
        assert!(!crossings.send(5, &Passed::FromGame(1, payload)), "nobody is there");
        crossings.register(5, &inbox);
        for _ in 0..LOSSY_MAX {
            assert!(crossings.send(5, &Passed::ForGame(game, 9, payload)));
        }
        assert!(!crossings.send(5, &Passed::FromGame(1, payload)));
        assert!(crossings.send(5, &Passed::ForGame(game, 9, closed)));
        assert!(crossings.send(5, &Passed::Fenced(1, Some(session), closed)));
        let all = inbox.take();
        assert_eq!(all.len(), LOSSY_MAX + 2);
        assert!(all.iter().all(|(worker, _)| *worker == 5));
        assert_eq!(all[0].1.passed(), Passed::ForGame(game, 9, payload));
        let last = &all[LOSSY_MAX + 1].1;
        assert_eq!(last.passed(), Passed::Fenced(1, Some(session), closed));
        crossings.remove(5);
        assert!(inbox.take().is_empty() && !crossings.send(5, &Passed::FromGame(1, closed)));
    }
}
