//! Who the gateways of a cluster are to each other.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

use super::{Agent, Gateway, Identity, Mistake};
use crate::protocol::control::PEER_ALPN;

/// The end of every name that a member's certificate is for, and of no agent's.
pub const DOMAIN: &str = ".ringgate-cluster";

/// What the certificate of a cluster's member has to be for.
pub fn certified_name(cluster: &str, member: &str) -> String {
    format!("{member}.{cluster}{DOMAIN}")
}

/// Both sides of a member.
#[derive(Clone, Debug)]
pub struct Peer {
    /// To those that connect.
    pub accepts: Gateway,
    /// To those that it connects to.
    pub dials: Agent,
}

impl Peer {
    /// Everything that is wrong with the files is said here and not at the first connection.
    pub fn new(provider: &Arc<CryptoProvider>, identity: Identity<'_>) -> Result<Self, Mistake> {
        Ok(Self {
            accepts: Gateway::speaking(PEER_ALPN, Arc::clone(provider), identity)?,
            dials: Agent::speaking(PEER_ALPN, Arc::clone(provider), identity)?,
        })
    }
}
