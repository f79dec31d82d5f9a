//! The certificates of tests, which lie in the folder of that name with the script that has made
//! them.

use super::super::Identity;

macro_rules! identity {
    ($name:literal) => {
        identity!($name, "authority")
    };
    ($name:literal, $authority:literal) => {
        Identity {
            authority: include_bytes!(concat!("../fixtures/", $authority, ".pem")),
            certificate: include_bytes!(concat!("../fixtures/", $name, ".pem")),
            key: include_bytes!(concat!("../fixtures/", $name, ".key")),
        }
    };
}

pub(crate) const GATEWAY: Identity<'_> = identity!("gateway");
pub(crate) const AGENT: Identity<'_> = identity!("agent");
pub(crate) const AGENT_NEXT: Identity<'_> = identity!("agent-next");
pub(crate) const EXPIRED: Identity<'_> = identity!("agent-expired");
pub(crate) const STRANGER: Identity<'_> = identity!("stranger");

pub(crate) const OTHER_AUTHORITY: &[u8] = include_bytes!("../fixtures/other-authority.pem");

/// Of the cluster `fra`: two members, and an agent whom the same authority has certified.
pub(crate) const MEMBER_1: Identity<'_> = identity!("gate-1", "cluster-authority");
pub(crate) const MEMBER_2: Identity<'_> = identity!("gate-2", "cluster-authority");
pub(crate) const CLUSTERS_AGENT: Identity<'_> = identity!("host-7", "cluster-authority");
