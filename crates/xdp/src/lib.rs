//! AF_XDP: frames between one queue of a network interface and memory of this process, past the
//! kernel's sockets.
//!
//! ```text
//!   card ─▶ program ─┬─ a datagram for one of our addresses ─▶ receive ring ─▶ Queue::receive
//!                    └─ everything else ─▶ kernel ─▶ ordinary sockets
//! ```
//!
//! A [`Program`](program::Program) is attached to the interface and says which frames are ours; it
//! passes on to the kernel what is odd in any way, and so does the kernel itself with all frames
//! once this process is gone. A [`Queue`](queue::Queue) is one queue's rings and the memory that
//! frames lie in. [`frame`] takes frames apart and writes headers: it knows bytes only.
#![deny(unsafe_code)]

pub mod book;
mod checksum;
pub mod frame;
pub mod memory;
pub mod netlink;
pub mod program;
pub mod queue;
mod ring;
pub mod routes;
mod socket;
