//! HTTP: what comes in is bounded in size and time, and answered under a name whatever it is.
//!
//! `door` takes connections, `places` says whose goes where there are too many, `patient` gives
//! those up that do not read, `routes` says what there is and serves it.

pub(crate) mod door;
mod patient;
mod places;
pub mod routes;
