//! What is asked of an interface, what is heard of it, and what the next process is given: plain
//! values, which builds without the feature `xdp` know as well.

use std::io;
use std::os::fd::OwnedFd;

ringgate_core::named! {
    /// How frames are to come and go.
    pub enum CardMode;
    /// As well as the interface can.
    Auto = "auto",
    /// The card reads and writes our memory itself, or an error.
    ZeroCopy = "zerocopy",
    /// The driver runs the program, and the kernel copies.
    Copy = "copy",
    /// The kernel runs the program in front of its network stack, and copies.
    Generic = "generic",
}

/// Which interface, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardChoice {
    /// By its name.
    pub interface: String,
    /// How many of its queues are served, from the first on; all that are in use where nothing is
    /// said.
    pub queues: Option<u32>,
    /// How.
    pub mode: CardMode,
}

/// What is at an interface that nobody has asked for.
#[derive(Debug)]
pub enum CardNews {
    /// The program is off the interface, or the interface has another address: everything goes by
    /// the sockets.
    ProgramGone,
    /// It is on it again.
    ProgramBack,
    /// The program was not told of addresses that have changed, for this reason.
    Untold(io::Error),
}

/// An interface with our program on it, as another process is given it.
#[derive(Debug)]
pub struct GivenBase {
    /// What holds the program to the interface.
    pub attached: OwnedFd,
    /// What the program looks things up in.
    pub tables: [OwnedFd; 3],
    /// Queues that it knows.
    pub queues: u32,
    /// The kernel runs the program itself.
    pub is_generic: bool,
    /// Frames to receive and to send of each queue, and their bytes.
    pub sizes: [u32; 3],
    /// The interface's address by which the program knows frames; `None` where nobody has said so.
    pub mac: Option<[u8; 6]>,
}

/// A queue as another process is given it.
#[derive(Debug)]
pub struct GivenQueue {
    /// Its socket.
    pub socket: OwnedFd,
    /// The memory in which its frames lie.
    pub memory: OwnedFd,
    /// From where on.
    pub base: u64,
    /// Frames to send have room in front of them for a note.
    pub takes_notes: bool,
}
