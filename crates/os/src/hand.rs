//! Threads that are there before they have work. A runtime ends the process where the system has no
//! thread left for what may take long; here that is an error, before anything was given away.

use std::future::poll_fn;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{Builder, JoinHandle};

/// A thread that waits for its work, and ends behind it.
#[derive(Debug)]
pub struct Hand {
    give: SyncSender<Work>,
    thread: JoinHandle<()>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Hand {
    /// Starts one with this name.
    pub fn ready(name: &str) -> io::Result<Self> {
        Self::of(Builder::new().name(name.to_owned()))
    }

    fn of(thread: Builder) -> io::Result<Self> {
        let (give, given) = sync_channel::<Work>(1);
        let wait = move || given.recv().into_iter().for_each(|work| work());
        let said =
            |why: io::Error| io::Error::new(why.kind(), format!("cannot start a thread: {why}"));
        Ok(Self { give, thread: thread.spawn(wait).map_err(said)? })
    }

    /// Has it do that.
    pub fn work(self, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        // It lives: it waits for nothing else.
        drop(self.give.send(Box::new(work)));
        self.thread
    }

    /// The same, for what comes of it. It is done, too, where nobody waits for that any more.
    pub async fn ask<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let shelf = Arc::new(Mutex::new((None, Waker::noop().clone())));
        let of_thread = Arc::clone(&shelf);
        drop(self.work(move || {
            let done = work();
            let mut shelf = of_thread.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.0 = Some(done);
            shelf.1.wake_by_ref();
        }));
        let take = poll_fn(|context| {
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            shelf.1.clone_from(context.waker());
            shelf.0.take().map_or(Poll::Pending, Poll::Ready)
        });
        take.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Wake};
    use std::thread::{self, Thread};

    use super::*;

    #[test]
    fn a_thread_that_cannot_be_is_an_error_and_one_that_is_there_works() {
        // No host has so much memory.
        let why = Hand::of(Builder::new().stack_size(1 << 60)).expect_err("it cannot be");
        assert!(why.to_string().starts_with("cannot start a thread: "), "{why}");
        let (tell, told) = mpsc::channel();
        let work = move || tell.send(thread::current().name().map(str::to_owned)).expect("heard");
        Hand::ready("at-hand").expect("it can").work(work).join().expect("it has worked");
        assert_eq!(told.recv().expect("said").as_deref(), Some("at-hand"));
        drop(Hand::ready("idle").expect("it can"));
    }

    struct Sleeper(Thread);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn whoever_waits_for_what_comes_of_it_is_woken() {
        let (go_on, wait) = mpsc::channel::<u32>();
        let hand = Hand::ready("asked").expect("it can");
        let mut answer = Box::pin(hand.ask(move || wait.recv().expect("a number") + 1));
        let waker = Arc::new(Sleeper(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        assert_eq!(answer.as_mut().poll(&mut context), Poll::Pending);
        go_on.send(6).expect("it waits");
        let answer = loop {
            if let Poll::Ready(answer) = answer.as_mut().poll(&mut context) {
                break answer;
            }
            thread::park();
        };
        assert_eq!(answer, 7);
    }
}
