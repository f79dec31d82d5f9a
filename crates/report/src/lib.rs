//! What results are written as: latency logs that the tools of `HdrHistogram` read, charts, text
//! for terminals, and captures that Wireshark reads. The daemon and the load generator share it.
#![deny(unsafe_code)]

pub mod chart;
pub mod hlog;
pub mod pcapng;
pub mod text;
