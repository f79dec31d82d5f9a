//! What a cluster's member says of itself.

use std::net::SocketAddr;

use ringgate_os::clock::Clock;

/// What a member says of itself once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the cluster is called.
    pub cluster: String,
    /// What this member is called; no other is.
    pub name: String,
    /// Where others connect.
    pub bind: SocketAddr,
    /// Differs from one start to the next.
    pub incarnation: u64,
    /// The gateway's clock.
    pub clock: Clock,
}
