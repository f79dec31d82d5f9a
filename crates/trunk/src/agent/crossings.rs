//! What goes from one local worker to another: payloads of players whose gateway has died, between
//! the thread that has their game process and the one that has their new gateway.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use ringgate_io::Bell;
use ringgate_link::bundle::{Frame, Frames, SessionId};

use crate::protocol::relay::{Game, Passed};
use ringgate_core::sync::lock;

/// Where each local worker's thread is reached.
#[derive(Debug, Default)]
pub(crate) struct Crossings(Mutex<BTreeMap<usize, Arc<Inbox>>>);

/// What waits for a thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    bell: Bell,
}

/// Each with the local worker that it is for.
#[derive(Debug, Default)]
struct Waiting {
    for_games: VecDeque<(usize, Parcel)>,
    /// What is for the thread's gateway waits there while the trunk takes no more.
    for_gateway: VecDeque<(usize, Parcel)>,
    /// Of what is for the gateway, and must arrive.
    bytes: usize,
}

/// What has become of something that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way.
    Passed,
    /// It is, and so much is that its sender is to wait.
    Crowded,
    /// It goes no further.
    Refused,
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

    /// Sends something to a local worker.
    pub(crate) fn send(&self, worker: usize, passed: &Passed<'_>) -> Sent {
        let inbox = lock(&self.0).get(&worker).cloned();
        inbox.map_or(Sent::Refused, |inbox| inbox.push(worker, passed))
    }

    /// Whether so much is on its way to a local worker that who has sent some of it still waits.
    pub(crate) fn is_crowded(&self, worker: usize) -> bool {
        let inbox = lock(&self.0).get(&worker).cloned();
        inbox.is_some_and(|inbox| lock(&inbox.waiting).bytes > FREE_BYTES)
    }
}

impl Inbox {
    /// An empty one, whose thread hears this bell.
    pub(crate) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), bell })
    }

    fn push(&self, worker: usize, passed: &Passed<'_>) -> Sent {
        let parcel = Parcel::of(passed);
        let mut waiting = lock(&self.waiting);
        let is_lossy = parcel.may_be_lost();
        let max = if is_lossy { LOSSY_MAX } else { WAITING_MAX };
        let Waiting { for_games, for_gateway, bytes } = &mut *waiting;
        let is_for_game = matches!(passed, Passed::ForGame(..));
        let queue = if is_for_game { for_games } else { for_gateway };
        if queue.len() >= max {
            return Sent::Refused;
        }
        if !is_for_game {
            *bytes += parcel.bytes_to_arrive();
        }
        let was_empty = queue.is_empty();
        queue.push_back((worker, parcel));
        let is_crowded = matches!(passed, Passed::FromGame(..)) && *bytes > CROWDED_BYTES;
        drop(waiting);
        if was_empty {
            self.bell.ring();
        }
        if is_crowded && !is_lossy { Sent::Crowded } else { Sent::Passed }
    }

    /// All that waits for game processes.
    pub(crate) fn take_for_games(&self) -> VecDeque<(usize, Parcel)> {
        std::mem::take(&mut lock(&self.waiting).for_games)
    }

    /// The first of what waits for the gateway: so many bytes of what must arrive, and a parcel
    /// more.
    pub(crate) fn take_for_gateway(&self, max: usize) -> Vec<(usize, Parcel)> {
        let Waiting { for_gateway, bytes, .. } = &mut *lock(&self.waiting);
        let (mut taken, mut left) = (Vec::new(), max);
        while left > 0
            && let Some((worker, parcel)) = for_gateway.pop_front()
        {
            let len = parcel.bytes_to_arrive();
            *bytes -= len;
            left = left.saturating_sub(len);
            taken.push((worker, parcel));
        }
        taken
    }

    /// Whether something waits for the gateway.
    pub(crate) fn has_for_gateway(&self) -> bool {
        !lock(&self.waiting).for_gateway.is_empty()
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

    fn bytes_to_arrive(&self) -> usize {
        if self.may_be_lost() { 0 } else { self.record.len() }
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

/// Payloads that wait for a thread, one way: a gateway that takes nothing holds up no other one's.
const LOSSY_MAX: usize = 4096;

/// Everything that waits for it, one way: what must arrive is an opening or an end, so this is more
/// than all sessions of a gateway end at a time.
const WAITING_MAX: usize = 1 << 20;

/// Above this, a game process that has said some of what waits is read no more, until it is less
/// than the other: its session's gateway takes no more, and that one's trunk is not only for it.
const CROWDED_BYTES: usize = 1 << 20;
const FREE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use ringgate_link::bundle::{Channel, CloseReason, MessagePart, Writer};

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
        let send = |passed| crossings.send(5, &passed);
        assert_eq!(send(Passed::FromGame(1, payload)), Sent::Refused, "nobody is there");
        crossings.register(5, &inbox);
        for _ in 0..LOSSY_MAX {
            assert_eq!(send(Passed::ForGame(game, 9, payload)), Sent::Passed);
        }
        assert_eq!(send(Passed::ForGame(game, 9, payload)), Sent::Refused);
        assert_eq!(send(Passed::ForGame(game, 9, closed)), Sent::Passed);
        for _ in 0..LOSSY_MAX {
            assert_eq!(send(Passed::FromGame(1, payload)), Sent::Passed, "that is another way");
        }
        assert_eq!(send(Passed::FromGame(1, payload)), Sent::Refused);
        assert_eq!(send(Passed::Fenced(1, Some(session), closed)), Sent::Passed);
        let all = inbox.take_for_games();
        assert_eq!(all.len(), LOSSY_MAX + 1);
        assert!(all.iter().all(|(worker, _)| *worker == 5));
        assert_eq!(all[0].1.passed(), Passed::ForGame(game, 9, payload));
        assert_eq!(all[LOSSY_MAX].1.passed(), Passed::ForGame(game, 9, closed));
        let last = inbox.take_for_gateway(1);
        assert_eq!(last.len(), LOSSY_MAX + 1);
        assert_eq!(last[LOSSY_MAX].1.passed(), Passed::Fenced(1, Some(session), closed));
        crossings.remove(5);
        assert!(inbox.take_for_games().is_empty() && !inbox.has_for_gateway());
        assert_eq!(send(Passed::FromGame(1, closed)), Sent::Refused);
    }

    #[test]
    fn who_says_more_than_a_gateway_takes_waits_and_nothing_of_it_is_lost() {
        let session = SessionId::from_u64(7).expect("it is not 0");
        let mut bytes = vec![0; 20_000];
        let mut writer = Writer::new(&mut bytes);
        let (channel, bytes) = (Channel::Reliable(0), &[7; 10_000]);
        let part = MessagePart { session, channel, is_first: true, is_last: true, token: 0, bytes };
        assert!(writer.message(&part));
        let frame = Frames::new(writer.bytes()).next().expect("one").expect("whole");
        let (crossings, inbox) = (Crossings::default(), Inbox::new(Bell::new().expect("fds")));
        crossings.register(5, &inbox);
        let mut count = 1;
        while crossings.send(5, &Passed::FromGame(1, frame)) == Sent::Passed {
            count += 1;
        }
        assert!((90..=105).contains(&count), "{count}");
        let game = Passed::ForGame(Game::at(3), 9, frame);
        assert_eq!(crossings.send(5, &game), Sent::Passed, "that is another way");
        let mut taken = 0;
        while crossings.is_crowded(5) {
            taken += inbox.take_for_gateway(64 << 10).len();
        }
        assert!(taken < count && inbox.has_for_gateway());
        taken += inbox.take_for_gateway(usize::MAX).len();
        assert_eq!((taken, inbox.has_for_gateway()), (count, false));
    }
}
