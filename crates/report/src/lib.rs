//! What results are written as: latency logs that the tools of `HdrHistogram` read, charts, text
//! for terminals, pages for browsers, and captures that Wireshark reads. The daemon, the token
//! service and the load generator share it.
#![deny(unsafe_code)]

pub mod chart;
pub mod hlog;
pub mod metrics;
pub mod page;
pub mod pcapng;
pub mod text;
