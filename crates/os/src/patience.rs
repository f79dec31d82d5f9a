//! Waiting for what somebody else has just let go of: the kernel takes a queue, or a program off an
//! interface, some time after the process that had it is gone, and closes its sockets one by one.

use std::io;
use std::time::Duration;

use crate::clock::{self, Clock};

/// Does something again while the kernel calls it busy.
pub fn while_busy<T>(attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_busy = |why: &io::Error| why.raw_os_error() == Some(libc::EBUSY);
    patiently(Duration::from_secs(2), is_busy, attempt)
}

/// Does something again until nobody is in the way, for a while.
pub fn patiently<T, E>(
    patience: Duration,
    is_in_the_way: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let clock = Clock::start();
    loop {
        match attempt() {
            Err(why) if is_in_the_way(&why) && clock.now_ns() < patience.as_nanos() as u64 => {
                clock::sleep(AGAIN_AFTER);
            }
            outcome => return outcome,
        }
    }
}

const AGAIN_AFTER: Duration = Duration::from_millis(10);
