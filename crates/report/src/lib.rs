//! What results are written as: latency logs that the tools of `HdrHistogram` read, charts, and
//! text for terminals. The daemon and the load generator share it.
#![deny(unsafe_code)]

pub mod chart;
pub mod hlog;
pub mod text;
