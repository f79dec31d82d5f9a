//! Processes that have connected and not said yet who they are: which of them goes where one more
//! comes.
//!
//! A silent process keeps no other one out. A user may have so many silent connections; at one more
//! the process that has most of them loses its oldest.

use arrayvec::ArrayVec;

use crate::Credentials;

/// A process that has said nothing yet.
#[derive(Clone, Copy, Debug)]
pub struct Nameless<I> {
    /// Which one it is for the caller.
    pub at: I,
    /// Whose it is.
    pub credentials: Credentials,
    /// Later ones have a greater number.
    pub serial: u64,
}

/// What becomes of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newcomer<I> {
    /// It may wait.
    Waits,
    /// It may, and this one goes.
    WaitsInsteadOf(I),
    /// There are too many, or too many of its process.
    Refused,
}

impl<I: Copy> Newcomer<I> {
    /// Decides what becomes of a connection with these credentials, beside those that wait.
    pub fn decide(
        of: Credentials,
        all_max: usize,
        waiting: impl Iterator<Item = Nameless<I>>,
    ) -> Self {
        let (mut count, mut users) = (0, ArrayVec::<_, PER_USER_MAX>::new());
        for it in waiting {
            count += 1;
            if it.credentials.uid == of.uid {
                let _ = users.try_push(it);
            }
        }
        let its = |pid: u32| users.iter().filter(|it| it.credentials.pid == pid).count();
        // Of a process in another namespace the kernel does not say which one it is.
        if count >= all_max || of.pid != 0 && its(of.pid) >= PER_PROCESS_MAX {
            return Self::Refused;
        }
        if !users.is_full() {
            return Self::Waits;
        }
        let most = users.iter().map(|it| its(it.credentials.pid)).max();
        let whose = users.iter().filter(|it| Some(its(it.credentials.pid)) == most);
        let oldest = whose.min_by_key(|it| it.serial);
        oldest.map_or(Self::Waits, |it| Self::WaitsInsteadOf(it.at))
    }
}

/// Those of one user. Those of a host that all come back to a restarted gateway are accepted a few
/// at a time, and have said it by the next turn.
const PER_USER_MAX: usize = 32;

/// Those of one process: as many as are accepted at a time.
const PER_PROCESS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_MAX: usize = 100;

    fn of(uid: u32, pid: u32) -> Credentials {
        Credentials { uid, gid: uid, pid }
    }

    /// As many of each, in this order.
    fn waiting(groups: &[(Credentials, usize)]) -> Vec<Nameless<usize>> {
        let all = groups.iter().flat_map(|(whose, many)| std::iter::repeat_n(*whose, *many));
        let numbered = all.enumerate();
        numbered.map(|(at, credentials)| Nameless { at, credentials, serial: at as u64 }).collect()
    }

    fn comes(of: Credentials, groups: &[(Credentials, usize)]) -> Newcomer<usize> {
        Newcomer::decide(of, ALL_MAX, waiting(groups).into_iter())
    }

    #[test]
    fn a_process_that_is_silent_keeps_no_other_out() {
        assert_eq!(comes(of(1, 1), &[(of(1, 1), 15)]), Newcomer::Waits);
        assert_eq!(comes(of(1, 1), &[(of(1, 1), 16)]), Newcomer::Refused);
        assert_eq!(comes(of(1, 2), &[(of(1, 1), 16)]), Newcomer::Waits);
        let user_is_full = [(of(1, 3), 15), (of(1, 1), 16), (of(1, 2), 1)];
        assert_eq!(comes(of(1, 4), &user_is_full), Newcomer::WaitsInsteadOf(15));
        assert_eq!(comes(of(2, 4), &user_is_full), Newcomer::Waits);
    }

    #[test]
    fn so_many_wait_altogether() {
        let users: Vec<_> = (0..10).map(|uid| (of(uid, uid), 10)).collect();
        assert_eq!(comes(of(99, 99), &users), Newcomer::Refused);
        assert_eq!(comes(of(99, 99), &users[1..]), Newcomer::Waits);
    }

    #[test]
    fn processes_that_the_kernel_does_not_name_are_told_apart_by_their_user() {
        assert_eq!(comes(of(1, 0), &[(of(1, 0), 31)]), Newcomer::Waits);
        assert_eq!(comes(of(1, 0), &[(of(1, 0), 32)]), Newcomer::WaitsInsteadOf(0));
    }
}
