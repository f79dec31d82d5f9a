//! HTTP: what comes in is bounded in size and time, and answered under a name whatever it is.
//!
//! `door` has the connections, `routes` says what there is and serves it.

pub(crate) mod door;
pub mod routes;
