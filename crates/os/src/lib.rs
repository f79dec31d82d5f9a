//! The operating system, where nothing else may touch it: clocks, limits, signals, privileges, and
//! the system calls that the drivers need and no crate wraps.
#![deny(unsafe_code)]

pub mod bpf;
pub mod capabilities;
pub mod clock;
pub mod control;
pub mod diag;
pub mod hand;
pub mod hold;
pub mod host;
pub mod landlock;
pub mod local;
pub mod mapping;
pub mod memory;
pub mod message;
pub mod netlink;
pub mod notify;
pub mod option;
pub mod overflows;
pub mod owners;
pub mod patience;
pub mod plain;
pub mod process;
pub mod processor;
pub mod publishing;
pub mod rights;
pub mod segments;
pub mod shared;
pub mod signals;
pub mod sparing;
pub mod stored;
pub mod usage;
pub mod utc;
pub mod wiping;
