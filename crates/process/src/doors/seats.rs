//! The connections of a door, and whose has to go where every seat is taken.
//!
//! Seats are counted by holder: a connection is its caller's once it has shown a secret, and a
//! stranger's before that. Strangers push out strangers, and callers lose a seat only beyond an
//! equal share. Nobody takes others' seats by many connections, be they silent or with requests
//! whose bodies do not come. A door that tells no callers apart has strangers only, of whom the one
//! that has waited the longest goes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;

/// What a door bounds.
#[derive(Clone, Copy, Debug)]
pub struct DoorLimits {
    /// Connections at a time.
    pub seats: usize,
    /// Callers that share them.
    pub callers: usize,
    /// Bytes of answers that wait for their readers, all connections together, where they are
    /// bounded.
    pub unread_bytes: Option<usize>,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// From the connection, or the answer before, to the end of a request's head.
    pub head_within: Duration,
    /// From the connection to the end of the answer of a connection that carries one request;
    /// `None` where others may follow.
    pub whole_within: Option<Duration>,
}

/// What is known of a connection.
#[derive(Debug, Default)]
pub struct Seat {
    /// 0 for a stranger, and 1 and a caller's number after that.
    holder: AtomicUsize,
    is_served: AtomicBool,
    /// Of its answer.
    bytes: AtomicUsize,
    pub(super) task: OnceLock<AbortHandle>,
}

impl Seat {
    /// The connection is this caller's.
    pub fn hold(&self, caller: usize) {
        self.holder.store(1 + caller, Ordering::Relaxed);
    }

    /// Whether a request is being served that takes no more help of its peer: then it is not ended
    /// for another one.
    pub fn serve(&self, is_served: bool) {
        self.is_served.store(is_served, Ordering::Relaxed);
    }
}

/// The connections of a door, the one that has waited the longest first.
#[derive(Debug, Default)]
pub(super) struct Seats(VecDeque<Arc<Seat>>);

impl Seats {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self, limits: &DoorLimits) -> bool {
        self.0.len() >= limits.seats
    }

    /// A seat for a newcomer. There is room for it.
    pub(super) fn take(&mut self) -> Arc<Seat> {
        self.0.push_back(Arc::default());
        self.0.back().map(Arc::clone).expect("it was taken just now")
    }

    /// Gives a seat back.
    pub(super) fn leave(&mut self, seat: &Arc<Seat>) {
        self.0.retain(|it| !Arc::ptr_eq(it, seat));
    }

    /// A connection was used: others have waited longer.
    pub(super) fn touch(&mut self, seat: &Arc<Seat>) {
        if let Some(at) = self.0.iter().position(|it| Arc::ptr_eq(it, seat)) {
            let _ = self.0.remove(at).map(|seat| self.0.push_back(seat));
        }
    }

    /// Ends a connection that has waited long. Whether there was one.
    pub(super) fn evict(&mut self, limits: &DoorLimits) -> bool {
        let goes = victim(self.0.iter().map(|it| &**it), limits.seats, limits.callers);
        goes.is_some_and(|at| self.end(at))
    }

    /// An answer of so many bytes is there to be read; the oldest of the others that hold too much
    /// together make room. How many of them did.
    pub(super) fn answer(&mut self, seat: &Arc<Seat>, bytes: usize, limits: &DoorLimits) -> usize {
        seat.serve(false);
        seat.bytes.store(bytes, Ordering::Relaxed);
        let held = |it: &Arc<Seat>| it.bytes.load(Ordering::Relaxed);
        let mut ended = 0;
        let sum = |seats: &Self| seats.0.iter().map(held).sum::<usize>();
        while limits.unread_bytes.is_some_and(|max| sum(self) > max) {
            let goes = |it: &Arc<Seat>| {
                !it.is_served.load(Ordering::Relaxed) && !Arc::ptr_eq(it, seat) && held(it) > 0
            };
            let Some(at) = self.0.iter().position(goes) else { break };
            ended += usize::from(self.end(at));
        }
        ended
    }

    fn end(&mut self, at: usize) -> bool {
        let seat = self.0.remove(at);
        seat.as_ref().and_then(|it| it.task.get()).inspect(|it| it.abort());
        seat.is_some()
    }
}

/// Which of these connections goes for a newcomer, the one that has waited the longest first;
/// `None` where the newcomer does. There are so many seats and callers.
fn victim<'a>(
    seats: impl Iterator<Item = &'a Seat>,
    seats_max: usize,
    callers: usize,
) -> Option<usize> {
    let mut held = vec![0_usize; 1 + callers];
    let mut oldest = vec![None; 1 + callers];
    for (at, seat) in seats.enumerate() {
        let holder = seat.holder.load(Ordering::Relaxed).min(callers);
        held[holder] += 1;
        if !seat.is_served.load(Ordering::Relaxed) {
            oldest[holder].get_or_insert(at);
        }
    }
    let newcomers = seats_max / NEWCOMERS_PART;
    let share = (seats_max - newcomers) / callers.max(1);
    let beyond = (1..=callers).filter(|it| held[*it] > share && oldest[*it].is_some());
    let caller = beyond.max_by_key(|it| held[*it]).and_then(|it| oldest[it]);
    if held[0] > newcomers { oldest[0].or(caller) } else { caller.or(oldest[0]) }
}

/// This part of the seats is for those that have not shown a secret yet, as every caller at first.
const NEWCOMERS_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SEATS: usize = 80;

    /// So many seats of each holder, of which the last few are being served.
    fn seats(of: &[(usize, usize, usize)]) -> Vec<Seat> {
        let mut seats = Vec::new();
        for &(holder, count, served) in of {
            seats.extend((0..count).map(|at| Seat {
                holder: AtomicUsize::new(holder),
                is_served: AtomicBool::new(at >= count - served),
                ..Seat::default()
            }));
        }
        seats
    }

    /// Whose connection goes, of two callers.
    fn loses(of: &[(usize, usize, usize)]) -> Option<usize> {
        let seats = seats(of);
        assert_eq!(seats.len(), SEATS);
        let at = victim(seats.iter(), SEATS, 2)?;
        assert!(!seats[at].is_served.load(Ordering::Relaxed));
        let holder = seats[at].holder.load(Ordering::Relaxed);
        let is_it = |it: &Seat| it.holder.load(Ordering::Relaxed) == holder;
        assert_eq!(seats.iter().position(is_it), Some(at), "it has waited the longest");
        Some(holder)
    }

    #[test]
    fn strangers_take_nothing_from_callers_within_their_share() {
        assert_eq!(loses(&[(1, 35, 0), (2, 30, 0), (0, 15, 0)]), Some(0));
        assert_eq!(loses(&[(1, 70, 0), (0, 10, 0)]), Some(1), "newcomers have their part");
        assert_eq!(loses(&[(1, 69, 0), (0, 11, 0)]), Some(0));
    }

    #[test]
    fn a_caller_with_more_than_its_share_makes_room_for_others() {
        assert_eq!(loses(&[(2, 30, 0), (1, 45, 0), (0, 5, 0)]), Some(1));
        assert_eq!(loses(&[(2, 44, 0), (1, 36, 0)]), Some(2));
        assert_eq!(loses(&[(1, 35, 0), (2, 35, 0), (0, 10, 0)]), Some(0));
    }

    #[test]
    fn what_is_being_served_never_goes() {
        assert_eq!(loses(&[(1, 70, 70), (0, 10, 9)]), Some(0));
        assert_eq!(loses(&[(1, 70, 70), (2, 10, 0)]), None, "it is within its share");
        assert_eq!(loses(&[(1, 60, 60), (0, 20, 20)]), None);
        assert_eq!(loses(&[(1, 60, 10), (0, 20, 20)]), Some(1));
    }

    const LIMITS: DoorLimits = DoorLimits {
        seats: 3,
        callers: 0,
        unread_bytes: Some(100),
        head_bytes: 8192,
        head_within: Duration::from_secs(2),
        whole_within: None,
    };

    /// Which of the seats are left.
    fn left(of: &Seats, seats: &[Arc<Seat>]) -> Vec<usize> {
        let place = |left: &Arc<Seat>| seats.iter().position(|it| Arc::ptr_eq(it, left));
        of.0.iter().map(|it| place(it).expect("one of them")).collect()
    }

    #[test]
    fn the_oldest_that_waits_for_its_peer_makes_room() {
        let mut all = Seats::default();
        let mut seats: Vec<_> = (0..3).map(|_| all.take()).collect();
        seats[0].serve(true);
        assert!(all.is_full(&LIMITS) && all.evict(&LIMITS));
        seats.push(all.take());
        assert_eq!(left(&all, &seats), [0, 2, 3]);
        all.touch(&seats[2]);
        assert_eq!(left(&all, &seats), [0, 3, 2], "it was used");
        for seat in &seats {
            seat.serve(true);
        }
        assert!(!all.evict(&LIMITS), "changes are not cut off");
        all.leave(&seats[3]);
        assert_eq!(left(&all, &seats), [0, 2]);
    }

    #[test]
    fn answers_that_nobody_reads_are_bounded_together() {
        let mut all = Seats::default();
        let seats: Vec<_> = (0..4).map(|_| all.take()).collect();
        let ended: Vec<_> = seats[..3].iter().map(|it| all.answer(it, 40, &LIMITS)).collect();
        assert_eq!((ended, left(&all, &seats)), (vec![0, 0, 1], vec![1, 2, 3]));
        assert_eq!(all.answer(&seats[3], 1000, &LIMITS), 2, "one answer alone may be longer");
        assert_eq!(left(&all, &seats), [3]);
    }
}
