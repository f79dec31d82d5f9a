//! The doors that HTTP comes in through: how many connections each holds, and for how long.
//!
//! A newcomer who finds every seat taken gets that of a connection that has waited the longest
//! (`seats` says whose); a connection whose request is being served is never the one that goes.
//! Silent, slow-sending and slow-reading peers therefore hold a seat for a bounded time, and only
//! until another peer needs it.
//!
//! `door` takes connections and talks HTTP/1 with them, `listening` has the addresses and their
//! end, `timed_writes` gives those up that do not read. Roles bring what is answered.

mod door;
mod listening;
mod seats;
mod timed_writes;

pub use door::{DoorCounts, Ending, HttpConnection, HttpDoor, Lasts};
pub use listening::{bind, serve};
pub use seats::{DoorLimits, Seat};
pub use timed_writes::TimedWrites;
