//! Whose connection has to go where every place is taken.
//!
//! Places are counted by holder: a connection is its caller's once it has shown a secret, and a
//! stranger's before that. Strangers push out strangers, and callers lose a place only beyond an
//! equal share. Nobody takes others' places by many connections, be they silent or with requests
//! whose bodies do not come.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::callers::CallerId;

/// What a connection is doing.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// 0 for a stranger, and a caller's place in the list of callers after that.
    holder: AtomicUsize,
    is_served: AtomicBool,
}

impl Seat {
    /// The connection is this caller's.
    pub(crate) fn hold(&self, caller: CallerId) {
        self.holder.store(1 + caller.index(), Ordering::Relaxed);
    }

    /// Whether a whole request is being served: then it is not ended for another one.
    pub(crate) fn serve(&self, is_served: bool) {
        self.is_served.store(is_served, Ordering::Relaxed);
    }
}

/// Which of these connections goes for a newcomer, the one that has waited the longest first;
/// `None` where the newcomer does. There are so many places and callers.
pub(super) fn victim<'a>(
    seats: impl Iterator<Item = &'a Seat>,
    places: usize,
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
    let newcomers = places / NEWCOMERS_PART;
    let share = (places - newcomers) / callers.max(1);
    let beyond = (1..=callers).filter(|it| held[*it] > share && oldest[*it].is_some());
    let caller = beyond.max_by_key(|it| held[*it]).and_then(|it| oldest[it]);
    if held[0] > newcomers { oldest[0].or(caller) } else { caller.or(oldest[0]) }
}

/// This part of the places is for those that have not shown a secret yet, as every caller at first.
const NEWCOMERS_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 80;

    /// So many seats of each holder, of which the last few are being served.
    fn seats(of: &[(usize, usize, usize)]) -> Vec<Seat> {
        let mut seats = Vec::new();
        for &(holder, count, served) in of {
            seats.extend((0..count).map(|at| Seat {
                holder: AtomicUsize::new(holder),
                is_served: AtomicBool::new(at >= count - served),
            }));
        }
        seats
    }

    /// Whose connection goes, of two callers.
    fn loses(of: &[(usize, usize, usize)]) -> Option<usize> {
        let seats = seats(of);
        assert_eq!(seats.len(), PLACES);
        let at = victim(seats.iter(), PLACES, 2)?;
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
}
