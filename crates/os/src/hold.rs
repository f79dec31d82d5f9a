//! Points at which a test has this process stop, by their names, so that it dies exactly there.
//!
//! `RINGGATE_HOLD` has two descriptors of pipes that the process has inherited, and a name. When
//! it first comes to that point, it says its number on the first, and stops until the second says
//! something or ends; what other threads do goes on. Without debug assertions there are neither
//! points nor names: `.ci/run` searches what ships for them.

#[cfg(debug_assertions)]
use std::{
    fs::File,
    io::{Read, Write},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// A point, whose name is made as `format!` makes it.
#[macro_export]
macro_rules! hold_point {
    ($($name:tt)+) => {
        #[cfg(debug_assertions)]
        $crate::hold::reach(&format!($($name)+));
        // What is never called is not built, and neither is its name.
        #[cfg(not(debug_assertions))]
        let _ = || format!($($name)+);
    };
}

/// What this process was told.
#[cfg(debug_assertions)]
struct Told {
    arrived: File,
    go_on: File,
    point: String,
    was_there: AtomicBool,
}

/// The process has come to a point.
#[cfg(debug_assertions)]
pub fn reach(point: &str) {
    static TOLD: OnceLock<Option<Told>> = OnceLock::new();
    let told = TOLD.get_or_init(|| read(&std::env::var("RINGGATE_HOLD").ok()?));
    let Some(told) = told.as_ref().filter(|told| told.point == point) else { return };
    // It goes on for good.
    if told.was_there.swap(true, Ordering::Relaxed) {
        return;
    }
    // A test that is gone holds nothing.
    if writeln!(&told.arrived, "{}", std::process::id()).is_ok() {
        let _ = (&told.go_on).read(&mut [0]);
    }
}

/// `ARRIVED GO_ON POINT`
#[cfg(debug_assertions)]
fn read(told: &str) -> Option<Told> {
    let mut parts = told.splitn(3, ' ');
    let mut pipe = || Some(format!("/proc/self/fd/{}", parts.next()?));
    let arrived = File::options().write(true).open(pipe()?).ok()?;
    let go_on = File::open(pipe()?).ok()?;
    let point = parts.next()?.to_owned();
    Some(Told { arrived, go_on, point, was_there: AtomicBool::new(false) })
}
