//! What is counted and timed: by the generator itself, by the kernel, and by the gateway's process
//! and its admin page.

pub mod bursts;
pub mod gateway;
pub mod hlog;
pub mod kernel;
pub mod pause;
pub mod procfs;
pub mod silence;
pub mod tally;
pub mod watch;
