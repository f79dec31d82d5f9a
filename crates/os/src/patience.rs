//! Waiting for what somebody else has just let go of: the kernel takes a queue, or a program off an
//! interface, some time after the process that had it is gone.

use std::io;
use std::time::Duration;

use crate::clock::{self, Clock};

/// Does something again until nobody is in the way, for a while.
pub fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let clock = Clock::start();
    loop {
        match attempt() {
            Err(why) if why.raw_os_error() == Some(libc::EBUSY) && clock.now_ns() < PATIENCE_NS => {
                clock::sleep(AGAIN_AFTER);
            }
            outcome => return outcome,
        }
    }
}

const PATIENCE_NS: u64 = 2_000_000_000;

const AGAIN_AFTER: Duration = Duration::from_millis(10);
