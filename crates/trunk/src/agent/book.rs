//! Which local worker each lane of each gateway is, agreed on by the threads of an agent.
//!
//! To game processes the agent is one gateway with so many workers. Worker 0 is the agent's own: it
//! never has players, so it can be hung up on whenever the number of workers grows, which is how
//! game processes come to know. A number that was given out is counted for ever; one whose lane is
//! no more goes to another lane.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ringgate_io::Bell;
use ringgate_link::bundle::WORKERS_MAX;

/// Numbers of local workers.
#[derive(Debug)]
pub(crate) struct Book {
    /// Whether each number is a lane's.
    taken: Mutex<Vec<bool>>,
    workers: AtomicUsize,
    /// Of the thread that has worker 0.
    bell: Bell,
}

impl Book {
    /// Worker 0 alone. The bell is rung when there are more.
    pub(crate) const fn new(bell: Bell) -> Self {
        Self { taken: Mutex::new(Vec::new()), workers: AtomicUsize::new(1), bell }
    }

    /// The book of an agent that goes on with another's, who had so many workers.
    pub(crate) fn of(bell: Bell, workers: usize) -> Self {
        let taken = Mutex::new(vec![false; workers - 1]);
        Self { taken, workers: AtomicUsize::new(workers), bell }
    }

    /// A lane goes on with its number; worker 0 is nobody's. False where it is another lane's.
    pub(crate) fn take_again(&self, worker: usize) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match worker.checked_sub(1) {
            None => true,
            Some(at) => taken.get_mut(at).is_some_and(|it| !std::mem::replace(it, true)),
        }
    }

    /// How many workers game processes have to know.
    pub(crate) fn workers(&self) -> usize {
        self.workers.load(Ordering::Acquire)
    }

    /// Numbers for so many lanes, as far as there are any.
    pub(crate) fn take(&self, count: usize) -> Vec<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.len();
        let mut numbers = Vec::with_capacity(count);
        for (at, is_taken) in taken.iter_mut().enumerate().filter(|(_, is_taken)| !**is_taken) {
            if numbers.len() == count {
                break;
            }
            *is_taken = true;
            numbers.push(at + 1);
        }
        while numbers.len() < count && taken.len() + 1 < WORKERS_MAX {
            taken.push(true);
            numbers.push(taken.len());
        }
        if taken.len() > before {
            self.workers.store(taken.len() + 1, Ordering::Release);
            self.bell.ring();
        }
        numbers
    }

    /// A lane is no more.
    pub(crate) fn give_back(&self, worker: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_taken) = worker.checked_sub(1).and_then(|at| taken.get_mut(at)) {
            *is_taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_before_there_are_more() {
        let book = Book::new(Bell::new().expect("descriptors are left"));
        assert_eq!((book.take(2), book.workers()), (vec![1, 2], 3));
        assert_eq!((book.take(1), book.workers()), (vec![3], 4));
        book.give_back(2);
        assert_eq!((book.take(2), book.workers()), (vec![2, 4], 5));
        assert_eq!(book.take(WORKERS_MAX).len(), WORKERS_MAX - 5);
        assert_eq!((book.take(1), book.workers()), (Vec::new(), WORKERS_MAX));
    }
}
