//! Trunks: bundle links over a network, between a gateway and the agent on a game host.
//!
//! [`protocol`] is what both ends say and decide, without a socket or a clock; it is all that is
//! built without the feature `sockets`. [`socket`] is one end of a trunk with its sockets, the same
//! at both; [`worker`] has the lanes of trunks in the hands of a gateway's worker; [`gateway`] is
//! where agents connect, and [`agent`] is the other end, with a game host's processes behind it.
//! [`peers`] are trunks between the gateways of a cluster.
#![deny(unsafe_code)]

#[cfg(feature = "sockets")]
pub mod agent;
#[cfg(feature = "sockets")]
pub mod gateway;
#[cfg(feature = "sockets")]
pub mod peers;
pub mod protocol;
#[cfg(feature = "sockets")]
pub mod socket;
#[cfg(feature = "sockets")]
pub mod worker;
